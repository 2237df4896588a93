/**
 * Sends requests to one server of the OpenAI API and reads their answers.
 *
 * A request whose kept connection the server had closed meanwhile is sent once more, as clients do: on other
 * kept ones, which may be closed likewise, up to TRIES_MAX.
 */

import { type Clock, parseJson, shownText } from '@homing/base'
import type { HttpCall, HttpCallError, HttpHeaders, HttpTransport } from '@homing/transport'
import { AnswerReader } from './answer-reader.ts'
import type { Endpoint, LoadRequest } from './load-request.ts'
import type { Failure, FailureKind, HomingHeaders, Outcome } from './outcome.ts'

/** Where requests go. */
export interface Target {
  /** 'http://host:port', and the path before /v1 if there is one. */
  readonly origin: string
  /** Undefined: that of the body, else `modelUnset`. */
  readonly model: string | undefined
  readonly modelUnset: string
  readonly isStream: boolean
  /** In front of every prompt; '' is none. */
  readonly salt: string
  /** Cut out of what servers say. */
  readonly secret: string | undefined
}

export interface SendListener {
  /** Time between parts of a stream. */
  gap(ms: number): void
  ended(outcome: Outcome): void
}

/** Ends a request before its answer is whole; `ended` follows. */
export type Abort = (failure: Failure) => void

export type Send = (request: LoadRequest, listener: SendListener) => Abort

const PATHS: Readonly<Record<Endpoint, string>> = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
}
const TRIES_MAX = 8
const DETAIL_CHARACTERS_MAX = 200
const ERROR_BYTES_MAX = 16 * 1024

export function senderTo(http: Pick<HttpTransport, 'call'>, clock: Clock, target: Target): Send {
  return (request, listener) => {
    const exchange = new SentRequest(http, clock, target, request, listener)
    exchange.send()
    return failure => exchange.abort(failure)
  }
}

class SentRequest {
  readonly #http: Pick<HttpTransport, 'call'>
  readonly #clock: Clock
  readonly #target: Target
  readonly #path: string
  readonly #body: Uint8Array
  readonly #listener: SendListener
  #call: HttpCall | undefined
  #isEnded = false

  constructor(
    http: Pick<HttpTransport, 'call'>,
    clock: Clock,
    target: Target,
    request: LoadRequest,
    listener: SendListener,
  ) {
    this.#http = http
    this.#clock = clock
    this.#target = target
    this.#path = PATHS[request.endpoint]
    this.#body = Buffer.from(JSON.stringify(bodyFor(target, request)))
    this.#listener = listener
  }

  send(triesLeft = TRIES_MAX): void {
    const reader = new AnswerReader(this.#target.isStream, ms => this.#listener.gap(ms))
    let status = 0
    let headers: HttpHeaders = {}
    const said: Uint8Array[] = []
    let saidBytes = 0
    this.#call = this.#http.call(
      {
        origin: this.#target.origin,
        method: 'POST',
        path: this.#path,
        headers: { 'content-type': 'application/json' },
        body: this.#body,
      },
      {
        head: (answered, given) => {
          status = answered
          headers = given
        },
        data: bytes => {
          if (status === 200) {
            reader.push(bytes, this.#clock.nowMs())
            if (reader.fault !== undefined) this.abort({ kind: 'answer', detail: reader.fault })
          } else if (saidBytes < ERROR_BYTES_MAX) {
            said.push(bytes.slice())
            saidBytes += bytes.length
          }
        },
        end: () => {
          if (status !== 200) {
            const detail = saidText(Buffer.concat(said).toString())
            this.#fail({ kind: 'status', status, detail })
            return
          }
          reader.end(this.#clock.nowMs())
          if (reader.fault !== undefined) this.#fail({ kind: 'answer', detail: reader.fault })
          else this.#answered(reader, headers)
        },
        failed: (error, { reusedConnection }) => {
          if (this.#isEnded) return
          const isStale = status === 0 && reusedConnection && error.failure === 'reset'
          if (isStale && triesLeft > 1) this.send(triesLeft - 1)
          else this.#fail({ kind: kindOf(error), detail: String(error.details['reason']) })
        },
      },
    )
  }

  abort(failure: Failure): void {
    this.#fail(failure)
    this.#call?.abort()
  }

  #fail({ kind, status, detail }: Failure): void {
    const { secret } = this.#target
    const open = secret === undefined ? detail : detail.replaceAll(secret, '…')
    const shown = shownText(open, DETAIL_CHARACTERS_MAX)
    this.#end({ failure: { kind, ...(status !== undefined && { status }), detail: shown } })
  }

  #answered(reader: AnswerReader, headers: HttpHeaders): void {
    this.#end({
      ...reader.counts,
      firstMs: this.#target.isStream ? reader.firstMs : undefined,
      lastMs: reader.lastMs!,
      chunks: reader.chunks,
      homing: homingHeaders(headers),
    })
  }

  #end(outcome: Outcome): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#listener.ended(outcome)
  }
}

function bodyFor(target: Target, request: LoadRequest): Readonly<Record<string, unknown>> {
  const { isStream, salt } = target
  const { stream_options: options, ...body } = request.body(salt)
  return {
    ...body,
    model: target.model ?? body['model'] ?? target.modelUnset,
    stream: isStream,
    ...(isStream && { stream_options: { ...(options as object | undefined), include_usage: true } }),
  }
}

/** The message of an error in OpenAI's form, else the text. */
function saidText(text: string): string {
  try {
    const { error } = parseJson(text) as { readonly error?: { readonly message?: unknown } }
    if (typeof error?.message === 'string') return error.message
  } catch {
    // Not every error has that form.
  }
  return text
}

function kindOf({ failure }: HttpCallError): FailureKind {
  if (failure === 'connect' || failure === 'local') return 'connect'
  return failure === 'timeout' ? 'timeout' : 'connection'
}

function homingHeaders(headers: HttpHeaders): HomingHeaders | undefined {
  const textOf = (name: string): string => String(headers[name] ?? '')
  const worker = textOf('x-homing-worker')
  if (worker === '') return undefined
  return {
    worker,
    overlapBlocks: Number(textOf('x-homing-overlap-blocks')) || 0,
    trust: textOf('x-homing-trust'),
  }
}
