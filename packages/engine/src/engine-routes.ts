/**
 * Engine routes: OpenAI HTTP as vLLM serves it, with what SGLang calls otherwise.
 *
 *   GET  /health /ping /version /load /metrics /v1/models /kv_event_sources     POST /tokenize /detokenize
 *   POST /v1/chat/completions /v1/completions /v1/responses /v1/messages /reset_prefix_cache
 *   GET  /server_info                          in the SGLang forms, instead of /version and /kv_event_sources
 *
 * In this order a request is cut because the engine is down, hangs, is refused on demand, is asked for its
 * key, and is answered. Owns the exchanges that are not answered yet, until a completion lives; the rest
 * belongs to the parts it is given.
 */

import type { Clock } from '@homing/base'
import type { HttpExchange, HttpTransport } from '@homing/transport'
import {
  type CompletionContext,
  type CompletionKind,
  type CompletionRequest,
  parseObject,
  RefusedRequest,
  readCompletionRequest,
  readTokenizeRequest,
} from './completion-request.ts'
import { eventSourcesAnswer, modelsAnswer, serverInfoAnswer } from './engine-discovery.ts'
import type { EngineFaultSwitch } from './engine-fault-switch.ts'
import { metricsText } from './engine-metrics.ts'
import type { PooledPart } from './engine-model.ts'
import type { EngineRank } from './engine-rank.ts'
import type { EngineRanks } from './engine-ranks.ts'
import type { ResolvedEngineSettings } from './engine-settings.ts'
import type { EngineTokenizer } from './engine-tokenizer.ts'
import { type HandoverWish, transferMsOf } from './handover-settings.ts'
import { HANDOVER_PATH, type Handovers, readHandoverWish, takeOver } from './handovers.ts'
import { BODY_BYTES_MAX, headerOf, sendBytes, sendJson } from './http-answer.ts'
import { poolReadMsOf } from './pool-settings.ts'
import { failureOnDemand, type RequestLives } from './request-lives.ts'

/** Where a life of the engine stands. */
export interface EngineLife {
  readonly epoch: number
  /** Seconds since 1970 when it began. */
  readonly startSeconds: number
  /** Closed, or before the next life. */
  readonly isDown: boolean
}

export interface EngineRoutesOptions {
  readonly settings: ResolvedEngineSettings
  readonly tokenizer: EngineTokenizer
  /** The ids that it may emit. */
  readonly vocabulary: Int32Array
  readonly faults: EngineFaultSwitch
  readonly ranks: EngineRanks
  readonly lives: RequestLives
  readonly life: () => EngineLife
  readonly handovers: Handovers
  readonly clock: Clock
  readonly http: HttpTransport
  readonly port: () => number
}

const KINDS: ReadonlyMap<string, CompletionKind> = new Map([
  ['/v1/chat/completions', 'chat'],
  ['/v1/completions', 'text'],
  ['/v1/responses', 'responses'],
  ['/v1/messages', 'messages'],
])
const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export class EngineRoutes {
  readonly #options: EngineRoutesOptions
  readonly #context: CompletionContext
  readonly #isSglang: boolean
  readonly #open = new Set<HttpExchange>()

  constructor(options: EngineRoutesOptions) {
    const { tokenizer, settings, vocabulary } = options
    const { model, adapters, contextTokensMax, seed } = settings
    this.#options = options
    this.#context = { model, adapters, contextTokensMax, tokenizer, vocabulary, seed }
    this.#isSglang = settings.eventForm.startsWith('sglang')
  }

  /** Requests that hang, or whose body or answer is on the way; running requests do not count. */
  get openCount(): number {
    return this.#open.size
  }

  /** Answers or cuts a request; a completion goes on after that. Throws RefusedRequest. */
  async serve(exchange: HttpExchange): Promise<void> {
    this.#open.add(exchange)
    try {
      await this.#route(exchange)
    } finally {
      this.#open.delete(exchange)
    }
  }

  /** Cuts every request that is not answered yet, also those that hang. */
  cutAll(): void {
    for (const exchange of this.#open) exchange.destroy()
    this.#open.clear()
    this.#options.faults.endHang(false)
  }

  async #route(exchange: HttpExchange): Promise<void> {
    const { faults, life } = this.#options
    const { path } = exchange
    if (life().isDown) return exchange.destroy()
    const kind = kindOf(path)
    if (!(await faults.passHang(exchange, kind !== undefined))) return
    if (faults.takeRefusal(path)) {
      throw new RefusedRequest(503, 'ServiceUnavailableError', 'The engine refuses requests')
    }
    this.#checkKey(exchange)
    if (exchange.method === 'POST' && kind !== undefined) return this.#complete(exchange, kind)
    return this.#answer(exchange)
  }

  #checkKey(exchange: HttpExchange): void {
    const { apiKey } = this.#options.settings
    if (apiKey === '' || !exchange.path.startsWith('/v1/')) return
    if (exchange.headers['authorization'] !== `Bearer ${apiKey}`) throw new UnauthorizedRequest()
  }

  async #complete(exchange: HttpExchange, kind: CompletionKind): Promise<void> {
    const { ranks, faults, lives, life } = this.#options
    const body = await exchange.readBody(BODY_BYTES_MAX)
    if (!this.#open.has(exchange)) return
    const read = readCompletionRequest(kind, body, this.#context, headerOf(exchange, 'x-session-id'))
    const rank = ranks.pick(headerOf(exchange, 'x-data-parallel-rank'))
    if (rank === undefined) return exchange.destroy()
    const handover = this.#handoverOf(body, rank.rank)
    const computesOnly = handover?.kind === 'meet' && this.#options.settings.role === 'prefill'
    const outputTokens = computesOnly ? read.outputTokens.map(() => 1) : read.outputTokens
    const request = handover === undefined ? read : { ...read, handover, outputTokens }
    const { epoch } = life()
    const promptTokens = request.prompts.reduce((sum, { length }) => sum + length, 0)
    const isTakenOver = await this.#takeOver(handover, promptTokens)
    const pooled = isTakenOver ? undefined : await this.#readPool(request, rank)
    let isLiving = false
    try {
      // Cut, or of an earlier life.
      if (!this.#open.has(exchange) || exchange.isClosed || life().epoch !== epoch) return exchange.destroy()
      const place = { exchange, request, rank, epoch, isTakenOver, pooled }
      const die = faults.takeRequestFault('die')
      if (die === 0) return lives.refuseToLive(place)
      const fail = faults.takeRequestFault('error')
      if (fail === 0) throw failureOnDemand()
      isLiving = true
      lives.run(place, { die, fail })
    } finally {
      // A room lives as long as its request, and this one never will.
      if (!isLiving && computesOnly) this.#options.handovers.close(handover.room)
    }
  }

  #handoverOf(body: Uint8Array, dpRank: number): HandoverWish | undefined {
    const { settings } = this.#options
    const isPossible = settings.handover === 'kv_transfer' || settings.role !== 'both'
    if (!isPossible) return undefined
    const room = /"bootstrap_room"\s*:\s*(\d+)/.exec(new TextDecoder().decode(body))?.[1]
    return readHandoverWish(parseObject(body), settings, room, dpRank)
  }

  /** True: another engine has computed the prompt. Rejects with RefusedRequest where it has not. */
  async #takeOver(wish: HandoverWish | undefined, promptTokens: number): Promise<boolean> {
    const { settings, handovers, http, clock } = this.#options
    if (wish === undefined || wish.kind === 'offer') return false
    if (wish.kind === 'meet' && settings.role === 'prefill') {
      handovers.open(wish.room)
      return false
    }
    await takeOver(http, wish, settings.handoverMsMax)
    const transferMs = transferMsOf(settings, promptTokens)
    if (transferMs > 0) await new Promise<void>(resolve => clock.after(transferMs, resolve, { unref: true }))
    return true
  }

  /** Reads what the pool has of each prompt; see `RequestPlace`. */
  async #readPool(
    { prompts, loraName, cacheSalt }: CompletionRequest,
    rank: EngineRank,
  ): Promise<readonly (PooledPart | undefined)[]> {
    const { settings, clock } = this.#options
    const parts = prompts.map(ids => rank.pooledPart(ids, { loraName, cacheSalt }))
    const tokens = parts.reduce((sum, part) => sum + (part === undefined ? 0 : part.to - part.from), 0)
    const readMs = tokens > 0 ? poolReadMsOf(settings, tokens) : 0
    if (readMs > 0) await new Promise<void>(resolve => clock.after(readMs, resolve, { unref: true }))
    return parts
  }

  /** Another engine takes a prompt over. */
  async #giveOver(exchange: HttpExchange): Promise<void> {
    const { handovers } = this.#options
    const { id, room } = parseObject(await exchange.readBody(BODY_BYTES_MAX))
    const isThere = typeof room === 'string' ? await handovers.meet(room) : handovers.take(String(id))
    if (!exchange.isClosed) sendJson(exchange, isThere ? 200 : 410, { taken: isThere })
  }

  async #answer(exchange: HttpExchange): Promise<void> {
    const { settings, tokenizer, faults, ranks, lives, life } = this.#options
    const isSglang = this.#isSglang
    switch (`${exchange.method} ${exchange.path}`) {
      case 'GET /health':
      case 'GET /ping':
      case 'POST /ping':
        return sendBytes(exchange, 200, new Uint8Array(0), 'text/plain')
      case 'GET /v1/models':
        return sendJson(exchange, 200, modelsAnswer(settings, life().startSeconds))
      case `POST ${HANDOVER_PATH}`:
        return this.#giveOver(exchange)
      case 'GET /load':
        return sendJson(exchange, 200, { server_load: lives.liveCount })
      case 'GET /metrics':
        return sendBytes(exchange, 200, new TextEncoder().encode(this.#metrics()), METRICS_TYPE)
      case 'POST /tokenize': {
        const tokens = readTokenizeRequest(await exchange.readBody(BODY_BYTES_MAX), this.#context)
        return sendJson(exchange, 200, {
          count: tokens.length,
          max_model_len: settings.contextTokensMax,
          tokens: Array.from(tokens),
          token_strs: null,
        })
      }
      case 'POST /detokenize': {
        const body = parseObject(await exchange.readBody(BODY_BYTES_MAX))
        const tokens = Array.isArray(body['tokens']) ? body['tokens'].map(Number) : []
        return sendJson(exchange, 200, { prompt: tokenizer.decode(Int32Array.from(tokens)) })
      }
      case 'POST /reset_prefix_cache':
        return sendJson(exchange, 200, { success: ranks.resetPrefixCache() })
      case 'POST /flush_cache':
        if (isSglang) return sendJson(exchange, 200, { success: ranks.resetPrefixCache() })
        break
      case 'GET /version':
        if (!isSglang) return sendJson(exchange, 200, { version: settings.version })
        break
      case 'GET /kv_event_sources':
        if (!isSglang && faults.current.sources !== 'none') {
          const isFirst = faults.current.sources === 'first'
          return sendJson(exchange, 200, eventSourcesAnswer(settings, ranks.endpoints, isFirst))
        }
        break
      case 'GET /server_info':
      case 'GET /get_server_info':
        if (isSglang)
          return sendJson(exchange, 200, serverInfoAnswer(settings, ranks.endpoints, this.#options.port()))
        break
    }
    sendJson(exchange, 404, { detail: 'Not Found' })
  }

  #metrics(): string {
    const { settings, ranks, lives, life } = this.#options
    const { model, blockSizeTokens, blocks, adapters } = settings
    return metricsText({
      model,
      blockSizeTokens,
      blocks,
      adapters,
      ranks: ranks.all.map(rank => rank.counts),
      finished: lives.finished,
      startSeconds: life().startSeconds,
    })
  }
}

/** Undefined: no path of completions. */
function kindOf(path: string): CompletionKind | undefined {
  return KINDS.get(path)
}

/** vLLM's 401 is not of the form of its other errors. */
class UnauthorizedRequest extends RefusedRequest {
  constructor() {
    super(401, 'Unauthorized', 'Unauthorized')
  }

  override body(): Uint8Array {
    return new TextEncoder().encode('{"error":"Unauthorized"}')
  }
}
