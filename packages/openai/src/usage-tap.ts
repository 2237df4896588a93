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
    if (name === 'error') {
      if (text !== 'null') this.#sawError = true
    } else if (name === 'object') {
      if (text === '"error"') this.#sawError = true
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
const NAME_BYTES_MAX = 8
/** A usage object has some 300 bytes; a longer one is not read. */
const CAPTURE_BYTES_MAX = 4096

type MemberState = 'name-expected' | 'name' | 'colon-expected' | 'value' | 'not-an-object'

/** Hands out the values of watched top-level members of a JSON object, as text. */
class MemberTap {
  readonly #found: (name: WatchedName, text: string) => void
  #depth = 0
  #state: MemberState = 'not-an-object'
  #isInString = false
  #isEscaped = false
  /** What is captured now: nothing, the name of a member, or the value of a watched one. */
  #capturing: 'nothing' | 'name' | WatchedName = 'nothing'
  readonly #captured = Buffer.alloc(CAPTURE_BYTES_MAX)
  #capturedBytes = 0
  #watched: WatchedName | undefined

  constructor(found: (name: WatchedName, text: string) => void) {
    this.#found = found
  }

  /** Forgets the object that is under way. */
  reset(): void {
    this.#depth = 0
    this.#state = 'not-an-object'
    this.#isInString = false
    this.#isEscaped = false
    this.#capturing = 'nothing'
  }

  push(bytes: Uint8Array, from: number, to: number): void {
    // What is captured of this chunk is bytes[captureFrom … at − 1], copied when the capture or the chunk ends.
    let captureFrom = from
    let at = from
    while (at < to) {
      if (this.#isInString) {
        if (this.#isEscaped) {
          this.#isEscaped = false
          at++
          continue
        }
        while (at < to && bytes[at] !== 0x22 && bytes[at] !== 0x5c) at++
        if (at === to) break
        if (bytes[at] === 0x5c) {
          this.#isEscaped = true
        } else {
          this.#isInString = false
          if (this.#state === 'name') this.#endName(bytes, captureFrom, at)
        }
        at++
        continue
      }
      switch (bytes[at]) {
        case 0x22: // "
          this.#isInString = true
          if (this.#depth === 1 && this.#state === 'name-expected') {
            this.#state = 'name'
            this.#beginCapture('name')
            captureFrom = at + 1
          }
          break
        case 0x7b: // {
        case 0x5b: // [
          this.#depth++
          if (this.#depth === 1) this.#state = bytes[at] === 0x7b ? 'name-expected' : 'not-an-object'
          break
        case 0x7d: // }
        case 0x5d: // ]
          if (this.#depth === 1) {
            this.#endValue(bytes, captureFrom, at)
            this.#state = 'not-an-object'
          }
          if (this.#depth > 0) this.#depth--
          break
        case 0x2c: // ,
          if (this.#depth === 1 && this.#state !== 'not-an-object') {
            this.#endValue(bytes, captureFrom, at)
            this.#state = 'name-expected'
          }
          break
        case 0x3a: // :
          if (this.#depth === 1 && this.#state === 'colon-expected') {
            this.#state = 'value'
            if (this.#watched !== undefined) {
              this.#beginCapture(this.#watched)
              captureFrom = at + 1
            }
          }
          break
      }
      at++
    }
    if (this.#capturing !== 'nothing') this.#capture(bytes, captureFrom, to)
  }

  #beginCapture(what: 'name' | WatchedName): void {
    this.#capturing = what
    this.#capturedBytes = 0
  }

  /** Bytes past the bound are counted, not kept. */
  #capture(bytes: Uint8Array, from: number, to: number): void {
    const room = CAPTURE_BYTES_MAX - this.#capturedBytes
    if (room > 0) this.#captured.set(bytes.subarray(from, Math.min(to, from + room)), this.#capturedBytes)
    this.#capturedBytes += to - from
  }

  #endName(bytes: Uint8Array, from: number, to: number): void {
    this.#capture(bytes, from, to)
    this.#capturing = 'nothing'
    this.#state = 'colon-expected'
    this.#watched = undefined
    if (this.#capturedBytes > NAME_BYTES_MAX) return
    const name = this.#captured.toString('latin1', 0, this.#capturedBytes)
    this.#watched = WATCHED.find(watched => watched === name)
  }

  #endValue(bytes: Uint8Array, from: number, to: number): void {
    const name = this.#capturing
    if (name === 'nothing' || name === 'name') return
    this.#capture(bytes, from, to)
    this.#capturing = 'nothing'
    const text = this.#captured.toString('utf8', 0, Math.min(this.#capturedBytes, CAPTURE_BYTES_MAX))
    this.#found(name, text.trim())
  }
}

/** Undefined for null, and for a text that was cut or never was JSON: then there is no usage to report. */
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
