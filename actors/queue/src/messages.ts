import type { Reply } from '@homing/actor'
import type { RouterMessage } from '@homing/actors/router'
import type { GatewayLife, LoadFellMessage } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type { DecideResult, Decision, Measured, RoutingRequest } from '@homing/placement'
import type { QueueSnapshot } from '@homing/queue'
import type { WaitingRow } from '@homing/replication'

/** How a request wants to wait, if it must. */
export interface WaitingHints {
  /** '' where there is no tenant key. */
  readonly tenant: string
  /** Family or class that the client names. */
  readonly policyClass: string | undefined
  readonly priorityJumpSeconds: number
  readonly strictPriority: number
  readonly doNotQueue: boolean
  /** From its arrival; undefined: as long as any may. */
  readonly deadlineMs: number | undefined
  /** What it holds in memory. */
  readonly bytes: number
}

/** `isLong`: the queue wants to hear when its prompt is computed. */
export type PlaceResult =
  | { readonly kind: 'decided'; readonly decision: Decision; readonly isLong?: boolean }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }

/** What is assumed of a model. */
export interface AssumedRows {
  /** The first ASSUMED_MAX. */
  readonly rows: readonly Assumed[]
  readonly leftOut: number
}

/** What a rule goes by for want of a figure of the engine: never silently off. */
export interface Assumed {
  /** Id. */
  readonly worker: string
  readonly what: 'max_batched_tokens' | 'kv_blocks'
  /** What it counts with; undefined: the rule has no effect on this worker. */
  readonly value: number | undefined
}

export interface ModelQueueStatus {
  readonly model: string
  /** False: nothing of it ever waits. */
  readonly isOn: boolean
  readonly workers: number
  /**
   * Of the step of an engine where a rule of the queue or a busy threshold goes by it; of KV blocks where a
   * busy threshold does.
   */
  readonly assumed: AssumedRows
  readonly snapshot: QueueSnapshot
}

/** For `GET /queue` and metrics. */
export interface QueueStatus {
  /** False: no model has a threshold, nothing ever waits. */
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
   * Asks for a place. Whatever the answer is, and also where none came, the asker settles it: with the router
   * if it was decided, here otherwise.
   */
  | {
      readonly type: 'place'
      /** Id of the decision. */
      readonly id: string
      readonly gateway: GatewayLife
      readonly request: RoutingRequest
      /** Since it came to the router. */
      readonly ageMs: number
      /** Undefined: it never waits. */
      readonly hints: WaitingHints | undefined
      readonly reply: Reply<PlaceResult>
    }
  /**
   * It is over before it was decided, as far as its asker knows. Passed on to the router, behind every
   * question about it.
   */
  | Extract<RouterMessage, { readonly type: 'settled' }>
  /** The prompt of one that `isLong` is computed, or it ended. */
  | { readonly type: 'prefillComplete'; readonly id: string; readonly model: string }
  /** What this gateway had waiting in another life is dropped. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** What waits at other routers of the same workers, all of it; answers what waits here. */
  | {
      readonly type: 'exchangeWaiting'
      readonly elsewhere: readonly WaitingRow[]
      readonly reply: Reply<readonly WaitingRow[]>
    }
  | { readonly type: 'queueStatus'; readonly reply: Reply<QueueStatus> }
  /**
   * Of the queue to itself: what the router answered, undefined where it did not; `questionNumber` tells
   * apart the questions about one request.
   */
  | {
      readonly type: 'answered'
      readonly id: string
      readonly questionNumber: number
      readonly result: DecideResult | ({ readonly kind: 'measured' } & Measured)
    }
  /** Of the queue to itself: something may be due, or a message that would have told of room was lost. */
  | { readonly type: 'look' }
