/**
 * Admin access: which clients may change the router at run time, look at it, and see the live part of the
 * page. With --admin-keys-file:
 *
 *   no key, or one that is in no entry      ─▶ 401, from wherever, for all but the files of the page
 *   key of a reader                         ─▶ sees everything; 403 for what changes something
 *   key of an operator                      ─▶ everything
 *
 * Without that file views are open to programs and pages of the router itself, and changes go by this:
 *
 *   the key of --admin-key-file, as `authorization: Bearer KEY`    ─▶ yes, from anywhere
 *   a program or a page of this machine itself (`isFromHere`)       ─▶ yes
 *   all others                                                      ─▶ 403
 *
 * A proxy on this machine that adds no header and asks for a loopback address looks like a local client. So
 * behind a proxy, use --admin-port and do not expose that port, or give keys with roles.
 */

import { createHash, timingSafeEqual } from 'node:crypto'
import {
  type AdminKey,
  type AdminKeys,
  assertNoStrangePage,
  bearerOf,
  type HostNames,
  isFromHere,
} from '@homing/http'
import {
  AdminForbiddenError,
  AdminKeyMissingError,
  AdminKeyUnknownError,
  AdminRoleError,
  PageForbiddenError,
} from './errors.ts'
import type { OperatorRequest } from './messages.ts'

/** Why a request for operators was refused for its key. */
export type AdminKeyRefusal = 'missing' | 'unknown' | 'role'

/** What a console knows of its operators. */
export interface Access {
  /** Undefined: there is none. */
  readonly adminKey: string | undefined
  /** The keys with roles, as they count now; undefined: there are none, and never will be. */
  readonly keys: () => AdminKeys | undefined
  readonly names: HostNames
  /** Counts what the keys with roles do not allow. */
  readonly refused: (reason: AdminKeyRefusal) => void
}

/**
 * Answers the name of the key that may; undefined: it has no name. Throws AdminForbiddenError,
 * AdminKeyMissingError, AdminKeyUnknownError or AdminRoleError.
 */
export function assertMayChange(request: OperatorRequest, access: Access): string | undefined {
  const keys = access.keys()
  if (keys !== undefined) {
    const { name, role } = keyOf(request, keys, access)
    if (role === 'operator') return name
    access.refused('role')
    throw new AdminRoleError(request.method, request.path, name, role)
  }
  if (hasKey(request, access) || isFromHere(request, access.names)) return undefined
  throw new AdminForbiddenError(request.method, request.path, access.adminKey !== undefined)
}

/**
 * Access to the live part of the page: with keys, clients that send one; otherwise, clients on this machine.
 * Throws PageForbiddenError, AdminKeyMissingError or AdminKeyUnknownError.
 */
export function assertMayLook(request: OperatorRequest, access: Access): void {
  const keys = access.keys()
  if (keys !== undefined) return void keyOf(request, keys, access)
  if (access.adminKey === undefined ? isFromHere(request, access.names) : hasKey(request, access)) return
  throw new PageForbiddenError(access.adminKey !== undefined)
}

/**
 * With keys that have roles, views are for any of them; otherwise they are open to programs and to pages of
 * the router itself. Throws StrangePageError, AdminKeyMissingError or AdminKeyUnknownError.
 */
export function assertMayRead(request: OperatorRequest, access: Access): void {
  const keys = access.keys()
  if (keys !== undefined) keyOf(request, keys, access)
  else if (!hasKey(request, access)) assertNoStrangePage(request, access.names)
}

function keyOf({ method, path, headers }: OperatorRequest, keys: AdminKeys, { refused }: Access): AdminKey {
  const shown = bearerOf(headers)
  if (shown === undefined) {
    refused('missing')
    throw new AdminKeyMissingError(method, path)
  }
  const key = keys.find(shown)
  if (key !== undefined) return key
  refused('unknown')
  throw new AdminKeyUnknownError(method, path)
}

function hasKey({ headers }: OperatorRequest, { adminKey }: Access): boolean {
  const given = bearerOf(headers)
  // Digests have one length, so the time does not depend on the key or its length.
  return adminKey !== undefined && given !== undefined && timingSafeEqual(digest(given), digest(adminKey))
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
