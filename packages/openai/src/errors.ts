/** Errors in request bodies; each names the value and what would be right. */

import { CodedError, shownText } from '@homing/base'
import type { ByteRange } from './types.ts'

/** The body is not valid JSON, or not an object: 400. `position` is a byte offset. */
export class MalformedJsonError extends CodedError {
  readonly code = 'HOMING_OPENAI_MALFORMED_JSON'
  readonly position: number

  constructor(position: number, reason: string) {
    super(`cannot read the request body as JSON: ${reason} at byte ${position}`, { position })
    this.position = position
  }
}

/** A field that routing needs has a value it cannot have: 400. `param` is the path of the field. */
export class InvalidRequestError extends CodedError {
  readonly code = 'HOMING_OPENAI_INVALID_REQUEST'
  readonly param: string

  /** `found`: the value as JSON text, shortened; `expected`: what would be right. */
  constructor(param: string, found: string, expected: string) {
    const shown = shownText(found, VALUE_CHARACTERS_MAX)
    super(`cannot use ${shownText(param)} ${shown}: use ${expected}`, { param })
    this.param = param
  }
}

/** The prompt or the list of messages is empty: 400. An engine would have nothing to continue. */
export class EmptyPromptError extends CodedError {
  readonly code = 'HOMING_OPENAI_EMPTY_PROMPT'
  readonly param: string

  constructor(param: string) {
    super(`cannot complete an empty prompt: ${param} has nothing in it`, { param })
    this.param = param
  }
}

const VALUE_CHARACTERS_MAX = 80

/** The beginning of a value, as much as an error shows of it. */
export function excerpt(bytes: Uint8Array, { start, end }: ByteRange): string {
  const shownEnd = Math.min(end, start + 4 * (VALUE_CHARACTERS_MAX + 1))
  return Buffer.from(bytes.buffer, bytes.byteOffset + start, shownEnd - start).toString()
}
