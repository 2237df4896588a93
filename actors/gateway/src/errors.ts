import { RouterError } from '@homing/errors'

/** `openRequestsMax` exchanges are open already. */
export class TooManyExchangesError extends RouterError {
  readonly code = 'HOMING_GATEWAY_TOO_MANY_EXCHANGES'

  constructor(openRequestsMax: number) {
    super(`cannot take another request: ${openRequestsMax} are open (--max-open-requests)`, {
      openRequestsMax,
    })
  }
}

/** The bodies of other requests take all the memory that bodies may take. */
export class NoBodyRoomError extends RouterError {
  readonly code = 'HOMING_GATEWAY_NO_BODY_ROOM'

  constructor(bytes: number, bytesMax: number) {
    super(
      `cannot take the body: the bodies of other requests hold ${bytes} of ${bytesMax} bytes (--max-bodies-bytes)`,
      { bytes, bytesMax },
    )
  }
}

/** The router is draining. */
export class ShuttingDownError extends RouterError {
  readonly code = 'HOMING_GATEWAY_SHUTTING_DOWN'

  constructor() {
    super('cannot take another request: the router is shutting down')
  }
}

/** No route has this path. */
export class NoSuchRouteError extends RouterError {
  readonly code = 'HOMING_GATEWAY_NO_SUCH_ROUTE'

  constructor(path: string) {
    super(`cannot serve ${path}: no such route; GET / lists them`, { path })
  }
}

/** The route exists, for another method. */
export class MethodNotAllowedError extends RouterError {
  readonly code = 'HOMING_GATEWAY_METHOD_NOT_ALLOWED'
  readonly allowed: readonly string[]

  constructor(method: string, path: string, allowed: readonly string[]) {
    const names = allowed.join(' or ')
    super(`cannot ${method} ${path}: use ${names}`, { method, path, allowed: names })
    this.allowed = allowed
  }
}

/** A parameter of the query, or the id in the path, is not usable. */
export class BadParameterError extends RouterError {
  readonly code = 'HOMING_GATEWAY_BAD_PARAMETER'

  constructor(name: string, value: string, wanted: string) {
    super(`cannot use ${name}=${value}: ${wanted}`, { name, value })
  }
}

/** What the path names is not here. */
export class NotFoundError extends RouterError {
  readonly code = 'HOMING_GATEWAY_NOT_FOUND'

  constructor(what: string, id: string, hint: string) {
    super(`cannot find ${what} ${id}: ${hint}`, { what, id })
  }
}
