/**
 * Codecs as generated code: for each shape three functions without loops or dispatch over its fields, so
 * that the engine sees constant offsets and one hidden class. For `{ type: 'x', a: u32, s: string }`:
 *
 *   sizeOf  plain object? 3 keys? type 'x'? a in range? s a string?   words: 2 + those of s
 *   write   words[at] = v.a; a1 = writeString(v.s, …, at + 1)         used: a1 - at
 *   read    x1 = words[at] >>> 0; x2 = readString(…, at + 1)          { type: 'x', a: x1, s: x2 }
 *
 * Names of fields and types enter the code as JSON strings only.
 */

import * as arrays from './arrays.ts'
import { BODY_WORDS_MAX, type BodyCodec } from './codec.ts'
import type { RecordShape, Shape } from './description.ts'
import { readString, stringEnd, writeString } from './strings.ts'

const helpers = {
  ...arrays,
  readString,
  stringEnd,
  writeString,
  getPrototypeOf: Object.getPrototypeOf,
  hasOwn: Object.hasOwn,
  is: Object.is,
  plain: Object.prototype,
}

/** The codec of `shape`. Throws EvalError where code may not be generated. */
export function generateCodec(shape: Shape): BodyCodec {
  const make = new Function('helpers', sourceOf(shape)) as (use: typeof helpers) => BodyCodec
  return make(helpers)
}

/** The code of `generateCodec`, for people and tests. */
function sourceOf(shape: Shape): string {
  return `'use strict'
const { ${Object.keys(helpers).join(', ')} } = helpers
return {
  sizeOf(v) {
    ${new SizeSource().body(shape)}
  },
  write(v, views, at) {
    const words = views.words, bytes = views.bytes
    ${new WriteSource().body(shape)}
  },
  read(views, at) {
    const words = views.words, bytes = views.bytes
    ${new ReadSource().body(shape)}
  },
}`
}

/** Lines of code with local names of their own. */
class Source {
  readonly lines: string[] = []
  #names = 0

  name(prefix: string): string {
    this.#names += 1
    return `${prefix}${this.#names}`
  }

  text(): string {
    return this.lines.join('\n    ')
  }
}

class SizeSource extends Source {
  body(shape: Shape): string {
    this.lines.push('let n = 0')
    const fixed = this.#add(shape, 'v')
    this.lines.push(`n += ${fixed}`, `return n > ${BODY_WORDS_MAX} ? -1 : n`)
    return this.text()
  }

  /** Checks `x` and adds to n what depends on it; returns the words that do not. */
  #add(shape: Shape, x: string): number {
    const { lines } = this
    switch (shape.kind) {
      case 'u8':
        return this.#number(x, `(${x} & 0xff) !== ${x}`)
      case 'u16':
        return this.#number(x, `(${x} & 0xffff) !== ${x}`)
      case 'u32':
        return this.#number(x, `${x} >>> 0 !== ${x}`)
      case 'i32':
        return this.#number(x, `(${x} | 0) !== ${x}`)
      case 'f64':
        lines.push(`if (typeof ${x} !== 'number') return -1`)
        return 2
      case 'bool':
        lines.push(`if (typeof ${x} !== 'boolean') return -1`)
        return 1
      case 'string':
        lines.push(`if (typeof ${x} !== 'string') return -1`, `n += (${x}.length + 1) >>> 1`)
        return 1
      case 'bytes':
        lines.push(`if (!fitsBytes(${x})) return -1`, `n += (${x}.length + 3) >>> 2`)
        return 1
      case 'i32s':
        lines.push(`if (!fitsInts(${x})) return -1`, `n += ${x}.length`)
        return 1
      case 'u32s':
        lines.push(`if (!fitsUnsigned(${x})) return -1`, `n += ${x}.length`)
        return 1
      case 'f64s':
        lines.push(`if (!fitsFloats(${x})) return -1`, `n += 2 * ${x}.length`)
        return 1
      case 'list': {
        const size = this.name('n')
        lines.push(`const ${size} = listWords('${shape.of}', ${x})`)
        lines.push(`if (${size} === -1) return -1`, `n += ${size}`)
        return 1
      }
      case 'optional': {
        lines.push(`if (${x} !== undefined) {`)
        const fixed = this.#add(shape.of, x)
        lines.push(`n += ${fixed}`, '}')
        return 1
      }
      case 'record':
        return this.#record(shape, x)
    }
  }

  #number(x: string, isOut: string): number {
    this.lines.push(`if (typeof ${x} !== 'number' || ${isOut} || is(${x}, -0)) return -1`)
    return 1
  }

  #record({ type, fields }: RecordShape, x: string): number {
    const { lines } = this
    const keyCount = fields.length + (type === undefined ? 0 : 1)
    const [keys, prototype] = [this.name('k'), this.name('p')]
    lines.push(`if (typeof ${x} !== 'object' || ${x} === null) return -1`)
    if (type !== undefined) lines.push(`if (${x}.type !== ${JSON.stringify(type)}) return -1`)
    lines.push(`const ${prototype} = getPrototypeOf(${x})`)
    lines.push(`if (${prototype} !== plain && ${prototype} !== null) return -1`)
    lines.push(`let ${keys} = 0`, `for (const _ in ${x}) ${keys}++`, `if (${keys} !== ${keyCount}) return -1`)
    let fixed = 0
    for (const { name, shape } of fields) {
      const key = JSON.stringify(name)
      const local = this.name('x')
      lines.push(`const ${local} = ${x}[${key}]`)
      // With as many keys as fields, another one is there exactly when one is missing.
      if (shape.kind === 'optional') {
        lines.push(`if (${local} === undefined && !hasOwn(${x}, ${key})) return -1`)
      }
      fixed += this.#add(shape, local)
    }
    return fixed
  }
}

/** A place in the words: a local name and a constant distance from it. */
class Place {
  base = 'at'
  distance = 0

  get code(): string {
    return this.distance === 0 ? this.base : `${this.base} + ${this.distance}`
  }

  /** Code of this place; it moves on by `words`. */
  take(words: number): string {
    const { code } = this
    this.distance += words
    return code
  }

  moveTo(base: string): void {
    this.base = base
    this.distance = 0
  }
}

class WriteSource extends Source {
  readonly #place = new Place()

  body(shape: Shape): string {
    this.#add(shape, 'v')
    const { base, distance } = this.#place
    this.lines.push(base === 'at' ? `return ${distance}` : `return ${this.#place.code} - at`)
    return this.text()
  }

  #add(shape: Shape, x: string): void {
    const { lines } = this
    const place = this.#place
    switch (shape.kind) {
      case 'u8':
      case 'u16':
      case 'u32':
      case 'i32':
        lines.push(`words[${place.take(1)}] = ${x}`)
        return
      case 'f64':
        lines.push(`writeFloat(${x}, words, ${place.take(2)})`)
        return
      case 'bool':
        lines.push(`words[${place.take(1)}] = ${x} ? 1 : 0`)
        return
      case 'string':
        this.#call(`writeString(${x}, words, bytes, ${place.code})`)
        return
      case 'bytes':
        this.#call(`writeBytes(${x}, words, bytes, ${place.code})`)
        return
      case 'i32s':
        this.#call(`writeInts(${x}, words, ${place.code})`)
        return
      case 'u32s':
        this.#call(`writeUnsigned(${x}, words, ${place.code})`)
        return
      case 'f64s':
        this.#call(`writeFloats(${x}, words, bytes, ${place.code})`)
        return
      case 'list':
        this.#call(`writeList('${shape.of}', ${x}, words, bytes, ${place.code})`)
        return
      case 'optional': {
        const isThere = place.take(1)
        const next = this.name('a')
        lines.push(`let ${next} = ${place.code}`)
        lines.push(`words[${isThere}] = ${x} === undefined ? 0 : 1`, `if (${x} !== undefined) {`)
        place.moveTo(next)
        this.#add(shape.of, x)
        lines.push(`${next} = ${place.code}`, '}')
        place.moveTo(next)
        return
      }
      case 'record':
        for (const field of shape.fields) {
          const local = this.name('x')
          lines.push(`const ${local} = ${x}[${JSON.stringify(field.name)}]`)
          this.#add(field.shape, local)
        }
    }
  }

  #call(code: string): void {
    const next = this.name('a')
    this.lines.push(`const ${next} = ${code}`)
    this.#place.moveTo(next)
  }
}

class ReadSource extends Source {
  readonly #place = new Place()

  body(shape: Shape): string {
    this.lines.push(`return ${this.#add(shape)}`)
    return this.text()
  }

  /** Reads a value; returns the code that names it. */
  #add(shape: Shape): string {
    const place = this.#place
    switch (shape.kind) {
      case 'u8':
      case 'u16':
      case 'i32':
        return this.#local(`words[${place.take(1)}]`)
      case 'u32':
        return this.#local(`words[${place.take(1)}] >>> 0`)
      case 'f64':
        return this.#local(`readFloat(words, ${place.take(2)})`)
      case 'bool':
        return this.#local(`words[${place.take(1)}] !== 0`)
      case 'string':
        return this.#call('readString(words, bytes, $)', 'stringEnd(words, $)')
      case 'bytes':
        return this.#call('readBytes(words, bytes, $)', '$ + 1 + ((words[$] + 3) >>> 2)')
      case 'i32s':
        return this.#call('readInts(words, $)', '$ + 1 + words[$]')
      case 'u32s':
        return this.#call('readUnsigned(words, bytes, $)', '$ + 1 + words[$]')
      case 'f64s':
        return this.#call('readFloats(words, bytes, $)', '$ + 1 + 2 * words[$]')
      case 'list':
        return this.#call(`readList('${shape.of}', words, bytes, $)`, `listEnd('${shape.of}', words, $)`)
      case 'optional': {
        const isThere = place.take(1)
        const [next, value] = [this.name('a'), this.name('x')]
        this.lines.push(`let ${next} = ${place.code}, ${value}`, `if (words[${isThere}] !== 0) {`)
        place.moveTo(next)
        this.lines.push(`${value} = ${this.#add(shape.of)}`, `${next} = ${place.code}`, '}')
        place.moveTo(next)
        return value
      }
      case 'record': {
        const fields = shape.fields.map(field => `${JSON.stringify(field.name)}: ${this.#add(field.shape)}`)
        if (shape.type !== undefined) fields.unshift(`type: ${JSON.stringify(shape.type)}`)
        return this.#local(`{ ${fields.join(', ')} }`)
      }
    }
  }

  /** `$` in the code is this place. */
  #call(read: string, end: string): string {
    const value = this.#local(read.replaceAll('$', this.#place.code))
    const next = this.name('a')
    this.lines.push(`const ${next} = ${end.replaceAll('$', this.#place.code)}`)
    this.#place.moveTo(next)
    return value
  }

  #local(code: string): string {
    const local = this.name('x')
    this.lines.push(`const ${local} = ${code}`)
    return local
  }
}
