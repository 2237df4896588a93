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
 * Ids of workers are of 64 bits, kept as their words. Members that are not known are kept as a text
 * (label-members.ts); those of a transition are passed over. Source: the forms of NVIDIA Dynamo's router for
 * MoE models over CXL memory.
 */

import { MembersRead, membersIn } from './label-members.ts'
import { type MessagePackReader, WrongTypeError } from './message-pack-reader.ts'
import type { MessagePackWriter, Packed } from './message-pack-writer.ts'
import { POOL_STATES, type PoolState } from './pool-states.ts'

/** The expert that a block belongs to; all are u32. */
export interface KvExpert {
  readonly layerId: number
  readonly expertId: number
  readonly expertGroup: number | undefined
  /** Those that are not known here: see label-members.ts. */
  readonly members?: string
}

export interface KvPoolPlace {
  readonly state: PoolState
  /** u32. */
  readonly poolId: number | undefined
  /** Ids of the workers that reach it, beside the one that says so: pairs [lo, hi]. */
  readonly accessibleWorkers: Int32Array
  /** Those that are not known here: see label-members.ts. Transitions say none, and change none. */
  readonly members?: string
}

/** Labels of the blocks of a store. Element i is of block i; blocks past the end have none. */
export interface KvLabels {
  readonly experts: readonly (KvExpert | undefined)[]
  readonly places: readonly (KvPoolPlace | undefined)[]
  /** Labels whose unknown members were left out; absent: none. */
  readonly membersLeftOut?: number
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

/** `leftOut` is called for each label whose unknown members cannot be kept. */
export function readExperts(reader: MessagePackReader, leftOut: () => void): LabelsOf<KvExpert> {
  return readLabels(reader, () => readExpert(reader, leftOut))
}

/** As `readExperts`. */
export function readPlaces(reader: MessagePackReader, leftOut: () => void): LabelsOf<KvPoolPlace> {
  return readLabels(reader, () => readPlace(reader, leftOut))
}

/** By block. Throws WrongTypeError where there are more labels than blocks. */
export function byBlock<T>(labels: LabelsOf<T> | undefined, blocks: number): readonly (T | undefined)[] {
  if (labels === undefined) return []
  if ('all' in labels) return new Array<T>(blocks).fill(labels.all)
  if (labels.length > blocks)
    throw new WrongTypeError(`labels of ${labels.length} blocks, in a store of ${blocks}`)
  return labels
}

function readExpert(reader: MessagePackReader, leftOut: () => void): KvExpert {
  let layerId: number | undefined
  let expertId: number | undefined
  let expertGroup: number | undefined
  const members = eachMember(reader, leftOut, key => {
    if (key === 'layer_id') layerId = readU32(reader)
    else if (key === 'expert_id') expertId = readU32(reader)
    else if (key === 'expert_group') expertGroup = readU32(reader)
    else return false
    return true
  })
  if (layerId === undefined || expertId === undefined)
    throw new WrongTypeError('an expert without layer or id')
  return { layerId, expertId, expertGroup, ...(members !== undefined && { members }) }
}

function readPlace(reader: MessagePackReader, leftOut: () => void): KvPoolPlace {
  let state: PoolState | undefined
  let poolId: number | undefined
  let accessibleWorkers: Int32Array | undefined
  const members = eachMember(reader, leftOut, key => {
    if (key === 'state') state = readState(reader)
    else if (key === 'pool_id') poolId = readU32(reader)
    else if (key === 'accessible_workers') accessibleWorkers = readWorkers(reader)
    // In dumps it has a meaning of its own.
    else if (key === 'workers_of') reader.skip()
    else return false
    return true
  })
  return {
    state: state ?? 'local_gpu',
    poolId,
    accessibleWorkers: accessibleWorkers ?? NO_WORKERS,
    ...(members !== undefined && { members }),
  }
}

/** Those that `read` does not know: it has read nothing then. */
function eachMember(
  reader: MessagePackReader,
  leftOut: () => void,
  read: (key: string) => boolean,
): string | undefined {
  const pairCount = reader.mapCount()
  let unknown: MembersRead | undefined
  for (let i = 0; i < pairCount; i++) {
    if (reader.peek() === 'string') {
      const key = reader.string()
      if (!read(key)) {
        unknown ??= new MembersRead()
        unknown.read(key, reader)
      }
      continue
    }
    unknown ??= new MembersRead()
    unknown.leaveOut()
    reader.skip()
    reader.skip()
  }
  return unknown?.text(leftOut)
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
      ...membersIn(expert.members),
      layer_id: expert.layerId,
      expert_id: expert.expertId,
      expert_group: expert.expertGroup ?? null,
    })),
    cxl_metadata: labelList(labels?.places, place => ({
      ...membersIn(place.members),
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
