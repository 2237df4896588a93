/** Held block: what is kept of one block of a worker key's cache. */

import type { KvMedia, KvStored } from '@homing/protocol'

/** Measured: a million blocks of 16 tokens take 198 to 222 bytes each, tokens included. */
export const BLOCK_BYTES = 160

/** What all blocks of a store have in common. Compared by identity. */
export type Traits = Pick<
  KvStored,
  | 'blockSizeTokens'
  | 'tier'
  | 'loraName'
  | 'loraId'
  | 'cacheSalt'
  | 'hasUnknownExtraKeys'
  | 'group'
  | 'attention'
  | 'tells'
  | 'isLocal'
>

/** One block in one tier. */
export interface HeldBlock {
  readonly key: bigint
  readonly parent: bigint | undefined
  readonly traits: Traits
  /** −1: a placeholder, without tokens. */
  readonly row: number
  readonly media: readonly KvMedia[] | undefined
  copies: number
  /**
   * Number of the last freeze before the block was stored; all later freezes have the block. While a freeze
   * sorts its blocks, the complement (below 0) marks a block that is in its place: a field of its own would
   * take 8 bytes per block.
   */
  bornAfter: number
}

/** Bytes that one copy of it counts as. */
export function bytesOf(block: HeldBlock): number {
  return BLOCK_BYTES + 4 * tokensOf(block)
}

/** Tokens in its store; 0 for a placeholder. */
export function tokensOf({ row, traits }: HeldBlock): number {
  return row < 0 ? 0 : traits.blockSizeTokens
}
