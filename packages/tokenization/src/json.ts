/**
 * JSON text to Python values without loss: `1.0` is a float, integers of any size are exact, keys
 * keep their order. JSON.parse loses all three, and each changes the prompt of a chat with tools.
 *
 * Recursive descent; strings with escapes go through JSON.parse. About 100 MB/s for long strings.
 */

import { RenderingRefusedError } from './errors.ts'
import { type PythonDict, PythonFloat, type PythonValue } from './python-value.ts'

const NESTING_MAX = 400
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y
const BACKSLASH = 0x5c
const SPACE = /[ \t\n\r]*/y

/** Reads JSON text as Python's json.loads does; undefined when it is not valid JSON. */
export function tryParseJson(text: string): PythonValue {
  let position = 0
  /**
   * The first backslash from some place on; looked for anew for each string, many short strings would cost
   * their square.
   */
  let backslash = text.indexOf('\\')

  const skipSpace = () => {
    const code = text.charCodeAt(position)
    if (code !== 0x20 && (code < 0x09 || code > 0x0d)) return
    SPACE.lastIndex = position
    SPACE.test(text)
    position = SPACE.lastIndex
  }

  const fail = (): never => {
    throw new SyntaxError(`unexpected text at ${position}`)
  }

  const readString = (): string => {
    const start = position
    let end = text.indexOf('"', start + 1)
    if (backslash !== -1 && backslash <= start) backslash = text.indexOf('\\', start + 1)
    // Behind a backslash a quote may be part of the string.
    if (backslash !== -1) while (end !== -1 && isEscaped(text, end)) end = text.indexOf('"', end + 1)
    if (end === -1) fail()
    position = end + 1
    // JSON.parse also refuses control characters.
    return JSON.parse(text.slice(start, position)) as string
  }

  const readNumber = (): PythonValue => {
    NUMBER.lastIndex = position
    const match = NUMBER.exec(text)
    if (match === null) return fail()
    position = NUMBER.lastIndex
    if (match[1] !== undefined || match[2] !== undefined) return new PythonFloat(Number(match[0]))
    const value = Number(match[0])
    // json.loads('-0') is the int 0.
    return Number.isSafeInteger(value) ? value + 0 : BigInt(match[0])
  }

  const readValue = (depth: number): PythonValue => {
    if (depth > NESTING_MAX) throw new RenderingRefusedError('the JSON is nested too deeply')
    skipSpace()
    switch (text[position]) {
      case '"':
        return readString()
      case '{':
        return readObject(depth)
      case '[':
        return readArray(depth)
      case 't':
        return readWord('true', true)
      case 'f':
        return readWord('false', false)
      case 'n':
        return readWord('null', null)
      default:
        return readNumber()
    }
  }

  const readWord = (word: string, value: PythonValue): PythonValue => {
    if (!text.startsWith(word, position)) fail()
    position += word.length
    return value
  }

  const readArray = (depth: number): PythonValue => {
    const items: PythonValue[] = []
    position++
    skipSpace()
    if (text[position] === ']') {
      position++
      return items
    }
    for (;;) {
      items.push(readValue(depth + 1))
      skipSpace()
      const character = text[position++]
      if (character === ']') return items
      if (character !== ',') fail()
    }
  }

  const readObject = (depth: number): PythonValue => {
    const entries: PythonDict = new Map()
    position++
    skipSpace()
    if (text[position] === '}') {
      position++
      return entries
    }
    for (;;) {
      skipSpace()
      if (text[position] !== '"') fail()
      const key = readString()
      skipSpace()
      if (text[position++] !== ':') fail()
      // As in Python, the last of equal keys wins and keeps the place of the first.
      entries.set(key, readValue(depth + 1))
      skipSpace()
      const character = text[position++]
      if (character === '}') return entries
      if (character !== ',') fail()
    }
  }

  try {
    const value = readValue(0)
    skipSpace()
    return position === text.length ? value : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

/**
 * Whether an odd number of backslashes stands before the quote at `at`. Those before the string's own quote
 * end there.
 */
function isEscaped(text: string, at: number): boolean {
  let before = at
  while (text.charCodeAt(before - 1) === BACKSLASH) before--
  return (at - before) % 2 === 1
}

/**
 * Takes over a value that JSON.parse made. Refuses what JSON.parse may already have changed: keys
 * that look like integers (reordered) and integers beyond 2^53 (rounded). Cannot see that a 1 was
 * written `1.0`; give the text of the request wherever it is at hand.
 */
export function fromParsedJson(value: unknown, depth = 0): PythonValue {
  if (depth > NESTING_MAX) throw new RenderingRefusedError('the JSON is nested too deeply')
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value
  if (typeof value === 'number') {
    if (!Number.isInteger(value)) return new PythonFloat(value)
    if (!Number.isSafeInteger(value)) throw new RenderingRefusedError(`the number ${value} was rounded`)
    return value
  }
  if (Array.isArray(value)) return value.map(item => fromParsedJson(item, depth + 1))
  if (typeof value !== 'object') throw new RenderingRefusedError(`a ${typeof value} in the request`)
  const entries: PythonDict = new Map()
  for (const [key, item] of Object.entries(value)) {
    if (/^(?:0|[1-9]\d{0,9})$/.test(key)) throw new RenderingRefusedError(`the key "${key}" lost its place`)
    if (item !== undefined) entries.set(key, fromParsedJson(item, depth + 1))
  }
  return entries
}
