/**
 * Answers of the service: whole ones, and one that is written as fast as the client reads it. Each function
 * returns the status.
 */

import type { ErrorRecord } from '@homing/base'
import { errorHeaders, sendAnswer, textAnswer } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { statusOf } from './error-answer.ts'
import { wideJson } from './wide-json.ts'

const JSON_TYPE = 'application/json'
const utf8 = new TextEncoder()

/** Bigints are written as numbers. */
export function sendJson(
  exchange: HttpExchange,
  status: number,
  value: unknown,
  headers: Readonly<Record<string, string>> = {},
): number {
  const answer = textAnswer(status, `${wideJson(value)}\n`, { ...headers, 'content-type': JSON_TYPE })
  return sendAnswer(exchange, answer)
}

/** What was thrown, as the client is told it. */
export function sendError(exchange: HttpExchange, thrown: unknown, record: ErrorRecord): number {
  const body = { error: record.message, code: record.code }
  return sendJson(exchange, statusOf(record), body, errorHeaders(thrown))
}

/**
 * JSON in pieces; the next one is made when the client has taken those before. Cut when a piece cannot be
 * made.
 */
export async function streamJson(exchange: HttpExchange, pieces: AsyncIterable<string>): Promise<number> {
  let isBegun = false
  try {
    for await (const piece of pieces) {
      if (exchange.isClosed) return 200
      if (!isBegun) exchange.writeHead(200, { 'content-type': JSON_TYPE })
      isBegun = true
      if (!exchange.write(utf8.encode(piece))) await drained(exchange)
    }
  } catch (thrown) {
    if (!isBegun) throw thrown
    // A short answer would look whole to a client that does not check.
    exchange.destroy()
    return 200
  }
  exchange.end()
  return 200
}

function drained(exchange: HttpExchange): Promise<void> {
  return new Promise(resolve => {
    exchange.onDrain(resolve)
    exchange.onClientGone(() => resolve())
  })
}
