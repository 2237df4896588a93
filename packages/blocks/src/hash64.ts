/**
 * 64-bit hashes as pairs of int32 words, and their forms at the edges: hexadecimal for people,
 * decimal for JSON, bigint for tests and MessagePack.
 *
 * In memory a list of n hashes is an Int32Array of 2n words, low word first. A word is a bit
 * pattern: -1 and 0xffffffff are the same word, and these functions always return the signed form.
 */

/** A 64-bit hash or seed; both words are int32 bit patterns. */
export interface Hash64 {
  readonly lo: number
  readonly hi: number
}

const DECIMAL = /^-?\d{1,20}$/
const HEXADECIMAL = /^[0-9a-fA-F]{16}$/
const UNSIGNED_MAX = 0xffff_ffff_ffff_ffffn
const SIGNED_MIN = -0x8000_0000_0000_0000n
/** Longer lists are not sorted by insertion. */
const INSERTED_WORDS_MAX = 64

/** 16 lower-case hexadecimal digits. */
export function formatHash(lo: number, hi: number): string {
  return hexadecimalWord(hi) + hexadecimalWord(lo)
}

/** Reads 16 hexadecimal digits; throws a RangeError for any other text. */
export function parseHash(text: string): Hash64 {
  if (!HEXADECIMAL.test(text)) throw new RangeError(`cannot parse hash "${text}": not 16 hexadecimal digits`)
  return { lo: Number.parseInt(text.slice(8), 16) | 0, hi: Number.parseInt(text.slice(0, 8), 16) | 0 }
}

/** The hash as an unsigned 64-bit bigint. */
export function hashToBigInt(lo: number, hi: number): bigint {
  return (BigInt(hi >>> 0) << 32n) | BigInt(lo >>> 0)
}

/** The lowest 64 bits of `value`; a negative value is taken as two's complement, as vLLM sends it. */
export function bigintToHash(value: bigint): Hash64 {
  return { lo: Number(BigInt.asIntN(32, value)), hi: Number(BigInt.asIntN(32, value >> 32n)) }
}

/**
 * The text of the hash as an unsigned JSON number. JSON.stringify cannot write it (a number
 * rounds above 2^53), so put this text into the JSON by hand or through JSON.rawJSON.
 */
export function formatHashNumber(lo: number, hi: number): string {
  return hashToBigInt(lo, hi).toString()
}

/**
 * Reads the text of a JSON integer, unsigned or signed 64-bit, without rounding; undefined when it
 * is anything else. JSON.parse gives the text as `context.source` to its reviver.
 */
export function tryHashNumber(text: string): Hash64 | undefined {
  if (!DECIMAL.test(text)) return undefined
  const value = BigInt(text)
  return value > UNSIGNED_MAX || value < SIGNED_MIN ? undefined : bigintToHash(value)
}

/** `a + b`, modulo 2^64. */
export function addHashes(a: Hash64, b: Hash64): Hash64 {
  const lo = (a.lo >>> 0) + (b.lo >>> 0)
  return { lo: lo | 0, hi: (a.hi + b.hi + (lo > 0xffff_ffff ? 1 : 0)) | 0 }
}

/**
 * Sorts the pairs of `hashes` in place, ascending as unsigned numbers. Cost: n log n, and less for short
 * lists.
 */
export function sortHashes(hashes: Int32Array): void {
  if (hashes.length > INSERTED_WORDS_MAX) {
    const values = BigUint64Array.from({ length: hashes.length / 2 }, (_, i) =>
      hashToBigInt(hashes[2 * i]!, hashes[2 * i + 1]!),
    ).sort()
    for (const [i, value] of values.entries()) {
      const { lo, hi } = bigintToHash(value)
      hashes[2 * i] = lo
      hashes[2 * i + 1] = hi
    }
    return
  }
  for (let end = 2; end < hashes.length; end += 2) {
    const lo = hashes[end]!
    const hi = hashes[end + 1]!
    let i = end
    for (; i > 0 && isBelow(lo, hi, hashes[i - 2]!, hashes[i - 1]!); i -= 2) {
      hashes[i] = hashes[i - 2]!
      hashes[i + 1] = hashes[i - 1]!
    }
    hashes[i] = lo
    hashes[i + 1] = hi
  }
}

function hexadecimalWord(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0')
}

function isBelow(lo: number, hi: number, otherLo: number, otherHi: number): boolean {
  return hi === otherHi ? lo >>> 0 < otherLo >>> 0 : hi >>> 0 < otherHi >>> 0
}
