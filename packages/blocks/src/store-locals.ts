/**
 * Locals of a store: the local hash of each of its blocks, whichever of the two the store has: tokens, or the
 * hashes themselves. Every index that stores are put into gets them here.
 *
 * A store by hashes is of a chain without a salt: its hashes say nothing of one. Its reader refuses it where
 * the chain has a salt.
 */

import { hashLocals } from './blocks.ts'
import { mediaOfBlocks } from './media.ts'
import type { Seed } from './namespace.ts'

/** What a store says of the content of its blocks. */
export interface StoredContent {
  /** Pairs [lo, hi]; undefined: the tokens say it. */
  readonly localHashes?: Int32Array | undefined
  readonly tokens: Int32Array
  readonly blockSizeTokens: number
  readonly mediaHashes?: Parameters<typeof mediaOfBlocks>[0]
}

/** Writes two words for each block to the front of `into`. `seed`: of the chain, for tokens. */
export function writeStoreLocals(store: StoredContent, seed: Seed, into: Int32Array): void {
  const { localHashes, tokens, blockSizeTokens, mediaHashes } = store
  if (localHashes !== undefined) into.set(localHashes)
  else hashLocals(tokens, blockSizeTokens, seed, into, 0, { media: mediaOfBlocks(mediaHashes) })
}
