/** Reading a request and sending a whole answer, as every route of the engine does. */

import type { HttpExchange } from '@homing/transport'

/** Bodies up to 256 MiB are read. */
export const BODY_BYTES_MAX = 268_435_456

/** The first value of a header; `name` in lower case. */
export function headerOf(exchange: HttpExchange, name: string): string | undefined {
  const value = exchange.headers[name]
  return typeof value === 'string' ? value : value?.[0]
}

export function sendJson(exchange: HttpExchange, status: number, value: unknown): void {
  sendBytes(exchange, status, new TextEncoder().encode(JSON.stringify(value)))
}

/** A whole answer; nothing when the client has gone. `bytes` must not be changed afterwards. */
export function sendBytes(
  exchange: HttpExchange,
  status: number,
  bytes: Uint8Array,
  contentType = 'application/json',
): void {
  if (exchange.isClosed) return
  exchange.writeHead(status, { 'content-type': contentType, 'content-length': String(bytes.length) })
  exchange.end(bytes)
}
