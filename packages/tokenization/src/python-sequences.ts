/** Sequences and containers of Python: iteration, length, items, slices, order. */

import { RenderingRefusedError } from './errors.ts'
import { ASTRAL, string } from './python-text.ts'
import {
  compareText,
  hasItem,
  isEqual,
  itemsOf,
  numberOf,
  type PythonDict,
  PythonIterable,
  PythonMarkup,
  PythonTuple,
  type PythonValue,
  typeName,
} from './python-value.ts'

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

export function marked(value: PythonValue): PythonValue {
  return typeof value === 'string' ? new PythonMarkup(value) : value
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

export function isContainer(value: PythonValue): boolean {
  return (
    value === undefined ||
    typeof value === 'string' ||
    value instanceof PythonMarkup ||
    value instanceof Map ||
    itemsOf(value) !== undefined
  )
}

export function generator(items: readonly PythonValue[]): PythonIterable {
  return new PythonIterable('generator', items)
}

export function pairs(value: PythonDict): PythonTuple[] {
  return Array.from(value, ([key, item]) => new PythonTuple([key, item]))
}
