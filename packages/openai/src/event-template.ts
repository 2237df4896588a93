/**
 * Event template: what the events of a stream have around their text.
 *
 *   data: {"id":"c","choices":[{"index":0,"delta":{"content":" two"},"finish_reason":null}]}↵↵
 *   └───────────── prefix ────────────────────────────────────┘    └──────── suffix ───────────┘
 *
 * An event that begins and ends like the learnt one, with a text between them, differs from it in that text
 * alone. It is compared, and need be neither walked nor parsed.
 */

const QUOTE = 0x22
const BACKSLASH = 0x5c
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
/** Below it are control characters, which JSON has in no text: one may be a line end. */
const SPACE = 0x20
/** Longer events are not learnt. */
const LEARNT_BYTES_MAX = 4096
const NOTHING = new Uint8Array(0)

/** Events of a chunk that has no others: each like the one that a template was made of. */
export interface AlikeEvents {
  readonly template: EventTemplate
  /** Where in the chunk each text begins and ends, in turn. */
  readonly texts: readonly number[]
}

export class EventTemplate {
  #prefix: Uint8Array = NOTHING
  #suffix: Uint8Array = NOTHING
  /** Where in the bytes the text of the event is that was found like the learnt one. */
  textFrom = 0
  textTo = 0
  /** Changes with each event that is learnt. */
  version = 0

  /** Behind the event at `at`, if it is like the learnt one; `at`: it is not, or not all of it is there. */
  endOf(bytes: Uint8Array, at: number): number {
    const prefix = this.#prefix
    if (prefix.length === 0 || !isAt(bytes, at, prefix)) return at
    const from = at + prefix.length
    const to = textEnd(bytes, from)
    const suffix = this.#suffix
    if (!isAt(bytes, to, suffix)) return at
    this.textFrom = from
    this.textTo = to
    return to + suffix.length
  }

  /**
   * Others are to be like the event `bytes[from, to)`, whose text begins at `text`. False: its text is empty,
   * or it is not one line of data.
   */
  learn(bytes: Uint8Array, from: number, text: number, to: number): boolean {
    const end = textEnd(bytes, text)
    if (end === text || bytes[end] !== QUOTE || to - from > LEARNT_BYTES_MAX) return false
    if (!isOneLine(bytes, from, to)) return false
    this.#prefix = bytes.slice(from, text)
    this.#suffix = bytes.slice(end, to)
    this.version++
    return true
  }

  /** Whether both find the same events, and the same texts in them. */
  isLike(other: EventTemplate): boolean {
    return isSame(this.#prefix, other.#prefix) && isSame(this.#suffix, other.#suffix)
  }
}

/** `data:` and a line feed, and an empty line of one more. */
function isOneLine(bytes: Uint8Array, from: number, to: number): boolean {
  if (!isAt(bytes, from, FIELD) || bytes[to - 1] !== LINE_FEED || bytes[to - 2] !== LINE_FEED) return false
  for (let at = from; at < to - 2; at++) {
    const byte = bytes[at]
    if (byte === LINE_FEED || byte === CARRIAGE_RETURN) return false
  }
  return true
}

export const FIELD = Buffer.from('data:')

/** Where the text ends that begins at `from`: at its quote, or where it is none. */
export function textEnd(bytes: Uint8Array, from: number): number {
  let at = from
  for (; at < bytes.length; at++) {
    const byte = bytes[at]!
    if (byte === QUOTE || byte < SPACE) return at
    if (byte === BACKSLASH && at + 1 < bytes.length && bytes[++at]! < SPACE) return at
  }
  return at
}

/**
 * Where in the event `bytes[from, to)`, of one line, the text begins that stands at `path`: a list is entered
 * at its first element. −1: there is none, or only a parser can tell (names twice, names with escapes).
 */
export function textAt(bytes: Uint8Array, from: number, to: number, path: readonly Buffer[]): number {
  if (!isOneLine(bytes, from, to)) return -1
  let at = behindSpace(bytes, from + FIELD.length)
  for (let depth = 0; depth < path.length; depth++) {
    if (bytes[at] === LIST_OPEN) at = behindSpace(bytes, at + 1)
    if (bytes[at] !== OPEN) return -1
    at = valueAt(bytes, behindSpace(bytes, at + 1), to, path[depth]!)
    if (at < 0) return -1
  }
  if (bytes[at] !== QUOTE) return -1
  const text = at + 1
  const end = textEnd(bytes, text)
  if (bytes[end] !== QUOTE) return -1
  // Names may be written otherwise, or come again behind it, and then count.
  const before = Buffer.from(bytes.buffer, bytes.byteOffset + from, at - from)
  const behind = Buffer.from(bytes.buffer, bytes.byteOffset + end, to - end)
  if (before.includes(BACKSLASH) || behind.includes(BACKSLASH)) return -1
  return path.some(name => behind.includes(name)) ? -1 : text
}

const OPEN = 0x7b
const CLOSE = 0x7d
const LIST_OPEN = 0x5b
const LIST_CLOSE = 0x5d
const COLON = 0x3a
const COMMA = 0x2c

/** The value of a member of the object whose first name is at `at`; −1: it has none of this name. */
function valueAt(bytes: Uint8Array, at: number, to: number, name: Uint8Array): number {
  while (at < to && bytes[at] === QUOTE) {
    const isIt = isAt(bytes, at, name)
    at = behindSpace(bytes, textEnd(bytes, at + 1) + 1)
    if (bytes[at] !== COLON) return -1
    at = behindSpace(bytes, at + 1)
    if (isIt) return at
    at = behindSpace(bytes, valueEnd(bytes, at, to))
    if (bytes[at] !== COMMA) return -1
    at = behindSpace(bytes, at + 1)
  }
  return -1
}

/** Where the value ends that begins at `at`: at the comma or bracket behind it. */
function valueEnd(bytes: Uint8Array, at: number, to: number): number {
  for (let depth = 0; at < to; at++) {
    const byte = bytes[at]!
    if (byte === QUOTE) at = textEnd(bytes, at + 1)
    else if (byte === OPEN || byte === LIST_OPEN) depth++
    else if (byte === CLOSE || byte === LIST_CLOSE) {
      if (depth === 0) return at
      depth--
    } else if (byte === COMMA && depth === 0) return at
  }
  return at
}

function behindSpace(bytes: Uint8Array, at: number): number {
  while (bytes[at] === SPACE) at++
  return at
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && isAt(one, 0, other)
}

function isAt(bytes: Uint8Array, at: number, expected: Uint8Array): boolean {
  const { length } = expected
  if (at + length > bytes.length) return false
  for (let i = 0; i < length; i++) if (bytes[at + i] !== expected[i]) return false
  return true
}
