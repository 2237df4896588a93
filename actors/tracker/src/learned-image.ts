/**
 * Learned image: what was learned of workers and of the fleet, and of which lives of engines; as plain data,
 * and as the bytes of a file. The bytes are a sealed body (packages/protocol). Every number of a file is
 * checked before one of them counts.
 */

import { type FleetImage, fleetImageFault, type WorkerImage, workerImageFault } from '@homing/load'
import { openSealedBody, type SealedFields, type SealedForm, sealBody } from '@homing/protocol'
import { UnusableLearnedFileError } from './errors.ts'

/** A life of an engine, as far as it is known. */
export interface EngineLife {
  readonly joinedMs: number
  readonly promptsEpoch: number
  /** When its process began; undefined: it does not say. */
  readonly processStartSeconds: number | undefined
}

export interface LearnedWorker extends EngineLife {
  /** Worker key. */
  readonly worker: string
  /** Unix milliseconds at which the image was taken. */
  readonly takenMs: number
  readonly image: WorkerImage
}

/** All that was learned. */
export interface LearnedImage {
  readonly fleet: { readonly takenMs: number; readonly image: FleetImage }
  readonly workers: readonly LearnedWorker[]
}

/** A worker has five fits of 102 numbers at most, and a name. */
const WORKER_BYTES_MAX = 8192
const WORKER_VALUES_MAX = 64
const REST_BYTES_MAX = 65_536
const REST_VALUES_MAX = 256

/** Most bytes of a file with this number of workers. */
export function learnedBytesMax(workersMax: number): number {
  return REST_BYTES_MAX + workersMax * WORKER_BYTES_MAX
}

function formOf(workersMax: number): SealedForm {
  return {
    magic: 'HOMINGLV',
    version: 1,
    bounds: {
      bytesMax: learnedBytesMax(workersMax),
      valuesMax: REST_VALUES_MAX + workersMax * WORKER_VALUES_MAX,
      depthMax: 8,
    },
    name: 'file of learned values',
    unusable: (fault, reason) => new UnusableLearnedFileError(fault, reason),
  }
}

export function encodeLearned({ fleet, workers }: LearnedImage): Uint8Array[] {
  return sealBody(formOf(workers.length), {
    fleet: { takenMs: fleet.takenMs, image: writtenFleet(fleet.image) },
    workers: workers.map(worker => ({ ...worker, image: written(worker.image) })),
  })
}

/** Throws UnusableLearnedFileError, with the fault. Also if it has more than `workersMax` workers. */
export function decodeLearned(bytes: Uint8Array, workersMax: number): LearnedImage {
  const root = openSealedBody(formOf(workersMax), bytes)
  const fleet = root.fields('fleet')
  const list = root.list('workers')
  root.require(list.length <= workersMax, `it has ${workersMax} workers at most`)
  return {
    fleet: { takenMs: fleet.number('takenMs'), image: readFleet(fleet.fields('image')) },
    workers: list.map(entry => {
      const worker = root.within(entry, 'workers')
      return {
        worker: worker.text('worker'),
        joinedMs: worker.number('joinedMs'),
        promptsEpoch: worker.integer('promptsEpoch', 0),
        processStartSeconds: worker.has('processStartSeconds')
          ? worker.number('processStartSeconds')
          : undefined,
        takenMs: worker.number('takenMs'),
        image: readWorker(worker.fields('image')),
      }
    }),
  }
}

function readWorker(fields: SealedFields): WorkerImage {
  const image = partsOf(fields)
  const fault = workerImageFault(image)
  fields.require(fault === undefined, `it can be used: ${fault}`)
  return image
}

function readFleet(fields: SealedFields): FleetImage {
  const image = {
    ...partsOf(fields),
    output: fields.floats('output'),
    transfer: fields.has('transfer') ? fields.floats('transfer') : undefined,
    knee: fields.floats('knee'),
    times: fields.floats('times'),
    shares: fields.floats('shares'),
  }
  const fault = fleetImageFault(image)
  fields.require(fault === undefined, `it can be used: ${fault}`)
  return image
}

function partsOf(fields: SealedFields): WorkerImage {
  const prefill = fields.has('prefill') ? fields.list('prefill') : undefined
  return {
    prefill: prefill?.map((_, at) => fields.within(prefill, 'prefill').floats(String(at))),
    decode: fields.has('decode') ? fields.floats('decode') : undefined,
    output: fields.has('output') ? fields.floats('output') : undefined,
  }
}

function writtenFleet(image: FleetImage): object {
  const { transfer, knee, times, shares } = image
  return {
    ...written(image),
    transfer: transfer && bytesOf(transfer),
    knee: bytesOf(knee),
    times: bytesOf(times),
    shares: bytesOf(shares),
  }
}

function written({ prefill, decode, output }: WorkerImage): object {
  return {
    prefill: prefill?.map(bytesOf),
    decode: decode && bytesOf(decode),
    output: output && bytesOf(output),
  }
}

function bytesOf(numbers: Float64Array): Uint8Array {
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)
}
