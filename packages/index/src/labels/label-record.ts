/** Label record: what is said of a block, as the label table takes it and gives it back, and its figures. */

import type { MoeLabel } from './label-words.ts'
import type { PoolStateCode } from './pool-states.ts'

/** A state in pooled memory, with all that is told of it. */
export interface PoolPlace {
  readonly state: PoolStateCode
  /** u32; undefined: none is named. */
  readonly poolId: number | undefined
  /** Ids of the workers that reach it beside the one that says so, pairs [lo, hi]. */
  readonly workerIds: Int32Array
  /** What else stores said of it, as a text that nothing here reads. Transitions keep it. */
  readonly members?: string
}

/** One record. Hashes are pairs [lo, hi]. */
export interface LabelRecord {
  readonly engineHash: readonly [low: number, high: number]
  readonly sequenceHash: readonly [low: number, high: number]
  readonly moe: MoeLabel | undefined
  readonly place: PoolPlace
  /** The worker holds the block itself, as far as its events show. */
  readonly isHeld: boolean
}

/** The expert of a block of which only one worker slot that holds it has a record. */
export interface LastLabel extends Pick<LabelRecord, 'engineHash' | 'sequenceHash'> {
  readonly moe: MoeLabel
}

/** A record without its hashes, and whose it is: ORPHAN_SLOT where that worker has left. */
export interface PlacedRecord {
  readonly workerSlot: number
  readonly moe: MoeLabel | undefined
  readonly state: PoolStateCode
  readonly poolId: number | undefined
  /** Names the list of workers that reach it; 0: none do. */
  readonly workerSet: number
}

/** `unknown`: there is no such block, and nothing says where it would be. `full`: it found no room. */
export type TransitionOutcome = 'changed' | 'illegal' | 'unknown' | 'full'

export interface LabelStats {
  readonly bytesUsed: number
  readonly bytesLimit: number
  readonly blocks: number
  readonly labelledBlocks: number
  readonly records: number
  /** How much of the room is used, 0 … 1: for blocks, for records, for lists of workers. */
  readonly fullness: { readonly blocks: number; readonly records: number; readonly workers: number }
  /** By state code. */
  readonly byState: readonly number[]
  /** Pooled records of workers that have left. */
  readonly orphans: number
  /** Counters: transitions by their outcome, records dropped to make room, records that found none. */
  readonly transitions: Readonly<Record<TransitionOutcome, number>>
  readonly dropped: number
  readonly refused: number
}

/** What a store says of one block. */
export interface LabelInput extends Pick<LabelRecord, 'engineHash' | 'sequenceHash' | 'moe' | 'isHeld'> {
  readonly workerSlot: number
  readonly place: PoolPlace | undefined
}
