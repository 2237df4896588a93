/**
 * Label members: members of a label that this version does not know, kept for those that do. All of a label
 * are one text: a JSON object without spaces, its names in ascending order, so that equal members are equal
 * texts.
 *
 * JSON is what dumps have, so bytes, extensions, NaN and texts that are no Unicode are not kept; nor are
 * members of more bytes or levels than below, as a text. Then none of the label is: half of what belongs
 * together may say something else.
 */

import { parseExactJson } from '@homing/base'
import { type MessagePackReader, WrongTypeError } from './message-pack-reader.ts'

/** Most bytes of the unknown members of one label, as a text; of all of one block twice that. */
export const LABEL_MEMBERS_BYTES_MAX = 1024
/** Most levels of lists and maps in one member. */
export const LABEL_MEMBERS_DEPTH_MAX = 8

/** A number of 3 bytes in JSON takes 9 on the wire: what is longer than this is too long as a text, too. */
const WIRE_BYTES_MAX = 4 * LABEL_MEMBERS_BYTES_MAX
const [SIGNED_MIN, UNSIGNED_MAX] = [-(2n ** 63n), 2n ** 64n - 1n]

/** The members cannot be kept. */
export class LabelMembersError extends Error {}

/** Undefined: there are none. Throws LabelMembersError. */
export function labelMembers(members: Iterable<readonly [name: string, value: unknown]>): string | undefined {
  const named = new Map(members)
  if (named.size === 0) return undefined
  const text = objectText(named, LABEL_MEMBERS_DEPTH_MAX)
  if (text === '{}') return undefined
  const bytes = Buffer.byteLength(text)
  if (bytes > LABEL_MEMBERS_BYTES_MAX)
    throw new LabelMembersError(`${bytes} bytes, of at most ${LABEL_MEMBERS_BYTES_MAX}`)
  return text
}

/** What `labelMembers` was made of. */
export function membersIn(text: string | undefined): Readonly<Record<string, unknown>> {
  return text === undefined ? {} : (parseExactJson(text) as Record<string, unknown>)
}

/** Whether `labelMembers` has made this text. */
export function isMembersText(text: string): boolean {
  if (text.length > LABEL_MEMBERS_BYTES_MAX) return false
  try {
    return text.startsWith('{') && labelMembers(Object.entries(membersIn(text))) === text
  } catch (error) {
    if (!(error instanceof LabelMembersError) && !(error instanceof SyntaxError)) throw error
    return false
  }
}

/** Members as they are read, one by one, from a message. */
export class MembersRead {
  readonly #named = new Map<string, unknown>()
  #bytes = 0
  #isLeftOut = false

  /** The value of a member; it is consumed, whatever it is. */
  read(name: string, reader: MessagePackReader): void {
    const start = reader.at
    reader.skip()
    const end = reader.at
    this.#bytes += name.length + end - start
    if (this.#isLeftOut || this.#bytes > WIRE_BYTES_MAX) {
      this.leaveOut()
      return
    }
    reader.at = start
    try {
      this.#named.set(name, readValue(reader, LABEL_MEMBERS_DEPTH_MAX))
    } catch (error) {
      if (!(error instanceof LabelMembersError) && !(error instanceof WrongTypeError)) throw error
      this.leaveOut()
    }
    reader.at = end
  }

  leaveOut(): void {
    this.#isLeftOut = true
  }

  /** `leftOut` is called where there are some that cannot be kept. */
  text(leftOut: () => void): string | undefined {
    try {
      if (!this.#isLeftOut) return labelMembers(this.#named)
    } catch (error) {
      if (!(error instanceof LabelMembersError)) throw error
    }
    leftOut()
    return undefined
  }
}

function readValue(reader: MessagePackReader, depth: number): unknown {
  const type = reader.peek()
  switch (type) {
    case 'nil':
      reader.skip()
      return null
    case 'boolean': {
      const isTrue = reader.takeTrue()
      if (!isTrue) reader.skip()
      return isTrue
    }
    case 'integer':
      return reader.exactInteger()
    case 'float':
      return reader.number()
    case 'string':
      return reader.string()
    case 'array': {
      if (depth === 0) throw tooDeep()
      return Array.from({ length: reader.arrayCount() }, () => readValue(reader, depth - 1))
    }
    case 'map': {
      if (depth === 0) throw tooDeep()
      const named = new Map<string, unknown>()
      const count = reader.mapCount()
      for (let i = 0; i < count; i++) named.set(reader.string(), readValue(reader, depth - 1))
      return named
    }
    default:
      throw new LabelMembersError(`a ${type}`)
  }
}

function textOf(value: unknown, depth: number): string {
  switch (typeof value) {
    case 'boolean':
      return String(value)
    case 'number':
      return numberText(value)
    case 'bigint':
      if (value < SIGNED_MIN || value > UNSIGNED_MAX) throw new LabelMembersError('a number beyond 64 bits')
      return value.toString()
    case 'string':
      return stringText(value)
    case 'object':
      if (value === null) return 'null'
      if (depth === 0) throw tooDeep()
      if (Array.isArray(value)) return `[${value.map(each => textOf(each ?? null, depth - 1)).join(',')}]`
      if (value instanceof Map) return objectText(value, depth - 1)
      if (ArrayBuffer.isView(value)) throw new LabelMembersError('bytes')
      return objectText(new Map(Object.entries(value)), depth - 1)
    default:
      throw new LabelMembersError(`a ${typeof value}`)
  }
}

function objectText(named: ReadonlyMap<string, unknown>, depth: number): string {
  const members: string[] = []
  for (const name of [...named.keys()].sort()) {
    const value = named.get(name)
    if (value !== undefined) members.push(`${stringText(name)}:${textOf(value, depth)}`)
  }
  return `{${members.join(',')}}`
}

function numberText(value: number): string {
  if (!Number.isFinite(value)) throw new LabelMembersError(`the number ${value}`)
  if (!Number.isInteger(value) || Number.isSafeInteger(value)) return JSON.stringify(value)
  // With all of its digits, which are those of the integer that is read again.
  const whole = BigInt(value)
  return whole < SIGNED_MIN || whole > UNSIGNED_MAX ? value.toExponential() : whole.toString()
}

function stringText(text: string): string {
  if (!text.isWellFormed()) throw new LabelMembersError('a text that is no Unicode')
  return JSON.stringify(text)
}

function tooDeep(): LabelMembersError {
  return new LabelMembersError(`more than ${LABEL_MEMBERS_DEPTH_MAX} levels`)
}
