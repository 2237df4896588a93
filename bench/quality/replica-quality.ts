/**
 * Several router processes over real sockets, with replica sync and without, against one: conversations
 * through them in turn.
 *
 *   pnpm exec node bench/quality/replica-quality.ts [--rounds 3] [--routers 3] [--sessions 60] [--rate 5]
 *       [--write]
 *
 * The load is that of cell `plain` of socket-quality.ts. In each round one router and several have a fleet of
 * their own, on the same requests, one after the other. With `--write` the table of
 * docs/records/routing-quality.md is written.
 */

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { rowOf } from './socket-quality.ts'
import { type Outcome, runWay } from './socket-run.ts'

const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'records', 'routing-quality.md')
const MARKS = marksOf('replica-sockets')

interface Figures {
  readonly hitRate: number
  readonly imbalance: number
  readonly meanMs: number
  readonly p99Ms: number
}

/** Of all rounds of a way together. */
export function figuresOf(outcomes: readonly Outcome[]): Figures {
  const { hitRate, meanMs, p99Ms } = rowOf('auto', outcomes)
  const imbalance = outcomes.reduce((sum, outcome) => sum + outcome.imbalance, 0) / outcomes.length
  return { hitRate, imbalance, meanMs, p99Ms }
}

/** The figures of each way, and what they are of the first. */
export function renderRows(ways: readonly (readonly [string, readonly Outcome[]])[]): string {
  const base = figuresOf(ways[0]![1])
  return [
    '| routers | hit rate | imbalance | mean | p99 | hit rate ÷ | imbalance ÷ | mean ÷ | p99 ÷ |',
    '|---|---:|---:|---:|---:|---:|---:|---:|---:|',
    ...ways.map(([way, outcomes]) => {
      const { hitRate, imbalance, meanMs, p99Ms } = figuresOf(outcomes)
      const ratios = [
        hitRate / base.hitRate,
        imbalance / base.imbalance,
        meanMs / base.meanMs,
        p99Ms / base.p99Ms,
      ]
      const own = [`${(100 * hitRate).toFixed(1)} %`, imbalance.toFixed(2), `${meanMs.toFixed(1)} ms`]
      return `| ${[way, ...own, `${p99Ms.toFixed(0)} ms`, ...ratios.map(ratio => ratio.toFixed(2))].join(' | ')} |`
    }),
  ].join('\n')
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      routers: { type: 'string', default: '3' },
      sessions: { type: 'string', default: '60' },
      rate: { type: 'string', default: '5' },
      write: { type: 'boolean', default: false },
    },
  })
  const rounds = givenFigure('rounds', values.rounds, 1)
  const routers = givenFigure('routers', values.routers, 2)
  const load = {
    cell: 'plain',
    sessions: givenFigure('sessions', values.sessions, 1),
    perSecond: givenFigure('rate', values.rate, 0.1),
  } as const
  const ways = [
    ['one', { routers: 1 }],
    [`${routers}, with sync`, { routers, isSynced: true }],
    [`${routers}, without`, { routers }],
  ] as const
  const outcomes = ways.map(([way]) => [way, [] as Outcome[]] as const)
  for (let seed = 1; seed <= rounds; seed++) {
    for (const [i, [way, options]] of ways.entries()) {
      const outcome = await runWay('auto', { ...load, seed, ...options })
      outcomes[i]![1].push(outcome)
      const { hitRate, imbalance, meanMs, p99Ms } = figuresOf([outcome])
      const said = `hit rate ${hitRate.toFixed(3)}, imbalance ${imbalance.toFixed(2)}, mean ${meanMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(0)} ms`
      process.stderr.write(`round ${seed}, ${way}: ${said}\n`)
    }
  }
  const table = renderRows(outcomes)
  console.log(table)
  if (values.write) await writeFile(PAGE, withTable(await readFile(PAGE, 'utf8'), table, MARKS))
}
