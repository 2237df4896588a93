/**
 * Dump labels: what the events of a dump say of blocks beside who holds them.
 *
 *   moe_metadata, cxl_metadata   of a stored block
 *   cxl_state_transition         of blocks in pools that the rank does not hold, with `sequence_hashes`
 *
 * Both are read leniently: fields that are not known are passed over. A transition without `sequence_hashes`,
 * as other implementations write it, says nothing that could be used, because it does not say where its
 * blocks are.
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

/** Undefined: there is none. */
export function readExpert(value: unknown, fail: () => never): KvExpert | undefined {
  if (value === undefined || value === null) return undefined
  const { layer_id: layer, expert_id: expert, expert_group: group } = fieldsOf(value, fail)
  return {
    layerId: u32(layer, fail),
    expertId: u32(expert, fail),
    expertGroup: group === undefined || group === null ? undefined : u32(group, fail),
  }
}

/** Undefined: there is none. */
export function readPlace(value: unknown, fail: () => never): KvPoolPlace | undefined {
  if (value === undefined || value === null) return undefined
  const { state = 'local_gpu', pool_id: pool, accessible_workers: workers } = fieldsOf(value, fail)
  return placeOf(state, pool, workers, fail)
}

/** Undefined: it does not say where its blocks are. */
export function readTransition(value: unknown, fail: () => never): PooledRun | undefined {
  const fields = fieldsOf(value, fail)
  const { sequence_hashes: sequences, moe_metadata: experts } = fields
  if (sequences === undefined || sequences === null) return undefined
  const engineHashes = hashesOf(fields['block_hashes'], fail)
  const sequenceHashes = hashesOf(sequences, fail)
  if (engineHashes.length !== sequenceHashes.length) return fail()
  const place = placeOf(fields['new_state'], fields['pool_id'], fields['accessible_workers'], fail)
  if (experts === undefined || experts === null) return { engineHashes, sequenceHashes, place, experts: [] }
  if (!Array.isArray(experts) || experts.length > engineHashes.length / 2) return fail()
  return { engineHashes, sequenceHashes, place, experts: experts.map(expert => readExpert(expert, fail)) }
}

function placeOf(state: unknown, pool: unknown, workers: unknown, fail: () => never): KvPoolPlace {
  if (!POOL_STATES.includes(state as PoolState)) return fail()
  const isNamed = workers !== undefined && workers !== null
  return {
    state: state as PoolState,
    poolId: pool === undefined || pool === null ? undefined : u32(pool, fail),
    accessibleWorkers: isNamed ? hashesOf(workers, fail, ACCESSIBLE_WORKERS_MAX) : new Int32Array(0),
  }
}

/** Pairs [lo, hi] of numbers of 64 bits, which may be signed. */
function hashesOf(value: unknown, fail: () => never, countMax = TRANSITION_BLOCKS_MAX): Int32Array {
  if (!Array.isArray(value) || value.length > countMax) return fail()
  const words = new Int32Array(2 * value.length)
  for (const [i, each] of (value as readonly unknown[]).entries()) {
    const { lo, hi } = bigintToHash(tryBits64(each) ?? fail())
    words[2 * i] = lo
    words[2 * i + 1] = hi
  }
  return words
}

function u32(value: unknown, fail: () => never): number {
  const isIt = typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= U32_MAX
  return isIt ? value : fail()
}

function fieldsOf(value: unknown, fail: () => never): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : fail()
}
