/**
 * Admin access: which clients may change the router at run time, and see the live part of the page.
 *
 *   the key of --admin-key-file, as `authorization: Bearer KEY`    ─▶ yes, from anywhere
 *   a program or a page of this machine itself (`isFromHere`)       ─▶ yes
 *   all others                                                      ─▶ 403
 *
 * A proxy on this machine that adds no header and asks for a loopback address looks like a local client. So
 * behind a proxy, use --admin-port and do not expose that port.
 */

import { createHash, timingSafeEqual } from 'node:crypto'
import { assertNoStrangePage, type HostNames, isFromHere } from '@homing/http'
import { AdminForbiddenError, PageForbiddenError } from './errors.ts'
import type { OperatorRequest } from './messages.ts'

/** What a console knows of its operators. */
export interface Access {
  /** Undefined: there is none. */
  readonly adminKey: string | undefined
  readonly names: HostNames
}

/** Throws AdminForbiddenError. */
export function assertMayChange(request: OperatorRequest, access: Access): void {
  if (hasKey(request, access) || isFromHere(request, access.names)) return
  throw new AdminForbiddenError(request.method, request.path, access.adminKey !== undefined)
}

/**
 * Access to the live part of the page: if there is a key, clients that send it; otherwise, clients on this
 * machine. Throws PageForbiddenError.
 */
export function assertMayLook(request: OperatorRequest, access: Access): void {
  if (access.adminKey === undefined ? isFromHere(request, access.names) : hasKey(request, access)) return
  throw new PageForbiddenError(access.adminKey !== undefined)
}

/** Views are open to programs and to pages of the router itself. Throws StrangePageError. */
export function assertMayRead(request: OperatorRequest, access: Access): void {
  if (!hasKey(request, access)) assertNoStrangePage(request, access.names)
}

function hasKey({ headers }: OperatorRequest, { adminKey }: Access): boolean {
  const { authorization } = headers
  if (adminKey === undefined || typeof authorization !== 'string') return false
  const given = /^bearer +(\S+) *$/i.exec(authorization)?.[1]
  // Digests have one length, so the time does not depend on the key or its length.
  return given !== undefined && timingSafeEqual(digest(given), digest(adminKey))
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
