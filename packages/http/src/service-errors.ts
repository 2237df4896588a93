/**
 * Errors that a caller of `homing slots` or `homing select` gets instead of an answer, and their statuses.
 * Sentences read 'cannot do what: why'.
 */

import { CodedError, type ErrorRecord, shownText } from '@homing/base'
import { BodyFields } from './body-fields.ts'
import { COMMON_STATUSES } from './json-answers.ts'

/** The body is no JSON, or a field of it has a value that it cannot have here. */
export class BadBodyError extends CodedError {
  readonly code = 'HOMING_SERVICE_BAD_REQUEST'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action })
  }
}

/** A field of the body is missing, or is nothing of its type. */
export class MistypedBodyError extends CodedError {
  readonly code = 'HOMING_SERVICE_MISTYPED'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action })
  }
}

/** The body is not said to be JSON. */
export class BodyTypeError extends CodedError {
  readonly code = 'HOMING_SERVICE_BODY_TYPE'

  constructor(contentType: string | undefined) {
    const given =
      contentType === undefined ? 'there is none' : `not ${JSON.stringify(shownText(contentType))}`
    super(`cannot read the body: its content-type must be application/json, ${given}`)
  }
}

/** Reads the fields of a body; it throws BadBodyError and MistypedBodyError. */
export function bodyFields(action: string, body: Uint8Array): BodyFields {
  return new BodyFields(action, body, (what, why, fault) =>
    fault === 'mistyped' ? new MistypedBodyError(what, why) : new BadBodyError(what, why),
  )
}

/** The request names something that is not there. */
export class ServiceNotFoundError extends CodedError {
  readonly code = 'HOMING_SERVICE_NOT_FOUND'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action })
  }
}

/** The request contradicts what is there. */
export class ServiceConflictError extends CodedError {
  readonly code = 'HOMING_SERVICE_CONFLICT'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action })
  }
}

/** There is no room for another worker, peer or request. */
export class ServiceFullError extends CodedError {
  readonly code = 'HOMING_SERVICE_FULL'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action, retryAfterSeconds: 1 })
  }
}

/** As many requests are open, or as many bytes of bodies held, as may be. */
export class ServiceBusyError extends CodedError {
  readonly code = 'HOMING_SERVICE_BUSY'

  constructor(what: string, max: number, option: string) {
    super(`cannot take another request: ${max} ${what} (${option})`, { max, retryAfterSeconds: 1 })
  }
}

/** The service is draining. */
export class ServiceStoppingError extends CodedError {
  readonly code = 'HOMING_SERVICE_STOPPING'

  constructor() {
    super('cannot take another request: the service is shutting down')
  }
}

/** An actor of the service failed more often than its budget allows, or could not start. */
export class ServiceActorLostError extends CodedError {
  readonly code = 'HOMING_SERVICE_ACTOR_LOST'

  constructor(actor: string, why: string) {
    super(`cannot go on without the ${actor}: ${why}`, { actor })
  }
}

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
  ...COMMON_STATUSES,
  HOMING_SERVICE_BAD_REQUEST: 400,
  HOMING_SERVICE_BODY_TYPE: 415,
  HOMING_SERVICE_MISTYPED: 422,
  HOMING_SERVICE_NOT_FOUND: 404,
  HOMING_SERVICE_CONFLICT: 409,
  HOMING_SERVICE_FULL: 503,
  HOMING_SERVICE_BUSY: 503,
  HOMING_SERVICE_STOPPING: 503,
}

/** Codes that are not in the table are internal errors (500). */
export function statusOfServiceError({ code }: ErrorRecord): number {
  return STATUS_OF_CODE[code] ?? 500
}
