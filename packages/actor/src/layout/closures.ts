/**
 * Codecs as closures over a shape: the same as generate.ts, two to five times slower, for processes in which
 * code may not be generated.
 */

import {
  fitsBytes,
  fitsFloats,
  fitsInts,
  fitsNumber,
  fitsUnsigned,
  listEnd,
  listWords,
  readBytes,
  readFloat,
  readFloats,
  readInts,
  readList,
  readUnsigned,
  writeBytes,
  writeFloat,
  writeFloats,
  writeInts,
  writeList,
  writeUnsigned,
} from './arrays.ts'
import { BODY_WORDS_MAX, type BodyCodec, type RingViews } from './codec.ts'
import type { RecordShape, Shape } from './description.ts'
import { readString, stringEnd, writeString } from './strings.ts'

/** The codec of `shape`. */
export function closureCodec(shape: Shape): BodyCodec {
  const part = partOf(shape)
  const position = { next: 0 }
  return {
    sizeOf(value) {
      const size = part.sizeOf(value)
      return size > BODY_WORDS_MAX ? -1 : size
    },
    write: (value, views, at) => part.write(value as never, views, at) - at,
    read(views, at) {
      position.next = at
      return part.read(views, position)
    },
  }
}

/** The codec of a part of a body; V is what fits. */
interface Part<V> {
  sizeOf(value: unknown): number
  /** Returns the word after the last one written. */
  write(value: V, views: RingViews, at: number): number
  /** Reads at `position.next` and moves it on. */
  read(views: RingViews, position: Position): unknown
}

interface Position {
  next: number
}

function partOf(shape: Shape): Part<never> {
  switch (shape.kind) {
    case 'u8':
    case 'u16':
    case 'u32':
    case 'i32': {
      const { kind } = shape
      return word<number>(
        value => fitsNumber(kind, value),
        value => value,
        kind === 'u32' ? bits => bits >>> 0 : bits => bits,
      )
    }
    case 'bool':
      return word<boolean>(
        value => typeof value === 'boolean',
        value => (value ? 1 : 0),
        bits => bits !== 0,
      )
    case 'f64':
      return float
    case 'string':
      return string
    case 'bytes':
      return array<Uint8Array>(
        value => (fitsBytes(value) ? (value.length + 3) >>> 2 : -1),
        (value, { words, bytes }, at) => writeBytes(value, words, bytes, at),
        ({ words, bytes }, at) => readBytes(words, bytes, at),
        count => (count + 3) >>> 2,
      )
    case 'i32s':
      return array<Int32Array>(
        value => (fitsInts(value) ? value.length : -1),
        (value, { words }, at) => writeInts(value, words, at),
        ({ words }, at) => readInts(words, at),
        count => count,
      )
    case 'u32s':
      return array<Uint32Array>(
        value => (fitsUnsigned(value) ? value.length : -1),
        (value, { words }, at) => writeUnsigned(value, words, at),
        ({ words, bytes }, at) => readUnsigned(words, bytes, at),
        count => count,
      )
    case 'f64s':
      return array<Float64Array>(
        value => (fitsFloats(value) ? 2 * value.length : -1),
        (value, { words, bytes }, at) => writeFloats(value, words, bytes, at),
        ({ words, bytes }, at) => readFloats(words, bytes, at),
        count => 2 * count,
      )
    case 'list': {
      const { of } = shape
      return {
        sizeOf(value) {
          const size = listWords(of, value)
          return size === -1 ? -1 : size + 1
        },
        write: (value, { words, bytes }, at) => writeList(of, value, words, bytes, at),
        read({ words, bytes }, position) {
          const at = position.next
          position.next = listEnd(of, words, at)
          return readList(of, words, bytes, at)
        },
      }
    }
    case 'optional':
      return optional(partOf(shape.of))
    case 'record':
      return record(shape)
  }
}

function word<V>(
  fits: (value: unknown) => boolean,
  toBits: (value: V) => number,
  fromBits: (bits: number) => V,
): Part<V> {
  return {
    sizeOf: value => (fits(value) ? 1 : -1),
    write(value, { words }, at) {
      words[at] = toBits(value)
      return at + 1
    },
    read: ({ words }, position) => fromBits(words[position.next++]!),
  }
}

const float: Part<number> = {
  sizeOf: value => (typeof value === 'number' ? 2 : -1),
  write(value, { words }, at) {
    writeFloat(value, words, at)
    return at + 2
  },
  read({ words }, position) {
    position.next += 2
    return readFloat(words, position.next - 2)
  },
}

const string: Part<string> = {
  sizeOf: value => (typeof value === 'string' ? 1 + ((value.length + 1) >>> 1) : -1),
  write: (value, { words, bytes }, at) => writeString(value, words, bytes, at),
  read({ words, bytes }, position) {
    const at = position.next
    position.next = stringEnd(words, at)
    return readString(words, bytes, at)
  },
}

function array<V>(
  wordsOf: (value: unknown) => number,
  write: (value: V, views: RingViews, at: number) => number,
  read: (views: RingViews, at: number) => V,
  wordsFor: (count: number) => number,
): Part<V> {
  return {
    sizeOf(value) {
      const size = wordsOf(value)
      return size === -1 ? -1 : size + 1
    },
    write,
    read(views, position) {
      const at = position.next
      position.next = at + 1 + wordsFor(views.words[at]!)
      return read(views, at)
    },
  }
}

function optional(part: Part<never>): Part<never> {
  return {
    sizeOf(value) {
      if (value === undefined) return 1
      const size = part.sizeOf(value)
      return size === -1 ? -1 : size + 1
    },
    write(value, views, at) {
      views.words[at] = value === undefined ? 0 : 1
      return value === undefined ? at + 1 : part.write(value, views, at + 1)
    },
    read: (views, position) => (views.words[position.next++] === 0 ? undefined : part.read(views, position)),
  }
}

function record({ type, fields }: RecordShape): Part<never> {
  const parts = fields.map(({ name, shape }) => ({ name, part: partOf(shape) }))
  const keyCount = fields.length + (type === undefined ? 0 : 1)
  return {
    sizeOf(value) {
      if (typeof value !== 'object' || value === null) return -1
      if (type !== undefined && (value as { type?: unknown }).type !== type) return -1
      const prototype = Object.getPrototypeOf(value) as unknown
      if (prototype !== Object.prototype && prototype !== null) return -1
      let keys = 0
      for (const _ in value) keys++
      if (keys !== keyCount) return -1
      let words = 0
      for (const { name, part } of parts) {
        const field = (value as Record<string, unknown>)[name]
        if (field === undefined && !Object.hasOwn(value, name)) return -1
        const size = part.sizeOf(field)
        if (size === -1) return -1
        words += size
      }
      return words
    },
    write(value, views, at) {
      let next = at
      for (const { name, part } of parts) next = part.write(value[name], views, next)
      return next
    },
    read(views, position) {
      const value: Record<string, unknown> = type === undefined ? {} : { type }
      for (const { name, part } of parts) value[name] = part.read(views, position)
      return value
    },
  }
}
