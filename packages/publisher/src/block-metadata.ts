/** Block metadata: what a call may say of blocks beside their tokens, checked and in the words of events. */

import {
  ACCESSIBLE_WORKERS_MAX,
  type KvExpert,
  type KvLabels,
  type KvPoolPlace,
  LabelMembersError,
  labelMembers,
  POOL_STATES,
  type PoolState,
} from '@homing/protocol'
import { wordsOf } from './engine-hash.ts'
import { BadBlockError } from './errors.ts'

/** The expert of an MoE model. Whole numbers of 32 bits. */
export interface MoeMetadata {
  readonly layerId: number
  readonly expertId: number
  readonly expertGroup?: number | undefined
  /** Further members, by their names on the wire: kept for those who know them (docs/labels.md). */
  readonly members?: Readonly<Record<string, unknown>> | undefined
}

/** Where a block is. */
export interface CxlMetadata {
  readonly state: PoolState
  /** A whole number of 32 bits. */
  readonly poolId?: number | undefined
  /** Ids of the workers that reach it, beside the one that publishes this: `id` in `GET /workers`. */
  readonly accessibleWorkers?: readonly (number | bigint)[] | undefined
  /** As those of `MoeMetadata`. A transition has none, and changes none. */
  readonly members?: Readonly<Record<string, unknown>> | undefined
}

interface Labelled {
  readonly moeMetadata?: MoeMetadata | undefined
  readonly cxlMetadata?: CxlMetadata | undefined
}

const U32_MAX = 0xffff_ffff
const U64_MAX = 2n ** 64n - 1n

/** Labels of the blocks of a call; undefined: none has any. Throws BadBlockError. */
export function labelsOfBlocks(blocks: readonly Labelled[]): KvLabels | undefined {
  const has = (name: keyof Labelled) => blocks.some(block => block[name] !== undefined)
  if (!has('moeMetadata') && !has('cxlMetadata')) return undefined
  const nameOf = (i: number) => `block ${i} of ${blocks.length}`
  return {
    experts: blocks.map(({ moeMetadata }, i) => moeMetadata && expertOf(moeMetadata, nameOf(i))),
    places: blocks.map(({ cxlMetadata }, i) => cxlMetadata && placeOf(cxlMetadata, nameOf(i))),
  }
}

/** Those of some of the blocks. */
export function partOf(labels: KvLabels | undefined, from: number, to: number): KvLabels | undefined {
  return labels && { experts: labels.experts.slice(from, to), places: labels.places.slice(from, to) }
}

function expertOf({ layerId, expertId, expertGroup, members }: MoeMetadata, block: string): KvExpert {
  return {
    layerId: u32(layerId, 'layerId', block),
    expertId: u32(expertId, 'expertId', block),
    expertGroup: expertGroup === undefined ? undefined : u32(expertGroup, 'expertGroup', block),
    ...membersOf(members, EXPERT_NAMES, block),
  }
}

/** Throws BadBlockError. */
export function placeOf(metadata: CxlMetadata, block: string): KvPoolPlace {
  const { state, poolId, accessibleWorkers = [], members } = metadata
  if (!POOL_STATES.includes(state)) {
    const states = POOL_STATES.join(', ')
    throw new BadBlockError(block, `its state is ${JSON.stringify(state)}; use one of ${states}`)
  }
  const count = accessibleWorkers.length
  if (count > ACCESSIBLE_WORKERS_MAX)
    throw new BadBlockError(block, `${count} workers have access; name at most ${ACCESSIBLE_WORKERS_MAX}`)
  return {
    state,
    poolId: poolId === undefined ? undefined : u32(poolId, 'poolId', block),
    accessibleWorkers: wordsOf(accessibleWorkers.map(id => workerId(id, block))),
    ...membersOf(members, PLACE_NAMES, block),
  }
}

const EXPERT_NAMES: readonly string[] = ['layer_id', 'expert_id', 'expert_group']
const PLACE_NAMES: readonly string[] = ['state', 'pool_id', 'accessible_workers', 'workers_of']

function membersOf(
  members: Readonly<Record<string, unknown>> | undefined,
  taken: readonly string[],
  block: string,
): { readonly members?: string } {
  if (members === undefined) return {}
  const name = taken.find(one => Object.hasOwn(members, one))
  if (name !== undefined)
    throw new BadBlockError(block, `${name} is among its members; use the field for it, or another name`)
  try {
    const text = labelMembers(Object.entries(members))
    return text === undefined ? {} : { members: text }
  } catch (thrown) {
    if (!(thrown instanceof LabelMembersError)) throw thrown
    throw new BadBlockError(block, `its members have ${thrown.message}; use less, of what JSON has`)
  }
}

function u32(value: number, name: string, block: string): number {
  if (Number.isInteger(value) && value >= 0 && value <= U32_MAX) return value
  throw new BadBlockError(block, `its ${name} is ${value}; use a whole number from 0 to ${U32_MAX}`)
}

function workerId(id: number | bigint, block: string): bigint {
  const isWhole = typeof id === 'bigint' || Number.isSafeInteger(id)
  const bits = isWhole ? BigInt(id) : -1n
  if (bits >= 0n && bits <= U64_MAX) return bits
  throw new BadBlockError(block, `a worker with access has id ${id}; use whole numbers from 0 to ${U64_MAX}`)
}
