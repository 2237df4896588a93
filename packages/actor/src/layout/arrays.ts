/**
 * Typed arrays and lists in words: the count of elements (of bytes, for bytes), then the elements.
 * Arrays that are read have memory of their own. A view of shared memory does not fit: as an object it stays shared.
 *
 * Below COPY_MIN elements a loop is faster than `set` or `slice`: V8 keeps arrays of up to 64 bytes on its
 * heap (25 ns to make, 200 ns otherwise), until somebody asks for their buffer.
 */

import type { ElementKind, NumberKind } from './description.ts'
import { readString, stringEnd, writeString } from './strings.ts'

const COPY_MIN = 17

/** Longer ones do not fit: their words could not be counted in 32 bits. */
const LENGTH_MAX = 2 ** 28

const floats = new Float64Array(1)
const floatWords = new Int32Array(floats.buffer)

/** Writes all 64 bits of `value`. */
export function writeFloat(value: number, words: Int32Array, at: number): void {
  floats[0] = value
  words[at] = floatWords[0]!
  words[at + 1] = floatWords[1]!
}

export function readFloat(words: Int32Array, at: number): number {
  floatWords[0] = words[at]!
  floatWords[1] = words[at + 1]!
  return floats[0]!
}

export function fitsBytes(value: unknown): value is Uint8Array {
  return ArrayBuffer.isView(value) && value instanceof Uint8Array && isOwn(value)
}

export function fitsInts(value: unknown): value is Int32Array {
  return ArrayBuffer.isView(value) && value instanceof Int32Array && isOwn(value)
}

export function fitsUnsigned(value: unknown): value is Uint32Array {
  return ArrayBuffer.isView(value) && value instanceof Uint32Array && isOwn(value)
}

export function fitsFloats(value: unknown): value is Float64Array {
  return ArrayBuffer.isView(value) && value instanceof Float64Array && isOwn(value)
}

function isOwn(view: Uint8Array | Int32Array | Uint32Array | Float64Array): boolean {
  const { buffer, length } = view
  if (buffer instanceof SharedArrayBuffer || length > LENGTH_MAX) return false
  return length > 0 || !buffer.detached
}

/** Writes count and elements from word `at` on; returns the word after them, as all of these writers do. */
export function writeBytes(value: Uint8Array, words: Int32Array, bytes: Uint8Array, at: number): number {
  const { length } = value
  words[at] = length
  bytes.set(value, (at + 1) << 2)
  return at + 1 + ((length + 3) >>> 2)
}

export function readBytes(words: Int32Array, bytes: Uint8Array, at: number): Uint8Array {
  const start = (at + 1) << 2
  return bytes.slice(start, start + words[at]!)
}

export function writeInts(value: Int32Array, words: Int32Array, at: number): number {
  const { length } = value
  words[at] = length
  if (length < COPY_MIN) for (let i = 0; i < length; i++) words[at + 1 + i] = value[i]!
  else words.set(value, at + 1)
  return at + 1 + length
}

export function readInts(words: Int32Array, at: number): Int32Array {
  const length = words[at]!
  // slice of a view of shared memory allocates memory that is not shared.
  if (length >= COPY_MIN) return words.slice(at + 1, at + 1 + length)
  const copy = new Int32Array(length)
  for (let i = 0; i < length; i++) copy[i] = words[at + 1 + i]!
  return copy
}

export function writeUnsigned(value: Uint32Array, words: Int32Array, at: number): number {
  const { length } = value
  words[at] = length
  if (length < COPY_MIN) for (let i = 0; i < length; i++) words[at + 1 + i] = value[i]!
  else words.set(value, at + 1)
  return at + 1 + length
}

export function readUnsigned(words: Int32Array, bytes: Uint8Array, at: number): Uint32Array {
  const length = words[at]!
  const start = (at + 1) << 2
  if (length >= COPY_MIN) return new Uint32Array(bytes.slice(start, start + (length << 2)).buffer)
  const copy = new Uint32Array(length)
  for (let i = 0; i < length; i++) copy[i] = words[at + 1 + i]!
  return copy
}

export function writeFloats(value: Float64Array, words: Int32Array, bytes: Uint8Array, at: number): number {
  const { length } = value
  words[at] = length
  if (length < COPY_MIN) for (let i = 0; i < length; i++) writeFloat(value[i]!, words, at + 1 + 2 * i)
  else bytes.set(new Uint8Array(value.buffer, value.byteOffset, value.byteLength), (at + 1) << 2)
  return at + 1 + 2 * length
}

export function readFloats(words: Int32Array, bytes: Uint8Array, at: number): Float64Array {
  const length = words[at]!
  const start = (at + 1) << 2
  if (length >= COPY_MIN) return new Float64Array(bytes.slice(start, start + (length << 3)).buffer)
  const copy = new Float64Array(length)
  for (let i = 0; i < length; i++) copy[i] = readFloat(words, at + 1 + 2 * i)
  return copy
}

/** True when `value` is a number that `kind` holds exactly; −0 is held by f64 only. */
export function fitsNumber(kind: NumberKind, value: unknown): value is number {
  if (typeof value !== 'number') return false
  if (kind === 'f64') return true
  if (Object.is(value, -0)) return false
  switch (kind) {
    case 'u8':
      return (value & 0xff) === value
    case 'u16':
      return (value & 0xffff) === value
    case 'u32':
      return value >>> 0 === value
    case 'i32':
      return (value | 0) === value
  }
}

/** Words of a list beside its count, at most; −1 when it does not fit. */
export function listWords(of: ElementKind, value: unknown): number {
  if (!Array.isArray(value) || value.length > LENGTH_MAX) return -1
  const items = value as readonly unknown[]
  if (of !== 'string') {
    for (let i = 0; i < items.length; i++) if (!fitsNumber(of, items[i])) return -1
    return of === 'f64' ? 2 * items.length : items.length
  }
  let words = items.length
  for (let i = 0; i < items.length; i++) {
    const item = items[i]
    if (typeof item !== 'string') return -1
    words += (item.length + 1) >>> 1
  }
  return words
}

export function writeList(
  of: ElementKind,
  value: readonly (number | string)[],
  words: Int32Array,
  bytes: Uint8Array,
  at: number,
): number {
  words[at] = value.length
  let next = at + 1
  for (let i = 0; i < value.length; i++) {
    const item = value[i]!
    if (typeof item === 'string') {
      next = writeString(item, words, bytes, next)
    } else if (of === 'f64') {
      writeFloat(item, words, next)
      next += 2
    } else {
      words[next++] = item
    }
  }
  return next
}

export function readList(
  of: ElementKind,
  words: Int32Array,
  bytes: Uint8Array,
  at: number,
): (number | string)[] {
  const count = words[at]!
  const list: (number | string)[] = []
  let next = at + 1
  for (let i = 0; i < count; i++) {
    if (of === 'string') {
      list.push(readString(words, bytes, next))
      next = stringEnd(words, next)
    } else if (of === 'f64') {
      list.push(readFloat(words, next))
      next += 2
    } else {
      const word = words[next++]!
      list.push(of === 'u32' ? word >>> 0 : word)
    }
  }
  return list
}

/** The word after the list at word `at`. */
export function listEnd(of: ElementKind, words: Int32Array, at: number): number {
  const count = words[at]!
  if (of !== 'string') return at + 1 + (of === 'f64' ? 2 * count : count)
  let next = at + 1
  for (let i = 0; i < count; i++) next = stringEnd(words, next)
  return next
}
