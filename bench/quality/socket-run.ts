/**
 * Conversations through one router and four engines, all of them processes, over real sockets: the runs of
 * socket-quality.ts and replica-quality.ts.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
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
import { startRival } from './rival-router.ts'
import {
  BLOCK_SIZE_TOKENS,
  OUTPUT_TOKENS,
  promptOf,
  type SessionLoad,
  sessionLoad,
  text,
} from './session-load.ts'

const ENGINES = 4
const PROFILE = 'h100-8b'
const TOKENIZER = fileURLToPath(new URL('../../packages/tokenization/fixtures/tiny', import.meta.url))
const PAST_SHARE = 0.3
const DOWN_MS = 1000
/** Prompts of the other tenant, all of them new. */
const FLOOD_TOKENS = 20_000
const FLOOD_GAP_MS = 1000

export const WAYS: Readonly<Record<string, readonly string[]>> = {
  auto: ['--router-policy', 'auto'],
  linear: ['--router-policy', 'linear'],
  'round-robin': ['--router-mode', 'round-robin'],
  random: ['--router-mode', 'random'],
}
/** The way that is another router: rival-router.ts. */
export const RIVAL = 'smg'

/** Of the blocks of all conversations, those that all engines together can hold. */
export const CACHE_SHARES = { plain: 2 / 3, trouble: 2 / 3, slow: 2 / 3, stress: 1 / 3, flood: 2 } as const
export type CellName = keyof typeof CACHE_SHARES
export const CELLS = Object.keys(CACHE_SHARES) as readonly CellName[]
/** Cells whose engines have other clients, and one of which starts again. */
const TROUBLED: ReadonlySet<CellName> = new Set(['trouble', 'stress'])

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
  /** The placed ones, in the order of their ends. */
  readonly requests: readonly PlacedRequest[]
}

/** One request of a conversation, for who looks at the choices of two ways side by side. */
export interface PlacedRequest {
  /** Its place in the load: the same for all ways. */
  readonly number: number
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly ttftMs: number
  readonly worker: string
  /** Of the receipt; empty where there is none. */
  readonly decision: string
  receipt?: unknown
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
  /** Whether the requests of the outcome have their receipts; default: not. */
  readonly hasReceipts?: boolean
}

export function loadOf({ cell, seed, sessions, perSecond }: RunOptions): SessionLoad {
  return sessionLoad({ seed, sessions, perSecond, hotShare: cell === 'slow' ? 0.5 : 0 })
}

/** A router, or another one, in front of the engines. */
interface Door {
  readonly url: string
  /** undefined: it is not ours. */
  readonly client: RouterClient | undefined
  kill(signal: NodeJS.Signals): void
  readonly ended: Promise<unknown>
}

/**
 * The requests of a load through a fleet that is started for it. Throws when one of them is not answered by
 * 200.
 */
export async function runWay(way: string, options: RunOptions): Promise<Outcome> {
  const { cell } = options
  const load = loadOf(options)
  const engines = await startEngines(cell, load)
  const doors: Door[] = []
  try {
    if (way === RIVAL) doors.push({ ...(await startRival(engines.map(({ url }) => url))), client: undefined })
    else doors.push(...(await startRouters(way, engines, options)))
    const clients = doors.flatMap(({ client }) => client ?? [])
    for (const client of clients) await client.trusted()
    if (options.isSynced) await known(clients)
    if (cell === 'slow') {
      await send(engines[0]!.url, '/v1/completions', { body: bodyOf(load.hotTokens) })
      for (const client of clients) await client.caughtUp(engines)
    }
    const outcome = await sendAll(
      doors.map(({ url }) => url),
      engines,
      load,
      options,
    )
    if (options.hasReceipts)
      for (const request of outcome.requests)
        for (const client of clients)
          request.receipt = (await client.send(`/decisions/${request.decision}`)).json
    return outcome
  } finally {
    for (const one of [...doors, ...engines]) {
      one.kill('SIGTERM')
      await one.ended
    }
  }
}

async function startRouters(
  way: string,
  engines: readonly TestProcess[],
  { routers = 1, isSynced = false }: RunOptions,
): Promise<Door[]> {
  const plane = isSynced ? await freeReplicaPorts(routers) : undefined
  const started: Door[] = []
  for (let i = 0; i < routers; i++) {
    const router = await startProcess('router', [
      ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'error', ...WAYS[way]!],
      ...engines.flatMap(({ url }) => ['--worker', url]),
      ...(plane === undefined ? [] : ['--router-replica-sync', ...plane(i)]),
    ])
    const { url, ended } = router
    started.push({ url, ended, client: new RouterClient(url), kill: signal => router.kill(signal) })
  }
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
  const blocks = Math.ceil((load.workingSetBlocks * CACHE_SHARES[cell]) / ENGINES)
  const argv = [
    '--port',
    '0',
    '--events-port',
    '0',
    '--replay-port',
    '0',
    '--profile',
    PROFILE,
    '--tokenizer',
    TOKENIZER,
  ]
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
  urls: readonly string[],
  engines: readonly TestProcess[],
  { requests }: SessionLoad,
  { cell, seed }: RunOptions,
): Promise<Outcome> {
  const random = seededRandom(seed + 1000)
  const isTroubled = TROUBLED.has(cell)
  const stays: Stay[] = []
  const placed: PlacedRequest[] = []
  let lost = 0
  let past = 0
  let restarted: Promise<unknown> | undefined
  const running = new Set<Promise<void>>()
  const failures: unknown[] = []
  const leaving = new AbortController()
  const flood = cell === 'flood' ? startFlood(urls[0]!, seed, leaving.signal) : Promise.resolve()
  const startedAt = performance.now()
  for (const [number, { atMs, tokens }] of requests.entries()) {
    const waitMs = atMs - (performance.now() - startedAt)
    // The load has a time of its own.
    if (waitMs > 0) await new Promise(resolve => setTimeout(resolve, waitMs))
    if (isTroubled && number === requests.length >> 1) restarted = restart(engines[0]!.url)
    const isPast = random.next() < PAST_SHARE && isTroubled
    if (isPast) past++
    const url = isPast ? engines[1 + random.below(ENGINES - 1)]!.url : urls[number % urls.length]!
    const one = timed(url, tokens, {}, undefined)
      .then(({ firstMs, usage, stay, decision }) => {
        if (isPast) return
        stays.push(stay)
        placed.push({
          number,
          promptTokens: usage.prompt_tokens,
          cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
          ttftMs: firstMs,
          worker: stay.worker,
          decision,
        })
      })
      // The engine that starts again takes its requests with it; no other may fail.
      .catch(thrown => {
        if (!isTroubled) failures.push(thrown)
        else if (!isPast) lost++
      })
      .finally(() => running.delete(one))
    running.add(one)
  }
  await Promise.all(running)
  await restarted
  leaving.abort()
  await flood
  if (failures.length > 0) throw failures[0]
  const sum = (of: (request: PlacedRequest) => number) => placed.reduce((total, one) => total + of(one), 0)
  return {
    ttftMs: placed.map(({ ttftMs }) => ttftMs),
    promptTokens: sum(({ promptTokens }) => promptTokens),
    cachedTokens: sum(({ cachedTokens }) => cachedTokens),
    lost,
    past,
    imbalance: imbalanceOf(stays, engines.length),
    requests: placed,
  }
}

/** Resolves when the engine is back; the load goes on meanwhile. */
function restart(url: string): Promise<unknown> {
  return send(url, '/admin/restart', { body: { downMs: DOWN_MS } })
}

/** Another tenant's long prompts through the router, until the signal; its requests count nowhere. */
async function startFlood(url: string, seed: number, signal: AbortSignal): Promise<void> {
  const random = seededRandom(seed + 2000)
  const open: Promise<unknown>[] = []
  const startedAt = performance.now()
  for (let number = 0; !signal.aborted; number++) {
    const sent = timed(url, text(random, FLOOD_TOKENS), { 'x-homing-tenant': 'flood' }, signal)
    open.push(sent.catch(thrown => signal.aborted || Promise.reject(thrown)))
    const waitMs = startedAt + (number + 1) * FLOOD_GAP_MS - performance.now()
    // The load has a time of its own, and an end.
    await setTimeoutOr(waitMs, signal)
  }
  await Promise.all(open)
}

/** Resolves after `ms`, at the signal if that comes before. */
function setTimeoutOr(ms: number, signal: AbortSignal): Promise<void> {
  return delay(Math.max(0, ms), undefined, { signal }).catch(() => {})
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
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal | undefined,
): Promise<{
  readonly firstMs: number
  readonly usage: Usage
  readonly stay: Stay
  readonly decision: string
}> {
  const sentAt = performance.now()
  const body = bodyOf(tokens)
  const reply = await open(url, '/v1/completions', { body, headers, ...(signal && { signal }) })
  const parts: Buffer[] = []
  let firstMs = -1
  for await (const bytes of reply.body) {
    if (firstMs < 0) firstMs = performance.now() - sentAt
    parts.push(bytes as Buffer)
  }
  const answer = Buffer.concat(parts).toString()
  if (reply.statusCode !== 200) throw new Error(`a request was answered with ${reply.statusCode}: ${answer}`)
  const { usage } = chunksOf(answer).at(-1)
  const worker = String(reply.headers['x-homing-worker'] ?? reply.headers['x-smg-routed-worker-id'] ?? '')
  const decision = String(reply.headers['x-homing-decision'] ?? '')
  return { firstMs, usage, stay: { worker, fromMs: sentAt, toMs: performance.now() }, decision }
}

function bodyOf(tokens: Int32Array): object {
  return {
    model: MODEL,
    prompt: promptOf(tokens),
    max_tokens: OUTPUT_TOKENS,
    stream: true,
    stream_options: { include_usage: true },
  }
}
