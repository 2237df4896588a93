/**
 * The query of an operator route: unknown parameters are refused, so that a typing error does not go
 * unnoticed.
 */

import type { HttpExchange } from '@homing/transport'
import { BadParameterError } from './errors.ts'

/**
 * The parameters given, by name. Throws BadParameterError for one that is not among `names`, or is given
 * twice.
 */
export function queryOf<N extends string>(
  { path, query }: Pick<HttpExchange, 'path' | 'query'>,
  names: readonly N[] = [],
): Readonly<Partial<Record<N, string>>> {
  const values: Partial<Record<string, string>> = {}
  for (const [name, value] of new URLSearchParams(query)) {
    if (!(names as readonly string[]).includes(name)) {
      const known = names.length === 0 ? 'takes no parameters' : `takes ${names.join(', ')}`
      // The value of a parameter that is not known may be a key.
      throw new BadParameterError(name, '…', `${path} ${known}`)
    }
    if (values[name] !== undefined) throw new BadParameterError(name, value, 'it is given twice')
    values[name] = value
  }
  return values as Readonly<Partial<Record<N, string>>>
}

/** A whole number from 1 to `max`. */
export function limitOf(
  text: string | undefined,
  range: { readonly default: number; readonly max: number },
): number {
  const limit = text === undefined ? range.default : /^\d{1,9}$/.test(text) ? Number(text) : 0
  if (limit >= 1 && limit <= range.max) return limit
  throw new BadParameterError('limit', text ?? '', `use a whole number from 1 to ${range.max}`)
}

/** True where the answer is for a terminal; JSON is the default. */
export function wantsText(format = 'json'): boolean {
  if (format !== 'json' && format !== 'text')
    throw new BadParameterError('format', format, 'use json or text')
  return format === 'text'
}
