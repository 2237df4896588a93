/**
 * A simulated engine: OpenAI HTTP as vLLM serves it, KV events over ZeroMQ, and routes for faults.
 *
 * Life     An *epoch* begins at start and at each restart: ranks with empty caches, other hashes, sequence 0,
 *          on the ports of the first one. Before it begins there are no ranks, and requests are cut.
 * Owns     the epoch, the HTTP listener, and the parts that own the rest:
 *            engine-routes        what HTTP answers
 *            engine-admin         the routes under /admin
 *            engine-ranks         ranks, caches, event sockets
 *            request-lives        completions under way, their log
 *            engine-fault-switch  faults of requests, and those that hang
 * Fails    a port that stays taken fails start or restart; after the latter the engine stays down.
 */

import { type Clock, type Log, type Random, toErrorRecord } from '@homing/base'
import { tcpLimitsOf } from '@homing/config'
import type {
  HttpExchange,
  HttpListener,
  HttpTransport,
  ServingListener,
  TlsIdentity,
  Transport,
} from '@homing/transport'
import { RefusedRequest } from './completion-request.ts'
import { administer } from './engine-admin.ts'
import { EngineFaultSwitch } from './engine-fault-switch.ts'
import { NO_ENGINE_FAULTS, readFaultRequest } from './engine-faults.ts'
import { readEngineKey, readEngineTls } from './engine-files.ts'
import { EngineRanks } from './engine-ranks.ts'
import { EngineRoutes } from './engine-routes.ts'
import { type EngineSettings, engineSettings, type ResolvedEngineSettings } from './engine-settings.ts'
import type { EngineDescription, EngineState } from './engine-state.ts'
import { type EngineTokenizer, outputVocabulary, TokenTexts } from './engine-tokenizer.ts'
import { NO_EVENT_FAULTS } from './event-publisher.ts'
import { Handovers } from './handovers.ts'
import { sendBytes } from './http-answer.ts'
import { RequestLives } from './request-lives.ts'

export type {
  EngineDescription,
  EngineRankState,
  EngineRequestRecord,
  EngineState,
  RankEndpoints,
} from './engine-state.ts'

export interface EngineOptions {
  readonly settings: Partial<EngineSettings>
  readonly transport: Transport
  readonly tokenizer: EngineTokenizer
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  /** Called after `POST /admin/kill` closed everything. */
  readonly onKill?: () => void
}

export class Engine {
  /** The ids that this engine may emit, for `expectedOutput`. */
  readonly vocabulary: Int32Array
  readonly #settings: ResolvedEngineSettings
  readonly #tls: TlsIdentity | undefined
  readonly #clock: Clock
  readonly #random: Random
  readonly #log: Log
  readonly #onKill: (() => void) | undefined
  readonly #faults = new EngineFaultSwitch()
  readonly #ranks: EngineRanks
  readonly #lives: RequestLives
  readonly #handovers: Handovers
  readonly #routes: EngineRoutes
  #listener: HttpListener | undefined
  /** Takes requests over TCP, too. */
  #served: ServingListener | undefined
  #requestsEndpoint: string | undefined
  #epoch = 0
  #startSeconds = 0
  /** Between the end of a life and the begin of the next. */
  #isRestarting = false
  /** Ends the wait for the next life. */
  #endDown: (() => void) | undefined
  /** Settles when the restarts so far have. */
  #restarts: Promise<unknown> = Promise.resolve()
  #isClosed = false

  private constructor(options: EngineOptions) {
    const { transport, tokenizer, clock, random } = options
    const given = engineSettings(options.settings)
    const settings = { ...given, apiKey: readEngineKey(given) }
    this.#tls = readEngineTls(given)
    this.vocabulary = outputVocabulary(tokenizer)
    this.#settings = settings
    this.#clock = clock
    this.#random = random
    this.#log = options.log
    this.#onKill = options.onKill
    this.#ranks = new EngineRanks({
      settings,
      messages: transport.messages,
      clock,
      vocabulary: this.vocabulary,
    })
    this.#handovers = new Handovers(clock, settings.handoverMsMax)
    this.#lives = new RequestLives({
      clock,
      random,
      texts: new TokenTexts(tokenizer),
      seed: settings.seed,
      form: settings.answerForm,
      handovers: this.#handovers,
      address: () => ({ host: settings.host, port: this.#listener?.port ?? 0 }),
      role: settings.role,
      fingerprint: `vllm-${settings.version}-${settings.seed.toString(16).padStart(8, '0')}`,
    })
    this.#routes = new EngineRoutes({
      settings,
      tokenizer,
      vocabulary: this.vocabulary,
      faults: this.#faults,
      ranks: this.#ranks,
      lives: this.#lives,
      handovers: this.#handovers,
      clock,
      http: transport.http,
      port: () => this.#listener?.port ?? 0,
      life: () => ({
        epoch: this.#epoch,
        startSeconds: this.#startSeconds,
        isDown: this.#isClosed || this.#isRestarting,
      }),
    })
  }

  /**
   * Binds all sockets. Throws InvalidEngineSettingsError, and rejects as the transport does when a port is
   * taken.
   */
  static async start(options: EngineOptions): Promise<Engine> {
    const engine = new Engine(options)
    try {
      await engine.#begin()
      const { host, port } = engine.#settings
      engine.#listener = await options.transport.http.listen({ host, port, tls: engine.#tls }, exchange => {
        void engine.#serve(exchange)
      })
      if (engine.#settings.requestPlane === 'tcp') await engine.#takeRequests(options.transport.http)
    } catch (error) {
      await engine.close()
      throw error
    }
    return engine
  }

  describe(): EngineDescription {
    const { host, model, blockSizeTokens, blocks, contextTokensMax } = this.#settings
    const port = this.#listener?.port ?? 0
    const name = host.includes(':') ? `[${host}]` : host
    return {
      url: `${this.#tls === undefined ? 'http' : 'https'}://${name}:${port}`,
      host,
      port,
      model,
      blockSizeTokens,
      blocks,
      contextTokensMax,
      requests: this.#requestsEndpoint,
      ranks: this.#ranks.endpoints,
    }
  }

  state(options: { readonly hasBlocks?: boolean } = {}): EngineState {
    return {
      epoch: this.#epoch,
      faults: this.#faults.current,
      ranks: this.#ranks.states(options.hasBlocks === true),
      requests: this.#lives.records,
      requestsTaken: this.#lives.requestsTaken,
      handovers: this.#handovers.count,
    }
  }

  /** Changes faults as a body of /admin/faults does. Throws RefusedRequest. */
  setFaults(body: Readonly<Record<string, unknown>>): void {
    const { engine, events, rank } = readFaultRequest(body, this.#faults.current)
    this.#ranks.applyFaults(engine)
    if (events !== undefined) this.#ranks.applyEventFaults(events, rank)
    this.#faults.set(engine)
  }

  /** Ends all faults. */
  clearFaults(): void {
    this.setFaults({ ...NO_ENGINE_FAULTS, events: NO_EVENT_FAULTS })
  }

  /** Requests that have no whole answer yet: those that live, hang, or are read. */
  get openRequests(): number {
    return this.#routes.openCount + this.#lives.liveCount
  }

  /**
   * A new life: requests are cut, caches are empty, sequences begin at 0, on the same ports. Resolves with
   * its epoch when it can be used, or with the last one when the engine is closed. Restarts at the same time
   * follow each other.
   */
  restart(downMs = 0): Promise<number> {
    const restarted = this.#restarts.then(() => this.#restartNow(downMs))
    this.#restarts = restarted.catch(() => undefined)
    return restarted
  }

  /**
   * A new life that shows only in its events: requests are cut and caches are empty, in the same process,
   * behind the same sockets. Its sequences begin at `firstSequence`. Does nothing while the engine is down.
   */
  restartInPlace(firstSequence = 0): void {
    if (this.#isClosed || this.#isRestarting) return
    this.#epoch++
    this.#cutAll()
    this.#ranks.beginAnew(this.#newHashSeed(), firstSequence, () => this.#faults.current)
  }

  /** Closes, and notifies the owner. */
  async kill(): Promise<void> {
    await this.close()
    this.#onKill?.()
  }

  /** Cuts every request and closes every socket. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#cutAll()
    this.#ranks.close()
    this.#endDown?.()
    await Promise.all([this.#listener?.close(0), this.#served?.close(0)])
  }

  async #takeRequests(http: Pick<HttpTransport, 'serve'>): Promise<void> {
    const { host, requestPort } = this.#settings
    const name = host.includes(':') ? `[${host}]` : host
    this.#served = http.serve(
      { endpoint: `tcp://${name}:${requestPort}`, tcp: tcpLimitsOf(this.#settings) },
      exchange => void this.#serve(exchange),
    )
    this.#requestsEndpoint = await this.#served.listening
  }

  async #restartNow(downMs: number): Promise<number> {
    if (this.#isClosed) return this.#epoch
    // Stays so when the next life cannot begin.
    this.#isRestarting = true
    this.#cutAll()
    this.#ranks.drop()
    if (downMs > 0) await this.#wait(downMs)
    if (this.#isClosed) return this.#epoch
    await this.#begin()
    this.#isRestarting = false
    return this.#epoch
  }

  #wait(downMs: number): Promise<void> {
    return new Promise(resolve => {
      const timer = this.#clock.after(downMs, resolve)
      this.#endDown = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  #cutAll(): void {
    this.#lives.cutAll()
    this.#handovers.clear()
    this.#routes.cutAll()
  }

  /** Begins an epoch. */
  async #begin(): Promise<void> {
    this.#epoch++
    this.#startSeconds = this.#clock.wallMs() / 1000
    await this.#ranks.open(this.#newHashSeed(), () => this.#faults.current)
    if (this.#isClosed) this.#ranks.drop()
  }

  #newHashSeed(): number {
    const { hashSeed } = this.#settings
    return hashSeed >= 0 ? hashSeed : this.#random.below(2 ** 31)
  }

  async #serve(exchange: HttpExchange): Promise<void> {
    try {
      if (exchange.path.startsWith('/admin/')) await administer(this, exchange)
      else await this.#routes.serve(exchange)
    } catch (error) {
      if (exchange.isClosed) return
      const record = toErrorRecord(error)
      if (error instanceof RefusedRequest) {
        sendBytes(exchange, error.status, error.body())
      } else if (record.code === 'HOMING_TRANSPORT_BODY_TOO_LARGE') {
        sendBytes(exchange, 413, new RefusedRequest(413, 'BadRequestError', record.message).body())
      } else {
        this.#log.error({ error: record, path: exchange.path }, 'engine request failed')
        sendBytes(exchange, 500, new RefusedRequest(500, 'InternalServerError', record.message).body())
      }
    }
  }
}
