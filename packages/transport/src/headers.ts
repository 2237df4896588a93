/** Which headers of a request go to the server. */

import type { HttpAccess, HttpHeaders } from './types.ts'

/** Headers that speak about one connection, not about the request; the client writes its own. */
const HOP_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
])

/** Headers that a client shows who it is with. */
const KEYS: ReadonlySet<string> = new Set(['authorization', 'x-api-key', 'api-key'])

type SentHeaders = Record<string, string | string[]>

/** The headers that are sent as they are given. */
export function endToEndHeaders(headers: HttpHeaders = {}): Record<string, string | string[]> {
  const kept: Record<string, string | string[]> = {}
  for (const name in headers) {
    const value = headers[name]
    if (value === undefined || HOP_HEADERS.has(name.toLowerCase())) continue
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
