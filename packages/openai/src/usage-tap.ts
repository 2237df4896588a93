/**
 * UsageTap: reads an engine's figures about an answer from its bytes as they pass, without holding the
 * answer.
 *
 *   bytes ─▶ lines of an event stream ─▶ payload of `data:` ─▶ top-level members of each JSON object
 *   bytes ───────────────────────────────────────────────────▶ top-level members of the one JSON object
 *
 * It is an automaton over single bytes: chunks may be split anywhere, inside a UTF-8 sequence, a name or a
 * line end, and the answer is the same. Memory is one capture of at most CAPTURE_BYTES_MAX, and an event that
 * is not whole: a stream passes in whole events (event-relay.ts), all else as it comes.
 *
 * It does not validate: the engine's bytes go to the client in any case. It learns nothing from a text that
 * is not JSON. Names with escapes in them are not recognised; no engine writes such names.
 *
 * Source: the WHATWG event stream format; usage as vLLM and SGLang report it (usage of the last event that
 * has one; null in the others; of a stream of responses inside the member `response`), errors inside a stream
 * as {"error": …} or flat with "object": "error"; the last events of OpenAI's Responses and Anthropic's
 * Messages by their `type`.
 */

import { parseJson } from '@homing/base'
import { ByteOrderMark } from './byte-order-mark.ts'
import { EventLines } from './event-lines.ts'
import { EventRelay, type EventRelayOptions } from './event-relay.ts'
import type { AlikeEvents } from './event-template.ts'
import { MemberTap } from './member-tap.ts'

/** What passed until now. Counts are undefined where the engine did not report them. */
export interface UsageReport {
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  /** prompt_tokens_details.cached_tokens. */
  readonly cachedTokens: number | undefined
  /** The id of a response (`"object": "response"`), with at most RESPONSE_ID_CHARACTERS_MAX characters. */
  readonly responseId: string | undefined
  /** An object with `error`, or with `"object": "error"`, passed. */
  readonly sawError: boolean
  /**
   * For a stream: the event passed that ends every stream of its kind: `[DONE]`, or the last one of a
   * response or message.
   */
  readonly isDone: boolean
  /** Events with data, [DONE] not counted; 0 for a JSON body. */
  readonly eventsCount: number
  /** What came ends inside an event, or inside the JSON body; also true of an empty body. */
  readonly isInside: boolean
}

export class UsageTap {
  readonly #relay: EventRelay | undefined
  readonly #mark: ByteOrderMark | undefined
  readonly #lines: EventLines | undefined
  readonly #members: MemberTap
  #hasBytes = false
  #promptTokens: number | undefined
  #completionTokens: number | undefined
  #cachedTokens: number | undefined
  #sawError = false
  #sawLastType = false
  #sawOutput = false
  #id: string | undefined
  #isResponse = false

  /** 'sse' for text/event-stream, 'json' for a body that is one JSON object; `options` are for streams. */
  constructor(form: 'sse' | 'json', options: EventRelayOptions = {}) {
    this.#relay = form === 'sse' ? new EventRelay(options) : undefined
    this.#mark = form === 'sse' ? new ByteOrderMark() : undefined
    this.#members = new MemberTap(
      {
        usage: text => this.#usage(text),
        error: () => {
          this.#sawError = true
          this.#relay?.noteForeign()
        },
        choices: isEmpty => this.#relay?.noteChoices(isEmpty),
        choiceEnd: () => this.#relay?.noteChoiceEnd(),
        type: text => {
          if (LAST_TYPES.has(text)) this.#sawLastType = true
          if (!EARLY_TYPES.has(text)) this.#sawOutput = true
        },
        id: text => {
          if (RESPONSE_ID.test(text)) this.#id = text.slice(1, -1)
        },
        responseObject: () => {
          this.#isResponse = true
        },
      },
      form === 'json',
    )
    this.#lines = this.#relay === undefined ? undefined : new EventLines(this.#members, this.#relay)
  }

  /** An object with `error`, or with `"object": "error"`, passed. */
  get sawError(): boolean {
    return this.#sawError
  }

  /** True once a byte passed. */
  get hasBytes(): boolean {
    return this.#hasBytes
  }

  /** A JSON object began: a stream of events or a body that never has one is not what an engine sends. */
  get hasObject(): boolean {
    return this.#members.hasObject
  }

  /** A whole event with a JSON object has passed, or the one that ends the stream. Comments are none. */
  get hasEvent(): boolean {
    const lines = this.#lines
    return lines !== undefined && ((lines.eventsCount > 0 && this.#members.hasObject) || lines.isDone)
  }

  /** Of a stream of responses or messages: an event passed that is not sent before the prompt is computed. */
  get hasOutput(): boolean {
    return this.#sawOutput
  }

  /**
   * Takes the next bytes of the answer and returns those that pass on: the same array, unless some are
   * changed, left out or held back. The bytes given are only read, and not kept.
   */
  push(given: Uint8Array): Uint8Array {
    if (given.length > 0) this.#hasBytes = true
    const bytes = this.#mark === undefined ? given : this.#mark.behind(given)
    this.#relay?.begin(bytes)
    if (this.#lines === undefined) this.#members.push(bytes, 0, bytes.length)
    else this.#lines.push(bytes)
    return this.#relay === undefined ? bytes : this.#relay.end()
  }

  /** Where the texts are of the bytes that came last, if that is known of all their events. */
  get alike(): AlikeEvents | undefined {
    return this.#lines?.alike
  }

  /** The held bytes, for an answer that ends here; empty if there are none. */
  takeRest(): Uint8Array {
    return this.#relay?.takeRest() ?? new Uint8Array(0)
  }

  /** The same without half an event, for an answer that is cut here. */
  takeWhole(): Uint8Array {
    return this.#relay?.takeWhole() ?? new Uint8Array(0)
  }

  /** What passed until now; may be called at any time and more than once. */
  finish(): UsageReport {
    return {
      promptTokens: this.#promptTokens,
      completionTokens: this.#completionTokens,
      cachedTokens: this.#cachedTokens,
      responseId: this.#isResponse ? this.#id : undefined,
      sawError: this.#sawError,
      isDone: this.#lines !== undefined && (this.#lines.isDone || this.#sawLastType),
      eventsCount: this.#lines?.eventsCount ?? 0,
      isInside: this.#relay?.isInsideEvent ?? (this.#members.isInside || !this.#hasBytes),
    }
  }

  #usage(text: string | undefined): void {
    const usage = text === undefined ? undefined : tryObject(text)
    this.#relay?.noteUsage(usage === undefined)
    if (usage === undefined) return
    const { promptTokens, completionTokens, cachedTokens } = countsOf(usage)
    this.#promptTokens = promptTokens
    this.#completionTokens = completionTokens
    this.#cachedTokens = cachedTokens
  }
}

/** A longer id is not reported. */
export const RESPONSE_ID_CHARACTERS_MAX = 256
const RESPONSE_ID = new RegExp(`^"[\\w.~:-]{1,${RESPONSE_ID_CHARACTERS_MAX}}"$`)

/** Values of `type` behind which nothing follows in a stream of responses or messages. */
const LAST_TYPES: ReadonlySet<string> = new Set(
  ['message_stop', 'response.completed', 'response.incomplete', 'response.failed', 'error'].map(type =>
    JSON.stringify(type),
  ),
)

/** Values of `type` of events that are sent before the prompt is computed. */
const EARLY_TYPES: ReadonlySet<string> = new Set(
  ['message_start', 'ping', 'response.created', 'response.queued', 'response.in_progress'].map(type =>
    JSON.stringify(type),
  ),
)

/**
 * Counts of completions; of responses, whose `input_tokens` are the whole prompt; of messages, which count
 * tokens read from a cache and written to one separately.
 */
function countsOf(
  usage: Readonly<Record<string, unknown>>,
): Pick<UsageReport, 'promptTokens' | 'completionTokens' | 'cachedTokens'> {
  const cachedIn = (name: string): number | undefined => {
    const details = usage[name]
    return isRecord(details) ? tryCount(details['cached_tokens']) : undefined
  }
  const input = tryCount(usage['input_tokens'])
  if (input === undefined || usage['prompt_tokens'] !== undefined) {
    return {
      promptTokens: tryCount(usage['prompt_tokens']),
      completionTokens: tryCount(usage['completion_tokens']),
      cachedTokens: cachedIn('prompt_tokens_details'),
    }
  }
  const completionTokens = tryCount(usage['output_tokens'])
  if (isRecord(usage['input_tokens_details'])) {
    return { promptTokens: input, completionTokens, cachedTokens: cachedIn('input_tokens_details') }
  }
  const cachedTokens = tryCount(usage['cache_read_input_tokens'])
  const createdTokens = tryCount(usage['cache_creation_input_tokens'])
  return { promptTokens: input + (cachedTokens ?? 0) + (createdTokens ?? 0), completionTokens, cachedTokens }
}

/** Undefined for a text that was cut or never was JSON: then there is no usage to report. */
function tryObject(text: string): Readonly<Record<string, unknown>> | undefined {
  if (!text.startsWith('{')) return undefined
  try {
    const value: unknown = parseJson(text)
    return isRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function tryCount(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined
}
