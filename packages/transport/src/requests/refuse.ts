/** Answers to requests that a server does not take: it has no place for them, or their head is too large. */

import { HeadersTooLargeError } from '../errors.ts'
import type { HttpHeaders, ServedExchange } from '../http-types.ts'
import { HEADER_BYTES_MAX } from '../limits.ts'
import { FRAME, type FrameSink, headBytesOf, type OpenWord } from './frames.ts'

export interface Refusal {
  readonly status: number
  readonly headers: HttpHeaders
  readonly body: Uint8Array
}

/** `open`: 'N are open', as the client is told. */
export function fullRefusal(open: string): Refusal {
  return refusal(503, `cannot take another request: ${open}`, 'server_error')
}

/** Undefined: its head is not larger than that of a request over HTTP may be. */
export function headRefusal(open: OpenWord): Refusal | undefined {
  if (headBytesOf(open) <= HEADER_BYTES_MAX) return undefined
  const { status, message } = new HeadersTooLargeError()
  return refusal(status, message, 'invalid_request_error')
}

export function refuse(exchange: ServedExchange, { status, headers, body }: Refusal): void {
  exchange.writeHead(status, headers)
  exchange.end(body)
}

/** Without an exchange: nothing of the request is kept. Any window has room for the answer. */
export function refuseUnkept(sink: FrameSink, { status, headers, body }: Refusal): void {
  sink.put(FRAME.head, { status, headers })
  sink.put(FRAME.data, body)
  sink.put(FRAME.end, 0)
}

function refusal(status: number, message: string, type: string): Refusal {
  const body = Buffer.from(JSON.stringify({ error: { message, type, code: null } }))
  const headers = { 'content-type': 'application/json', 'content-length': String(body.length) }
  return { status, headers, body }
}
