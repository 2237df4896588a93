/**
 * Inputs and outputs of the priority queue. Times are of the caller's clock, in milliseconds, and never go
 * back.
 */

/**
 * A request that asks for a place. The figures are a snapshot of its arrival and do not change while it
 * waits. Nothing is copied: `take` and the others give back the same object, which may have fields of the
 * caller's own.
 */
export interface QueueRequest {
  /** Different for every request in the queue; the decision id. */
  readonly id: string
  /** When it came to the router. In the future, or not a number: now. */
  readonly arrivedMs: number
  /** Tokens of the prompt. */
  readonly promptTokens: number
  /** Tokens of the prompt that no eligible worker holds; at most `promptTokens`. */
  readonly uncachedTokens: number
  /** What it holds in memory while it waits. */
  readonly bytes: number
  /** Name of its policy class: see `policyClassOf`. */
  readonly policyClass: string
  /** '' where there is no tenant key. */
  readonly tenant: string
  /** Seconds of head start (latency sensitivity or priority). Negative, or not a number: 0. */
  readonly priorityJumpSeconds: number
  /**
   * All of a higher one go before any of a lower one. Not a whole number from 0 to 2³² − 1: the nearest
   * below, or 0.
   */
  readonly strictPriority: number
  /** It is refused when it waits then, or would have to; undefined: never. */
  readonly deadlineMs?: number | undefined
  /** It is refused instead of made to wait. */
  readonly doNotQueue: boolean
  /**
   * Requests with the same eligible workers share a lane: the worker key of a pinned one, '' for any worker.
   */
  readonly lane: string
  /** Whose it is: the gateway's name and life. */
  readonly owner: string
  readonly ownerLife: string
}

/** A limit of a policy class that is reached, in the words of the protocol. */
export type ClassLimitKind = 'requests' | 'raw_isl_tokens' | 'cached_tokens'

/** Why a request may not wait. */
export type QueueRefusal =
  | {
      readonly reason: 'class_limit'
      readonly policyClass: string
      readonly limitKind: ClassLimitKind
      /** What waits already. */
      readonly current: number
      /** Of all workers together. */
      readonly limit: number
    }
  | {
      readonly reason: 'queue_full'
      readonly limitKind: 'requests' | 'tokens' | 'bytes'
      readonly current: number
      readonly limit: number
    }
  | { readonly reason: 'deadline' }
  | { readonly reason: 'do_not_queue' }
  /** A request with this id is here already. */
  | { readonly reason: 'duplicate' }

export type RefusalReason = QueueRefusal['reason']

/**
 * 'ask': no request is before it; ask the router now, then call `placed` or `busy`. 'waiting': it is parked,
 * and `take` will return it later. Otherwise it is refused, and nothing of it is kept.
 */
export type Admission = 'ask' | 'waiting' | QueueRefusal

/** Requests of a class, a tenant or a strict priority that wait. */
export interface WaitingTotals {
  readonly requests: number
  readonly promptTokens: number
  readonly uncachedTokens: number
  /** How long the oldest has been in the router; 0 when nothing waits. */
  readonly oldestMs: number
  /** How many of them wait for which reason. */
  readonly why: Readonly<Record<WaitReason, number>>
}

export interface ServedTotals {
  readonly requests: number
  readonly uncachedTokens: number
  /** Part of the uncached tokens that were placed lately, 0 … 1. */
  readonly share: number
}

/** What waits of a policy class at other routers of the same workers. */
export interface WaitingElsewhere {
  readonly requests: number
  readonly promptTokens: number
  readonly uncachedTokens: number
}

export interface ClassRow {
  readonly policyClass: string
  readonly waiting: WaitingTotals
  /** Counts towards the limits of the class. */
  readonly elsewhere: WaitingElsewhere
  readonly served: ServedTotals
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>
  /** How long one that comes now is expected to wait; undefined while nothing is known. */
  readonly expectedWaitMs: number | undefined
}

export interface TenantRow {
  readonly tenant: string
  readonly weight: number
  readonly waiting: WaitingTotals
  /** Since it was last forgotten. */
  readonly served: ServedTotals
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>
  /** Workers that compute a long prompt of it. */
  readonly longPromptWorkers: number
  /** Long prompts of it wait for one of these, by the rule for long prompts. */
  readonly isHeld: boolean
  /** How long one of it that comes now is expected to wait; undefined while nothing is known. */
  readonly expectedWaitMs: number | undefined
}

export interface StrictPriorityRow {
  readonly strictPriority: number
  readonly waiting: WaitingTotals
  /** Requests of higher strict priority that were placed since one of this was. */
  readonly passedOver: number
  /** The oldest is past `agingMs`, and others of higher strict priority go before it. */
  readonly isStarving: boolean
}

/** For `GET /queue`. */
export interface QueueSnapshot {
  readonly waiting: WaitingTotals
  readonly bytes: number
  /** Requests about which the router is being asked. */
  readonly asked: number
  /**
   * Uncached tokens that leave the queue in a second while requests wait; undefined while nothing is known.
   */
  readonly drainTokensPerSecond: number | undefined
  readonly expectedWaitMs: number | undefined
  readonly classes: readonly ClassRow[]
  readonly tenants: readonly TenantRow[]
  /** The highest first. */
  readonly strictPriorities: readonly StrictPriorityRow[]
}

/** Why a request waits: its lane has no room, others go before it, or the rule for long prompts. */
export type WaitReason = 'no_room' | 'others_first' | 'long_prompt'

/** Of one request that waits. */
export interface Outlook {
  readonly why: WaitReason
  readonly waitedMs: number
  readonly expectedWaitMs: number | undefined
}
