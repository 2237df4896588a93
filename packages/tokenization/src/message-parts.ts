/** Reads members of a request that is converted to a chat; an unexpected member is refused by name. */

import { RenderingRefusedError } from './errors.ts'
import type { PythonDict, PythonValue } from './python-value.ts'

/** An object that a conversion makes: members without a value are left out. */
export function dictOf(members: Readonly<Record<string, PythonValue>>): PythonDict {
  return new Map(Object.entries(members).filter(([, value]) => value !== undefined))
}

/** Throws RenderingRefusedError. */
export function refuse(why: string): never {
  throw new RenderingRefusedError(why)
}

/** null and absent are the same. */
export function given(value: PythonValue): PythonValue {
  return value === null ? undefined : value
}

export function textIn(value: PythonValue, name: string): string {
  return typeof value === 'string' ? value : refuse(`${name} is no text`)
}

export function optionalText(value: PythonValue, name: string): string | undefined {
  return given(value) === undefined ? undefined : textIn(value, name)
}

export function listIn(value: PythonValue, name: string): readonly PythonValue[] {
  return Array.isArray(value) ? value : refuse(`${name} is no list`)
}

export function optionalList(value: PythonValue, name: string): readonly PythonValue[] | undefined {
  return given(value) === undefined ? undefined : listIn(value, name)
}

export function dictIn(value: PythonValue, name: string): PythonDict {
  return value instanceof Map ? value : refuse(`${name} is no object`)
}

export function optionalDict(value: PythonValue, name: string): PythonDict | undefined {
  return given(value) === undefined ? undefined : dictIn(value, name)
}

/** A list of content parts as engines shorten it: one text stands for itself. */
export function shortContent(parts: readonly PythonDict[]): PythonValue {
  const [only] = parts
  return parts.length === 1 && only!.get('type') === 'text' ? only!.get('text') : [...parts]
}
