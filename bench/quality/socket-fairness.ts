/**
 * A chat beside a flood, over real sockets: four `homing engine` processes, a `homing router` process, two
 * tenants from this one.
 *
 *   pnpm exec node bench/quality/socket-fairness.ts [--rounds 3] [--seconds 20] [--chats 12] [--floods 2.5]
 *       [--tokens 60000] [--keep FILE] [--cases N] [--write] [--smoke]
 *
 *   alone     the chat, no flood
 *   none      beside a tenant that floods with long prompts; the router has no queue
 *   queue     the same flood, with the default queue
 *
 * In each round every case has a fleet of its own, on the same requests, one case after the other. The flood
 * begins after the first chat; chats count once the workers have a part of the flood. What the flood gets
 * counts from the first of these to the last. When that has its answer, open requests of the flood are
 * dropped. Time to the first token is the client's. With `--write` the table of docs/queue.md is written;
 * `--smoke` is small, and shows that it runs. With `--keep` the outcomes are kept in a file, and those that
 * it has are not measured again: with `--cases 1`, which measures one more, it can be run in pieces.
 */

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { type Random, seededRandom } from '@homing/base'
import { DEFAULT_TOKEN_RANGE, timingProfile } from '@homing/engine'
import { MODEL } from '../../test/simulation/simulated-fleet.ts'
import { open, RouterClient, startProcess, until } from '../../test/system/fleet.ts'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { KeptOutcomes } from './kept-outcomes.ts'

const ENGINES = 4
const PROFILE = 'h100-8b'
const BLOCK_SIZE_TOKENS = 64
const CHAT_TOKENS = [200, 1000] as const
const CHAT_OUTPUT_TOKENS = 16
/** Of the flood: long enough that every worker has some of it when the first chat comes. */
const FLOOD_LEAD_MS = 3000
const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'queue.md')
const MARKS = marksOf('fairness')

export const CASES = ['alone', 'none', 'queue'] as const
export type CaseName = (typeof CASES)[number]

export interface FloodOptions {
  readonly seed: number
  readonly seconds: number
  /** Of the chat, each second; of the flood likewise. */
  readonly chatsPerSecond: number
  readonly floodsPerSecond: number
  readonly floodTokens: number
}

export interface CaseOutcome {
  /** Of the chat. */
  readonly ttftMs: readonly number[]
  /** Prompts of the flood, by what had become of them when the last chat was sent. */
  readonly flood: {
    readonly sent: number
    readonly answered: number
    /** In the router. */
    readonly waiting: number
    /** Answered per second while chats were sent: see `ratePerSecond`. 0: too few were. */
    readonly perSecond: number
  }
  /** Slices that the router had sent by then. */
  readonly slices: number
}

/** When a prompt of the flood was answered, and by which worker. */
interface FloodAnswer {
  readonly worker: string
  readonly atMs: number
}

/** The two tenants through a fleet that is started for it. Throws when a chat is not answered by 200. */
export async function runCase(name: CaseName, options: FloodOptions): Promise<CaseOutcome> {
  const argv = ['--port', '0', '--events-port', '0', '--replay-port', '0', '--profile', PROFILE]
  const engines = await Promise.all(
    Array.from({ length: ENGINES }, () =>
      startProcess('engine', [...argv, '--block-size', String(BLOCK_SIZE_TOKENS)]),
    ),
  )
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'error', '--router-policy', 'auto'],
    ...(name === 'none' ? ['--router-queue-threshold', 'none'] : []),
    ...engines.flatMap(({ url }) => ['--worker', url]),
  ])
  try {
    const client = new RouterClient(router.url)
    await client.trusted()
    return await sendBoth(client, name, options)
  } finally {
    for (const one of [router, ...engines]) {
      one.kill('SIGKILL')
      await one.ended
    }
  }
}

async function sendBoth(client: RouterClient, name: CaseName, options: FloodOptions): Promise<CaseOutcome> {
  const { seed, seconds, chatsPerSecond, floodsPerSecond, floodTokens } = options
  const random = seededRandom(seed)
  const chats = Array.from({ length: Math.round(seconds * chatsPerSecond) }, () =>
    bodyOf(tokensOf(random, between(random, CHAT_TOKENS)), CHAT_OUTPUT_TOKENS),
  )
  const spanMs = FLOOD_LEAD_MS + 1000 * seconds
  const floods = Array.from({ length: Math.round((floodsPerSecond * spanMs) / 1000) }, () =>
    bodyOf(tokensOf(random, floodTokens), 1),
  )
  const leaving = new AbortController()
  let sent = 0
  const answers: FloodAnswer[] = []
  const failures: unknown[] = []
  const sendFlood = (body: string): void => {
    sent++
    firstToken(client.url, 'flood', body, leaving.signal).then(
      ({ worker }) => void answers.push({ worker, atMs: performance.now() }),
      // At the end some are left without an answer.
      thrown => leaving.signal.aborted || failures.push(thrown),
    )
  }
  await firstToken(client.url, 'chat', bodyOf(tokensOf(random, CHAT_TOKENS[0]), 1))
  const stopFlood = name === 'alone' ? () => {} : paced(floods, 1000 / floodsPerSecond, sendFlood)
  if (name !== 'alone') {
    await until('every worker has some of the flood', async () => {
      const keys = (await client.workers()).flatMap(({ worker_keys }) => worker_keys)
      const busy = keys.filter(({ load }) => load.requests > 0).length
      return sent >= ENGINES && busy >= ENGINES - 1 ? true : undefined
    })
  }
  const ttftMs: number[] = []
  const running: Promise<void>[] = []
  const fromMs = performance.now()
  await new Promise<void>(resolve => {
    paced(
      chats,
      1000 / chatsPerSecond,
      body =>
        running.push(
          firstToken(client.url, 'chat', body).then(
            ({ ms }) => void ttftMs.push(ms),
            thrown => void failures.push(thrown),
          ),
        ),
      resolve,
    )
  })
  // From here on the load of the chat changes, so what the flood gets does not count any more.
  const flood = {
    sent,
    answered: answers.length,
    waiting: await waitingOf(client, 'flood'),
    perSecond: ratePerSecond(answers, fromMs),
  }
  const slices = await slicesOf(client)
  await Promise.all(running)
  stopFlood()
  leaving.abort()
  if (failures.length > 0) throw failures[0]
  return { ttftMs, flood, slices }
}

/**
 * Answers per second since `fromMs`: of each worker those after its first, in the time since that, summed
 * up. So prompts that were half computed at either end of the time do not count, which are many: one takes
 * seconds.
 */
export function ratePerSecond(answers: readonly FloodAnswer[], fromMs: number): number {
  let rate = 0
  const counted = answers.filter(({ atMs }) => atMs >= fromMs)
  for (const times of Map.groupBy(counted, ({ worker }) => worker).values()) {
    const [first, last] = [times[0]!.atMs, times.at(-1)!.atMs]
    if (times.length < 2) return 0
    rate += (1000 * (times.length - 1)) / (last - first)
  }
  return rate
}

async function slicesOf(client: RouterClient): Promise<number> {
  const { text } = await client.send('/metrics')
  return Number(/^homing_gateway_prefill_slices_total (\S+)/m.exec(text)?.[1] ?? 0)
}

/** Calls `act` with each of `items`, one every `gapMs` from now on. Returns what stops it. */
function paced<T>(items: readonly T[], gapMs: number, act: (item: T) => void, done = () => {}): () => void {
  const startedAt = performance.now()
  let next = 0
  let timer: NodeJS.Timeout | undefined
  const step = (): void => {
    while (next < items.length && performance.now() - startedAt >= next * gapMs) act(items[next++]!)
    // The load has a time of its own.
    if (next < items.length)
      timer = setTimeout(step, Math.max(0, startedAt + next * gapMs - performance.now()))
    else done()
  }
  step()
  return () => clearTimeout(timer)
}

/** Milliseconds from the call to the first byte of the answer, whose rest is read, and the worker. */
async function firstToken(
  url: string,
  tenant: string,
  body: string,
  signal?: AbortSignal,
): Promise<{ readonly ms: number; readonly worker: string }> {
  const sentAt = performance.now()
  const headers = { 'x-homing-tenant': tenant }
  const reply = await open(url, '/v1/completions', { body, headers, ...(signal && { signal }) })
  let firstMs = -1
  const parts: Buffer[] = []
  for await (const bytes of reply.body) {
    if (firstMs < 0) firstMs = performance.now() - sentAt
    parts.push(bytes as Buffer)
  }
  if (reply.statusCode === 200) return { ms: firstMs, worker: String(reply.headers['x-homing-worker']) }
  throw new Error(`a ${tenant} was answered with ${reply.statusCode}: ${Buffer.concat(parts).toString()}`)
}

async function waitingOf(client: RouterClient, tenant: string): Promise<number> {
  const { models } = (await client.send('/queue')).json as {
    readonly models: readonly {
      readonly tenants: readonly {
        readonly tenant: string
        readonly waiting: { readonly requests: number }
      }[]
    }[]
  }
  const rows = models.flatMap(({ tenants }) => tenants.filter(row => row.tenant === tenant))
  return rows.reduce((sum, { waiting }) => sum + waiting.requests, 0)
}

function tokensOf(random: Random, count: number): readonly number[] {
  const { first, count: choices } = DEFAULT_TOKEN_RANGE
  return Array.from({ length: count }, () => first + random.below(choices))
}

function between(random: Random, [low, high]: readonly [number, number]): number {
  return low + random.below(high - low)
}

function bodyOf(prompt: readonly number[], outputTokens: number): string {
  return JSON.stringify({ model: MODEL, prompt, max_tokens: outputTokens, stream: true })
}

/**
 * What a step with a chunk of a long prompt takes on that profile: the last of the prompt, which is the
 * longest.
 */
export function chunkMs(promptTokens: number): number {
  const { stepTokensMax, stepMs } = timingProfile(PROFILE)
  const prefillTokens = Math.min(stepTokensMax, promptTokens)
  const prefillAttention = prefillTokens * (promptTokens - prefillTokens / 2)
  return stepMs({
    ...{ prefillTokens, prefillAttention },
    decodeRequests: 0,
    decodeContextTokens: 0,
    kvUsage: 0,
  })
}

/** The p-th part of the times; `p` below 1. */
export function quantile(times: readonly number[], p: number): number {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length * p)]!
}

const LABELS: Readonly<Record<CaseName, string>> = {
  alone: 'alone',
  none: 'beside the flood, `--router-queue-threshold none`',
  queue: 'beside the flood, with the queue',
}

/** A row for each case, over all rounds. */
export function tableOf(
  outcomes: Readonly<Record<CaseName, readonly CaseOutcome[]>>,
  floodTokens: number,
): string {
  const times = (name: CaseName) => outcomes[name].flatMap(({ ttftMs }) => ttftMs)
  const rateOf = (name: CaseName) => outcomes[name].reduce((sum, { flood }) => sum + flood.perSecond, 0)
  const alone = quantile(times('alone'), 0.99)
  const bound = 1.2 * alone + chunkMs(floodTokens)
  const rows = CASES.map(name => {
    const p99 = quantile(times(name), 0.99)
    const perSecond = outcomes[name].map(({ flood }) => flood.perSecond.toFixed(2)).join(' · ')
    const rounds = outcomes[name].map(({ ttftMs }) => quantile(ttftMs, 0.99).toFixed(0)).join(' · ')
    const isKept = name === 'alone' ? '' : `≤ ${bound.toFixed(0)} ms: ${p99 <= bound ? 'yes' : '**no**'}`
    const cells = [
      LABELS[name],
      ms(quantile(times(name), 0.5)),
      ms(p99),
      rounds,
      (p99 / alone).toFixed(1),
      isKept,
    ]
    const ofNone = name === 'queue' ? (rateOf('queue') / rateOf('none')).toFixed(2) : ''
    return `| ${[...cells, name === 'alone' ? '' : perSecond, ofNone].join(' | ')} |`
  })
  return [
    '| the chat | p50 | p99 | p99 of each round, ms | p99 ÷ alone | bound | prompts of the flood answered per second | of what it gets without the queue |',
    '|---|---:|---:|---:|---:|---|---:|---:|',
    ...rows,
  ].join('\n')
}

function ms(time: number): string {
  return `${time.toFixed(0)} ms`
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '20' },
      chats: { type: 'string', default: '12' },
      floods: { type: 'string', default: '2.5' },
      tokens: { type: 'string', default: '60000' },
      keep: { type: 'string' },
      cases: { type: 'string', default: '1000' },
      write: { type: 'boolean', default: false },
      smoke: { type: 'boolean', default: false },
    },
  })
  if (values.write && values.smoke) throw new Error('cannot write figures of --smoke: leave one of them out')
  const rounds = values.smoke ? 1 : givenFigure('rounds', values.rounds, 1)
  const options = {
    seconds: values.smoke ? 3 : givenFigure('seconds', values.seconds, 1),
    chatsPerSecond: givenFigure('chats', values.chats, 0.1),
    floodsPerSecond: givenFigure('floods', values.floods, 0.1),
    floodTokens: givenFigure('tokens', values.tokens, 8193),
  }
  const outcomes: Record<CaseName, CaseOutcome[]> = { alone: [], none: [], queue: [] }
  const kept = await KeptOutcomes.open<{ readonly seed: number; readonly name: CaseName }, CaseOutcome>(
    values.keep,
  )
  let left = givenFigure('cases', values.cases, 0)
  for (let seed = 1; seed <= rounds; seed++) {
    for (const name of CASES) {
      const known = kept.find({ seed, name })
      if (known === undefined && left-- <= 0) process.exit(0)
      const outcome = known ?? (await runCase(name, { ...options, seed }))
      outcomes[name].push(outcome)
      if (known !== undefined) continue
      await kept.add({ seed, name }, outcome)
      const p99 = quantile(outcome.ttftMs, 0.99)
      process.stderr.write(
        `round ${seed}, ${name}: p99 ${ms(p99)}, ${outcome.slices} slices, flood ${JSON.stringify(outcome.flood)}\n`,
      )
    }
  }
  const table = tableOf(outcomes, options.floodTokens)
  console.log(table)
  if (values.write) await writeFile(PAGE, withTable(await readFile(PAGE, 'utf8'), table, MARKS))
}
