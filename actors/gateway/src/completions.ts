/**
 * Completions: one request on its way from bytes to dispatch.
 *
 *   body -> tokenizer (model, prompt hashes, nvext) -> router (where) -> dispatcher (there and back)
 *
 * `/route` walks the same way as far as the receipt. Other `/v1` routes skip the tokenizer: their
 * prompts leave nothing in a KV cache that a later request could use, so they go by load.
 */

import type { UpstreamRequest } from '@homing/dispatcher'
import { type ErrorRecord, fromErrorRecord, RouterError } from '@homing/errors'
import { scanRequest } from '@homing/openai'
import type { Decision, RoutingRequest } from '@homing/router'
import type { CompletionRoute, ReadRequest } from '@homing/tokenizer'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { BodyHold } from './bodies.ts'
import type { GatewayParts } from './gateway-parts.ts'
import { sendJson } from './send.ts'
import { receiptView } from './views.ts'

/** A refusal of another actor, as this exchange throws it: same code, and the field at fault. */
class RefusedError extends RouterError {
  readonly code: string
  readonly param: string | undefined

  constructor(record: ErrorRecord, param: string | undefined) {
    super(record.message, record.details)
    this.code = record.code
    this.param = param
  }
}

const NOT_A_COMPLETION = 'not a completion: served by load'
/** Block size of requests whose prompt is not known: it only scales their cost. */
const ASSUMED_BLOCK_SIZE_TOKENS = 16

export class Completions {
  readonly #parts: GatewayParts

  constructor(parts: GatewayParts) {
    this.#parts = parts
  }

  async serve(exchange: HttpExchange, route: CompletionRoute, hold: BodyHold): Promise<void> {
    const { args, context } = this.#parts
    const startedMs = context.clock.nowMs()
    const body = await exchange.readBody(args.bodyBytesMax, hold)
    const read = await this.#read(route, body, exchange.headers, false)
    const routing = this.#routing(read, requestId(exchange, this.#parts.newId))
    if (read.annotations.includes('query_instance_id')) {
      return this.#selectOnly(exchange, route, body, routing)
    }
    const upstream = { body: read.upstreamBody ?? body, usageEdit: read.usageEdit }
    await this.#send(exchange, route, upstream, hold, routing, startedMs)
  }

  /** Any other `/v1` route: bytes through, to the worker with the least load. */
  async relay(exchange: HttpExchange, hold: BodyHold): Promise<void> {
    const { args, context, newId } = this.#parts
    const startedMs = context.clock.nowMs()
    const hasBody = exchange.method !== 'GET' && exchange.method !== 'HEAD'
    const body = hasBody ? await exchange.readBody(args.bodyBytesMax, hold) : undefined
    const routing: RoutingRequest = {
      requestId: requestId(exchange, newId),
      model: body === undefined ? '' : modelIn(body, exchange.headers),
      promptTokens: 0,
      blockSizeTokens: ASSUMED_BLOCK_SIZE_TOKENS,
      localHashes: new Int32Array(0),
      sequenceHashes: new Int32Array(0),
      unknownPrompt: NOT_A_COMPLETION,
      textBlocks: undefined,
      override: {},
      pinnedInstanceId: undefined,
      pinnedRank: undefined,
      excludedWorkers: [],
    }
    await this.#send(exchange, 'other', { body, usageEdit: undefined }, hold, routing, startedMs)
  }

  /** `POST /route`: the receipt, nothing sent, nothing changed. */
  async explain(exchange: HttpExchange, hold: BodyHold): Promise<void> {
    const { args } = this.#parts
    const body = await exchange.readBody(args.bodyBytesMax, hold)
    const isChat = scanRequest(body).byName.has('messages')
    const read = await this.#read(isChat ? 'chat' : 'completions', body, exchange.headers, false)
    const answer = await args.router.ask(
      { type: 'explain', request: this.#routing(read, requestId(exchange, this.#parts.newId)) },
      { timeout: args.askMsMax },
    )
    if ('code' in answer) throw fromErrorRecord(answer)
    sendJson(exchange, 200, { ...receiptView(answer), tokenized_by: read.tokenizedBy })
  }

  async #send(
    exchange: HttpExchange,
    route: CompletionRoute | 'other',
    upstream: Pick<UpstreamRequest, 'body' | 'usageEdit'>,
    hold: BodyHold,
    routing: RoutingRequest,
    startedMs: number,
  ): Promise<void> {
    const { args, context, exchanges, metrics } = this.#parts
    const result = await args.router.ask({ type: 'decide', request: routing }, { timeout: args.askMsMax })
    if (result.kind === 'refused') throw fromErrorRecord(result.error)
    const { decision } = result
    if (exchange.isClosed) {
      // The client left while the router was choosing: nobody else knows of the booking.
      args.tracker.tell({ type: 'free', requestId: decision.id })
      return
    }
    metrics.decided(routing, decision)
    const query = exchange.query === '' ? '' : `?${exchange.query}`
    const number = exchanges.open(exchange, route, startedMs, hold)
    const status = args.dispatcher.tell({
      type: 'dispatch',
      exchange: number,
      request: {
        method: exchange.method,
        path: exchange.path + query,
        headers: exchange.headers,
        ...upstream,
      },
      routing,
      decision,
      sink: context.self,
    })
    if (status !== 'ok') this.#undispatched(number, decision, status)
  }

  /** The dispatcher's mailbox is full, or it restarts: the exchange fails here. */
  #undispatched(number: number, decision: Decision, status: 'full' | 'dead'): void {
    const { args, exchanges } = this.#parts
    args.tracker.tell({ type: 'free', requestId: decision.id })
    exchanges.answer({
      type: 'answerFailed',
      exchange: number,
      error: {
        code: 'HOMING_ACTOR_ASK_REFUSED',
        message: `cannot dispatch the request: the dispatcher is ${status === 'full' ? 'overloaded' : 'restarting'}`,
        details: { status },
      },
      decision,
    })
  }

  /** `nvext.annotations: ["query_instance_id"]`: the choice as server-sent events; nothing is sent or booked. */
  async #selectOnly(
    exchange: HttpExchange,
    route: CompletionRoute,
    body: Uint8Array,
    routing: RoutingRequest,
  ): Promise<void> {
    const { args, fleet } = this.#parts
    const answer = await args.router.ask({ type: 'explain', request: routing }, { timeout: args.askMsMax })
    if ('code' in answer) throw fromErrorRecord(answer)
    const { tokenIds } = await this.#read(route, body, exchange.headers, true)
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
    route: CompletionRoute,
    body: Uint8Array,
    headers: HttpHeaders,
    wantTokenIds: boolean,
  ): Promise<ReadRequest> {
    const { args } = this.#parts
    const result = await args.tokenizer.ask(
      { type: 'read', route, body, headers: singleHeaders(headers), wantTokenIds },
      { timeout: args.readMsMax },
    )
    if (result.kind === 'refused') throw new RefusedError(result.error, result.param)
    return result.request
  }

  #routing(read: ReadRequest, id: string): RoutingRequest {
    return {
      requestId: id,
      model: read.model,
      promptTokens: read.promptTokens,
      blockSizeTokens: read.blockSizeTokens,
      localHashes: read.localHashes,
      sequenceHashes: read.sequenceHashes,
      unknownPrompt: read.unknownPrompt,
      textBlocks: read.textBlocks,
      override: {
        ...(read.overlapScoreWeight === undefined ? {} : { overlapScoreWeight: read.overlapScoreWeight }),
        ...(read.temperature === undefined ? {} : { temperature: read.temperature }),
      },
      pinnedInstanceId: read.pinnedInstanceId,
      pinnedRank: read.pinnedRank,
      excludedWorkers: [],
    }
  }
}

/** The client's x-request-id, or one of ours. */
function requestId(exchange: HttpExchange, newId: () => string): string {
  const given = exchange.headers['x-request-id']
  return typeof given === 'string' && given !== '' ? given : newId()
}

function singleHeaders(headers: HttpHeaders): Record<string, string> {
  const single: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (typeof value === 'string') single[name] = value
  }
  return single
}

/** The model named in a JSON body; '' (any worker) where there is none or the body is not JSON. */
function modelIn(body: Uint8Array, headers: HttpHeaders): string {
  if (!String(headers['content-type'] ?? '').includes('json')) return ''
  const member = scanRequest(body).byName.get('model')
  if (member === undefined) return ''
  const value: unknown = JSON.parse(
    Buffer.from(body.subarray(member.value.start, member.value.end)).toString(),
  )
  return typeof value === 'string' ? value : ''
}
