/** Which headers of a request go to the server. */

import { CONNECTION_HEADERS } from './connection-headers.ts'
import type { HttpAccess, HttpHeaders } from './http-types.ts'

/**
 * Those of the connection, and what the client writes itself. No setting names headers of a call, so none
 * that an operator gave is left out: those of OTEL_EXPORTER_OTLP_HEADERS go by the library that reads them.
 */
const NOT_SENT: ReadonlySet<string> = new Set([...CONNECTION_HEADERS, 'content-length', 'expect'])

/** Headers that a client shows who it is with. */
const KEYS: ReadonlySet<string> = new Set(['authorization', 'x-api-key', 'api-key'])

type SentHeaders = Record<string, string | string[]>

/** The headers that are sent as they are given. */
export function endToEndHeaders(headers: HttpHeaders = {}): Record<string, string | string[]> {
  const kept: Record<string, string | string[]> = {}
  for (const name in headers) {
    const value = headers[name]
    if (value === undefined || NOT_SENT.has(name.toLowerCase())) continue
    kept[name] = typeof value === 'string' ? value : [...value]
  }
  return kept
}

/** With the key of the origin in place of the client's. */
export function withAccess(headers: SentHeaders, access: HttpAccess | undefined): SentHeaders {
  if (access === undefined) return headers
  const carried: SentHeaders = {}
  for (const name in headers) {
    if (!KEYS.has(name.toLowerCase())) carried[name] = headers[name]!
  }
  if (access.key !== undefined) carried['authorization'] = `Bearer ${access.key}`
  return carried
}
