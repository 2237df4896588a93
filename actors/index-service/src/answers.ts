/** Whole answers of the service. Each function returns the status. */

import type { ErrorRecord } from '@homing/base'
import { wideJson } from '@homing/base'
import { errorHeaders, sendAnswer, textAnswer, type ViewPlace } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { statusOf } from './error-answer.ts'

const JSON_TYPE = 'application/json'

/** Bigints are written as numbers. Throws ViewsBusyError if `place` has no room for the answer. */
export function sendJson(
  exchange: HttpExchange,
  status: number,
  value: unknown,
  headers: Readonly<Record<string, string>> = {},
  place?: ViewPlace,
): number {
  const answer = textAnswer(status, `${wideJson(value)}\n`, { ...headers, 'content-type': JSON_TYPE })
  place?.take(answer.body.length)
  return sendAnswer(exchange, answer)
}

/** What was thrown, as the client is told it. */
export function sendError(exchange: HttpExchange, thrown: unknown, record: ErrorRecord): number {
  const body = { error: record.message, code: record.code }
  const { retryAfterSeconds } = record.details
  const later = typeof retryAfterSeconds === 'number' ? { 'retry-after': String(retryAfterSeconds) } : {}
  return sendJson(exchange, statusOf(record), body, { ...errorHeaders(thrown), ...later })
}
