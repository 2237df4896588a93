/**
 * JSON with 64-bit integers, which JSON.parse rounds: those of 16 digits or more are read as their text, and
 * written as numbers.
 *
 * So instance ids and hashes may come as numbers or as strings of digits; the reader of a field defines the
 * range it accepts.
 *
 * Cost: linear for every text, because anybody may send one. A text with such a long run of digits is parsed
 * twice, with one pass in between. (A reviver that looks at the source of every number takes nine times as
 * long if a list of small numbers contains one long number.)
 */

import { randomUUID } from 'node:crypto'
import { parseJson } from './parse-json.ts'

const UNSIGNED_MAX = (1n << 64n) - 1n
const SIGNED_MIN = -(1n << 63n)
/** A number of fewer digits is exact in a double. */
const LONG = /\d{16}/
const LONG_DIGITS = 16
const [QUOTE, BACKSLASH, PLUS, MINUS, POINT, ZERO, NINE, LARGE_E, SMALL_E] = [
  34, 92, 43, 45, 46, 48, 57, 69, 101,
] as const

/** Parses JSON; integers of 16 digits or more become strings. Throws SyntaxError. */
export function parseWideJson(text: string): unknown {
  const value = parseJson(text)
  return LONG.test(text) ? JSON.parse(quoteLongIntegers(text)) : value
}

/** Parses a short JSON text; whole numbers of 64 bits that no double has are bigints. Throws SyntaxError. */
export function parseExactJson(text: string): unknown {
  const value = parseJson(text)
  return LONG.test(text) ? exactOf(value, JSON.parse(quoteLongIntegers(text))) : value
}

/** `wide`: the same value, its long integers as texts. */
function exactOf(value: unknown, wide: unknown): unknown {
  if (typeof value === 'number') {
    if (typeof wide !== 'string' || Number.isSafeInteger(value)) return value
    const whole = BigInt(wide)
    return whole < SIGNED_MIN || whole > UNSIGNED_MAX ? value : whole
  }
  if (typeof value !== 'object' || value === null) return value
  const [members, wideMembers] = [value as Record<string, unknown>, wide as Record<string, unknown>]
  for (const name of Object.keys(members)) {
    const exact = exactOf(members[name], wideMembers[name])
    if (exact !== members[name]) members[name] = exact
  }
  return value
}

/** An integer of 0 … 2^64 − 1 as parseWideJson left it; undefined when it is anything else. */
export function tryUnsigned64(value: unknown): bigint | undefined {
  const integer = tryInteger(value)
  return integer === undefined || integer < 0n || integer > UNSIGNED_MAX ? undefined : integer
}

/** An integer of −2^63 … 2^64 − 1 as its 64 bits: some senders write hashes with a sign. */
export function tryBits64(value: unknown): bigint | undefined {
  const integer = tryInteger(value)
  if (integer === undefined || integer < SIGNED_MIN || integer > UNSIGNED_MAX) return undefined
  return BigInt.asUintN(64, integer)
}

/**
 * JSON of a value that holds bigints, which are written as numbers; they stand as text in `value` only where
 * the caller put them as text.
 */
export function wideJson(value: unknown): string {
  const raw = rawJson ?? markedJson()
  const text = JSON.stringify(value, (_key, part: unknown) =>
    typeof part === 'bigint' ? raw.of(part.toString()) : part,
  )
  return raw.mark === undefined ? text : text.replaceAll(new RegExp(`"${raw.mark}(-?\\d+)"`, 'g'), '$1')
}

interface NumberText {
  of(digits: string): unknown
  /** Stands before the digits of each, and in no other text. */
  readonly mark?: string
}

const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => unknown }
/** ES2025, not in the library of types yet; undefined: Node 20. */
const rawJson: NumberText | undefined = rawJSON && { of: rawJSON }

function markedJson(): NumberText {
  const mark = randomUUID()
  return { of: digits => `${mark}${digits}`, mark }
}

/** `json` is valid: so every string has an end, and what begins like a number is one. */
function quoteLongIntegers(json: string): string {
  const pieces: string[] = []
  let copied = 0
  for (let at = 0; at < json.length; ) {
    const code = json.charCodeAt(at)
    if (code === QUOTE) {
      at = endOfString(json, at)
      continue
    }
    if (code !== MINUS && !isDigit(code)) {
      at++
      continue
    }
    const start = at
    const firstDigit = code === MINUS ? at + 1 : at
    at = firstDigit
    while (isDigit(json.charCodeAt(at))) at++
    const digits = at - firstDigit
    // The digits behind a point are no number of their own.
    const end = endOfNumber(json, at)
    if (end === at && digits >= LONG_DIGITS) {
      pieces.push(json.slice(copied, start), json.slice(start, end))
      copied = end
    }
    at = end
  }
  pieces.push(json.slice(copied))
  // Every other piece is a long integer.
  return pieces.join('"')
}

/** Behind the closing quote of the string that begins at `start`. */
function endOfString(json: string, start: number): number {
  let at = start + 1
  for (let code = json.charCodeAt(at); code !== QUOTE; code = json.charCodeAt(at)) {
    at += code === BACKSLASH ? 2 : 1
  }
  return at + 1
}

/** Where fraction and exponent of a number end whose whole digits end at `at`. */
function endOfNumber(json: string, at: number): number {
  let end = at
  for (let code = json.charCodeAt(end); ; code = json.charCodeAt(++end)) {
    const isPart =
      isDigit(code) ||
      code === POINT ||
      code === PLUS ||
      code === MINUS ||
      code === LARGE_E ||
      code === SMALL_E
    if (!isPart) return end
  }
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE
}

function tryInteger(value: unknown): bigint | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : undefined
  if (typeof value === 'string' && /^-?\d{1,20}$/.test(value)) return BigInt(value)
  return undefined
}
