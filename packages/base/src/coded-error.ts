/**
 * CodedError: the base of every error that the outside world can cause.
 *
 * Messages read "cannot do what: why", with the values. `code` is stable and listed in
 * docs/errors.md. Structured clone strips an error to a bare `Error`, so between threads an
 * error travels as an `ErrorRecord`.
 *
 * Bound  message and details are cut to MESSAGE_CHARACTERS_MAX characters each: what an error repeats may
 *        come from outside. A class that repeats one foreign text cuts it itself (shown-text.ts), so that
 *        the rest of its message stays whole.
 */

import { boundedMessage } from './shown-text.ts'

/** Characters of a message, and of each of its details. */
export const MESSAGE_CHARACTERS_MAX = 1000
/** The same, where the message is a list of all that is wrong in what an operator wrote. */
export const LIST_CHARACTERS_MAX = 64 * 1024

/** Values that explain an error; strings and numbers only, so that they survive any transport. */
export type ErrorDetails = Readonly<Record<string, string | number | boolean>>

/** The form of an error between threads and in logs. */
export interface ErrorRecord {
  readonly code: string
  readonly message: string
  readonly details: ErrorDetails
  /** What it was caused by. */
  readonly cause?: ErrorRecord
}

export interface CodedErrorOptions {
  readonly cause?: unknown
  /** Default: MESSAGE_CHARACTERS_MAX. */
  readonly charactersMax?: number
}

export abstract class CodedError extends Error {
  abstract readonly code: string
  readonly details: ErrorDetails

  constructor(message: string, details: ErrorDetails = {}, options: CodedErrorOptions = {}) {
    const { charactersMax = MESSAGE_CHARACTERS_MAX } = options
    super(boundedMessage(message, charactersMax), 'cause' in options ? { cause: options.cause } : undefined)
    this.name = new.target.name
    this.details = boundedDetails(details, charactersMax)
  }
}

function boundedDetails(details: ErrorDetails, charactersMax: number): ErrorDetails {
  const isLong = Object.values(details).some(
    value => typeof value === 'string' && value.length > charactersMax,
  )
  if (!isLong) return details
  return Object.fromEntries(
    Object.entries(details).map(([name, value]) => [
      name,
      typeof value === 'string' ? boundedMessage(value, charactersMax) : value,
    ]),
  )
}

/** An error that arrived from another thread: same code, message and details; the class is gone. */
export class RemoteError extends CodedError {
  readonly code: string

  constructor(record: ErrorRecord) {
    const { message, details, cause } = record
    super(message, details, {
      // Its class has cut it, and may have allowed a list.
      charactersMax: LIST_CHARACTERS_MAX,
      ...(cause === undefined ? {} : { cause: new RemoteError(cause) }),
    })
    this.code = record.code
  }
}

/** The code given to errors that are not CodedErrors: bugs, or errors of a library. */
export const UNEXPECTED_CODE = 'HOMING_INTERNAL_UNEXPECTED'

/** Turns anything thrown into a record; never throws. */
export function toErrorRecord(thrown: unknown): ErrorRecord {
  if (thrown instanceof CodedError) {
    return { code: thrown.code, message: thrown.message, details: thrown.details }
  }
  const message = thrown instanceof Error ? thrown.message : String(thrown)
  return { code: UNEXPECTED_CODE, message: boundedMessage(message, MESSAGE_CHARACTERS_MAX), details: {} }
}

/** The error of a record, as the receiver may throw it. */
export function fromErrorRecord(record: ErrorRecord): CodedError {
  return new RemoteError(record)
}
