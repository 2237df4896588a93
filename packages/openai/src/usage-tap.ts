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
 * The events of a stream differ in their text alone. Nothing is looked for in a text, so an event that is
 * like the one that a template was made of (event-template.ts) says the same, and is not walked.
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
import { EventRelay, type EventRelayOptions } from './event-relay.ts'
import { EventTemplate, FIELD } from './event-template.ts'

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
   * changed or held back. The bytes given are only read, and not kept.
   */
  push(bytes: Uint8Array): Uint8Array {
    if (bytes.length > 0) this.#hasBytes = true
    this.#relay?.begin(bytes)
    if (this.#lines === undefined) this.#members.push(bytes, 0, bytes.length)
    else this.#lines.push(bytes)
    return this.#relay === undefined ? bytes : this.#relay.end()
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

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const DONE = Buffer.from('[DONE]')

/** Where the automaton is in a line. */
type LineState = 'field' | 'space' | 'payload' | 'ignored'

/** Finds the payloads of `data:` lines. A line ends with LF, CR or CR LF, an event with an empty line. */
class EventLines {
  readonly #members: MemberTap
  readonly #relay: EventRelay
  #state: LineState = 'field'
  /** Bytes of FIELD that matched so far. */
  #fieldMatched = 0
  /** Bytes of DONE that matched so far; −1: the payload is something else. */
  #doneMatched = 0
  #isEmptyLine = true
  /** No line since the last empty one. */
  #isFirstLine = true
  #followsCarriageReturn = false
  #hasData = false
  /** Where in the chunk the event under way began; −1: in an earlier one. */
  #eventAt = -1
  readonly #template = new EventTemplate()
  isDone = false
  eventsCount = 0

  constructor(members: MemberTap, relay: EventRelay) {
    this.#members = members
    this.#relay = relay
  }

  push(bytes: Uint8Array): void {
    let at = 0
    this.#eventAt = -1
    while (at < bytes.length) {
      if (this.#isFirstLine && this.#isEmptyLine && !this.#followsCarriageReturn) {
        const end = this.#template.endOf(bytes, at)
        if (end > at) {
          this.eventsCount++
          this.#relay.eventLikeLearnt(at, end - 1)
          at = end
          continue
        }
        this.#eventAt = at
      }
      const byte = bytes[at]!
      if (byte === LINE_FEED && this.#followsCarriageReturn) {
        this.#followsCarriageReturn = false
        this.#relay.lineFeedAt(at)
        at++
        continue
      }
      this.#followsCarriageReturn = byte === CARRIAGE_RETURN
      if (byte === LINE_FEED || byte === CARRIAGE_RETURN) {
        this.#endLine(bytes, at)
        at++
        continue
      }
      if (this.#isEmptyLine) {
        this.#isEmptyLine = false
        // An event of several lines is none that asking for usage adds or changes.
        if (this.#isFirstLine) this.#relay.eventAt(at)
        else this.#relay.noteForeign()
        this.#isFirstLine = false
      }
      if (this.#state === 'field') {
        this.#matchField(byte)
        at++
      } else if (this.#state === 'space') {
        this.#state = 'payload'
        if (byte === 0x20) at++
      } else {
        const end = lineEnd(bytes, at)
        if (this.#state === 'payload') this.#payload(bytes, at, end)
        at = end
      }
    }
  }

  #matchField(byte: number): void {
    if (byte !== FIELD[this.#fieldMatched]) {
      this.#state = 'ignored'
      this.#relay.noteForeign()
    } else if (++this.#fieldMatched === FIELD.length) {
      this.#state = 'space'
      // Lines of one event are joined by a line feed, which is white space between JSON tokens.
      this.#doneMatched = this.#hasData ? -1 : 0
      this.#hasData = true
    }
  }

  /** Bytes that may still become [DONE] are withheld from the members until that is decided. */
  #payload(bytes: Uint8Array, from: number, to: number): void {
    let at = from
    while (at < to && this.#doneMatched >= 0) {
      if (bytes[at] !== DONE[this.#doneMatched]) {
        this.#releaseWithheld()
        break
      }
      at++
      if (++this.#doneMatched === DONE.length) {
        this.isDone = true
        this.#hasData = false
        this.#state = 'ignored'
        return
      }
    }
    this.#members.push(bytes, at, to)
  }

  #releaseWithheld(): void {
    this.#members.push(DONE, 0, this.#doneMatched)
    this.#doneMatched = -1
  }

  /** The event that ends here has been walked, and the next ones may be like it. */
  #learn(bytes: Uint8Array, end: number): void {
    const from = this.#eventAt
    if (from < 0 || !this.#relay.isUsual) return
    const text = anyTextAt(bytes, from, end)
    if (text >= 0 && this.#template.learn(bytes, from, text, end)) this.#relay.learn()
  }

  #endLine(bytes: Uint8Array, at: number): void {
    if (this.#state === 'payload' && this.#doneMatched > 0) this.#releaseWithheld()
    if (this.#isEmptyLine) {
      if (this.#hasData) {
        this.eventsCount++
        this.#learn(bytes, at + 1)
      }
      this.#hasData = false
      this.#isFirstLine = true
      this.#members.reset()
      this.#relay.eventEndsAt(at)
    }
    this.#isEmptyLine = true
    this.#state = 'field'
    this.#fieldMatched = 0
  }
}

/** What a text may be called; what stands behind the first of these is a text, if it stands in a string. */
const TEXT_NAMES = ['"content":', '"text":', '"delta":'].map(name => Buffer.from(name))
const NOTHING_FOUND: MembersFound = {
  usage: () => undefined,
  error: () => undefined,
  choices: () => undefined,
  choiceEnd: () => undefined,
  type: () => undefined,
  id: () => undefined,
  responseObject: () => undefined,
}

/** Where in the event `bytes[from, to)` a text begins in which nothing is looked for; −1: there is none. */
function anyTextAt(bytes: Uint8Array, from: number, to: number): number {
  const event = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from)
  for (const name of TEXT_NAMES) {
    let at = event.indexOf(name)
    if (at < 0) continue
    at += name.length
    while (event[at] === 0x20) at++
    if (event[at] !== 0x22) continue
    const walk = new MemberTap(NOTHING_FOUND, false)
    walk.push(event, FIELD.length, at + 1)
    return walk.isInText ? from + at + 1 : -1
  }
  return -1
}

function lineEnd(bytes: Uint8Array, from: number): number {
  let at = from
  while (at < bytes.length && bytes[at] !== LINE_FEED && bytes[at] !== CARRIAGE_RETURN) at++
  return at
}

type WatchedName = 'usage' | 'error' | 'object' | 'choices' | 'type' | 'response' | 'id'
const WATCHED: readonly WatchedName[] = ['usage', 'error', 'object', 'choices', 'type', 'response', 'id']
const CHOICES = WATCHED.indexOf('choices')
const RESPONSE = WATCHED.indexOf('response')
const WATCHED_BYTES = WATCHED.map(name => Buffer.from(name))
/** A usage object has some 300 bytes; of a longer value only the beginning is seen. */
const CAPTURE_BYTES_MAX = 4096
/** The value of `object` in an error that is not wrapped. */
const FLAT_ERROR = Buffer.from('"error"')
const RESPONSE_OBJECT = Buffer.from('"response"')
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

/** States of a MemberTap at depth 1; below that depth nothing is looked at but quotes and brackets. */
const NO_OBJECT = 0
const NAME_EXPECTED = 1
const NAME = 2
const COLON_EXPECTED = 3
const VALUE = 4
const WATCHED_VALUE = 5

/** Members found in an object; `usage` only if it is not null. */
interface MembersFound {
  /** Undefined: it is null. */
  usage(text: string | undefined): void
  /** `error`, or `"object": "error"`. */
  error(): void
  /** Whether the list is empty; called as soon as that is known, and perhaps again at its end. */
  choices(isEmpty: boolean): void
  /** An element of `choices` has a `finish_reason`, or a chunk ends where that would be seen. */
  choiceEnd(): void
  /** The value of `type`, as JSON. */
  type(text: string): void
  /** The value of `id`, as JSON, of a response, or of the one object of a body. */
  id(text: string): void
  /** `"object": "response"`. */
  responseObject(): void
}

const FINISH_REASON = Buffer.from('finish_reason')

/** Finds the watched top-level members of a JSON object. */
class MemberTap {
  readonly #found: MembersFound
  /** It is not one of many: its id is looked at. */
  readonly #isBody: boolean
  #depth = 0
  #state = NO_OBJECT
  #isInString = false
  #isEscaped = false
  /** 1 inside the value of `response`, whose members count as top-level members; else 0. */
  #base = 0
  /** Index in WATCHED of the member under way; −1: not watched. */
  #watched = -1
  /** What earlier chunks held of the name or watched value under way; most answers cut none. */
  #captured: Uint8Array | undefined
  #capturedBytes = 0
  hasObject = false

  constructor(found: MembersFound, isBody: boolean) {
    this.#found = found
    this.#isBody = isBody
  }

  /** An object or list is open. */
  get isInside(): boolean {
    return this.#depth > 0
  }

  /** What comes now is in a string, and neither a name nor a value that is looked at. */
  get isInText(): boolean {
    return this.#isInString && (this.#depth - this.#base > 1 || this.#state === VALUE)
  }

  /** Forgets the object that is under way. */
  reset(): void {
    this.#depth = 0
    this.#base = 0
    this.#state = NO_OBJECT
    this.#isInString = false
    this.#isEscaped = false
    this.#capturedBytes = 0
  }

  push(bytes: Uint8Array, from: number, to: number): void {
    // Relative to the object whose members are read.
    let depth = this.#depth - this.#base
    let state = this.#state
    let isInString = this.#isInString
    let isEscaped = this.#isEscaped
    // The part of the name or watched value under way that this chunk has begins here.
    let begin = from
    // The string under way begins behind this; one that an earlier chunk began is none that is looked for.
    let stringAt = -FINISH_REASON.length
    for (let at = from; at < to; at++) {
      const byte = bytes[at]!
      if (isInString) {
        if (isEscaped) isEscaped = false
        else if (byte === 0x5c) isEscaped = true
        else if (byte === 0x22) {
          isInString = false
          if (state === NAME && depth === 1) {
            this.#watched = this.#endName(bytes, begin, at)
            state = COLON_EXPECTED
          } else if (depth === 3 && at - stringAt === FINISH_REASON.length + 1) {
            this.#endNameOfChoice(bytes, stringAt + 1, at + 1, to)
          }
        }
        continue
      }
      if (byte === 0x22) {
        isInString = true
        stringAt = at
        if (state === NAME_EXPECTED && depth === 1) {
          state = NAME
          begin = at + 1
        }
      } else if (byte === 0x7b || byte === 0x5b) {
        depth++
        if (
          depth === 2 &&
          byte === 0x7b &&
          state === WATCHED_VALUE &&
          this.#watched === RESPONSE &&
          this.#base === 0
        ) {
          this.#base = 1
          depth = 1
          this.#capturedBytes = 0
        }
        if (depth === 1) {
          state = byte === 0x7b ? NAME_EXPECTED : NO_OBJECT
          this.hasObject ||= byte === 0x7b
        } else if (depth === 3 && state === WATCHED_VALUE && this.#watched === CHOICES) {
          this.#found.choices(false)
        }
      } else if (byte === 0x7d || byte === 0x5d) {
        if (depth === 1) {
          if (state === WATCHED_VALUE) this.#endValue(bytes, begin, at)
          if (this.#base === 1) {
            // Back at the top, behind the value of `response`.
            this.#base = 0
            depth = 2
            state = VALUE
          } else state = NO_OBJECT
        }
        if (depth > 0) depth--
      } else if (depth !== 1) {
        // Commas and colons count in the object itself only.
      } else if (byte === 0x2c) {
        if (state === WATCHED_VALUE) this.#endValue(bytes, begin, at)
        if (state !== NO_OBJECT) state = NAME_EXPECTED
      } else if (byte === 0x3a && state === COLON_EXPECTED) {
        state = this.#watched < 0 ? VALUE : WATCHED_VALUE
        begin = at + 1
      }
    }
    if (state === NAME || state === WATCHED_VALUE) this.#capture(bytes, begin, to)
    // What a chunk cuts may be the name that is looked for.
    if (state === WATCHED_VALUE && this.#watched === CHOICES) this.#found.choiceEnd()
    this.#depth = depth + this.#base
    this.#state = state
    this.#isInString = isInString
    this.#isEscaped = isEscaped
  }

  /** Bytes past the bound are dropped: a longer text is no name or value that is searched for. */
  #capture(bytes: Uint8Array, from: number, to: number): void {
    const count = Math.min(to - from, CAPTURE_BYTES_MAX - this.#capturedBytes)
    this.#captured ??= new Uint8Array(CAPTURE_BYTES_MAX)
    this.#captured.set(bytes.subarray(from, from + count), this.#capturedBytes)
    this.#capturedBytes += count
  }

  /** A string of this length ended in an element of a list; `behind` is the byte after its quote. */
  #endNameOfChoice(bytes: Uint8Array, from: number, behind: number, to: number): void {
    if (this.#watched !== CHOICES || !startsWith(bytes, from, FINISH_REASON)) return
    let at = behind
    while (at < to && (bytes[at]! <= 0x20 || bytes[at] === 0x3a)) at++
    // null is its value in all chunks but the last.
    if (at === to || (at > behind && bytes[at] !== 0x6e)) this.#found.choiceEnd()
  }

  /** Index in WATCHED of the name, −1 when it is not there. */
  #endName(bytes: Uint8Array, from: number, to: number): number {
    if (this.#captured === undefined || this.#capturedBytes === 0) return watchedIndex(bytes, from, to)
    this.#capture(bytes, from, to)
    const index = watchedIndex(this.#captured, 0, this.#capturedBytes)
    this.#capturedBytes = 0
    return index
  }

  #endValue(bytes: Uint8Array, from: number, to: number): void {
    const name = WATCHED[this.#watched]!
    let [source, start, end] = [bytes, from, to]
    if (this.#captured !== undefined && this.#capturedBytes > 0) {
      this.#capture(bytes, from, to)
      ;[source, start, end] = [this.#captured, 0, this.#capturedBytes]
      this.#capturedBytes = 0
    }
    // The same bound whether the value came in one chunk or in several.
    end = Math.min(end, start + CAPTURE_BYTES_MAX)
    while (start < end && source[start]! <= 0x20) start++
    if (start === end) return
    const textOf = (): string =>
      Buffer.from(source.buffer, source.byteOffset + start, end - start)
        .toString()
        .trimEnd()
    // null is the value of `usage` in all chunks but the last, and no error.
    if (source[start] === 0x6e) {
      if (name === 'usage') this.#found.usage(undefined)
    } else if (name === 'usage') {
      this.#found.usage(textOf())
    } else if (name === 'type') {
      this.#found.type(textOf())
    } else if (name === 'id') {
      if (this.#base === 1 || this.#isBody) this.#found.id(textOf())
    } else if (name === 'choices') {
      this.#found.choices(isEmptyList(source, start, end))
    } else if (name === 'error' || startsWith(source, start, FLAT_ERROR)) {
      this.#found.error()
    } else if (name === 'object' && startsWith(source, start, RESPONSE_OBJECT)) {
      this.#found.responseObject()
    }
  }
}

function startsWith(bytes: Uint8Array, at: number, word: Uint8Array): boolean {
  for (let i = 0; i < word.length; i++) if (bytes[at + i] !== word[i]) return false
  return true
}

function isEmptyList(bytes: Uint8Array, start: number, end: number): boolean {
  let at = start + 1
  while (at < end && bytes[at]! <= 0x20) at++
  return bytes[start] === 0x5b && at < end && bytes[at] === 0x5d
}

function watchedIndex(bytes: Uint8Array, from: number, to: number): number {
  for (let index = 0; index < WATCHED_BYTES.length; index++) {
    const name = WATCHED_BYTES[index]!
    if (name.length === to - from && startsWith(bytes, from, name)) return index
  }
  return -1
}

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
