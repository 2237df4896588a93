/** Upstream headers: which of the client's headers reach the worker, and which the router adds. */

import type { Decision } from '@homing/placement'
import { type HttpHeaders, passedOn } from '@homing/transport'

/** Besides those of the client's connection. */
const NOT_FORWARDED: ReadonlySet<string> = new Set([
  // The client call sets these itself.
  'content-length',
  'expect',
  'host',
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
  const forwarded = passedOn(headers, name => NOT_FORWARDED.has(name) || name.startsWith('x-homing-'))
  forwarded['x-request-id'] = attempt === 1 ? requestId : `${requestId}-${attempt}`
  if (decision.pinRank) forwarded['x-data-parallel-rank'] = String(decision.dpRank)
  return forwarded
}
