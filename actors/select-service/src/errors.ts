/** Errors of a selection. Sentences read 'cannot do what: why'. */

import { CodedError, type ErrorRecord } from '@homing/base'
import { statusOfServiceError } from '@homing/http'

/** No worker of the model and group can take a request now. */
export class NoneSchedulableError extends CodedError {
  readonly code = 'HOMING_SELECT_NONE_SCHEDULABLE'

  constructor(action: string, where: string, workers: readonly string[]) {
    super(`cannot ${action}: no worker of ${where} is schedulable: ${workers.join(', ')}`, {
      workers: workers.length,
    })
  }
}

/** The worker or rank that the request names is not there, or takes nothing yet. */
export class PinnedNowhereError extends CodedError {
  readonly code = 'HOMING_SELECT_PINNED_NOWHERE'

  constructor(action: string, why: string) {
    super(`cannot ${action}: pinned_worker names ${why}; GET /workers lists those that there are`)
  }
}

/** Another replica has a reservation of this id. */
export class HeldElsewhereError extends CodedError {
  readonly code = 'HOMING_SELECT_HELD_ELSEWHERE'

  constructor(id: string) {
    super(`cannot reserve ${JSON.stringify(id)}: another replica has it reserved; use another id`, { id })
  }
}

const STATUS_OF_CODE: Readonly<Record<string, number>> = {
  HOMING_SELECT_NONE_SCHEDULABLE: 503,
  HOMING_SELECT_PINNED_NOWHERE: 503,
  HOMING_SELECT_HELD_ELSEWHERE: 409,
  HOMING_ROUTER_NO_WORKER: 503,
  // A worker that has come or gone in this moment.
  HOMING_ROUTER_MODEL_NOT_FOUND: 404,
  HOMING_ROUTER_MODEL_NOT_LISTED_YET: 503,
  HOMING_ROUTER_PINNED_WORKER: 503,
  HOMING_ROUTER_ALL_FILTERED: 503,
  HOMING_ROUTER_NO_HEDGE: 503,
  HOMING_ROUTER_WORKER_GONE: 409,
  HOMING_ROUTER_ALL_BUSY: 429,
}

/** Codes that are in no table are internal errors (500), as is a custom selection that fails. */
export function statusOfSelectError(record: ErrorRecord): number {
  return STATUS_OF_CODE[record.code] ?? statusOfServiceError(record)
}
