/**
 * A whole fleet for tests: simulated engines on threads of their own, a router over them, real HTTP and
 * real ZeroMQ between all of them; and the same as processes, where a process must be killed.
 *
 * Nothing sleeps for a guessed time: `until` asks again until the answer fits, with a deadline.
 */

import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { on, once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { type ActorRef, createActorSystem, type ThreadPlacement } from '@homing/actor'
import { parseSettings, routerCommand } from '@homing/config'
import {
  type EngineDescription,
  type EngineMessage,
  type EngineSettings,
  type EngineState,
  engine,
} from '@homing/engine'
import { freePorts } from '@homing/transport/testing'
import { type RunningRouter, startRouter } from 'homing'
import { Agent, type Dispatcher, request } from 'undici'
import type { HeapReport } from './heap-probe.ts'
import { indexDifference } from './index-difference.ts'

const START_MS_MAX = 240_000
const STOP_MS_MAX = 5000
const SEND_MS_MAX = 240_000
const SETTLE_MS_MAX = 240_000
/** Keys that are called exact may lose that so often before a comparison gives up. */
const TRUST_LOSSES_MAX = 1
/** The command line. */
export const MAIN = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))

const FAILING_ACTORS = new URL('failing-actors.ts', import.meta.url).href
const HEAP_PROBE = new URL('heap-probe.ts', import.meta.url).href
const SHIFTED_CLOCK = new URL('shifted-clock.ts', import.meta.url).href

/** A tokenizer with a chat template, which engines and router load alike. */
export const TINY_TOKENIZER = fileURLToPath(
  new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')),
)

/** Ports of one's own, and no waiting: what tests of decisions want. */
export const QUICK: Partial<EngineSettings> = { port: 0, eventsPort: 0, replayPort: 0, speed: 0 }

/** Shared by all fleets of a process; closed with the process. */
const agent = new Agent({
  // Routers of tests have certificates of their own.
  connect: { rejectUnauthorized: false },
  connections: 512,
  pipelining: 1,
  keepAliveTimeout: 1000,
})

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly bytes: Buffer
  readonly text: string
  /** The body as JSON; throws when it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of many forms
  readonly json: any
}

export interface Call {
  readonly method?: string
  /** A string or bytes go out as they are, anything else as JSON. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal
  /** Its connection is closed behind it; default: kept for others. */
  readonly closes?: boolean
}

/** One request, whole. */
export async function send(url: string, path: string, call: Call = {}): Promise<Answer> {
  const reply = await open(url, path, call)
  const bytes = Buffer.from(await reply.body.arrayBuffer())
  return {
    status: reply.statusCode,
    headers: singleHeaders(reply.headers),
    bytes,
    text: bytes.toString('utf8'),
    get json() {
      return JSON.parse(bytes.toString('utf8')) as unknown
    },
  }
}

/** Sends one request; the caller reads the answer. */
export async function open(url: string, path: string, call: Call = {}): Promise<Dispatcher.ResponseData> {
  const { body } = call
  const isRaw = typeof body === 'string' || body instanceof Uint8Array
  const method = call.method ?? (body === undefined ? 'GET' : 'POST')
  try {
    return await request(url + path, {
      dispatcher: agent,
      method: method as Dispatcher.HttpMethod,
      headers: { 'content-type': 'application/json', ...call.headers },
      ...(body === undefined ? {} : { body: isRaw ? body : JSON.stringify(body) }),
      reset: call.closes ?? false,
      signal: call.signal ?? AbortSignal.timeout(SEND_MS_MAX),
    })
  } catch (thrown) {
    throw new Error(`cannot ${method} ${url}${path}: ${(thrown as Error).message}`, { cause: thrown })
  }
}

/** The data of a whole SSE answer, parsed; asserts that it is well-formed and ends with [DONE]. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into chunks of many forms
export function chunksOf(text: string): any[] {
  const events = text.split('\n\n')
  assert.equal(events.pop(), '', 'a stream ends with an empty line')
  assert.equal(events.pop(), 'data: [DONE]')
  return events.map(event => {
    assert.match(event, /^data: \{.*\}$/, 'an event is one line of data')
    return JSON.parse(event.slice('data: '.length)) as unknown
  })
}

/**
 * Polls until the answer is not undefined. Rejects after `msMax`, and says what it waited for and what it saw
 * last.
 */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined> | T | undefined,
  options: { readonly msMax?: number; readonly seen?: () => unknown } = {},
): Promise<T> {
  const endsAt = performance.now() + (options.msMax ?? SETTLE_MS_MAX)
  for (let turn = 0; ; turn++) {
    const answer = await ask()
    if (answer !== undefined) return answer
    if (performance.now() >= endsAt) {
      const seen = options.seen === undefined ? '' : `; last seen: ${JSON.stringify(options.seen())}`
      throw new Error(`waited in vain until ${what}${seen}`)
    }
    // Between questions, not instead of one: others need the processor too.
    await new Promise(resolve => setTimeout(resolve, Math.min(20, turn)))
  }
}

/** A worker key as `/workers` shows it. */
export interface KeyView {
  readonly worker: string
  readonly dp_rank: number
  readonly trust: string
  readonly trust_reason: string
  /** By the wall clock of the router. */
  readonly trust_since: string
  readonly last_event_age_ms: number | null
  readonly blocks_held: number
  readonly load: {
    readonly active_blocks: number
    readonly prefill_tokens: number
    readonly requests: number
    readonly engine_kv_usage: number | null
    readonly engine_kv_usage_reason: string | null
  }
  readonly learned: {
    readonly prefill: { readonly source: string; readonly observations: number }
  } | null
  readonly events: {
    readonly state: string | null
    readonly last_sequence: number | null
    readonly epoch: number | null
    readonly batches: number | null
    readonly gaps: number | null
    readonly replays: number | null
    readonly restarts: number | null
    readonly duplicates: number | null
    readonly malformed_frames: number | null
    readonly shard: number
    readonly checkpoint: {
      readonly resumed_sequence: number | null
      readonly refusal: string | null
      readonly saved_sequence: number | null
      readonly saves: number
    } | null
  } | null
}

export interface WorkerView {
  readonly id: string
  readonly instance_id: number
  readonly url: string
  readonly state: string
  readonly state_reason: string
  readonly engine_started_at: string | null
  readonly health: { readonly state: string; readonly reason: string | null }
  readonly worker_keys: readonly KeyView[]
}

/** What of an engine must be known to compare the router with it. */
export interface EngineHandle {
  readonly url: string
  state(hasBlocks?: boolean): Promise<EngineState>
}

/** An engine on a thread of this process. */
export interface ThreadEngine extends EngineHandle {
  readonly description: EngineDescription
  /** As a body of /admin/faults. */
  faults(body: Readonly<Record<string, unknown>>): Promise<void>
  restart(downMs?: number): Promise<void>
}

/** A router in this or another process, through its routes. */
export class RouterClient {
  readonly url: string

  constructor(url: string) {
    this.url = url
  }

  send(path: string, call: Call = {}): Promise<Answer> {
    return send(this.url, path, call)
  }

  open(path: string, call: Call = {}): Promise<Dispatcher.ResponseData> {
    return open(this.url, path, call)
  }

  async workers(): Promise<readonly WorkerView[]> {
    const answer = await this.send('/workers')
    assert.equal(answer.status, 200, answer.text)
    return (answer.json as { workers: WorkerView[] }).workers
  }

  async worker(url: string): Promise<WorkerView> {
    const found = (await this.workers()).find(worker => worker.url === url)
    assert.ok(found, `/workers lists ${url}`)
    return found
  }

  /**
   * Resolves once the index holds everything that `engines` have published by now; rejects when it does not.
   */
  async caughtUp(engines: readonly EngineHandle[], msMax = SETTLE_MS_MAX): Promise<void> {
    // An engine publishes what a request did behind its answer: so it is looked at until it has nothing more
    // to say.
    for (let wanted = await publishedBy(engines), before = ''; JSON.stringify(wanted) !== before; ) {
      before = JSON.stringify(wanted)
      await this.#hasSeen(wanted, msMax)
      wanted = await publishedBy(engines)
    }
  }

  async #hasSeen(wanted: Readonly<Record<string, readonly number[]>>, msMax: number): Promise<void> {
    let seen: unknown
    const isReached = (worker: WorkerView): boolean =>
      worker.worker_keys.every(key => {
        const last = wanted[worker.url]?.[key.dp_rank]
        return last === undefined || (key.events?.last_sequence ?? -1) >= last
      })
    await until(
      'the index has seen the last event of every engine',
      async () => {
        const workers = await this.workers()
        seen = workers.map(({ worker_keys }) => worker_keys.map(key => key.events?.last_sequence))
        return workers.filter(({ url }) => url in wanted).every(isReached) ? true : undefined
      },
      { msMax, seen: () => ({ wanted, seen }) },
    )
    // The listener had passed the batch on when it said so; this question stands behind it in the indexer's
    // mailbox.
    await this.workers()
  }

  /** Resolves once no worker key carries any load. */
  async drained(msMax = SETTLE_MS_MAX): Promise<void> {
    let seen: unknown
    await until(
      'every booking is freed',
      async () => {
        const loads = (await this.workers()).flatMap(({ worker_keys }) => worker_keys.map(key => key.load))
        seen = loads
        const isFree = loads.every(
          load => load.active_blocks === 0 && load.prefill_tokens === 0 && load.requests === 0,
        )
        return isFree ? true : undefined
      },
      { msMax, seen: () => seen },
    )
  }

  /** Resolves once every worker key has this trust. */
  async trusted(trust = 'exact', msMax = SETTLE_MS_MAX): Promise<void> {
    let seen: unknown
    await until(
      `every worker key is trusted: ${trust}`,
      async () => {
        const keys = (await this.workers()).flatMap(({ worker_keys }) => worker_keys)
        seen = keys.map(({ worker, trust, trust_reason }) => ({ worker, trust, trust_reason }))
        return keys.every(key => key.trust === trust) ? true : undefined
      },
      { msMax, seen: () => seen },
    )
  }

  /** The engine hashes that the index holds for a worker key, with their parents: 'hash<parent', sorted. */
  async indexedBlocks(): Promise<ReadonlyMap<string, readonly string[]>> {
    const answer = await this.send('/dump')
    assert.equal(answer.status, 200, answer.text)
    const dump = answer.json as Record<
      string,
      { blocks: { block_hash: string; parent_block_hash: string | null }[] }
    >
    return new Map(
      Object.entries(dump).map(([key, { blocks }]) => [
        key,
        blocks.map(block => `${block.block_hash}<${block.parent_block_hash}`).sort(),
      ]),
    )
  }
}

/** The last sequence of each rank, by the URL of its engine. */
async function publishedBy(engines: readonly EngineHandle[]): Promise<Record<string, readonly number[]>> {
  const last: Record<string, readonly number[]> = {}
  for (const { url, state } of engines) last[url] = (await state()).ranks.map(rank => rank.nextSequence - 1)
  return last
}

/**
 * Throws unless the index holds, for every rank of every engine, exactly the blocks of its cache, except
 * blocks whose copies leave that open (index-difference.ts). Returns how many blocks are cached.
 */
export async function assertIndexEqualsCaches(
  router: RouterClient,
  engines: readonly EngineHandle[],
): Promise<number> {
  const indexed = await router.indexedBlocks()
  let blockCount = 0
  for (const { url, state } of engines) {
    const worker = await router.worker(url)
    for (const rank of (await state(true)).ranks) {
      const key = worker.worker_keys.find(({ dp_rank }) => dp_rank === rank.rank)
      assert.ok(key, `${url} has rank ${rank.rank}`)
      const difference = indexDifference(indexed.get(key.worker) ?? [], rank.blocks!)
      if (difference !== undefined) assert.fail(`index of ${key.worker}: ${difference}`)
      blockCount += rank.blocks!.length
    }
  }
  return blockCount
}

/**
 * Waits until every key is trusted as exact and everything published has been seen, and throws unless the
 * index then is that of the caches, and all keys have been exact since. If one lost its trust on the way (a
 * stream that went is noticed when it likes), this is done once more. Returns how many blocks are cached.
 */
export async function assertExact(router: RouterClient, engines: readonly EngineHandle[]): Promise<number> {
  for (let losses = 0; ; losses++) {
    await router.trusted()
    const since = await exactSince(router)
    await router.caughtUp(engines)
    const compared = await assertIndexEqualsCaches(router, engines).then(
      blocks => ({ blocks }),
      (difference: unknown) => ({ difference }),
    )
    const isExact = (await exactSince(router)) === since
    if ('blocks' in compared && isExact) return compared.blocks
    const cause = 'difference' in compared ? compared.difference : undefined
    if (isExact) throw cause
    if (losses === TRUST_LOSSES_MAX) throw new Error('trust was lost while the index was compared', { cause })
  }
}

/** Since when which key has been exact: equal to an earlier one if none was called anything else between. */
async function exactSince(router: RouterClient): Promise<string> {
  const keys = (await router.workers()).flatMap(({ worker_keys }) => worker_keys)
  return JSON.stringify(keys.map(({ worker, trust, trust_since }) => [worker, trust, trust_since]))
}

export interface Fleet extends RouterClient {
  readonly router: RunningRouter
  readonly engines: readonly ThreadEngine[]
  engineOf(worker: string | undefined): ThreadEngine
  stop(): Promise<void>
}

export interface FleetOptions {
  /** Settings on top of `QUICK`, one per engine. */
  readonly engines: readonly Partial<EngineSettings>[]
  /** Options of `homing router`, as typed. */
  readonly router?: readonly string[]
  /** Workers besides the engines, as `--worker` takes them. */
  readonly otherWorkers?: readonly string[]
  /** Parameters of each worker URL: '?events=5557'. */
  readonly workerQuery?: (description: EngineDescription, position: number) => string
  /** Trust that is awaited before the fleet is handed out; undefined: none is. */
  readonly trust?: string | undefined
}

class ThreadFleet extends RouterClient implements Fleet {
  readonly router: RunningRouter
  readonly engines: readonly ThreadEngine[]
  readonly #stopEngines: () => Promise<void>

  constructor(router: RunningRouter, engines: readonly ThreadEngine[], stopEngines: () => Promise<void>) {
    super(router.url)
    this.router = router
    this.engines = engines
    this.#stopEngines = stopEngines
  }

  /** The engine that a worker key, or the header x-homing-worker, names. */
  engineOf(worker: string | undefined): ThreadEngine {
    const found = this.engines.find(({ url }) => worker?.includes(url.slice('http://'.length)) === true)
    assert.ok(found, `${worker} is an engine of this fleet`)
    return found
  }

  async stop(): Promise<void> {
    await this.router.stop(0)
    await this.#stopEngines()
  }
}

/**
 * Engines only; their router is the caller's. They share so many threads: each costs a quarter of a second of
 * CPU to start, and one to replace them as much; none of them dies here.
 */
export async function startEngines(
  settings: readonly Partial<EngineSettings>[],
  threads = 1,
): Promise<{ readonly engines: readonly ThreadEngine[]; stop(): Promise<void> }> {
  const pools = { engines: { count: threads } }
  const system = await createActorSystem({ name: 'test-engines', logLevel: 'warn', pools, warmSpare: false })
  const placeOf = (number: number): ThreadPlacement => ({ pool: 'engines', key: number })
  try {
    const refs = settings.map((one, number) =>
      system.spawn(engine, { name: `engine-${number}`, thread: placeOf(number), args: { ...QUICK, ...one } }),
    )
    const engines = await Promise.all(refs.map(threadEngine))
    return { engines, stop: async () => void (await system.shutdown({ deadline: STOP_MS_MAX })) }
  } catch (thrown) {
    await system.shutdown({ deadline: STOP_MS_MAX })
    throw thrown
  }
}

/** Starts engines, then a router over them, and waits until it trusts them. */
export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const { engines, stop } = await startEngines(options.engines)
  try {
    const urls = engines.map(
      ({ url, description }, position) => url + (options.workerQuery?.(description, position) ?? ''),
    )
    const router = await startTestRouter([...urls, ...(options.otherWorkers ?? [])], options.router ?? [])
    const fleet = new ThreadFleet(router, engines, stop)
    try {
      const trust = 'trust' in options ? options.trust : 'exact'
      if (trust !== undefined) await fleet.trusted(trust)
    } catch (thrown) {
      await router.stop(0)
      throw thrown
    }
    return fleet
  } catch (thrown) {
    await stop()
    throw thrown
  }
}

/** Runs `use` over a fleet that ends with it. */
export async function withFleet<T>(options: FleetOptions, use: (fleet: Fleet) => Promise<T>): Promise<T> {
  const fleet = await startFleet(options)
  try {
    return await use(fleet)
  } finally {
    await fleet.stop()
  }
}

/**
 * A router in this process, quiet, on a free port of this machine. Unless told to, it does not send requests
 * against its policy to explore: tests that check where requests go need that.
 */
export function startTestRouter(urls: readonly string[], argv: readonly string[]): Promise<RunningRouter> {
  const given = [
    ...['--host', '127.0.0.1', '--port', '0', '--tokenizer-threads', '1'],
    // Each costs a quarter of a second of CPU, and one worker has one at most.
    ...['--router-event-threads', urls.length > 1 ? '2' : '1'],
    // No engine is taken to be down because the machine is busy.
    ...['--log-level', 'error', '--probe-timeout', '10s'],
    ...urls.flatMap(url => ['--worker', url]),
    ...argv,
  ]
  const { settings } = parseSettings(routerCommand, given, {})
  const { routerMode, routerPolicy, selectionModule } = settings
  const isGuarded = routerMode === 'kv' && routerPolicy === 'auto' && selectionModule === undefined
  const isQuiet = isGuarded && !argv.includes('--router-guard-share')
  return startRouter(isQuiet ? { ...settings, guardShare: 0 } : settings)
}

async function threadEngine(ref: ActorRef<EngineMessage>): Promise<ThreadEngine> {
  const deadline = { timeout: START_MS_MAX }
  const description = await ref.ask({ type: 'describe' }, deadline)
  return {
    url: description.url,
    description,
    state: (hasBlocks = false) => ref.ask({ type: 'state', hasBlocks }, deadline),
    async faults(body) {
      const refused = await ref.ask({ type: 'faults', body }, deadline)
      assert.equal(refused, undefined)
    },
    restart: async (downMs = 0) => void (await ref.ask({ type: 'restart', downMs }, deadline)),
  }
}

/** `homing <command>` as its own process. */
export interface TestProcess extends EngineHandle {
  readonly pid: number
  /** Lines of standard output and of standard error so far. */
  readonly outputLines: readonly string[]
  readonly errorLines: readonly string[]
  /** Resolves when it has ended and all of its lines are there, with its exit code or signal. */
  readonly ended: Promise<number | NodeJS.Signals | null>
  kill(signal: NodeJS.Signals): void
  /**
   * Lets the actor of its main thread with this name fail, and resolves when it has; only of a process that
   * `canFail`.
   */
  fail(actor: string): Promise<void>
  /** What the objects on its threads take; only of a process that `tellsHeap`. */
  heap(): Promise<HeapReport>
}

export interface ProcessOptions {
  /** Its actors can be made to fail: see failing-actors.ts. */
  readonly canFail?: boolean
  /** It can be asked for its heap: see heap-probe.ts. */
  readonly tellsHeap?: boolean
  /** Its wall clock is so far ahead; negative: behind. See shifted-clock.ts. */
  readonly clockShiftMs?: number
}

const processes = new Set<ChildProcess>()
process.on('exit', () => {
  for (const child of processes) child.kill('SIGKILL')
})

/** Resolves when it has said on standard output that it is ready, with the URL that it named. */
export async function startProcess(
  command: string,
  argv: readonly string[],
  { canFail = false, tellsHeap = false, clockShiftMs = 0 }: ProcessOptions = {},
): Promise<TestProcess> {
  const preload = [
    ...(clockShiftMs === 0 ? [] : ['--import', `${SHIFTED_CLOCK}?ms=${clockShiftMs}`]),
    ...(canFail ? ['--import', FAILING_ACTORS] : []),
    ...(tellsHeap ? ['--import', HEAP_PROBE] : []),
  ]
  const child = spawn(process.execPath, [...preload, MAIN, command, ...argv], {
    stdio: ['ignore', 'pipe', 'pipe', canFail || tellsHeap ? 'ipc' : 'ignore'],
  })
  const { stdout, stderr } = child
  if (stdout === null || stderr === null) throw new Error('the output of a process must be piped')
  processes.add(child)
  const outputLines: string[] = []
  const errorLines: string[] = []
  createInterface({ input: stderr }).on('line', line => errorLines.push(line))
  const ended = new Promise<number | NodeJS.Signals | null>(resolve => {
    child.once('exit', () => processes.delete(child))
    // On 'exit' its last lines may still be in the pipes.
    child.once('close', (code, signal) => resolve(code ?? signal))
  })
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${command} is not ready in time`)), START_MS_MAX)
    createInterface({ input: stdout }).on('line', line => {
      outputLines.push(line)
      const match = / ready on ((?:https?|nats):\S+)/.exec(line)
      if (match === null) return
      clearTimeout(timer)
      resolve(match[1]!)
    })
    void ended.then(how => reject(new Error(`${command} ended (${how}): ${errorLines.join('\n')}`)))
  })
  return {
    pid: child.pid!,
    url,
    outputLines,
    errorLines,
    ended,
    kill: signal => void child.kill(signal),
    async fail(actor) {
      child.send(actor)
      for await (const [failed] of on(child, 'message', { close: ['exit'] })) if (failed === actor) return
    },
    async heap() {
      const [[report]] = await Promise.all([
        once(child, 'message'),
        new Promise(resolve => child.send('heap', resolve)),
      ])
      return report as HeapReport
    },
    async state(hasBlocks = false) {
      const answer = await send(url, `/admin/state${hasBlocks ? '?blocks=1' : ''}`)
      return answer.json as EngineState
    },
  }
}

function singleHeaders(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : value]),
  )
}

/** The first ones of `count` pairs of consecutive ports that are free now. */
export async function freePortPairs(count: number): Promise<readonly number[]> {
  const ports: number[] = []
  while (ports.length < count) {
    const [first, second] = await freePorts(2)
    if (second === first! + 1) ports.push(first!)
  }
  return ports
}

/** Options for replica sync between `count` routers: each gets two consecutive ports that are free now. */
export async function freeReplicaPorts(count: number): Promise<(i: number) => readonly string[]> {
  const ports = await freePortPairs(count)
  return i => [
    ...['--router-replica-endpoint', `tcp://127.0.0.1:${ports[i]}`],
    ...ports
      .filter((_, other) => other !== i)
      .flatMap(port => ['--router-replica-peer', `tcp://127.0.0.1:${port}`]),
  ]
}
