/** The table of docs/records/routing-quality.md can be made, and shows its point. */

import t from 'tap'
import {
  CACHES,
  isAheadWanted,
  KNOWLEDGE,
  type Outcome,
  runCell,
  TROUBLES,
  verdictOf,
} from './routing-quality.ts'

t.test('knowledge of caches brings hits, and events most where others use the engines', async t => {
  const past = TROUBLES['30 % past the router']!
  const hits = async (knowledge: string) =>
    (await runCell(CACHES['very tight'], KNOWLEDGE[knowledge]!, past)).hitRate
  const [exact, approximate, text, none] = [
    await hits('exact'),
    await hits('approximate'),
    await hits('text'),
    await hits('none'),
  ]
  t.ok(exact > approximate, `${exact} with events, ${approximate} without`)
  t.ok(approximate > none, `${approximate} by what was sent, ${none} without`)
  t.ok(text > none, `${text} by text, ${none} without`)
})

t.test(
  'a cell fails where auto is behind the rival, or no more than level where it is to be ahead',
  async t => {
    const rival: Outcome = { hitRate: 0.8, meanMs: 10, p99Ms: 20, totalMs: 50 }
    /** Two seeds, whose ratios of the time to the last byte are these. */
    const cell = (totals: readonly [number, number], change: Partial<Outcome> = {}) =>
      totals.map(ratio => [{ ...rival, p99Ms: 16 * ratio, ...change, totalMs: 50 * ratio }, rival] as const)
    const ahead = [0.9, 0.9] as const
    const level = [0.9, 1.1] as const
    t.match(verdictOf(cell(ahead), true), /\| passes: ahead$/)
    t.match(verdictOf(cell(level), false), /\| passes$/)
    t.match(verdictOf(cell(level, { p99Ms: 16 }), true), /\| \*\*fails\*\*: E2E only level$/)
    t.match(verdictOf(cell(ahead, { p99Ms: 20 }), true), /\| \*\*fails\*\*: p99 only level$/)
    t.match(verdictOf(cell([1.01, 1.01], { p99Ms: 21 }), false), /\| \*\*fails\*\*: E2E, p99$/)
    const poor = { hitRate: 0.77, meanMs: 12 }
    t.match(verdictOf(cell(ahead, poor), false), /\| \*\*fails\*\*: hits, mean$/)
  },
)

t.test(
  'auto is to be ahead where others use the engines, two routers stand or caches are very tight',
  async t => {
    const wanted = Object.entries(TROUBLES).flatMap(([name, trouble]) =>
      Object.entries(CACHES).flatMap(([cache, blocks]) =>
        isAheadWanted(trouble, blocks) ? [`${name}, ${cache}`] : [],
      ),
    )
    t.strictSame(wanted, [
      'router alone, very tight',
      '30 % past the router, roomy',
      '30 % past the router, tight',
      '30 % past the router, very tight',
      'two routers, roomy',
      'two routers, tight',
      'two routers, very tight',
      'engines restart, very tight',
    ])
  },
)
