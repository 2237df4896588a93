import { readFileSync } from 'node:fs'
import { systemClock } from '@homing/base'
import type { CellResult } from '@homing/simulate'
import t from 'tap'
import { withTable } from '../page-table.ts'
import { JUDGEMENT_MARKS, judge } from './judgement.ts'
import { type JudgedPlace, judgedPlaces, RIVALS } from './judgement-cells.ts'
import { renderJudgement } from './judgement-table.ts'
import { bestOf, compare, FIGURES, isMissed, verdictText } from './judgement-verdicts.ts'

/** A result of which only the mean E2E is looked at. */
function result(e2eMeanMs: number): CellResult {
  return { e2eMs: { mean: e2eMeanMs } } as CellResult
}

function bySeed(...means: readonly number[]): ReadonlyMap<number, CellResult> {
  return new Map(means.map((mean, i) => [i + 1, result(mean)]))
}

t.test('a bound is missed when the whole interval lies beyond it, and one seed only suggests it', async t => {
  const ours = bySeed(103, 106, 109)
  const others = new Map([
    ['product', bySeed(100, 103, 106)],
    ['linear', bySeed(120, 90, 140)],
    ['est-ttft', bySeed(1, 1)],
  ])
  t.equal(bestOf(others, ours, FIGURES.e2e), 'product', 'the lowest mean of those that have all seeds')
  const sure = compare(ours, others.get('product')!, 'product', FIGURES.e2e, 'ratio')
  t.match(sure, { best: 'product', seeds: 3 })
  t.ok(Math.abs(sure.value - 1.029) < 0.001, `${sure.value}`)
  t.ok(isMissed(sure, 1.01))
  t.notOk(isMissed(sure, 1.03))
  const unsure = compare(ours, others.get('linear')!, 'linear', FIGURES.e2e, 'ratio')
  t.notOk(isMissed(unsure, 0.9), `${unsure.low} is below`)
  for (const above of [true, false])
    t.ok(isMissed({ low: Number.NaN, high: Number.NaN }, 1, above), 'a figure that is none is no pass')
  t.ok(isMissed({ low: 0.9, high: 0.95 }, 0.99, false))
  t.equal(verdictText([], 5), 'passes')
  t.equal(verdictText(['E2E', 'ITL'], 5), '**fails**: E2E, ITL')
  t.equal(verdictText(['E2E'], 1), '**fails?**: E2E')
})

t.test('the smallest judgement has a row for each kind of place, and none when there is no time', async t => {
  const places = await judgedPlaces(true)
  const kinds = ['capacity', 'loads', 'safety', 'terms', 'knowledge'] as const
  const some = kinds.map(kind => places.find((place): place is JudgedPlace => place.kind === kind)!)
  const options = { places: some, firstSeed: 1, store: undefined, clock: systemClock }
  const judged = await judge({ ...options, seedsMax: 1, minutesMax: 5 })
  const tables = renderJudgement(some, judged)
  for (const row of [
    '| F8 | standard | tiny | ',
    '| F8 | tiny | 10 % | ',
    '| 8 | tiny | 120 % | ',
    '| tiny | 85 % | ',
  ])
    t.match(tables, row)
  t.notMatch(tables, /NaN|undefined/)
  const none = renderJudgement(some, await judge({ ...options, seedsMax: 1, minutesMax: 0 }))
  t.notMatch(none, 'tiny')
})

t.test('the page has the marks, and auto is held against every rule', async t => {
  const page = readFileSync(new URL('../../docs/records/routing-quality.md', import.meta.url), 'utf8')
  t.match(withTable(page, 'the tables', JUDGEMENT_MARKS), 'the tables')
  const places = await judgedPlaces(true)
  for (const place of places) if (place.kind === 'loads') t.same(place.columns, ['auto', ...RIVALS])
})
