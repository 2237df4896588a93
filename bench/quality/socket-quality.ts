/**
 * Placement over real sockets: four `homing engine` processes, a `homing router` process, conversations of
 * four turns from this one.
 *
 *   pnpm exec node bench/quality/socket-quality.ts [--rounds 3] [--first-seed 1] [--sessions 60] [--rate 5]
 *       [--cells plain,trouble,slow,stress,flood] [--ways auto,smg,linear,round-robin,random] [--write]
 *       [--keep FILE] [--requests FILE]
 *
 *   plain    engines that hold about two thirds of all conversations together
 *   trouble  30 % of the requests go past the router to an engine of their own choice, and one engine starts
 *            again in the middle
 *   slow     one engine of a quarter of the speed, which is the only one to hold the text that half of the
 *            conversations begin with
 *   stress   trouble, and engines that hold a third
 *   flood    another tenant sends a new prompt of 20,000 tokens every second; engines hold all conversations
 *
 * In each round every way to place has a fleet of its own, on the same requests, one after the other. Time to
 * the first token is that of the client, of requests of conversations that the router placed. `smg` is
 * another router (rival-router.ts); it is left out, and said so, where it is not installed. The second table
 * holds auto against each other way, round by round. `--write` puts the tables into
 * docs/records/routing-quality.md: the first if all ways were run, the second if `auto` and `smg` were. With
 * `--keep` outcomes are kept in a file, and those that it has are not measured again. With `--requests`: a
 * line of JSON for each request of each way, with its receipt.
 */

import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { seedMean } from '@homing/simulate'
import { givenCount, givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { KeptOutcomes } from './kept-outcomes.ts'
import { rivalMissing } from './rival-router.ts'
import { hitRateOfOneCache } from './session-load.ts'
import { CACHE_SHARES, CELLS, loadOf, type Outcome, RIVAL, runWay, WAYS } from './socket-run.ts'

const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'records', 'routing-quality.md')
const MARKS = marksOf('sockets')
const PAIR_MARKS = marksOf('socket pairs')
const OURS = 'auto'

interface RunKey {
  readonly cell: string
  readonly seed: number
  readonly way: string
}

export interface Row {
  readonly way: string
  readonly hitRate: number
  readonly meanMs: number
  readonly p50Ms: number
  readonly p99Ms: number
}

export function rowOf(way: string, outcomes: readonly Outcome[]): Row {
  const times = outcomes.flatMap(({ ttftMs }) => ttftMs).sort((a, b) => a - b)
  const sum = (of: (outcome: Outcome) => number) => outcomes.reduce((total, one) => total + of(one), 0)
  return {
    way,
    hitRate: sum(({ cachedTokens }) => cachedTokens) / sum(({ promptTokens }) => promptTokens),
    meanMs: times.reduce((total, ms) => total + ms, 0) / times.length,
    p50Ms: times[times.length >> 1]!,
    p99Ms: times[Math.floor(times.length * 0.99)]!,
  }
}

/** auto against another way, over rounds that both had: 95 % intervals of the paired differences. */
export function pairOf(ours: readonly Outcome[], theirs: readonly Outcome[]): string[] {
  const [a, b] = [ours, theirs].map(outcomes => outcomes.map(outcome => rowOf('', [outcome])))
  const points = seedMean(a!.map(({ hitRate }, round) => 100 * (hitRate - b![round]!.hitRate)))
  const ratio = (of: (row: Row) => number) =>
    seedMean(a!.map((row, round) => Math.log(of(row) / of(b![round]!))))
  const [mean, p99] = [ratio(({ meanMs }) => meanMs), ratio(({ p99Ms }) => p99Ms)]
  const behind = [
    points.mean + (points.halfWidth ?? Infinity) < 0 ? 'hit rate' : [],
    mean.mean - (mean.halfWidth ?? Infinity) > 0 ? 'mean' : [],
    p99.mean - (p99.halfWidth ?? Infinity) > 0 ? 'p99' : [],
  ].flat()
  const ahead = [
    points.mean - (points.halfWidth ?? Infinity) > 0 ? 'hit rate' : [],
    mean.mean + (mean.halfWidth ?? Infinity) < 0 ? 'mean' : [],
    p99.mean + (p99.halfWidth ?? Infinity) < 0 ? 'p99' : [],
  ].flat()
  const difference = `${points.mean.toFixed(1)} ± ${(points.halfWidth ?? Number.NaN).toFixed(1)}`
  const verdict = [
    behind.length > 0 ? `**behind**: ${behind.join(', ')}` : [],
    ahead.length > 0 ? `ahead: ${ahead.join(', ')}` : [],
  ].flat()
  return [difference, interval(mean), interval(p99), verdict.length > 0 ? verdict.join('; ') : 'level']
}

/** Of a mean of logarithms, as ratios. */
function interval({ mean, halfWidth = Number.NaN }: ReturnType<typeof seedMean>): string {
  const [ratio, low, high] = [mean, mean - halfWidth, mean + halfWidth].map(log => Math.exp(log).toFixed(3))
  return `${ratio} [${low}, ${high}]`
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      'first-seed': { type: 'string', default: '1' },
      sessions: { type: 'string', default: '60' },
      rate: { type: 'string', default: '5' },
      cells: { type: 'string', default: CELLS.join(',') },
      ways: { type: 'string', default: [OURS, RIVAL, ...Object.keys(WAYS).slice(1)].join(',') },
      write: { type: 'boolean', default: false },
      keep: { type: 'string' },
      requests: { type: 'string' },
    },
  })
  const rounds = givenCount('rounds', values.rounds)
  const firstSeed = givenCount('first-seed', values['first-seed'])
  const sessions = givenCount('sessions', values.sessions)
  const perSecond = givenFigure('rate', values.rate, 0.1)
  const cells = oneOf('cell', values.cells, CELLS)
  const missing = rivalMissing()
  const ways = oneOf('way', values.ways, [...Object.keys(WAYS), RIVAL]).filter(
    way => way !== RIVAL || missing === undefined,
  )
  if (missing !== undefined) process.stderr.write(`without ${RIVAL}: ${missing}\n`)
  const hasAllWays = ways.length > Object.keys(WAYS).length
  const hasPairs = ways.includes(OURS) && ways.includes(RIVAL)
  if (values.write && (cells.length < CELLS.length || !hasPairs))
    throw new Error(`cannot write a part of a table: leave out --cells, and have ${OURS} and ${RIVAL}`)
  const kept = await KeptOutcomes.open<RunKey, Outcome>(values.keep)
  const lines = [
    '| cell | placed by | hit rate | mean | p50 | p99 | mean ÷ round-robin | p99 ÷ round-robin |',
    '|---|---|---:|---:|---:|---:|---:|---:|',
  ]
  const pairs = [
    `| cell | against | hit rate, points | mean TTFT, ratio | p99 TTFT, ratio | ${OURS} is |`,
    '|---|---|---:|---:|---:|---|',
  ]
  for (const cell of cells) {
    const outcomes: Record<string, Outcome[]> = Object.fromEntries(ways.map(way => [way, []]))
    const ideals: number[] = []
    for (let round = 1; round <= rounds; round++) {
      const seed = firstSeed + round - 1
      const options = { cell, seed, sessions, perSecond, hasReceipts: values.requests !== undefined }
      const load = loadOf(options)
      const blocks = Math.floor(load.workingSetBlocks * CACHE_SHARES[cell])
      ideals.push(hitRateOfOneCache(load.requests, blocks))
      // The way that runs first finds a machine that was idle.
      for (const way of round % 2 === 0 ? ways.toReversed() : ways) {
        const key = { cell, seed, way }
        const known = kept.find(key)
        const outcome = known ?? (await runWay(way, options))
        outcomes[way]!.push(outcome)
        if (known !== undefined) continue
        await kept.add(key, outcome)
        if (values.requests !== undefined)
          await appendFile(
            values.requests,
            outcome.requests.map(one => `${JSON.stringify({ cell, seed, way, ...one })}\n`).join(''),
          )
        const { hitRate, meanMs, p99Ms } = rowOf(way, [outcome])
        const times = `mean ${meanMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(0)} ms`
        const run = `${cell}, seed ${seed}, ${way}`
        process.stderr.write(`${run}: ${percent(hitRate)}, ${times}, lost ${outcome.lost}\n`)
      }
    }
    const rows = Object.entries(outcomes).map(([way, of]) => rowOf(way, of))
    const base = rows.find(({ way }) => way === 'round-robin')
    for (const { way, hitRate, meanMs, p50Ms, p99Ms } of rows) {
      const times = [meanMs, p50Ms, p99Ms].map(ms => `${ms.toFixed(1)} ms`)
      const ratios = base
        ? [meanMs / base.meanMs, p99Ms / base.p99Ms].map(ratio => ratio.toFixed(2))
        : ['', '']
      lines.push(`| ${[cell, way, percent(hitRate), ...times, ...ratios].join(' | ')} |`)
    }
    const ideal = ideals.reduce((total, rate) => total + rate, 0) / ideals.length
    lines.push(`| ${cell} | *one cache of all blocks* | ${percent(ideal)} | | | | | |`)
    for (const way of ways)
      if (way !== OURS && outcomes[OURS] !== undefined)
        pairs.push(`| ${[cell, way, ...pairOf(outcomes[OURS], outcomes[way]!)].join(' | ')} |`)
  }
  console.log([...lines, '', ...pairs].join('\n'))
  if (values.write) {
    const page = await readFile(PAGE, 'utf8')
    const first = hasAllWays ? withTable(page, lines.join('\n'), MARKS) : page
    await writeFile(PAGE, withTable(first, pairs.join('\n'), PAIR_MARKS))
  }
}

function oneOf<T extends string>(kind: string, text: string, known: readonly T[]): readonly T[] {
  return text.split(',').map(name => {
    const found = known.find(each => each === name)
    if (found === undefined) throw new RangeError(`cannot run ${kind} ${name}: there are ${known.join(', ')}`)
    return found
  })
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`
}
