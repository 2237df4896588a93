/** Errors that a client of any HTTP service gets instead of an answer. */

import { CodedError, type ErrorRecord, openName, openText, shownText } from '@homing/base'

const PATH_CHARACTERS_MAX = 200

/** No route has this path. */
export class NoSuchRouteError extends CodedError {
  readonly code = 'HOMING_HTTP_NO_SUCH_ROUTE'

  /** `hint`: where the routes are listed. */
  constructor(path: string, hint: string) {
    const shown = shownText(path, PATH_CHARACTERS_MAX)
    super(`cannot serve ${shown}: no such route; ${hint}`, { path: shown })
  }
}

/** The route exists, for another method. */
export class MethodNotAllowedError extends CodedError {
  readonly code = 'HOMING_HTTP_METHOD_NOT_ALLOWED'
  readonly allowed: readonly string[]

  constructor(method: string, path: string, allowed: readonly string[]) {
    const names = allowed.join(' or ')
    const shown = { method: shownText(method), path: shownText(path, PATH_CHARACTERS_MAX) }
    super(`cannot ${shown.method} ${shown.path}: use ${names}`, { ...shown, allowed: names })
    this.allowed = allowed
  }
}

/** A parameter of the query, or the id in the path, is not usable. */
export class BadParameterError extends CodedError {
  readonly code = 'HOMING_HTTP_BAD_PARAMETER'

  constructor(name: string, value: string, wanted: string) {
    const shown = { name: openName(name), value: openText(value) }
    super(`cannot use ${shown.name}=${shown.value}: ${wanted}`, shown)
  }
}

/** What the path names is not here. */
export class NotFoundError extends CodedError {
  readonly code = 'HOMING_HTTP_NOT_FOUND'

  constructor(what: string, id: string, hint: string) {
    const shown = shownText(id)
    super(`cannot find ${what} ${shown}: ${hint}`, { what, id: shown })
  }
}

/** A page of another site had a browser send the request, or may have. */
export class StrangePageError extends CodedError {
  readonly code = 'HOMING_HTTP_STRANGE_PAGE'

  /** `host`: a name that may be right, so that the message tells how it is made known. */
  constructor(method: string, path: string, why: string, host?: string) {
    const name = host === undefined ? undefined : shownText(host.replace(/:\d+$/, ''))
    const remedy =
      name === undefined
        ? 'call it without a browser, or from a page of its own'
        : `if it is a name of this service, start it with --host-name ${name}; otherwise call it by its address`
    super(`cannot ${shownText(method)} ${shownText(path)} for this caller: ${why}; ${remedy}`, {
      path: shownText(path),
    })
  }
}

/** The body is compressed in a way that is not known here. */
export class UnsupportedEncodingError extends CodedError {
  readonly code = 'HOMING_HTTP_UNSUPPORTED_ENCODING'
  readonly known: readonly string[]

  constructor(encoding: string, known: readonly string[]) {
    const shown = shownText(encoding)
    super(`cannot read a body with content-encoding ${shown}: use one of ${known.join(', ')}, or none`, {
      encoding: shown,
    })
    this.known = known
  }
}

/** The body grows more than any text does, long before it is too large. */
export class EncodingRatioError extends CodedError {
  readonly code = 'HOMING_HTTP_ENCODING_RATIO'

  constructor(encoding: string, timesMax: number) {
    super(
      `cannot decode the body: as ${encoding} it grows to more than ${timesMax} times its size; send it as it is`,
      { encoding, timesMax },
    )
  }
}

/** The body is not what its content-encoding says. */
export class MalformedEncodingError extends CodedError {
  readonly code = 'HOMING_HTTP_MALFORMED_ENCODING'

  constructor(encoding: string, cause: Error) {
    super(
      `cannot decode the body: it is not valid ${encoding}, as its content-encoding says: ${cause.message}`,
      { encoding, reason: cause.message },
      { cause },
    )
  }
}

/** The access log cannot be opened, or not anew. */
export class AccessLogError extends CodedError {
  readonly code = 'HOMING_HTTP_ACCESS_LOG'

  constructor(path: string, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    super(`cannot open the access log ${path}: ${reason}`, { path, reason }, { cause })
  }
}

/** Another actor refused the request: its code and words, and the field of the body that is at fault. */
export class RefusedError extends CodedError {
  readonly code: string
  readonly param: string | undefined

  constructor(record: ErrorRecord, param: string | undefined) {
    super(record.message, record.details)
    this.code = record.code
    this.param = param
  }
}

/** As many views are open as may be, or as many bytes of them wait for clients. */
export class ViewsBusyError extends CodedError {
  readonly code = 'HOMING_HTTP_VIEWS_BUSY'

  /** `what`: 'operator requests are open'. */
  constructor(what: string, max: number) {
    super(`cannot answer another request: ${max} ${what}; ask again in a second`, {
      max,
      retryAfterSeconds: 1,
    })
  }
}

/** As many dumps are made, and wait, as may be. */
export class DumpsBusyError extends CodedError {
  readonly code = 'HOMING_HTTP_DUMPS_BUSY'

  constructor() {
    super('cannot make another dump: one is made at a time, and the line for it is full; ask again later', {
      retryAfterSeconds: 10,
    })
  }
}

/** As many event streams are open as may be. */
export class StreamsBusyError extends CodedError {
  readonly code = 'HOMING_HTTP_STREAMS_BUSY'

  constructor(streamsMax: number) {
    super(`cannot open another tab of the page: ${streamsMax} are open (--page-tabs-max)`, { streamsMax })
  }
}
