/**
 * Chain digest: some of the sequence hashes of a prompt, by which two prompts find the blocks that they
 * share without having each other's hashes.
 *
 *   depths   1, 2, 3 … 128 | 130, 132 … 256 | 260, 264 … 512 | …    64 in each doubling; then the last block
 *
 * A sequence hash stands for its block and all before it, so a hash that two prompts have in common at a
 * depth says that they share as many blocks. The depths are the same for all prompts, whatever their length.
 *
 * Exact for prompts that share up to 128 blocks, and for prompts that are equal; else what is shared is found
 * up to 1/64 of it.
 * Cost   one hash per block up to 128; 512 hashes for 8,192 blocks.
 */

const EXACT = 128
const PER_DOUBLING = 64
const PER_DOUBLING_BITS = 6

export interface ChainDigest {
  /** Blocks of the prompt. */
  readonly count: number
  /** Pairs [lo, hi], `digestLength(count)` of them. */
  readonly hashes: Int32Array
}

/** `sequenceHashes`: of all `count` blocks. */
export function chainDigest(sequenceHashes: Int32Array, count: number): ChainDigest {
  const length = digestLength(count)
  const hashes = new Int32Array(2 * length)
  for (let i = 0; i < length; i++) {
    const block = depthAt(i, count) - 1
    hashes[2 * i] = sequenceHashes[2 * block]!
    hashes[2 * i + 1] = sequenceHashes[2 * block + 1]!
  }
  return { count, hashes }
}

/** Hashes in the digest of a prompt of `count` blocks. */
export function digestLength(count: number): number {
  if (count <= EXACT) return count
  const doublings = 31 - Math.clz32(count / EXACT)
  const base = EXACT * 2 ** doublings
  const within = Math.ceil((count - base) / 2 ** (doublings + 1))
  return EXACT + doublings * PER_DOUBLING + within
}

/** Blocks that hash `i` of the digest of a prompt of `count` blocks stands for, from the first on. */
export function depthAt(i: number, count: number): number {
  if (i < EXACT) return Math.min(i + 1, count)
  const doublings = (i - EXACT) >> PER_DOUBLING_BITS
  const within = (i - EXACT) & (PER_DOUBLING - 1)
  return Math.min(EXACT * 2 ** doublings + (within + 1) * 2 ** (doublings + 1), count)
}
