/**
 * Filters and tests of chat templates, as Jinja2 3.1 and CPython 3 define them. Any other is refused
 * by name, so a template that needs it goes to the engine. docs/requests.md lists them.
 *
 * Text that is marked as safe keeps its mark in some filters and loses it in others (FILTERS_OF_MARKUP). What
 * differs between versions of MarkupSafe, or is not known here, is refused.
 */

import { RenderingRefusedError } from './errors.ts'
import { centered, type Keywords, methodOf } from './python-methods.ts'
import {
  arithmetic,
  escapeMarkup,
  fixedText,
  joinedAll,
  percentFormat,
  safeInteger,
  sum,
} from './python-operators.ts'
import {
  compare,
  contains,
  generator,
  isContainer,
  itemAt,
  iterate,
  lengthOf,
  pairs,
  sliceOf,
} from './python-sequences.ts'
import {
  ascii,
  capitalize,
  integer,
  isCased,
  numberText,
  replace,
  rest,
  splitLines,
  string,
  strip,
  upperFirst,
} from './python-text.ts'
import {
  dumpJson,
  getItem,
  isEqual,
  isTruthy,
  itemsOf,
  numberOf,
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

type Filter = (value: PythonValue, args: readonly PythonValue[], keywords: Keywords) => PythonValue
type Test = (value: PythonValue, args: readonly PythonValue[]) => boolean
const SLICES_MAX = 100_000
/** Spaces. */
const INDENT_MAX = 10_000
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
