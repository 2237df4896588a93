/**
 * Texts as Python's str treats them: white space, lines, case, splitting, padding. What JavaScript may treat
 * otherwise is refused.
 */

import { RenderingRefusedError } from './errors.ts'
import { PythonTuple, type PythonValue, typeName } from './python-value.ts'

// str.strip and str.split take what str.isspace takes, which is not JavaScript's \s.
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'
const LEADING_SPACE = new RegExp(`^[${SPACE}]+`)
const SPACES = new RegExp(`[${SPACE}]+`)
const WORD = new RegExp(`[^${SPACE}]+`, 'g')
// biome-ignore lint/suspicious/noControlCharactersInRegex: what str.splitlines splits at
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/
export const ASTRAL = /[\ud800-\udfff]/
export const BEYOND_ASCII = /[^\0-\x7f]/
/** An int within the safe range; refuses anything else. */
export function integer(value: PythonValue): number {
  if (typeof value === 'boolean') return Number(value)
  if (typeof value !== 'number')
    throw new RenderingRefusedError(`the template takes a ${typeName(value)} for an int`)
  return value
}

/** A str; refuses anything else. */
export function string(value: PythonValue): string {
  if (typeof value !== 'string')
    throw new RenderingRefusedError(`the template takes a ${typeName(value)} for a str`)
  return value
}

export function isCased(text: string, convert: (text: string) => string): boolean {
  return text === convert(text) && text.toLowerCase() !== text.toUpperCase()
}

export function rest(word: string): string {
  return Array.from(word).slice(1).join('')
}

/** Python gives a first letter its title case, which JavaScript does not have. */
export function upperFirst(word: string): string {
  const first = Array.from(word)[0] ?? ''
  const upper = first.toUpperCase()
  if (upper.length !== first.length || /[\u01c4-\u01cc\u01f1-\u01f3\u10d0-\u10ff]/.test(first)) {
    throw new RenderingRefusedError(`the template capitalizes ${first}`)
  }
  return upper
}

export function capitalize(value: string): string {
  return value === '' ? '' : upperFirst(value) + rest(value).toLowerCase()
}

/** `str.strip()`, or `str.rstrip()` when the left side stays. */
export function stripSpace(value: string, left = true): string {
  return strip(value, undefined, left, true)
}

export function strip(value: string, characters: PythonValue, left: boolean, right: boolean): string {
  const isStripped =
    characters === undefined || characters === null
      ? (character: string) => LEADING_SPACE.test(character)
      : (() => {
          const set = new Set(string(characters))
          if (ASTRAL.test(string(characters))) throw new RenderingRefusedError('strip of astral characters')
          return (character: string) => set.has(character)
        })()
  let start = 0
  let end = value.length
  while (left && start < end && isStripped(value[start]!)) start++
  while (right && end > start && isStripped(value[end - 1]!)) end--
  return value.slice(start, end)
}

export function split(value: string, separator: PythonValue, limit: PythonValue): PythonValue[] {
  const splitsMax = limit === undefined || limit === null ? -1 : integer(limit)
  if (separator === undefined || separator === null) {
    if (splitsMax < 0) return value.match(WORD) ?? []
    const parts: string[] = []
    let left = strip(value, undefined, true, false)
    while (left !== '' && parts.length < splitsMax) {
      const end = left.search(SPACES)
      parts.push(end === -1 ? left : left.slice(0, end))
      left = end === -1 ? '' : strip(left.slice(end), undefined, true, false)
    }
    return left === '' ? parts : [...parts, left]
  }
  const text = string(separator)
  if (text === '') throw new RenderingRefusedError('the template splits at the empty string')
  const parts = value.split(text)
  if (splitsMax < 0 || parts.length <= splitsMax + 1) return parts
  return [...parts.slice(0, splitsMax), parts.slice(splitsMax).join(text)]
}

export function splitFromRight(value: string, separator: PythonValue, limit: PythonValue): PythonValue[] {
  const splitsMax = limit === undefined || limit === null ? -1 : integer(limit)
  if (splitsMax < 0) return split(value, separator, -1)
  const text = string(separator)
  if (text === '') throw new RenderingRefusedError('the template splits at the empty string')
  const parts: string[] = []
  let left = value
  while (parts.length < splitsMax) {
    const found = left.lastIndexOf(text)
    if (found === -1) break
    parts.unshift(left.slice(found + text.length))
    left = left.slice(0, found)
  }
  return [left, ...parts]
}

export function splitLines(value: string): string[] {
  const lines = value.split(LINE_END)
  if (lines.at(-1) === '') lines.pop()
  return lines
}

export function replace(value: string, old: string, by: string, limit: PythonValue): string {
  const countMax = limit === undefined || limit === null ? -1 : integer(limit)
  if (old === '') throw new RenderingRefusedError('the template replaces the empty string')
  if (countMax < 0) return value.replaceAll(old, () => by)
  const parts = value.split(old)
  const head = parts.slice(0, countMax + 1).join(by)
  return parts.length <= countMax + 1 ? head : [head, ...parts.slice(countMax + 1)].join(old)
}

export function affixes([affix, ...others]: readonly PythonValue[]): readonly string[] {
  if (others.length > 0) throw new RenderingRefusedError('startswith or endswith with a range')
  return affix instanceof PythonTuple ? affix.items.map(string) : [string(affix)]
}

export function ascii(text: string): string {
  if (BEYOND_ASCII.test(text)) throw new RenderingRefusedError('the template looks at letters beyond ASCII')
  return text
}

/** What `int` and `float` read, of what is written in ASCII digits alone. */
export function numberText(value: string): string {
  const text = stripSpace(value)
  if (/_.*\d|\d.*_|(?![0-9])\p{Nd}|^[-+]?(?:inf|nan)/iu.test(text))
    throw new RenderingRefusedError('the template reads a number in another form')
  return text
}

export function nonEmpty(separator: PythonValue): string {
  if (separator === '') throw new RenderingRefusedError('the template splits at the empty string')
  return string(separator)
}
