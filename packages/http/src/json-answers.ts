/** Whole answers of a service whose JSON has 64-bit numbers. Each function returns the status. */

import type { ErrorRecord } from '@homing/base'
import { shownJson, wideJson } from '@homing/base'
import type { HttpExchange } from '@homing/transport'
import { errorHeaders, sendAnswer, textAnswer } from './answers.ts'
import type { ViewPlace } from './view-room.ts'

const JSON_TYPE = 'application/json'

/** Bigints are written as numbers. Throws ViewsBusyError if `place` has no room for the answer. */
export function sendJson(
  exchange: HttpExchange,
  status: number,
  value: unknown,
  headers: Readonly<Record<string, string>> = {},
  place?: ViewPlace,
): number {
  const answer = textAnswer(status, `${shownJson(wideJson(value))}\n`, {
    ...headers,
    'content-type': JSON_TYPE,
  })
  place?.take(answer.body.length)
  return sendAnswer(exchange, answer)
}

/** What was thrown, as the client is told it: `{"error": sentence, "code": code}`. */
export function sendError(
  exchange: HttpExchange,
  thrown: unknown,
  record: ErrorRecord,
  status: number,
): number {
  const body = { error: record.message, code: record.code }
  const { retryAfterSeconds } = record.details
  const later = typeof retryAfterSeconds === 'number' ? { 'retry-after': String(retryAfterSeconds) } : {}
  return sendJson(exchange, status, body, { ...errorHeaders(thrown), ...later })
}

/** Statuses of what any such service may throw; services add those of their own. */
export const COMMON_STATUSES: Readonly<Record<string, number>> = {
  HOMING_TRANSPORT_ENDPOINT: 400,
  HOMING_TRANSPORT_MALFORMED_HTTP: 400,
  HOMING_HTTP_MALFORMED_ENCODING: 400,
  HOMING_HTTP_STRANGE_PAGE: 403,
  HOMING_HTTP_NO_SUCH_ROUTE: 404,
  HOMING_HTTP_METHOD_NOT_ALLOWED: 405,
  HOMING_TRANSPORT_BODY_TIMEOUT: 408,
  HOMING_TRANSPORT_BODY_TOO_SLOW: 408,
  HOMING_TRANSPORT_BODY_TOO_LARGE: 413,
  HOMING_HTTP_ENCODING_RATIO: 413,
  HOMING_HTTP_UNSUPPORTED_ENCODING: 415,
  HOMING_HTTP_VIEWS_BUSY: 503,
  HOMING_HTTP_DUMPS_BUSY: 503,
  HOMING_FLEET_DUMP_ENDED: 503,
  HOMING_ACTOR_SYSTEM_STOPPED: 503,
  // An actor is restarting or overloaded: the same request may succeed soon.
  HOMING_ACTOR_ASK_TIMEOUT: 503,
  HOMING_ACTOR_ASK_REFUSED: 503,
  HOMING_ACTOR_TERMINATED: 503,
  HOMING_ACTOR_THREAD_DOWN: 503,
}
