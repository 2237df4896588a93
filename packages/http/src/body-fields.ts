/**
 * Body fields: the fields of one JSON body, read one by one, with one sentence about the first wrong one.
 * Fields that are not read are ignored; null is as if the field were not there. 64-bit numbers are not
 * rounded.
 */

import { openText, parseWideJson, tryBits64, tryUnsigned64 } from '@homing/base'

const FIELD_NAME_LENGTH_MAX = 1024
const TOKEN_MAX = 2 ** 32 - 1

/** What is thrown for a body that cannot be used: 'cannot register: block_size is missing'. */
export type BodyRefusal = (action: string, why: string) => Error

export class BodyFields {
  readonly #action: string
  readonly #refusal: BodyRefusal
  readonly #fields: Readonly<Record<string, unknown>>

  /** `action` begins the sentences of its faults. */
  constructor(action: string, body: Uint8Array, refusal: BodyRefusal) {
    this.#action = action
    this.#refusal = refusal
    let value: unknown
    try {
      value = parseWideJson(new TextDecoder('utf-8', { fatal: true }).decode(body))
    } catch (thrown) {
      const why = thrown instanceof SyntaxError ? thrown.message : 'it is not UTF-8'
      this.refuse(`the body is not JSON: ${why}`)
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.refuse('the body is not a JSON object')
    }
    this.#fields = value as Readonly<Record<string, unknown>>
  }

  refuse(why: string): never {
    throw this.#refusal(this.#action, why)
  }

  /** Null is as if it were not there. */
  has(name: string): boolean {
    return Object.hasOwn(this.#fields, name) && this.#fields[name] !== null
  }

  text(name: string): string | undefined {
    if (!this.has(name)) return undefined
    const value = this.#fields[name]
    return typeof value === 'string' ? value : this.refuse(`${name} must be a string`)
  }

  /** Not empty, and at most `lengthMax` characters. */
  name(name: string, preset?: string, lengthMax = FIELD_NAME_LENGTH_MAX): string {
    const text = this.text(name) ?? preset ?? this.refuse(`${name} is missing`)
    if (text === '') this.refuse(`${name} must not be empty`)
    if (text.length > lengthMax) this.refuse(`${name} has more than ${lengthMax} characters`)
    return text
  }

  /** A name that `faultOf` has no fault of: a sentence that goes on behind it. */
  checked(name: string, faultOf: (text: string) => string | undefined): string {
    const text = this.name(name)
    const fault = faultOf(text)
    return fault === undefined ? text : this.refuse(`${name} ${JSON.stringify(openText(text))} ${fault}`)
  }

  integer(name: string, min: number, max: number, preset?: number): number {
    if (!this.has(name)) return preset ?? this.refuse(`${name} is missing`)
    const value = this.#fields[name]
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
    return this.refuse(`${name} must be a whole number from ${min} to ${max}, not ${shown(value)}`)
  }

  unsigned64(name: string): bigint {
    if (!this.has(name)) this.refuse(`${name} is missing`)
    return (
      tryUnsigned64(this.#fields[name]) ??
      this.refuse(`${name} must be a whole number from 0 to 18446744073709551615`)
    )
  }

  tokens(name: string): Uint32Array {
    const list = this.list(name)
    const tokens = new Uint32Array(list.length)
    for (let i = 0; i < list.length; i++) {
      const value = list[i]
      if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > TOKEN_MAX) {
        this.refuse(`${name}[${i}] must be a whole number from 0 to ${TOKEN_MAX}`)
      }
      tokens[i] = value
    }
    return tokens
  }

  /** Pairs [lo, hi] of 64-bit hashes, which may be signed. */
  hashes(name: string): Int32Array {
    const list = this.list(name)
    const words = new Int32Array(list.length * 2)
    for (let i = 0; i < list.length; i++) {
      const bits = tryBits64(list[i]) ?? this.refuse(`${name}[${i}] must be a 64-bit whole number`)
      words[2 * i] = Number(BigInt.asIntN(32, bits))
      words[2 * i + 1] = Number(BigInt.asIntN(32, bits >> 32n))
    }
    return words
  }

  list(name: string): readonly unknown[] {
    if (!this.has(name)) this.refuse(`${name} is missing`)
    const value = this.#fields[name]
    return Array.isArray(value) ? value : this.refuse(`${name} must be a list of numbers`)
  }
}

/** A number as it is, anything else by its kind: a body may hold secrets. */
function shown(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint') return String(value)
  return Array.isArray(value) ? 'a list' : `a ${typeof value}`
}
