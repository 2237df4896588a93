/**
 * Connection headers: those that speak of one connection (RFC 9110 §7.6.1). What passes a message on leaves
 * them out. This is the only list of them: a sender that leaves out more adds that to it, with the reason.
 */

import type { HttpHeaders } from './http-types.ts'

/** In lower case. Those of a proxy's sign-in are for the next hop only. */
export const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/**
 * The headers that go on with the message: neither those of its connection, nor those that its header
 * `connection` names, nor those that `isLeftOut` takes. Names are in lower case.
 */
export function passedOn(
  headers: HttpHeaders,
  isLeftOut: (name: string) => boolean,
): Record<string, string | readonly string[] | undefined> {
  const { connection } = headers
  const named =
    connection === undefined
      ? []
      : String(connection)
          .toLowerCase()
          .split(/[\s,]+/)
  const passed: Record<string, string | readonly string[] | undefined> = {}
  for (const name in headers)
    if (!CONNECTION_HEADERS.has(name) && !named.includes(name) && !isLeftOut(name))
      passed[name] = headers[name]
  return passed
}
