/**
 * Operators of Python whose result is no truth value, and its two ways to put values into a text: `'%s' % x`
 * and `'{}'.format(x)`.
 *
 * Text that is marked as safe (`PythonMarkup`) escapes what is added to it, also from the left:
 * `'<' + ('>' | safe)` is `&lt;>`.
 */

import { RenderingRefusedError } from './errors.ts'
import {
  getItem,
  hasItem,
  numberOf,
  type PythonDict,
  PythonFloat,
  PythonMarkup,
  PythonTuple,
  type PythonValue,
  toRepr,
  toText,
  typeName,
} from './python-value.ts'

/** Characters of a text that is made by repeating or padding another. */
const MADE_LENGTH_MAX = 5_000_000
/** Characters of a text that is made by adding two: a prompt with its body fits. */
const JOINED_LENGTH_MAX = 64_000_000
/** Items of a list that is made by adding two. */
const LIST_LENGTH_MAX = 1_000_000
const DIGITS_MAX = 60
/** From here on `toFixed` has an exponent. */
const FIXED_MAX = 1e21

/** `markupsafe.escape`. */
export function escapeMarkup(value: PythonValue): PythonMarkup {
  if (value instanceof PythonMarkup) return value
  const text = toText(value)
    .replaceAll('&', '&amp;')
    .replaceAll('>', '&gt;')
    .replaceAll('<', '&lt;')
    .replaceAll("'", '&#39;')
    .replaceAll('"', '&#34;')
  return new PythonMarkup(text)
}

/** `left + right` of texts and lists; undefined for other pairs. */
export function sum(left: PythonValue, right: PythonValue): PythonValue {
  if (typeof left === 'string' && typeof right === 'string') return joined(left, right)
  const isText = (value: PythonValue) => typeof value === 'string' || value instanceof PythonMarkup
  if (isText(left) && isText(right))
    return new PythonMarkup(joined(escapeMarkup(left).text, escapeMarkup(right).text))
  if (Array.isArray(left) && Array.isArray(right)) return chained(left, right)
  if (left instanceof PythonTuple && right instanceof PythonTuple)
    return new PythonTuple(chained(left.items, right.items))
  return undefined
}

/** `left + right`, of a bounded length: doubling it a few times would fill the memory. */
export function joined(left: string, right: string): string {
  if (left.length + right.length > JOINED_LENGTH_MAX)
    throw new RenderingRefusedError('the template makes a string that is too long')
  return left + right
}

/** `separator.join(items)`, with the same bound. */
export function joinedAll(items: readonly string[], separator: string): string {
  const length = items.reduce((total, item) => total + item.length + separator.length, 0)
  if (length > JOINED_LENGTH_MAX)
    throw new RenderingRefusedError('the template makes a string that is too long')
  return items.join(separator)
}

function chained(left: readonly PythonValue[], right: readonly PythonValue[]): PythonValue[] {
  if (left.length + right.length > LIST_LENGTH_MAX)
    throw new RenderingRefusedError('the template makes a list that is too long')
  return [...left, ...right]
}

/** `left * right` of a text and a number; undefined for other pairs. */
export function repeat(left: PythonValue, right: PythonValue): PythonValue {
  const [text, count] = typeof left === 'number' ? [right, left] : [left, right]
  if (typeof count !== 'number') return undefined
  if (text instanceof PythonMarkup) return new PythonMarkup(repeated(text.text, count))
  return typeof text === 'string' ? repeated(text, count) : undefined
}

function repeated(text: string, count: number): string {
  if (text.length * count > MADE_LENGTH_MAX)
    throw new RenderingRefusedError('the template repeats a string too often')
  return text.repeat(Math.max(0, count))
}

/** Operators between numbers; refuses other values. */
export function arithmetic(operator: string, left: PythonValue, right: PythonValue): PythonValue {
  const a = numberOf(left)
  const b = numberOf(right)
  if (typeof a !== 'number' || typeof b !== 'number') {
    throw new RenderingRefusedError(`the template computes ${typeName(left)} ${operator} ${typeName(right)}`)
  }
  const isFloat = left instanceof PythonFloat || right instanceof PythonFloat
  const result = (value: number) => (isFloat ? new PythonFloat(value) : safeInteger(value))
  if (b === 0 && (operator === '/' || operator === '//' || operator === '%')) {
    throw new RenderingRefusedError('the template divides by zero')
  }
  switch (operator) {
    case '+':
      return result(a + b)
    case '-':
      return result(a - b)
    case '*':
      return result(a * b)
    case '/':
      return new PythonFloat(a / b)
    case '//':
      return result(Math.floor(a / b))
    case '%':
      if (!isFloat) return safeInteger(((a % b) + b) % b)
      break
    case '**':
      if (!isFloat && b >= 0) return safeInteger(a ** b)
  }
  throw new RenderingRefusedError(`the template computes ${typeName(left)} ${operator} ${typeName(right)}`)
}

/** The result of an integer operation; refuses what a number cannot hold. */
export function safeInteger(value: number): number {
  if (!Number.isSafeInteger(value)) throw new RenderingRefusedError(`the integer ${value} is beyond 2^53`)
  return value + 0
}

/** A number with that many digits behind the point; a tie goes to the even digit, as in Python. */
export function fixedText(value: number, digits: number): string {
  if (digits < 0 || digits > DIGITS_MAX || !(Math.abs(value) < FIXED_MAX))
    throw new RenderingRefusedError(`the template prints ${value} with ${digits} digits`)
  const text = value.toFixed(digits)
  // The digits beyond: a double that is no tie differs from one long before the last of these.
  const [, beyond = ''] = value.toFixed(digits + 30).match(/(.{30})$/) ?? []
  if (!/^50*$/.test(beyond)) return text
  const last = text.at(-1)!
  if ('02468'.includes(last)) return text
  // `toFixed` went up to an odd digit; the even one is the digit below it, which is never a borrow.
  return text.slice(0, -1) + String(Number(last) - 1)
}

const PERCENT = /%(?:\((\w*)\))?([-+ 0]*)(\d*)(?:\.(\d*))?(.?)/gs

/** `format % values`: `values` are those of a tuple, or a dict for `%(name)s`. */
export function percentFormat(format: string, values: readonly PythonValue[] | PythonDict): string {
  let used = 0
  const next = (name: string | undefined): PythonValue => {
    if (name !== undefined) {
      if (!(values instanceof Map) || !hasItem(values, name))
        throw new RenderingRefusedError(`the template formats without ${name}`)
      return getItem(values, name)
    }
    if (values instanceof Map || used === values.length)
      throw new RenderingRefusedError('the template formats too few values')
    return values[used++]
  }
  const text = format.replace(
    PERCENT,
    (whole, name: string | undefined, flags: string, width: string, precision: string | undefined, kind) => {
      if (whole === '%%') return '%'
      const digits = precision === undefined ? undefined : Number(precision)
      return padded(converted(kind as string, next(name), flags, digits, whole), flags, Number(width), kind)
    },
  )
  if (!(values instanceof Map) && used < values.length)
    throw new RenderingRefusedError('the template formats too many values')
  return text
}

function converted(
  kind: string,
  value: PythonValue,
  flags: string,
  digits: number | undefined,
  whole: string,
): string {
  const sign = (text: string) =>
    text.startsWith('-') ? text : flags.includes('+') ? `+${text}` : flags.includes(' ') ? ` ${text}` : text
  const number = numberOf(value)
  switch (kind) {
    case 's':
    case 'r': {
      const text = kind === 's' ? toText(value) : toRepr(value)
      return digits === undefined ? text : Array.from(text).slice(0, digits).join('')
    }
    case 'd':
    case 'i':
    case 'u':
      if (number === undefined || digits !== undefined) break
      return sign((typeof number === 'bigint' ? number : safeInteger(Math.trunc(number))).toString())
    case 'f':
    case 'F':
      if (typeof number !== 'number') break
      return sign(fixedText(number, digits ?? 6))
    case 'x':
    case 'X':
    case 'o': {
      if (number === undefined || value instanceof PythonFloat || digits !== undefined) break
      const text = sign(number.toString(kind === 'o' ? 8 : 16))
      return kind === 'X' ? text.toUpperCase() : text
    }
  }
  throw new RenderingRefusedError(`the template formats a ${typeName(value)} with ${whole}`)
}

function padded(text: string, flags: string, width: number, kind: string): string {
  const length = Array.from(text).length
  if (width > MADE_LENGTH_MAX) throw new RenderingRefusedError(`the template pads to ${width}`)
  if (length >= width) return text
  const pad = width - length
  if (flags.includes('-')) return text + ' '.repeat(pad)
  if (!flags.includes('0') || kind === 's' || kind === 'r') return ' '.repeat(pad) + text
  const [sign = ''] = /^[-+ ]?/.exec(text) ?? []
  return sign + '0'.repeat(pad) + text.slice(sign.length)
}

/** `left % right` with a text on the left. */
export function formatWith(left: PythonValue, right: PythonValue): PythonValue {
  if (typeof left !== 'string' || right === undefined)
    throw new RenderingRefusedError(`the template computes ${typeName(left)} % ${typeName(right)}`)
  if (right instanceof PythonTuple) return percentFormat(left, right.items)
  // A dict may be what `%(name)s` names, or one value; a list may be left over.
  if (right instanceof Map && left.includes('%(')) return percentFormat(left, right)
  if ((right instanceof Map || Array.isArray(right)) && !/%[^%]/.test(left.replaceAll('%%', '')))
    return percentFormat(left, [])
  return percentFormat(left, [right])
}

const FIELD = /^([A-Za-z_]\w*|\d*)(?:!([rs]))?$/

/**
 * `format.format(*args, **keywords)`, without what a field may have behind its name but for `!r` and `!s`.
 */
export function braceFormat(
  format: string,
  args: readonly PythonValue[],
  keywords: ReadonlyMap<string, PythonValue>,
): string {
  let automatic = 0
  let isNumbered = false
  return format.replace(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (whole, field: string | undefined) => {
    if (whole === '{{' || whole === '}}') return whole[0]!
    const match = field === undefined ? null : FIELD.exec(field)
    if (match === null) throw new RenderingRefusedError(`the template formats with ${whole}`)
    const [, name = '', conversion] = match
    let value: PythonValue
    if (/^\d*$/.test(name)) {
      if (name === '' ? isNumbered : automatic > 0)
        throw new RenderingRefusedError('the template counts fields in two ways')
      isNumbered ||= name !== ''
      const index = name === '' ? automatic++ : Number(name)
      if (index >= args.length) throw new RenderingRefusedError('the template formats too few values')
      value = args[index]
    } else {
      if (!keywords.has(name)) throw new RenderingRefusedError(`the template formats without ${name}`)
      value = keywords.get(name)
    }
    return conversion === 'r' ? toRepr(value) : toText(value)
  })
}
