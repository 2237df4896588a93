/**
 * Methods of str, dict, list and marked text that chat templates may call, as CPython 3 and MarkupSafe define
 * them. Any other is refused by name, so a template that needs it goes to the engine.
 */

import { RenderingRefusedError } from './errors.ts'
import { braceFormat, joinedAll } from './python-operators.ts'
import { iterate, lengthOf, marked, pairs } from './python-sequences.ts'
import {
  affixes,
  ascii,
  BEYOND_ASCII,
  capitalize,
  integer,
  isCased,
  nonEmpty,
  replace,
  rest,
  split,
  splitFromRight,
  splitLines,
  string,
  strip,
  stripSpace,
  upperFirst,
} from './python-text.ts'
import {
  getItem,
  hasItem,
  isEqual,
  itemsOf,
  numberOf,
  type PythonDict,
  PythonFunction,
  PythonIterable,
  PythonMarkup,
  PythonTuple,
  type PythonValue,
  toText,
  typeName,
} from './python-value.ts'

export type Keywords = ReadonlyMap<string, PythonValue>
type Method<T> = (value: T, args: readonly PythonValue[], keywords: Keywords) => PythonValue

const PADDING_MAX = 1_000_000
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

function padding(value: string, width: PythonValue, fill: PythonValue): string {
  const count = integer(width) - lengthOf(value)
  if (lengthOf(fill) !== 1 || count > PADDING_MAX)
    throw new RenderingRefusedError(`the template pads to ${toText(width)}`)
  return string(fill).repeat(Math.max(0, count))
}

export function centered(value: string, width: number, fill: string): string {
  const pad = padding(value, width, fill)
  const count = lengthOf(pad)
  const left = count === 0 ? 0 : Math.floor(count / 2) + (count & width & 1)
  return fill.repeat(left) + value + fill.repeat(count - left)
}

function position(value: string, args: readonly PythonValue[], found: number): number {
  if (args.length !== 1) throw new RenderingRefusedError('str.find with a range')
  return found > 0 ? lengthOf(value.slice(0, found)) : found
}

function presentPosition(at: number): number {
  if (at === -1) throw new RenderingRefusedError('str.index of an absent string')
  return at
}
