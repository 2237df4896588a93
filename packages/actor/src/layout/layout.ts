/**
 * layout: declares in a definition how messages are laid out as words, for the way between threads.
 *
 *   layout<SessionMessage>({
 *     touch: { tokens: 'u32' },
 *     route: { model: 'string', hashes: 'i32s', reply: { worker: 'u32', overlap: 'u32' } },
 *   })
 *
 * The types below accept a kind only where it fits the type of the field, and a variant only when all its
 * fields are described. A variant with a field that no kind fits (a ref, a union, a map, a field that may
 * be missing rather than undefined) cannot be described; leave it out, and it travels as an object, as does any
 * message that does not fit at run time.
 */

import type { Message, Reply } from '../values/message.ts'
import { descriptionOf, type LayoutDescription, type NumberKind, shapesOf } from './description.ts'

/** What a definition holds: plain data, checked. */
export interface MessageLayout {
  readonly description: LayoutDescription
}

/** What may be said about the variants of M; any of them may be left out. */
export type LayoutOf<M extends Message> = {
  readonly [T in M['type']]?: VariantOf<Extract<M, { readonly type: T }>>
}

/** Stands where no kind fits; no value has this type. */
export interface NotDescribable<Field> {
  readonly [notDescribable]: Field
}
declare const notDescribable: unique symbol

/** Declares a layout. Throws LayoutError when `description` is not one, whatever the types say. */
export function layout<M extends Message>(description: LayoutOf<M>): MessageLayout {
  return Object.freeze({ description: descriptionOf(shapesOf(description)) })
}

/** The fields of a variant beside its type, and the answer when it is an ask. */
export type VariantOf<V> =
  IsUnion<V> extends true
    ? NotDescribable<'several variants of one type'>
    : V extends { readonly reply: Reply<infer R> }
      ? FieldsOf<Omit<V, 'type' | 'reply'>, []> extends infer Fields
        ? [Fields] extends [NotDescribable<unknown>]
          ? Fields
          : Fields & AnswerOf<R>
        : never
      : 'reply' extends keyof V
        ? NotDescribable<'reply'>
        : FieldsOf<Omit<V, 'type'>, []>

type AnswerOf<R> = [KindOf<R, []>] extends [never]
  ? { readonly reply?: never }
  : { readonly reply?: KindOf<R, []> }

/** The kinds that fit type T; never when none does. */
type KindOf<T, Depth extends 1[]> = unknown extends T
  ? never
  : undefined extends T
    ? OptionalOf<KindOf<Exclude<T, undefined>, Depth>>
    : [T] extends [never]
      ? never
      : [T] extends [boolean]
        ? 'bool'
        : [T] extends [number]
          ? NumberKind
          : [T] extends [string]
            ? 'string'
            : [T] extends [object]
              ? ObjectKindOf<T, Depth>
              : never

type OptionalOf<K> = [K] extends [never] ? never : { readonly optional: K }

/** A typed array is read as a plain one over memory of its own, so a field for a subclass takes no kind. */
type ObjectKindOf<T extends object, Depth extends 1[]> = [T] extends [Uint8Array]
  ? IfReadable<Uint8Array<ArrayBuffer>, T, 'bytes'>
  : [T] extends [Int32Array]
    ? IfReadable<Int32Array<ArrayBuffer>, T, 'i32s'>
    : [T] extends [Uint32Array]
      ? IfReadable<Uint32Array<ArrayBuffer>, T, 'u32s'>
      : [T] extends [Float64Array]
        ? IfReadable<Float64Array<ArrayBuffer>, T, 'f64s'>
        : [T] extends [readonly (infer E)[]]
          ? ListOf<E>
          : RecordOf<T, Depth>

type IfReadable<Read, T, Kind> = [Read] extends [T] ? Kind : never

type ListOf<E> = unknown extends E
  ? never
  : [E] extends [never]
    ? never
    : [E] extends [number]
      ? { readonly list: NumberKind }
      : [E] extends [string]
        ? { readonly list: 'string' }
        : never

/** A nested record. One with the only field `list` or `optional` would read as that kind. */
type RecordOf<T, Depth extends 1[]> =
  IsUnion<T> extends true
    ? never
    : [keyof T] extends [never]
      ? never
      : [keyof T] extends ['list']
        ? never
        : [keyof T] extends ['optional']
          ? never
          : Depth['length'] extends 8
            ? never
            : FieldsOf<T, [...Depth, 1]> extends infer Fields
              ? [Fields] extends [NotDescribable<unknown>]
                ? never
                : Fields
              : never

type FieldsOf<T, Depth extends 1[]> = [Misfits<T, Depth>] extends [never]
  ? { readonly [K in keyof T]: KindOf<T[K], Depth> }
  : NotDescribable<Misfits<T, Depth>>

/** The names of the fields that no kind fits. */
type Misfits<T, Depth extends 1[]> = {
  [K in keyof T]-?: K extends string
    ? string extends K
      ? 'any field'
      : Record<never, never> extends Pick<T, K>
        ? K
        : [KindOf<T[K], Depth>] extends [never]
          ? K
          : never
    : 'a field whose name is not a string'
}[keyof T]

type IsUnion<T, U = T> = [T] extends [never]
  ? false
  : T extends unknown
    ? [U] extends [T]
      ? false
      : true
    : never
