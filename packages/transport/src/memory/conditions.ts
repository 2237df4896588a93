/** Conditions of a network in memory: its clock, its latency, and its faults. */

import type { Clock } from '@homing/base'
import type { HttpRequest } from '../http-types.ts'
import type { Frames } from '../message-types.ts'

/**
 * `no-socket`: the caller's machine has none left. `full`: the connection has as many calls as it takes.
 * `stale`: the connection was closed for idleness while the request was written; nothing is answered.
 * `stall-body`: the head of the request arrives, its body never does.
 */
export type HttpFate =
  | 'deliver'
  | 'no-socket'
  | 'full'
  | 'refuse'
  | 'stale'
  | 'stall-body'
  | { readonly delayMs: number }

/**
 * `refuse`: there is no room on the way to a broker, which its sender is told; between sockets it is a
 * `drop`.
 */
export type MessageFate = 'deliver' | 'drop' | 'refuse' | { readonly delayMs: number }

/** What happens to traffic; asked for every request, and for every message on every connection. */
export interface MemoryFaults {
  http?: ((request: HttpRequest) => HttpFate) | undefined
  /** `endpoint` is the bound one; messages of both directions are asked about. */
  message?: ((endpoint: string, frames: Frames) => MessageFate) | undefined
}

/** What the parts of a network in memory need to know of it. */
export interface MemoryConditions {
  readonly clock: Clock
  /** Added to everything that is sent. */
  readonly latencyMs: number
  readonly faults: MemoryFaults
  /** A port that was not given out before. */
  freePort(): number
}
