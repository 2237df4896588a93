/**
 * Encoder: text to token ids, equal to what the reference (Hugging Face's Rust tokenizers) gives, id for id.
 *
 *   text ──added tokens──> texts between them ──normal form, `▁`──> ──added tokens of the normalized text──>
 *        ──scanner──> pieces ──word table, else merging──> ids
 *
 * Where the pattern is of GPT-2's or cl100k's family, scanner and word table are one loop in WebAssembly
 * (./word-loop.ts), which leaves to TypeScript the words that the table lacks and characters above U+FFFF.
 *
 * All of it works on UTF-16 units in one array; no string is made per word. Everything that does not depend
 * on the text is in EncoderTables, which threads share; the word table and the scratch memory belong to this
 * encoder and its thread.
 *
 * Encoding of a text that grows goes on from a settled point: a place before which no id depends on what
 * follows. `encode(a)` returns one; `encode(a + b, out, point)`, with `out` cut to `point.tokens` ids, then
 * gives the ids of the whole. A point is behind an added token, or where ./scanner.ts is certain of a cut.
 *
 * Invariants
 *   I1  Ids before a settled point are the same for every text that begins with the text up to it and was
 *       encoded beyond it.
 *   I2  Memory kept between calls: the word table within `wordTableBytesMax`, and scratch of less than 2 MB.
 */

import type { ReadableText } from '../long-text.ts'
import { TokenFinder } from './added-tokens.ts'
import { CharTable } from './char-table.ts'
import type { EncoderTables, SectionName } from './encoder-tables.ts'
import { NormalForm, type NormalizedText } from './normal-form.ts'
import { certainBefore, makeScanner, type Scanner } from './scanner.ts'
import { isSeam } from './seams.ts'
import { int32Section, uint8Section, uint16Section } from './shared-sections.ts'
import type { TokenBuffer } from './token-buffer.ts'
import { TokenBytes } from './token-bytes.ts'
import type { TokenizerPlan } from './tokenizer-plan.ts'
import { SPACE_MARK } from './tokenizer-plan.ts'
import { WordLoop } from './word-loop.ts'
import { WordMerger } from './word-merger.ts'
import { PART, WordTable, type WordTableStats } from './word-table.ts'

/** A position in a text before which the ids do not depend on the text after it. Structured-clonable. */
export interface SettledPoint {
  /** UTF-16 units before it. */
  readonly at: number
  /** Ids before it. */
  readonly tokens: number
  /** Its position between two added tokens, which decides what is put before a text. */
  readonly inside: Inside
}

/**
 * 0 at the begin of a text, 1 at the begin of what is between two added tokens of the normalized text, 2
 * within.
 */
export type Inside = 0 | 1 | 2

/** Figures of one encoder. */
export interface EncoderStats {
  readonly wordTable: WordTableStats
  /** Words that were looked up since the encoder was made. */
  readonly wordsLookedUp: number
  /** Words that no table had, so that they were merged. */
  readonly wordsMerged: number
  /** Steps of merging. */
  readonly mergeSteps: number
}

const BEGIN: SettledPoint = { at: 0, tokens: 0, inside: 0 }
/** Units before the text in the array: room for a prefix, and for the character before a settled point. */
const ROOM = 8
/** Units that are kept between calls. */
const KEPT_UNITS = 1 << 19
const ENDS = 2048
/** Pieces that are scanned here where the word loop cannot, before it is tried again. */
const FEW_ENDS = 16
/** Pieces that fall into parts are also kept whole up to this length. */
const KEPT_WHOLE_UNITS = 6
const BLANK = 0x20
const MARK = SPACE_MARK.charCodeAt(0)

/** Encodes texts with one tokenizer; for one thread. */
export class Encoder {
  /** What the post-processor puts before a text. */
  readonly prefixIds: readonly number[]
  /** Ids that it puts after a text. */
  readonly suffixIds: readonly number[]
  readonly #plan: TokenizerPlan
  readonly #classes: CharTable
  readonly #form: NormalForm | undefined
  readonly #given: TokenFinder
  readonly #normalized: TokenFinder
  readonly #scanner: Scanner
  readonly #merger: WordMerger
  readonly #words: WordTable
  /** Undefined where the pattern is none that it knows. */
  readonly #loop: WordLoop | undefined
  readonly #seamPairs: Int32Array
  readonly #ignoresMerges: boolean
  readonly #addedIds: ReadonlyMap<string, number>
  readonly #ends: Int32Array
  #units = new Uint16Array(1 << 15)
  #wordsLookedUp = 0
  // The text at hand.
  #out!: TokenBuffer
  /** Adding it to a place in `#units` gives the place in the text. */
  #shift = 0
  #settledAt = 0
  #settledTokens = 0
  #settledInside: Inside = 0

  constructor(tables: EncoderTables, { wordTableBytesMax }: { readonly wordTableBytesMax: number }) {
    const { memory, description } = tables
    const { plan, addedTokens, otherTokens, sections } = description
    const uint8 = (name: SectionName) => uint8Section(memory, sections[name])
    const uint16 = (name: SectionName) => uint16Section(memory, sections[name])
    const int32 = (name: SectionName) => int32Section(memory, sections[name])
    const chars = (name: 'class' | 'numeric' | 'form' | 'word') =>
      new CharTable({
        bmp: uint8(`${name}Bmp`),
        blockOf: uint16(`${name}BlockOf`),
        blocks: uint8(`${name}Blocks`),
      })
    this.#plan = plan
    this.prefixIds = plan.prefixIds
    this.suffixIds = plan.suffixIds
    this.#classes = chars('class')
    this.#form = plan.form === undefined ? undefined : new NormalForm(plan.form, chars('form'))
    const finder = (isNormalized: boolean) =>
      new TokenFinder(
        addedTokens.filter(token => token.isNormalized === isNormalized),
        this.#classes,
        chars('word'),
      )
    this.#given = finder(false)
    this.#normalized = finder(true)
    this.#scanner = makeScanner(plan.split, plan.digits, this.#classes, chars('numeric'), {
      ascii: uint8('joinAscii'),
      pairs: int32('joinPairs'),
    })
    const vocabulary = {
      slots: int32('slots'),
      starts: int32('starts'),
      bytes: uint8('bytes'),
      ids: int32('ids'),
    }
    this.#merger = new WordMerger(
      vocabulary,
      { merges: int32('merges'), slots: int32('mergeSlots') },
      int32('byteRanks'),
      int32('byteIds'),
      plan.isByteLevel,
    )
    this.#loop = WordLoop.of(plan.split, plan.digits, this.#classes, wordTableBytesMax)
    this.#words = this.#loop?.words ?? new WordTable(wordTableBytesMax)
    this.#ends = new Int32Array(this.#loop === undefined ? ENDS : FEW_ENDS)
    this.#seamPairs = int32('seamPairs')
    this.#ignoresMerges = description.ignoresMerges
    this.#addedIds = new Map([
      ...otherTokens,
      ...addedTokens.map(({ content, id }) => [content, id] as const),
    ])
  }

  get stats(): EncoderStats {
    return {
      wordTable: this.#words.stats,
      wordsLookedUp: this.#wordsLookedUp,
      wordsMerged: this.#merger.mergedCount,
      mergeSteps: this.#merger.pairs.counts.steps,
    }
  }

  /** The id of a token as tokenizer.json writes it, or undefined. */
  idOf(token: string): number | undefined {
    const added = this.#addedIds.get(token)
    if (added !== undefined) return added
    const bytes = new TokenBytes(this.#plan.isByteLevel).of(token)
    return bytes === undefined ? undefined : this.#merger.idOfBytes(bytes)
  }

  /**
   * Appends the ids of `text` from `from` on to `out`, without those of the post-processor, and answers the
   * last settled point. The text must be well-formed. Throws EncodeError where it cannot be encoded exactly;
   * `out` then holds a part.
   */
  encode(text: ReadableText, out: TokenBuffer, from: SettledPoint = BEGIN): SettledPoint {
    const before = Math.min(from.at, 2)
    this.#load(text, from.at - before)
    this.#out = out
    this.#shift = from.at - before - ROOM
    this.#settledAt = from.at
    this.#settledTokens = from.tokens
    this.#settledInside = from.inside
    const start = ROOM + before
    const end = ROOM + before + text.length - from.at
    const units = this.#units
    const given = this.#given
    const textStart = from.at === 0 ? start : ROOM
    const open = given.openFrom(units, start, end)
    let at = start
    let { inside } = from
    try {
      while (at < end) {
        const isFound = given.next(units, textStart, at, end, open)
        const stop = isFound ? given.start : end
        const isClosed = isFound && given.isFirm
        if (stop > at) this.#encodeBetween(units, at, stop, isClosed, Math.min(open, stop), inside)
        if (!isFound) break
        out.push(given.id)
        at = given.end
        inside = 0
        if (isClosed) this.#settle(at, out.length, 0)
      }
    } finally {
      this.#release()
    }
    return { at: this.#settledAt, tokens: this.#settledTokens, inside: this.#settledInside }
  }

  /** The text between two added tokens: closed, or one that may change from `open` on. */
  #encodeBetween(
    units: Uint16Array,
    start: number,
    end: number,
    isClosed: boolean,
    open: number,
    inside: Inside,
  ): void {
    const form = this.#form
    if (form === undefined) {
      if (this.#plan.marksSpaces === 'normalizer') markSpaces(units, start, end)
      let first = start
      if (this.#plan.normalizerPrefix === 'always' && inside === 0) {
        first--
        units[first] = this.#plan.prefixUnit
      }
      this.#encodeNormalized(units, undefined, first, end, isClosed, open, inside)
      return
    }
    const certain = isClosed ? end : form.lastCut(units, start, open)
    const suspect = form.firstSuspect(units, start, end)
    if (suspect === end) {
      this.#encodeNormalized(units, undefined, start, end, isClosed, certain, inside)
      return
    }
    const text = form.normalize(units, start, end, suspect, ROOM)
    const textOpen = isClosed ? text.end : text.placeOf(certain)
    this.#encodeNormalized(text.units, text, text.start, text.end, isClosed, textOpen, inside)
  }

  #encodeNormalized(
    units: Uint16Array,
    made: NormalizedText | undefined,
    start: number,
    end: number,
    isClosed: boolean,
    limit: number,
    inside: Inside,
  ): void {
    const finder = this.#normalized
    if (finder.isEmpty) {
      this.#encodePieces(units, made, start, end, isClosed, limit, inside)
      return
    }
    const open = isClosed ? end : Math.min(limit, finder.openFrom(units, start, limit))
    // A text that is taken up within a section has the character before it, for tokens that are single words.
    const sectionStart = made === undefined && inside !== 0 ? ROOM : start
    let at = start
    let where = inside
    while (at < end) {
      const isFound = finder.next(units, sectionStart, at, end, open)
      const stop = isFound ? finder.start : end
      const isFirm = isClosed || (isFound && finder.isFirm)
      if (stop > at) this.#encodePieces(units, made, at, stop, isFirm, Math.min(open, stop), where)
      if (!isFound) break
      this.#out.push(finder.id)
      at = finder.end
      where = 1
      if (isFirm && !isClosed) this.#settleNormalized(made, at, this.#out.length, 1)
    }
  }

  #encodePieces(
    units: Uint16Array,
    made: NormalizedText | undefined,
    from: number,
    end: number,
    isClosed: boolean,
    open: number,
    inside: Inside,
  ): void {
    const plan = this.#plan
    let start = from
    if (plan.marksSpaces === 'pre-tokenizer') markSpaces(units, start, end)
    if (inside !== 2 && this.#isPrefixed(units, made, start)) {
      start--
      units[start] = plan.prefixUnit
    }
    const certain = isClosed ? -1 : certainBefore(plan.split, this.#classes, units, start, open)
    let at = start
    while (at < end) {
      if (made === undefined && this.#loop !== undefined)
        at = this.#runLoop(this.#loop, units, at, end, certain)
      if (at < end) at = this.#scan(units, made, at, end, certain, at > start)
    }
  }

  /** As many pieces as the scanner finds at a time; returns where the last ends. */
  #scan(
    units: Uint16Array,
    made: NormalizedText | undefined,
    from: number,
    end: number,
    certain: number,
    goesOn: boolean,
  ): number {
    const ends = this.#ends
    const words = this.#words
    const out = this.#out
    const count = this.#scanner.fill(units, from, end, ends, goesOn)
    this.#wordsLookedUp += count
    let at = from
    let settledAt = -1
    let settledTokens = 0
    for (let i = 0; i < count; i++) {
      const stop = ends[i]!
      const found = words.find(units, at, stop, 0)
      if (found === 0) this.#encodeNewWord(units, at, stop)
      else {
        const { length } = out
        if (length + found > out.ids.length) out.reserve(found)
        const { ids } = out
        const { foundIds, foundAt } = words
        ids[length] = foundIds[foundAt]!
        for (let k = 1; k < found; k++) ids[length + k] = foundIds[foundAt + k]!
        out.length = length + found
      }
      at = stop
      if (stop < certain && (made === undefined || made.givenPlace(stop) !== undefined)) {
        settledAt = stop
        settledTokens = out.length
      }
    }
    if (settledAt >= 0) this.#settleNormalized(made, settledAt, settledTokens, 2)
    return at
  }

  /** As many pieces as the word loop can cut; returns where the last ends. */
  #runLoop(loop: WordLoop, units: Uint16Array, from: number, end: number, certain: number): number {
    const out = this.#out
    let at = from
    for (;;) {
      loop.run(units, at, end, certain)
      const { idsCount, missesCount, settledAt, settledIds, settledMisses } = loop
      this.#wordsLookedUp += loop.piecesCount
      let settledTokens = out.length + settledIds
      let taken = 0
      for (let miss = 0; miss < missesCount; miss++) {
        // Another array after each word that was added.
        const { misses } = loop
        const before = misses[miss * 3 + 2]!
        out.pushPart(loop.ids, taken, before)
        taken = before
        const { length } = out
        this.#encodePiece(units, at + misses[miss * 3]!, at + misses[miss * 3 + 1]!)
        if (miss < settledMisses) settledTokens += out.length - length
      }
      out.pushPart(loop.ids, taken, idsCount)
      if (settledAt > 0) this.#settle(at + settledAt, settledTokens, 2)
      at += loop.stoppedAt
      if (loop.stoppedAt === 0 || at === end) return at
    }
  }

  /** A piece that the word loop has not found; it may have come up since. */
  #encodePiece(units: Uint16Array, start: number, end: number): void {
    const words = this.#words
    const found = words.find(units, start, end, 0)
    if (found === 0) this.#encodeNewWord(units, start, end)
    else this.#out.pushPart(words.foundIds, words.foundAt, words.foundAt + found)
  }

  #encodeNewWord(units: Uint16Array, start: number, end: number): void {
    const seam = this.#nextSeam(units, start, end)
    if (seam < end) {
      this.#encodeParts(units, start, end, seam)
      return
    }
    const count = this.#merger.merge(units, start, end)
    this.#pushMerged(count)
    this.#words.add(units, start, end, 0, this.#merger.symbols, 0, count)
    this.#merger.shrink()
  }

  /** A piece that falls into parts: each is looked up, and a long piece as a whole is not kept. */
  #encodeParts(units: Uint16Array, start: number, end: number, firstSeam: number): void {
    const words = this.#words
    const merger = this.#merger
    const out = this.#out
    const id = this.#ignoresMerges ? merger.idOfPiece(units, start, end) : -1
    if (id >= 0) {
      out.push(id)
      merger.symbols[0] = id
      words.add(units, start, end, 0, merger.symbols, 0, 1)
      return
    }
    const kind = this.#ignoresMerges ? PART : 0
    const before = out.length
    let at = start
    for (let stop = firstSeam; at < end; stop = this.#nextSeam(units, stop, end)) {
      const found = words.find(units, at, stop, kind)
      if (found > 0) {
        out.reserve(found)
        for (let k = 0; k < found; k++) out.ids[out.length + k] = words.foundIds[words.foundAt + k]!
        out.length += found
      } else {
        const count = kind === 0 ? merger.merge(units, at, stop) : merger.mergePart(units, at, stop)
        this.#pushMerged(count)
        words.add(units, at, stop, kind, merger.symbols, 0, count)
      }
      at = stop
    }
    merger.shrink()
    if (end - start <= KEPT_WHOLE_UNITS) words.add(units, start, end, 0, out.ids, before, out.length - before)
  }

  #nextSeam(units: Uint16Array, from: number, end: number): number {
    // Pieces of models of characters are cut already (./scan-joins.ts).
    if (!this.#plan.isByteLevel) return end
    const pairs = this.#seamPairs
    for (let at = from + 1; at < end; at++)
      if ((units[at - 1]! | units[at]!) >= 0x80 && isSeam(pairs, units, at)) return at
    return end
  }

  #pushMerged(count: number): void {
    const out = this.#out
    const { symbols } = this.#merger
    out.reserve(count)
    if (count > 64) out.ids.set(symbols.subarray(0, count), out.length)
    else for (let k = 0; k < count; k++) out.ids[out.length + k] = symbols[k]!
    out.length += count
  }

  #isPrefixed(units: Uint16Array, made: NormalizedText | undefined, start: number): boolean {
    const { splitPrefix, prefixUnit } = this.#plan
    if (splitPrefix === 'none' || units[start] === prefixUnit) return false
    if (splitPrefix !== 'at the begin unless there') return true
    const given = made === undefined ? start : made.givenPlace(start)
    return given !== undefined && given + this.#shift === 0
  }

  #settleNormalized(made: NormalizedText | undefined, at: number, tokens: number, inside: Inside): void {
    const given = made === undefined ? at : made.givenPlace(at)
    if (given !== undefined) this.#settle(given, tokens, inside)
  }

  #settle(at: number, tokens: number, inside: Inside): void {
    this.#settledAt = at + this.#shift
    this.#settledTokens = tokens
    this.#settledInside = inside
  }

  #load(text: ReadableText, base: number): void {
    const length = text.length - base
    if (this.#units.length < length + ROOM * 2) this.#units = new Uint16Array(length + ROOM * 2)
    const units = this.#units
    const bytes = Buffer.from(units.buffer, units.byteOffset, units.byteLength)
    bytes.write(typeof text === 'string' && base === 0 ? text : text.slice(base), ROOM * 2, 'utf16le')
  }

  #release(): void {
    if (this.#units.length > KEPT_UNITS) this.#units = new Uint16Array(1 << 15)
  }
}

function markSpaces(units: Uint16Array, start: number, end: number): void {
  for (let i = start; i < end; i++) if (units[i] === BLANK) units[i] = MARK
}
