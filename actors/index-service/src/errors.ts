/**
 * Errors that a caller of the index service gets instead of an answer; error-answer.ts has the status of
 * each.
 */

import { CodedError } from '@homing/base'

/** The body is no JSON, or a field of it has a value that it cannot have. */
export class BadRequestError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_BAD_REQUEST'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action })
  }
}

/** A registration contradicts one that exists. */
export class RegistrationConflictError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_CONFLICT'

  constructor(instanceId: bigint, dpRank: number, why: string) {
    super(`cannot register instance ${instanceId} rank ${dpRank}: ${why}`, {
      instance_id: instanceId.toString(),
      dp_rank: dpRank,
    })
  }
}

/** The request names something that is not registered. */
export class NotRegisteredError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_NOT_REGISTERED'

  constructor(action: string, what: string, hint: string) {
    super(`cannot ${action}: ${what} is not registered; ${hint}`, { what })
  }
}

/** As many ranks or peers are registered as there is room for. */
export class RegistrationsFullError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_FULL'

  constructor(what: string, max: number, option: string) {
    super(`cannot register another ${what}: ${max} are registered (${option})`, { max })
  }
}

/** As many requests are open, or as many bytes of bodies held, as may be. */
export class ServiceBusyError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_BUSY'

  constructor(what: string, max: number, option: string) {
    super(`cannot take another request: ${max} ${what} (${option})`, { max, retryAfterSeconds: 1 })
  }
}

/** The service is draining. */
export class ServiceStoppingError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_STOPPING'

  constructor() {
    super('cannot take another request: the indexer is shutting down')
  }
}

/** A peer's answer is not a dump. */
export class BadDumpError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_BAD_DUMP'

  constructor(peer: string, why: string) {
    super(`cannot use the dump of ${peer}: ${why}`, { peer })
  }
}

/** An actor of the service failed more often than its budget allows, or could not start. */
export class ServiceActorLostError extends CodedError {
  readonly code = 'HOMING_INDEX_SERVICE_ACTOR_LOST'

  constructor(actor: string, why: string) {
    super(`cannot go on without the ${actor}: ${why}`, { actor })
  }
}
