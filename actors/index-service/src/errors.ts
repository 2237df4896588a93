/** What a caller of the index service is told instead of an answer; the status of each is in error-answer.ts. */

import { RouterError } from '@homing/errors'

/** The body is no JSON, or a field of it has a value that it cannot have. */
export class BadRequestError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_BAD_REQUEST'

  constructor(action: string, why: string) {
    super(`cannot ${action}: ${why}`, { action })
  }
}

/** A registration contradicts one that exists. */
export class RegistrationConflictError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_CONFLICT'

  constructor(instanceId: bigint, dpRank: number, why: string) {
    super(`cannot register instance ${instanceId} rank ${dpRank}: ${why}`, {
      instance_id: instanceId.toString(),
      dp_rank: dpRank,
    })
  }
}

/** What the request names is not registered. */
export class NotRegisteredError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_NOT_REGISTERED'

  constructor(action: string, what: string, hint: string) {
    super(`cannot ${action}: ${what} is not registered; ${hint}`, { what })
  }
}

/** As many ranks or peers are registered as there is room for. */
export class RegistrationsFullError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_FULL'

  constructor(what: string, max: number, option: string) {
    super(`cannot register another ${what}: ${max} are registered (${option})`, { max })
  }
}

/** As many requests are open, or as many bytes of bodies held, as may be. */
export class ServiceBusyError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_BUSY'

  constructor(what: string, max: number, option: string) {
    super(`cannot take another request: ${max} ${what} (${option})`, { max })
  }
}

/** The service is draining. */
export class ServiceStoppingError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_STOPPING'

  constructor() {
    super('cannot take another request: the indexer is shutting down')
  }
}

/** No route has this path. */
export class UnknownRouteError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_NO_SUCH_ROUTE'

  constructor(path: string) {
    super(`cannot serve ${path}: no such route; GET / lists them`, { path })
  }
}

/** The route exists, for another method. */
export class WrongMethodError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_METHOD'
  readonly allowed: readonly string[]

  constructor(method: string, path: string, allowed: readonly string[]) {
    super(`cannot ${method} ${path}: use ${allowed.join(' or ')}`, { method, path })
    this.allowed = allowed
  }
}

/** The access log cannot be opened, or not anew. */
export class AccessLogError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_ACCESS_LOG'

  constructor(path: string, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    super(`cannot open the access log ${path}: ${reason}`, { path, reason }, { cause })
  }
}

/** What a peer answered is no dump. */
export class BadDumpError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_BAD_DUMP'

  constructor(peer: string, why: string) {
    super(`cannot use the dump of ${peer}: ${why}`, { peer })
  }
}

/** An actor of the service failed more often than its budget allows, or could not start. */
export class ServiceActorLostError extends RouterError {
  readonly code = 'HOMING_INDEX_SERVICE_ACTOR_LOST'

  constructor(actor: string, why: string) {
    super(`cannot go on without the ${actor}: ${why}`, { actor })
  }
}
