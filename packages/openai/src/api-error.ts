/**
 * Errors as clients of the OpenAI API expect them: one table from the kind of an error to status,
 * type, code and the headers that steer a client's own retries.
 *
 * Client libraries repeat 408, 409, 429 and everything from 500 on unless told otherwise. `x-should-retry:
 * false` tells them not to, when the router has used up its own attempts or the request may have run already:
 * three attempts of a client times those of the router turn one bad request into a storm. 503 comes with
 * `retry-after`.
 */

import { parseJson } from '@homing/base'
import type { ApiError, ApiErrorKind } from './types.ts'

interface KindRow {
  readonly status: number
  readonly type: string
  readonly code: string
  readonly retry?: 'later' | 'never'
}

const KINDS: Readonly<Record<ApiErrorKind, KindRow>> = {
  malformed_http: { status: 400, type: 'BadRequestError', code: 'malformed_http' },
  headers_timeout: { status: 408, type: 'RequestTimeoutError', code: 'headers_timeout' },
  expectation_failed: { status: 417, type: 'ExpectationFailedError', code: 'expectation_failed' },
  headers_too_large: { status: 431, type: 'HeadersTooLargeError', code: 'headers_too_large' },
  malformed_json: { status: 400, type: 'BadRequestError', code: 'malformed_json' },
  malformed_encoding: { status: 400, type: 'BadRequestError', code: 'malformed_encoding' },
  invalid_value: { status: 400, type: 'BadRequestError', code: 'invalid_value' },
  empty_prompt: { status: 400, type: 'BadRequestError', code: 'empty_prompt' },
  pin_not_allowed: { status: 400, type: 'BadRequestError', code: 'pin_not_allowed' },
  unauthorized: { status: 401, type: 'AuthenticationError', code: 'unauthorized' },
  forbidden: { status: 403, type: 'PermissionDeniedError', code: 'forbidden' },
  route_not_found: { status: 404, type: 'NotFoundError', code: 'not_found' },
  model_not_found: { status: 404, type: 'NotFoundError', code: 'model_not_found' },
  method_not_allowed: { status: 405, type: 'MethodNotAllowedError', code: 'method_not_allowed' },
  body_timeout: { status: 408, type: 'RequestTimeoutError', code: 'body_timeout' },
  duplicate_request: { status: 409, type: 'ConflictError', code: 'duplicate_request', retry: 'never' },
  what_if_busy: { status: 409, type: 'ConflictError', code: 'what_if_busy', retry: 'never' },
  worker_conflict: { status: 409, type: 'ConflictError', code: 'worker_conflict', retry: 'never' },
  body_too_large: { status: 413, type: 'PayloadTooLargeError', code: 'body_too_large' },
  unsupported_encoding: { status: 415, type: 'UnsupportedMediaTypeError', code: 'unsupported_encoding' },
  rate_limited: { status: 429, type: 'RateLimitError', code: 'rate_limit_exceeded', retry: 'later' },
  overloaded: { status: 503, type: 'ServiceUnavailableError', code: 'overloaded', retry: 'later' },
  queue_full: { status: 503, type: 'ServiceUnavailableError', code: 'queue_full', retry: 'later' },
  class_limit: { status: 503, type: 'ServiceUnavailableError', code: 'class_limit', retry: 'later' },
  deadline: { status: 503, type: 'ServiceUnavailableError', code: 'deadline', retry: 'later' },
  do_not_queue: { status: 503, type: 'ServiceUnavailableError', code: 'do_not_queue', retry: 'later' },
  no_worker: { status: 503, type: 'ServiceUnavailableError', code: 'no_worker', retry: 'later' },
  shutting_down: { status: 503, type: 'ServiceUnavailableError', code: 'shutting_down', retry: 'later' },
  upstream_failed: { status: 502, type: 'BadGatewayError', code: 'upstream_failed', retry: 'never' },
  timeout: { status: 504, type: 'GatewayTimeoutError', code: 'timeout', retry: 'never' },
  internal_error: { status: 500, type: 'InternalServerError', code: 'internal_error', retry: 'never' },
}

const RETRY_AFTER_SECONDS_DEFAULT = 1

export interface ApiErrorOptions {
  /** The field that is wrong, as a path: 'nvext.dp_rank'. */
  readonly param?: string | undefined
  /** For the kinds that may be repeated later; whole seconds, default 1. */
  readonly retryAfterSeconds?: number
  /** Instead of the status of the kind: some fleets answer overload with 429 or 529. */
  readonly status?: number | undefined
}

/** The answer for an error of this kind. */
export function apiError(kind: ApiErrorKind, message: string, options: ApiErrorOptions = {}): ApiError {
  const { status, type, code, retry } = KINDS[kind]
  const headers: Record<string, string> = { 'content-type': 'application/json' }
  if (retry === 'later') {
    const seconds = options.retryAfterSeconds ?? RETRY_AFTER_SECONDS_DEFAULT
    headers['retry-after'] = String(Math.max(0, Math.ceil(seconds)))
  } else if (retry === 'never') {
    headers['x-should-retry'] = 'false'
  }
  // RFC 9110 §11.6.1.
  if (kind === 'unauthorized') headers['www-authenticate'] = 'Bearer'
  return {
    kind,
    status: options.status ?? status,
    message,
    type,
    param: options.param ?? null,
    code,
    headers,
  }
}

/** The body of the answer: `{"error":{"message","type","param","code"}}`. */
export function errorBody(error: ApiError, form: ErrorForm = 'completions'): Uint8Array {
  return Buffer.from(errorText(error, form))
}

/**
 * The same as a server-sent event, for an answer whose status has been sent: `data: {"error": …}` and an
 * empty line.
 */
export function errorEvent(error: ApiError, form: ErrorForm = 'completions'): Uint8Array {
  if (form === 'completions') return Buffer.from(`data: ${errorText(error, form)}\n\n`)
  const { message, param, code } = error
  const text =
    form === 'messages' ? errorText(error, form) : JSON.stringify({ type: 'error', code, message, param })
  return Buffer.from(`event: error\ndata: ${text}\n\n`)
}

/**
 * An engine's whole answer as an event, for a client that has been promised a stream: its error in the form
 * of the route, or the answer itself.
 */
export function answerEvent(status: number, body: Uint8Array, form: ErrorForm = 'completions'): Uint8Array {
  const text = Buffer.from(body.buffer, body.byteOffset, body.length).toString()
  const answer = tryObject(text)
  if (status < 400) return Buffer.from(dataEvent(answer === undefined ? text : JSON.stringify(answer)))
  // Older engines have the members of the error at the top level.
  const said = tryObject(answer?.['error']) ?? answer ?? { message: text.trim() }
  const { message = `the engine answered ${status}`, param = null } = said
  const code = said['code'] ?? status
  if (form === 'responses')
    return Buffer.from(`event: error\n${dataEvent(JSON.stringify({ type: 'error', code, message, param }))}`)
  const type = said['type'] ?? (form === 'messages' ? messagesType(status) : 'engine_error')
  const error = { ...said, message, type }
  return form === 'messages'
    ? Buffer.from(`event: error\n${dataEvent(JSON.stringify({ type: 'error', error }))}`)
    : Buffer.from(dataEvent(JSON.stringify({ error: { ...error, param, code } })))
}

function dataEvent(text: string): string {
  const lines = text.split(/\r\n|\r|\n/).map(line => `data: ${line}\n`)
  return `${lines.join('')}\n`
}

/** `given`: a value, or the JSON text of one. */
function tryObject(given: unknown): Readonly<Record<string, unknown>> | undefined {
  let value = given
  try {
    if (typeof given === 'string') value = parseJson(given)
  } catch {
    return undefined
  }
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : undefined
}

/**
 * The form of an error that clients of a route expect: OpenAI's, the one in the stream of a response, which
 * has its own type, or Anthropic's.
 */
export type ErrorForm = 'completions' | 'responses' | 'messages'

/** Anthropic's types, by status. */
const MESSAGES_TYPES: ReadonlyMap<number, string> = new Map([
  [400, 'invalid_request_error'],
  [401, 'authentication_error'],
  [403, 'permission_error'],
  [404, 'not_found_error'],
  [413, 'request_too_large'],
  [429, 'rate_limit_error'],
  [503, 'overloaded_error'],
  [504, 'timeout_error'],
  [529, 'overloaded_error'],
])

function errorText({ status, message, type, param, code }: ApiError, form: ErrorForm): string {
  if (form !== 'messages') return JSON.stringify({ error: { message, type, param, code } })
  return JSON.stringify({ type: 'error', error: { type: messagesType(status), message } })
}

function messagesType(status: number): string {
  return MESSAGES_TYPES.get(status) ?? (status < 500 ? 'invalid_request_error' : 'api_error')
}
