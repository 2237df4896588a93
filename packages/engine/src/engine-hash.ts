/**
 * The engine hashes of the simulated engine: a chained 64-bit hash, opaque to every other program.
 *
 *   namespace -> root;   hash(block i) = mix(hash(block i − 1) or root, tokens of block i)
 *
 * Two 32-bit lanes with multiply and rotate, finished as in MurmurHash3. Deliberately no other program uses
 * this hash: a router that tried to recompute engine hashes would fail here. Cost: about 1 ns per token.
 */

/** The words [lo, hi] of a 64-bit hash, signed. */
export type HashWords = readonly [number, number]

/** The root of a chain: depends on the seed of the cache's epoch, the adapter and the salt. */
export function hashNamespace(
  seed: number,
  loraName: string | undefined,
  cacheSalt: string | undefined,
): HashWords {
  let low = finish((seed | 0) ^ 0x2545f491)
  let high = finish((seed | 0) ^ 0x6c8e9cf5)
  const label = `${loraName === undefined ? '' : `lora ${loraName}`}\0${cacheSalt === undefined ? '' : `salt ${cacheSalt}`}`
  if (label.length > 1) {
    for (let i = 0; i < label.length; i++) {
      const unit = label.charCodeAt(i)
      low = Math.imul(rotate(low ^ Math.imul(unit + 1, PRIME_A), 13), PRIME_B) | 0
      high = Math.imul(rotate(high ^ Math.imul(unit + 1, PRIME_C), 17), PRIME_A) | 0
    }
  }
  return [finish(low), finish(high ^ low)]
}

/**
 * Hashes `count` tokens from `start` under the words of the block before; writes [lo, hi] to `target[at]` and
 * after.
 */
export function hashBlock(
  parentLow: number,
  parentHigh: number,
  tokenIds: Int32Array,
  start: number,
  count: number,
  target: Int32Array,
  at: number,
): void {
  let low = Math.imul(parentLow, PRIME_C) ^ parentHigh
  let high = Math.imul(parentHigh, PRIME_B) ^ parentLow
  for (let i = start; i < start + count; i++) {
    const token = tokenIds[i]!
    low = Math.imul(rotate(low ^ Math.imul(token + 1, PRIME_A), 13), 5) + 0x52dce729
    high = Math.imul(rotate(high ^ Math.imul(token + 1, PRIME_C), 15), 5) + 0x38495ab5 + low
  }
  const mixedLow = finish(low ^ Math.imul(high, PRIME_A))
  target[at] = mixedLow
  target[at + 1] = finish(high ^ Math.imul(mixedLow, PRIME_B))
}

/**
 * The hashes of the full blocks of a prompt without adapter, in hexadecimal, in an engine with this hash
 * seed.
 */
export function promptHashes(
  hashSeed: number,
  tokenIds: ArrayLike<number>,
  blockSizeTokens: number,
  cacheSalt?: string,
): string[] {
  const tokens = Int32Array.from(tokenIds)
  let [low, high] = hashNamespace(hashSeed, undefined, undefined)
  if (cacheSalt !== undefined) [low, high] = hashNamespace(low, undefined, cacheSalt)
  const words = new Int32Array(2)
  const hashes: string[] = []
  for (let start = 0; start + blockSizeTokens <= tokens.length; start += blockSizeTokens) {
    hashBlock(low, high, tokens, start, blockSizeTokens, words, 0)
    low = words[0]!
    high = words[1]!
    hashes.push(hexOfHash(low, high))
  }
  return hashes
}

/** 16 hexadecimal digits of a hash, high word first. */
export function hexOfHash(low: number, high: number): string {
  return (high >>> 0).toString(16).padStart(8, '0') + (low >>> 0).toString(16).padStart(8, '0')
}

const PRIME_A = 0x9e3779b1
const PRIME_B = 0x85ebca77
const PRIME_C = 0xc2b2ae3d

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits))
}

function finish(word: number): number {
  let mixed = word | 0
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
  return (mixed ^ (mixed >>> 16)) | 0
}
