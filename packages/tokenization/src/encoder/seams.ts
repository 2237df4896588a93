/**
 * Seams: places inside a piece of a byte-level model that no merge crosses, so that long words without spaces
 * (Chinese, Japanese, Thai) fall into parts that come again, instead of being merged anew each time.
 *
 * A merge that crosses the place between two characters makes a token that holds the end of the one beside
 * the begin of the other. Its bytes there are one of
 *
 *   all of the first, all of the second          pair (first, second)
 *   all of the first, some of the second         pair (first, HEAD | first byte of the second)
 *   some of the first, all of the second         pair (TAIL | last byte of the first, second)
 *   some of the first, some of the second        pair (TAIL | last byte, HEAD | first byte)
 *
 * All such pairs of all tokens that merges make are in one set, made at load. Where none of the four is in
 * it, there is a seam. HEAD and TAIL are values of surrogates, which are no characters; beside surrogates and
 * between two ASCII characters there is none.
 */

import { buildPairSet, hasPair, pairOf } from './pair-set.ts'

const HEAD = 0xd800
const TAIL = 0xdc00
const ASCII_END = 0x80

/** Adds the pairs of tokens one by one; `arrays` is then the set. */
export class SeamBuilder {
  readonly #pairs = new Set<number>()

  /** A token that a merge makes. */
  add(bytes: Uint8Array, start: number, end: number): void {
    for (let i = start + 1; i < end; i++) {
      const lead = bytes[i]!
      if (isContinuation(lead) || (lead < ASCII_END && bytes[i - 1]! < ASCII_END)) continue
      let from = i - 1
      while (from > start && isContinuation(bytes[from]!)) from--
      const isFirstWhole = !isContinuation(bytes[from]!)
      // Beside characters above U+FFFF there is no seam anyway.
      if (lead >= 0xf0 || (isFirstWhole && bytes[from]! >= 0xf0)) continue
      const isSecondWhole = i + lengthOf(lead) <= end
      const first = isFirstWhole ? charOf(bytes, from) : TAIL | bytes[i - 1]!
      this.#pairs.add(pairOf(first, isSecondWhole ? charOf(bytes, i) : HEAD | lead))
    }
  }

  build(): Int32Array {
    return buildPairSet(this.#pairs)
  }
}

/** Whether no merge crosses from the unit before `at` to the unit there. */
export function isSeam(pairs: Int32Array, units: Uint16Array, at: number): boolean {
  const first = units[at - 1]!
  const second = units[at]!
  if ((first | second) < ASCII_END || isSurrogate(first) || isSurrogate(second)) return false
  if (hasPair(pairs, first, second)) return false
  const head = HEAD | firstByte(second)
  const tail = TAIL | (first < ASCII_END ? first : 0x80 | (first & 0x3f))
  return !hasPair(pairs, first, head) && !hasPair(pairs, tail, second) && !hasPair(pairs, tail, head)
}

function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80
}

function isSurrogate(unit: number): boolean {
  return (unit & 0xf800) === 0xd800
}

/** Bytes of the character that begins with `lead`, below U+10000. */
function lengthOf(lead: number): number {
  if (lead < ASCII_END) return 1
  return lead < 0xe0 ? 2 : 3
}

function charOf(bytes: Uint8Array, at: number): number {
  const lead = bytes[at]!
  if (lead < ASCII_END) return lead
  if (lead < 0xe0) return ((lead & 0x1f) << 6) | (bytes[at + 1]! & 0x3f)
  return ((lead & 0x0f) << 12) | ((bytes[at + 1]! & 0x3f) << 6) | (bytes[at + 2]! & 0x3f)
}

function firstByte(unit: number): number {
  if (unit < ASCII_END) return unit
  return unit < 0x800 ? 0xc0 | (unit >> 6) : 0xe0 | (unit >> 12)
}
