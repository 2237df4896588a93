/**
 * Filters, tests and methods of chat templates, as Jinja2 3.1 and CPython 3 define them. Any other is refused
 * by name, so a template that needs it goes to the engine. docs/requests.md lists them.
 *
 * Text that is marked as safe keeps its mark in some filters and loses it in others (FILTERS_OF_MARKUP). What
 * differs between versions of MarkupSafe, or is not known here, is refused.
 */

import { RenderingRefusedError } from './errors.ts'
import {
  arithmetic,
  braceFormat,
  escapeMarkup,
  fixedText,
  joinedAll,
  percentFormat,
  safeInteger,
  sum,
} from './python-operators.ts'
import {
  compareText,
  dumpJson,
  getItem,
  hasItem,
  isEqual,
  isTruthy,
  itemsOf,
  numberOf,
  type PythonDict,
  PythonFloat,
  PythonFunction,
  PythonIterable,
  PythonMarkup,
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
const BEYOND_ASCII = /[^\0-\x7f]/
const SLICES_MAX = 100_000
/** Spaces. */
const INDENT_MAX = 10_000
const PADDING_MAX = 1_000_000
const ROUND_DIGITS_MAX = 15

/** The filter of that name applied to `value`. */
export function applyFilter(
  name: string,
  value: PythonValue,
  args: readonly PythonValue[],
  keywords: Keywords,
): PythonValue {
  const filter = Object.hasOwn(FILTERS, name) ? FILTERS[name] : undefined
  if (filter === undefined) throw new RenderingRefusedError(`the template uses the filter ${name}`)
  const parameters = PARAMETERS.get(name)
  if (parameters !== undefined) {
    const isKnown = (key: string) => parameters.indexOf(key) >= args.length
    if (args.length > parameters.length || !Array.from(keywords.keys()).every(isKnown))
      throw new RenderingRefusedError(`the template uses the filter ${name} with other arguments`)
  }
  const isMarked = [...args, ...keywords.values()].some(given => given instanceof PythonMarkup)
  const rule = FILTERS_OF_MARKUP.get(name)
  if (isMarked && (rule === undefined || !rule.takesMarked))
    throw new RenderingRefusedError(`the template gives the filter ${name} text that is marked as safe`)
  if (!(value instanceof PythonMarkup) || rule?.gets === 'mark') return filter(value, args, keywords)
  if (rule === undefined)
    throw new RenderingRefusedError(`the template uses the filter ${name} on text that is marked as safe`)
  const result = filter(value.text, args, keywords)
  return rule.keeps && typeof result === 'string' ? new PythonMarkup(result) : result
}

/** Whether `value` passes the test of that name. */
export function applyTest(name: string, value: PythonValue, args: readonly PythonValue[] = []): boolean {
  const test = Object.hasOwn(TESTS, name) ? TESTS[name] : undefined
  if (test === undefined) throw new RenderingRefusedError(`the template uses the test ${name}`)
  if (args.length !== (COMPARING_TESTS.has(name) ? 1 : 0))
    throw new RenderingRefusedError(`the template uses the test ${name} with other arguments`)
  return test(value, args)
}

/** `value.name` where it is a method of the type of `value`; undefined where it is not. */
export function methodOf(value: PythonValue, name: string): PythonFunction | undefined {
  if (typeof value === 'string') return boundMethod('str', STRING_METHODS, STRING_REFUSED, value, name)
  if (value instanceof PythonMarkup) return boundMethod('Markup', MARKUP_METHODS, MARKUP_REFUSED, value, name)
  if (numberOf(value) !== undefined && (NUMBER_REFUSED.has(name) || name.startsWith('_')))
    throw new RenderingRefusedError(`the template uses ${typeName(value)}.${name}`)
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
  // Python iterates over the plain text.
  if (value instanceof PythonMarkup) return Array.from(value.text)
  if (value === undefined) return []
  throw new RenderingRefusedError(`the template iterates over a ${typeName(value)}`)
}

/** `len(value)`. */
export function lengthOf(value: PythonValue): number {
  if (typeof value === 'string') return ASTRAL.test(value) ? Array.from(value).length : value.length
  if (value instanceof PythonMarkup) return lengthOf(value.text)
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
  if (value instanceof PythonMarkup) return marked(itemAt(value.text, index))
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
  if (value instanceof PythonMarkup) return marked(sliceOf(value.text, start, stop, step))
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

/** Names of the parameters of filters behind the value; of others any are looked at by the filter. */
const PARAMETERS: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    abs: '',
    batch: 'linecount fill_with',
    capitalize: '',
    center: 'width',
    count: '',
    d: 'default_value boolean',
    default: 'default_value boolean',
    dictsort: 'case_sensitive by reverse',
    e: '',
    escape: '',
    first: '',
    float: 'default',
    forceescape: '',
    indent: 'width first blank',
    int: 'default base',
    items: '',
    join: 'd attribute',
    last: '',
    length: '',
    list: '',
    lower: '',
    max: 'case_sensitive attribute',
    min: 'case_sensitive attribute',
    replace: 'old new count',
    reverse: '',
    round: 'precision method',
    safe: '',
    slice: 'slices fill_with',
    sort: 'reverse case_sensitive attribute',
    string: '',
    sum: 'attribute start',
    title: '',
    tojson: 'ensure_ascii indent separators sort_keys',
    trim: 'chars',
    truncate: 'length killwords end leeway',
    unique: 'case_sensitive attribute',
    upper: '',
    wordcount: '',
  }).map(([name, parameters]) => [name, parameters.split(' ').filter(parameter => parameter !== '')]),
)

interface MarkupRule {
  /** The filter gets the marked text, or its plain text. */
  readonly gets: 'mark' | 'text'
  /** Its result is marked. */
  readonly keeps: boolean
  /** Its arguments may be marked: it makes plain text of them, or gives them back. */
  readonly takesMarked: boolean
}

const FILTERS_OF_MARKUP: ReadonlyMap<string, MarkupRule> = new Map<string, MarkupRule>([
  ...['safe', 'e', 'escape', 'forceescape', 'string'].map(
    name => [name, { gets: 'mark', keeps: false, takesMarked: false }] as const,
  ),
  ...['d', 'default'].map(name => [name, { gets: 'mark', keeps: false, takesMarked: true }] as const),
  ...['capitalize', 'center', 'indent', 'lower', 'reverse', 'trim', 'upper'].map(
    name => [name, { gets: 'text', keeps: true, takesMarked: false }] as const,
  ),
  ...['count', 'first', 'float', 'int', 'length', 'list', 'title', 'tojson', 'wordcount'].map(
    name => [name, { gets: 'text', keeps: false, takesMarked: false }] as const,
  ),
  ...['join', 'replace'].map(name => [name, { gets: 'text', keeps: false, takesMarked: true }] as const),
])

const defaultFilter: Filter = (value, args, keywords) => {
  const instead =
    args.length > 0 ? args[0] : keywords.has('default_value') ? keywords.get('default_value') : ''
  const alsoFalsy = isTruthy(args[1] ?? keywords.get('boolean'))
  return value === undefined || (alsoFalsy && !isTruthy(value)) ? instead : value
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
  string: value => (value instanceof PythonMarkup ? value : toText(value)),
  safe: value => (value instanceof PythonMarkup ? value : new PythonMarkup(toText(value))),
  e: value => escapeMarkup(value),
  escape: value => escapeMarkup(value),
  forceescape: value => escapeMarkup(toText(value)),
  format: (value, args, keywords) => {
    if (args.length > 0 && keywords.size > 0)
      throw new RenderingRefusedError('the template formats with names and without')
    return percentFormat(toText(value), keywords.size > 0 ? new Map(keywords) : args)
  },
  trim: (value, args, keywords) => strip(toText(value), args[0] ?? keywords.get('chars'), true, true),
  length: value => lengthOf(value),
  count: value => lengthOf(value),
  default: defaultFilter,
  d: defaultFilter,
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
    const items = iterate(value).map(attributeGetter(args[1] ?? keywords.get('attribute')))
    return joinedAll(items.map(toText), toText(args[0] ?? keywords.get('d') ?? ''))
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
    const key = attributeGetter(args[2] ?? keywords.get('attribute'))
    const caseSensitive = isTruthy(args[1] ?? keywords.get('case_sensitive'))
    return sorted([...iterate(value)], key, caseSensitive, isTruthy(args[0] ?? keywords.get('reverse')))
  },
  unique: (value, args, keywords) => {
    const caseSensitive = isTruthy(args[0] ?? keywords.get('case_sensitive'))
    const keyOf = attributeGetter(args[1] ?? keywords.get('attribute'))
    const seen: PythonValue[] = []
    const kept = iterate(value).filter(item => {
      const key = folded(keyOf(item), caseSensitive)
      if (Array.isArray(key) || key instanceof Map || key instanceof PythonTuple)
        throw new RenderingRefusedError(`the template looks for the same ${typeName(key)}`)
      if (seen.some(other => isEqual(other, key))) return false
      seen.push(key)
      return true
    })
    return generator(kept)
  },
  min: (value, args, keywords) => extreme(value, args, keywords, -1),
  max: (value, args, keywords) => extreme(value, args, keywords, 1),
  sum: (value, args, keywords) => {
    const item = attributeGetter(args[0] ?? keywords.get('attribute'))
    const start = args.length > 1 ? args[1] : keywords.has('start') ? keywords.get('start') : 0
    return iterate(value).reduce((total, next) => {
      if (typeof total === 'string' || total instanceof PythonMarkup)
        throw new RenderingRefusedError('the template sums up strings')
      return sum(total, item(next)) ?? arithmetic('+', total, item(next))
    }, start)
  },
  batch: (value, args, keywords) => {
    const count = integer(args[0] ?? keywords.get('linecount'))
    const fill = args[1] ?? keywords.get('fill_with') ?? null
    if (count < 1 || count > SLICES_MAX)
      throw new RenderingRefusedError(`the template makes batches of ${count}`)
    const items = iterate(value)
    const batches: PythonValue[][] = []
    for (let at = 0; at < items.length; at += count) batches.push(items.slice(at, at + count))
    const last = batches.at(-1)
    while (fill !== null && last !== undefined && last.length < count) last.push(fill)
    return generator(batches)
  },
  slice: (value, args, keywords) => {
    const count = integer(args[0] ?? keywords.get('slices'))
    const fill = args[1] ?? keywords.get('fill_with') ?? null
    const items = iterate(value)
    if (count < 1 || count > SLICES_MAX) throw new RenderingRefusedError(`the template makes ${count} slices`)
    const each = Math.floor(items.length / count)
    const longer = items.length % count
    return generator(
      Array.from({ length: count }, (_, i) => {
        const start = i * each + Math.min(i, longer)
        const slice = items.slice(start, start + each + (i < longer ? 1 : 0))
        return fill !== null && i >= longer ? [...slice, fill] : slice
      }),
    )
  },
  round: (value, args, keywords) => {
    const precision = integer(args[0] ?? keywords.get('precision') ?? 0)
    const method = args[1] ?? keywords.get('method') ?? 'common'
    const number = numberOf(value)
    if (typeof number !== 'number' || precision < 0 || precision > ROUND_DIGITS_MAX)
      throw new RenderingRefusedError(`the template rounds a ${typeName(value)} to ${precision}`)
    if (method === 'common') {
      if (!(value instanceof PythonFloat)) return number
      return new PythonFloat(Number(fixedText(number, precision)))
    }
    if (method !== 'ceil' && method !== 'floor')
      throw new RenderingRefusedError(`the template rounds by ${toText(method)}`)
    return new PythonFloat(safeInteger(Math[method](number * 10 ** precision)) / 10 ** precision)
  },
  center: (value, args, keywords) =>
    centered(toText(value), integer(args[0] ?? keywords.get('width') ?? 80), ' '),
  truncate: (value, args, keywords) => {
    const length = integer(args[0] ?? keywords.get('length') ?? 255)
    const end = string(args[2] ?? keywords.get('end') ?? '...')
    const leeway = integer(args[3] ?? keywords.get('leeway') ?? 5)
    const text = string(value)
    const room = length - lengthOf(end)
    if (room < 0 || leeway < 0) throw new RenderingRefusedError(`the template truncates to ${length}`)
    if (lengthOf(text) <= length + leeway) return text
    const head = string(sliceOf(text, 0, room, 1))
    if (isTruthy(args[1] ?? keywords.get('killwords'))) return head + end
    const space = head.lastIndexOf(' ')
    return (space === -1 ? head : head.slice(0, space)) + end
  },
  wordcount: value => ascii(toText(value)).match(/\w+/g)?.length ?? 0,
  map: (value, args, keywords) => {
    const items = someOf(value)
    if (args.length === 0 && keywords.has('attribute')) {
      if (Array.from(keywords.keys()).some(key => key !== 'attribute' && key !== 'default'))
        throw new RenderingRefusedError('the template uses the filter map with other arguments')
      const instead = keywords.get('default') ?? undefined
      return generator(items.map(item => attributePath(item, keywords.get('attribute'), instead)))
    }
    const [name, ...others] = args
    return generator(items.map(item => applyFilter(string(name), item, others, keywords)))
  },
  select: (value, args, keywords) => selected(value, args, keywords, item => item, true),
  reject: (value, args, keywords) => selected(value, args, keywords, item => item, false),
  selectattr: (value, [attribute, ...args], keywords) =>
    selected(value, args, keywords, item => attributePath(item, attribute), true),
  rejectattr: (value, [attribute, ...args], keywords) =>
    selected(value, args, keywords, item => attributePath(item, attribute), false),
  indent: (value, args, keywords) => {
    const width = args[0] ?? keywords.get('width') ?? 4
    const first = isTruthy(args[1] ?? keywords.get('first'))
    const blank = isTruthy(args[2] ?? keywords.get('blank'))
    const indent = typeof width === 'string' ? width : ' '.repeat(Math.min(integer(width), INDENT_MAX + 1))
    if (indent.length > INDENT_MAX) throw new RenderingRefusedError('the template indents too far')
    const lines = splitLines(`${string(value)}\n`)
    return lines
      .map((line, i) => ((i === 0 ? first : blank || line !== '') ? indent + line : line))
      .join('\n')
  },
  int: (value, args, keywords) => {
    const fallback = args.length > 0 ? args[0] : keywords.has('default') ? keywords.get('default') : 0
    if ((args[1] ?? keywords.get('base') ?? 10) !== 10)
      throw new RenderingRefusedError('the template reads integers of another base')
    if (typeof value === 'number' || typeof value === 'bigint') return value
    if (typeof value === 'boolean') return Number(value)
    if (value instanceof PythonFloat) return safeInteger(Math.trunc(value.value))
    if (value === undefined) throw new RenderingRefusedError('the template takes undefined for an int')
    if (typeof value !== 'string') return fallback
    const text = numberText(value)
    if (/^[+-]?[0-9]+$/.test(text)) return safeInteger(Number(text))
    return /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(text)
      ? safeInteger(Math.trunc(Number(text)))
      : fallback
  },
  float: (value, args, keywords) => {
    const fallback =
      args.length > 0 ? args[0] : keywords.has('default') ? keywords.get('default') : new PythonFloat(0)
    const number = numberOf(value)
    if (number !== undefined) return new PythonFloat(Number(number))
    if (value === undefined) throw new RenderingRefusedError('the template takes undefined for a float')
    if (typeof value !== 'string') return fallback
    const text = numberText(value)
    return /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(text)
      ? new PythonFloat(Number(text))
      : fallback
  },
  abs: value => {
    if (value instanceof PythonFloat) return new PythonFloat(Math.abs(value.value))
    return Math.abs(integer(value))
  },
}

/** Tests that have an argument. */
const COMPARING_TESTS: ReadonlySet<string> = new Set(
  'divisibleby sameas in == eq equalto != ne > gt greaterthan >= ge < lt lessthan <= le'.split(' '),
)

const TESTS: Readonly<Record<string, Test>> = {
  defined: value => value !== undefined,
  undefined: value => value === undefined,
  none: value => value === null,
  string: value => typeof value === 'string' || value instanceof PythonMarkup,
  escaped: value => value instanceof PythonMarkup,
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
  callable: value => {
    if (value instanceof PythonObject)
      throw new RenderingRefusedError('the template asks whether it can be called')
    return value instanceof PythonFunction || value === undefined
  },
  odd: value => Math.abs(integer(value)) % 2 === 1,
  even: value => integer(value) % 2 === 0,
  lower: value => isCased(toText(value), text => text.toLowerCase()),
  upper: value => isCased(toText(value), text => text.toUpperCase()),
  eq: (value, [other]) => isEqual(value, other),
  equalto: (value, [other]) => isEqual(value, other),
  '==': (value, [other]) => isEqual(value, other),
  ne: (value, [other]) => !isEqual(value, other),
  '!=': (value, [other]) => !isEqual(value, other),
  '>': (value, [other]) => compare(value, other) > 0,
  gt: (value, [other]) => compare(value, other) > 0,
  greaterthan: (value, [other]) => compare(value, other) > 0,
  '>=': (value, [other]) => compare(value, other) >= 0,
  ge: (value, [other]) => compare(value, other) >= 0,
  '<': (value, [other]) => compare(value, other) < 0,
  lt: (value, [other]) => compare(value, other) < 0,
  lessthan: (value, [other]) => compare(value, other) < 0,
  '<=': (value, [other]) => compare(value, other) <= 0,
  le: (value, [other]) => compare(value, other) <= 0,
  in: (value, [container]) => contains(container, value),
  divisibleby: (value, [divisor]) => {
    if (integer(divisor ?? null) === 0) throw new RenderingRefusedError('the template divides by zero')
    return integer(value) % integer(divisor ?? null) === 0
  },
  sameas: (value, [other]) => {
    // Of these there is one each; whether two equal numbers or strings are one is up to the interpreter.
    if (other !== null && typeof other !== 'boolean')
      throw new RenderingRefusedError(`the template asks for the same ${typeName(other)}`)
    return value === other
  },
}

const STRING_METHODS: Readonly<Record<string, Method<string>>> = {
  strip: (value, [characters]) => strip(value, characters, true, true),
  lstrip: (value, [characters]) => strip(value, characters, true, false),
  rstrip: (value, [characters]) => strip(value, characters, false, true),
  upper: value => value.toUpperCase(),
  lower: value => value.toLowerCase(),
  capitalize: value => capitalize(value),
  title: value => value.replace(/\p{L}[\p{L}\p{M}]*/gu, word => upperFirst(word) + rest(word).toLowerCase()),
  isdigit: value => /^[0-9]+$/.test(ascii(value)),
  isdecimal: value => /^[0-9]+$/.test(ascii(value)),
  isnumeric: value => /^[0-9]+$/.test(ascii(value)),
  isalpha: value => /^[A-Za-z]+$/.test(ascii(value)),
  isalnum: value => /^[A-Za-z0-9]+$/.test(ascii(value)),
  isascii: value => !BEYOND_ASCII.test(value),
  isspace: value => value !== '' && stripSpace(value) === '',
  islower: value => isCased(ascii(value), text => text.toLowerCase()),
  isupper: value => isCased(ascii(value), text => text.toUpperCase()),
  swapcase: value =>
    ascii(value).replace(/[a-z]+|[A-Z]+/g, letters =>
      letters < 'a' ? letters.toLowerCase() : letters.toUpperCase(),
    ),
  casefold: value => ascii(value).toLowerCase(),
  center: (value, [width, fill = ' ']) => centered(value, integer(width), string(fill)),
  ljust: (value, [width, fill = ' ']) => value + padding(value, width, fill),
  rjust: (value, [width, fill = ' ']) => padding(value, width, fill) + value,
  zfill: (value, [width]) => {
    const [sign = ''] = /^[-+]?/.exec(value) ?? []
    return sign + padding(value, width, '0') + value.slice(sign.length)
  },
  partition: (value, [separator]) => {
    const [at, length] = [value.indexOf(nonEmpty(separator)), nonEmpty(separator).length]
    if (at === -1) return new PythonTuple([value, '', ''])
    return new PythonTuple([value.slice(0, at), separator, value.slice(at + length)])
  },
  rpartition: (value, [separator]) => {
    const [at, length] = [value.lastIndexOf(nonEmpty(separator)), nonEmpty(separator).length]
    if (at === -1) return new PythonTuple(['', '', value])
    return new PythonTuple([value.slice(0, at), separator, value.slice(at + length)])
  },
  index: (value, args) => presentPosition(position(value, args, value.indexOf(string(args[0])))),
  rindex: (value, args) => presentPosition(position(value, args, value.lastIndexOf(string(args[0])))),
  format: (value, args, keywords) => braceFormat(value, args, keywords),
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
  join: (value, [items]) => joinedAll(iterate(items).map(string), value),
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
  get: (value, [key, fallback = null]) => (hasItem(value, key) ? getItem(value, key) : fallback),
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
  'encode expandtabs format_map isidentifier isprintable istitle maketrans translate'.split(' '),
)
const DICT_REFUSED = new Set('clear fromkeys pop popitem setdefault update'.split(' '))
const LIST_REFUSED = new Set('append clear copy extend insert pop remove reverse sort'.split(' '))

const NUMBER_REFUSED = new Set(
  (
    'as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag is_integer ' +
    'numerator real to_bytes'
  ).split(' '),
)

/** Those of them that every version of MarkupSafe has alike. */
const MARKUP_METHODS: Readonly<Record<string, Method<PythonMarkup>>> = {
  ...ofText(['lower', 'upper', 'capitalize', 'title', 'strip', 'lstrip', 'rstrip'], marked),
  ...ofText(['split', 'rsplit', 'splitlines'], parts => (parts as PythonValue[]).map(marked)),
  ...ofText(['startswith', 'endswith', 'find', 'rfind', 'count', 'isdigit', 'isspace'], result => result),
}
const MARKUP_REFUSED: ReadonlySet<string> = new Set(
  [...Object.keys(STRING_METHODS), ...STRING_REFUSED, 'escape', 'striptags', 'unescape'].filter(
    name => !Object.hasOwn(MARKUP_METHODS, name),
  ),
)

/** Methods of str, of the plain text; refuses arguments that some versions of MarkupSafe would escape. */
function ofText(
  names: readonly string[],
  resultOf: (result: PythonValue) => PythonValue,
): Readonly<Record<string, Method<PythonMarkup>>> {
  return Object.fromEntries(
    names.map(name => [
      name,
      ({ text }: PythonMarkup, args: readonly PythonValue[], keywords: Keywords) => {
        const isPlain = args.every(arg => !(arg instanceof PythonMarkup) && !/[&<>'"]/.test(toText(arg)))
        if (!isPlain || keywords.size > 0)
          throw new RenderingRefusedError(`the template uses Markup.${name} with such arguments`)
        return resultOf(STRING_METHODS[name]!(text, args, keywords))
      },
    ]),
  )
}

function marked(value: PythonValue): PythonValue {
  return typeof value === 'string' ? new PythonMarkup(value) : value
}

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
  if (container instanceof PythonMarkup) return contains(container.text, item)
  if (typeof container === 'string')
    return container.includes(item instanceof PythonMarkup ? item.text : string(item))
  if (container instanceof Map) return hasItem(container, item)
  return iterate(container).some(other => isEqual(other, item))
}

/** -1, 0 or 1, for numbers and strings; refuses other pairs, as Python does. */
export function compare(a: PythonValue, b: PythonValue): number {
  if (a instanceof PythonMarkup) return compare(a.text, b)
  if (b instanceof PythonMarkup) return compare(a, b.text)
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

/** A str; refuses anything else. */
export function string(value: PythonValue): string {
  if (typeof value !== 'string')
    throw new RenderingRefusedError(`the template takes a ${typeName(value)} for a str`)
  return value
}

function isContainer(value: PythonValue): boolean {
  return (
    value === undefined ||
    typeof value === 'string' ||
    value instanceof PythonMarkup ||
    value instanceof Map ||
    itemsOf(value) !== undefined
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

/** What Jinja2's `attribute="a.b.0"` reaches; `instead` stands for what is not there. */
function attributePath(item: PythonValue, path: PythonValue, instead?: PythonValue): PythonValue {
  if (typeof path === 'number') return itemAt(item, path) ?? instead
  let value = item
  for (const part of string(path).split('.')) {
    if (/^\d+$/.test(part))
      value = value instanceof Map ? getItem(value, Number(part)) : itemAt(value, Number(part))
    else if (value instanceof Map) value = value.has(part) ? value.get(part) : methodOf(value, part)
    else if (value instanceof PythonObject) value = value.attributes.get(part)
    else if (value === undefined)
      throw new RenderingRefusedError('the template reads an attribute of undefined')
    else value = methodOf(value, part)
    if (value === undefined) value = instead
  }
  return value
}

/** By one attribute, or the item itself. */
function attributeGetter(path: PythonValue): (item: PythonValue) => PythonValue {
  if (path === undefined || path === null) return item => item
  if (typeof path === 'string' && path.includes(','))
    throw new RenderingRefusedError('the template goes by several attributes')
  return item => attributePath(item, path)
}

/** These filters look at a value only if it is true: None has no items either. */
function someOf(value: PythonValue): readonly PythonValue[] {
  return isTruthy(value) ? iterate(value) : []
}

function selected(
  value: PythonValue,
  [name, ...args]: readonly PythonValue[],
  keywords: Keywords,
  subject: (item: PythonValue) => PythonValue,
  isWanted: boolean,
): PythonValue {
  if (keywords.size > 0) throw new RenderingRefusedError('the template gives a test named arguments')
  const passes = (item: PythonValue) =>
    name === undefined ? isTruthy(subject(item)) : applyTest(string(name), subject(item), args)
  return generator(someOf(value).filter(item => passes(item) === isWanted))
}

function extreme(
  value: PythonValue,
  args: readonly PythonValue[],
  keywords: Keywords,
  sign: number,
): PythonValue {
  const caseSensitive = isTruthy(args[0] ?? keywords.get('case_sensitive'))
  const attribute = attributeGetter(args[1] ?? keywords.get('attribute'))
  const key = (item: PythonValue) => folded(attribute(item), caseSensitive)
  // Of equal ones the first.
  const [first, ...others] = iterate(value)
  return others.reduce((best, item) => (sign * compare(key(item), key(best)) > 0 ? item : best), first)
}

function ascii(text: string): string {
  if (BEYOND_ASCII.test(text)) throw new RenderingRefusedError('the template looks at letters beyond ASCII')
  return text
}

/** What `int` and `float` read, of what is written in ASCII digits alone. */
function numberText(value: string): string {
  const text = stripSpace(value)
  if (/_.*\d|\d.*_|(?![0-9])\p{Nd}|^[-+]?(?:inf|nan)/iu.test(text))
    throw new RenderingRefusedError('the template reads a number in another form')
  return text
}

function padding(value: string, width: PythonValue, fill: PythonValue): string {
  const count = integer(width) - lengthOf(value)
  if (lengthOf(fill) !== 1 || count > PADDING_MAX)
    throw new RenderingRefusedError(`the template pads to ${toText(width)}`)
  return string(fill).repeat(Math.max(0, count))
}

function centered(value: string, width: number, fill: string): string {
  const pad = padding(value, width, fill)
  const count = lengthOf(pad)
  const left = count === 0 ? 0 : Math.floor(count / 2) + (count & width & 1)
  return fill.repeat(left) + value + fill.repeat(count - left)
}

function nonEmpty(separator: PythonValue): string {
  if (separator === '') throw new RenderingRefusedError('the template splits at the empty string')
  return string(separator)
}

function presentPosition(at: number): number {
  if (at === -1) throw new RenderingRefusedError('str.index of an absent string')
  return at
}

function folded(value: PythonValue, caseSensitive: boolean): PythonValue {
  if (value instanceof PythonMarkup) return folded(value.text, caseSensitive)
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
