/** Whole answers of the gateway's own routes. */

import type { HttpExchange } from '@homing/transport'

/** JSON, readable: two spaces, a newline at the end. */
export function sendJson(exchange: HttpExchange, status: number, value: unknown): void {
  sendText(exchange, status, `${JSON.stringify(value, null, 2)}\n`, 'application/json')
}

export function sendText(exchange: HttpExchange, status: number, text: string, contentType: string): void {
  const bytes = new TextEncoder().encode(text)
  exchange.writeHead(status, { 'content-type': contentType, 'content-length': String(bytes.length) })
  exchange.end(bytes)
}
