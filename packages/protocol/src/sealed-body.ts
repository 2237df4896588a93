/**
 * Sealed body: a map in MessagePack, as a file that shows whether it is whole.
 *
 *   magic (8 bytes), version u32, bytes of the body u32, CRC-32 of the body u32, body
 *
 * Little-endian. The caller that opens one makes the errors: each kind of file has its own.
 */

import { crc32 } from 'node:zlib'
import { encode } from '@msgpack/msgpack'
import { decodeMessagePack, type MessagePackBounds } from './message-pack.ts'

export interface SealedForm {
  /** 8 ASCII characters. */
  readonly magic: string
  readonly version: number
  readonly bounds: MessagePackBounds
  /** What the file is called in errors. */
  readonly name: string
  readonly unusable: (fault: SealedFault, reason: string) => Error
}

/** It is cut, of another version or another kind of file, or not what was written. */
export type SealedFault = 'truncated' | 'version' | 'altered'

const MAGIC_BYTES = 8
const HEADER_BYTES = MAGIC_BYTES + 12

/** Header and body. Members that are undefined are left out. */
export function sealBody({ magic, version }: SealedForm, body: object): Uint8Array[] {
  const packed = encode(body, { ignoreUndefined: true })
  const header = new Uint8Array(HEADER_BYTES)
  header.set(new TextEncoder().encode(magic))
  const view = new DataView(header.buffer)
  for (const [i, word] of [version, packed.length, crc32(packed)].entries())
    view.setUint32(MAGIC_BYTES + 4 * i, word, true)
  return [header, packed]
}

/** Throws what `unusable` makes. */
export function openSealedBody(form: SealedForm, bytes: Uint8Array): SealedFields {
  const { magic, version, bounds, name, unusable } = form
  if (bytes.length < HEADER_BYTES) throw unusable('truncated', `it has ${bytes.length} bytes`)
  const begin = new TextDecoder('latin1').decode(bytes.subarray(0, MAGIC_BYTES))
  if (begin !== magic) throw unusable('version', `it does not begin as a ${name} does`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const word = (at: number): number => view.getUint32(MAGIC_BYTES + 4 * at, true)
  if (word(0) !== version) throw unusable('version', `it has version ${word(0)}, not ${version}`)
  const body = bytes.subarray(HEADER_BYTES)
  if (body.length < word(1)) throw unusable('truncated', `${body.length} bytes of ${word(1)} are there`)
  if (body.length > word(1)) throw unusable('altered', 'something follows its end')
  const computed = crc32(body)
  if (computed !== word(2)) throw unusable('altered', `the checksum is ${computed}, not ${word(2)}`)
  let value: unknown
  try {
    value = decodeMessagePack(body, bounds)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw unusable('altered', `its body cannot be read: ${why}`)
  }
  return new SealedFields(value, name, unusable)
}

/** The members of a decoded map, each of the kind that is asked for. */
export class SealedFields {
  readonly #value: Readonly<Record<string, unknown>>
  readonly #name: string
  readonly #unusable: SealedForm['unusable']

  constructor(value: unknown, name: string, unusable: SealedForm['unusable']) {
    this.#name = name
    this.#unusable = unusable
    if (typeof value !== 'object' || value === null) throw this.#fault('is no map')
    this.#value = value as Readonly<Record<string, unknown>>
  }

  has(key: string): boolean {
    return this.#value[key] !== undefined && this.#value[key] !== null
  }

  require(condition: boolean, what: string): void {
    if (!condition) throw this.#fault(`is not so that ${what}`)
  }

  fields(key: string): SealedFields {
    return this.within(this.#value[key], key)
  }

  /** The members of an entry of the list `key`. */
  within(entry: unknown, key: string): SealedFields {
    return new SealedFields(entry, `${this.#name}.${key}`, this.#unusable)
  }

  list(key: string): readonly unknown[] {
    const value = this.#value[key]
    if (!Array.isArray(value)) throw this.#fault(`has no list ${key}`)
    return value
  }

  number(key: string): number {
    const value = this.#value[key]
    if (typeof value !== 'number' || !Number.isFinite(value)) throw this.#fault(`has no number ${key}`)
    return value
  }

  /** At least one. */
  integers(key: string, min: number): readonly number[] {
    const values = this.list(key)
    const isRight = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= min
    if (values.length === 0 || !values.every(isRight)) throw this.#fault(`has no numbers ${key}`)
    return values as readonly number[]
  }

  integer(key: string, min: number): number {
    const value = this.#value[key]
    if (!Number.isSafeInteger(value) || (value as number) < min) throw this.#fault(`has no number ${key}`)
    return value as number
  }

  flag(key: string): boolean {
    const value = this.#value[key]
    if (typeof value !== 'boolean') throw this.#fault(`has no flag ${key}`)
    return value
  }

  text(key: string): string {
    const value = this.#value[key]
    if (typeof value !== 'string') throw this.#fault(`has no text ${key}`)
    return value
  }

  /** Numbers of 64 bits. */
  floats(key: string): Float64Array {
    const value = this.#value[key]
    if (!(value instanceof Uint8Array && value.length % 8 === 0)) throw this.#fault(`has no numbers ${key}`)
    // Copied, for the numbers to be aligned.
    return new Float64Array(new Uint8Array(value).buffer)
  }

  /** Words, as many as make whole records. */
  words(key: string, recordWords: number): Int32Array {
    const value = this.#value[key]
    const isWhole = value instanceof Uint8Array && value.length % (4 * recordWords) === 0
    if (!isWhole) throw this.#fault(`has no records ${key}`)
    // Copied, for the words to be aligned.
    return new Int32Array(new Uint8Array(value).buffer)
  }

  #fault(what: string): Error {
    return this.#unusable('altered', `${this.#name} ${what}`)
  }
}
