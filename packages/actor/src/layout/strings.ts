/**
 * Strings in words: a header, (length << 1) | isWide, then one byte for each character, or, where one is
 * above U+00FF, two. So any string comes back as it was, lone surrogates too.
 *
 * Short ones are written and read in JavaScript: a call into Node costs as much as 30 characters
 * (measured: 16 characters read by fromCharCode 28 ns, by latin1Slice 49 ns; 64 written by the loop
 * 108 ns, by Node 90 ns).
 */

import { endianness } from 'node:os'
import { canGenerate } from './can-generate.ts'

const { latin1Slice, latin1Write, ucs2Slice, ucs2Write } = Buffer.prototype as unknown as NativeStrings

/** Longer ones are written by Node. The loop puts four characters into a word, the first lowest. */
const LOOP_LENGTH_MAX = endianness() === 'LE' ? 48 : 0

/** Longer ones are read by Node. */
const SHORT_LENGTH_MAX = 32

type ReadShort = (bytes: Uint8Array, start: number) => string

/**
 * For each length one call of fromCharCode, which makes a flat string at once; a chain of + would make a rope of
 * pieces, and a call with an array takes 20 ns more. Empty where code may not be generated; Node reads all there.
 */
const shortReaders: readonly ReadShort[] = canGenerate()
  ? Array.from({ length: SHORT_LENGTH_MAX + 1 }, (_, length) => {
      const codes = Array.from({ length }, (_, i) => `bytes[start + ${i}]`)
      return new Function('bytes', 'start', `return String.fromCharCode(${codes.join(', ')})`) as ReadShort
    })
  : []

/** Writes header and characters from word `at` on; returns the word after them. */
export function writeString(value: string, words: Int32Array, bytes: Uint8Array, at: number): number {
  const { length } = value
  if (length <= LOOP_LENGTH_MAX) {
    const end = tryWriteShort(value, words, at)
    if (end !== -1) return end
  } else if (Buffer.byteLength(value) === length) {
    words[at] = length << 1
    latin1Write.call(bytes, value, (at + 1) << 2, length)
    return at + 1 + ((length + 3) >>> 2)
  }
  words[at] = (length << 1) | 1
  ucs2Write.call(bytes, value, (at + 1) << 2, length << 1)
  return at + 1 + ((length + 1) >>> 1)
}

/** The word after the string at word `at`. */
export function stringEnd(words: Int32Array, at: number): number {
  const header = words[at]!
  const length = header >>> 1
  return at + 1 + ((header & 1) === 0 ? (length + 3) >>> 2 : (length + 1) >>> 1)
}

/** Reads the string at word `at`. */
export function readString(words: Int32Array, bytes: Uint8Array, at: number): string {
  const header = words[at]!
  const length = header >>> 1
  const start = (at + 1) << 2
  if ((header & 1) !== 0) return ucs2Slice.call(bytes, start, start + (length << 1))
  if (length < shortReaders.length) return shortReaders[length]!(bytes, start)
  return latin1Slice.call(bytes, start, start + length)
}

/** Writes `value` with one byte a character; −1 when that cannot be, and what was written is void. */
function tryWriteShort(value: string, words: Int32Array, at: number): number {
  const { length } = value
  const fourEnd = length & ~3
  let seen = 0
  let next = at + 1
  for (let i = 0; i < fourEnd; i += 4) {
    const a = value.charCodeAt(i)
    const b = value.charCodeAt(i + 1)
    const c = value.charCodeAt(i + 2)
    const d = value.charCodeAt(i + 3)
    seen |= a | b | c | d
    words[next++] = a | (b << 8) | (c << 16) | (d << 24)
  }
  if (fourEnd !== length) {
    let last = 0
    for (let i = fourEnd; i < length; i++) {
      const character = value.charCodeAt(i)
      seen |= character
      last |= character << ((i & 3) << 3)
    }
    words[next++] = last
  }
  if (seen > 0xff) return -1
  words[at] = length << 1
  return next
}

/** Methods of Buffer that take any Uint8Array as `this`; Node documents them with a string's encoding. */
interface NativeStrings {
  readonly latin1Slice: (this: Uint8Array, start: number, end: number) => string
  readonly latin1Write: (this: Uint8Array, value: string, offset: number, size: number) => number
  readonly ucs2Slice: (this: Uint8Array, start: number, end: number) => string
  readonly ucs2Write: (this: Uint8Array, value: string, offset: number, size: number) => number
}
