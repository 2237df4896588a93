/**
 * Admin access: which clients may change the router at run time.
 *
 *   the key of --admin-key-file, as `authorization: Bearer KEY`    ─▶ yes, from anywhere
 *   a peer on this machine that speaks for itself                   ─▶ yes
 *   all others                                                      ─▶ 403
 *
 * A proxy on this machine may relay for other clients (with `x-forwarded-for` or `forwarded`), and a browser
 * may show a page of another site (`origin`): both need the key. A proxy without these headers looks like a
 * local client. So behind a proxy, use --admin-port and do not expose that port.
 */

import { createHash, timingSafeEqual } from 'node:crypto'
import { AdminForbiddenError, PageForbiddenError } from './errors.ts'
import type { OperatorRequest } from './messages.ts'

const SPEAKS_FOR_OTHERS = ['forwarded', 'x-forwarded-for', 'x-real-ip'] as const

/** Throws AdminForbiddenError. `adminKey` undefined: there is none. */
export function assertMayChange(request: OperatorRequest, adminKey: string | undefined): void {
  if (adminKey !== undefined && hasKey(request, adminKey)) return
  if (isLoopback(request.peerAddress) && speaksForItself(request)) return
  throw new AdminForbiddenError(request.method, request.path, adminKey !== undefined)
}

/**
 * Access to the live part of the page: if there is a key, clients that send it; otherwise, clients on this
 * machine. Throws PageForbiddenError. Without a key, the host name of the request must also be one of this
 * machine: otherwise another site could read the page through its own name for this address.
 */
export function assertMayLook(request: OperatorRequest, adminKey: string | undefined): void {
  if (adminKey !== undefined) {
    if (hasKey(request, adminKey)) return
    throw new PageForbiddenError(true)
  }
  const { host } = request.headers
  const name = typeof host === 'string' ? URL.parse(`http://${host}`)?.hostname : undefined
  const isOwnName = name === undefined || name === 'localhost' || name === '[::1]' || isLoopback(name)
  if (isLoopback(request.peerAddress) && speaksForItself(request) && isOwnName) return
  throw new PageForbiddenError(false)
}

function hasKey({ headers }: OperatorRequest, adminKey: string): boolean {
  const { authorization } = headers
  if (typeof authorization !== 'string') return false
  const given = /^bearer +(\S+) *$/i.exec(authorization)?.[1]
  // Digests have one length, so the time does not depend on the key or its length.
  return given !== undefined && timingSafeEqual(digest(given), digest(adminKey))
}

function speaksForItself({ headers }: OperatorRequest): boolean {
  if (SPEAKS_FOR_OTHERS.some(name => headers[name] !== undefined)) return false
  const { origin, host } = headers
  return origin === undefined || (typeof origin === 'string' && URL.parse(origin)?.host === host)
}

function isLoopback(address: string): boolean {
  const plain = address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address
  return plain === '::1' || /^127(\.\d{1,3}){3}$/.test(plain)
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
