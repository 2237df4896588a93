/**
 * Block labels: what events say of blocks beside who holds them, and how it is read and written.
 *
 *   moe_metadata   of a store: {layer_id, expert_id, expert_group?}; one for all of its blocks, or a list
 *                  with one or nil for each
 *   cxl_metadata   of a store: {state, pool_id?, accessible_workers?}, likewise
 *   CxlStateTransition
 *                  block_hashes, new_state, pool_id?, accessible_workers?: the state of these blocks has
 *                  changed
 *
 * Ids of workers are of 64 bits, kept as their words. Members that are not known are passed over. Source: the
 * forms of NVIDIA Dynamo's router for MoE models over CXL memory.
 */

import { type MessagePackReader, WrongTypeError } from './message-pack-reader.ts'
import type { MessagePackWriter, Packed } from './message-pack-writer.ts'
import { POOL_STATES, type PoolState } from './pool-states.ts'

/** The expert that a block belongs to; all are u32. */
export interface KvExpert {
  readonly layerId: number
  readonly expertId: number
  readonly expertGroup: number | undefined
}

export interface KvPoolPlace {
  readonly state: PoolState
  /** u32. */
  readonly poolId: number | undefined
  /** Ids of the workers that reach it, beside the one that says so: pairs [lo, hi]. */
  readonly accessibleWorkers: Int32Array
}

/** Labels of the blocks of a store. Element i is of block i; blocks past the end have none. */
export interface KvLabels {
  readonly experts: readonly (KvExpert | undefined)[]
  readonly places: readonly (KvPoolPlace | undefined)[]
}

const U32_MAX = 0xffff_ffff
/** Most workers that one label may name; a label with more is malformed. */
export const ACCESSIBLE_WORKERS_MAX = 1024
const NO_WORKERS = new Int32Array(0)

/** One label for all blocks, or one for each. `readOne` reads a map. */
export type LabelsOf<T> = { readonly all: T } | readonly (T | undefined)[]

function readLabels<T>(reader: MessagePackReader, readOne: (reader: MessagePackReader) => T): LabelsOf<T> {
  if (reader.takeNil()) return []
  if (reader.peek() === 'map') return { all: readOne(reader) }
  const labels: (T | undefined)[] = []
  const count = reader.arrayCount()
  for (let i = 0; i < count; i++) labels.push(reader.takeNil() ? undefined : readOne(reader))
  return labels
}

export function readExperts(reader: MessagePackReader): LabelsOf<KvExpert> {
  return readLabels(reader, readExpert)
}

export function readPlaces(reader: MessagePackReader): LabelsOf<KvPoolPlace> {
  return readLabels(reader, readPlace)
}

/** By block. Throws WrongTypeError where there are more labels than blocks. */
export function byBlock<T>(labels: LabelsOf<T> | undefined, blocks: number): readonly (T | undefined)[] {
  if (labels === undefined) return []
  if ('all' in labels) return new Array<T>(blocks).fill(labels.all)
  if (labels.length > blocks)
    throw new WrongTypeError(`labels of ${labels.length} blocks, in a store of ${blocks}`)
  return labels
}

function readExpert(reader: MessagePackReader): KvExpert {
  let layerId: number | undefined
  let expertId: number | undefined
  let expertGroup: number | undefined
  eachMember(reader, key => {
    if (key === 'layer_id') layerId = readU32(reader)
    else if (key === 'expert_id') expertId = readU32(reader)
    else if (key === 'expert_group') expertGroup = readU32(reader)
    else reader.skip()
  })
  if (layerId === undefined || expertId === undefined)
    throw new WrongTypeError('an expert without layer or id')
  return { layerId, expertId, expertGroup }
}

function readPlace(reader: MessagePackReader): KvPoolPlace {
  let state: PoolState | undefined
  let poolId: number | undefined
  let accessibleWorkers: Int32Array | undefined
  eachMember(reader, key => {
    if (key === 'state') state = readState(reader)
    else if (key === 'pool_id') poolId = readU32(reader)
    else if (key === 'accessible_workers') accessibleWorkers = readWorkers(reader)
    else reader.skip()
  })
  return { state: state ?? 'local_gpu', poolId, accessibleWorkers: accessibleWorkers ?? NO_WORKERS }
}

function eachMember(reader: MessagePackReader, read: (key: string | undefined) => void): void {
  const pairCount = reader.mapCount()
  for (let i = 0; i < pairCount; i++) {
    if (reader.peek() === 'string') {
      read(reader.string())
      continue
    }
    reader.skip()
    reader.skip()
  }
}

/** Throws WrongTypeError for a state that has no name here. */
export function readState(reader: MessagePackReader): PoolState {
  const text = reader.string()
  const state = POOL_STATES.find(known => known === text)
  if (state === undefined) throw new WrongTypeError(`state ${JSON.stringify(text.slice(0, 40))}`)
  return state
}

/** Throws WrongTypeError for more than ACCESSIBLE_WORKERS_MAX. */
export function readWorkers(reader: MessagePackReader): Int32Array | undefined {
  if (reader.takeNil()) return undefined
  const ids = reader.hashes()
  const count = ids.length / 2
  if (count > ACCESSIBLE_WORKERS_MAX)
    throw new WrongTypeError(`${count} accessible_workers, of at most ${ACCESSIBLE_WORKERS_MAX}`)
  return ids
}

export function readU32(reader: MessagePackReader): number | undefined {
  if (reader.takeNil()) return undefined
  const value = reader.integer()
  if (!(value >= 0 && value <= U32_MAX)) throw new WrongTypeError(`number ${value}`)
  return value
}

/** The members of a store that say its labels; undefined: it has none. */
export function labelFields(labels: KvLabels | undefined): {
  readonly moe_metadata: unknown
  readonly cxl_metadata: unknown
} {
  return {
    moe_metadata: labelList(labels?.experts, expert => ({
      layer_id: expert.layerId,
      expert_id: expert.expertId,
      expert_group: expert.expertGroup ?? null,
    })),
    cxl_metadata: labelList(labels?.places, place => ({
      state: place.state,
      pool_id: place.poolId ?? null,
      accessible_workers: workerList(place.accessibleWorkers),
    })),
  }
}

function labelList<T>(
  labels: readonly (T | undefined)[] | undefined,
  write: (label: T) => unknown,
): readonly unknown[] | undefined {
  if (labels?.some(label => label !== undefined) !== true) return undefined
  return labels.map(label => (label === undefined ? null : write(label)))
}

export function workerList(workers: Int32Array): Packed {
  return {
    writeTo(to: MessagePackWriter) {
      to.arrayHead(workers.length / 2)
      for (let i = 0; i < workers.length; i += 2) to.longWord(workers[i]!, workers[i + 1]!, false)
    },
  }
}
