import type { Reply } from '@homing/actor'
import type { RouterMessage } from '@homing/actors/router'
import type { GatewayLife, LoadFellMessage } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type { DecideResult, Decision, Measured, RoutingRequest } from '@homing/placement'
import type { CountedPrompt, QueueSnapshot } from '@homing/queue'
import type { WaitingRow } from '@homing/replication'

/** Hints of a request about waiting in the queue. */
export interface WaitingHints {
  /** '' where there is no tenant key. */
  readonly tenant: string
  /** Policy family or class named by the client. */
  readonly policyClass: string | undefined
  readonly priorityJumpSeconds: number
  readonly strictPriority: number
  readonly doNotQueue: boolean
  /** Longest wait since arrival; undefined: the limit of the queue. */
  readonly deadlineMs: number | undefined
  /** Memory that it holds. */
  readonly bytes: number
}

/**
 * `isLong`: the gateway sends `prefillComplete` to the queue when the prompt is computed. `isEstimated`: it
 * sends `counted` once the request has ended. `isSliced`: the gateway sends the prompt in slices, and this
 * place is for the first, if the decision says where that ends.
 */
export type PlaceResult =
  | {
      readonly kind: 'decided'
      readonly decision: Decision
      readonly isLong?: boolean
      readonly isSliced?: boolean
      readonly isEstimated?: boolean
    }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }

/** Assumed figures of the workers of one model. */
export interface AssumedRows {
  /** At most ASSUMED_MAX rows. */
  readonly rows: readonly Assumed[]
  readonly leftOut: number
}

/** A figure that a rule assumes because the engine does not report it. Shown, so no rule is silently off. */
export interface Assumed {
  /** Worker id. */
  readonly worker: string
  readonly what: 'max_batched_tokens' | 'kv_blocks'
  /** The assumed value; undefined: the rule has no effect on this worker. */
  readonly value: number | undefined
}

export interface ModelQueueStatus {
  readonly model: string
  /** False: requests of this model never wait. */
  readonly isOn: boolean
  readonly workers: number
  /** Assumed token budgets that the queue or a busy threshold uses; KV blocks that a busy threshold lacks. */
  readonly assumed: AssumedRows
  readonly snapshot: QueueSnapshot
}

/** Status of the queue, for `GET /queue` and metrics. */
export interface QueueStatus {
  /** False: no model has a threshold, so no request ever waits. */
  readonly isOn: boolean
  readonly requests: number
  readonly requestsMax: number
  readonly tokens: number
  readonly tokensMax: number
  readonly bytes: number
  readonly bytesMax: number
  readonly models: readonly ModelQueueStatus[]
}

export type QueueMessage =
  | FleetMessage
  | LoadFellMessage
  /**
   * Asks for a place. The gateway must always send `settled` later, even if no answer came: to the router if
   * the request was decided, otherwise to the queue.
   */
  | {
      readonly type: 'place'
      /** Decision id. */
      readonly id: string
      readonly gateway: GatewayLife
      readonly request: RoutingRequest
      /** Time since the request came to the router. */
      readonly ageMs: number
      /** Undefined: the request never waits. */
      readonly hints: WaitingHints | undefined
      /** The gateway can send its prompt in slices; default false. */
      readonly maySlice?: boolean
      readonly reply: Reply<PlaceResult>
    }
  /**
   * The request ended, and the gateway has seen no decision. The queue passes this message on to the router,
   * after every question about the request.
   */
  | Extract<RouterMessage, { readonly type: 'settled' }>
  /** An `isLong` request has its prompt computed, or ended. */
  | { readonly type: 'prefillComplete'; readonly id: string; readonly model: string }
  /**
   * An `isEstimated` request has ended. `counted`: what its engine says of the prompt; undefined: it does
   * not.
   */
  | {
      readonly type: 'counted'
      readonly id: string
      readonly model: string
      readonly counted: CountedPrompt | undefined
    }
  /** Drops the requests of the gateway's earlier lives. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** Gives all that waits at other routers of the same workers; answers what waits here. */
  | {
      readonly type: 'exchangeWaiting'
      readonly elsewhere: readonly WaitingRow[]
      readonly reply: Reply<readonly WaitingRow[]>
    }
  | { readonly type: 'queueStatus'; readonly reply: Reply<QueueStatus> }
  /** From the queue to itself: the router's answer. `questionNumber` identifies the question. */
  | {
      readonly type: 'answered'
      readonly id: string
      readonly questionNumber: number
      readonly result: DecideResult | ({ readonly kind: 'measured' } & Measured)
    }
  /** From the queue to itself: a deadline may be due, or a message about free room was lost. */
  | { readonly type: 'look' }
