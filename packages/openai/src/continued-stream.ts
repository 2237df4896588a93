/**
 * Continued stream: events of the engine that goes on, as events of the stream that the client has. Chunks
 * keep what they had there: id, time, kind, and the members of a choice; a completion becomes a chat again.
 *
 *   in    {"id":"cmpl-2","object":"text_completion","choices":[{"index":0,"text":" two", …}]}
 *   out   {"id":"chatcmpl-1","object":"chat.completion.chunk",
 *          "choices":[{"index":0,"delta":{"content":" two"}, …}]}
 *
 * Usage is that of the whole: the client's prompt, and all that was generated of it.
 */

import { parseJson } from '@homing/base'
import { textAfterMark } from './byte-order-mark.ts'
import {
  type DeliveredForm,
  eventsOf,
  payloadOf,
  type StreamChoice,
  type StreamChunk,
  tryChunk,
} from './delivered-stream.ts'

export interface ContinuedParts {
  readonly form: DeliveredForm
  /** A chunk of the stream that the client has; undefined: it has none. */
  readonly sample: StreamChunk | undefined
  /** Tokens of the client's prompt, and of what it was sent. */
  readonly promptTokens: number
  readonly deliveredTokens: number
  /** The request is sent again as it was, because nothing of its text was delivered. */
  readonly isAnew: boolean
}

const SAME = ['id', 'object', 'created', 'model'] as const

export class ContinuedStream {
  readonly #parts: ContinuedParts

  constructor(parts: ContinuedParts) {
    this.#parts = parts
  }

  /** Whole events in, whole events out. */
  convert(bytes: Uint8Array): Uint8Array {
    const events: Uint8Array[] = []
    for (const event of eventsOf(bytes)) {
      const payload = payloadOf(event)
      const chunk = payload === undefined ? undefined : tryChunk(payload)
      const converted = chunk === undefined ? event : this.#converted(chunk)
      if (converted !== undefined) events.push(converted)
    }
    return Buffer.concat(events)
  }

  /** What ends the stream where all of its text was delivered. `hasFinish`: its last chunk was, too. */
  ending({
    hasFinish,
    wantsUsage,
  }: {
    readonly hasFinish: boolean
    readonly wantsUsage: boolean
  }): Uint8Array {
    const { sample, form, promptTokens, deliveredTokens } = this.#parts
    const events: Uint8Array[] = []
    const last = form === 'chat' ? { index: 0, delta: {} } : { index: 0, text: '' }
    if (!hasFinish) events.push(eventOf(this.#alike({ choices: [{ ...last, finish_reason: 'length' }] })))
    const usage = {
      prompt_tokens: promptTokens,
      total_tokens: promptTokens + deliveredTokens,
      completion_tokens: deliveredTokens,
    }
    if (wantsUsage) events.push(eventOf({ ...sameOf(sample), choices: [], usage }))
    return streamEnd(Buffer.concat(events))
  }

  /** Undefined: the client has it already. */
  #converted(chunk: StreamChunk): Uint8Array | undefined {
    const { isAnew, sample } = this.#parts
    if (isAnew && sample !== undefined && isBeginning(chunk)) return undefined
    return eventOf(this.#alike(chunk))
  }

  #alike(chunk: StreamChunk): StreamChunk {
    const { sample, form, isAnew } = this.#parts
    if (isAnew)
      return { ...chunk, ...sameOf(sample), choices: chunk.choices.map(choice => this.#anew(choice)) }
    const { usage } = chunk
    const [choice] = chunk.choices
    const choices = choice === undefined ? [] : [this.#choice(choice, form)]
    return {
      ...chunk,
      ...sameOf(sample),
      choices,
      ...(usage != null && typeof usage === 'object' ? { usage: this.#usage(usage as Counts) } : {}),
    }
  }

  /** Whose turn it is was said before. */
  #anew(choice: StreamChoice): StreamChoice {
    const { delta } = choice
    if (this.#parts.sample === undefined || typeof delta !== 'object' || delta === null) return choice
    const { role: _, ...said } = delta as Readonly<Record<string, unknown>>
    return { ...choice, delta: said }
  }

  #choice(choice: StreamChoice, form: DeliveredForm): StreamChoice {
    const known = this.#parts.sample?.choices[0] ?? { index: 0 }
    const text = typeof choice.text === 'string' ? choice.text : ''
    const same = Object.fromEntries(Object.keys(known).map(name => [name, choice[name] ?? null]))
    // Of the client's prompt they passed before, and those of this one are others.
    if ('prompt_token_ids' in same) same['prompt_token_ids'] = null
    const { token_ids: ids } = choice
    const said = form === 'chat' ? { delta: text === '' ? {} : { content: text } } : { text }
    const stop = 'stop_reason' in choice ? { stop_reason: choice['stop_reason'] } : {}
    const isLast = choice.finish_reason != null
    return {
      ...same,
      index: 0,
      ...said,
      ...(Array.isArray(ids) ? { token_ids: ids } : {}),
      finish_reason: choice.finish_reason ?? null,
      ...(isLast ? stop : {}),
    }
  }

  #usage(usage: Counts): Counts {
    const { promptTokens, deliveredTokens } = this.#parts
    const completionTokens = deliveredTokens + Number(usage.completion_tokens ?? 0)
    const details = usage.prompt_tokens_details
    const cachedTokens = details?.cached_tokens
    return {
      ...usage,
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
      ...(details != null && typeof cachedTokens === 'number'
        ? { prompt_tokens_details: { ...details, cached_tokens: Math.min(cachedTokens, promptTokens) } }
        : {}),
    }
  }
}

/** The end of a stream behind its last events, if it lacks some. */
export function streamEnd(events: Uint8Array | undefined): Uint8Array {
  return Buffer.concat([events ?? new Uint8Array(0), Buffer.from('data: [DONE]\n\n')])
}

/** The bytes before the first event with an error of the engine, and what it says; undefined: none. */
export function engineErrorOf(
  bytes: Uint8Array,
): { readonly before: Uint8Array; readonly message: string } | undefined {
  for (const event of eventsOf(bytes)) {
    const payload = payloadOf(event)
    const error = payload === undefined ? undefined : tryError(payload)
    if (error === undefined) continue
    // The client's own fault would be one anywhere.
    if (isOfClient(error)) return undefined
    const before = bytes.subarray(0, event.byteOffset - bytes.byteOffset)
    return { before, message: String(error.message ?? 'without a message').slice(0, SAID_CHARACTERS_MAX) }
  }
  return undefined
}

/** What a whole body says that is nothing but an error of the engine; undefined: it is something else. */
export function errorAnswerOf(body: Uint8Array): string | undefined {
  const error = tryError(Buffer.from(textAfterMark(body)).toString(), ERROR_MEMBERS)
  if (error === undefined || isOfClient(error)) return undefined
  return String(error.message ?? 'without a message').slice(0, SAID_CHARACTERS_MAX)
}

const SAID_CHARACTERS_MAX = 200

/** By its status, or in the words of the engines; of the message only where there is nothing else. */
function isOfClient({ code, type, message }: EngineError): boolean {
  const status = Number(code)
  if (status >= 400 && status < 500) return true
  if (code == null && type == null) return typeof message === 'string' && CLIENT_MESSAGE.test(message)
  return [code, type].some(word => typeof word === 'string' && CLIENT_WORDS.test(word))
}

const CLIENT_WORDS =
  /invalid|bad_?request|context_length|validation|not_?found|permission|authentication|too_?long/i
const CLIENT_MESSAGE =
  /too long|context length|maximum (context|model) length|invalid (request|value|parameter)/i

interface EngineError {
  readonly code?: unknown
  readonly type?: unknown
  readonly message?: unknown
}

/** An answer has others, such as `choices`, or `status` of a response that has failed. */
const ERROR_MEMBERS: ReadonlySet<string> = new Set(['error', 'object', 'type', 'message', 'param', 'code'])

/** `{"error": {…}}`, or flat with `"object": "error"`. `members`: it may have no others. */
function tryError(payload: string, members?: ReadonlySet<string>): EngineError | undefined {
  try {
    const value = parseJson(payload) as { readonly error?: unknown; readonly object?: unknown } | null
    if (members !== undefined && !Object.keys(value ?? {}).every(name => members.has(name))) return undefined
    if (typeof value?.error === 'object' && value.error !== null) return value.error
    if (typeof value?.error === 'string') return { message: value.error }
    return value?.object === 'error' ? (value as EngineError) : undefined
  } catch {
    return undefined
  }
}

interface Counts extends Readonly<Record<string, unknown>> {
  readonly completion_tokens?: unknown
  readonly prompt_tokens_details?: { readonly cached_tokens?: unknown } | null
}

function sameOf(sample: StreamChunk | undefined): Record<string, unknown> {
  if (sample === undefined) return {}
  return Object.fromEntries(SAME.filter(name => name in sample).map(name => [name, sample[name]]))
}

/** The first chunk of a chat, which says whose turn it is and has no text. */
function isBeginning({ choices }: StreamChunk): boolean {
  const [choice] = choices
  const delta = choice?.delta as { readonly role?: unknown; readonly content?: unknown } | null | undefined
  const isEmpty = delta?.content == null || delta.content === ''
  return delta?.role != null && isEmpty && choice?.finish_reason == null
}

function eventOf(chunk: StreamChunk): Uint8Array {
  return Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`)
}
