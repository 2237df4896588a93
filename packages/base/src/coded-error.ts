/**
 * CodedError: the base of every error that the outside world can cause.
 *
 * Messages read "cannot do what: why", with the values. `code` is stable and listed in
 * docs/errors.md. Structured clone strips an error to a bare `Error`, so between threads an
 * error travels as an `ErrorRecord`.
 */

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

export abstract class CodedError extends Error {
  abstract readonly code: string
  readonly details: ErrorDetails

  constructor(message: string, details: ErrorDetails = {}, options?: { readonly cause?: unknown }) {
    super(message, options)
    this.name = new.target.name
    this.details = details
  }
}

/** An error that arrived from another thread: same code, message and details; the class is gone. */
export class RemoteError extends CodedError {
  readonly code: string

  constructor(record: ErrorRecord) {
    const { message, details, cause } = record
    super(message, details, cause === undefined ? undefined : { cause: new RemoteError(cause) })
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
  return { code: UNEXPECTED_CODE, message, details: {} }
}

/** The error of a record, as the receiver may throw it. */
export function fromErrorRecord(record: ErrorRecord): CodedError {
  return new RemoteError(record)
}
