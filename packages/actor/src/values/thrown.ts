/**
 * Thrown: the value that an actor threw, in the forms that logs, watchers and other threads can take. Anything can
 * be thrown, even a value that throws when it is inspected; nothing here throws, because the runtime calls it
 * while it deals with a failure.
 */

import { type ErrorRecord, HomingError, toErrorRecord, UNEXPECTED_CODE } from '@homing/errors'
import { ActorFailedError } from './errors.ts'

const UNDESCRIBABLE: ErrorRecord = {
  code: UNEXPECTED_CODE,
  message: 'something was thrown that cannot be described',
  details: {},
}

/** The record of anything thrown: strings, numbers and booleans only, so that it can be cloned. */
export function recordOf(thrown: unknown): ErrorRecord {
  try {
    const { code, message, details } = toErrorRecord(thrown)
    const plain: Record<string, string | number | boolean> = {}
    for (const [key, value] of Object.entries(details as Readonly<Record<string, unknown>>)) {
      plain[key] = typeof value === 'number' || typeof value === 'boolean' ? value : String(value)
    }
    return { code: String(code), message: String(message), details: plain }
  } catch {
    return UNDESCRIBABLE
  }
}

/** Anything thrown as a log line shows it: its record, and its stack if it has one. */
export function describe(thrown: unknown): Record<string, unknown> {
  const record = recordOf(thrown)
  try {
    if (thrown instanceof Error && typeof thrown.stack === 'string') {
      return { ...record, stack: thrown.stack }
    }
  } catch {
    // A stack that throws is left out.
  }
  return { ...record }
}

/** What the watchers of a failed actor are given. */
export function failureOf(actor: string, thrown: unknown): HomingError {
  try {
    return thrown instanceof HomingError ? thrown : new ActorFailedError(actor, thrown)
  } catch {
    return new ActorFailedError(actor, UNDESCRIBABLE.message)
  }
}
