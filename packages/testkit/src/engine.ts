/**
 * A simulated engine: OpenAI HTTP as vLLM serves it, KV events over ZeroMQ, and a door for faults.
 *
 *   GET  /health /ping /version /load /metrics /v1/models /kv_event_sources     POST /tokenize /detokenize
 *   POST /v1/chat/completions /v1/completions /reset_prefix_cache
 *   GET  /server_info                          in the SGLang forms, instead of /version and /kv_event_sources
 *
 *   GET  /admin/state[?blocks=1]               what it published, holds, runs and answered
 *   GET, POST, DELETE /admin/faults            see engine-faults.ts; DELETE ends all of them
 *   POST /admin/restart {downMs?}              a new life: empty cache, other hashes, sequence 0, same ports; requests
 *                                              under way are cut; for downMs every other connection is cut too
 *   POST /admin/kill                           everything is cut and closed; the owner of the engine is told
 *
 * Life     An *epoch* begins at start and at each restart.
 * Order    Of one step: its events are published before its tokens are written.
 * Abort    A client that leaves ends its sequences at once, and their blocks are released.
 * Bounds   The log keeps the last `LOG_MAX` requests; hung requests are `HUNG_MAX` at most, further ones are cut.
 */

import type { Clock, Random } from '@homing/clock'
import { toErrorRecord } from '@homing/errors'
import type { Log } from '@homing/log'
import type { HttpExchange, HttpListener, Transport } from '@homing/transport'
import { BlockManager, type CachedBlock } from './block-manager.ts'
import { CompletionAnswer } from './completion-answer.ts'
import {
  type CompletionContext,
  type CompletionKind,
  type CompletionRequest,
  parseObject,
  RefusedRequest,
  readCompletionRequest,
  readTokenizeRequest,
} from './completion-request.ts'
import { type EngineFaults, NO_ENGINE_FAULTS, readFaultRequest } from './engine-faults.ts'
import { metricsText } from './engine-metrics.ts'
import { EngineModel, type ModelCounts } from './engine-model.ts'
import { EngineRank } from './engine-rank.ts'
import { type EngineSettings, engineSettings, type ResolvedEngineSettings } from './engine-settings.ts'
import { type EngineTokenizer, outputVocabulary, TokenTexts } from './engine-tokenizer.ts'
import { type EventFaults, EventPublisher, NO_EVENT_FAULTS } from './event-publisher.ts'
import { timingProfile } from './timing-profile.ts'

/** Bodies up to 256 MiB are read. */
const BODY_BYTES_MAX = 268_435_456
const LOG_MAX = 10_000
const HUNG_MAX = 10_000
/** Between the last token and the cut of a request that dies on demand. */
const FLUSH_MS = 5

/** Where an engine can be reached; plain data. */
export interface EngineDescription {
  /** 'http://127.0.0.1:8001'. */
  readonly url: string
  readonly host: string
  readonly port: number
  readonly model: string
  readonly blockSizeTokens: number
  readonly blocks: number
  readonly contextTokensMax: number
  /** Empty when the engine publishes no events. */
  readonly ranks: readonly RankEndpoints[]
}

export interface RankEndpoints {
  readonly rank: number
  /** 'tcp://127.0.0.1:5557'. */
  readonly events: string
  readonly eventsPort: number
  readonly replay: string
  readonly replayPort: number
}

/** One request, for tests. */
export interface EngineRequestRecord {
  /** The id of the answer. */
  readonly id: string
  /** Header x-request-id of the request. */
  readonly requestId: string | null
  readonly model: string
  readonly rank: number
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  readonly outcome: 'running' | 'finished' | 'aborted' | 'died'
  /** Epoch it was served in. */
  readonly epoch: number
}

export interface EngineRankState extends ModelCounts {
  readonly rank: number
  /** Sequence of the next batch; equals the batches so far. */
  readonly nextSequence: number
  readonly publishedBatches: number
  readonly cachedBlocks: number
  readonly faults: EventFaults
  /** Every cached block, when asked for. */
  readonly blocks?: readonly CachedBlock[]
}

export interface EngineState {
  /** Lives so far, from 1. */
  readonly epoch: number
  readonly faults: EngineFaults
  readonly ranks: readonly EngineRankState[]
  /** The last requests, oldest first. */
  readonly requests: readonly EngineRequestRecord[]
  /** Requests ever taken. */
  readonly requestsTaken: number
}

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

interface LiveRequest {
  readonly exchange: HttpExchange
  readonly record: { -readonly [K in keyof EngineRequestRecord]: EngineRequestRecord[K] }
  readonly cut: () => void
}

export class Engine {
  readonly #settings: ResolvedEngineSettings
  readonly #transport: Transport
  readonly #tokenizer: EngineTokenizer
  readonly #vocabulary: Int32Array
  readonly #texts: TokenTexts
  readonly #clock: Clock
  readonly #random: Random
  readonly #log: Log
  readonly #onKill: (() => void) | undefined
  #listener: HttpListener | undefined
  #ranks: EngineRank[] = []
  #endpoints: RankEndpoints[] = []
  #epoch = 0
  #startSeconds = 0
  #faults: EngineFaults = NO_ENGINE_FAULTS
  #hung: (() => void)[] = []
  #downUntilMs = 0
  #isClosed = false
  readonly #live = new Set<LiveRequest>()
  #records: EngineRequestRecord[] = []
  #requestsTaken = 0
  readonly #finished: Record<string, number> = { stop: 0, length: 0, abort: 0, error: 0 }

  private constructor(options: EngineOptions) {
    this.#settings = engineSettings(options.settings)
    this.#transport = options.transport
    this.#tokenizer = options.tokenizer
    this.#vocabulary = outputVocabulary(options.tokenizer)
    this.#texts = new TokenTexts(options.tokenizer)
    this.#clock = options.clock
    this.#random = options.random
    this.#log = options.log
    this.#onKill = options.onKill
  }

  /** Binds all sockets. Throws InvalidEngineSettingsError, and rejects as the transport does when a port is taken. */
  static async start(options: EngineOptions): Promise<Engine> {
    const engine = new Engine(options)
    try {
      await engine.#begin()
      const { host, port } = engine.#settings
      engine.#listener = await engine.#transport.http.listen({ host, port }, exchange => {
        void engine.#serve(exchange)
      })
    } catch (error) {
      await engine.close()
      throw error
    }
    return engine
  }

  /** The ids that this engine may emit, for `expectedOutput`. */
  get vocabulary(): Int32Array {
    return this.#vocabulary
  }

  describe(): EngineDescription {
    const { host, model, blockSizeTokens, blocks, contextTokensMax } = this.#settings
    const port = this.#listener?.port ?? 0
    const name = host.includes(':') ? `[${host}]` : host
    return {
      url: `http://${name}:${port}`,
      host,
      port,
      model,
      blockSizeTokens,
      blocks,
      contextTokensMax,
      ranks: this.#endpoints,
    }
  }

  state(options: { readonly hasBlocks?: boolean } = {}): EngineState {
    return {
      epoch: this.#epoch,
      faults: this.#faults,
      ranks: this.#ranks.map(rank => ({
        rank: rank.rank,
        ...rank.counts,
        nextSequence: rank.publisher?.nextSequence ?? 0,
        publishedBatches: rank.publisher?.publishedBatches ?? 0,
        cachedBlocks: rank.cachedBlocks,
        faults: rank.publisher?.faults ?? NO_EVENT_FAULTS,
        ...(options.hasBlocks === true ? { blocks: rank.cacheSnapshot() } : {}),
      })),
      requests: this.#records,
      requestsTaken: this.#requestsTaken,
    }
  }

  /** Changes faults as a body of /admin/faults does. Throws RefusedRequest. */
  setFaults(body: Readonly<Record<string, unknown>>): void {
    const { engine, events, rank } = readFaultRequest(body, this.#faults)
    this.#faults = engine
    for (const candidate of this.#ranks) {
      candidate.slowFactor = engine.slowFactor
      candidate.slowMs = engine.slowMs
      candidate.isHung = engine.hang !== 'off'
      const { publisher } = candidate
      if (events === undefined || publisher === undefined) continue
      if (rank === undefined || rank === candidate.rank) publisher.faults = { ...publisher.faults, ...events }
    }
    if (engine.hang === 'off') this.#releaseHung()
  }

  /** Ends all faults. */
  clearFaults(): void {
    this.setFaults({ ...NO_ENGINE_FAULTS, events: NO_EVENT_FAULTS })
  }

  /** A new life: requests are cut, caches are empty, sequences begin at 0, on the same ports. */
  async restart(downMs = 0): Promise<void> {
    this.#downUntilMs = this.#clock.nowMs() + downMs
    for (const live of [...this.#live]) live.cut()
    for (const rank of this.#ranks) rank.close()
    this.#ranks = []
    if (downMs > 0) {
      await new Promise<void>(resolve => void this.#clock.after(downMs, resolve))
    }
    if (!this.#isClosed) await this.#begin()
  }

  /** Cuts every request and closes every socket. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const live of [...this.#live]) live.cut()
    for (const rank of this.#ranks) rank.close()
    this.#releaseHung()
    await this.#listener?.close(0)
  }

  /** Begins an epoch. */
  async #begin(): Promise<void> {
    const settings = this.#settings
    this.#epoch++
    this.#startSeconds = this.#clock.wallMs() / 1000
    const hashSeed = settings.hashSeed >= 0 ? settings.hashSeed : this.#random.below(2 ** 31)
    const ranks: EngineRank[] = []
    const endpoints: RankEndpoints[] = []
    try {
      for (let rank = 0; rank < settings.ranks; rank++) {
        const publisher = settings.publishesEvents ? await this.#openPublisher(rank) : undefined
        const blocks = new BlockManager({
          blockSizeTokens: settings.blockSizeTokens,
          blockCount: settings.blocks,
          hashSeed,
        })
        const model = new EngineModel({
          blocks,
          profile: timingProfile(settings.profile),
          stepTokensMax: settings.stepTokensMax,
          sequencesMax: settings.sequencesMax,
          vocabulary: this.#vocabulary,
        })
        const { speed, isClearLate } = settings
        ranks.push(new EngineRank({ rank, model, blocks, publisher, clock: this.#clock, speed, isClearLate }))
        if (publisher !== undefined) endpoints.push(endpointsOf(rank, publisher))
      }
    } catch (error) {
      for (const rank of ranks) rank.close()
      throw error
    }
    if (this.#isClosed) {
      for (const rank of ranks) rank.close()
      return
    }
    this.#ranks = ranks
    this.#endpoints = endpoints
    for (const rank of ranks) {
      rank.slowFactor = this.#faults.slowFactor
      rank.slowMs = this.#faults.slowMs
      rank.isHung = this.#faults.hang !== 'off'
    }
  }

  #openPublisher(rank: number): Promise<EventPublisher> {
    const settings = this.#settings
    // A restart binds the ports that the first life was given.
    const known = this.#endpoints[rank]
    return EventPublisher.open(this.#transport.messages, this.#clock, {
      rank,
      host: settings.host,
      eventsPort: known?.eventsPort ?? (settings.eventsPort > 0 ? settings.eventsPort + rank : 0),
      replayPort: known?.replayPort ?? (settings.replayPort > 0 ? settings.replayPort + rank : 0),
      topic: settings.topic,
      form: settings.eventForm,
      hashForm: settings.hashForm,
      replayForm: settings.replayForm,
      replayBatchesMax: settings.replayBatchesMax,
      blockSizeTokens: settings.blockSizeTokens,
    })
  }

  async #serve(exchange: HttpExchange): Promise<void> {
    try {
      await this.#route(exchange)
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

  async #route(exchange: HttpExchange): Promise<void> {
    const { method, path } = exchange
    if (path.startsWith('/admin/')) return this.#admin(exchange)
    if (this.#isClosed || this.#clock.nowMs() < this.#downUntilMs) return exchange.destroy()

    const isGeneration = path === '/v1/chat/completions' || path === '/v1/completions'
    if (this.#faults.hang === 'all' || (this.#faults.hang === 'generation' && isGeneration)) {
      if (this.#hung.length === HUNG_MAX) return exchange.destroy()
      await new Promise<void>(resolve => void this.#hung.push(resolve))
      if (exchange.isClosed) return
      if (this.#isClosed) return exchange.destroy()
    }
    this.#refuseIfTold(path)
    this.#checkKey(exchange)
    const isSglang = this.#settings.eventForm.startsWith('sglang')
    const route = `${method} ${path}`
    switch (route) {
      case 'POST /v1/chat/completions':
        return this.#generate(exchange, 'chat')
      case 'POST /v1/completions':
        return this.#generate(exchange, 'text')
      case 'GET /health':
      case 'GET /ping':
      case 'POST /ping':
        return sendBytes(exchange, 200, new Uint8Array(0), 'text/plain')
      case 'GET /v1/models':
        return sendJson(exchange, 200, this.#models())
      case 'GET /load':
        return sendJson(exchange, 200, { server_load: this.#live.size })
      case 'GET /metrics':
        return sendBytes(exchange, 200, new TextEncoder().encode(this.#metrics()), METRICS_TYPE)
      case 'POST /tokenize': {
        const tokens = readTokenizeRequest(await exchange.readBody(BODY_BYTES_MAX), this.#context())
        return sendJson(exchange, 200, {
          count: tokens.length,
          max_model_len: this.#settings.contextTokensMax,
          tokens: Array.from(tokens),
          token_strs: null,
        })
      }
      case 'POST /detokenize': {
        const body = parseObject(await exchange.readBody(BODY_BYTES_MAX))
        const tokens = Array.isArray(body['tokens']) ? body['tokens'].map(Number) : []
        return sendJson(exchange, 200, { prompt: this.#tokenizer.decode(Int32Array.from(tokens)) })
      }
      case 'POST /reset_prefix_cache':
        return sendJson(exchange, 200, { success: this.#resetPrefixCache() })
      case 'POST /flush_cache':
        if (isSglang) return sendJson(exchange, 200, { success: this.#resetPrefixCache() })
        break
      case 'GET /version':
        if (!isSglang) return sendJson(exchange, 200, { version: this.#settings.version })
        break
      case 'GET /kv_event_sources':
        if (!isSglang && this.#endpoints.length > 0) return sendJson(exchange, 200, this.#eventSources())
        break
      case 'GET /server_info':
      case 'GET /get_server_info':
        if (isSglang) return sendJson(exchange, 200, this.#serverInfo())
        break
    }
    sendJson(exchange, 404, { detail: 'Not Found' })
  }

  #refuseIfTold(path: string): void {
    const { refuse } = this.#faults
    const isTold = path.startsWith('/v1/') ? refuse !== 0 : refuse < 0
    if (!isTold) return
    if (refuse > 0) this.#faults = { ...this.#faults, refuse: refuse - 1 }
    throw new RefusedRequest(503, 'ServiceUnavailableError', 'The engine refuses requests')
  }

  #checkKey(exchange: HttpExchange): void {
    const { apiKey } = this.#settings
    if (apiKey === '' || !exchange.path.startsWith('/v1/')) return
    if (exchange.headers['authorization'] !== `Bearer ${apiKey}`) throw new UnauthorizedRequest()
  }

  #context(): CompletionContext {
    const { model, adapters, contextTokensMax, seed } = this.#settings
    return { model, adapters, contextTokensMax, tokenizer: this.#tokenizer, seed }
  }

  async #generate(exchange: HttpExchange, kind: CompletionKind): Promise<void> {
    const body = await exchange.readBody(BODY_BYTES_MAX)
    const request = readCompletionRequest(kind, body, this.#context(), header(exchange, 'x-session-id'))
    const rank = this.#pickRank(header(exchange, 'x-data-parallel-rank'))
    if (rank === undefined) return exchange.destroy()
    const die = this.#takeRequestFault('die')
    if (die === 0) {
      this.#addRecord(this.#recordOf(exchange, request, rank, this.#nextId(exchange, kind), 'died'))
      return exchange.destroy()
    }
    const fail = this.#takeRequestFault('error')
    if (fail === 0) throw new RefusedRequest(500, 'InternalServerError', 'The engine failed on demand')
    this.#run(exchange, request, rank, { die, fail })
  }

  /** Serves a request to its end; the answer is written as tokens come. */
  #run(
    exchange: HttpExchange,
    request: CompletionRequest,
    rank: EngineRank,
    faults: { readonly die: number | undefined; readonly fail: number | undefined },
  ): void {
    const id = this.#nextId(exchange, request.kind)
    const answer = new CompletionAnswer({
      id,
      request,
      texts: this.#texts,
      createdSeconds: Math.floor(this.#clock.wallMs() / 1000),
    })
    const record = this.#recordOf(exchange, request, rank, id, 'running')
    this.#addRecord(record)
    const sequenceId = (index: number): string => `${record.epoch}/${this.#requestsTaken}/${id}/${index}`
    const sequences: string[] = []
    const end = (outcome: 'finished' | 'aborted' | 'died', reason: string): void => {
      if (!this.#live.delete(live)) return
      for (const sequence of sequences) rank.abort(sequence)
      record.outcome = outcome
      record.outputTokens = answer.outputTokens
      record.cachedTokens = answer.cachedTokens
      this.#finished[reason]!++
    }
    const live: LiveRequest = {
      exchange,
      record,
      cut: () => {
        end('died', 'error')
        exchange.destroy()
      },
    }
    this.#live.add(live)
    exchange.onClientGone(() => end('aborted', 'abort'))
    const writer = new StreamWriter(exchange)
    if (request.isStream) {
      exchange.writeHead(200, {
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-cache',
      })
    }

    const takeToken = (index: number, sequence: string) => {
      return (token: { tokenId: number; isLast: boolean; cachedTokens: number }): void => {
        if (!this.#live.has(live)) return
        const state = answer.push(index, token, text => writer.write(text))
        if (state === 'stopped') rank.abort(sequence)
        if (answer.isComplete) {
          end('finished', request.finishReason)
          if (request.isStream) writer.end(answer.streamEnd())
          else sendBytes(exchange, 200, answer.body())
          return
        }
        const tokens = answer.outputTokens
        if (faults.die !== undefined && tokens >= faults.die) {
          end('died', 'error')
          // A cut connection loses what was not sent yet; the tokens before the cut are to arrive.
          this.#clock.after(FLUSH_MS, () => exchange.destroy())
          return
        }
        if (faults.fail !== undefined && tokens >= faults.fail) {
          end('died', 'error')
          const failure = new RefusedRequest(500, 'InternalServerError', 'The engine failed on demand')
          const text = new TextDecoder().decode(failure.body())
          if (request.isStream) writer.end(`data: ${text}\n\ndata: [DONE]\n\n`)
          else sendBytes(exchange, 500, failure.body())
        }
      }
    }
    for (const [promptIndex, promptIds] of request.prompts.entries()) {
      for (let choice = 0; choice < request.choicesCount; choice++) {
        const index = promptIndex * request.choicesCount + choice
        const sequence = sequenceId(index)
        sequences.push(sequence)
        rank.submit(
          {
            id: sequence,
            promptIds,
            outputTokens: request.outputTokens[promptIndex]!,
            namespace: { loraName: request.loraName, cacheSalt: request.cacheSalt },
            seed: this.#settings.seed + choice,
            sessionId: request.sessionId,
            reportFull: request.reportsFull,
          },
          takeToken(index, sequence),
        )
      }
    }
  }

  /** The rank a request is pinned to, else the one with the fewest requests; undefined while there is none. */
  #pickRank(pin: string | undefined): EngineRank | undefined {
    if (pin !== undefined && /^-?\d+$/.test(pin.trim())) {
      const wanted = Number(pin)
      const count = this.#settings.ranks
      if (wanted < 0 || wanted >= count) {
        throw new RefusedRequest(
          400,
          'BadRequestError',
          `data_parallel_rank ${wanted} is out of range [0, ${count}).`,
        )
      }
      return this.#ranks[wanted]
    }
    let best: EngineRank | undefined
    for (const rank of this.#ranks) {
      if (best === undefined || rank.requests < best.requests) best = rank
    }
    return best
  }

  /** Tokens after which the next fault of this kind strikes this request; undefined when there is none. */
  #takeRequestFault(name: 'die' | 'error'): number | undefined {
    const fault = this.#faults[name]
    if (fault.requests === 0) return undefined
    this.#faults = { ...this.#faults, [name]: { ...fault, requests: fault.requests - 1 } }
    return fault.tokens
  }

  #nextId(exchange: HttpExchange, kind: CompletionKind): string {
    const prefix = kind === 'chat' ? 'chatcmpl' : 'cmpl'
    return `${prefix}-${header(exchange, 'x-request-id') ?? hexOf(this.#random.bytes(16))}`
  }

  #recordOf(
    exchange: HttpExchange,
    request: CompletionRequest,
    rank: EngineRank,
    id: string,
    outcome: EngineRequestRecord['outcome'],
  ): LiveRequest['record'] {
    return {
      id,
      requestId: header(exchange, 'x-request-id') ?? null,
      model: request.model,
      rank: rank.rank,
      promptTokens: request.prompts.reduce((sum, prompt) => sum + prompt.length, 0),
      cachedTokens: 0,
      outputTokens: 0,
      outcome,
      epoch: this.#epoch,
    }
  }

  #addRecord(record: EngineRequestRecord): void {
    this.#requestsTaken++
    this.#records.push(record)
    // Cut in halves: dropping one at a time would copy the log for every request.
    if (this.#records.length > LOG_MAX * 1.5) this.#records = this.#records.slice(-LOG_MAX)
  }

  #resetPrefixCache(): boolean {
    let isCleared = true
    for (const rank of this.#ranks) isCleared = rank.resetPrefixCache() && isCleared
    return isCleared
  }

  #models() {
    const { model, tokenizer, adapters, contextTokensMax } = this.#settings
    const created = Math.floor(this.#startSeconds)
    const card = (id: string, root: string, parent: string | null) => ({
      id,
      object: 'model',
      created,
      owned_by: 'vllm',
      root,
      parent,
      max_model_len: parent === null ? contextTokensMax : null,
      permission: [],
    })
    return {
      object: 'list',
      data: [card(model, tokenizer ?? model, null), ...adapters.map(name => card(name, name, model))],
    }
  }

  #metrics(): string {
    const { model, blockSizeTokens, blocks, adapters } = this.#settings
    return metricsText({
      model,
      blockSizeTokens,
      blocks,
      adapters,
      ranks: this.#ranks.map(rank => rank.counts),
      finished: this.#finished,
      startSeconds: this.#startSeconds,
    })
  }

  #eventSources(): Record<string, unknown> {
    const sources: Record<string, unknown> = {}
    for (const { rank, eventsPort, replayPort } of this.#endpoints) {
      sources[rank] = {
        enable_kv_cache_events: true,
        publisher: 'zmq',
        endpoint: `tcp://*:${eventsPort}`,
        replay_endpoint: `tcp://*:${replayPort}`,
        buffer_steps: this.#settings.replayBatchesMax,
        hwm: 100_000,
        max_queue_size: 100_000,
        topic: this.#settings.topic,
      }
    }
    return sources
  }

  #serverInfo() {
    const { blockSizeTokens, ranks, model, tokenizer, stepTokensMax, sequencesMax, blocks } = this.#settings
    const first = this.#endpoints[0]
    return {
      model_path: tokenizer ?? model,
      served_model_name: model,
      page_size: blockSizeTokens,
      dp_size: ranks,
      chunked_prefill_size: stepTokensMax,
      max_running_requests: sequencesMax,
      max_total_num_tokens: (blocks - 1) * blockSizeTokens,
      disaggregation_mode: 'null',
      version: this.#settings.version,
      internal_states: [],
      kv_events:
        first === undefined
          ? null
          : {
              publisher: 'zmq',
              endpoint_host: '*',
              endpoint_port_base: first.eventsPort,
              topic: this.#settings.topic,
              block_size: blockSizeTokens,
              dp_size: ranks,
              replay_endpoint_port_base: first.replayPort,
            },
    }
  }

  async #admin(exchange: HttpExchange): Promise<void> {
    switch (`${exchange.method} ${exchange.path}`) {
      case 'GET /admin/state': {
        const hasBlocks = new URLSearchParams(exchange.query).get('blocks') === '1'
        return sendJson(exchange, 200, { ...this.describe(), ...this.state({ hasBlocks }) })
      }
      case 'DELETE /admin/faults':
        this.clearFaults()
        return sendJson(exchange, 200, this.#faultState())
      case 'POST /admin/faults':
        this.setFaults(parseObject(await exchange.readBody(BODY_BYTES_MAX)))
        return sendJson(exchange, 200, this.#faultState())
      case 'GET /admin/faults':
        return sendJson(exchange, 200, this.#faultState())
      case 'POST /admin/restart': {
        const bytes = await exchange.readBody(BODY_BYTES_MAX)
        const downMs = bytes.length === 0 ? 0 : Number(parseObject(bytes)['downMs'] ?? 0)
        if (!(downMs >= 0 && downMs <= 600_000)) {
          throw new RefusedRequest(400, 'BadRequestError', `downMs is ${downMs}, use 0 to 600000`)
        }
        await this.restart(downMs)
        return sendJson(exchange, 200, { epoch: this.#epoch })
      }
      case 'POST /admin/kill': {
        sendJson(exchange, 200, { killed: true })
        await this.close()
        this.#onKill?.()
        return
      }
    }
    sendJson(exchange, 404, { detail: 'Not Found' })
  }

  #faultState() {
    return { ...this.#faults, events: this.#ranks.map(rank => rank.publisher?.faults ?? NO_EVENT_FAULTS) }
  }

  #releaseHung(): void {
    const hung = this.#hung
    this.#hung = []
    for (const release of hung) release()
  }
}

const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** vLLM's 401 is not of the form of its other errors. */
class UnauthorizedRequest extends RefusedRequest {
  constructor() {
    super(401, 'Unauthorized', 'Unauthorized')
  }

  override body(): Uint8Array {
    return new TextEncoder().encode('{"error":"Unauthorized"}')
  }
}

/** Writes a stream in order, waiting when the client reads slowly; what waits is bounded by the answer's length. */
class StreamWriter {
  readonly #exchange: HttpExchange
  readonly #encoder = new TextEncoder()
  #waiting: string[] = []
  #isBlocked = false
  #isEnding = false

  constructor(exchange: HttpExchange) {
    this.#exchange = exchange
  }

  write(text: string): void {
    if (this.#isBlocked) this.#waiting.push(text)
    else if (!this.#exchange.isClosed) this.#isBlocked = !this.#exchange.write(this.#encoder.encode(text))
    if (this.#isBlocked && this.#waiting.length === 0) this.#exchange.onDrain(() => this.#drain())
  }

  end(text: string): void {
    this.#isEnding = true
    if (this.#isBlocked) this.#waiting.push(text)
    else if (!this.#exchange.isClosed) this.#exchange.end(this.#encoder.encode(text))
  }

  #drain(): void {
    if (!this.#isBlocked) return
    this.#isBlocked = false
    const text = this.#waiting.join('')
    this.#waiting = []
    if (this.#exchange.isClosed) return
    if (this.#isEnding) this.#exchange.end(this.#encoder.encode(text))
    else if (text !== '') this.write(text)
  }
}

function endpointsOf(rank: number, publisher: EventPublisher): RankEndpoints {
  const { endpoint, replayEndpoint } = publisher
  return {
    rank,
    events: endpoint,
    eventsPort: portOf(endpoint),
    replay: replayEndpoint,
    replayPort: portOf(replayEndpoint),
  }
}

function portOf(endpoint: string): number {
  return Number(endpoint.slice(endpoint.lastIndexOf(':') + 1))
}

function header(exchange: HttpExchange, name: string): string | undefined {
  const value = exchange.headers[name]
  return typeof value === 'string' ? value : value?.[0]
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex')
}

function sendJson(exchange: HttpExchange, status: number, value: unknown): void {
  sendBytes(exchange, status, new TextEncoder().encode(JSON.stringify(value)))
}

function sendBytes(
  exchange: HttpExchange,
  status: number,
  bytes: Uint8Array,
  contentType = 'application/json',
): void {
  if (exchange.isClosed) return
  exchange.writeHead(status, { 'content-type': contentType, 'content-length': String(bytes.length) })
  exchange.end(bytes)
}
