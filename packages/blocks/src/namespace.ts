/**
 * The seed of local hashes: equal tokens under another LoRA adapter or another cache salt are
 * other content, and must not match.
 *
 *   seed = 1337 + XXH3(loraName, 0) + XXH3(cacheSalt, 1)   modulo 2^64, absent terms left out
 *
 * The inner seeds 0 and 1 keep an adapter "x" apart from a salt "x". The formula is a public
 * contract between routers, publishers and indexers: a producer with another one never matches.
 */

import { addHashes, type Hash64 } from './hash64.ts'
import { xxh3 } from './xxh3.ts'

/** The seed of every local hash without adapter and salt, and of every step of a chain. */
export const DEFAULT_SEED: Seed = Object.freeze({ lo: 1337, hi: 0 })

/** A seed of XXH3-64; plain data, may be cached and sent between threads. */
export type Seed = Hash64

/** The seed of blocks that no prompt may match, since nobody knows whose they are. */
export const NOBODYS_SEED: Seed = Object.freeze({ lo: 0x5e9a_7b1d, hi: 0x3c40_96e2 })

/** What separates the caches of one worker from each other. An empty string is the same as none. */
export interface HashNamespace {
  readonly loraName?: string | undefined
  readonly cacheSalt?: string | undefined
}

const LORA_SEED: Seed = { lo: 0, hi: 0 }
const SALT_SEED: Seed = { lo: 1, hi: 0 }
const utf8 = new TextEncoder()

/** The seed of the local hashes in this namespace. Costs two short hashes; keep it per model and salt. */
export function namespaceSeed(namespace: HashNamespace = {}): Seed {
  let seed = DEFAULT_SEED
  if (namespace.loraName) seed = addHashes(seed, xxh3(utf8.encode(namespace.loraName), LORA_SEED))
  if (namespace.cacheSalt) seed = addHashes(seed, xxh3(utf8.encode(namespace.cacheSalt), SALT_SEED))
  return seed
}
