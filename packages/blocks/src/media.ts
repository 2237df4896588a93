/**
 * Media in a prompt (images, audio): their tokens are placeholders, so a block that overlaps an
 * object is hashed together with the hash of the object.
 *
 *   bytes of a block = its tokens, then the hashes of the objects it overlaps, ascending, 8 bytes each
 *
 * Where in the block the object lies is not part of the hash.
 */

import { type Hash64, parseHash, sortHashes } from './hash64.ts'
import { xxh3 } from './xxh3.ts'

/** An object of a prompt and the tokens that stand for it. */
export interface MediaObject {
  readonly hash: Hash64
  /** Token ranges, the end excluded. */
  readonly ranges: readonly (readonly [start: number, end: number])[]
}

/** Per block, the pairs [lo, hi] of the objects that it overlaps; undefined where it overlaps none. */
export type MediaByBlock = readonly (Int32Array | undefined)[]

const ENGINE_DIGEST = /^[0-9a-fA-F]{64}$/
const ZERO_SEED: Hash64 = { lo: 0, hi: 0 }
/** What SGLang adds to 30 bits of the hash to get the id that fills the place of the object. */
const PAD_TOKEN_OFFSET = 1_000_000
const utf8 = new TextEncoder()

/**
 * The hash of an identifier of an object: the first 8 bytes of a digest of 64 hexadecimal digits,
 * or else the hash of the text. Undefined for the empty string, which identifies nothing.
 */
export function mediaHashOf(identifier: string): Hash64 | undefined {
  if (identifier === '') return undefined
  return tryMediaDigest(identifier) ?? xxh3(utf8.encode(identifier), ZERO_SEED)
}

/**
 * The hash in one of vLLM's `extra_keys`; undefined unless the text is a digest of 64 hexadecimal
 * digits, because other texts in that list are adapters and salts.
 */
export function tryMediaDigest(identifier: string): Hash64 | undefined {
  return ENGINE_DIGEST.test(identifier) ? parseHash(identifier.slice(0, 16)) : undefined
}

/** The token id that SGLang puts in the place of an object. */
export function mediaPadToken(hash: Hash64): number {
  return PAD_TOKEN_OFFSET + (hash.lo & 0x3fff_ffff)
}

/** From the objects that an engine names per block; undefined: it names none at all. */
export function mediaOfBlocks(
  media: readonly (readonly { readonly id: string }[])[] | undefined,
): MediaByBlock | undefined {
  return media?.map(objects => {
    const words: number[] = []
    for (const { id } of objects) {
      const hash = mediaHashOf(id)
      if (hash !== undefined) words.push(hash.lo, hash.hi)
    }
    return words.length === 0 ? undefined : Int32Array.from(words)
  })
}

/** The tokens of the ranges, each once: in order, apart, and none empty. */
export function mergedRanges(ranges: MediaObject['ranges']): MediaObject['ranges'] {
  const merged: [start: number, end: number][] = []
  for (const [start, end] of ranges.toSorted(([a], [b]) => a - b)) {
    const last = merged.at(-1)
    if (start >= end) continue
    if (last === undefined || start > last[1]) merged.push([start, end])
    else last[1] = Math.max(last[1], end)
  }
  return merged
}

/**
 * Spreads the objects of a prompt over its blocks. An object counts once in every block that it overlaps.
 * Cost: the ranges, and for each object the blocks that it overlaps.
 */
export function mediaByBlock(
  objects: readonly MediaObject[],
  blockSizeTokens: number,
  count: number,
): MediaByBlock {
  const words: (number[] | undefined)[] = new Array(count).fill(undefined)
  for (const { hash, ranges } of objects) {
    // The first block that may not have the object yet.
    let next = 0
    for (const [start, end] of mergedRanges(ranges)) {
      const last = Math.min(count - 1, Math.floor((end - 1) / blockSizeTokens))
      for (let block = Math.max(next, Math.floor(start / blockSizeTokens)); block <= last; block++) {
        const pairs = words[block] ?? []
        pairs.push(hash.lo, hash.hi)
        words[block] = pairs
      }
      next = Math.max(next, last + 1)
    }
  }
  return words.map(pairs => {
    if (pairs === undefined) return undefined
    const hashes = Int32Array.from(pairs)
    sortHashes(hashes)
    return hashes
  })
}
