/**
 * One pass over a JSON text that checks it strictly and builds no values: only the top-level members
 * of the object are noted, as byte ranges.
 *
 * Strict is RFC 8259: UTF-8 without byte order mark, no control character in a string, no leading zeros,
 * no trailing commas, nothing after the object. Lone surrogates as \u escapes are valid there and here,
 * as in JSON.parse and Python. Of repeated names the last one counts, as in both.
 *
 * A text whose beginning has been scanned before can be scanned from a ScanPoint on: behind a message of its
 * `messages`.
 *
 * Bounds: JSON_DEPTH_MAX levels (the top-level object is level 1), MEMBERS_MAX top-level members.
 * Cost: linear, about 1 ns per byte, a tenth of it in long texts; no recursion, and no allocation but for the
 * members.
 */

import { isUtf8 } from 'node:buffer'
import { JSON_DEPTH_MAX } from '@homing/base'
import { MalformedJsonError } from './errors.ts'
import { stringEnd } from './string-end.ts'
import type { Member, MessageList, RequestScan, ScanPoint } from './types.ts'

/** An OpenAI request has some 60 known members. */
export const MEMBERS_MAX = 4096

const MESSAGES = 'messages'

const QUOTE = 0x22
const COMMA = 0x2c
const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/** 1 for bytes that end or interrupt the plain run of a string: quote, backslash, controls. */
const ENDS_RUN = new Uint8Array(256)
ENDS_RUN.fill(1, 0, 0x20)
ENDS_RUN[QUOTE] = 1
ENDS_RUN[BACKSLASH] = 1

/** Of longer texts the end is looked for by other means. */
const PLAIN_BYTES_MAX = 256

/**
 * Throws MalformedJsonError. The bytes are only read; the ranges refer to them. `known`: a point of an
 * earlier scan of bytes that were the same up to there.
 */
export function scanRequest(bytes: Uint8Array, known?: ScanPoint): RequestScan {
  const from = known?.at ?? 0
  const unread = bytes.subarray(from)
  if (!isUtf8(unread)) throw new MalformedJsonError(from + firstInvalidUtf8(unread), 'invalid UTF-8')
  const open = known?.open ?? skipSpace(bytes, 0)
  if (bytes[open] !== OPEN_BRACE) fail(bytes, open, 'expected a JSON object')

  const members: Member[] = []
  let messages: MessageList | undefined
  let at: number
  if (known === undefined) at = skipSpace(bytes, open + 1)
  else {
    members.push(...known.before)
    const ends: number[] = []
    messages = { ...known.messages, ends }
    const listEnd = skipElements(bytes, known.at, ends)
    members.push(memberOf(MESSAGES, messages.start, messages.valueStart, listEnd))
    at = skipSeparator(bytes, listEnd)
  }
  while (bytes[at] !== CLOSE_BRACE) {
    const start = at
    const nameEnd = skipString(bytes, at, 'expected a name in quotes')
    const name = decodeName(bytes, start, nameEnd)
    const valueStart = skipSpace(bytes, skipColon(bytes, nameEnd))
    let end: number
    if (name === MESSAGES && messages === undefined && bytes[valueStart] === OPEN_BRACKET) {
      const ends: number[] = []
      messages = { number: members.length, start, valueStart, ends }
      end = skipList(bytes, valueStart, ends)
    } else end = skipValue(bytes, valueStart, 0)
    members.push(memberOf(name, start, valueStart, end))
    if (members.length > MEMBERS_MAX) throw new MalformedJsonError(start, `more than ${MEMBERS_MAX} members`)
    at = skipSeparator(bytes, end)
  }
  const rest = skipSpace(bytes, at + 1)
  if (rest < bytes.length) fail(bytes, rest, 'expected nothing after the object')
  return { members, byName: new Map(members.map(member => [member.name, member])), open, close: at, messages }
}

/**
 * The point behind message `number` of a scan, from which a text that begins like this one can be scanned.
 * Undefined where there is no such message, or one that is no object: a number might go on.
 */
export function scanPoint(
  bytes: Uint8Array,
  { open, members, messages }: RequestScan,
  number: number,
): ScanPoint | undefined {
  const at = messages?.ends[number]
  if (messages === undefined || at === undefined || bytes[at - 1] !== CLOSE_BRACE) return undefined
  const { start, valueStart } = messages
  return {
    at,
    open,
    before: members.slice(0, messages.number),
    messages: { number: messages.number, start, valueStart },
  }
}

function memberOf(name: string, start: number, valueStart: number, end: number): Member {
  return { name, member: { start, end }, value: { start: valueStart, end } }
}

/** From the end of a member to the name of the next, or to the brace that closes the object. */
function skipSeparator(bytes: Uint8Array, end: number): number {
  const at = skipSpace(bytes, end)
  if (bytes[at] === CLOSE_BRACE) return at
  if (bytes[at] !== COMMA) fail(bytes, at, "expected ',' or '}'")
  const next = skipSpace(bytes, at + 1)
  if (bytes[next] !== QUOTE) fail(bytes, next, 'expected a name in quotes')
  return next
}

/**
 * Skips the list that opens at `at`, at the top level; returns its end and notes the ends of its elements.
 */
function skipList(bytes: Uint8Array, at: number, ends: number[]): number {
  const first = skipSpace(bytes, at + 1)
  if (bytes[first] === CLOSE_BRACKET) return first + 1
  const end = skipValue(bytes, first, 1)
  ends.push(end)
  return skipElements(bytes, end, ends)
}

/** From the end of an element of a list at the top level to the end of the list. */
function skipElements(bytes: Uint8Array, from: number, ends: number[]): number {
  let at = skipSpace(bytes, from)
  while (bytes[at] === COMMA) {
    const end = skipValue(bytes, skipSpace(bytes, at + 1), 1)
    ends.push(end)
    at = skipSpace(bytes, end)
  }
  if (bytes[at] !== CLOSE_BRACKET) fail(bytes, at, "expected ',' or ']'")
  return at + 1
}

/** What surrounds a position inside the value, innermost last: 1 for an object. */
const insideObject = new Uint8Array(JSON_DEPTH_MAX)

/** The end of the value that starts at `at`, `above` levels below the top-level object. */
function skipValue(bytes: Uint8Array, at: number, above: number): number {
  let depth = 0
  let here = at
  for (;;) {
    const byte = bytes[here]
    if (byte === QUOTE) {
      here = skipString(bytes, here, '')
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      const isObject = byte === OPEN_BRACE
      // The top-level object is one level already.
      if (above + depth + 2 > JSON_DEPTH_MAX)
        throw new MalformedJsonError(here, `more than ${JSON_DEPTH_MAX} levels`)
      here = skipSpace(bytes, here + 1)
      if (bytes[here] === (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) {
        here++
      } else {
        insideObject[depth++] = isObject ? 1 : 0
        if (isObject) here = skipName(bytes, here)
        continue
      }
    } else if (byte === MINUS || isDigit(byte)) {
      here = skipNumber(bytes, here)
    } else {
      here = skipWord(bytes, here)
    }

    // A value ended at `here`: go to the next one, or out.
    for (;;) {
      if (depth === 0) return here
      here = skipSpace(bytes, here)
      const isObject = insideObject[depth - 1] === 1
      if (bytes[here] === COMMA) {
        here = skipSpace(bytes, here + 1)
        if (isObject) here = skipName(bytes, here)
        break
      }
      if (bytes[here] !== (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) {
        fail(bytes, here, isObject ? "expected ',' or '}'" : "expected ',' or ']'")
      }
      here++
      depth--
    }
  }
}

/** A name with its colon; returns where its value starts. */
function skipName(bytes: Uint8Array, at: number): number {
  const end = skipString(bytes, at, 'expected a name in quotes')
  return skipSpace(bytes, skipColon(bytes, end))
}

function skipColon(bytes: Uint8Array, at: number): number {
  const colon = skipSpace(bytes, at)
  if (bytes[colon] !== COLON) fail(bytes, colon, "expected ':'")
  return colon + 1
}

function skipSpace(bytes: Uint8Array, at: number): number {
  let here = at
  for (;;) {
    const byte = bytes[here]
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return here
    here++
  }
}

/** The position after the closing quote of the string that opens at `at`. */
function skipString(bytes: Uint8Array, at: number, expected: string): number {
  if (bytes[at] !== QUOTE) fail(bytes, at, expected)
  const { length } = bytes
  let here = at + 1
  let near = Math.min(here + PLAIN_BYTES_MAX, length)
  for (;;) {
    while (here < near && ENDS_RUN[bytes[here]!] === 0) here++
    if (here >= near && near < length) {
      here = stringEnd(bytes, here)
      near = length
    }
    const byte = bytes[here]
    if (byte === QUOTE) return here + 1
    if (byte === undefined) throw new MalformedJsonError(at, 'unterminated string')
    if (byte !== BACKSLASH) fail(bytes, here, 'unescaped control character in a string')
    here = skipEscape(bytes, here)
  }
}

function skipEscape(bytes: Uint8Array, at: number): number {
  switch (bytes[at + 1]) {
    case QUOTE:
    case BACKSLASH:
    case 0x2f: // /
    case 0x62: // b
    case 0x66: // f
    case 0x6e: // n
    case 0x72: // r
    case 0x74: // t
      return at + 2
    case 0x75: // u
      for (let i = 2; i < 6; i++) {
        if (!isHexDigit(bytes[at + i])) fail(bytes, at + i, 'expected a hexadecimal digit')
      }
      return at + 6
    default:
      return fail(bytes, at + 1, 'invalid escape in a string')
  }
}

function skipNumber(bytes: Uint8Array, at: number): number {
  let here = bytes[at] === MINUS ? at + 1 : at
  if (bytes[here] === ZERO) {
    here++
    if (isDigit(bytes[here])) fail(bytes, here, 'leading zero in a number')
  } else {
    here = skipDigits(bytes, here)
  }
  if (bytes[here] === POINT) here = skipDigits(bytes, here + 1)
  if (bytes[here] === 0x65 || bytes[here] === 0x45) {
    here++
    if (bytes[here] === 0x2b || bytes[here] === MINUS) here++
    here = skipDigits(bytes, here)
  }
  return here
}

/** At least one digit. */
function skipDigits(bytes: Uint8Array, at: number): number {
  let here = at
  while (isDigit(bytes[here])) here++
  if (here === at) fail(bytes, at, 'expected a digit')
  return here
}

const WORDS = ['true', 'false', 'null'].map(word => Buffer.from(word))

function skipWord(bytes: Uint8Array, at: number): number {
  for (const word of WORDS) {
    if (bytes[at] !== word[0]) continue
    for (let i = 1; i < word.length; i++) {
      if (bytes[at + i] !== word[i]) fail(bytes, at + i, `expected ${word}`)
    }
    return at + word.length
  }
  return fail(bytes, at, 'expected a value')
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= 0x39
}

function isHexDigit(byte: number | undefined): boolean {
  return isDigit(byte) || (byte !== undefined && (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66)
}

/** The text of a name, quotes at `start` and before `end`. */
function decodeName(bytes: Uint8Array, start: number, end: number): string {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const text = view.toString('utf8', start + 1, end - 1)
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text
}

function fail(bytes: Uint8Array, at: number, expected: string): never {
  if (at >= bytes.length) {
    const end = bytes.length === 0 ? 'the body is empty' : `${expected}, found the end of the body`
    throw new MalformedJsonError(bytes.length, end)
  }
  const byte = bytes[at]!
  const isPrintable = byte > 0x20 && byte < 0x7f
  const found = isPrintable ? `'${String.fromCharCode(byte)}'` : `0x${byte.toString(16).padStart(2, '0')}`
  throw new MalformedJsonError(at, `${expected}, found ${found}`)
}

/** Only on the way to an error. A prefix that ends inside a character is invalid too, hence the step back. */
function firstInvalidUtf8(bytes: Uint8Array): number {
  let at = 0
  while (at < bytes.length) {
    const byte = bytes[at]!
    const size = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4
    if (size > 1 && (at + size > bytes.length || !isUtf8(bytes.subarray(at, at + size)))) return at
    at += size
  }
  return bytes.length
}
