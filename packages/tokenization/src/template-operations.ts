/**
 * Template operations: what Jinja2 computes of values that it has: attributes and items, calls, operators.
 * Those that Python and this package would not do alike throw RenderingRefusedError.
 */

import { RenderingRefusedError } from './errors.ts'
import { methodOf } from './python-methods.ts'
import { arithmetic, formatWith, joined, repeat, safeInteger, sum } from './python-operators.ts'
import { compare, contains, itemAt } from './python-sequences.ts'
import { integer } from './python-text.ts'
import {
  getItem,
  hasItem,
  isEqual,
  isTruthy,
  PythonFloat,
  PythonFunction,
  PythonMarkup,
  PythonObject,
  type PythonValue,
  toText,
  typeName,
} from './python-value.ts'

/** `object.name`: an attribute first, then an item; so `schema.items` is the method of the dict. */
export function attribute(object: PythonValue, name: string): PythonValue {
  if (object instanceof PythonObject) return object.attributes.get(name)
  const method = methodOf(object, name)
  if (method !== undefined) return method
  return object instanceof Map ? getItem(object, name) : undefined
}

/** `object[key]`: an item first, then an attribute. */
export function subscript(object: PythonValue, key: PythonValue): PythonValue {
  if (object instanceof Map && hasItem(object, key)) return getItem(object, key)
  const name = key instanceof PythonMarkup ? key.text : key
  if (typeof name === 'string') return attribute(object, name)
  if (typeof key === 'number' || typeof key === 'boolean') return itemAt(object, Number(key))
  return undefined
}

/** `callee(…)`. */
export function call(
  callee: PythonValue,
  args: readonly PythonValue[],
  keywords: ReadonlyMap<string, PythonValue>,
): PythonValue {
  if (callee instanceof PythonFunction) return callee.call(args, keywords)
  throw new RenderingRefusedError(`the template calls a ${typeName(callee)}`)
}

/** `not`, `-` or `+` before a value. */
export function unary(operator: string, value: PythonValue): PythonValue {
  if (operator === 'not') return !isTruthy(value)
  const sign = operator === '-' ? -1 : 1
  return value instanceof PythonFloat
    ? new PythonFloat(sign * value.value)
    : safeInteger(sign * integer(value))
}

/** An operator between two values, of which both are there; so neither `and` nor `or`. */
export function binary(operator: string, left: PythonValue, right: PythonValue): PythonValue {
  switch (operator) {
    case '~':
      return joined(toText(left), toText(right))
    case '==':
      return isEqual(left, right)
    case '!=':
      return !isEqual(left, right)
    case 'in':
      return contains(right, left)
    case 'not in':
      return !contains(right, left)
    case '<':
      return compare(left, right) < 0
    case '>':
      return compare(left, right) > 0
    case '<=':
      return compare(left, right) <= 0
    case '>=':
      return compare(left, right) >= 0
  }
  const result = operator === '+' ? sum(left, right) : operator === '*' ? repeat(left, right) : undefined
  if (result !== undefined) return result
  if (operator === '%' && (typeof left === 'string' || left instanceof PythonMarkup))
    return formatWith(left, right)
  return arithmetic(operator, left, right)
}
