/**
 * UsageTap: reads what an engine says about an answer from its bytes as they pass, without holding the answer.
 *
 *   bytes ─▶ lines of an event stream ─▶ payload of `data:` ─▶ top-level members of each JSON object
 *   bytes ───────────────────────────────────────────────────▶ top-level members of the one JSON object
 *
 * It is an automaton over single bytes: chunks may be split anywhere, inside a UTF-8 sequence, a name or
 * a line end, and the answer is the same. Memory is one capture of at most CAPTURE_BYTES_MAX.
 *
 * It does not validate: what an engine sends goes to the client in any case. From a text that is not JSON it
 * learns nothing. Names with escapes in them are not recognised; no engine writes such.
 *
 * Source: the WHATWG event stream format; usage as vLLM and SGLang report it (usage of the last event that
 * has one; null in the others), errors inside a stream as {"error": …} or flat with "object": "error".
 */

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

export class UsageTap {
  readonly #lines: EventLines | undefined
  readonly #members: MemberTap
  #hasBytes = false
  #promptTokens: number | undefined
  #completionTokens: number | undefined
  #cachedTokens: number | undefined
  #sawError = false

  /** 'sse' for text/event-stream, 'json' for a body that is one JSON object. */
  constructor(form: 'sse' | 'json') {
    this.#members = new MemberTap((name, value) => this.#member(name, value))
    this.#lines = form === 'sse' ? new EventLines(this.#members) : undefined
  }

  /** True once a byte passed. */
  get hasBytes(): boolean {
    return this.#hasBytes
  }

  /** Takes the next bytes of the answer; they are only read, and not kept. */
  push(bytes: Uint8Array): void {
    if (bytes.length > 0) this.#hasBytes = true
    if (this.#lines === undefined) this.#members.push(bytes, 0, bytes.length)
    else this.#lines.push(bytes)
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

  #member(name: WatchedName, text: string): void {
    if (name !== 'usage') {
      this.#sawError = true
    } else {
      const usage = tryObject(text)
      if (usage === undefined) return
      this.#promptTokens = tryCount(usage['prompt_tokens'])
      this.#completionTokens = tryCount(usage['completion_tokens'])
      const details = usage['prompt_tokens_details']
      this.#cachedTokens = isRecord(details) ? tryCount(details['cached_tokens']) : undefined
    }
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
  #state: LineState = 'field'
  /** Bytes of FIELD that matched so far. */
  #fieldMatched = 0
  /** Bytes of DONE that matched so far; −1: the payload is something else. */
  #doneMatched = 0
  #isEmptyLine = true
  #followsCarriageReturn = false
  #hasData = false
  isDone = false
  eventsCount = 0

  constructor(members: MemberTap) {
    this.#members = members
  }

  push(bytes: Uint8Array): void {
    let at = 0
    while (at < bytes.length) {
      const byte = bytes[at]!
      if (byte === LINE_FEED && this.#followsCarriageReturn) {
        this.#followsCarriageReturn = false
        at++
        continue
      }
      this.#followsCarriageReturn = byte === CARRIAGE_RETURN
      if (byte === LINE_FEED || byte === CARRIAGE_RETURN) {
        this.#endLine()
        at++
        continue
      }
      this.#isEmptyLine = false
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

  #endLine(): void {
    if (this.#state === 'payload' && this.#doneMatched > 0) this.#releaseWithheld()
    if (this.#isEmptyLine) {
      if (this.#hasData) this.eventsCount++
      this.#hasData = false
      this.#members.reset()
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

type WatchedName = 'usage' | 'error' | 'object'
const WATCHED: readonly WatchedName[] = ['usage', 'error', 'object']
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

/**
 * Finds the watched top-level members of a JSON object: `usage` with its text, and `error` and
 * `"object": "error"`, each unless it is null.
 */
class MemberTap {
  readonly #found: (name: WatchedName, text: string) => void
  #depth = 0
  #state = NO_OBJECT
  #isInString = false
  #isEscaped = false
  /** Index in WATCHED of the member under way; −1: not watched. */
  #watched = -1
  /** What earlier chunks held of the name or watched value under way. */
  readonly #captured = Buffer.alloc(CAPTURE_BYTES_MAX)
  #capturedBytes = 0

  constructor(found: (name: WatchedName, text: string) => void) {
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
    if (name === 'object' && !startsWith(source, start, FLAT_ERROR)) return
    const bytesOfUsage = name === 'usage' ? end - start : 0
    this.#found(name, Buffer.from(source.buffer, source.byteOffset + start, bytesOfUsage).toString())
  }
}

function startsWith(bytes: Uint8Array, at: number, word: Uint8Array): boolean {
  for (let i = 0; i < word.length; i++) if (bytes[at + i] !== word[i]) return false
  return true
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
