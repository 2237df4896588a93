/**
 * Scanner for DeepSeek V3's pre-tokenizer, three splits one after the other:
 *
 *   1  \p{N}{1,3}
 *   2  [一-龥぀-ゟ゠-ヿ]+
 *   3  [!-/:-~][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ |
 *      \s+(?!\S) | \s+
 *
 * The third split sees each match of the second, and the text between two matches, as a separate text: its
 * look-ahead ends there. In a match of the first it finds nothing. Text that it does not match (control
 * characters, private use, unassigned) stays as one piece up to the next match.
 */

import { type CharTable, widthOf } from './char-table.ts'
import { endOfDigits, endOfSpace, LETTER, MARK, NUMBER, PUNCTUATION, SPACE, SYMBOL } from './scan-words.ts'

const LF = 0x0a
const CR = 0x0d
const BLANK = 0x20
const WORD = LETTER | MARK
const SIGN = PUNCTUATION | SYMBOL

/** Finds pieces from left to right; remembers where the text of the third split ends. */
export class DeepseekScanner {
  readonly #classes: CharTable
  readonly #digitsMax: number
  /** The third split's text, as far as it was looked for; valid from the piece that asked to this place. */
  #stop = 0

  constructor(classes: CharTable, digitsMax: number) {
    this.#classes = classes
    this.#digitsMax = digitsMax
  }

  /** Fills `ends` with the ends of the pieces from `from` on; returns how many. */
  fill(units: Uint16Array, from: number, end: number, ends: Int32Array, goesOn: boolean): number {
    const classes = this.#classes
    let at = from
    let count = 0
    if (!goesOn || this.#stop < from) this.#stop = from
    while (at < end && count < ends.length) {
      if (at >= this.#stop)
        this.#stop = isHanOrKana(units[at]!) ? endOfHanOrKana(units, at, end) : this.#nextStop(units, at, end)
      if (at < this.#stop) at = nextOfThird(classes, units, at, this.#stop)
      else at = endOfDigits(classes, units, at, end, this.#digitsMax)
      ends[count++] = at
    }
    return count
  }

  /** Where the first or second split matches next; `at` itself where it does there. */
  #nextStop(units: Uint16Array, at: number, end: number): number {
    const { bmp } = this.#classes
    let i = at
    while (i < end) {
      const unit = units[i]!
      if ((bmp[unit]! & NUMBER) !== 0 || isHanOrKana(unit)) break
      if ((unit & 0xfc00) !== 0xd800) i++
      else if ((this.#classes.astral(units, i) & NUMBER) !== 0) break
      else i += 2
    }
    return i
  }
}

function nextOfThird(classes: CharTable, units: Uint16Array, at: number, end: number): number {
  const unit = units[at]!
  const flags = classes.flagsAt(units, at)
  if (unit < 0x80 && (flags & SIGN) !== 0 && at + 1 < end && isAsciiLetter(units[at + 1]!)) {
    let i = at + 2
    while (i < end && isAsciiLetter(units[i]!)) i++
    return i
  }
  if ((flags & WORD) !== 0) return classes.runEnd(units, at, end, WORD)
  const next = at + widthOf(unit)
  const nextFlags = next < end ? classes.flagsAt(units, next) : 0
  if ((flags & SIGN) !== 0) return endOfSigns(classes, units, at, end)
  if ((nextFlags & WORD) !== 0 && unit !== CR && unit !== LF) return classes.runEnd(units, next, end, WORD)
  if (unit === BLANK && (nextFlags & SIGN) !== 0) return endOfSigns(classes, units, next, end)
  if ((flags & SPACE) !== 0) return endOfSpace(classes, units, at, end, true)
  return endOfUnmatched(classes, units, next, end)
}

/** `[\p{P}\p{S}]+[\r\n]*` */
function endOfSigns(classes: CharTable, units: Uint16Array, at: number, end: number): number {
  let i = classes.runEnd(units, at, end, SIGN)
  while (i < end && (units[i] === LF || units[i] === CR)) i++
  return i
}

/** Up to where an alternative matches again: at any character of a class, or at the one before a word. */
function endOfUnmatched(classes: CharTable, units: Uint16Array, at: number, end: number): number {
  let i = at
  while (i < end) {
    if (classes.flagsAt(units, i) !== 0) break
    const next = i + widthOf(units[i]!)
    if (next < end && (classes.flagsAt(units, next) & WORD) !== 0) break
    i = next
  }
  return i
}

function isHanOrKana(unit: number): boolean {
  return (unit >= 0x4e00 && unit <= 0x9fa5) || (unit >= 0x3040 && unit <= 0x30ff)
}

function endOfHanOrKana(units: Uint16Array, at: number, end: number): number {
  let i = at
  while (i < end && isHanOrKana(units[i]!)) i++
  return i
}

function isAsciiLetter(unit: number): boolean {
  return (unit >= 0x41 && unit <= 0x5a) || (unit >= 0x61 && unit <= 0x7a)
}
