/**
 * Word merger: the ids of one piece of text that no table has yet.
 *
 *   units -> UTF-8 bytes -> a token of the vocabulary, where that is what merging would give
 *                        -> else one symbol per byte or character, merged pair by pair (./byte-pairs.ts)
 *
 * Merging a token's own bytes gives that token, most times, but merges may also make something else of them.
 * That is found out when a token first comes up as a piece, and kept for all threads. With `ignore_merges`
 * every token is taken as it is.
 */

import { EncodeError } from '../errors.ts'
import { type MergeArrays, PairMerger, SYMBOLS_MAX } from './byte-pairs.ts'
import { PARTED, Vocabulary, type VocabularyArrays, WHOLE } from './vocabulary.ts'

/** Scratch memory that is kept; longer pieces get their own. */
const SCRATCH_BYTES = 1 << 12

/** Merges pieces; the ids of the last one lie at the front of `symbols`. One thread. */
export class WordMerger {
  readonly pairs: PairMerger
  symbols = new Int32Array(SCRATCH_BYTES)
  /** Pieces that were merged, and not found whole. */
  mergedCount = 0
  #bytes = new Uint8Array(SCRATCH_BYTES)
  readonly #vocabulary: Vocabulary
  readonly #byteIds: Int32Array
  readonly #isByteLevel: boolean

  constructor(
    vocabulary: VocabularyArrays,
    merges: MergeArrays,
    byteRanks: Int32Array,
    byteIds: Int32Array,
    isByteLevel: boolean,
  ) {
    this.#vocabulary = new Vocabulary(vocabulary)
    this.pairs = new PairMerger(merges, isByteLevel ? byteRanks : undefined)
    this.#byteIds = byteIds
    this.#isByteLevel = isByteLevel
  }

  /** The id of the piece, where it is a token of the vocabulary, or -1. */
  idOfPiece(units: Uint16Array, start: number, end: number): number {
    const slot = this.#vocabulary.findSlot(this.#bytes, 0, this.#toBytes(units, start, end))
    return slot < 0 ? -1 : this.#vocabulary.idOfSlot(slot)
  }

  /**
   * How many ids merging gives, even if the vocabulary has the whole piece as a token. Throws EncodeError
   * when the part is too long.
   */
  mergePart(units: Uint16Array, start: number, end: number): number {
    this.mergedCount++
    return this.#mergeBytes(this.#toBytes(units, start, end))
  }

  /** How many ids the piece has. Throws EncodeError when it is too long. */
  merge(units: Uint16Array, start: number, end: number): number {
    const length = this.#toBytes(units, start, end)
    const slot = this.#vocabulary.findSlot(this.#bytes, 0, length)
    if (slot >= 0 && this.#vocabulary.wholeOfSlot(slot) === WHOLE) {
      this.symbols[0] = this.#vocabulary.idOfSlot(slot)
      return 1
    }
    this.mergedCount++
    const count = this.#mergeBytes(length)
    if (slot >= 0) {
      const isWhole = count === 1 && this.symbols[0] === this.#vocabulary.idOfSlot(slot)
      this.#vocabulary.setWhole(slot, isWhole ? WHOLE : PARTED)
    }
    return count
  }

  /** Gives the memory of a long piece back. */
  shrink(): void {
    if (this.symbols.length > SCRATCH_BYTES) this.symbols = new Int32Array(SCRATCH_BYTES)
    if (this.#bytes.length > SCRATCH_BYTES) this.#bytes = new Uint8Array(SCRATCH_BYTES)
  }

  /** The id of the token with these bytes, or undefined. */
  idOfBytes(bytes: Uint8Array): number | undefined {
    const slot = this.#vocabulary.findSlot(bytes, 0, bytes.length)
    return slot < 0 ? undefined : this.#vocabulary.idOfSlot(slot)
  }

  #mergeBytes(length: number): number {
    if (length > SYMBOLS_MAX)
      throw new EncodeError(`a word of the text has ${length} bytes, more than ${SYMBOLS_MAX}`)
    if (this.symbols.length < length) this.symbols = new Int32Array(length)
    if (this.#isByteLevel) return this.pairs.merge(this.symbols, this.#byteSymbols(length), this.#bytes)
    return this.pairs.merge(this.symbols, this.#charSymbols(length))
  }

  #byteSymbols(length: number): number {
    const { symbols } = this
    const bytes = this.#bytes
    const byteIds = this.#byteIds
    for (let i = 0; i < length; i++) symbols[i] = byteIds[bytes[i]!]!
    return length
  }

  #charSymbols(length: number): number {
    const { symbols } = this
    const bytes = this.#bytes
    let count = 0
    let i = 0
    while (i < length) {
      const lead = bytes[i]!
      const after = i + (lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4)
      const slot = this.#vocabulary.findSlot(bytes, i, after)
      if (slot >= 0) {
        symbols[count++] = this.#vocabulary.idOfSlot(slot)
        i = after
      } else while (i < after) symbols[count++] = this.#byteIds[bytes[i++]!]!
    }
    return count
  }

  #toBytes(units: Uint16Array, start: number, end: number): number {
    if (this.#bytes.length < (end - start) * 3) this.#bytes = new Uint8Array((end - start) * 3)
    const bytes = this.#bytes
    let length = 0
    for (let i = start; i < end; i++) {
      const unit = units[i]!
      if (unit < 0x80) bytes[length++] = unit
      else if (unit < 0x800) {
        bytes[length++] = 0xc0 | (unit >> 6)
        bytes[length++] = 0x80 | (unit & 0x3f)
      } else if ((unit & 0xfc00) === 0xd800) {
        const point = 0x1_0000 + ((unit & 0x3ff) << 10) + (units[++i]! & 0x3ff)
        bytes[length++] = 0xf0 | (point >> 18)
        bytes[length++] = 0x80 | ((point >> 12) & 0x3f)
        bytes[length++] = 0x80 | ((point >> 6) & 0x3f)
        bytes[length++] = 0x80 | (point & 0x3f)
      } else {
        bytes[length++] = 0xe0 | (unit >> 12)
        bytes[length++] = 0x80 | ((unit >> 6) & 0x3f)
        bytes[length++] = 0x80 | (unit & 0x3f)
      }
    }
    return length
  }
}
