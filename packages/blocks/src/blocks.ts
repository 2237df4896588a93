/**
 * Tokens to blocks to local hashes to sequence hashes.
 *
 *   tokens      | block 0   | block 1   | block 2   | rest, ignored
 *   local       XXH3(tokens of the block, seed of the namespace)
 *   sequence    s0 = local 0        s(i) = XXH3(s(i-1) then local i, 1337)
 *
 * Blocks follow each other without overlap. With the window of a speculative engine (EAGLE) a block
 * is hashed together with the token after it, so the last full block needs one token more.
 *
 * Cost: a prompt is copied once and hashed in one pass, about 30 ns per block of 16 tokens.
 * Source: the public hash contract of KV routers; the vectors are in test/blocks.test.ts.
 */

import { type Hash64, sortHashes } from './hash64.ts'
import type { MediaByBlock } from './media.ts'
import type { Seed } from './namespace.ts'
import { chainHashes, hashWindows, xxh3 } from './xxh3.ts'

/** The hashes of the full blocks of a prompt. Both arrays belong to the caller. */
export interface BlockHashes {
  /** Full blocks, and so pairs in each array. */
  readonly count: number
  /** Pairs [lo, hi]: pair i is the hash of block i alone. */
  readonly local: Int32Array
  /** Pairs [lo, hi]: pair i is the hash of block i and all before it. */
  readonly sequence: Int32Array
}

/** What changes how the tokens of a prompt are hashed. */
export interface BlockOptions {
  /** The media hashes of each block, see `mediaByBlock`. */
  readonly media?: MediaByBlock | undefined
  /** The engine speculates with EAGLE: a window is one token longer than a block. */
  readonly eagle?: boolean | undefined
}

/** Full blocks in `tokenCount` tokens; 0 when the block size is 0. */
export function fullBlocks(tokenCount: number, blockSizeTokens: number, eagle = false): number {
  if (blockSizeTokens <= 0) return 0
  return Math.max(0, Math.floor((tokenCount - (eagle ? 1 : 0)) / blockSizeTokens))
}

/** Hashes the full blocks of `tokens` (bit patterns of u32 ids), which are only read. */
export function hashBlocks(
  tokens: Int32Array | Uint32Array,
  blockSizeTokens: number,
  seed: Seed,
  options: BlockOptions = {},
): BlockHashes {
  const count = fullBlocks(tokens.length, blockSizeTokens, options.eagle)
  const local = new Int32Array(count * 2)
  hashLocals(tokens, blockSizeTokens, seed, local, 0, options)
  return { count, local, sequence: chainSequence(local, count) }
}

/**
 * Writes the local hashes of the full blocks of `tokens` into `target`, from word `targetIndex`.
 * Returns the number of blocks. Throws a RangeError when the target is too short.
 */
export function hashLocals(
  tokens: Int32Array | Uint32Array,
  blockSizeTokens: number,
  seed: Seed,
  target: Int32Array,
  targetIndex = 0,
  { media, eagle = false }: BlockOptions = {},
): number {
  const count = fullBlocks(tokens.length, blockSizeTokens, eagle)
  if (targetIndex + count * 2 > target.length) {
    throw new RangeError(
      `cannot write ${count} hashes at ${targetIndex}: the target has ${target.length} words`,
    )
  }
  if (count === 0) return 0
  const windowTokens = blockSizeTokens + (eagle ? 1 : 0)
  hashWindows(tokens, count, blockSizeTokens, windowTokens, seed, target, targetIndex)
  if (media !== undefined) {
    for (let block = 0; block < Math.min(count, media.length); block++) {
      const hashes = media[block]
      if (hashes === undefined || hashes.length === 0) continue
      const start = block * blockSizeTokens
      const hash = hashWithMedia(tokens.subarray(start, start + windowTokens), hashes, seed)
      target[targetIndex + block * 2] = hash.lo
      target[targetIndex + block * 2 + 1] = hash.hi
    }
  }
  return count
}

/**
 * The sequence hashes of the first `count` pairs of `local`, in an array of their own. `parent` is
 * the sequence hash of the block before the first; without it the first block begins the prompt.
 */
export function chainSequence(local: Int32Array, count: number, parent?: Hash64): Int32Array {
  const sequence = new Int32Array(count * 2)
  if (count > 0) chainHashes(local, count, parent, sequence)
  return sequence
}

/** Media blocks are few, so each takes its own call. */
function hashWithMedia(tokens: Int32Array | Uint32Array, hashes: Int32Array, seed: Seed): Hash64 {
  const sorted = hashes.slice()
  sortHashes(sorted)
  const words = new Int32Array(tokens.length + sorted.length)
  words.set(tokens)
  words.set(sorted, tokens.length)
  return xxh3(new Uint8Array(words.buffer), seed)
}
