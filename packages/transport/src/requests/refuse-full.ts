/** The answer to a request that a server has no place for. */

import type { ServedExchange } from '../types.ts'

export function refuseFull(exchange: ServedExchange, callsMax: number): void {
  const message = `cannot take another request: ${callsMax} are open`
  const body = Buffer.from(JSON.stringify({ error: { message, type: 'server_error', code: null } }))
  exchange.writeHead(503, { 'content-type': 'application/json', 'content-length': String(body.length) })
  exchange.end(body)
}
