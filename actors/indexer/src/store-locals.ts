/**
 * Locals of a store: the local hash of each of its blocks, whichever of the two the store has: tokens, or the
 * hashes themselves. All who put stores into an index ask here.
 *
 * A store by hashes is of a chain without a salt: its hashes say nothing of one. Its reader refuses it where
 * the chain has a salt.
 */

import { hashLocals, mediaOfBlocks, type Seed } from '@homing/blocks'
import type { KvStored } from '@homing/protocol'

/** Writes `event.hashes.length` words to the front of `into`. `seed`: of the chain, for tokens. */
export function writeStoreLocals(event: KvStored, seed: Seed, into: Int32Array): void {
  const { localHashes, tokens, blockSizeTokens, mediaHashes } = event
  if (localHashes !== undefined) into.set(localHashes)
  else hashLocals(tokens, blockSizeTokens, seed, into, 0, { media: mediaOfBlocks(mediaHashes) })
}
