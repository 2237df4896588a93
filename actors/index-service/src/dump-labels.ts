/**
 * Dump labels: what the events of a dump say of blocks beside who holds them.
 *
 *   moe_metadata, cxl_metadata   of a stored block
 *   cxl_state_transition         of blocks in pools that the rank does not hold, with `sequence_hashes`
 *
 * Both are read leniently, because a peer may be of another version: members that are not known are kept as
 * they are, those of a transition in its `cxl_metadata`; a label or transition that cannot be used is left
 * out and counted; the block itself counts without it. A transition without `sequence_hashes`, as other
 * implementations write it, says nothing that could be used, because it does not say where its blocks are.
 */

import { tryBits64 } from '@homing/base'
import { bigintToHash } from '@homing/blocks'
import {
  ACCESSIBLE_WORKERS_MAX,
  type KvExpert,
  type KvPoolPlace,
  LABEL_MEMBERS_DEPTH_MAX,
  LabelMembersError,
  labelMembers,
  POOL_STATES,
  type PoolState,
} from '@homing/protocol'

/** Blocks in a pool that a rank does not hold; hashes are pairs [lo, hi]. */
export interface PooledRun {
  readonly engineHashes: Int32Array
  readonly sequenceHashes: Int32Array
  readonly place: KvPoolPlace
  /** By block; absent: it has none. */
  readonly experts: readonly (KvExpert | undefined)[]
}

type Fields = Readonly<Record<string, unknown>>

const U32_MAX = 0xffff_ffff
const TRANSITION_BLOCKS_MAX = 65_536
const LONG_INTEGER = /^-?[1-9]\d{15,}$/

/** What was left out of a dump because it cannot be used. */
export interface LeftOut {
  labels: number
  /** Labels that are used without the members that are not known here. */
  members: number
  transitions: number
}

/** Undefined: there is none, or it is left out. */
export function readExpert(value: unknown, leftOut: LeftOut): KvExpert | undefined {
  if (value === undefined || value === null) return undefined
  const expert = usable(() => {
    const { layer_id: layer, expert_id: expertId, expert_group: group, ...others } = fieldsOf(value)
    const expertGroup = group === undefined || group === null ? undefined : u32(group)
    return { layerId: u32(layer), expertId: u32(expertId), expertGroup, ...membersOf(others, leftOut) }
  })
  if (expert === undefined) leftOut.labels++
  return expert
}

/** Undefined: there is none, or it is left out. `before`: those of the blocks before it in its event. */
export function readPlace(
  value: unknown,
  before: readonly (KvPoolPlace | undefined)[],
  leftOut: LeftOut,
): KvPoolPlace | undefined {
  if (value === undefined || value === null) return undefined
  const place = usable(() => {
    const { state = 'local_gpu', pool_id: pool, accessible_workers: workers, ...more } = fieldsOf(value)
    const { workers_of: first, ...others } = more
    const isFirst = first === undefined || first === null
    const told = isFirst ? undefined : (before[u32(first)] ?? unusable()).accessibleWorkers
    const place = placeOf(state, pool, isFirst ? workers : undefined)
    return { ...place, ...(told && { accessibleWorkers: told }), ...membersOf(others, leftOut) }
  })
  if (place === undefined) leftOut.labels++
  return place
}

/** Undefined: it does not say where its blocks are, or is left out. */
export function readTransition(value: unknown, leftOut: LeftOut): PooledRun | undefined {
  if (sequencesOf(value) === undefined) return undefined
  const moved = usable(() => {
    const fields = fieldsOf(value)
    const engineHashes = hashesOf(fields['block_hashes'])
    const sequenceHashes = hashesOf(fields['sequence_hashes'])
    if (engineHashes.length !== sequenceHashes.length) return unusable()
    const told = placeOf(fields['new_state'], fields['pool_id'], fields['accessible_workers'])
    const place = { ...told, ...otherMembersOf(fields['cxl_metadata'], leftOut) }
    return { engineHashes, sequenceHashes, place, experts: fields['moe_metadata'] ?? [] }
  })
  if (moved === undefined) {
    leftOut.transitions++
    return undefined
  }
  const { experts } = moved
  if (Array.isArray(experts) && experts.length <= moved.engineHashes.length / 2)
    return { ...moved, experts: experts.map(expert => readExpert(expert, leftOut)) }
  leftOut.labels++
  return { ...moved, experts: [] }
}

function sequencesOf(transition: unknown): unknown {
  const { sequence_hashes: sequences } = (transition ?? {}) as Fields
  return sequences ?? undefined
}

function placeOf(state: unknown, pool: unknown, workers: unknown): KvPoolPlace {
  if (!POOL_STATES.includes(state as PoolState)) return unusable()
  const isNamed = workers !== undefined && workers !== null
  return {
    state: state as PoolState,
    poolId: pool === undefined || pool === null ? undefined : u32(pool),
    accessibleWorkers: isNamed ? hashesOf(workers, ACCESSIBLE_WORKERS_MAX) : new Int32Array(0),
  }
}

/** Those of a transition's place that its own fields do not say. */
function otherMembersOf(value: unknown, leftOut: LeftOut): { readonly members?: string } {
  if (value === undefined || value === null) return {}
  if (typeof value !== 'object' || Array.isArray(value)) {
    leftOut.members++
    return {}
  }
  const {
    state: _,
    pool_id: _pool,
    accessible_workers: _workers,
    workers_of: _of,
    ...others
  } = fieldsOf(value)
  return membersOf(others, leftOut)
}

/** None where they cannot be kept, which is counted. */
function membersOf(others: Fields, leftOut: LeftOut): { readonly members?: string } {
  try {
    const members = labelMembers(Object.entries(others).map(([name, value]) => [name, numbered(value)]))
    return members === undefined ? {} : { members }
  } catch (thrown) {
    if (!(thrown instanceof LabelMembersError)) throw thrown
    leftOut.members++
    return {}
  }
}

/** Whole numbers of 16 digits or more are texts where JSON of peers is read (packages/base, wide-json.ts). */
function numbered(value: unknown, depth = LABEL_MEMBERS_DEPTH_MAX): unknown {
  if (typeof value === 'string') {
    if (!LONG_INTEGER.test(value)) return value
    return tryBits64(value) === undefined ? Number(value) : BigInt(value)
  }
  // What is deeper is refused.
  if (typeof value !== 'object' || value === null || depth === 0) return value
  if (Array.isArray(value)) return value.map(each => numbered(each, depth - 1))
  return new Map(Object.entries(value).map(([name, each]) => [name, numbered(each, depth - 1)]))
}

/** Pairs [lo, hi] of numbers of 64 bits, which may be signed. */
function hashesOf(value: unknown, countMax = TRANSITION_BLOCKS_MAX): Int32Array {
  if (!Array.isArray(value) || value.length > countMax) return unusable()
  const words = new Int32Array(2 * value.length)
  for (const [i, each] of (value as readonly unknown[]).entries()) {
    const { lo, hi } = bigintToHash(tryBits64(each) ?? unusable())
    words[2 * i] = lo
    words[2 * i + 1] = hi
  }
  return words
}

function u32(value: unknown): number {
  const isIt = typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= U32_MAX
  return isIt ? value : unusable()
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : unusable()
}

/** Thrown by the readers of parts of a label, and caught where the label ends. */
const UNUSABLE = new Error('cannot use the label: a part of it is not as it must be')

function unusable(): never {
  throw UNUSABLE
}

/** Undefined: it cannot be used. */
function usable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (thrown) {
    if (thrown === UNUSABLE) return undefined
    throw thrown
  }
}
