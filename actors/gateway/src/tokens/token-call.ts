/**
 * Token call: one call to a worker that takes token ids, as a call to an engine of the OpenAI API.
 *
 *   request   ids of the prompt, and of what another worker has generated  ─▶ POST /v1/tokens
 *   answer    lines of ids ─▶ text, stop strings, end ─▶ head, chunks or one JSON body, end
 *
 *   waiting ──head 200──▶ answering ──finish_reason, or an end that the router finds──▶ over
 *      └──another status──▶ passing: the answer is passed as it is
 *
 * Invariants
 *   I1  The head comes with the first output, so that nothing has passed of an answer that fails before it.
 *   I2  After an end that the router finds, the worker's request is aborted: nothing behind it is generated.
 *   I3  An answer that ends without a finish_reason, or with one by which the worker gives it up, has failed,
 *       and so has one with a line that is no output.
 *
 * Bounds   a line of TOKEN_LINE_BYTES_MAX; what waits for a client that reads slowly waits in the transport.
 */

import type { Clock } from '@homing/base'
import { apiError, errorEvent, isGivenUp, TokenAnswer } from '@homing/openai'
import { encodeTokenRequest, TOKENS_PATH, TOKENS_TYPE, type TokenLine, TokenLines } from '@homing/protocol'
import {
  type HttpCall,
  HttpCallError,
  type HttpCallFailure,
  type HttpFailure,
  type HttpHeaders,
  type HttpRequest,
  type HttpResponseHandler,
  type HttpTransport,
} from '@homing/transport'
import type { TokenPrompt } from './token-prompt.ts'
import { type TokenEnding, TokenState } from './token-state.ts'

export interface TokenCallParts {
  readonly http: Pick<HttpTransport, 'call'>
  readonly clock: Clock
  /** Counts an answer that is over. */
  readonly ended: (ending: TokenEnding | 'failed', unknownIds: number) => void
}

export interface TokenCallOptions {
  /** Of this attempt. */
  readonly requestId: string
  /** Of a stream, whether its client or the router wants it. */
  readonly wantsUsage: boolean
}

/** Wait for the end of an answer behind its last line, so that its connection can be used again. */
const END_MS_MAX = 1000
const FAILED: HttpFailure = { wroteRequest: true, reusedConnection: false }
const STREAM_HEAD: HttpHeaders = { 'content-type': 'text/event-stream; charset=utf-8' }
const JSON_HEAD: HttpHeaders = { 'content-type': 'application/json' }

export class TokenCall implements HttpCall {
  readonly #parts: TokenCallParts
  readonly #request: HttpRequest
  readonly #prompt: TokenPrompt
  readonly #handler: HttpResponseHandler
  readonly #state: TokenState
  readonly #answer: TokenAnswer
  readonly #lines = new TokenLines()
  readonly #call: HttpCall
  #stage: 'waiting' | 'answering' | 'passing' | 'over' = 'waiting'
  #hasBegun = false
  #isWorkerDone = false
  #hasEndedUpstream = false

  /** `request`: as it would go to an engine; origin and headers count. Begins at once. */
  constructor(
    parts: TokenCallParts,
    request: HttpRequest,
    prompt: TokenPrompt,
    { requestId, wantsUsage }: TokenCallOptions,
    handler: HttpResponseHandler,
  ) {
    const { wishes, resumed } = prompt
    this.#parts = parts
    this.#request = request
    this.#prompt = prompt
    this.#handler = handler
    const kind = wishes.form === 'chat' ? 'chatcmpl' : 'cmpl'
    const seconds = Math.floor(parts.clock.wallMs() / 1000)
    this.#state = resumed ?? new TokenState(prompt, `${kind}-${requestId}`, seconds)
    prompt.state = this.#state
    this.#answer = new TokenAnswer({
      wishes: { ...wishes, wantsUsage },
      model: wishes.model,
      id: this.#state.id,
      createdSeconds: this.#state.createdSeconds,
      promptTokens: prompt.ids.length,
    })
    const headers = { ...request.headers, 'content-type': 'application/json', accept: TOKENS_TYPE }
    const { origin } = request
    this.#call = parts.http.call(
      { origin, method: 'POST', path: TOKENS_PATH, headers, body: this.#body(requestId) },
      {
        sent: () => handler.sent?.(),
        head: (status, given) => this.#head(status, given),
        data: bytes => this.#data(bytes),
        end: how => this.#end(how),
        failed: (error, info) => this.#failed(error, info),
      },
    )
  }

  /** The client's body is not sent. */
  get usesBody(): boolean {
    return false
  }

  abort(): void {
    if (this.#isWorkerDone && !this.#hasEndedUpstream) {
      this.#parts.clock.after(END_MS_MAX, () => this.#call.abort(), { unref: true })
      return
    }
    if (this.#stage !== 'over') this.#over('failed')
    this.#call.abort()
  }

  pause(): void {
    this.#call.pause()
  }

  resume(): void {
    this.#call.resume()
  }

  #body(requestId: string): Uint8Array {
    const { ids, wishes, texts } = this.#prompt
    const state = this.#state
    const generated = this.#prompt.resumed === undefined ? [] : (state.ids ?? [])
    const rank = this.#request.headers?.['x-data-parallel-rank']
    return encodeTokenRequest(
      {
        requestId,
        model: this.#prompt.model,
        tokenIds: generated,
        resumedTokens: generated.length,
        eosTokenIds: [...texts.endIds],
        stopConditions: {
          maxTokens: state.left,
          minTokens: wishes.minTokens === 0 ? undefined : Math.max(0, wishes.minTokens - generated.length),
          stop: wishes.stop,
          stopTokenIds: wishes.stopTokenIds,
          ignoreEos: wishes.ignoresEos,
        },
        samplingOptions: wishes.sampling,
        cacheSalt: wishes.cacheSalt,
        dpRank: rank === undefined ? undefined : Number(rank),
      },
      ids,
    )
  }

  #head(status: number, headers: HttpHeaders): void {
    if (this.#stage !== 'waiting') return
    if (status !== 200) {
      this.#stage = 'passing'
      this.#handler.head(status, headers)
      return
    }
    const type = String(headers['content-type'] ?? '')
    if (type.startsWith(TOKENS_TYPE)) this.#stage = 'answering'
    else this.#break('protocol', `answered ${status} with ${type || 'no content-type'}, not ${TOKENS_TYPE}`)
  }

  #data(bytes: Uint8Array): void {
    if (this.#stage === 'passing') this.#handler.data(bytes)
    if (this.#stage !== 'answering') return
    for (const line of this.#lines.push(bytes)) {
      if (line === undefined) this.#break('protocol', 'answered with a line that is no output of token ids')
      else this.#line(line)
      if (this.#isOver) return
    }
  }

  /** What passes may make its owner abort. */
  get #isOver(): boolean {
    return this.#stage === 'over'
  }

  #line(line: TokenLine): void {
    if ('error' in line) {
      this.#said(line.error)
      return
    }
    const { tokenIds, finishReason, cachedTokens } = line
    if (isGivenUp(finishReason)) {
      if (tokenIds.length > 0) this.#line({ ...line, finishReason: undefined })
      if (!this.#isOver) this.#said('it gave up the request')
      return
    }
    const step = this.#state.take(tokenIds, finishReason, cachedTokens)
    const isFirst = this.#begin()
    if (this.#isOver) return
    const isStarting = isFirst && step.end === undefined && this.#prompt.resumed === undefined
    const piece = this.#answer.piece(step, isStarting)
    const bytes = step.end === undefined ? piece : Buffer.concat([piece, this.#answer.end(step.end)])
    if (step.end !== undefined) {
      this.#isWorkerDone = finishReason !== undefined
      this.#over(this.#state.ending ?? 'worker')
      if (!this.#isWorkerDone) this.#call.abort()
    }
    if (bytes.length > 0) this.#handler.data(bytes)
    if (step.end !== undefined) this.#handler.end('framed')
  }

  /** True: the head has come with it. */
  #begin(): boolean {
    if (this.#hasBegun) return false
    this.#hasBegun = true
    const { wishes, resumed } = this.#prompt
    this.#handler.head(200, wishes.isStream ? STREAM_HEAD : JSON_HEAD)
    const bytes = resumed === undefined ? this.#answer.begin() : new Uint8Array(0)
    if (bytes.length > 0 && !this.#isOver) this.#handler.data(bytes)
    return true
  }

  /** The worker says that the request has failed. */
  #said(message: string): void {
    if (!this.#prompt.wishes.isStream || !this.#hasBegun) {
      this.#break('reset', `said: ${message}`)
      return
    }
    this.#over('failed')
    this.#call.abort()
    this.#handler.data(errorEvent(apiError('upstream_failed', message), 'completions'))
    this.#handler.end('framed')
  }

  #end(how: 'framed' | 'closed'): void {
    this.#hasEndedUpstream = true
    if (this.#stage === 'passing') {
      this.#over('failed')
      this.#handler.end(how)
    } else if (this.#stage !== 'over') this.#break('reset', 'its answer ended without a finish_reason')
  }

  #failed(error: HttpCallError, info: HttpFailure): void {
    this.#hasEndedUpstream = true
    if (this.#stage === 'over') return
    this.#over('failed')
    this.#handler.failed(error, info)
  }

  #break(failure: HttpCallFailure, reason: string): void {
    this.#over('failed')
    this.#call.abort()
    const { origin } = this.#request
    const error = new HttpCallError({ method: 'POST', origin, path: TOKENS_PATH }, failure, new Error(reason))
    this.#handler.failed(error, FAILED)
  }

  #over(ending: TokenEnding | 'failed'): void {
    this.#stage = 'over'
    this.#parts.ended(ending, this.#state.unknownCount)
  }
}
