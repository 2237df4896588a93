/**
 * Waiting hints: how a request wants to wait for room, by its headers and its body.
 *
 *   x-homing-tenant, else x-tenant-id                         the tenant whose share it counts against
 *   x-homing-policy-class, else x-dynamo-meta-policy-class    its policy class
 *   x-homing-queue-timeout-ms                                 refused if it still waits after this time
 *   x-homing-do-not-queue: true                               refused instead of waiting
 *
 * Hints that put a request before those of others, or change what it counts as load, count for trusted
 * tenants only. The others harm at most the request itself, or are bounded by the shares of policy classes.
 */

import type { WaitingHints } from '@homing/actors/queue'
import { InvalidRequestError, type PriorityHints } from '@homing/openai'
import type { HttpHeaders } from '@homing/transport'

/** Longer keys are cut to this length. */
const TENANT_CHARACTERS_MAX = 256
const TIMEOUT = 'x-homing-queue-timeout-ms'
const DO_NOT_QUEUE = 'x-homing-do-not-queue'

/** Throws InvalidRequestError. */
export function waitingHints(
  headers: HttpHeaders,
  priority: PriorityHints | undefined,
  bytes: number,
): WaitingHints {
  const timeout = text(headers, TIMEOUT)
  const deadlineMs = timeout === undefined ? undefined : Number(timeout)
  if (timeout !== undefined && !/^\d{1,9}$/.test(timeout))
    throw new InvalidRequestError(TIMEOUT, timeout, 'whole milliseconds from 0 to 999999999')
  const doNotQueue = text(headers, DO_NOT_QUEUE)
  if (doNotQueue !== undefined && doNotQueue !== 'true' && doNotQueue !== 'false')
    throw new InvalidRequestError(DO_NOT_QUEUE, doNotQueue, 'true or false')
  return {
    tenant: tenantOf(headers),
    policyClass: text(headers, 'x-homing-policy-class') ?? text(headers, 'x-dynamo-meta-policy-class'),
    priorityJumpSeconds: priority?.jumpSeconds ?? 0,
    strictPriority: priority?.strict ?? 0,
    doNotQueue: doNotQueue === 'true',
    deadlineMs,
    bytes,
  }
}

/** The client's name for its tenant; '' where it gives none. */
export function tenantOf(headers: HttpHeaders): string {
  const given = text(headers, 'x-homing-tenant') ?? text(headers, 'x-tenant-id') ?? ''
  return given.slice(0, TENANT_CHARACTERS_MAX)
}

function text(headers: HttpHeaders, name: string): string | undefined {
  const value = headers[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}
