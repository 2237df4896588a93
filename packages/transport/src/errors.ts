/** Errors that the network can cause in a transport. */

import { CodedError, shownText } from '@homing/base'
import { HEADER_BYTES_MAX, HEADERS_MS_MAX, PIPELINED_REQUESTS_MAX } from './limits.ts'

/** A port or endpoint cannot be bound. */
export class ListenError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_LISTEN'

  constructor(endpoint: string, cause: unknown) {
    const reason = reasonOf(cause)
    super(`cannot listen on ${endpoint}: ${reason}`, { endpoint, reason }, { cause })
  }
}

/** It may repeat a part of an endpoint. */
const REASON_CHARACTERS_MAX = 300

/** Packages that are installed beside this one where they are used are missing. */
export class NotInstalledError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_NOT_INSTALLED'

  /** `what`: 'listen for …'. `packages`: as npm is told them. */
  constructor(what: string, packages: string, cause: unknown) {
    super(`cannot ${what}: packages are missing; npm install ${packages}`, { packages }, { cause })
  }
}

/** An endpoint's text names no place that can be reached. */
export class EndpointError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_ENDPOINT'
  readonly reason: string

  constructor(endpoint: string, reason: string) {
    const shown = shownText(endpoint)
    const why = shownText(reason, REASON_CHARACTERS_MAX)
    super(`cannot use ${JSON.stringify(shown)} as an endpoint: ${why}`, { endpoint: shown, reason: why })
    this.reason = why
  }
}

/** A thread asks for ZeroMQ sockets, and the main thread, which opens them, has not loaded this package. */
export class SocketHostError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_NO_HOST'

  constructor(threadId: number, cause: unknown) {
    super(
      `cannot open ZeroMQ sockets for thread ${threadId}: the main thread has not loaded @homing/transport`,
      { threadId },
      { cause },
    )
  }
}

/** A stream at a broker (`--router-durable-kv-events`) could not be made, written, read or reset. */
export class StreamError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_STREAM'
  readonly reason: string
  /** One message is larger than the broker or the stream takes: it is refused again each time. */
  readonly isTooLarge: boolean

  /** `what`: 'cannot …'. */
  constructor(what: string, reason: string, isTooLarge = false) {
    const why = shownText(reason, REASON_CHARACTERS_MAX)
    super(`${what}: ${why}`, { reason: why })
    this.reason = why
    this.isTooLarge = isTooLarge
  }
}

/**
 * Why a call ended without an answer. `connect`: no connection; `local`: none, for want of something of this
 * machine (file descriptors, ports, memory), which says nothing of the server; `full`: its connection has as
 * many calls as it takes, so the server is there and has not seen this one; `reset`: it broke; `protocol`:
 * the answer is no HTTP; `request`: ours cannot be written as HTTP; `timeout`, `tooLarge`, `aborted`: we
 * ended it.
 */
export type HttpCallFailure =
  | 'connect'
  | 'local'
  | 'full'
  | 'reset'
  | 'protocol'
  | 'request'
  | 'timeout'
  | 'tooLarge'
  | 'aborted'

/** A call to a server ended without a whole answer. */
export class HttpCallError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_CALL'
  readonly failure: HttpCallFailure
  /** Origin that has answered in its place: a second call goes there and nowhere else. Undefined: none. */
  readonly servedBy: string | undefined

  constructor(
    request: { readonly method: string; readonly origin: string; readonly path: string },
    failure: HttpCallFailure,
    cause?: unknown,
    servedBy?: string,
  ) {
    const url = `${request.origin}${request.path.split('?', 1)[0]}`
    const reason = cause === undefined ? failure : reasonOf(cause)
    super(
      `cannot complete ${request.method} ${url}: ${reason}`,
      { method: request.method, url, failure, reason },
      { cause },
    )
    this.failure = failure
    this.servedBy = servedBy
  }
}

/** A request that cannot be served as HTTP, whatever it asks for. */
export abstract class HttpRequestError extends CodedError {
  abstract readonly status: number
}

/** The request is not valid HTTP, or a form that this server refuses. */
export class MalformedHttpError extends HttpRequestError {
  readonly code = 'HOMING_TRANSPORT_MALFORMED_HTTP'
  readonly status = 400

  constructor(reason: string) {
    super(`cannot read the request as HTTP: ${reason}`, { reason })
  }
}

/** Its request line and headers are larger than a server of ours reads. */
export class HeadersTooLargeError extends HttpRequestError {
  readonly code = 'HOMING_TRANSPORT_HEADERS_TOO_LARGE'
  readonly status = 431

  constructor() {
    super(`cannot read the request: its headers have more than ${HEADER_BYTES_MAX} bytes`, {
      maxBytes: HEADER_BYTES_MAX,
    })
  }
}

/** Its headers did not come in time. */
export class HeadersTimeoutError extends HttpRequestError {
  readonly code = 'HOMING_TRANSPORT_HEADERS_TIMEOUT'
  readonly status = 408

  constructor() {
    super(`cannot read the request: its headers took more than ${HEADERS_MS_MAX} ms`, {
      maxMs: HEADERS_MS_MAX,
    })
  }
}

/** Its client has sent more requests on one connection without waiting for answers than are taken. */
export class PipelinedError extends HttpRequestError {
  readonly code = 'HOMING_TRANSPORT_PIPELINED'
  readonly status = 503

  constructor() {
    super(
      `cannot take another request of this connection: ${PIPELINED_REQUESTS_MAX} are not answered; wait for answers, or open more connections`,
      { requestsMax: PIPELINED_REQUESTS_MAX },
    )
  }
}

/** It expects something else than `100-continue`. */
export class ExpectationError extends HttpRequestError {
  readonly code = 'HOMING_TRANSPORT_EXPECTATION'
  readonly status = 417

  constructor(expected: string) {
    const shown = shownText(expected)
    super(`cannot meet the expectation ${shown}: use 100-continue, or none`, { expected: shown })
  }
}

/** A request's body is larger than its route accepts; the rest was not read. */
export class BodyTooLargeError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_BODY_TOO_LARGE'

  constructor(maxBytes: number) {
    super(`cannot read the body: it has more than ${maxBytes} bytes`, { maxBytes })
  }
}

/** Nothing more of a request's body came for as long as its listener waits; the rest was not read. */
export class BodyTimeoutError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_BODY_TIMEOUT'

  constructor(silenceMsMax: number, receivedBytes: number) {
    super(`cannot read the body: nothing came for ${silenceMsMax} ms after ${receivedBytes} bytes`, {
      silenceMsMax,
      receivedBytes,
    })
  }
}

/** A request's body came in time, piece by piece, but too slowly; the rest was not read. */
export class BodyTooSlowError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_BODY_TOO_SLOW'

  constructor(receivedBytes: number, elapsedMs: number) {
    super(`cannot read the body: only ${receivedBytes} bytes came in ${Math.round(elapsedMs)} ms`, {
      receivedBytes,
      elapsedMs,
    })
  }
}

/** The client left before its request was read or answered. */
export class ClientGoneError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_CLIENT_GONE'

  constructor(action: string) {
    super(`cannot ${action}: the client has gone`, { action })
  }
}

/** What Node advises its own users of certificates; ours have --engine-ca-file. */
const NODE_ADVICE = /; if the root CA is installed locally.*$/

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  const code = (cause as { code?: unknown }).code
  const message = cause.message.replace(NODE_ADVICE, '')
  return typeof code === 'string' && !message.includes(code) ? `${code}, ${message}` : message
}

/**
 * DNS does not tell what is behind a name. `isAbsent`: it says that there is nothing; otherwise it does not
 * answer.
 */
export class NameError extends CodedError {
  readonly code = 'HOMING_TRANSPORT_NAME'
  readonly isAbsent: boolean
  readonly reason: string

  constructor(name: string, reason: string, isAbsent: boolean) {
    const [shown, why] = [shownText(name), shownText(reason, REASON_CHARACTERS_MAX)]
    super(`cannot resolve ${JSON.stringify(shown)}: ${why}`, { name: shown, reason: why })
    this.reason = why
    this.isAbsent = isAbsent
  }
}
