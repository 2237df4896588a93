/**
 * Values as Python sees them, because chat templates are written for Python and print its values.
 *
 *   str    string             int    number, or bigint beyond 2^53     None       null
 *   bool   boolean            float  PythonFloat                       undefined  undefined
 *   list   array              tuple  PythonTuple                       function   PythonFunction
 *   Markup PythonMarkup
 *   generator, view of a dict, range: PythonIterable
 *   dict   Map: order of insertion, also for keys that look like integers; only `getItem`, `hasItem` and
 *          `setItem` know that 1, True and 1.0 are one key
 *
 * What JavaScript would lose is kept: 1.0 stays apart from 1, integers of any size are exact, and
 * `{"b": 1, "2": 3}` keeps its order. `str`, `repr` and `json.dumps` print as CPython 3 does.
 */

import { RenderingRefusedError } from './errors.ts'

/** A Python float; a plain number is an int. */
export class PythonFloat {
  readonly value: number

  constructor(value: number) {
    this.value = value
  }
}

/** A text that `safe` or `escape` has marked as HTML: it prints as it is, and escapes what is added to it. */
export class PythonMarkup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** A Python tuple. */
export class PythonTuple {
  readonly items: readonly PythonValue[]

  constructor(items: readonly PythonValue[]) {
    this.items = items
  }
}

/** An object with attributes and nothing else: `namespace()` (mutable) and `loop`. */
export class PythonObject {
  readonly isMutable: boolean
  #attributes: Map<string, PythonValue> | (() => Map<string, PythonValue>)

  /** A function is called at the first look at them: most turns of a loop never look at theirs. */
  constructor(attributes: Map<string, PythonValue> | (() => Map<string, PythonValue>), isMutable: boolean) {
    this.#attributes = attributes
    this.isMutable = isMutable
  }

  get attributes(): Map<string, PythonValue> {
    if (typeof this.#attributes === 'function') this.#attributes = this.#attributes()
    return this.#attributes
  }
}

/**
 * What can be iterated over and little else: a generator (what most filters of Jinja2 return; always
 * true, and used up by its first use), the keys, values or items of a dict, or a range.
 */
export class PythonIterable {
  readonly kind: 'generator' | 'view' | 'range'
  readonly items: readonly PythonValue[]
  #isUsed = false

  constructor(kind: PythonIterable['kind'], items: readonly PythonValue[]) {
    this.kind = kind
    this.items = items
  }

  /** The items; a generator gives them once, and refuses where Python would be left with the rest. */
  take(): readonly PythonValue[] {
    if (this.kind === 'generator' && this.#isUsed) {
      throw new RenderingRefusedError('the template uses a generator twice')
    }
    this.#isUsed = true
    return this.items
  }
}

/** A function, a method or a macro. */
export class PythonFunction {
  readonly name: string
  readonly call: (args: readonly PythonValue[], keywords: ReadonlyMap<string, PythonValue>) => PythonValue

  constructor(name: string, call: PythonFunction['call']) {
    this.name = name
    this.call = call
  }
}

/** What a dict may have as a key; those of JSON are strings. */
export type PythonKey = string | number | boolean | null

/** A dict. */
export type PythonDict = Map<PythonKey, PythonValue>

/** Any value of a template; `undefined` is Jinja's Undefined. */
export type PythonValue =
  | string
  | boolean
  | number
  | bigint
  | null
  | undefined
  | PythonFloat
  | PythonMarkup
  | PythonTuple
  | PythonObject
  | PythonIterable
  | PythonFunction
  | PythonDict
  | PythonValue[]

/** The keyword arguments of json.dumps that chat templates use. */
export interface DumpOptions {
  readonly ensureAscii?: boolean
  readonly indent?: number | string | undefined
  readonly separators?: readonly [item: string, key: string] | undefined
  readonly sortKeys?: boolean
}

const NESTING_MAX = 400
const PLAIN_STRING = /^[\x20\x21\x23-\x5b\x5d-\u{10ffff}]*$/u
// Python: str.isprintable is false for these, except for the space.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}]/u

/** The name of the type, for messages. */
export function typeName(value: PythonValue): string {
  if (value === undefined) return 'undefined'
  if (value === null) return 'None'
  if (typeof value === 'string') return 'str'
  if (typeof value === 'boolean') return 'bool'
  if (typeof value === 'number' || typeof value === 'bigint') return 'int'
  if (Array.isArray(value)) return 'list'
  if (value instanceof Map) return 'dict'
  if (value instanceof PythonFloat) return 'float'
  if (value instanceof PythonTuple) return 'tuple'
  if (value instanceof PythonMarkup) return 'Markup'
  if (value instanceof PythonIterable) return value.kind
  return value instanceof PythonFunction ? 'function' : 'namespace'
}

/** `bool(value)`. */
export function isTruthy(value: PythonValue): boolean {
  if (Array.isArray(value)) return value.length > 0
  if (value instanceof Map) return value.size > 0
  if (value instanceof PythonFloat) return value.value !== 0
  if (value instanceof PythonTuple) return value.items.length > 0
  if (value instanceof PythonMarkup) return value.text !== ''
  if (value instanceof PythonIterable) return value.kind === 'generator' || value.items.length > 0
  return Boolean(value)
}

/** `a == b`. */
export function isEqual(a: PythonValue, b: PythonValue): boolean {
  if (a === b) return true
  if (a instanceof PythonMarkup) return isEqual(a.text, b)
  if (b instanceof PythonMarkup) return a === b.text
  if (a instanceof PythonIterable || b instanceof PythonIterable) {
    throw new RenderingRefusedError(`the template compares a ${typeName(a)} with a ${typeName(b)}`)
  }
  const left = numberOf(a)
  const right = numberOf(b)
  // A loose comparison is exact between number and bigint.
  // biome-ignore lint/suspicious/noDoubleEquals: number and bigint compare by value
  if (left !== undefined && right !== undefined) return left == right
  const leftItems = itemsOf(a)
  const rightItems = itemsOf(b)
  if (leftItems !== undefined && rightItems !== undefined) {
    if (Array.isArray(a) !== Array.isArray(b) || leftItems.length !== rightItems.length) return false
    return leftItems.every((item, i) => isEqual(item, rightItems[i]))
  }
  if (a instanceof Map && b instanceof Map) {
    if (a.size !== b.size) return false
    for (const [key, value] of a) if (!hasItem(b, key) || !isEqual(value, getItem(b, key))) return false
    return true
  }
  return false
}

/**
 * The key under which a dict has the item; undefined: it has none. Refuses keys that Python has no hash for.
 */
function storedKey(dict: PythonDict, key: PythonValue): PythonKey | undefined {
  if (typeof key === 'string' || key === null) return dict.has(key) ? key : undefined
  if (key instanceof PythonMarkup) return dict.has(key.text) ? key.text : undefined
  if (key === undefined) return undefined
  const number = numberOf(key)
  if (number === undefined) throw new RenderingRefusedError(`the template has a ${typeName(key)} for a key`)
  if (typeof number === 'bigint') return undefined
  if (dict.has(number)) return number
  if (number !== 0 && number !== 1) return undefined
  return dict.has(number === 1) ? number === 1 : undefined
}

/** `key in dict`. */
export function hasItem(dict: PythonDict, key: PythonValue): boolean {
  return storedKey(dict, key) !== undefined
}

/** `dict[key]`, undefined where there is none. */
export function getItem(dict: PythonDict, key: PythonValue): PythonValue {
  const stored = storedKey(dict, key)
  return stored === undefined ? undefined : dict.get(stored)
}

/**
 * `dict[key] = value`; the key that it had stays. Refuses keys other than strings, whole numbers, bools and
 * None.
 */
export function setItem(dict: PythonDict, key: PythonValue, value: PythonValue): void {
  if (typeof key !== 'string' && typeof key !== 'number' && typeof key !== 'boolean' && key !== null)
    throw new RenderingRefusedError(`the template makes a dict with a ${typeName(key)} for a key`)
  dict.set(storedKey(dict, key) ?? key, value)
}

/** The items of a list or tuple. */
export function itemsOf(value: PythonValue): readonly PythonValue[] | undefined {
  if (Array.isArray(value)) return value
  return value instanceof PythonTuple ? value.items : undefined
}

/** The number behind an int, a float or a bool. */
export function numberOf(value: PythonValue): number | bigint | undefined {
  if (typeof value === 'number' || typeof value === 'bigint') return value
  if (typeof value === 'boolean') return value ? 1 : 0
  return value instanceof PythonFloat ? value.value : undefined
}

/** `str(value)`, which is also what `{{ value }}` prints. */
export function toText(value: PythonValue): string {
  if (typeof value === 'string') return value
  if (value instanceof PythonMarkup) return value.text
  return value === undefined ? '' : toRepr(value)
}

/** `repr(value)`. */
export function toRepr(value: PythonValue, depth = 0): string {
  if (depth > NESTING_MAX) throw new RenderingRefusedError('a value is nested too deeply')
  if (value === null) return 'None'
  if (value === true) return 'True'
  if (value === false) return 'False'
  if (typeof value === 'string') return stringRepr(value)
  if (typeof value === 'number' || typeof value === 'bigint') return value.toString()
  if (value instanceof PythonFloat) return floatText(value.value)
  if (value instanceof PythonMarkup) return `Markup(${stringRepr(value.text)})`
  if (Array.isArray(value)) return `[${value.map(item => toRepr(item, depth + 1)).join(', ')}]`
  if (value instanceof PythonTuple) {
    const inner = value.items.map(item => toRepr(item, depth + 1)).join(', ')
    return value.items.length === 1 ? `(${inner},)` : `(${inner})`
  }
  if (value instanceof Map) {
    const inner = Array.from(value, ([key, item]) => `${toRepr(key)}: ${toRepr(item, depth + 1)}`)
    return `{${inner.join(', ')}}`
  }
  throw new RenderingRefusedError(`the template prints a ${typeName(value)}`)
}

/** `json.dumps(value)`; refuses what Python refuses. */
export function dumpJson(value: PythonValue, options: DumpOptions = {}): string {
  const indent = typeof options.indent === 'number' ? ' '.repeat(Math.max(0, options.indent)) : options.indent
  const [itemSeparator, keySeparator] = options.separators ?? [indent === undefined ? ', ' : ',', ': ']
  const text = (string: string) => (options.ensureAscii ? asciiJson(string) : jsonString(string))

  const dump = (item: PythonValue, depth: number): string => {
    if (depth > NESTING_MAX) throw new RenderingRefusedError('a value is nested too deeply')
    if (typeof item === 'string') return text(item)
    if (item instanceof PythonMarkup) return text(item.text)
    if (item === null) return 'null'
    if (typeof item === 'boolean' || typeof item === 'number' || typeof item === 'bigint')
      return item.toString()
    if (item instanceof PythonFloat) return floatText(item.value)
    const pad = indent === undefined ? '' : `\n${indent.repeat(depth + 1)}`
    const end = indent === undefined ? '' : `\n${indent.repeat(depth)}`
    const items = itemsOf(item)
    if (items !== undefined) {
      if (items.length === 0) return '[]'
      return `[${pad}${items.map(child => dump(child, depth + 1)).join(itemSeparator + pad)}${end}]`
    }
    if (item instanceof Map) {
      if (item.size === 0) return '{}'
      const entries = Array.from(item)
      if (options.sortKeys) entries.sort(([a], [b]) => compareKeys(a, b))
      const name = (key: PythonKey) => (typeof key === 'string' ? text(key) : `"${dump(key, depth)}"`)
      const inner = entries.map(([key, child]) => name(key) + keySeparator + dump(child, depth + 1))
      return `{${pad}${inner.join(itemSeparator + pad)}${end}}`
    }
    throw new RenderingRefusedError(`tojson of a ${typeName(item)}`)
  }
  return dump(value, 0)
}

/** `repr(float)`: the shortest digits that read back, in Python's notation. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) throw new RenderingRefusedError(`the number ${value}`)
  if (value === 0) return Object.is(value, -0) ? '-0.0' : '0.0'
  // JavaScript finds the same shortest digits; only the choice and the form of the exponent differ.
  const [mantissa = '', exponentText = '0'] = value.toExponential().split('e')
  const exponent = Number(exponentText)
  if (exponent >= -4 && exponent < 16) {
    const plain = value.toString()
    return plain.includes('.') ? plain : `${plain}.0`
  }
  const digits = Math.abs(exponent).toString().padStart(2, '0')
  return `${mantissa}e${exponent < 0 ? '-' : '+'}${digits}`
}

/** Order of code points, which is Python's order of strings and not JavaScript's. */
export function compareText(a: string, b: string): number {
  const left = a[Symbol.iterator]()
  const right = b[Symbol.iterator]()
  for (;;) {
    const x = left.next()
    const y = right.next()
    if (x.done || y.done) return (x.done ? 0 : 1) - (y.done ? 0 : 1)
    const difference = x.value.codePointAt(0)! - y.value.codePointAt(0)!
    if (difference !== 0) return difference
  }
}

function compareKeys(a: PythonKey, b: PythonKey): number {
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b)
  if (typeof a === 'number' && typeof b === 'number') return a - b
  throw new RenderingRefusedError('the template sorts keys of several types')
}

function jsonString(value: string): string {
  // JSON.stringify escapes what Python escapes; a lone surrogate, where they differ, is refused later.
  return PLAIN_STRING.test(value) ? `"${value}"` : JSON.stringify(value)
}

function asciiJson(value: string): string {
  return JSON.stringify(value)
    .replace(/[\x7f-\uffff]/g, character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .replaceAll('\\u007f', '\x7f')
}

function stringRepr(value: string): string {
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'"
  let text = quote
  for (const character of value) {
    const code = character.codePointAt(0)!
    if (character === quote || character === '\\') text += `\\${character}`
    else if (character === '\n') text += '\\n'
    else if (character === '\r') text += '\\r'
    else if (character === '\t') text += '\\t'
    else if (character === ' ' || !UNPRINTABLE.test(character)) text += character
    else if (code < 0x100) text += `\\x${code.toString(16).padStart(2, '0')}`
    else if (code < 0x10000) text += `\\u${code.toString(16).padStart(4, '0')}`
    else text += `\\U${code.toString(16).padStart(8, '0')}`
  }
  return text + quote
}
