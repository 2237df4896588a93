/**
 * Admin access: who may change something at run time.
 *
 *   the key of --admin-key-file, as `authorization: Bearer KEY`    ─▶ yes, from anywhere
 *   a peer on this machine that speaks for itself                   ─▶ yes
 *   all others                                                      ─▶ 403
 *
 * A proxy on this machine speaks for others (it says so in `x-forwarded-for` or `forwarded`), and so does a
 * browser that shows a page of another site (`origin`): both need the key. A proxy that says nothing cannot
 * be told from a local client, so where one stands in front, use --admin-port and keep that port to yourself.
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
 * The live part of the page. With a key, whoever sends it; without one, this machine. Throws
 * PageForbiddenError. The name by which a page was called must be one of this machine, too: a name of
 * somebody else that leads here is how another site's page would look in.
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
  // Digests have one length, so the time says nothing of the key, its length included.
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
