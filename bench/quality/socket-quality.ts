/**
 * Placement over real sockets: four `homing engine` processes, a `homing router` process, conversations of
 * four turns from this one.
 *
 *   pnpm exec node bench/quality/socket-quality.ts [--rounds 3] [--sessions 60] [--rate 5]
 *       [--cells plain,trouble,slow] [--write]
 *
 *   plain    engines that hold about two thirds of all conversations together
 *   trouble  30 % of the requests go past the router to an engine of their own choice, and one engine starts
 *            again in the middle
 *   slow     one engine of a quarter of the speed, which is the only one to hold the text that half of the
 *            conversations begin with
 *
 * In each round every way to place has a fleet of its own, on the same requests, one after the other. Time to
 * the first token is that of the client, of requests that the router placed. With `--write` the table of
 * docs/records/routing-quality.md is written.
 */

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { seededRandom } from '@homing/base'
import { MODEL } from '../../test/simulation/simulated-fleet.ts'
import {
  chunksOf,
  freeReplicaPorts,
  open,
  RouterClient,
  send,
  startProcess,
  type TestProcess,
  until,
} from '../../test/system/fleet.ts'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import {
  BLOCK_SIZE_TOKENS,
  hitRateOfOneCache,
  OUTPUT_TOKENS,
  type SessionLoad,
  sessionLoad,
} from './session-load.ts'

const ENGINES = 4
const PROFILE = 'h100-8b'
/** Of the blocks of all conversations, those that all engines together can hold. */
const CACHE_SHARE = 2 / 3
const PAST_SHARE = 0.3
const DOWN_MS = 1000
const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'records', 'routing-quality.md')
const MARKS = marksOf('sockets')

export const WAYS: Readonly<Record<string, readonly string[]>> = {
  auto: ['--router-policy', 'auto'],
  linear: ['--router-policy', 'linear'],
  'round-robin': ['--router-mode', 'round-robin'],
  random: ['--router-mode', 'random'],
}

export const CELLS = ['plain', 'trouble', 'slow'] as const
export type CellName = (typeof CELLS)[number]

export interface Outcome {
  readonly ttftMs: readonly number[]
  readonly promptTokens: number
  readonly cachedTokens: number
  /** Placed requests that an engine took with it when it started again. */
  readonly lost: number
  /** Requests that went past the router. */
  readonly past: number
  /**
   * Mean over the arrivals of the placed ones: requests at the engine with the most, divided by those at an
   * engine on average.
   */
  readonly imbalance: number
}

export interface RunOptions {
  readonly cell: CellName
  readonly seed: number
  readonly sessions: number
  readonly perSecond: number
  /** Router processes, to which requests go in turn, as from a plain balancer; default 1. */
  readonly routers?: number
  /** Whether they tell each other what they send; default: they do not. */
  readonly isSynced?: boolean
}

export function loadOf({ cell, seed, sessions, perSecond }: RunOptions): SessionLoad {
  return sessionLoad({ seed, sessions, perSecond, hotShare: cell === 'slow' ? 0.5 : 0 })
}

/**
 * The requests of a load through a fleet that is started for it. Throws when one of them is not answered by
 * 200.
 */
export async function runWay(way: string, options: RunOptions): Promise<Outcome> {
  const { cell, seed } = options
  const load = loadOf(options)
  const engines = await startEngines(cell, load)
  const routers = await startRouters(way, engines, options)
  try {
    const clients = routers.map(({ url }) => new RouterClient(url))
    for (const client of clients) await client.trusted()
    if (options.isSynced) await known(clients)
    if (cell === 'slow') {
      await send(engines[0]!.url, '/v1/completions', { body: bodyOf(load.hotTokens) })
      for (const client of clients) await client.caughtUp(engines)
    }
    return await sendAll(clients, engines, load, cell, seed)
  } finally {
    for (const one of [...routers, ...engines]) {
      one.kill('SIGTERM')
      await one.ended
    }
  }
}

async function startRouters(
  way: string,
  engines: readonly TestProcess[],
  { routers = 1, isSynced = false }: RunOptions,
): Promise<TestProcess[]> {
  const plane = isSynced ? await freeReplicaPorts(routers) : undefined
  const started: TestProcess[] = []
  for (let i = 0; i < routers; i++)
    started.push(
      await startProcess('router', [
        ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'error', ...WAYS[way]!],
        ...engines.flatMap(({ url }) => ['--worker', url]),
        ...(plane === undefined ? [] : ['--router-replica-sync', ...plane(i)]),
      ]),
    )
  return started
}

/** Resolves once each knows what the others have open. */
async function known(clients: readonly RouterClient[]): Promise<void> {
  for (const client of clients)
    await until('all other routers are known', async () => {
      const { replicas } = (await client.send('/replicas')).json as { replicas: { state: string }[] }
      return replicas.filter(({ state }) => state === 'live').length === clients.length - 1 ? true : undefined
    })
}

function startEngines(cell: CellName, load: SessionLoad): Promise<TestProcess[]> {
  const blocks = Math.ceil((load.workingSetBlocks * CACHE_SHARE) / ENGINES)
  const argv = ['--port', '0', '--events-port', '0', '--replay-port', '0', '--profile', PROFILE]
  const size = ['--block-size', String(BLOCK_SIZE_TOKENS), '--blocks', String(blocks)]
  return Promise.all(
    Array.from({ length: ENGINES }, (_, engine) =>
      startProcess('engine', [
        ...argv,
        ...size,
        ...(cell === 'slow' && engine === 0 ? ['--speed', '0.25'] : []),
      ]),
    ),
  )
}

async function sendAll(
  clients: readonly RouterClient[],
  engines: readonly TestProcess[],
  { requests }: SessionLoad,
  cell: CellName,
  seed: number,
): Promise<Outcome> {
  const random = seededRandom(seed + 1000)
  const stays: Stay[] = []
  const ttftMs: number[] = []
  let promptTokens = 0
  let cachedTokens = 0
  let lost = 0
  let past = 0
  const startedAt = performance.now()
  const running = new Set<Promise<void>>()
  const failures: unknown[] = []
  for (const [number, { atMs, tokens }] of requests.entries()) {
    const waitMs = atMs - (performance.now() - startedAt)
    // The load has a time of its own.
    if (waitMs > 0) await new Promise(resolve => setTimeout(resolve, waitMs))
    if (cell === 'trouble' && number === requests.length >> 1)
      await send(engines[0]!.url, '/admin/restart', { body: { downMs: DOWN_MS } })
    const isPast = random.next() < PAST_SHARE && cell === 'trouble'
    if (isPast) past++
    const url = isPast ? engines[1 + random.below(ENGINES - 1)]!.url : clients[number % clients.length]!.url
    const one = timed(url, tokens)
      .then(({ firstMs, usage, stay }) => {
        if (isPast) return
        stays.push(stay)
        ttftMs.push(firstMs)
        promptTokens += usage.prompt_tokens
        cachedTokens += usage.prompt_tokens_details?.cached_tokens ?? 0
      })
      // The engine that starts again takes its requests with it; no other may fail.
      .catch(thrown => {
        if (cell !== 'trouble') failures.push(thrown)
        else if (!isPast) lost++
      })
      .finally(() => running.delete(one))
    running.add(one)
  }
  await Promise.all(running)
  if (failures.length > 0) throw failures[0]
  return { ttftMs, promptTokens, cachedTokens, lost, past, imbalance: imbalanceOf(stays, engines.length) }
}

/** A request at its engine. */
interface Stay {
  readonly worker: string
  readonly fromMs: number
  readonly toMs: number
}

/** See Outcome. */
export function imbalanceOf(stays: readonly Stay[], workers: number): number {
  let sum = 0
  for (const { fromMs } of stays) {
    const counts = new Map<string, number>()
    for (const { worker, fromMs: from, toMs } of stays)
      if (from <= fromMs && fromMs < toMs) counts.set(worker, (counts.get(worker) ?? 0) + 1)
    const all = [...counts.values()]
    sum += (Math.max(...all) * workers) / all.reduce((total, count) => total + count, 0)
  }
  return sum / stays.length
}

interface Usage {
  readonly prompt_tokens: number
  readonly prompt_tokens_details?: { readonly cached_tokens?: number }
}

async function timed(
  url: string,
  tokens: Int32Array,
): Promise<{ readonly firstMs: number; readonly usage: Usage; readonly stay: Stay }> {
  const sentAt = performance.now()
  const reply = await open(url, '/v1/completions', { body: bodyOf(tokens) })
  const parts: Buffer[] = []
  let firstMs = -1
  for await (const bytes of reply.body) {
    if (firstMs < 0) firstMs = performance.now() - sentAt
    parts.push(bytes as Buffer)
  }
  const answer = Buffer.concat(parts).toString()
  if (reply.statusCode !== 200) throw new Error(`a request was answered with ${reply.statusCode}: ${answer}`)
  const { usage } = chunksOf(answer).at(-1)
  const worker = String(reply.headers['x-homing-worker'] ?? '')
  return { firstMs, usage, stay: { worker, fromMs: sentAt, toMs: performance.now() } }
}

function bodyOf(tokens: Int32Array): object {
  return {
    model: MODEL,
    prompt: [...tokens],
    max_tokens: OUTPUT_TOKENS,
    stream: true,
    stream_options: { include_usage: true },
  }
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

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      sessions: { type: 'string', default: '60' },
      rate: { type: 'string', default: '5' },
      cells: { type: 'string', default: CELLS.join(',') },
      write: { type: 'boolean', default: false },
    },
  })
  const lines = [
    '| cell | placed by | hit rate | mean | p50 | p99 | mean ÷ round-robin | p99 ÷ round-robin |',
    '|---|---|---:|---:|---:|---:|---:|---:|',
  ]
  const rounds = givenFigure('rounds', values.rounds, 1)
  const sessions = givenFigure('sessions', values.sessions, 1)
  const perSecond = givenFigure('rate', values.rate, 0.1)
  const cells = values.cells.split(',').map(name => {
    const cell = CELLS.find(each => each === name)
    if (cell === undefined) throw new RangeError(`cannot run cell ${name}: there are ${CELLS.join(', ')}`)
    return cell
  })
  if (values.write && cells.length < CELLS.length)
    throw new Error('cannot write a part of the table: leave out --cells, or --write')
  for (const cell of cells) {
    const outcomes: Record<string, Outcome[]> = Object.fromEntries(Object.keys(WAYS).map(way => [way, []]))
    const ideals: number[] = []
    for (let seed = 1; seed <= rounds; seed++) {
      const options = { cell, seed, sessions, perSecond }
      const load = loadOf(options)
      ideals.push(hitRateOfOneCache(load.requests, Math.floor(load.workingSetBlocks * CACHE_SHARE)))
      for (const way of Object.keys(WAYS)) {
        outcomes[way]!.push(await runWay(way, options))
        const { hitRate, meanMs, p99Ms } = rowOf(way, outcomes[way]!.slice(-1))
        process.stderr.write(
          `${cell}, round ${seed}, ${way}: ${percent(hitRate)}, mean ${meanMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(0)} ms, lost ${outcomes[way]!.at(-1)!.lost}\n`,
        )
      }
    }
    const rows = Object.entries(outcomes).map(([way, of]) => rowOf(way, of))
    const base = rows.find(({ way }) => way === 'round-robin')!
    for (const { way, hitRate, meanMs, p50Ms, p99Ms } of rows) {
      const times = [meanMs, p50Ms, p99Ms].map(ms => `${ms.toFixed(1)} ms`)
      const ratios = [meanMs / base.meanMs, p99Ms / base.p99Ms].map(ratio => ratio.toFixed(2))
      lines.push(`| ${[cell, way, percent(hitRate), ...times, ...ratios].join(' | ')} |`)
    }
    const ideal = ideals.reduce((total, rate) => total + rate, 0) / ideals.length
    lines.push(`| ${cell} | *one cache of all blocks* | ${percent(ideal)} | | | | | |`)
  }
  console.log(lines.join('\n'))
  if (values.write) {
    const page = await readFile(PAGE, 'utf8')
    await writeFile(PAGE, withTable(page, lines.join('\n'), MARKS))
  }
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`
}
