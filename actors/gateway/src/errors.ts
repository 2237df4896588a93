import { CodedError, shownText, shownValue } from '@homing/base'
import type { ClientLimit, ClientRefusal } from '@homing/queue'

const TENANT_CHARACTERS_SHOWN = 64
const LIMIT_WORDS: Readonly<Record<ClientLimit, string>> = {
  concurrency: 'requests at one time (concurrent_requests)',
  rate: 'requests a minute (requests_per_minute)',
  tokens: 'tokens a minute (tokens_per_minute)',
}

/** `openRequestsMax` exchanges are open already. */
export class TooManyExchangesError extends CodedError {
  readonly code = 'HOMING_GATEWAY_TOO_MANY_EXCHANGES'

  constructor(openRequestsMax: number) {
    super(`cannot take another request: ${openRequestsMax} are open (--max-open-requests)`, {
      openRequestsMax,
    })
  }
}

/** None of the endpoints to which the gateway in front confines the request is a worker. */
export class NoEndpointError extends CodedError {
  readonly code = 'HOMING_GATEWAY_NO_ENDPOINT'

  constructor(endpoints: readonly string[]) {
    const shown = shownText(endpoints.join(', '))
    super(
      `cannot choose an endpoint: of those that the gateway allows (${shown === '' ? 'none' : shown}), none is a worker of this fleet`,
      { endpoints: shown },
    )
  }
}

/** The request waited, and makes room for one of a tenant that holds less for its weight. */
export class MadeRoomError extends CodedError {
  readonly code = 'HOMING_GATEWAY_MADE_ROOM'

  /** `setting`: names the bound that is reached. `tenant`: '' where the client names none. */
  constructor(tenant: string, setting: string, overloadStatus: number | undefined) {
    const shown = tenant.slice(0, TENANT_CHARACTERS_SHOWN)
    super(
      `cannot let the request wait longer: ${setting} is reached, and of all tenants ${shown === '' ? 'the one without a name' : shown} holds most for its weight, so its newest request makes room for another tenant`,
      { tenant: shown, setting, ...(overloadStatus === undefined ? {} : { overloadStatus }) },
    )
  }
}

/** The bodies of other requests fill the memory that bodies may take. */
export class NoBodyRoomError extends CodedError {
  readonly code = 'HOMING_GATEWAY_NO_BODY_ROOM'

  constructor(bytes: number, bytesMax: number) {
    super(
      `cannot take the body: the bodies of other requests hold ${bytes} of ${bytesMax} bytes (--max-bodies-bytes)`,
      { bytes, bytesMax },
    )
  }
}

/** A page of this origin may not use the API from a browser. */
export class OriginNotAllowedError extends CodedError {
  readonly code = 'HOMING_GATEWAY_ORIGIN_NOT_ALLOWED'

  constructor(origin: string) {
    const shown = shownText(origin)
    super(`cannot allow pages of ${shown} to use the API: --cors-origin does not name this origin`, {
      origin: shown,
    })
  }
}

/** The request shows no key of a client. */
export class KeyMissingError extends CodedError {
  readonly code = 'HOMING_GATEWAY_KEY_MISSING'

  constructor() {
    super(
      'cannot take the request: it shows no API key; send one as "authorization: Bearer KEY", or in x-api-key',
    )
  }
}

/** The client may use some models only, and which one its request asks for is not known. */
export class ModelUnreadError extends CodedError {
  readonly code = 'HOMING_GATEWAY_MODEL_UNREAD'

  /** `what` is wrong with the body. */
  constructor(what: string) {
    super(
      `cannot tell which model the request is for, and the key may not use all: its body ${what}; send JSON as application/json, or a whole form that names the model`,
      { what },
    )
  }
}

/** No response of this id was made by the client with this key, as far as is known here. */
export class ResponseUnknownError extends CodedError {
  readonly code = 'HOMING_GATEWAY_RESPONSE_UNKNOWN'

  constructor(id: string) {
    const shown = shownText(id)
    super(
      `cannot find response ${JSON.stringify(shown)}: none of this id was made with this key here, or not among those that are remembered; create it again`,
      { id: shown },
    )
  }
}

/** The request shows a key that no client has. */
export class KeyUnknownError extends CodedError {
  readonly code = 'HOMING_GATEWAY_KEY_UNKNOWN'

  constructor() {
    super('cannot take the request: its API key is not known here')
  }
}

/** The client has as much under way, or has sent as much within a minute, as its key allows. */
export class ClientLimitError extends CodedError {
  readonly code = 'HOMING_GATEWAY_CLIENT_LIMIT'

  constructor(client: string, { reason, limit, retryAfterSeconds }: ClientRefusal) {
    super(`cannot take the request now: ${client} may have ${limit} ${LIMIT_WORDS[reason]}`, {
      client,
      reason,
      limit,
      retryAfterSeconds,
    })
  }
}

/** Prefill and decode of the request must be apart, and no hand-over is possible. */
export class NoHandoverError extends CodedError {
  readonly code = 'HOMING_GATEWAY_NO_HANDOVER'

  constructor(model: string, reason: string) {
    super(
      `cannot compute the prompt for model ${JSON.stringify(shownText(model))} on a worker of its own: ${reason}`,
      { model: shownText(model) },
    )
  }
}

/** Workers of a model take token ids, and those of this prompt are not known. */
export class NoTokenIdsError extends CodedError {
  readonly code = 'HOMING_GATEWAY_NO_TOKEN_IDS'

  constructor(model: string, reason: string) {
    super(
      `cannot send the request: workers of ${JSON.stringify(shownText(model))} take token ids, and those of its prompt are not known: ${shownText(reason, 300)}`,
      { model: shownText(model), reason: shownText(reason, 300) },
    )
  }
}

/** The router is draining and takes no new requests; those that are open have some time. */
export class ShuttingDownError extends CodedError {
  readonly code = 'HOMING_GATEWAY_SHUTTING_DOWN'

  constructor(isOpen = false) {
    super(
      isOpen
        ? 'cannot finish the request: the router is shutting down, and its time is over (--shutdown-timeout)'
        : 'cannot take another request: the router is shutting down',
    )
  }
}

/** The worker broke the connection, or could not be reached and no other worker could take the request. */
export class UpstreamFailedError extends CodedError {
  readonly code = 'HOMING_DISPATCH_UPSTREAM_FAILED'

  constructor(worker: string, reason: string) {
    super(`cannot get an answer from worker ${worker}: ${reason}`, { worker, reason })
  }
}

/** The connections to two workers broke while they worked on this very request. */
export class DeadlyPromptError extends CodedError {
  readonly code = 'HOMING_GATEWAY_DEADLY_PROMPT'

  constructor(workers: readonly string[]) {
    super(
      `cannot send the request: workers ${workers.join(', ')} broke while they worked on this very request, so no other is tried for some minutes`,
      { workers: workers.join(', ') },
    )
  }
}

/** This machine has no socket for the call: no worker is at fault, and another one would not help. */
export class NoSocketError extends CodedError {
  readonly code = 'HOMING_DISPATCH_NO_SOCKET'

  constructor(reason: string) {
    super(`cannot send the request: the router's machine has no socket for it: ${reason}`, { reason })
  }
}

/** The worker was silent for too long, or its whole answer took too long. */
export class NoAnswerError extends CodedError {
  readonly code = 'HOMING_DISPATCH_NO_ANSWER'

  constructor(worker: string, reason: string) {
    super(`cannot wait longer for worker ${worker}: ${reason}`, { worker, reason })
  }
}

/** The gateway failed or stopped while the request was in progress. */
export class GatewayRestartedError extends CodedError {
  readonly code = 'HOMING_GATEWAY_RESTARTED'

  constructor() {
    super("cannot finish the answer: the router's gateway was restarted")
  }
}

/** A program reserves under an id that it has in use. */
export class ReservationExistsError extends CodedError {
  readonly code = 'HOMING_GATEWAY_RESERVATION_EXISTS'

  constructor(id: string) {
    super(
      `cannot book request ${JSON.stringify(shownText(id))}: its id is booked already; free it first, or give each request an id of its own`,
      { id: shownText(id) },
    )
  }
}

/** No request is booked under this id. */
export class ReservationUnknownError extends CodedError {
  readonly code = 'HOMING_GATEWAY_RESERVATION_UNKNOWN'

  constructor(act: string, id: string, idleMsMax: number) {
    super(
      `cannot ${act} request ${JSON.stringify(shownText(id))}: it is not booked; it never was, was freed, or had no sign of life for ${idleMsMax} ms (--active-request-expiry-secs)`,
      { id: shownText(id), idleMsMax },
    )
  }
}

/** A request was freed while its worker was being chosen. */
export class ReservationCancelledError extends CodedError {
  readonly code = 'HOMING_GATEWAY_RESERVATION_CANCELLED'

  constructor(id: string) {
    super(
      `cannot book request ${JSON.stringify(shownText(id))}: it was freed, or the router stopped, before its worker was chosen`,
      { id: shownText(id) },
    )
  }
}

/** Programs have booked as many requests as may be open. */
export class TooManyReservationsError extends CodedError {
  readonly code = 'HOMING_GATEWAY_TOO_MANY_RESERVATIONS'

  constructor(openMax: number) {
    super(
      `cannot book another request: programs have ${openMax} booked (--max-open-requests); free those that are over`,
      { openMax },
    )
  }
}

/** An id that names no request. */
export class BadReservationIdError extends CodedError {
  readonly code = 'HOMING_GATEWAY_BAD_RESERVATION_ID'

  constructor(act: string, id: unknown, charactersMax: number) {
    const what = typeof id === 'string' ? `has ${id.length} characters` : `is ${shownValue(id)}`
    super(`cannot ${act} a request: its id ${what}; use a text of 1 … ${charactersMax} characters`, {
      charactersMax,
    })
  }
}
