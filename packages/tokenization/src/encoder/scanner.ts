/**
 * Scanner: cuts the text between two added tokens into the pieces that are merged one by one, as the
 * pre-tokenizer of the model does; and says how far the cuts are certain when the text may go on.
 *
 * A cut at `e` is certain when nothing that was looked at to find it, or any cut before it, may change. Every
 * pattern here looks no further than the end of the run of like characters that begins at `e` (letters and
 * marks, digits, white space, others: `U*W+` of o200k goes to the end of the letters, `\s*[\r\n]+` to the end
 * of the space), and three units more (`'ll`). So: let q be LOOK_AHEAD before the place from which the text
 * is open, and t the begin of the run that holds q. Every cut before t is certain.
 */

import type { CharTable } from './char-table.ts'
import { nextOfCased } from './scan-cased.ts'
import { DeepseekScanner } from './scan-deepseek.ts'
import { type JoinArrays, JoinScanner } from './scan-joins.ts'
import { LETTER, MARK, NUMBER, nextOfCl100k, nextOfGpt2, SPACE } from './scan-words.ts'
import type { DigitsFirst, SplitPlan } from './split-plan.ts'

const LOOK_AHEAD = 3

/** Pieces of a text, from left to right. */
export interface Scanner {
  /**
   * Fills `ends` with the ends of the pieces from `from` on, as many as fit; returns how many. `from` is the
   * end of a piece. `goesOn`: it is where the last call for this text and this `end` stopped, so what that
   * has found out still holds.
   */
  fill(units: Uint16Array, from: number, end: number, ends: Int32Array, goesOn: boolean): number
}

/** The scanner of a plan. `numeric` has what Digits takes for a number besides class N. */
export function makeScanner(
  plan: SplitPlan,
  digits: DigitsFirst,
  classes: CharTable,
  numeric: CharTable,
  joins: JoinArrays,
): Scanner {
  const scanner = scannerOf(plan, classes, joins)
  return digits === 'none' ? scanner : new DigitsScanner(scanner, digits, classes, numeric)
}

/** Before which place cuts are certain, in a text that may change from `open` on; see above. */
export function certainBefore(
  plan: SplitPlan,
  classes: CharTable,
  units: Uint16Array,
  start: number,
  open: number,
): number {
  if (plan.kind === 'joins') return open
  let at = open - LOOK_AHEAD
  if (at <= start) return start
  if ((units[at]! & 0xfc00) === 0xdc00) at--
  const kind = kindOf(classes.flagsAt(units, at))
  while (at > start) {
    const before = (units[at - 1]! & 0xfc00) === 0xdc00 ? at - 2 : at - 1
    if (kindOf(classes.flagsAt(units, before)) !== kind) break
    at = before
  }
  return at
}

function kindOf(flags: number): number {
  if ((flags & (LETTER | MARK)) !== 0) return 1
  if ((flags & NUMBER) !== 0) return 2
  return (flags & SPACE) !== 0 ? 3 : 4
}

function scannerOf(plan: SplitPlan, classes: CharTable, joins: JoinArrays): Scanner {
  switch (plan.kind) {
    case 'gpt2':
      return {
        fill(units, from, end, ends) {
          let at = from
          let count = 0
          while (at < end && count < ends.length) {
            at = nextOfGpt2(classes, units, at, end)
            ends[count++] = at
          }
          return count
        },
      }
    case 'cl100k': {
      const { rules } = plan
      return {
        fill(units, from, end, ends) {
          let at = from
          let count = 0
          while (at < end && count < ends.length) {
            at = nextOfCl100k(classes, rules, units, at, end)
            ends[count++] = at
          }
          return count
        },
      }
    }
    case 'cased': {
      const { rules } = plan
      return {
        fill(units, from, end, ends) {
          let at = from
          let count = 0
          while (at < end && count < ends.length) {
            at = nextOfCased(classes, rules, units, at, end)
            ends[count++] = at
          }
          return count
        },
      }
    }
    case 'deepseek':
      return new DeepseekScanner(classes, plan.digitsMax)
    case 'joins':
      return new JoinScanner(joins)
  }
}

/**
 * Splits off digits, one by one or in runs; another scanner splits the text between them, and inside runs.
 */
class DigitsScanner implements Scanner {
  readonly #inner: Scanner
  readonly #isOneByOne: boolean
  readonly #classes: CharTable
  readonly #numeric: CharTable
  #stop = 0

  constructor(inner: Scanner, digits: DigitsFirst, classes: CharTable, numeric: CharTable) {
    this.#inner = inner
    this.#isOneByOne = digits === 'one by one'
    this.#classes = classes
    this.#numeric = numeric
  }

  fill(units: Uint16Array, from: number, end: number, ends: Int32Array, goesOn: boolean): number {
    let at = from
    let count = 0
    // The end of the section that the last call had no room for; looked for anew, long sections would cost
    // its square.
    let isInside = goesOn && from < this.#stop
    while (at < end && count < ends.length) {
      if (!isInside) this.#stop = this.#sectionEnd(units, at, end)
      while (at < this.#stop && count < ends.length) {
        count += this.#inner.fill(units, at, this.#stop, ends.subarray(count), isInside)
        at = ends[count - 1]!
        isInside = true
      }
      isInside = false
    }
    return count
  }

  #sectionEnd(units: Uint16Array, at: number, end: number): number {
    const isNumber = this.#isNumber(units, at)
    let stop = next(units, at)
    if (!isNumber || !this.#isOneByOne)
      while (stop < end && this.#isNumber(units, stop) === isNumber) stop = next(units, stop)
    return stop
  }

  #isNumber(units: Uint16Array, at: number): boolean {
    return (this.#classes.flagsAt(units, at) & NUMBER) !== 0 || this.#numeric.flagsAt(units, at) !== 0
  }
}

function next(units: Uint16Array, at: number): number {
  return (units[at]! & 0xfc00) === 0xd800 ? at + 2 : at + 1
}
