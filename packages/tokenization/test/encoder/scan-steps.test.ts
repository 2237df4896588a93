/**
 * What scanners look at, counted: cutting a text looks at each unit a bounded number of times, on the worst
 * texts known too.
 */

import t from 'tap'
import { PATTERN_NAMES, preTokenizer } from '../../scripts/split-patterns.ts'
import { buildCharTable, CharTable } from '../../src/encoder/char-table.ts'
import { buildJoins } from '../../src/encoder/scan-joins.ts'
import { certainBefore, makeScanner } from '../../src/encoder/scanner.ts'
import { readTokenizerPlan, type TokenizerPlan } from '../../src/encoder/tokenizer-plan.ts'
import { CLASS_RUNS, NUMERIC_RUNS } from '../../src/encoder/unicode-data.ts'

const SHORT = 3000
const LONG = 30_000
/** So few that a long text is cut in many calls. */
const ENDS = 64
const READS_OF_A_UNIT_MAX = 16

/**
 * One unit for a place of the text each: runs without end, and what makes alternatives of the patterns begin
 * and fail.
 */
const TEXTS: Readonly<Record<string, (i: number, length: number) => string>> = {
  'one letter': () => 'a',
  'one capital': () => 'A',
  'capitals, then one small letter': (i, length) => (i === length - 1 ? 'a' : 'A'),
  'capitals and small letters in turn': i => 'Aa'[i & 1]!,
  'letters of no case': () => 'ש',
  'letters of no case, then a capital': (i, length) => (i === length - 1 ? 'A' : '東'),
  marks: () => '\u0301',
  'letters and marks in turn': i => 'a\u0301'[i & 1]!,
  digits: () => '1',
  'digits and letters in turn': i => '1a'[i & 1]!,
  'numbers that are no digits': () => '½',
  blanks: () => ' ',
  'blanks, then a letter': (i, length) => (i === length - 1 ? 'a' : ' '),
  'line breaks': () => '\n',
  'blanks and line breaks in turn': i => ' \n'[i & 1]!,
  'one line break, then blanks': i => (i === 0 ? '\n' : ' '),
  'tabs and blanks in turn': i => '\t '[i & 1]!,
  apostrophes: () => "'",
  'contractions that are none': i => "'l"[i & 1]!,
  signs: () => '!',
  'signs and line breaks in turn': i => '!\n'[i & 1]!,
  'signs, then slashes': (i, length) => (i < length / 2 ? '!' : '/'),
  'blanks and signs in turn': i => ' !'[i & 1]!,
  'halves of emoji in turn': i => '\ud83d\ude00'[i & 1]!,
  'kana and signs in turn': i => 'か!'[i & 1]!,
}

const classes = new CharTable(buildCharTable(CLASS_RUNS))
const numeric = new CharTable(buildCharTable(NUMERIC_RUNS))
const DIGITS = [false, true].map(individual_digits => ({ type: 'Digits', individual_digits }))
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }
const PLANS: readonly (readonly [string, TokenizerPlan])[] = [
  ...PATTERN_NAMES.map(name => [name, planOf(preTokenizer(name))] as const),
  ...DIGITS.map(digits => {
    const steps = { type: 'Sequence', pretokenizers: [digits, byteLevel] }
    return [`digits ${digits.individual_digits ? 'one by one' : 'in runs'}`, planOf(steps)] as const
  }),
  ['joins', planOf({ type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: false })],
]

function planOf(pre_tokenizer: object): TokenizerPlan {
  return readTokenizerPlan({ pre_tokenizer })
}

/** How often a unit is looked at when this text is cut, and when its last certain cut is looked for. */
function readsOfAUnit(plan: TokenizerPlan, text: string): number {
  let reads = 0
  const units = new Proxy(
    Uint16Array.from(text, (_, i) => text.charCodeAt(i)),
    {
      get(target, key) {
        reads++
        return target[key as unknown as number]
      },
    },
  )
  const joins = buildJoins(['ab', 'a ', '▁a', 'aa', '!!'])
  const scanner = makeScanner(plan.split, plan.digits, classes, numeric, joins)
  const ends = new Int32Array(ENDS)
  let at = 0
  while (at < text.length) at = ends[scanner.fill(units, at, text.length, ends, at > 0) - 1]!
  certainBefore(plan.split, classes, units, 0, text.length)
  return reads / text.length
}

for (const [name, plan] of PLANS) {
  t.test(`cutting by ${name} looks at each unit a few times, however long the text is`, async t => {
    for (const [what, unit] of Object.entries(TEXTS)) {
      const [short, long] = [SHORT, LONG].map(length =>
        readsOfAUnit(plan, Array.from({ length }, (_, i) => unit(i, length)).join('')),
      ) as [number, number]
      t.ok(long < short * 1.1 + 0.1, `${what}: ${short.toFixed(2)} then ${long.toFixed(2)} looks at a unit`)
      t.ok(long <= READS_OF_A_UNIT_MAX, `${what}: ${long.toFixed(2)}`)
    }
  })
}
