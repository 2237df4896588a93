/**
 * Normal forms (NFC, NFKC), only where a character needs one.
 *
 *   text    …  safe  safe | safe  mark  mark | safe  …
 *                          ^ a unit: a character and the marks after it
 *
 * A character is *safe* when it starts a unit: it stays as it is and joins nothing before it, whatever
 * follows. So a text can be cut before any safe character, and a text changes only in units that hold a
 * character which is not in the form, or two marks in a row, whose order may be wrong. Only such units go
 * through String.prototype.normalize.
 *
 * The tables (./unicode-data.ts) are the reference's, which knows Unicode 10; a newer Node knows more. What
 * the reference does not know is safe here, begins a unit, and is kept out of normalize unless the reference
 * knows a composition that begins with it. What it does know is stable: Unicode never changes the forms of an
 * assigned character.
 *
 * Units of more than UNIT_LENGTH_MAX are refused (EncodeError): sorting their marks may take quadratic time.
 */

import { EncodeError } from '../errors.ts'
import { type CharTable, widthOf } from './char-table.ts'

export type FormName = 'NFC' | 'NFKC'

/** Flags of ./unicode-data.ts. */
const MOVES = 1
const FIRST = 8
const BAD = { NFC: 2, NFKC: 4 } as const
const UNIT_LENGTH_MAX = 4096
const ASCII_END = 0x80

/** A normalized text with the way back to the positions of the given one. */
export class NormalizedText {
  units = new Uint16Array(1024)
  /** The text lies from `start` to `end`. */
  readonly start: number
  end: number
  /** Pairs: a place in the normalized text that follows a changed unit, and its place in the given text. */
  readonly cuts: number[] = []
  /** Pairs: the inside of changed units in the normalized text, where nothing can be cut. */
  readonly changed: number[] = []

  constructor(start: number) {
    this.start = start
    this.end = start
  }

  reserve(count: number): void {
    if (this.end + count + 8 <= this.units.length) return
    const grown = new Uint16Array(Math.max(this.end + count + 8, this.units.length * 2))
    grown.set(this.units.subarray(0, this.end))
    this.units = grown
  }

  /** The place of a place in the given text that lies in no changed unit. */
  placeOf(given: number): number {
    const { cuts } = this
    let i = cuts.length - 2
    while (i > 0 && cuts[i + 1]! > given) i -= 2
    return cuts[i]! + given - cuts[i + 1]!
  }

  /** The place in the given text; undefined inside a unit that changed. */
  givenPlace(at: number): number | undefined {
    const { cuts, changed } = this
    let low = 0
    let high = changed.length / 2
    while (low < high) {
      const middle = (low + high) >> 1
      if (changed[middle * 2]! < at) low = middle + 1
      else high = middle
    }
    if (low > 0 && at < changed[(low - 1) * 2 + 1]!) return undefined
    low = 0
    high = cuts.length / 2
    while (low < high) {
      const middle = (low + high) >> 1
      if (cuts[middle * 2]! <= at) low = middle + 1
      else high = middle
    }
    return cuts[(low - 1) * 2 + 1]! + at - cuts[(low - 1) * 2]!
  }
}

/** One form. */
export class NormalForm {
  readonly #name: FormName
  readonly #table: CharTable
  readonly #unsafe: number
  readonly #bad: number

  constructor(name: FormName, table: CharTable) {
    this.#name = name
    this.#table = table
    this.#bad = BAD[name]
    this.#unsafe = MOVES | BAD[name]
  }

  /** The first character that may have to change, or `end`. */
  firstSuspect(units: Uint16Array, from: number, end: number): number {
    const { bmp } = this.#table
    const unsafe = this.#unsafe
    let afterMark = -1
    let i = from
    for (;;) {
      // ASCII is in every form. Most texts are little else, and need no look into the table.
      while (i < end && units[i]! < ASCII_END) i++
      if (i >= end) return end
      const unit = units[i]!
      if ((bmp[unit]! & unsafe) === 0 && (unit & 0xfc00) !== 0xd800) {
        i++
        continue
      }
      const flags = (unit & 0xfc00) === 0xd800 ? this.#table.astral(units, i) : bmp[unit]!
      if ((flags & this.#bad) !== 0) return i
      const next = i + widthOf(unit)
      if ((flags & MOVES) !== 0) {
        if (afterMark === i) return i
        afterMark = next
      }
      i = next
    }
  }

  /** The last place in a text before which nothing depends on what follows its end. */
  lastCut(units: Uint16Array, start: number, end: number): number {
    let i = end
    while (i > start) {
      i = before(units, i)
      if (this.#isSafe(units, i)) return i
    }
    return start
  }

  /**
   * The normalized text from `start` to `end`; `suspect` is the position that `firstSuspect` found, before
   * `end`.
   */
  normalize(units: Uint16Array, start: number, end: number, suspect: number, room: number): NormalizedText {
    const text = new NormalizedText(room)
    text.cuts.push(room, start)
    let copied = start
    let at = suspect
    while (at < end) {
      let unitStart = at
      while (unitStart > copied && !this.#isSafe(units, unitStart)) unitStart = before(units, unitStart)
      let unitEnd = at + widthOf(units[at]!)
      while (unitEnd < end && !this.#isSafe(units, unitEnd)) unitEnd += widthOf(units[unitEnd]!)
      appendUnits(text, units, copied, unitStart)
      this.#appendUnit(text, units, unitStart, unitEnd)
      copied = unitEnd
      at = this.firstSuspect(units, unitEnd, end)
    }
    appendUnits(text, units, copied, end)
    return text
  }

  /** A text in this form; for patterns of added tokens. */
  apply(text: string): string {
    const units = new Uint16Array(text.length + 8)
    for (let i = 0; i < text.length; i++) units[i] = text.charCodeAt(i)
    const suspect = this.firstSuspect(units, 0, text.length)
    if (suspect === text.length) return text
    const normalized = this.normalize(units, 0, text.length, suspect, 0)
    return textOf(normalized.units, 0, normalized.end)
  }

  #isSafe(units: Uint16Array, at: number): boolean {
    return (this.#table.flagsAt(units, at) & this.#unsafe) === 0
  }

  #appendUnit(text: NormalizedText, units: Uint16Array, start: number, end: number): void {
    if (end - start > UNIT_LENGTH_MAX)
      throw new EncodeError(`a character of the text has more than ${UNIT_LENGTH_MAX} marks`)
    let from = start
    const flags = this.#table.flagsAt(units, start)
    if ((flags & (this.#unsafe | FIRST)) === 0) {
      from += widthOf(units[start]!)
      appendUnits(text, units, start, from)
    }
    const madeStart = text.end
    const made = textOf(units, from, end).normalize(this.#name)
    text.reserve(made.length)
    for (let i = 0; i < made.length; i++) text.units[text.end++] = made.charCodeAt(i)
    if (text.end > madeStart) text.changed.push(madeStart, text.end)
    text.cuts.push(text.end, end)
  }
}

function before(units: Uint16Array, at: number): number {
  return (units[at - 1]! & 0xfc00) === 0xdc00 ? at - 2 : at - 1
}

function appendUnits(text: NormalizedText, units: Uint16Array, start: number, end: number): void {
  if (start >= end) return
  text.reserve(end - start)
  text.units.set(units.subarray(start, end), text.end)
  text.end += end - start
}

function textOf(units: Uint16Array, start: number, end: number): string {
  return Buffer.from(units.buffer, units.byteOffset + start * 2, (end - start) * 2).toString('utf16le')
}
