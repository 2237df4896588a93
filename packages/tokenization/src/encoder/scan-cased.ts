/**
 * Scanner for o200k's pattern and its relatives (gpt-oss, Mistral tekken), which cut words where lower case
 * turns into upper case:
 *
 *   [^\r\n\p{L}\p{N}]?U*W+(?i:'s|…)? | [^\r\n\p{L}\p{N}]?U+W*(?i:'s|…)? |
 *   \p{N}{1,3} | ?[^\s\p{L}\p{N}]+[\r\n/]* | \s*[\r\n]+ | \s+(?!\S) | \s+
 *     U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]   W = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
 *
 * U and W share letters without case and marks, so `U*W+` backtracks: it takes all of U, and if no lower case
 * follows, it gives back as far as the last character that is in W too. A mark may be the one character
 * before a word or the beginning of the word; the engine tries the first, and so does this scanner.
 */

import { type CharTable, widthOf } from './char-table.ts'
import {
  type Contractions,
  contraction,
  endOfDigits,
  endOfPunctuation,
  endOfSpace,
  LETTER,
  LOWER,
  MARK,
  NUMBER,
  OTHER_LETTER,
  SPACE,
  UPPER,
} from './scan-words.ts'

/** What differs between the relatives of o200k. */
export interface CasedRules {
  /** Contractions that end a word; undefined where they are punctuation and a word. */
  readonly contractions: Contractions | undefined
  readonly digitsMax: number
}

const U = UPPER | OTHER_LETTER | MARK
const W = LOWER | OTHER_LETTER | MARK
const LF = 0x0a
const CR = 0x0d
const BLANK = 0x20
const APOSTROPHE = 0x27

/** The next piece of o200k's pattern or a relative's. */
export function nextOfCased(
  classes: CharTable,
  rules: CasedRules,
  units: Uint16Array,
  at: number,
  end: number,
): number {
  const unit = units[at]!
  const flags = classes.flagsAt(units, at)
  const next = at + widthOf(unit)
  const nextFlags = next < end ? classes.flagsAt(units, next) : SPACE
  const mayLead = (flags & (LETTER | NUMBER)) === 0 && unit !== CR && unit !== LF
  const leads = mayLead && (nextFlags & (LETTER | MARK)) !== 0
  const begins = (flags & (LETTER | MARK)) !== 0
  if (leads || begins) {
    let i = leads ? endOfLower(classes, units, next, end) : 0
    if (i === 0 && begins) i = endOfLower(classes, units, at, end)
    if (i === 0 && leads) i = endOfUpper(classes, units, next, end)
    if (i === 0 && begins) i = endOfUpper(classes, units, at, end)
    if (i > 0) {
      if (rules.contractions !== undefined && i < end && units[i] === APOSTROPHE)
        i += contraction(units, i, end, rules.contractions)
      return i
    }
  }
  if ((flags & NUMBER) !== 0) return endOfDigits(classes, units, at, end, rules.digitsMax)
  const stops = SPACE | LETTER | NUMBER
  if ((flags & SPACE) === 0) return endOfPunctuation(classes, units, at, end, stops, true)
  if (unit === BLANK && (nextFlags & stops) === 0)
    return endOfPunctuation(classes, units, next, end, stops, true)
  return endOfSpace(classes, units, at, end, true)
}

/** `U*W+`: where it ends, or 0. */
function endOfLower(classes: CharTable, units: Uint16Array, at: number, end: number): number {
  const afterUpper = classes.runEnd(units, at, end, U)
  const afterLower = classes.runEnd(units, afterUpper, end, W)
  if (afterLower > afterUpper) return afterLower
  let i = afterUpper
  while (i > at) {
    const start = (units[i - 1]! & 0xfc00) === 0xdc00 ? i - 2 : i - 1
    if ((classes.flagsAt(units, start) & W) !== 0) return i
    i = start
  }
  return 0
}

/** `U+W*`: where it ends, or 0. */
function endOfUpper(classes: CharTable, units: Uint16Array, at: number, end: number): number {
  const afterUpper = classes.runEnd(units, at, end, U)
  return afterUpper === at ? 0 : classes.runEnd(units, afterUpper, end, W)
}
