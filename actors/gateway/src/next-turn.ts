/**
 * Next turns: has an engine compute, after the answer of a chat whose client asks for it
 * (`nvext.agent_hints.speculative_prefill`), what the next prompt of the conversation begins with.
 *
 *   a chat ─▶ its answer is over ─▶ the same chat with the answer as its last message, for one token,
 *                                   placed like any other request; its answer is dropped
 *
 * The blocks of an answer are in the cache of its engine already, but as it generated them: a template that
 * leaves out the reasoning, or writes the answer in another way, makes other tokens of it.
 *
 * Not for answers that are not text alone, are not complete, or fail, and not while the gateway drains.
 * Bounds  `openMax` at a time, bodies and answers of at most BYTES_MAX: others are skipped, and counted.
 * Source  Dynamo's agent hint of this name.
 */

import { parseJson } from '@homing/base'
import {
  type BodyRoom,
  type ClientGoneReason,
  type HttpExchange,
  type HttpHeaders,
  passedOn,
} from '@homing/transport'
import { NotedExchange } from './noted-exchange.ts'

export interface NextTurnParts {
  /** Maximum at a time; 0: none is computed. */
  readonly openMax: number
  /** Serves an exchange as if a client had opened it. */
  readonly begin: (exchange: HttpExchange) => void
  readonly isDraining: () => boolean
}

/** Since the start. */
export interface NextTurnCounts {
  readonly sent: number
  /** Also those that were refused before they were read, as past a limit of their client. */
  readonly skipped: number
}

const PATH = '/v1/chat/completions'
const HINT = Buffer.from('"speculative_prefill"')
const BYTES_MAX = 4 * 1024 * 1024
/** What an answer to the next turn needs: its prompt is what counts. */
const LEFT_OUT = [
  'stream',
  'stream_options',
  'max_completion_tokens',
  'min_tokens',
  'n',
  'stop',
  'logprobs',
  'top_logprobs',
]
/** Of the client's message, and not of the conversation. */
const HEADERS_LEFT_OUT = ['content-length', 'expect', 'x-request-id']

export class NextTurns {
  readonly #parts: NextTurnParts
  #open = 0
  #sent = 0
  #skipped = 0

  constructor(parts: NextTurnParts) {
    this.#parts = parts
  }

  get counts(): NextTurnCounts {
    return { sent: this.#sent, skipped: this.#skipped }
  }

  /** The exchange to serve instead of this one, which sees its answer. */
  watch(http: HttpExchange): HttpExchange {
    if (this.#parts.openMax === 0 || http.path !== PATH || http.method !== 'POST') return http
    return new WatchedExchange(http, (body, answer) => this.#follow(http, body, answer))
  }

  /** `answer` undefined: it was too long. */
  #follow(http: HttpExchange, body: Uint8Array, answer: Uint8Array | undefined): void {
    const next = answer === undefined ? undefined : nextTurn(body, answer)
    // The client only wrote a word that looks like the hint.
    if (next === 'not asked') return
    const { openMax, begin, isDraining } = this.#parts
    if (next === undefined || this.#open >= openMax || isDraining()) {
      this.#skipped++
      return
    }
    this.#open++
    const headers = passedOn(http.headers, name => HEADERS_LEFT_OUT.includes(name))
    const inner = new InnerExchange(next, headers, {
      taken: () => this.#sent++,
      ended: wasTaken => {
        this.#open--
        if (!wasTaken) this.#skipped++
      },
    })
    // Until then, the answer holds the place of its client.
    http.onOver(() => begin(inner))
  }
}

/** The body of the next turn; undefined: there is none to be computed. */
function nextTurn(body: Uint8Array, answer: Uint8Array): Uint8Array | 'not asked' | undefined {
  let chat: Record<string, unknown>
  try {
    const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8')
    chat = parseJson(text) as Record<string, unknown>
  } catch {
    // What is no JSON was refused.
    return 'not asked'
  }
  const nvext = chat['nvext'] as Record<string, unknown> | null | undefined
  const hints = nvext?.['agent_hints'] as Record<string, unknown> | null | undefined
  if (hints?.['speculative_prefill'] !== true) return 'not asked'
  const content = textOf(Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength).toString('utf8'))
  const { messages } = chat
  if (content === undefined || !Array.isArray(messages)) return undefined
  const kept = Object.entries(chat).filter(([name]) => !LEFT_OUT.includes(name))
  const { agent_hints: _hints, annotations: _annotations, extra_fields: _fields, ...otherNvext } = nvext!
  return Buffer.from(
    JSON.stringify({
      ...Object.fromEntries(kept),
      messages: [...messages, { role: 'assistant', content }],
      max_tokens: 1,
      ...(Object.keys(otherNvext).length === 0 ? { nvext: undefined } : { nvext: otherNvext }),
    }),
  )
}

interface Choice {
  readonly index?: number
  readonly delta?: Message
  readonly message?: Message
  readonly finish_reason?: string | null
}

interface Message {
  readonly content?: unknown
  readonly tool_calls?: unknown
}

/** The text of the one message of an answer, streamed or whole; undefined: it has another form, or no end. */
function textOf(answer: string): string | undefined {
  const isStream = /^(?:data|event|:)/.test(answer)
  const pieces = isStream
    ? answer.split(/\r?\n/).flatMap(line => (line.startsWith('data: {') ? [line.slice(6)] : []))
    : [answer]
  let text = ''
  let isComplete = false
  for (const piece of pieces) {
    let choices: readonly Choice[] | undefined
    try {
      choices = (parseJson(piece) as { readonly choices?: readonly Choice[] }).choices
    } catch {
      return undefined
    }
    for (const { index = 0, delta, message, finish_reason: reason } of choices ?? []) {
      const { content, tool_calls: calls } = delta ?? message ?? {}
      if (index !== 0 || (Array.isArray(calls) && calls.length > 0)) return undefined
      if (typeof content === 'string') text += content
      if (typeof reason === 'string') isComplete = reason === 'stop' || reason === 'length'
    }
  }
  return isComplete && text !== '' ? text : undefined
}

/** Keeps the body of a request that may have the hint, and its answer. */
class WatchedExchange extends NotedExchange {
  readonly #watch: Watch

  constructor(http: HttpExchange, over: (body: Uint8Array, answer: Uint8Array | undefined) => void) {
    const watch: Watch = { body: undefined, answer: [], answerBytes: 0 }
    super(http, ({ status, clientGone }) => {
      const { body, answer, answerBytes } = watch
      watch.body = undefined
      watch.answer = []
      if (body === undefined || status !== 200 || clientGone !== undefined) return
      over(body, answerBytes > BYTES_MAX ? undefined : Buffer.concat(answer))
    })
    this.#watch = watch
  }

  override async readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    const body = await super.readBody(maxBytes, room)
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength)
    // A copy: the memory of a long body is given back before its answer is over.
    if (body.length <= BYTES_MAX && bytes.includes(HINT)) this.#watch.body = Buffer.from(bytes)
    return body
  }

  override write(bytes: Uint8Array): boolean {
    this.#keep(bytes)
    return super.write(bytes)
  }

  override end(bytes?: Uint8Array): void {
    if (bytes !== undefined) this.#keep(bytes)
    super.end(bytes)
  }

  #keep(bytes: Uint8Array): void {
    const watch = this.#watch
    if (watch.body === undefined) return
    watch.answerBytes += bytes.length
    if (watch.answerBytes <= BYTES_MAX) watch.answer.push(bytes)
    else watch.answer = []
  }
}

interface Watch {
  body: Uint8Array | undefined
  answer: Uint8Array[]
  answerBytes: number
}

interface InnerTold {
  /** It is read, so it is a request like any other. */
  readonly taken: () => void
  readonly ended: (wasTaken: boolean) => void
}

/** A request of our own, whose answer is dropped. */
class InnerExchange implements HttpExchange {
  readonly method = 'POST'
  readonly path = PATH
  readonly query = ''
  readonly peerAddress = ''
  readonly headers: HttpHeaders
  isClosed = false
  readonly #body: Uint8Array
  readonly #told: InnerTold
  readonly #onOver: (() => void)[] = []
  #isTaken = false

  constructor(body: Uint8Array, headers: HttpHeaders, told: InnerTold) {
    this.#body = body
    this.headers = headers
    this.#told = told
  }

  async readBody(_maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    room?.check(this.#body.length)
    room?.take(this.#body.length)
    this.#isTaken = true
    this.#told.taken()
    return this.#body
  }

  onClientGone(_callback: (reason: ClientGoneReason) => void): void {}

  writeHead(): void {}

  write(): boolean {
    return true
  }

  onDrain(): void {}

  onOver(callback: () => void): void {
    if (this.isClosed) queueMicrotask(callback)
    else this.#onOver.push(callback)
  }

  end(): void {
    if (this.isClosed) return
    this.isClosed = true
    this.#told.ended(this.#isTaken)
    for (const callback of this.#onOver.splice(0)) callback()
  }

  destroy(): void {
    this.end()
  }
}
