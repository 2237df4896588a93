/**
 * Filters, tests and methods of chat templates, as Jinja2 3.1 and CPython 3 define them. Any other is refused
 * by name, so a template that needs it goes to the engine.
 */

import { RenderingRefusedError } from './errors.ts'
import {
  compareText,
  dumpJson,
  isEqual,
  isTruthy,
  itemsOf,
  numberOf,
  type PythonDict,
  PythonFloat,
  PythonFunction,
  PythonIterable,
  PythonObject,
  PythonTuple,
  type PythonValue,
  toText,
  typeName,
} from './python-value.ts'

type Keywords = ReadonlyMap<string, PythonValue>
type Filter = (value: PythonValue, args: readonly PythonValue[], keywords: Keywords) => PythonValue
type Test = (value: PythonValue, args: readonly PythonValue[]) => boolean
type Method<T> = (value: T, args: readonly PythonValue[], keywords: Keywords) => PythonValue

// str.strip and str.split take what str.isspace takes, which is not JavaScript's \s.
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'
const LEADING_SPACE = new RegExp(`^[${SPACE}]+`)
const SPACES = new RegExp(`[${SPACE}]+`)
const WORD = new RegExp(`[^${SPACE}]+`, 'g')
// biome-ignore lint/suspicious/noControlCharactersInRegex: what str.splitlines splits at
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/
const ASTRAL = /[\ud800-\udfff]/

/** The filter of that name applied to `value`. */
export function applyFilter(
  name: string,
  value: PythonValue,
  args: readonly PythonValue[],
  keywords: Keywords,
): PythonValue {
  const filter = Object.hasOwn(FILTERS, name) ? FILTERS[name] : undefined
  if (filter === undefined) throw new RenderingRefusedError(`the template uses the filter ${name}`)
  return filter(value, args, keywords)
}

/** Whether `value` passes the test of that name. */
export function applyTest(name: string, value: PythonValue, args: readonly PythonValue[] = []): boolean {
  const test = Object.hasOwn(TESTS, name) ? TESTS[name] : undefined
  if (test === undefined) throw new RenderingRefusedError(`the template uses the test ${name}`)
  return test(value, args)
}

/** `value.name` where it is a method of the type of `value`; undefined where it is not. */
export function methodOf(value: PythonValue, name: string): PythonFunction | undefined {
  if (typeof value === 'string') return boundMethod('str', STRING_METHODS, STRING_REFUSED, value, name)
  if (value instanceof Map) return boundMethod('dict', DICT_METHODS, DICT_REFUSED, value, name)
  const items = itemsOf(value)
  if (items !== undefined) return boundMethod('list', LIST_METHODS, LIST_REFUSED, items, name)
  return undefined
}

/** The items that a `for` over `value` visits. */
export function iterate(value: PythonValue): readonly PythonValue[] {
  const items = itemsOf(value)
  if (items !== undefined) return items
  if (value instanceof Map) return Array.from(value.keys())
  if (value instanceof PythonIterable) return value.take()
  if (typeof value === 'string') return Array.from(value)
  if (value === undefined) return []
  throw new RenderingRefusedError(`the template iterates over a ${typeName(value)}`)
}

/** `len(value)`. */
export function lengthOf(value: PythonValue): number {
  if (typeof value === 'string') return ASTRAL.test(value) ? Array.from(value).length : value.length
  if (value instanceof Map) return value.size
  const items = itemsOf(value)
  if (items !== undefined) return items.length
  if (value instanceof PythonIterable && value.kind !== 'generator') return value.items.length
  if (value === undefined) return 0
  throw new RenderingRefusedError(`the template takes the length of a ${typeName(value)}`)
}

/** `value[index]` of a sequence; a string is indexed by code points. */
export function itemAt(value: PythonValue, index: number): PythonValue {
  if (typeof value === 'string') return (ASTRAL.test(value) ? Array.from(value) : value).at(index)
  if (value instanceof PythonIterable) {
    if (value.kind === 'range') return value.items.at(index)
    throw new RenderingRefusedError(`the template indexes a ${value.kind}`)
  }
  return itemsOf(value)?.at(index)
}

/** `value[start:stop:step]`. */
export function sliceOf(
  value: PythonValue,
  start: number | undefined,
  stop: number | undefined,
  step: number,
): PythonValue {
  if (step === 0) throw new RenderingRefusedError('the template slices with step 0')
  const items = typeof value === 'string' ? Array.from(value) : itemsOf(value)
  if (items === undefined) throw new RenderingRefusedError(`the template slices a ${typeName(value)}`)
  const count = items.length
  const low = step > 0 ? 0 : -1
  const high = step > 0 ? count : count - 1
  const bound = (index: number) => Math.min(Math.max(index < 0 ? index + count : index, low), high)
  const from = start === undefined ? (step > 0 ? low : high) : bound(start)
  const to = stop === undefined ? (step > 0 ? high : low) : bound(stop)
  const picked: PythonValue[] = []
  for (let i = from; step > 0 ? i < to : i > to; i += step) picked.push(items[i])
  if (typeof value === 'string') return picked.join('')
  return value instanceof PythonTuple ? new PythonTuple(picked) : picked
}

const FILTERS: Readonly<Record<string, Filter>> = {
  tojson: (value, args, keywords) => {
    const [ensureAscii, indent, separators, sortKeys] = [
      'ensure_ascii',
      'indent',
      'separators',
      'sort_keys',
    ].map((name, i) => args[i] ?? keywords.get(name) ?? null)
    const pair = separators === null ? undefined : itemsOf(separators)
    return dumpJson(value, {
      ensureAscii: isTruthy(ensureAscii),
      indent: indent === null ? undefined : typeof indent === 'string' ? indent : integer(indent),
      separators: pair === undefined ? undefined : [string(pair[0]), string(pair[1])],
      sortKeys: isTruthy(sortKeys),
    })
  },
  string: value => toText(value),
  trim: (value, args, keywords) => strip(toText(value), args[0] ?? keywords.get('chars'), true, true),
  length: value => lengthOf(value),
  count: value => lengthOf(value),
  default: (value, args, keywords) => {
    const instead =
      args.length > 0 ? args[0] : keywords.has('default_value') ? keywords.get('default_value') : ''
    const alsoFalsy = isTruthy(args[1] ?? keywords.get('boolean'))
    return value === undefined || (alsoFalsy && !isTruthy(value)) ? instead : value
  },
  upper: value => toText(value).toUpperCase(),
  lower: value => toText(value).toLowerCase(),
  capitalize: value => capitalize(toText(value)),
  title: value =>
    toText(value)
      .split(/([-\s({[<]+)/u)
      .map(word => (word === '' ? '' : upperFirst(word) + rest(word).toLowerCase()))
      .join(''),
  replace: (value, args, keywords) =>
    replace(
      toText(value),
      toText(args[0] ?? keywords.get('old')),
      toText(args[1] ?? keywords.get('new')),
      args[2] ?? keywords.get('count'),
    ),
  join: (value, args, keywords) => {
    const attribute = args[1] ?? keywords.get('attribute')
    const items = iterate(value).map(item =>
      attribute === undefined ? item : attributePath(item, attribute),
    )
    return items.map(toText).join(toText(args[0] ?? keywords.get('d') ?? ''))
  },
  list: value => [...iterate(value)],
  first: value => iterate(value)[0],
  last: value => {
    if (value instanceof PythonIterable && value.kind === 'generator') {
      throw new RenderingRefusedError('the template takes the last item of a generator')
    }
    return iterate(value).at(-1)
  },
  reverse: value => {
    if (typeof value === 'string') return Array.from(value).reverse().join('')
    return generator([...iterate(value)].reverse())
  },
  items: value => {
    if (value === undefined) return generator([])
    if (!(value instanceof Map)) throw new RenderingRefusedError(`items of a ${typeName(value)}`)
    return generator(pairs(value))
  },
  dictsort: (value, args, keywords) => {
    if (!(value instanceof Map)) throw new RenderingRefusedError(`dictsort of a ${typeName(value)}`)
    const caseSensitive = isTruthy(args[0] ?? keywords.get('case_sensitive'))
    const position = (args[1] ?? keywords.get('by') ?? 'key') === 'value' ? 1 : 0
    const reverse = isTruthy(args[2] ?? keywords.get('reverse'))
    return sorted(pairs(value), pair => itemsOf(pair)?.[position], caseSensitive, reverse)
  },
  sort: (value, args, keywords) => {
    const attribute = args[2] ?? keywords.get('attribute')
    const key = (item: PythonValue) =>
      attribute === undefined || attribute === null ? item : attributePath(item, attribute)
    const caseSensitive = isTruthy(args[1] ?? keywords.get('case_sensitive'))
    return sorted([...iterate(value)], key, caseSensitive, isTruthy(args[0] ?? keywords.get('reverse')))
  },
  unique: (value, args, keywords) => {
    const caseSensitive = isTruthy(args[0] ?? keywords.get('case_sensitive'))
    const seen: PythonValue[] = []
    const kept = iterate(value).filter(item => {
      const key = folded(item, caseSensitive)
      if (seen.some(other => isEqual(other, key))) return false
      seen.push(key)
      return true
    })
    return generator(kept)
  },
  map: (value, args, keywords) => {
    const items = iterate(value)
    if (keywords.has('attribute')) {
      const fallback = keywords.get('default')
      return generator(items.map(item => attributePath(item, keywords.get('attribute')) ?? fallback))
    }
    const [name, ...others] = args
    return generator(items.map(item => applyFilter(string(name), item, others, keywords)))
  },
  select: (value, args) => generator(iterate(value).filter(item => passes(item, args))),
  reject: (value, args) => generator(iterate(value).filter(item => !passes(item, args))),
  selectattr: (value, [attribute, ...args]) =>
    generator(iterate(value).filter(item => passes(attributePath(item, attribute), args))),
  rejectattr: (value, [attribute, ...args]) =>
    generator(iterate(value).filter(item => !passes(attributePath(item, attribute), args))),
  indent: (value, args, keywords) => {
    const width = args[0] ?? keywords.get('width') ?? 4
    const first = isTruthy(args[1] ?? keywords.get('first'))
    const blank = isTruthy(args[2] ?? keywords.get('blank'))
    const indent = typeof width === 'string' ? width : ' '.repeat(integer(width))
    const lines = splitLines(`${toText(value)}\n`)
    return lines
      .map((line, i) => ((i === 0 ? first : blank || line !== '') ? indent + line : line))
      .join('\n')
  },
  int: (value, args, keywords) => {
    const fallback = args.length > 0 ? args[0] : keywords.has('default') ? keywords.get('default') : 0
    if (typeof value === 'number' || typeof value === 'bigint') return value
    if (typeof value === 'boolean') return Number(value)
    if (value instanceof PythonFloat) return safeInteger(Math.trunc(value.value))
    if (value === undefined) throw new RenderingRefusedError('the template takes undefined for an int')
    if (typeof value !== 'string') return fallback
    const text = stripSpace(value)
    if (/^[+-]?[0-9]+$/.test(text)) return safeInteger(Number(text))
    return /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(text)
      ? safeInteger(Math.trunc(Number(text)))
      : fallback
  },
  float: (value, args, keywords) => {
    const fallback = args.length > 0 ? args[0] : (keywords.get('default') ?? new PythonFloat(0))
    const number = numberOf(value)
    if (number !== undefined) return new PythonFloat(Number(number))
    if (typeof value !== 'string') return fallback
    const text = stripSpace(value)
    return /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(text)
      ? new PythonFloat(Number(text))
      : fallback
  },
  abs: value => {
    if (value instanceof PythonFloat) return new PythonFloat(Math.abs(value.value))
    return Math.abs(integer(value))
  },
}

const TESTS: Readonly<Record<string, Test>> = {
  defined: value => value !== undefined,
  undefined: value => value === undefined,
  none: value => value === null,
  string: value => typeof value === 'string',
  // bool is a subclass of int.
  number: value => numberOf(value) !== undefined,
  integer: value => typeof value === 'number' || typeof value === 'bigint',
  float: value => value instanceof PythonFloat,
  boolean: value => typeof value === 'boolean',
  true: value => value === true,
  false: value => value === false,
  mapping: value => value instanceof Map,
  sequence: value => isContainer(value) || (value instanceof PythonIterable && value.kind === 'range'),
  iterable: value => isContainer(value) || value instanceof PythonIterable,
  callable: value => value instanceof PythonFunction || value === undefined,
  odd: value => Math.abs(integer(value)) % 2 === 1,
  even: value => integer(value) % 2 === 0,
  lower: value => isCased(toText(value), text => text.toLowerCase()),
  upper: value => isCased(toText(value), text => text.toUpperCase()),
  eq: (value, [other]) => isEqual(value, other),
  equalto: (value, [other]) => isEqual(value, other),
  '==': (value, [other]) => isEqual(value, other),
  ne: (value, [other]) => !isEqual(value, other),
  '!=': (value, [other]) => !isEqual(value, other),
  in: (value, [container]) => contains(container, value),
}

const STRING_METHODS: Readonly<Record<string, Method<string>>> = {
  strip: (value, [characters]) => strip(value, characters, true, true),
  lstrip: (value, [characters]) => strip(value, characters, true, false),
  rstrip: (value, [characters]) => strip(value, characters, false, true),
  upper: value => value.toUpperCase(),
  lower: value => value.toLowerCase(),
  capitalize: value => capitalize(value),
  title: value => value.replace(/\p{L}[\p{L}\p{M}]*/gu, word => upperFirst(word) + rest(word).toLowerCase()),
  startswith: (value, args) => affixes(args).some(affix => value.startsWith(affix)),
  endswith: (value, args) => affixes(args).some(affix => value.endsWith(affix)),
  split: (value, args, keywords) =>
    split(value, args[0] ?? keywords.get('sep'), args[1] ?? keywords.get('maxsplit')),
  rsplit: (value, args, keywords) =>
    splitFromRight(value, args[0] ?? keywords.get('sep'), args[1] ?? keywords.get('maxsplit')),
  splitlines: (value, args) => {
    if (args.length > 0) throw new RenderingRefusedError('splitlines with an argument')
    return splitLines(value)
  },
  replace: (value, args, keywords) =>
    replace(value, string(args[0]), string(args[1]), args[2] ?? keywords.get('count')),
  join: (value, [items]) => iterate(items).map(string).join(value),
  removeprefix: (value, [prefix]) =>
    value.startsWith(string(prefix)) ? value.slice(string(prefix).length) : value,
  removesuffix: (value, [suffix]) =>
    string(suffix) !== '' && value.endsWith(string(suffix)) ? value.slice(0, -string(suffix).length) : value,
  find: (value, args) => position(value, args, value.indexOf(string(args[0]))),
  rfind: (value, args) => position(value, args, value.lastIndexOf(string(args[0]))),
  count: (value, args) => {
    if (args.length !== 1 || args[0] === '') throw new RenderingRefusedError('str.count with these arguments')
    return value.split(string(args[0])).length - 1
  },
}

const DICT_METHODS: Readonly<Record<string, Method<PythonDict>>> = {
  get: (value, [key, fallback]) =>
    typeof key === 'string' && value.has(key) ? value.get(key) : (fallback ?? null),
  keys: value => new PythonIterable('view', Array.from(value.keys())),
  values: value => new PythonIterable('view', Array.from(value.values())),
  items: value => new PythonIterable('view', pairs(value)),
  copy: value => new Map(value),
}

const LIST_METHODS: Readonly<Record<string, Method<readonly PythonValue[]>>> = {
  count: (value, [item]) => value.filter(other => isEqual(other, item)).length,
  index: (value, [item]) => {
    const found = value.findIndex(other => isEqual(other, item))
    if (found === -1) throw new RenderingRefusedError('list.index of an absent item')
    return found
  },
}

// Attributes that exist in Python and are not here: to answer "undefined" would be silently wrong.
const STRING_REFUSED = new Set(
  (
    'casefold center encode expandtabs format format_map index isalnum isalpha isascii isdecimal isdigit ' +
    'isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans partition rindex ' +
    'rjust rpartition swapcase translate zfill'
  ).split(' '),
)
const DICT_REFUSED = new Set('clear fromkeys pop popitem setdefault update'.split(' '))
const LIST_REFUSED = new Set('append clear copy extend insert pop remove reverse sort'.split(' '))

function boundMethod<T>(
  type: string,
  methods: Readonly<Record<string, Method<T>>>,
  refused: ReadonlySet<string>,
  value: T,
  name: string,
): PythonFunction | undefined {
  if (refused.has(name) || name.startsWith('_'))
    throw new RenderingRefusedError(`the template uses ${type}.${name}`)
  if (!Object.hasOwn(methods, name)) return undefined
  const method = methods[name]!
  return new PythonFunction(`${type}.${name}`, (args, keywords) => method(value, args, keywords))
}

/** `item in container`. */
export function contains(container: PythonValue, item: PythonValue): boolean {
  if (container === undefined) return false
  if (typeof container === 'string') return container.includes(string(item))
  if (container instanceof Map) return typeof item === 'string' && container.has(item)
  return iterate(container).some(other => isEqual(other, item))
}

/** -1, 0 or 1, for numbers and strings; refuses other pairs, as Python does. */
export function compare(a: PythonValue, b: PythonValue): number {
  if (typeof a === 'string' && typeof b === 'string') return Math.sign(compareText(a, b))
  const left = numberOf(a)
  const right = numberOf(b)
  if (left === undefined || right === undefined) {
    throw new RenderingRefusedError(`the template compares a ${typeName(a)} with a ${typeName(b)}`)
  }
  return left < right ? -1 : left > right ? 1 : 0
}

/** An int within the safe range; refuses anything else. */
export function integer(value: PythonValue): number {
  if (typeof value === 'boolean') return Number(value)
  if (typeof value !== 'number')
    throw new RenderingRefusedError(`the template takes a ${typeName(value)} for an int`)
  return value
}

/** The result of an integer operation; refuses what a number cannot hold. */
export function safeInteger(value: number): number {
  if (!Number.isSafeInteger(value)) throw new RenderingRefusedError(`the integer ${value} is beyond 2^53`)
  return value + 0
}

function string(value: PythonValue): string {
  if (typeof value !== 'string')
    throw new RenderingRefusedError(`the template takes a ${typeName(value)} for a str`)
  return value
}

function isContainer(value: PythonValue): boolean {
  return (
    value === undefined || typeof value === 'string' || value instanceof Map || itemsOf(value) !== undefined
  )
}

function generator(items: readonly PythonValue[]): PythonIterable {
  return new PythonIterable('generator', items)
}

function isCased(text: string, convert: (text: string) => string): boolean {
  return text === convert(text) && text.toLowerCase() !== text.toUpperCase()
}

function rest(word: string): string {
  return Array.from(word).slice(1).join('')
}

/** Python gives a first letter its title case, which JavaScript does not have. */
function upperFirst(word: string): string {
  const first = Array.from(word)[0] ?? ''
  const upper = first.toUpperCase()
  if (upper.length !== first.length || /[\u01c4-\u01cc\u01f1-\u01f3\u10d0-\u10ff]/.test(first)) {
    throw new RenderingRefusedError(`the template capitalizes ${first}`)
  }
  return upper
}

function capitalize(value: string): string {
  return value === '' ? '' : upperFirst(value) + rest(value).toLowerCase()
}

/** `str.strip()`, or `str.rstrip()` when the left side stays. */
export function stripSpace(value: string, left = true): string {
  return strip(value, undefined, left, true)
}

function strip(value: string, characters: PythonValue, left: boolean, right: boolean): string {
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

function split(value: string, separator: PythonValue, limit: PythonValue): PythonValue[] {
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

function splitFromRight(value: string, separator: PythonValue, limit: PythonValue): PythonValue[] {
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

function splitLines(value: string): string[] {
  const lines = value.split(LINE_END)
  if (lines.at(-1) === '') lines.pop()
  return lines
}

function replace(value: string, old: string, by: string, limit: PythonValue): string {
  const countMax = limit === undefined || limit === null ? -1 : integer(limit)
  if (old === '') throw new RenderingRefusedError('the template replaces the empty string')
  if (countMax < 0) return value.replaceAll(old, () => by)
  const parts = value.split(old)
  const head = parts.slice(0, countMax + 1).join(by)
  return parts.length <= countMax + 1 ? head : [head, ...parts.slice(countMax + 1)].join(old)
}

function affixes([affix, ...others]: readonly PythonValue[]): readonly string[] {
  if (others.length > 0) throw new RenderingRefusedError('startswith or endswith with a range')
  return affix instanceof PythonTuple ? affix.items.map(string) : [string(affix)]
}

function position(value: string, args: readonly PythonValue[], found: number): number {
  if (args.length !== 1) throw new RenderingRefusedError('str.find with a range')
  return found > 0 ? lengthOf(value.slice(0, found)) : found
}

function pairs(value: PythonDict): PythonTuple[] {
  return Array.from(value, ([key, item]) => new PythonTuple([key, item]))
}

/** What Jinja2's `attribute="a.b.0"` reaches. */
function attributePath(item: PythonValue, path: PythonValue): PythonValue {
  if (typeof path === 'number') return itemAt(item, path)
  let value = item
  for (const part of string(path).split('.')) {
    if (/^\d+$/.test(part)) value = itemAt(value, Number(part))
    else if (value instanceof Map) value = value.has(part) ? value.get(part) : methodOf(value, part)
    else if (value instanceof PythonObject) value = value.attributes.get(part)
    else if (value === undefined)
      throw new RenderingRefusedError('the template reads an attribute of undefined')
    else value = methodOf(value, part)
  }
  return value
}

function passes(value: PythonValue, [name, ...args]: readonly PythonValue[]): boolean {
  return name === undefined ? isTruthy(value) : applyTest(string(name), value, args)
}

function folded(value: PythonValue, caseSensitive: boolean): PythonValue {
  return typeof value === 'string' && !caseSensitive ? value.toLowerCase() : value
}

function sorted(
  items: PythonValue[],
  key: (item: PythonValue) => PythonValue,
  caseSensitive: boolean,
  reverse: boolean,
): PythonValue[] {
  // Python's reverse sort keeps equal items in order, as a negated comparison does.
  const sign = reverse ? -1 : 1
  return items.sort((a, b) => sign * compare(folded(key(a), caseSensitive), folded(key(b), caseSensitive)))
}
