/**
 * CharTable: eight flags for every code point, asked by position in a text of UTF-16 units.
 *
 *   units below U+10000     one byte each, direct
 *   pairs of surrogates     index of blocks of 256 code points, then the block; equal blocks in a row are
 *                           stored once
 *
 * Surrogates have no flags of their own, so a scanner looks at its unit's byte first, and only where that is
 * 0 asks whether a pair begins. Texts are well-formed: a high surrogate is always followed by a low one.
 */

const BMP_SIZE = 0x1_0000
const BLOCKS = 0x1000

/** The bytes of a table, ready to be packed into shared memory. */
export interface CharTableArrays {
  readonly bmp: Uint8Array
  readonly blockOf: Uint16Array
  readonly blocks: Uint8Array
}

/** Builds a table from runs "code points between, length, flags" in base 36. */
export function buildCharTable(runs: string): CharTableArrays {
  const flags = new Uint8Array(0x11_0000)
  const isTouched = new Uint8Array(0x11_0000 >> 8)
  const numbers = runs.split(' ')
  let at = 0
  for (let i = 0; i + 2 < numbers.length; i += 3) {
    const start = at + Number.parseInt(numbers[i]!, 36)
    at = start + Number.parseInt(numbers[i + 1]!, 36)
    flags.fill(Number.parseInt(numbers[i + 2]!, 36), start, at)
    isTouched.fill(1, start >> 8, ((at - 1) >> 8) + 1)
  }
  const blockOf = new Uint16Array(BLOCKS)
  const blocks = [new Uint8Array(256)]
  for (let i = 0; i < BLOCKS; i++) {
    if (isTouched[(BMP_SIZE >> 8) + i] === 0) continue
    const block = flags.subarray(BMP_SIZE + i * 256, BMP_SIZE + (i + 1) * 256)
    // Long runs make equal blocks one after the other.
    if (Buffer.compare(block, blocks.at(-1)!) !== 0) blocks.push(block)
    blockOf[i] = blocks.length - 1
  }
  const joined = new Uint8Array(blocks.length * 256)
  for (const [i, block] of blocks.entries()) joined.set(block, i * 256)
  return { bmp: flags.slice(0, BMP_SIZE), blockOf, blocks: joined }
}

/** Flags of code points; shares its arrays with other threads. */
export class CharTable {
  /** By unit; 0 for surrogates. */
  readonly bmp: Uint8Array
  readonly #blockOf: Uint16Array
  readonly #blocks: Uint8Array

  constructor({ bmp, blockOf, blocks }: CharTableArrays) {
    this.bmp = bmp
    this.#blockOf = blockOf
    this.#blocks = blocks
  }

  /** The flags of the character that begins at `at`. */
  flagsAt(units: Uint16Array, at: number): number {
    const unit = units[at]!
    const flags = this.bmp[unit]!
    return flags === 0 && (unit & 0xfc00) === 0xd800 ? this.astral(units, at) : flags
  }

  /** The flags of the pair of surrogates that begins at `at`. */
  astral(units: Uint16Array, at: number): number {
    const offset = ((units[at]! & 0x3ff) << 10) | (units[at + 1]! & 0x3ff)
    return this.#blocks[(this.#blockOf[offset >> 8]! << 8) | (offset & 0xff)]!
  }

  /** Where the run of characters ends, from `at`, that have a flag of `mask`. */
  runEnd(units: Uint16Array, at: number, end: number, mask: number): number {
    const { bmp } = this
    let i = at
    while (i < end) {
      if ((bmp[units[i]!]! & mask) !== 0) i++
      else if ((units[i]! & 0xfc00) === 0xd800 && (this.astral(units, i) & mask) !== 0) i += 2
      else break
    }
    return i
  }

  /** Where the run of characters ends, from `at`, that have no flag of `mask`. */
  runEndWithout(units: Uint16Array, at: number, end: number, mask: number): number {
    const { bmp } = this
    let i = at
    while (i < end) {
      const unit = units[i]!
      if ((bmp[unit]! & mask) !== 0) break
      if ((unit & 0xfc00) !== 0xd800) i++
      else if ((this.astral(units, i) & mask) === 0) i += 2
      else break
    }
    return i
  }
}

/** Units of the character that begins with `unit`. */
export function widthOf(unit: number): number {
  return (unit & 0xfc00) === 0xd800 ? 2 : 1
}
