/**
 * The word loop against the scanner and the word table in TypeScript: the same cuts, the same ids, on texts
 * longer than its window.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import t from 'tap'
import { buildCharTable, CharTable } from '../../src/encoder/char-table.ts'
import { type Contractions, LETTER, MARK } from '../../src/encoder/scan-words.ts'
import { makeScanner } from '../../src/encoder/scanner.ts'
import type { SplitPlan } from '../../src/encoder/split-plan.ts'
import { CLASS_RUNS, NUMERIC_RUNS } from '../../src/encoder/unicode-data.ts'
import { WordLoop } from '../../src/encoder/word-loop.ts'
import { hostileText } from '../reference/texts.ts'

const classes = new CharTable(buildCharTable(CLASS_RUNS))
const numeric = new CharTable(buildCharTable(NUMERIC_RUNS))
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const TEXTS = 60
const WINDOW_UNITS = 8192
const TABLE_BYTES = [20_000, 1 << 20]

const rulesOf = (contractions: Contractions, letters: number, digitsMax: number, takesSlash: boolean) => ({
  kind: 'cl100k' as const,
  rules: { contractions, letters, digitsMax, slashAfterPunctuation: takesSlash },
})
const PLANS: Readonly<Record<string, Extract<SplitPlan, { readonly kind: 'gpt2' | 'cl100k' }>>> = {
  gpt2: { kind: 'gpt2' },
  llama3: rulesOf('any-case', LETTER, 3, false),
  'marks, one digit': rulesOf('ascii-case', LETTER | MARK, 1, false),
  'exact contractions, slashes': rulesOf('exact', LETTER, 3, true),
}

t.test('cuts, ids and settled places are those of the scanner and the table', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  for (const [name, plan] of Object.entries(PLANS)) {
    const random = seededRandom(SEED)
    let looped = 0
    for (let i = 0; i < TEXTS; i++) {
      let text = hostileText(random)
      // Some are longer than a window, and some are one run that is.
      const length = i % 3 === 0 ? WINDOW_UNITS * 2 + random.below(40) : 0
      while (text.length < length) text += i % 2 === 0 ? hostileText(random) : text + text
      if (i % 10 === 9) text += ' \n aA1!'[random.below(7)]!.repeat(WINDOW_UNITS + random.below(20)) + text
      looped += checkLoop(plan, text.toWellFormed(), TABLE_BYTES[i % 2]!, random.below(text.length + 1))
    }
    t.ok(looped > 1000, `${name}: the loop finds many words (${looped})`)
  }
})

t.test('other patterns have no word loop', async t => {
  const others: readonly SplitPlan[] = [
    { kind: 'cased', rules: { contractions: undefined, digitsMax: 3 } },
    { kind: 'deepseek', digitsMax: 3 },
    { kind: 'joins' },
  ]
  for (const plan of others) t.equal(WordLoop.of(plan, 'none', classes, 1 << 16), undefined, plan.kind)
  t.equal(WordLoop.of({ kind: 'gpt2' }, 'runs', classes, 1 << 16), undefined)
})

/** Goes over a text twice, as the encoder does; returns how many pieces the loop found. */
function checkLoop(
  plan: Extract<SplitPlan, { readonly kind: 'gpt2' | 'cl100k' }>,
  text: string,
  tableBytes: number,
  certain: number,
): number {
  const units = new Uint16Array(text.length + 16)
  for (let i = 0; i < text.length; i++) units[i] = text.charCodeAt(i)
  const ends = endsOf(plan, units, text.length)
  const loop = WordLoop.of(plan, 'none', classes, tableBytes)!
  const { words } = loop
  const idsOf = (start: number, end: number): readonly number[] =>
    Array.from({ length: 1 + ((end - start) % 4) }, (_, k) => units[start]! * 1000 + (end - start) * 8 + k)
  let looped = 0
  for (let round = 0; round < 2; round++) {
    let at = 0
    let number = 0
    while (at < text.length) {
      const base = at
      loop.run(units, base, text.length, certain)
      const ids: number[] = []
      const misses: number[] = []
      let settled = [0, 0, 0]
      let miss = 0
      for (let k = 0; k < loop.piecesCount; k++) {
        const end = ends[number++]!
        const isMiss = miss < loop.missesCount && loop.misses[miss * 3] === at - base
        if (isMiss) {
          miss++
          misses.push(at - base, end - base, ids.length)
        } else ids.push(...idsOf(at, end))
        at = end
        if (end < certain) settled = [end - base, ids.length, miss]
      }
      looped += loop.piecesCount - miss
      assert.equal(base + loop.stoppedAt, at, JSON.stringify(text.slice(at - 20, at + 20)))
      assert.deepEqual(Array.from(loop.ids.subarray(0, loop.idsCount)), ids)
      assert.deepEqual(Array.from(loop.misses.subarray(0, loop.missesCount * 3)), misses)
      assert.deepEqual([loop.settledAt, loop.settledIds, loop.settledMisses], settled)
      for (let k = 0; k < misses.length; k += 3)
        keep(words, units, base + misses[k]!, base + misses[k + 1]!, idsOf)
      if (at !== base) continue
      // The loop can cut nothing here.
      const end = ends[number++]!
      const isNear = end + 4 > base + WINDOW_UNITS && base + WINDOW_UNITS < text.length
      const hasSurrogate = /[\ud800-\udfff]/.test(text.slice(at, end + 1))
      assert.ok(isNear || hasSurrogate, `the piece at ${at} is left for a reason`)
      keep(words, units, at, end, idsOf)
      at = end
    }
  }
  return looped
}

function keep(
  words: WordLoop['words'],
  units: Uint16Array,
  start: number,
  end: number,
  idsOf: (start: number, end: number) => readonly number[],
): void {
  const ids = idsOf(start, end)
  if (words.find(units, start, end, 0) === 0)
    words.add(units, start, end, 0, Int32Array.from(ids), 0, ids.length)
}

function endsOf(plan: SplitPlan, units: Uint16Array, length: number): readonly number[] {
  const joins = { ascii: new Uint8Array(0), pairs: new Int32Array(0) }
  const scanner = makeScanner(plan, 'none', classes, numeric, joins)
  const ends = new Int32Array(length)
  const count = scanner.fill(units, 0, length, ends, false)
  return Array.from(ends.subarray(0, count))
}
