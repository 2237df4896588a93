/** Arguments of the slot service: plain data, in the units of the names. See packages/config. */

import type { JsonServiceArgs } from '@homing/http'

export interface SlotServiceArgs extends JsonServiceArgs {
  /** Ranks of registered workers, over all models and groups. */
  readonly workerSlotsMax: number
  /** Requests held at one time, those that replicas hold included. */
  readonly activeRequestsMax: number
  /** Blocks of the requests that were added here, at one time; those that a rank has in common count once. */
  readonly activeBlocksMax: number
  /** A request without a sign of life for this long is freed. */
  readonly activeRequestExpiryMs: number
  /** Undefined: what is added here is told to no other service, and none can be registered. */
  readonly replicas: SlotReplicas | undefined
}

export interface SlotReplicas {
  /** 'tcp://*:5801'; questions are answered on the port behind it. */
  readonly endpoint: string
  /** Other services, from the start. */
  readonly peers: readonly string[]
  /** Least time between two batches to them. */
  readonly delayMs: number
  /** How long the requests of a silent one count. */
  readonly expiryMs: number
}
