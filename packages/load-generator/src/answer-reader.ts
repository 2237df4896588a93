/**
 * Reads the answer to one request as its bytes come: when its first and its last token came, how many there
 * were, what its usage says, and what was wrong with it. It holds an event, or a body that is one JSON
 * object.
 */

import { StringDecoder } from 'node:string_decoder'
import { EventData, parseJson } from '@homing/base'

/** Of an event of a stream, and of a body that is no stream. */
const PIECE_CHARACTERS_MAX = 64 * 1024 * 1024
const FAULT_CHARACTERS_MAX = 200

interface Usage {
  readonly prompt_tokens?: unknown
  readonly completion_tokens?: unknown
  readonly prompt_tokens_details?: { readonly cached_tokens?: unknown } | null
}

export interface TokenCounts {
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  readonly cachedTokens: number | undefined
}

export class AnswerReader {
  readonly #isStream: boolean
  readonly #gap: (ms: number) => void
  readonly #decoder = new StringDecoder('utf8')
  readonly #events = new EventData()
  /** Of a body that is no stream. */
  #text = ''
  #usage: Usage | undefined
  #isDone = false
  /** What was wrong; undefined: nothing so far. */
  fault: string | undefined
  /** When the first and the last token came. */
  firstMs: number | undefined
  lastMs: number | undefined
  /** Events with a part of the answer; usually a token each. */
  chunks = 0

  /** `gap` gets the time between parts of a stream that follow each other. */
  constructor(isStream: boolean, gap: (ms: number) => void) {
    this.#isStream = isStream
    this.#gap = gap
  }

  push(bytes: Uint8Array, nowMs: number): void {
    if (this.fault !== undefined) return
    const text = this.#decoder.write(bytes as Buffer)
    if (this.#isStream) for (const data of this.#events.push(text)) this.#data(data, nowMs)
    else this.#text += text
    if (this.#text.length + this.#events.openCharacters > PIECE_CHARACTERS_MAX)
      this.fault = `more than ${PIECE_CHARACTERS_MAX} characters in one piece`
  }

  /** The answer is whole. */
  end(nowMs: number): void {
    if (this.fault !== undefined) return
    if (this.#isStream) {
      for (const data of this.#events.end()) this.#data(data, nowMs)
      if (this.fault === undefined && !this.#isDone) this.fault = 'the stream ended without [DONE]'
    } else this.#object(this.#text.replace(/^\ufeff/, ''), nowMs)
    if (this.fault === undefined && this.chunks === 0 && this.#count('completion_tokens') === undefined)
      this.fault = 'the answer has no token'
    this.lastMs ??= nowMs
  }

  get counts(): TokenCounts {
    const cached = this.#usage?.prompt_tokens_details?.cached_tokens
    return {
      promptTokens: this.#count('prompt_tokens'),
      completionTokens: this.#count('completion_tokens'),
      cachedTokens: typeof cached === 'number' ? cached : undefined,
    }
  }

  #count(name: 'prompt_tokens' | 'completion_tokens'): number | undefined {
    const count = this.#usage?.[name]
    return typeof count === 'number' ? count : undefined
  }

  #data(data: string, nowMs: number): void {
    if (this.fault !== undefined) return
    const payload = data.trim()
    if (payload === '[DONE]') this.#isDone = true
    else if (payload !== '') this.#object(payload, nowMs)
  }

  #object(text: string, nowMs: number): void {
    let value: unknown
    try {
      value = parseJson(text)
    } catch {
      value = undefined
    }
    if (typeof value !== 'object' || value === null) {
      this.fault = `not JSON: ${text.slice(0, FAULT_CHARACTERS_MAX)}`
      return
    }
    const { choices, usage, error } = value as Record<string, unknown>
    if (error !== undefined && error !== null) {
      this.fault = `an error in the answer: ${JSON.stringify(error).slice(0, FAULT_CHARACTERS_MAX)}`
      return
    }
    if (typeof usage === 'object' && usage !== null) this.#usage = usage as Usage
    if (!Array.isArray(choices) || !choices.some(hasOutput)) return
    this.chunks++
    if (this.lastMs !== undefined) this.#gap(nowMs - this.lastMs)
    this.firstMs ??= nowMs
    this.lastMs = nowMs
  }
}

const OUTPUTS = ['content', 'reasoning_content', 'reasoning', 'refusal', 'text'] as const

/** The first event of a chat has a role and no token. */
function hasOutput(choice: unknown): boolean {
  if (typeof choice !== 'object' || choice === null) return false
  const { delta, message } = choice as Record<string, unknown>
  return [choice, delta, message].some(part => {
    if (typeof part !== 'object' || part === null) return false
    const members = part as Record<string, unknown>
    const calls = members['tool_calls']
    const isText = OUTPUTS.some(name => typeof members[name] === 'string' && members[name] !== '')
    return isText || (Array.isArray(calls) && calls.length > 0)
  })
}
