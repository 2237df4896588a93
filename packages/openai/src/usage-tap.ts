/**
 * UsageTap: reads what an engine says about an answer from its bytes as they pass, without holding the answer.
 *
 *   bytes ─▶ lines of an event stream ─▶ payload of `data:` ─▶ top-level members of each JSON object
 *   bytes ───────────────────────────────────────────────────▶ top-level members of the one JSON object
 *
 * It is an automaton over single bytes: chunks may be split anywhere, inside a UTF-8 sequence, a name or
 * a line end, and the answer is the same. Memory is one capture of at most CAPTURE_BYTES_MAX.
 *
 * Asked to, it takes out the event that was not the client's wish: the one with usage and without choices
 * (event-cut.ts). All other bytes pass as they came, and at once, but for the beginning of an event that a chunk
 * ends in: it waits until its first choice is seen, as no reader could do anything with it before.
 *
 * It does not validate: what an engine sends goes to the client in any case. From a text that is not JSON it
 * learns nothing. Names with escapes in them are not recognised; no engine writes such.
 *
 * Source: the WHATWG event stream format; usage as vLLM and SGLang report it (usage of the last event that
 * has one; null in the others), errors inside a stream as {"error": …} or flat with "object": "error".
 */

import { EventCut } from './event-cut.ts'

/** What passed until now. Counts are undefined where the engine did not report them. */
export interface UsageReport {
  readonly promptTokens: number | undefined
  readonly completionTokens: number | undefined
  /** prompt_tokens_details.cached_tokens. */
  readonly cachedTokens: number | undefined
  /** An object with `error`, or with `"object": "error"`, passed. */
  readonly sawError: boolean
  /** `data: [DONE]` passed. */
  readonly isDone: boolean
  /** Events with data, [DONE] not counted; 0 for a JSON body. */
  readonly eventsCount: number
}

export interface UsageTapOptions {
  /** The event with usage and without choices does not pass; for event streams. Default false. */
  readonly cutsUsageEvent?: boolean
}

export class UsageTap {
  readonly #cut: EventCut | undefined
  readonly #lines: EventLines | undefined
  readonly #members: MemberTap
  #hasBytes = false
  #promptTokens: number | undefined
  #completionTokens: number | undefined
  #cachedTokens: number | undefined
  #sawError = false

  /** 'sse' for text/event-stream, 'json' for a body that is one JSON object. */
  constructor(form: 'sse' | 'json', { cutsUsageEvent = false }: UsageTapOptions = {}) {
    this.#cut = cutsUsageEvent ? new EventCut() : undefined
    this.#members = new MemberTap({
      usage: text => this.#usage(text),
      error: () => {
        this.#sawError = true
        this.#cut?.pass()
      },
      choices: isEmpty => {
        if (isEmpty) this.#cut?.noteEmptyChoices()
        else this.#cut?.pass()
      },
    })
    this.#lines = form === 'sse' ? new EventLines(this.#members, this.#cut) : undefined
  }

  /** True once a byte passed. */
  get hasBytes(): boolean {
    return this.#hasBytes
  }

  /**
   * Takes the next bytes of the answer and returns those that pass on: the same array, unless some are cut or held
   * back. The bytes given are only read, and not kept.
   */
  push(bytes: Uint8Array): Uint8Array {
    if (bytes.length > 0) this.#hasBytes = true
    this.#cut?.begin(bytes)
    if (this.#lines === undefined) this.#members.push(bytes, 0, bytes.length)
    else this.#lines.push(bytes)
    return this.#cut === undefined ? bytes : this.#cut.end()
  }

  /** What is held back, for an answer that ends here; empty where nothing is. */
  takeRest(): Uint8Array {
    return this.#cut?.takeRest() ?? new Uint8Array(0)
  }

  /** What passed until now; may be called at any time and more than once. */
  finish(): UsageReport {
    return {
      promptTokens: this.#promptTokens,
      completionTokens: this.#completionTokens,
      cachedTokens: this.#cachedTokens,
      sawError: this.#sawError,
      isDone: this.#lines?.isDone ?? false,
      eventsCount: this.#lines?.eventsCount ?? 0,
    }
  }

  #usage(text: string): void {
    const usage = tryObject(text)
    if (usage === undefined) return
    this.#cut?.noteUsage()
    this.#promptTokens = tryCount(usage['prompt_tokens'])
    this.#completionTokens = tryCount(usage['completion_tokens'])
    const details = usage['prompt_tokens_details']
    this.#cachedTokens = isRecord(details) ? tryCount(details['cached_tokens']) : undefined
  }
}

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const FIELD = Buffer.from('data:')
const DONE = Buffer.from('[DONE]')

/** Where the automaton is in a line. */
type LineState = 'field' | 'space' | 'payload' | 'ignored'

/** Finds the payloads of `data:` lines. A line ends with LF, CR or CR LF, an event with an empty line. */
class EventLines {
  readonly #members: MemberTap
  readonly #cut: EventCut | undefined
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
  isDone = false
  eventsCount = 0

  constructor(members: MemberTap, cut: EventCut | undefined) {
    this.#members = members
    this.#cut = cut
  }

  push(bytes: Uint8Array): void {
    let at = 0
    while (at < bytes.length) {
      const byte = bytes[at]!
      if (byte === LINE_FEED && this.#followsCarriageReturn) {
        this.#followsCarriageReturn = false
        this.#cut?.lineFeedAt(at)
        at++
        continue
      }
      this.#followsCarriageReturn = byte === CARRIAGE_RETURN
      if (byte === LINE_FEED || byte === CARRIAGE_RETURN) {
        this.#endLine(at)
        at++
        continue
      }
      if (this.#isEmptyLine) {
        this.#isEmptyLine = false
        // An event of several lines is none that an engine adds.
        if (this.#isFirstLine) this.#cut?.eventAt(at)
        else this.#cut?.pass()
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
      this.#cut?.pass()
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
      this.#cut?.pass()
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

  #endLine(at: number): void {
    if (this.#state === 'payload' && this.#doneMatched > 0) this.#releaseWithheld()
    if (this.#isEmptyLine) {
      if (this.#hasData) this.eventsCount++
      this.#hasData = false
      this.#isFirstLine = true
      this.#members.reset()
      this.#cut?.eventEndsAt(at)
    }
    this.#isEmptyLine = true
    this.#state = 'field'
    this.#fieldMatched = 0
  }
}

function lineEnd(bytes: Uint8Array, from: number): number {
  let at = from
  while (at < bytes.length && bytes[at] !== LINE_FEED && bytes[at] !== CARRIAGE_RETURN) at++
  return at
}

type WatchedName = 'usage' | 'error' | 'object' | 'choices'
const WATCHED: readonly WatchedName[] = ['usage', 'error', 'object', 'choices']
const CHOICES = WATCHED.indexOf('choices')
const WATCHED_BYTES = WATCHED.map(name => Buffer.from(name))
/** A usage object has some 300 bytes; of a longer value only the beginning is seen. */
const CAPTURE_BYTES_MAX = 4096
/** The value of `object` in an error that is not wrapped. */
const FLAT_ERROR = Buffer.from('"error"')

/** States of a MemberTap at depth 1; below that depth nothing is looked at but quotes and brackets. */
const NO_OBJECT = 0
const NAME_EXPECTED = 1
const NAME = 2
const COLON_EXPECTED = 3
const VALUE = 4
const WATCHED_VALUE = 5

/** What is found in an object, unless it is null. */
interface MembersFound {
  usage(text: string): void
  /** `error`, or `"object": "error"`. */
  error(): void
  /** Whether the list is empty; called as soon as that is known, and perhaps again at its end. */
  choices(isEmpty: boolean): void
}

/** Finds the watched top-level members of a JSON object. */
class MemberTap {
  readonly #found: MembersFound
  #depth = 0
  #state = NO_OBJECT
  #isInString = false
  #isEscaped = false
  /** Index in WATCHED of the member under way; −1: not watched. */
  #watched = -1
  /** What earlier chunks held of the name or watched value under way. */
  readonly #captured = Buffer.alloc(CAPTURE_BYTES_MAX)
  #capturedBytes = 0

  constructor(found: MembersFound) {
    this.#found = found
  }

  /** Forgets the object that is under way. */
  reset(): void {
    this.#depth = 0
    this.#state = NO_OBJECT
    this.#isInString = false
    this.#isEscaped = false
    this.#capturedBytes = 0
  }

  push(bytes: Uint8Array, from: number, to: number): void {
    let depth = this.#depth
    let state = this.#state
    let isInString = this.#isInString
    let isEscaped = this.#isEscaped
    // The part of the name or watched value under way that this chunk has begins here.
    let begin = from
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
          }
        }
        continue
      }
      if (byte === 0x22) {
        isInString = true
        if (state === NAME_EXPECTED && depth === 1) {
          state = NAME
          begin = at + 1
        }
      } else if (byte === 0x7b || byte === 0x5b) {
        depth++
        if (depth === 1) state = byte === 0x7b ? NAME_EXPECTED : NO_OBJECT
        else if (depth === 3 && state === WATCHED_VALUE && this.#watched === CHOICES) {
          this.#found.choices(false)
        }
      } else if (byte === 0x7d || byte === 0x5d) {
        if (depth === 1) {
          if (state === WATCHED_VALUE) this.#endValue(bytes, begin, at)
          state = NO_OBJECT
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
    this.#depth = depth
    this.#state = state
    this.#isInString = isInString
    this.#isEscaped = isEscaped
  }

  /** Bytes past the bound are dropped: what is longer is no name and no value that is looked for. */
  #capture(bytes: Uint8Array, from: number, to: number): void {
    const count = Math.min(to - from, CAPTURE_BYTES_MAX - this.#capturedBytes)
    this.#captured.set(bytes.subarray(from, from + count), this.#capturedBytes)
    this.#capturedBytes += count
  }

  /** Index in WATCHED of the name, −1 when it is not there. */
  #endName(bytes: Uint8Array, from: number, to: number): number {
    if (this.#capturedBytes === 0) return watchedIndex(bytes, from, to)
    this.#capture(bytes, from, to)
    const index = watchedIndex(this.#captured, 0, this.#capturedBytes)
    this.#capturedBytes = 0
    return index
  }

  #endValue(bytes: Uint8Array, from: number, to: number): void {
    const name = WATCHED[this.#watched]!
    let [source, start, end] = [bytes, from, to]
    if (this.#capturedBytes > 0) {
      this.#capture(bytes, from, to)
      ;[source, start, end] = [this.#captured, 0, this.#capturedBytes]
      this.#capturedBytes = 0
    }
    // The same bound whether the value came in one chunk or in several.
    end = Math.min(end, start + CAPTURE_BYTES_MAX)
    while (start < end && source[start]! <= 0x20) start++
    // null is the value of `usage` in all chunks but the last, and no error.
    if (start === end || source[start] === 0x6e) return
    if (name === 'usage') {
      this.#found.usage(Buffer.from(source.buffer, source.byteOffset + start, end - start).toString())
    } else if (name === 'choices') {
      this.#found.choices(isEmptyList(source, start, end))
    } else if (name === 'error' || startsWith(source, start, FLAT_ERROR)) {
      this.#found.error()
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

/** Undefined for a text that was cut or never was JSON: then there is no usage to report. */
function tryObject(text: string): Readonly<Record<string, unknown>> | undefined {
  if (!text.startsWith('{')) return undefined
  try {
    const value: unknown = JSON.parse(text)
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
