/** Which headers of a request go to the server. */

import type { HttpHeaders } from './types.ts'

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

/** The headers that are sent as they are given. */
export function endToEndHeaders(headers: HttpHeaders = {}): Record<string, string | string[]> {
  const kept: Record<string, string | string[]> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || HOP_HEADERS.has(name.toLowerCase())) continue
    kept[name] = typeof value === 'string' ? value : [...value]
  }
  return kept
}
