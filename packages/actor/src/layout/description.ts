/**
 * Descriptions of layouts: which fields the variants of a message have, each with its *kind*.
 *
 *   kind                 value                       words in the frame
 *   u8 u16 u32 i32 bool  number, boolean             1
 *   f64                  number                      2
 *   string               any string                  1 + one byte a character, two if one is above U+00FF
 *   bytes                Uint8Array                  1 + its bytes
 *   i32s u32s f64s       Int32Array, Uint32Array, …  1 + its elements
 *   { list: kind }       array of numbers, strings   1 + its elements
 *   { optional: kind }   the kind's, or undefined    1 + those of the kind, when there is a value
 *   { field: kind, … }   a plain object              those of its fields
 *
 * A description is plain data, so that it can be cloned to other threads; order of fields and of variants
 * is part of it.
 */

import { LayoutError } from '../values/errors.ts'

export const NUMBER_KINDS = ['u8', 'u16', 'u32', 'i32', 'f64'] as const
export const SCALAR_KINDS = [...NUMBER_KINDS, 'bool', 'string', 'bytes', 'i32s', 'u32s', 'f64s'] as const

/** Kinds of numbers; one out of their range does not fit, nor does −0, except as f64. */
export type NumberKind = (typeof NUMBER_KINDS)[number]
export type ScalarKind = (typeof SCALAR_KINDS)[number]
/** Kinds of the elements of a `{ list }`. */
export type ElementKind = NumberKind | 'string'

export type FieldDescription =
  | ScalarKind
  | { readonly list: ElementKind }
  | { readonly optional: FieldDescription }
  | FieldsDescription

/** The fields of a record in their order in the frame. One that is alone may not be called `list` or `optional`. */
export interface FieldsDescription {
  readonly [field: string]: FieldDescription
}

/** By type of variant. A field `reply` describes the answer to an ask and is no part of the message. */
export interface LayoutDescription {
  readonly [type: string]: FieldsDescription
}

/** A field's kind, as the generators of codecs read it. */
export type Shape =
  | { readonly kind: ScalarKind }
  | { readonly kind: 'list'; readonly of: ElementKind }
  | { readonly kind: 'optional'; readonly of: Shape }
  | RecordShape

export interface RecordShape {
  readonly kind: 'record'
  /** The value of its field `type`, which no frame carries; undefined: it has no such field, or a described one. */
  readonly type: string | undefined
  readonly fields: readonly { readonly name: string; readonly shape: Shape }[]
}

export interface VariantShape {
  readonly type: string
  readonly body: RecordShape
  readonly reply: Shape | undefined
}

/** Records nested deeper, and so every cycle, are refused. */
const LAYOUT_DEPTH_MAX = 16

/** Its variants in their order. Throws LayoutError when `description` is not a description. */
export function shapesOf(description: unknown): readonly VariantShape[] {
  const variants = entriesOf(description)
  if (variants === undefined)
    throw new LayoutError('*', '', show(description), 'use an object of variants by type')
  return variants.map(([type, fields]) => {
    if (type === '__proto__') throw new LayoutError(type, '', show(fields), 'no variant may have this name')
    const entries = entriesOf(fields)
    if (entries === undefined) throw new LayoutError(type, '', show(fields), 'use an object of its fields')
    const body: { name: string; shape: Shape }[] = []
    let reply: Shape | undefined
    for (const [name, field] of entries) {
      if (name === 'type') throw new LayoutError(type, name, show(field), 'the type is implied, leave it out')
      if (name === 'reply') reply = shapeOf(type, name, field, 0)
      else body.push({ name, shape: fieldShape(type, name, name, field, 0) })
    }
    return { type, body: { kind: 'record', type, fields: body }, reply }
  })
}

/** The description of shapes, made anew: frozen, and independent of what they were read from. */
export function descriptionOf(variants: readonly VariantShape[]): LayoutDescription {
  const description: Record<string, FieldsDescription> = {}
  for (const { type, body, reply } of variants) {
    const fields: Record<string, FieldDescription> = {}
    for (const { name, shape } of body.fields) fields[name] = describe(shape)
    if (reply !== undefined) fields['reply'] = describe(reply)
    description[type] = Object.freeze(fields)
  }
  return Object.freeze(description)
}

function describe(shape: Shape): FieldDescription {
  switch (shape.kind) {
    case 'list':
      return Object.freeze({ list: shape.of })
    case 'optional':
      return Object.freeze({ optional: describe(shape.of) })
    case 'record':
      return Object.freeze(Object.fromEntries(shape.fields.map(field => [field.name, describe(field.shape)])))
    default:
      return shape.kind
  }
}

function fieldShape(type: string, path: string, name: string, field: unknown, depth: number): Shape {
  if (name === '__proto__') throw new LayoutError(type, path, show(field), 'no field may have this name')
  return shapeOf(type, path, field, depth)
}

function shapeOf(type: string, path: string, field: unknown, depth: number): Shape {
  if (typeof field === 'string') {
    if (isOneOf(SCALAR_KINDS, field)) return { kind: field }
    throw new LayoutError(type, path, show(field), `use one of ${SCALAR_KINDS.join(', ')}`)
  }
  const entries = entriesOf(field)
  if (entries === undefined) {
    const right = 'use the name of a kind, { list }, { optional } or an object of fields'
    throw new LayoutError(type, path, show(field), right)
  }
  if (depth === LAYOUT_DEPTH_MAX) {
    throw new LayoutError(type, path, show(field), `use at most ${LAYOUT_DEPTH_MAX} levels, and no cycle`)
  }
  const [first] = entries
  if (entries.length === 1 && first![0] === 'list') {
    const of = first![1]
    if (isOneOf(NUMBER_KINDS, of) || of === 'string') return { kind: 'list', of }
    throw new LayoutError(type, path, show(field), `use a list of ${NUMBER_KINDS.join(', ')} or string`)
  }
  if (entries.length === 1 && first![0] === 'optional') {
    const of = shapeOf(type, path, first![1], depth + 1)
    if (of.kind !== 'optional') return { kind: 'optional', of }
    throw new LayoutError(type, path, show(field), 'use one { optional }, which has a single undefined')
  }
  const fields = entries.map(([name, inner]) => ({
    name,
    shape: fieldShape(type, `${path}.${name}`, name, inner, depth + 1),
  }))
  return { kind: 'record', type: undefined, fields }
}

/** The entries of a plain object; undefined for anything else, and where a literal `__proto__` made it inherit. */
function entriesOf(value: unknown): [string, unknown][] | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const prototype = Object.getPrototypeOf(value) as unknown
  if (prototype !== Object.prototype && prototype !== null) return undefined
  if (Object.getOwnPropertySymbols(value).length > 0) return undefined
  return Object.entries(value)
}

function isOneOf<T extends string>(names: readonly T[], value: unknown): value is T {
  return (names as readonly unknown[]).includes(value)
}

/** For people, on one line; never throws. */
function show(value: unknown): string {
  if (typeof value === 'string') return `'${value}'`
  if (Array.isArray(value)) return 'an array'
  if (typeof value !== 'object' || value === null) return String(value)
  const keys = Object.keys(value)
  const named = keys.slice(0, 4).map(key => {
    const item = (value as Record<string, unknown>)[key]
    return `${key}: ${typeof item === 'string' ? `'${item}'` : '…'}`
  })
  if (named.length === 0) return 'an object without fields of its own'
  return `{ ${named.join(', ')}${keys.length > named.length ? ', …' : ''} }`
}
