/** Upstream headers: which of the client's headers reach the worker, and which the router adds. */

import type { Decision } from '@homing/placement'
import type { HttpHeaders } from '@homing/transport'

/** Headers that belong to one connection, or that the client call sets itself (RFC 9110 §7.6.1). */
const NOT_FORWARDED: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  // Compressed answers could not be read for usage, and save nothing inside a data centre.
  'accept-encoding',
  // The router sets these itself.
  'x-data-parallel-rank',
])

/**
 * Headers for one attempt. An engine may refuse a request id that it still works on, so every
 * attempt after the first carries its own.
 */
export function upstreamHeaders(
  headers: HttpHeaders,
  decision: Decision,
  requestId: string,
  attempt: number,
): HttpHeaders {
  const forwarded: Record<string, string | readonly string[] | undefined> = {}
  const ofConnection = connectionHeaders(headers)
  for (const name in headers) {
    const isForwarded =
      !NOT_FORWARDED.has(name) && !ofConnection.includes(name) && !name.startsWith('x-homing-')
    if (isForwarded) forwarded[name] = headers[name]
  }
  forwarded['x-request-id'] = attempt === 1 ? requestId : `${requestId}-${attempt}`
  if (decision.pinRank) forwarded['x-data-parallel-rank'] = String(decision.dpRank)
  return forwarded
}

/** Headers that are of one connection because its header `connection` names them. */
export function connectionHeaders({ connection }: HttpHeaders): readonly string[] {
  if (connection === undefined) return []
  return String(connection)
    .toLowerCase()
    .split(/[\s,]+/)
}
