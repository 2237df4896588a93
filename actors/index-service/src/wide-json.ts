/**
 * JSON with 64-bit integers, which JSON.parse rounds: those of 16 digits or more are read as their text, and
 * written as numbers.
 *
 * So instance ids and hashes may come as numbers or as strings of digits; the reader of a field says which range it
 * takes. Cost: a text without such a long run of digits is parsed as it stands; otherwise one pass more.
 */

const UNSIGNED_MAX = (1n << 64n) - 1n
const SIGNED_MIN = -(1n << 63n)
/** A number of fewer digits is exact in a double. */
const LONG = /\d{16}/
/** A string, or a number whole: so digits inside of either are never taken for a number of their own. */
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g
const LONG_INTEGER = /^-?\d{16,}$/

/** Parses JSON; integers of 16 digits or more become strings. Throws SyntaxError. */
export function parseWideJson(text: string): unknown {
  if (!LONG.test(text)) return JSON.parse(text)
  return JSON.parse(text.replace(TOKEN, token => (LONG_INTEGER.test(token) ? `"${token}"` : token)))
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
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === 'bigint' ? rawJson(part.toString()) : part,
  )
}

/** ES2025; not in the library of types yet. */
function rawJson(text: string): unknown {
  return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(text)
}

function tryInteger(value: unknown): bigint | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : undefined
  if (typeof value === 'string' && /^-?\d{1,20}$/.test(value)) return BigInt(value)
  return undefined
}
