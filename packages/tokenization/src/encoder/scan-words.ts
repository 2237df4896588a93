/**
 * Scanners for the split patterns of byte-level models: each follows its regular expression alternative by
 * alternative, as a backtracking engine takes them, over UTF-16 units with a class byte per character.
 *
 *   gpt2     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   cl100k   (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *            and its relatives: Llama 3, Qwen (one digit at a time; marks that belong to words)
 *
 * A scanner looks at nothing before its start. How far it looks beyond the end of a piece is in ./settled.ts.
 * Every function returns where the piece that begins at `at` ends; `end` is where the text of the pattern
 * ends.
 */

import { type CharTable, widthOf } from './char-table.ts'

/** Classes, as ./unicode-data.ts has them. */
export const UPPER = 1
export const LOWER = 2
export const OTHER_LETTER = 4
export const LETTER = UPPER | LOWER | OTHER_LETTER
export const MARK = 8
export const NUMBER = 16
export const PUNCTUATION = 32
export const SYMBOL = 64
export const SPACE = 128

const LF = 0x0a
const CR = 0x0d
const BLANK = 0x20
const APOSTROPHE = 0x27
const SLASH = 0x2f
const LONG_S = 0x17f

/**
 * How contractions are written in a pattern: as they stand, in any case (which takes in U+017F), or in ASCII
 * of any case.
 */
export type Contractions = 'exact' | 'any-case' | 'ascii-case'

/** What differs between the relatives of cl100k. */
export interface WordRules {
  readonly contractions: Contractions
  /** Classes that words are made of. */
  readonly letters: number
  /** Digits in a piece at most. */
  readonly digitsMax: number
  /** Whether a piece of punctuation takes slashes after it, besides line breaks. */
  readonly slashAfterPunctuation: boolean
}

/** The next piece of GPT-2's pattern. */
export function nextOfGpt2(classes: CharTable, units: Uint16Array, at: number, end: number): number {
  const unit = units[at]!
  if (unit === APOSTROPHE) {
    const length = contraction(units, at, end, 'exact')
    if (length > 0) return at + length
  }
  const start = unit === BLANK ? at + 1 : at
  if (start < end) {
    const flags = classes.flagsAt(units, start)
    if ((flags & LETTER) !== 0) return classes.runEnd(units, start, end, LETTER)
    if ((flags & NUMBER) !== 0) return classes.runEnd(units, start, end, NUMBER)
    if ((flags & SPACE) === 0) return classes.runEndWithout(units, start, end, SPACE | LETTER | NUMBER)
  }
  return endOfSpace(classes, units, at, end, false)
}

/** The next piece of cl100k's pattern or a relative's. */
export function nextOfCl100k(
  classes: CharTable,
  rules: WordRules,
  units: Uint16Array,
  at: number,
  end: number,
): number {
  const { letters } = rules
  const unit = units[at]!
  if (unit === APOSTROPHE) {
    const length = contraction(units, at, end, rules.contractions)
    if (length > 0) return at + length
  }
  const flags = classes.flagsAt(units, at)
  if ((flags & letters) !== 0) return classes.runEnd(units, at, end, letters)
  if ((flags & NUMBER) !== 0) return endOfDigits(classes, units, at, end, rules.digitsMax)
  const next = at + widthOf(unit)
  const nextFlags = next < end ? classes.flagsAt(units, next) : SPACE
  // One character of any kind may go before a word, but for line breaks, letters and digits.
  if ((nextFlags & letters) !== 0 && unit !== CR && unit !== LF)
    return classes.runEnd(units, next, end, letters)
  const stops = SPACE | letters | NUMBER
  if ((flags & SPACE) === 0)
    return endOfPunctuation(classes, units, at, end, stops, rules.slashAfterPunctuation)
  if (unit === BLANK && (nextFlags & stops) === 0)
    return endOfPunctuation(classes, units, next, end, stops, rules.slashAfterPunctuation)
  return endOfSpace(classes, units, at, end, true)
}

/** `\p{N}{1,max}`: digits are counted from the left. */
export function endOfDigits(
  classes: CharTable,
  units: Uint16Array,
  at: number,
  end: number,
  max: number,
): number {
  let i = at
  for (let count = 0; count < max && i < end; count++) {
    if ((classes.flagsAt(units, i) & NUMBER) === 0) break
    i += widthOf(units[i]!)
  }
  return i
}

/** `[^stops]+[\r\n]*`, or `[\r\n/]*` at the end. */
export function endOfPunctuation(
  classes: CharTable,
  units: Uint16Array,
  at: number,
  end: number,
  stops: number,
  takesSlash: boolean,
): number {
  let i = classes.runEndWithout(units, at, end, stops)
  while (i < end && (units[i] === LF || units[i] === CR || (takesSlash && units[i] === SLASH))) i++
  return i
}

/** `\s*[\r\n]+|\s+(?!\S)|\s+`, the first only where the pattern has it. */
export function endOfSpace(
  classes: CharTable,
  units: Uint16Array,
  at: number,
  end: number,
  breaksLines: boolean,
): number {
  const { bmp } = classes
  let i = at
  let afterBreak = at
  // All white space is below U+10000.
  while (i < end && (bmp[units[i]!]! & SPACE) !== 0) {
    if (units[i] === LF || units[i] === CR) afterBreak = i + 1
    i++
  }
  if (breaksLines && afterBreak > at) return afterBreak
  // The last space of several is left to the word after it.
  return i < end && i > at + 1 ? i - 1 : i
}

/** The length of the contraction that begins at the apostrophe at `at`, or 0. */
export function contraction(units: Uint16Array, at: number, end: number, how: Contractions): number {
  if (at + 1 >= end) return 0
  const first = units[at + 1]!
  if (first === LONG_S) return how === 'any-case' ? 2 : 0
  if (first >= 0x80 || (how === 'exact' && first < 0x60)) return 0
  switch (first | 0x20) {
    case 0x73: // s
    case 0x74: // t
    case 0x6d: // m
    case 0x64: // d
      return 2
    case 0x72: // re
    case 0x76: // ve
      return hasLetter(units, at + 2, end, 0x65, how) ? 3 : 0
    case 0x6c: // ll
      return hasLetter(units, at + 2, end, 0x6c, how) ? 3 : 0
    default:
      return 0
  }
}

function hasLetter(units: Uint16Array, at: number, end: number, lower: number, how: Contractions): boolean {
  if (at >= end) return false
  const unit = units[at]!
  return unit === lower || (how !== 'exact' && unit === lower - 0x20)
}
