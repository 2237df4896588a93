/**
 * A router and its engines in a simulation: guardian and everything that it spawns on virtual threads,
 * simulated engines and a client around it, a network in memory between them, one clock.
 */

import type { ActorRef } from '@homing/actor'
import { createSimulation, type Simulation } from '@homing/actor/simulation'
import { processMetrics } from '@homing/actors/console'
import { logFiles } from '@homing/actors/decision-log'
import { type GuardianArgs, type GuardianMessage, guardian, type RouterParts } from '@homing/actors/guardian'
import { type CheckpointStore, checkpointFiles } from '@homing/actors/listener'
import { type LineFiles, type Log, seededRandom, silentLog } from '@homing/base'
import { parseSettings, type RouterSettings, routerCommand } from '@homing/config'
import { byteTokenizer, Engine, type EngineSettings } from '@homing/engine'
import { parseWorkerSpec } from '@homing/fleet'
import { Metrics } from '@homing/metrics'
import type { PolicyFile } from '@homing/queue'
import {
  type Frames,
  type HttpReply,
  type HttpRequest,
  type HttpTransport,
  MemoryNetwork,
  type MessageTransport,
  type Transport,
  transportCapability,
} from '@homing/transport'
import { threadTransport } from './thread-transport.ts'

export const MODEL = 'homing-sim'
export const BLOCK_SIZE_TOKENS = 16
export const EVENT_THREADS = 2
export const ASK_MS_MAX = 5000
const URL = 'http://127.0.0.1:8000'
const LATENCY_MS = 0.2
const READY_MS_MAX = 60_000
const CHECKPOINT_INTERVAL_MS = 1000
export const DECISION_LOG = '/decisions.jsonl'

const tokenizer = byteTokenizer()

const ARGUMENTS: Readonly<Record<string, string>> = {
  host: '127.0.0.1',
  port: '8000',
  worker: 'http://127.0.0.1:8001',
  'router-event-threads': String(EVENT_THREADS),
  'tokenizer-threads': '1',
  'index-bytes': '1MiB',
  'worker-slots-max': '8',
  'max-open-requests': '64',
  'probe-interval': '500ms',
  'probe-timeout': '200ms',
  'replay-timeout': '300ms',
  'silence-timeout': '3s',
  'engine-metrics-interval': '0s',
  'request-timeout': '10s',
  'log-level': 'silent',
}

const base: RouterSettings = parseSettings(
  routerCommand,
  Object.entries(ARGUMENTS).flatMap(([name, value]) => [`--${name}`, value]),
  {},
).settings

export interface FleetOptions {
  readonly seed: number
  /** One engine each; ports and what makes a simulation small are filled in. */
  readonly engines: readonly Partial<EngineSettings>[]
  readonly settings?: Partial<RouterSettings>
  /** Added to the URL of a worker, such as `?events=7000`. */
  readonly query?: string
  /** Policy classes; default: one for all. */
  readonly policyClasses?: PolicyFile
  /** Workers as `--worker` takes them; default: every engine, with `query`. */
  readonly workers?: (urls: readonly string[]) => readonly string[]
  /** Where the router keeps checkpoints; default: it keeps none. */
  readonly checkpoints?: CheckpointStore
  /** Where the router writes its decision log, as DECISION_LOG; default: it writes none. */
  readonly decisionFiles?: LineFiles
  /** Called for a batch of an event socket of the router, and for the end of its connection. */
  readonly onEvents?: (batch: Frames | 'disconnected') => void
  /** Called when a request of the router to an engine has failed. */
  readonly onUnreachable?: () => void
  /** For what stands between engines and router. */
  readonly beforeRouter?: (fleet: SimulatedFleet) => Promise<void>
  /** Tells each line of the logs of the router. */
  readonly tell?: (line: string) => void
}

export interface FleetEngine {
  readonly engine: Engine
  readonly url: string
  /** Of its first rank; '' when it publishes none. */
  readonly events: string
}

/** One worker of `GET /workers`, as far as tests look at it. */
export interface WorkerView {
  readonly url: string
  readonly instance_id: number
  readonly state: string
  readonly state_reason: string
  readonly worker_keys: readonly {
    readonly worker: string
    readonly trust: string
    readonly trust_reason: string
    readonly audit: { readonly state: string; readonly requests: number; readonly over_predictions: number }
    readonly load: {
      readonly active_blocks: number
      readonly prefill_tokens: number
      readonly requests: number
    }
    readonly events: {
      readonly state: string | null
      readonly epoch: number | null
      readonly gaps: number | null
    } | null
  }[]
}

/** `GET /dump`, by worker key. */
export type Dump = Readonly<
  Record<
    string,
    { readonly blocks: readonly { readonly block_hash: string; readonly parent_block_hash: string | null }[] }
  >
>

export class SimulatedFleet {
  readonly simulation: Simulation
  readonly network: MemoryNetwork
  readonly engines: readonly FleetEngine[]
  readonly #client: Transport
  readonly #args: GuardianArgs
  #guardian!: ActorRef<GuardianMessage>

  private constructor(
    simulation: Simulation,
    network: MemoryNetwork,
    engines: readonly FleetEngine[],
    options: FleetOptions,
  ) {
    const { settings, query = '', workers = urls => urls.map(url => `${url}${query}`) } = options
    this.simulation = simulation
    this.network = network
    this.engines = engines
    this.#client = network.transport()
    const specs = workers(engines.map(({ url }) => url)).map(parseWorkerSpec)
    const checkpoints =
      options.checkpoints === undefined
        ? {}
        : { checkpointDirectory: '/checkpoints', checkpointIntervalMs: CHECKPOINT_INTERVAL_MS }
    const decisions = options.decisionFiles === undefined ? {} : { decisionLogFile: DECISION_LOG }
    const { policyClasses } = options
    this.#args = {
      settings: { ...base, ...checkpoints, ...decisions, ...settings },
      inputs: { specs, policyClasses, loadedTokenizers: new Map() },
    }
  }

  static async start(options: FleetOptions): Promise<SimulatedFleet> {
    const { seed, tell = () => {} } = options
    const { gatewayThreads = 1 } = options.settings ?? {}
    let network: MemoryNetwork | undefined
    const clockOf: { simulation?: Simulation } = {}
    const simulation = await createSimulation({
      seed,
      pools: {
        events: { count: EVENT_THREADS },
        gateways: { count: gatewayThreads > 1 ? gatewayThreads : 0 },
      },
      hungAfter: '500ms',
      log: thread => logOf(thread, clockOf, tell),
      provide: thread => {
        // Main comes first, and lives as long as the simulation.
        network ??= new MemoryNetwork({ clock: thread.clock, latencyMs: LATENCY_MS })
        return [
          [transportCapability, watched(threadTransport(network, thread), options)],
          ...(options.checkpoints === undefined ? [] : [[checkpointFiles, options.checkpoints] as const]),
          ...(options.decisionFiles === undefined ? [] : [[logFiles, options.decisionFiles] as const]),
          [processMetrics, new Metrics()],
        ]
      },
    })
    clockOf.simulation = simulation
    const engines: FleetEngine[] = []
    for (const [number, settings] of options.engines.entries()) {
      const engine = await simulation.settle(
        Engine.start({
          settings: {
            port: 8001 + number,
            eventsPort: 5557 + number,
            replayPort: 6557 + number,
            blockSizeTokens: BLOCK_SIZE_TOKENS,
            seed: 1,
            speed: 4,
            ...settings,
          },
          transport: network!.transport(),
          tokenizer,
          clock: simulation.clock,
          random: seededRandom(seed * 31 + number),
          log: silentLog,
        }),
      )
      const { url, ranks } = engine.describe()
      engines.push({ engine, url, events: ranks[0]?.events ?? '' })
    }
    const fleet = new SimulatedFleet(simulation, network!, engines, options)
    await options.beforeRouter?.(fleet)
    await fleet.startRouter()
    return fleet
  }

  async startRouter(): Promise<void> {
    this.#guardian = await this.#startGuardian('guardian', this.#args)
  }

  /** Another router over the same engines, which knows nothing of the first; its origin. */
  async startSecondRouter(): Promise<string> {
    const { settings, inputs } = this.#args
    const port = settings.port + 100
    await this.#startGuardian('second-guardian', { settings: { ...settings, port }, inputs })
    return `http://127.0.0.1:${port}`
  }

  async #startGuardian(name: string, args: GuardianArgs): Promise<ActorRef<GuardianMessage>> {
    const ref = this.simulation.spawn(guardian, { name, args })
    const ready = await this.simulation.settle(ref.ask({ type: 'whenReady' }, { timeout: READY_MS_MAX }), {
      within: READY_MS_MAX,
    })
    if ('code' in ready) throw new Error(`cannot start the router: ${ready.message}`)
    return ref
  }

  /** Ends the router, with everything that it knew; its engines go on. */
  async stopRouter(): Promise<void> {
    await this.simulation.settle(this.simulation.stop(this.#guardian), { within: READY_MS_MAX })
  }

  /** Lets open requests end, and waits until everything that must be kept is written. */
  async drainRouter(graceMs: number): Promise<number> {
    return this.simulation.settle(this.beginDrain(graceMs), { within: READY_MS_MAX })
  }

  /** The same while the caller runs the simulation. Resolves with the number of requests that were cut. */
  beginDrain(graceMs: number): Promise<number> {
    return this.#guardian.ask({ type: 'drain', graceMs }, { timeout: READY_MS_MAX })
  }

  /** What a program in the router's process talks to. */
  parts(): Promise<RouterParts> {
    return this.simulation.settle(this.#guardian.ask({ type: 'parts' }, { timeout: ASK_MS_MAX }))
  }

  /** To an engine, or where no origin is given to the router. */
  send(
    request: Partial<HttpRequest>,
    body: unknown,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<HttpReply> {
    const bytes = body === undefined ? {} : { body: Buffer.from(JSON.stringify(body)) }
    const headers = { 'content-type': 'application/json', ...request.headers }
    return this.#client.http.fetch(
      { origin: URL, method: 'POST', path: '/v1/completions', ...request, headers, ...bytes },
      { timeoutMs, ...(signal === undefined ? {} : { signal }) },
    )
  }

  /** Sends, and runs until the answer is there. */
  async ask(request: Partial<HttpRequest>, body?: unknown): Promise<HttpReply> {
    return this.simulation.settle(this.send(request, body, ASK_MS_MAX), { within: ASK_MS_MAX * 2 })
  }

  /** What a router answers to GET; throws when that is not 200. */
  async view(path: string, origin = URL): Promise<unknown> {
    const reply = await this.ask({ method: 'GET', path, origin })
    if (reply.status !== 200)
      throw new Error(`${path} answered ${reply.status}: ${Buffer.from(reply.body).toString()}`)
    return JSON.parse(Buffer.from(reply.body).toString())
  }

  async workers(origin?: string): Promise<readonly WorkerView[]> {
    return ((await this.view('/workers', origin)) as { workers: readonly WorkerView[] }).workers
  }

  async dump(): Promise<Dump> {
    return (await this.view('/dump')) as Dump
  }

  /** Names of actors that did not stop in time. */
  async stop(): Promise<readonly string[]> {
    const { simulation } = this
    const report = await simulation.settle(simulation.shutdown({ deadline: '10s' }), { within: '30s' })
    for (const { engine } of this.engines) await simulation.settle(engine.close(), { within: '5s' })
    return report.slow
  }
}

/** The router, as observers see it. */
function watched(transport: Transport, { onEvents, onUnreachable }: FleetOptions): Transport {
  const { http, messages } = transport
  return {
    ...transport,
    http: onUnreachable === undefined ? http : watchedHttp(http, onUnreachable),
    messages: onEvents === undefined ? messages : watchedMessages(messages, onEvents),
  }
}

function watchedHttp(http: HttpTransport, onUnreachable: () => void): HttpTransport {
  return {
    ...http,
    call: (request, handler) =>
      http.call(request, {
        head: (status, headers) => handler.head(status, headers),
        data: bytes => handler.data(bytes),
        end: how => handler.end(how),
        failed(error, info) {
          onUnreachable()
          handler.failed(error, info)
        },
      }),
    async fetch(request, options) {
      try {
        return await http.fetch(request, options)
      } catch (thrown) {
        onUnreachable()
        throw thrown
      }
    },
  }
}

function watchedMessages(
  messages: MessageTransport,
  onEvents: NonNullable<FleetOptions['onEvents']>,
): MessageTransport {
  return {
    ...messages,
    subscribe: (options, handler) =>
      messages.subscribe(options, {
        message(frames, number) {
          onEvents(frames)
          handler.message(frames, number)
        },
        connected: (path, life) => handler.connected(path, life),
        disconnected() {
          onEvents('disconnected')
          handler.disconnected()
        },
      }),
  }
}

/** Log lines from level info, for people who look at one seed. */
function logOf(
  thread: string,
  { simulation }: { simulation?: Simulation },
  tell: (line: string) => void,
): Log {
  const line = (level: string) => (fields: object, text: string) => {
    const nowMs = simulation?.clock.nowMs() ?? 0
    tell(`${nowMs.toFixed(3)} ${thread} ${level} ${text} ${JSON.stringify(fields)}`)
  }
  const log: Log = {
    trace() {},
    debug() {},
    info: line('info'),
    warn: line('warn'),
    error: line('error'),
    child: () => log,
    isLevelEnabled: level => level !== 'trace' && level !== 'debug',
  }
  return log
}
