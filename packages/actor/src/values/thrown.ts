/**
 * Thrown: the value that an actor threw, in the forms that logs, watchers and other threads can take.
 * Anything can be thrown, even a value that throws when it is inspected; nothing here throws, because the
 * runtime calls it while it deals with a failure.
 */

import { CodedError, type ErrorRecord, fromErrorRecord, UNEXPECTED_CODE } from '@homing/base'
import { ActorFailedError, classOfCode, ThreadDownError } from './errors.ts'

const UNDESCRIBABLE: ErrorRecord = {
  code: UNEXPECTED_CODE,
  message: 'something was thrown that cannot be described',
  details: {},
}

/** Causes of causes that a record keeps. */
const CAUSES_MAX = 4
/** Details that a record keeps of an error that is no CodedError. */
const DETAILS_MAX = 16
const CODE_CHARACTERS_MAX = 100

type Primitive = string | number | boolean

/** The record of anything thrown: strings, numbers and booleans only, so that it can be cloned. */
export function recordOf(thrown: unknown, causesMax = CAUSES_MAX): ErrorRecord {
  try {
    const isError = thrown instanceof Error
    const message = isError ? String(thrown.message) : String(thrown)
    const details = thrown instanceof CodedError ? detailsOf(thrown) : isError ? foreignDetails(thrown) : {}
    const hasCause = isError && thrown.cause !== undefined && causesMax > 0
    return {
      code: codeOf(thrown),
      message,
      details,
      ...(hasCause ? { cause: recordOf(thrown.cause, causesMax - 1) } : {}),
    }
  } catch {
    return UNDESCRIBABLE
  }
}

/** Its own, as errors of Node and of many libraries have one. */
function codeOf(thrown: unknown): string {
  const code = (thrown as { readonly code?: unknown } | null | undefined)?.code
  if (thrown instanceof CodedError) return String(code)
  const isCode = thrown instanceof Error && typeof code === 'string' && code !== ''
  return isCode ? code.slice(0, CODE_CHARACTERS_MAX) : UNEXPECTED_CODE
}

function detailsOf({ details }: CodedError): Record<string, Primitive> {
  const plain: Record<string, Primitive> = {}
  for (const [key, value] of Object.entries(details as Readonly<Record<string, unknown>>)) {
    plain[key] = typeof value === 'number' || typeof value === 'boolean' ? value : String(value)
  }
  return plain
}

/**
 * What an error of another library says about itself, beside its code and message: fields of its own, and
 * `details`.
 */
function foreignDetails(error: Error): Record<string, Primitive> {
  const plain: Record<string, Primitive> = {}
  let count = 0
  const { details } = error as { readonly details?: unknown }
  for (const holder of [error, typeof details === 'object' && details !== null ? details : {}]) {
    for (const [key, value] of Object.entries(holder)) {
      if (count >= DETAILS_MAX || (holder === error && OWN_FIELDS.has(key))) continue
      if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') continue
      plain[key] = value
      count++
    }
  }
  return plain
}

const OWN_FIELDS: ReadonlySet<string> = new Set(['code', 'message', 'name', 'stack', 'cause'])

/**
 * The error of a record: of its class, if that is one of this library's, with all that the record has; a
 * RemoteError otherwise.
 */
export function errorOf(record: ErrorRecord): CodedError {
  const { code, message, details, cause } = record
  const known = classOfCode(code)
  if (known === undefined) return fromErrorRecord(record)
  const options = cause === undefined ? undefined : { cause: errorOf(cause) }
  // The constructors of the classes make messages of their own; their base takes this one.
  const error = Reflect.construct(CodedError, [message, details, options], known) as CodedError
  // It was about another ask than the one that it answers now.
  return Object.assign(error, { code }, error instanceof ThreadDownError ? { mayBeTaken: true } : {})
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
export function failureOf(actor: string, thrown: unknown): CodedError {
  try {
    return thrown instanceof CodedError ? thrown : new ActorFailedError(actor, thrown)
  } catch {
    return new ActorFailedError(actor, UNDESCRIBABLE.message)
  }
}
