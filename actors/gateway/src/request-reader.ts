/**
 * Request reader: the first step of an exchange. It reads the body and extracts what the router needs to
 * place the request.
 *
 *   body -> tokenizer (model, prompt hashes, nvext) -> routing request and upstream request
 *
 * A tokenizer that does not answer in time still has the body: its bytes count against the bound of all
 * bodies, and are lent to it, until it answers.
 *
 * A request that refers to a response by its id is pinned to the worker that has the response
 * (./response-holders.ts), unless the client pinned it.
 *
 * A body that the client has compressed is decoded, and goes to the engine decoded: engines decode none. On
 * relayed routes it goes as it is, and is decoded only to be read.
 *
 * A console request for `/route` goes no further than the receipt. Relayed routes skip the tokenizer: the
 * router does not know how an engine makes prompts of them. So they are placed by load, or go where they are
 * pinned.
 */

import { AskTimeoutError } from '@homing/actor'
import type { Explained, ProgramPrompt } from '@homing/actors/console'
import type {
  CompletionRoute,
  GivenBody as ReadBody,
  ReadRequest,
  ReadResult,
} from '@homing/actors/tokenizer'
import { type Clock, fromErrorRecord, toErrorRecord } from '@homing/base'
import { type Fleet, type ModelNames, servedModel } from '@homing/fleet'
import { type Bodies, type BodyHold, RefusedError, takesMethod } from '@homing/http'
import { type RelayedRequest, scanRequest } from '@homing/openai'
import type { RoutingRequest } from '@homing/placement'
import { ADAPTER, EXTRA_KEY, SALT, type SeparatedPrompt } from '@homing/protocol'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { ClientModels } from './client-models.ts'
import { ResponseUnknownError } from './errors.ts'
import type { ReadyRequest } from './exchange-parts.ts'
import type { GatewayArgs } from './gateway-args.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { GatewayPeers } from './gateway-peers.ts'
import { HintTrust } from './hint-trust.ts'
import { leaseOf } from './keyed-exchange.ts'
import { isJson, plainBody, readRelayed } from './relayed-body.ts'
import type { Stage } from './request-metrics.ts'
import type { ResponseHolders } from './response-holders.ts'
import type { SliceTrust } from './slice-trust.ts'
import { type SlicedPrompt, slicedPrompt } from './sliced-prompt.ts'
import type { TokenWorkers } from './tokens/token-workers.ts'
import { tenantOf, waitingHints } from './waiting-hints.ts'
import type { UpstreamRequest } from './worker-call.ts'

/** What is needed to read a request. */
export interface ReaderParts {
  readonly args: GatewayArgs
  readonly clock: Clock
  readonly bodies: Bodies
  readonly metrics: GatewayMetrics
  readonly newId: () => string
  readonly fleet: () => Fleet
  /** Aliases of models. */
  readonly names: () => ModelNames
  readonly responses: ResponseHolders
  /** Other gateways; undefined: there are none. */
  readonly peers?: GatewayPeers | undefined
  readonly slices: SliceTrust
  readonly tokens: TokenWorkers
}

const NOT_A_COMPLETION = 'not a completion: placed by load'
const AT_HOLDER = 'it refers to a response: placed at the worker that has it'
const HOLDER_UNKNOWN = 'it refers to a response whose worker is gone or not known: placed by load'
/** The path of a stored response, an action on it, or an action that names none (`POST …/compact`). */
const RESPONSE_PATH = /^\/v1\/responses\/([^/]+)(\/|$)/
/** Block size for requests whose prompt is not known: it only scales their cost. */
const ASSUMED_BLOCK_SIZE_TOKENS = 16
/** For each byte of the ids of a prompt: the ids, and the bodies of its slices. */
const BYTES_OF_SLICES = 4
/** One hour: a tokenizer that has not answered by then has lost the request. */
const TOKENIZER_MS_MAX = 3_600_000

/** A body that is read as one of this route. */
interface GivenBody {
  readonly route: CompletionRoute
  readonly body: Uint8Array
  /** The prompt, of a program; undefined: it is in the body. */
  readonly promptIds?: Int32Array | undefined
  /** Whose memory the body lies in; undefined: in memory of its own. */
  readonly hold?: BodyHold | undefined
}

export class RequestReader {
  readonly #parts: ReaderParts
  readonly #trust: HintTrust
  readonly #models: ClientModels

  constructor(parts: ReaderParts) {
    this.#parts = parts
    this.#models = new ClientModels({
      fleet: parts.fleet,
      servedModel: name => this.#servedModel(name),
      refused: () => parts.metrics.keyRefused('model'),
    })
    const { args, metrics } = parts
    this.#trust = new HintTrust(args.tenants?.trusted ?? 'all', hint => metrics.hintIgnored(hint))
  }

  /**
   * `textModel`: the request goes to workers that read text only, and this throws if a model has none;
   * undefined: to any.
   */
  async completion(
    exchange: HttpExchange,
    route: CompletionRoute,
    hold: BodyHold,
    note?: AccessNote,
    textModel?: (model: string) => void,
  ): Promise<ReadyRequest | undefined> {
    const { args, clock, slices, tokens: workers } = this.#parts
    const arrivedMs = clock.nowMs()
    const body = await hold.readDecoded(exchange, args.bodyBytesMax)
    const bodyMs = clock.nowMs()
    this.#stage('read', bodyMs - arrivedMs, note)
    this.#models.checkBody(exchange, body)
    slices.came(tenantOf(exchange.headers), bodyMs)
    const wantsIds = slices.mayBeLong(body.length, bodyMs)
    const given = await this.#read({ route, body, hold }, exchange.headers, wantsIds || workers.areSome)
    this.#stage('tokenize', clock.nowMs() - bodyMs, note)
    this.#models.check(exchange, given.model)
    textModel?.(given.model)
    const { read, ignored } = this.#trust.apply(given, exchange.headers)
    const routing = await this.#atHolder(
      this.#routing(
        read,
        route,
        requestId(exchange.headers, this.#parts.newId),
        this.#session(read, exchange),
        ignored,
      ),
      read.previousResponseId,
      exchange,
    )
    if (read.annotations.includes('query_instance_id')) {
      await this.#selectOnly(exchange, { route, body, hold }, routing)
      return undefined
    }
    const upstreamBody = read.upstreamBody ?? body
    const tokens =
      textModel === undefined ? await workers.promptOf({ route, read, body: upstreamBody, hold }) : undefined
    const waiting = waitingHints(exchange.headers, read.priority, body.length)
    const isLong = wantsIds && tokens === undefined && slices.isLong(read.promptTokens)
    const prompt = isLong ? slicedPrompt(read, upstreamBody) : undefined
    return {
      prompt: prompt !== undefined && hasRoom(hold, prompt) ? prompt : undefined,
      ...ready(
        exchange,
        routing,
        { body: upstreamBody, usageEdit: read.usageEdit, tokens },
        withoutEncoding(exchange.headers),
      ),
      waiting,
      legs: { route, isWholePin: read.isWholePin === true, prefillPin: read.prefillPin },
    }
  }

  #stage(stage: Stage, elapsedMs: number, note: AccessNote | undefined): void {
    this.#parts.metrics.requests.stage(stage, elapsedMs)
    note?.stage(stage, elapsedMs)
  }

  /**
   * A relayed route: the bytes go unchanged to the least loaded worker, or to the one it is pinned to.
   * `isBodySent`: a body comes, whatever the method.
   */
  async relayed(exchange: HttpExchange, hold: BodyHold, isBodySent = false): Promise<ReadyRequest> {
    const { args, newId } = this.#parts
    const hasBody = isBodySent || (exchange.method !== 'GET' && exchange.method !== 'HEAD')
    const body = hasBody ? await exchange.readBody(args.bodyBytesMax, hold) : undefined
    const plain = body && (await plainBody(body, exchange, hold, args.bodyBytesMax))
    const isEncoded = plain !== body
    const read = readRelayed(plain, exchange, name => this.#servedModel(name))
    const { hints, estimate } = read
    const request: RoutingRequest = {
      requestId: requestId(exchange.headers, newId),
      model: read.model ?? '',
      promptTokens: estimate?.tokens ?? 0,
      estimate: estimate && { tokensMax: estimate.tokensMax },
      blockSizeTokens: ASSUMED_BLOCK_SIZE_TOKENS,
      localHashes: new Int32Array(0),
      sequenceHashes: new Int32Array(0),
      unknownPromptReason: NOT_A_COMPLETION,
      textBlocksReason: undefined,
      separated: this.#separatedRelay(read),
      override: { temperature: hints.override.temperature },
      constraints: hints.constraints,
      // Worker ids are small. A larger number names no worker, and the router says so.
      pinnedInstanceId: hints.workerId === undefined ? undefined : Number(hints.workerId),
      pinnedRank: hints.dpRank,
      excludedWorkers: [],
    }
    if (plain !== undefined && isJson(exchange.headers)) this.#models.checkBody(exchange, plain)
    const unread = body === undefined || body.length === 0 ? undefined : read.unread
    const routing = await this.#atHolder(
      this.#models.within(exchange, request, unread),
      await this.#responseOf(exchange, read.previousResponseId, unread),
      exchange,
    )
    if (!isEncoded || (plain !== undefined && read.body !== plain)) {
      const headers = isEncoded ? withoutEncoding(exchange.headers) : exchange.headers
      return ready(exchange, routing, { body: read.body, usageEdit: undefined }, headers)
    }
    if (plain !== undefined) hold.give(plain.length)
    return ready(exchange, routing, { body, usageEdit: undefined })
  }

  /**
   * The response to which a relayed request refers: of its path, or of its body where the path names an
   * action (`POST …/compact`). An operator's route with `*` does not tell actions from ids: what is known as
   * an id is one, and for a client with a key everything is.
   */
  async #responseOf(
    exchange: HttpExchange,
    previous: string | undefined,
    unread: string | undefined,
  ): Promise<string | undefined> {
    const [, id, behind] = RESPONSE_PATH.exec(exchange.path) ?? []
    if (id === undefined) return undefined
    const hasKey = leaseOf(exchange) !== undefined
    if (exchange.method !== 'POST' || behind === '/') return id
    if (!this.#isNamedAction(exchange.path) && (hasKey || (await this.#isResponse(id)))) return id
    if (unread !== undefined && hasKey) throw new ResponseUnknownError(`(not known: the body ${unread})`)
    return previous
  }

  /** The operator relays this path as it is spelled. */
  #isNamedAction(path: string): boolean {
    const { relayRoutes = [] } = this.#parts.args
    return relayRoutes.some(
      route => route.path === path && (route.method === undefined || takesMethod(route, 'POST')),
    )
  }

  /** Whether this gateway or another one knows a response of this id. */
  async #isResponse(id: string): Promise<boolean> {
    const { responses, peers } = this.#parts
    if (responses.heldOf(id) !== undefined) return true
    const held = await peers?.heldOf(id)
    if (held !== undefined) responses.heard(id, held)
    return held !== undefined
  }

  #servedModel(name: string): string {
    const { fleet, names } = this.#parts
    const isListed = () => fleet().workers.some(({ models }) => models.some(card => card.name === name))
    return servedModel(name, names(), isListed)
  }

  /** The client's name for the conversation: of a header, else of the body. */
  #session(read: ReadRequest, { headers }: HttpExchange): string | undefined {
    for (const name of this.#parts.args.affinityHeaders) {
      const given = headers[name]
      if (typeof given === 'string' && given !== '') return given
    }
    return read.session
  }

  /**
   * Pins to the worker that has response `id`. If the engine no longer has it, the engine says so. A client
   * with a key has only responses that it made itself: throws ResponseUnknownError for all others, and for
   * those that are not remembered, because their engine would not ask whose they are.
   */
  async #atHolder(
    request: RoutingRequest,
    id: string | undefined,
    exchange: HttpExchange,
  ): Promise<RoutingRequest> {
    const client = leaseOf(exchange)?.key.name
    if (id === undefined) return request
    if (client === undefined && request.pinnedInstanceId !== undefined) return request
    const { responses, peers, fleet, metrics } = this.#parts
    if (peers !== undefined && responses.heldOf(id) === undefined) {
      const held = await peers.heldOf(id)
      if (held !== undefined) responses.heard(id, held)
    }
    const holder = responses.find(id, fleet(), request.model)
    const isOwn = client === undefined || responses.heldOf(id)?.client === client
    // At another worker the same id may be another client's.
    const isThere =
      client === undefined || (request.pinnedInstanceId ?? holder?.instanceId) === holder?.instanceId
    if (!isOwn || !isThere) {
      metrics.responseLost()
      throw new ResponseUnknownError(id)
    }
    if (request.pinnedInstanceId !== undefined) return request
    const allowed = request.constraints?.allowedInstanceIds
    if (holder === undefined || allowed?.includes(holder.instanceId) === false) {
      metrics.responseLost()
      return { ...request, unknownPromptReason: HOLDER_UNKNOWN }
    }
    return {
      ...request,
      pinnedInstanceId: holder.instanceId,
      pinnedRank: request.pinnedRank ?? holder.dpRank,
      unknownPromptReason: AT_HOLDER,
    }
  }

  /** The decision for a body; sends and changes nothing. Never rejects. */
  async explain(body: Uint8Array, headers: HttpHeaders): Promise<Explained> {
    try {
      const { args } = this.#parts
      const isChat = scanRequest(body).byName.has('messages')
      const route = isChat ? 'chat' : 'completions'
      const given = await this.#read({ route, body }, headers, false)
      const { read, ignored } = this.#trust.apply(given, headers)
      const id = requestId(headers, this.#parts.newId)
      const request = this.#routing(read, route, id, undefined, ignored)
      const answer = await args.router.ask({ type: 'explain', request }, { timeout: args.askMsMax })
      if ('code' in answer) return { kind: 'refused', error: answer, param: undefined }
      return { kind: 'explained', receipt: answer, tokenizedBy: read.tokenizedBy }
    } catch (thrown) {
      const { param } = thrown as { readonly param?: string }
      return { kind: 'refused', error: toErrorRecord(thrown), param }
    }
  }

  /** For a continuation; undefined: the ids of the prompt of this body are not known exactly. */
  async exactIds({ headers }: HttpExchange, given: GivenBody): Promise<Int32Array | undefined> {
    const { tokenIds, tokenizedBy, isCounted, estimate, promptTokens } = await this.#read(
      given,
      headers,
      true,
    )
    const isExact = (isCounted === true || tokenizedBy === 'client') && estimate === undefined
    return isExact && tokenIds?.length === promptTokens ? tokenIds : undefined
  }

  /**
   * What is left of a request, as the completion of token ids with which another worker goes on. Its prompt
   * is another one; what its client said of where it may go is not in that body, and is as before.
   */
  async continued(exchange: HttpExchange, body: Uint8Array, given: RoutingRequest): Promise<ReadyRequest> {
    const read = await this.#read({ route: 'completions', body }, exchange.headers, false)
    const rest = this.#routing(read, 'completions', given.requestId, given.sessionId, given.ignoredHints)
    const { expectedOutputTokens: expected } = given
    const deliveredTokens = rest.promptTokens - given.promptTokens
    return {
      routing: {
        ...given,
        promptTokens: rest.promptTokens,
        estimate: rest.estimate,
        counted: rest.counted,
        blockSizeTokens: rest.blockSizeTokens,
        localHashes: rest.localHashes,
        sequenceHashes: rest.sequenceHashes,
        unknownPromptReason: rest.unknownPromptReason,
        textBlocksReason: rest.textBlocksReason,
        separated: rest.separated,
        cacheUse: rest.cacheUse,
        outputTokensMax: rest.outputTokensMax,
        expectedOutputTokens: expected === undefined ? undefined : Math.max(1, expected - deliveredTokens),
        slice: undefined,
        leg: undefined,
        legCosts: undefined,
      },
      upstream: {
        method: 'POST',
        path: COMPLETIONS_PATH,
        headers: withoutEncoding(exchange.headers),
        body: read.upstreamBody ?? body,
        usageEdit: read.usageEdit,
      },
      legs: { route: 'completions', isWholePin: false, prefillPin: undefined },
    }
  }

  /** Undefined: its workers do not say. */
  modelTokens(model: string): number | undefined {
    const cards = this.#parts.fleet().workers.flatMap(({ models }) => models)
    const sizes = cards.flatMap(card => (card.name === model ? (card.maxModelTokens ?? []) : []))
    return sizes.length === 0 ? undefined : Math.min(...sizes)
  }

  /**
   * A request whose program sends it itself: `token_ids`, or any prompt, with `nvext`. Hints of programs
   * count: they have the rights of operators. Rejects with what is wrong with the body.
   */
  async placeable({ body, ids }: ProgramPrompt, id: string | undefined): Promise<RoutingRequest> {
    const read = await this.#read({ route: 'completions', body, promptIds: ids }, NO_HEADERS, false)
    return this.#routing(read, 'completions', id ?? this.#parts.newId(), read.session, undefined)
  }

  /**
   * How an engine makes a prompt of a relayed request is not known, but what separates its blocks from
   * others is.
   */
  #separatedRelay(read: RelayedRequest): SeparatedPrompt | undefined {
    const cards = this.#parts.fleet().workers.flatMap(({ models }) => models)
    const hasAdapter =
      read.hasLoraPath || cards.some(({ name, base }) => name === read.model && base !== undefined)
    const separators =
      (read.hasCacheSalt || read.cacheSalt !== undefined ? SALT : 0) |
      (hasAdapter ? ADAPTER : 0) |
      (read.hasExtraKey ? EXTRA_KEY : 0)
    if (separators === 0) return undefined
    return { firstTokens: 0, hashes: new Int32Array(0), unnamed: [separators] }
  }

  /**
   * `nvext.annotations: ["query_instance_id"]`: the choice as server-sent events; nothing is sent or booked.
   */
  async #selectOnly(exchange: HttpExchange, given: GivenBody, routing: RoutingRequest): Promise<void> {
    const { args, fleet } = this.#parts
    const answer = await args.router.ask({ type: 'explain', request: routing }, { timeout: args.askMsMax })
    if ('code' in answer) throw fromErrorRecord(answer)
    const { tokenIds } = await this.#read(given, exchange.headers, true)
    const worker = fleet().workers.find(({ keys }) => keys.some(({ key }) => key === answer.worker))
    const events = [
      `event: worker_instance_id\ndata: ${JSON.stringify(String(worker?.instanceId ?? ''))}\n\n`,
      `event: token_data\ndata: ${JSON.stringify([...(tokenIds ?? [])])}\n\n`,
      'data: [DONE]\n\n',
    ]
    exchange.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
      'x-homing-worker': answer.worker,
      'x-homing-overlap-blocks': String(answer.overlapBlocks),
      'x-homing-trust': answer.trust,
    })
    exchange.end(new TextEncoder().encode(events.join('')))
  }

  async #read(
    { route, body, promptIds, hold }: GivenBody,
    headers: HttpHeaders,
    wantTokenIds: boolean,
  ): Promise<ReadRequest> {
    const loan = hold?.lend()
    const reading = this.#ask({ route, body, promptIds, headers: singleHeaders(headers), wantTokenIds })
    // Without an answer it is not known whether a thread still reads.
    if (loan !== undefined)
      reading.then(
        () => loan.giveBack(),
        () => loan.lose(),
      )
    const result = await this.#inTime(reading, body.length + (promptIds?.byteLength ?? 0))
    if (result.kind === 'refused') throw new RefusedError(result.error, result.param)
    return result.request
  }

  async #ask(given: ReadBody): Promise<ReadResult> {
    const { tokenizer, own, readMsMax } = this.#parts.args
    const options = { timeout: TOKENIZER_MS_MAX }
    if (own !== undefined && given.body.length <= own.nearBodyBytesMax) {
      // One that has failed reads nothing; the tokenizer does.
      const near = await own.nearTokenizer.ask({ type: 'read', ...given }, options).catch(() => undefined)
      if (near !== undefined && near.kind !== 'elsewhere') return near
    }
    return tokenizer.ask({ type: 'read', ...given, waitMsMax: readMsMax }, options)
  }

  /** Rejects after `readMsMax`; from then on the body counts until `reading` has ended. */
  #inTime(reading: Promise<ReadResult>, bodyBytes: number): Promise<ReadResult> {
    const { args, bodies, clock } = this.#parts
    const { readMsMax } = args
    return new Promise((resolve, reject) => {
      const late = () => {
        const giveBack = bodies.keep(bodyBytes)
        reading.then(giveBack, giveBack)
        reject(new AskTimeoutError('tokenizer', 'read', readMsMax))
      }
      const timer = clock.after(readMsMax, late, { unref: true })
      reading.then(resolve, reject).finally(() => timer.cancel())
    })
  }

  #routing(
    read: ReadRequest,
    route: CompletionRoute,
    id: string,
    session: string | undefined,
    ignoredHints: string | undefined,
  ): RoutingRequest {
    const { tokenizedBy: by } = read
    const isCounted = read.isCounted === true && (by === 'router' || by === 'engine')
    return {
      requestId: id,
      model: read.model,
      promptTokens: read.promptTokens,
      estimate: read.estimate,
      counted: isCounted ? { by, route } : undefined,
      blockSizeTokens: read.blockSizeTokens,
      localHashes: read.localHashes,
      sequenceHashes: read.sequenceHashes,
      unknownPromptReason: read.unknownPromptReason,
      textBlocksReason: read.textBlocksReason,
      separated: read.separated,
      cacheUse: read.cacheUse,
      sessionId: session,
      override: read.override,
      moeQuery: read.moeQuery,
      constraints: read.constraints,
      isStream: read.isStream,
      expectedOutputTokens: read.expectedOutputTokens,
      outputTokensMax: read.outputTokensMax,
      choicesCount: read.choicesCount ?? 1,
      tracking: read.tracking,
      ignoredHints,
      pinnedInstanceId: read.pinnedInstanceId,
      pinnedRank: read.pinnedRank,
      excludedWorkers: [],
    }
  }
}

function ready(
  { method, path, query, headers }: HttpExchange,
  routing: RoutingRequest,
  upstream: Pick<UpstreamRequest, 'body' | 'usageEdit' | 'tokens'>,
  upstreamHeaders = headers,
): ReadyRequest {
  const target = query === '' ? path : `${path}?${query}`
  return { routing, upstream: { method, path: target, headers: upstreamHeaders, ...upstream } }
}

/** What is kept of a prompt to slice it is never the reason to refuse it. */
function hasRoom(hold: BodyHold, { bytes }: SlicedPrompt): boolean {
  try {
    hold.take(BYTES_OF_SLICES * bytes)
    return true
  } catch {
    return false
  }
}

function withoutEncoding(headers: HttpHeaders): HttpHeaders {
  if (headers['content-encoding'] === undefined) return headers
  const { 'content-encoding': _, ...others } = headers
  return others
}

/** The client's x-request-id, or one of ours: receipts keep it, so a long one is not taken. */
function requestId(headers: HttpHeaders, newId: () => string): string {
  const given = headers['x-request-id']
  const isUsable = typeof given === 'string' && given !== '' && given.length <= ID_CHARACTERS_MAX
  return isUsable ? given : newId()
}

function singleHeaders(headers: HttpHeaders): Record<string, string> {
  const single: Record<string, string> = {}
  for (const name in headers) {
    const value = headers[name]
    if (typeof value === 'string') single[name] = value
  }
  return single
}

const ID_CHARACTERS_MAX = 256
const COMPLETIONS_PATH = '/v1/completions'
const NO_HEADERS: HttpHeaders = {}
