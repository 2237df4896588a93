/** One table from error codes to the errors that clients of the OpenAI API get. */

import type { ErrorRecord } from '@homing/base'
import { type ApiError, type ApiErrorKind, apiError } from '@homing/openai'

/** Codes that are not here are internal errors (500). */
export const KIND_OF_CODE: Readonly<Record<string, ApiErrorKind>> = {
  HOMING_ROUTER_MODEL_NOT_FOUND: 'model_not_found',
  HOMING_ROUTER_MODEL_NOT_LISTED_YET: 'no_worker',
  HOMING_ROUTER_NO_WORKER: 'no_worker',
  HOMING_ROUTER_PINNED_WORKER: 'invalid_value',
  HOMING_ROUTER_PIN_NOT_ALLOWED: 'pin_not_allowed',
  HOMING_ROUTER_WORKER_NOT_NAMED: 'invalid_value',
  HOMING_ROUTER_ALL_FILTERED: 'no_worker',
  HOMING_ROUTER_ALL_BUSY: 'overloaded',
  HOMING_ROUTER_TOO_MANY_REQUESTS: 'overloaded',
  HOMING_QUEUE_FULL: 'queue_full',
  HOMING_QUEUE_CLASS_LIMIT: 'class_limit',
  HOMING_QUEUE_DEADLINE: 'deadline',
  HOMING_QUEUE_DO_NOT_QUEUE: 'do_not_queue',
  HOMING_QUEUE_DUPLICATE: 'overloaded',
  HOMING_QUEUE_CANCELLED: 'overloaded',
  HOMING_DISPATCH_UPSTREAM_FAILED: 'upstream_failed',
  HOMING_DISPATCH_NO_ANSWER: 'timeout',
  HOMING_GATEWAY_DEADLY_PROMPT: 'upstream_failed',
  HOMING_DISPATCH_NO_SOCKET: 'overloaded',
  HOMING_GATEWAY_TOO_MANY_EXCHANGES: 'overloaded',
  HOMING_GATEWAY_MADE_ROOM: 'queue_full',
  HOMING_GATEWAY_NO_BODY_ROOM: 'overloaded',
  HOMING_WORKER_NO_BODY_ROOM: 'overloaded',
  HOMING_GATEWAY_RESTARTED: 'upstream_failed',
  HOMING_GATEWAY_ORIGIN_NOT_ALLOWED: 'forbidden',
  HOMING_GATEWAY_SHUTTING_DOWN: 'shutting_down',
  HOMING_CONSOLE_BUSY: 'overloaded',
  HOMING_CONSOLE_DIAGNOSES_BUSY: 'overloaded',
  HOMING_CONSOLE_FORBIDDEN: 'forbidden',
  HOMING_CONSOLE_PAGE_FORBIDDEN: 'forbidden',
  HOMING_WHAT_IF_BUSY: 'what_if_busy',
  HOMING_DIRECTORY_INVALID_WORKER: 'invalid_value',
  HOMING_DIRECTORY_WORKER_CONFLICT: 'worker_conflict',
  HOMING_HTTP_NO_SUCH_ROUTE: 'route_not_found',
  HOMING_HTTP_STRANGE_PAGE: 'forbidden',
  HOMING_HTTP_STREAMS_BUSY: 'overloaded',
  HOMING_HTTP_VIEWS_BUSY: 'overloaded',
  HOMING_HTTP_DUMPS_BUSY: 'overloaded',
  HOMING_CONSOLE_ROUTES_BUSY: 'overloaded',
  HOMING_FLEET_DUMP_ENDED: 'overloaded',
  HOMING_CONSOLE_DUMP_CUT: 'overloaded',
  HOMING_HTTP_NOT_FOUND: 'route_not_found',
  HOMING_HTTP_METHOD_NOT_ALLOWED: 'method_not_allowed',
  HOMING_HTTP_UNSUPPORTED_ENCODING: 'unsupported_encoding',
  HOMING_HTTP_MALFORMED_ENCODING: 'malformed_encoding',
  HOMING_HTTP_ENCODING_RATIO: 'body_too_large',
  HOMING_HTTP_BAD_PARAMETER: 'invalid_value',
  HOMING_TRANSPORT_BODY_TOO_LARGE: 'body_too_large',
  HOMING_TRANSPORT_BODY_TIMEOUT: 'body_timeout',
  HOMING_TRANSPORT_MALFORMED_HTTP: 'malformed_http',
  HOMING_TRANSPORT_HEADERS_TOO_LARGE: 'headers_too_large',
  HOMING_TRANSPORT_HEADERS_TIMEOUT: 'headers_timeout',
  HOMING_TRANSPORT_PIPELINED: 'overloaded',
  HOMING_TRANSPORT_EXPECTATION: 'expectation_failed',
  HOMING_OPENAI_MALFORMED_JSON: 'malformed_json',
  HOMING_OPENAI_INVALID_REQUEST: 'invalid_value',
  HOMING_OPENAI_EMPTY_PROMPT: 'empty_prompt',
  HOMING_TOKENIZER_OVERLOADED: 'overloaded',
  HOMING_TOKENIZER_NO_THREAD: 'overloaded',
  HOMING_ACTOR_SYSTEM_STOPPED: 'shutting_down',
  // An actor that the request needs is restarting or overloaded: the same request may succeed soon.
  HOMING_ACTOR_ASK_TIMEOUT: 'timeout',
  HOMING_ACTOR_ASK_REFUSED: 'overloaded',
  HOMING_ACTOR_TERMINATED: 'no_worker',
  HOMING_ACTOR_THREAD_DOWN: 'no_worker',
}

/** The OpenAI form of an error; a code that is not in the table is an internal error (500). */
export function apiErrorOf(error: ErrorRecord, param?: string): ApiError {
  const kind = KIND_OF_CODE[error.code] ?? 'internal_error'
  const { retryAfterSeconds, overloadStatus } = error.details
  return apiError(kind, error.message, {
    ...(param === undefined ? {} : { param }),
    ...(typeof retryAfterSeconds === 'number' ? { retryAfterSeconds } : {}),
    ...(typeof overloadStatus === 'number' ? { status: overloadStatus } : {}),
  })
}
