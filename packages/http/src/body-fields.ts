/**
 * Body fields: the fields of one JSON body, read one by one, with one sentence about the first wrong one.
 * Fields that are not read are ignored; null is as if the field were not there. 64-bit numbers are not
 * rounded.
 */

import { openText, parseWideJson, tryBits64, tryUnsigned64 } from '@homing/base'

const FIELD_NAME_LENGTH_MAX = 1024
const TOKEN_MAX = 2 ** 32 - 1

/**
 * `mistyped`: a field is missing, or is nothing of its type, or the body is JSON and no object; `unusable`:
 * the body is no JSON, or a field has a value that it cannot have here.
 */
export type BodyFault = 'mistyped' | 'unusable'

/** What is thrown for a body that cannot be used: 'cannot register: block_size is missing'. */
export type BodyRefusal = (action: string, why: string, fault: BodyFault) => Error

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
      this.mistyped('the body is not a JSON object')
    }
    this.#fields = value as Readonly<Record<string, unknown>>
  }

  /** A value that cannot be here. */
  refuse(why: string): never {
    throw this.#refusal(this.#action, why, 'unusable')
  }

  /** A field that is missing, or nothing of its type. */
  mistyped(why: string): never {
    throw this.#refusal(this.#action, why, 'mistyped')
  }

  /** Null is as if it were not there. */
  has(name: string): boolean {
    return Object.hasOwn(this.#fields, name) && this.#fields[name] !== null
  }

  /** Undefined where it is not there. */
  value(name: string): unknown {
    return this.has(name) ? this.#fields[name] : undefined
  }

  text(name: string): string | undefined {
    const value = this.value(name)
    if (value === undefined) return undefined
    return typeof value === 'string' ? value : this.mistyped(`${name} must be a string`)
  }

  flag(name: string, preset: boolean): boolean {
    const value = this.value(name) ?? preset
    return typeof value === 'boolean' ? value : this.mistyped(`${name} must be true or false`)
  }

  /** Empty where it is not there. */
  object(name: string): Readonly<Record<string, unknown>> {
    const value = this.value(name) ?? {}
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      return this.mistyped(`${name} must be an object`)
    return value as Readonly<Record<string, unknown>>
  }

  /** Not empty, and at most `lengthMax` characters. */
  name(name: string, preset?: string, lengthMax = FIELD_NAME_LENGTH_MAX): string {
    const text = this.text(name) ?? preset ?? this.mistyped(`${name} is missing`)
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
    if (!this.has(name)) return preset ?? this.mistyped(`${name} is missing`)
    const value = this.#fields[name]
    const isWhole = typeof value === 'number' && Number.isInteger(value) && value >= 0
    if (isWhole && value >= min && value <= max) return value
    const why = `${name} must be a whole number from ${min} to ${max}, not ${shown(value)}`
    return isWhole ? this.refuse(why) : this.mistyped(why)
  }

  unsigned64(name: string): bigint {
    if (!this.has(name)) this.mistyped(`${name} is missing`)
    return (
      tryUnsigned64(this.#fields[name]) ??
      this.mistyped(`${name} must be a whole number from 0 to 18446744073709551615`)
    )
  }

  tokens(name: string): Uint32Array {
    const list = this.list(name)
    const tokens = new Uint32Array(list.length)
    for (let i = 0; i < list.length; i++) {
      const value = list[i]
      if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > TOKEN_MAX) {
        this.mistyped(`${name}[${i}] must be a whole number from 0 to ${TOKEN_MAX}`)
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
      const bits = tryBits64(list[i]) ?? this.mistyped(`${name}[${i}] must be a 64-bit whole number`)
      words[2 * i] = Number(BigInt.asIntN(32, bits))
      words[2 * i + 1] = Number(BigInt.asIntN(32, bits >> 32n))
    }
    return words
  }

  list(name: string): readonly unknown[] {
    if (!this.has(name)) this.mistyped(`${name} is missing`)
    const value = this.#fields[name]
    return Array.isArray(value) ? value : this.mistyped(`${name} must be a list of numbers`)
  }
}

/** A number as it is, anything else by its kind: a body may hold secrets. */
function shown(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}
