/**
 * Template builtins: the names that a template may use without being given them, and `loop` in each turn of a
 * loop.
 *
 * Owns   nothing, but that `loop.changed` remembers its last arguments in the record of its loop.
 */

import { RenderingRefusedError } from './errors.ts'
import { integer, string } from './python-text.ts'
import {
  isEqual,
  type PythonDict,
  PythonFunction,
  PythonIterable,
  PythonObject,
  type PythonValue,
  setItem,
  toText,
  typeName,
} from './python-value.ts'
import { strftime } from './strftime.ts'

const RANGE_MAX = 100_000

/** What a rendering may ask of the world. */
export interface RenderOptions {
  /** The date that `strftime_now` prints, in the local zone; without it such a template is refused. */
  readonly now?: Date | undefined
}

/** `loop`, in the turn of the item at `index`; `changed` is the same record in each turn. */
export function loopObject(
  items: readonly PythonValue[],
  index: number,
  changed: { values: readonly PythonValue[] | undefined },
): PythonObject {
  return new PythonObject(
    () =>
      new Map<string, PythonValue>([
        ['index', index + 1],
        ['index0', index],
        ['revindex', items.length - index],
        ['revindex0', items.length - index - 1],
        ['first', index === 0],
        ['last', index === items.length - 1],
        ['length', items.length],
        ['previtem', items[index - 1]],
        ['nextitem', items[index + 1]],
        ['depth', 1],
        ['depth0', 0],
        ['cycle', new PythonFunction('loop.cycle', args => args[index % args.length])],
        [
          'changed',
          new PythonFunction('loop.changed', args => {
            const before = changed.values
            changed.values = args
            return before === undefined || !isEqual([...before], [...args])
          }),
        ],
      ]),
    false,
  )
}

/** By name. */
export function builtins({ now }: RenderOptions): [string, PythonValue][] {
  return [
    ['true', true],
    ['false', false],
    ['none', null],
    ['True', true],
    ['False', false],
    ['None', null],
    [
      'namespace',
      new PythonFunction('namespace', (args, keywords) => {
        const attributes = new Map<string, PythonValue>()
        for (const [key, value] of dictOf(args, keywords)) attributes.set(string(key), value)
        return new PythonObject(attributes, true)
      }),
    ],
    ['dict', new PythonFunction('dict', dictOf)],
    ['range', new PythonFunction('range', args => new PythonIterable('range', range(args.map(integer))))],
    [
      'raise_exception',
      new PythonFunction('raise_exception', ([message]) => {
        throw new RenderingRefusedError(`the template rejects the chat: ${toText(message)}`)
      }),
    ],
    [
      'strftime_now',
      new PythonFunction('strftime_now', (args, keywords) => {
        const format = args[0] ?? keywords.get('format')
        if (args.length + keywords.size !== 1 || typeof format !== 'string')
          throw new RenderingRefusedError('the template prints the date without a format')
        return strftime(now, format)
      }),
    ],
  ]
}

function dictOf(args: readonly PythonValue[], keywords: ReadonlyMap<string, PythonValue>): PythonDict {
  const entries: PythonDict = new Map()
  for (const source of args) {
    if (!(source instanceof Map))
      throw new RenderingRefusedError(`a dict or namespace from a ${typeName(source)}`)
    for (const [key, value] of source) setItem(entries, key, value)
  }
  for (const [key, value] of keywords) entries.set(key, value)
  return entries
}

function range(args: readonly number[]): PythonValue[] {
  const [start, stop, step] = args.length === 1 ? [0, args[0]!, 1] : [args[0]!, args[1]!, args[2] ?? 1]
  const count = step === 0 ? 0 : Math.max(0, Math.ceil((stop - start) / step))
  if (args.length === 0 || args.length > 3 || step === 0 || count > RANGE_MAX) {
    throw new RenderingRefusedError(`range(${args.join(', ')})`)
  }
  return Array.from({ length: count }, (_, i) => start + i * step)
}
