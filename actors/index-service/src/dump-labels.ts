/**
 * Dump labels: what the events of a dump say of blocks beside who holds them.
 *
 *   moe_metadata, cxl_metadata   of a stored block
 *   cxl_state_transition         of blocks in pools that the rank does not hold, with `sequence_hashes`
 *
 * Both are read leniently, because a peer may be of another version: fields that are not known are passed
 * over, and a label or transition that cannot be used is left out and counted; the block itself counts
 * without it. A transition without `sequence_hashes`, as other implementations write it, says nothing that
 * could be used, because it does not say where its blocks are.
 */

import { tryBits64 } from '@homing/base'
import { bigintToHash } from '@homing/blocks'
import {
  ACCESSIBLE_WORKERS_MAX,
  type KvExpert,
  type KvPoolPlace,
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

/** What was left out of a dump because it cannot be used. */
export interface LeftOut {
  labels: number
  transitions: number
}

/** Undefined: there is none, or it is left out. */
export function readExpert(value: unknown, leftOut: LeftOut): KvExpert | undefined {
  if (value === undefined || value === null) return undefined
  const expert = usable(() => {
    const { layer_id: layer, expert_id: expertId, expert_group: group } = fieldsOf(value)
    const expertGroup = group === undefined || group === null ? undefined : u32(group)
    return { layerId: u32(layer), expertId: u32(expertId), expertGroup }
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
    const { state = 'local_gpu', pool_id: pool, accessible_workers: workers } = fieldsOf(value)
    const { workers_of: first } = fieldsOf(value)
    if (first === undefined || first === null) return placeOf(state, pool, workers)
    const { accessibleWorkers } = before[u32(first)] ?? unusable()
    return { ...placeOf(state, pool, undefined), accessibleWorkers }
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
    const place = placeOf(fields['new_state'], fields['pool_id'], fields['accessible_workers'])
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
