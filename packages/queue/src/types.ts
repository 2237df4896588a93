/**
 * Inputs and outputs of the priority queue. Times are from the caller's clock, in milliseconds, and never go
 * back.
 */

/**
 * A request that asks for a place. Its figures are from its arrival and do not change while it waits. It is
 * not copied: `take` and the other methods return the same object, which may have more fields.
 */
export interface QueueRequest {
  /** Different for every request in the queue; the decision id. */
  readonly id: string
  /** Time at which it came to the router. In the future, or not a number: counts as now. */
  readonly arrivedMs: number
  /** Tokens of the prompt. */
  readonly promptTokens: number
  /** Tokens of the prompt that no eligible worker holds; at most `promptTokens`. */
  readonly uncachedTokens: number
  /**
   * `promptTokens` is an estimate, and the engine may count up to `tokensMax`. Undefined: they were counted.
   */
  readonly estimate?: QueueEstimate | undefined
  /** Memory that it holds while it waits. */
  readonly bytes: number
  /**
   * If it is long and the rule for long prompts holds, its caller sends it in slices (tenants.ts): it is
   * charged for the first now, and the others come as requests of their own. Default false.
   */
  readonly maySlice?: boolean
  /**
   * A further slice, or the rest, of a prompt that its worker computes already. It takes no room from others
   * and is never refused for want of it, and the rule for long prompts does not hold it. Default false.
   */
  readonly isContinued?: boolean
  /** Name of its policy class: see `policyClassOf`. */
  readonly policyClass: string
  /** '' where there is no tenant key. */
  readonly tenant: string
  /** Head start in seconds (latency sensitivity or priority). Negative, or not a number: counts as 0. */
  readonly priorityJumpSeconds: number
  /**
   * Requests of a higher priority go before all of a lower one. Rounded down, and limited to 0 … 2³² − 1; not
   * a number: 0.
   */
  readonly strictPriority: number
  /** From this time on it may not wait: it is refused. Undefined: no deadline. */
  readonly deadlineMs?: number | undefined
  /** If it would have to wait, it is refused. */
  readonly doNotQueue: boolean
  /** Requests with the same eligible workers share a lane. '': any worker may take it. */
  readonly lane: string
  /** Name of the gateway that sent it; `ownerLife` is the gateway's life. */
  readonly owner: string
  readonly ownerLife: string
}

export interface QueueEstimate {
  readonly tokensMax: number
  /** The cached part of the prompt is the client's word, or will not be read: only the engine knows it. */
  readonly isUnpredicted?: boolean
}

/** What an engine says of a prompt that it has computed. */
export interface CountedPrompt {
  readonly promptTokens: number
  /** The part of it that was cached; undefined: not said. */
  readonly cachedTokens: number | undefined
}

/** The kind of class limit that was reached, as named in the protocol. */
export type ClassLimitKind = 'requests' | 'raw_isl_tokens' | 'cached_tokens'

/** Why a request may not wait. */
export type QueueRefusal =
  | {
      readonly reason: 'class_limit'
      readonly policyClass: string
      readonly limitKind: ClassLimitKind
      /** Amount that waits already. */
      readonly current: number
      /** Limit for all workers together. */
      readonly limit: number
      /** It waited already, and makes room: its tenant holds most for its weight. */
      readonly isDisplaced?: boolean
    }
  | {
      readonly reason: 'queue_full'
      readonly limitKind: 'requests' | 'tokens' | 'bytes'
      readonly current: number
      readonly limit: number
      /** It waited already, and makes room: its tenant holds most for its weight. */
      readonly isDisplaced?: boolean
    }
  | { readonly reason: 'deadline' }
  | { readonly reason: 'do_not_queue' }
  /** A request with this id is already in the queue. */
  | { readonly reason: 'duplicate' }

export type RefusalReason = QueueRefusal['reason']

/**
 * 'ask': no request is before it, so ask the router now, then call `placed` or `busy`. 'waiting': it is
 * parked, and `take` will return it later. Otherwise it is refused, and the queue does not keep it.
 */
export type Admission = 'ask' | 'waiting' | QueueRefusal

/** Totals of the waiting requests of a class, a tenant or a strict priority. */
export interface WaitingTotals {
  readonly requests: number
  readonly promptTokens: number
  readonly uncachedTokens: number
  /** Time that the oldest has been in the router; 0 when none waits. */
  readonly oldestMs: number
  /** Number of requests by the reason for which they wait. */
  readonly why: Readonly<Record<WaitReason, number>>
}

export interface ServedTotals {
  readonly requests: number
  readonly uncachedTokens: number
  /** Share of the recently placed uncached tokens, 0 … 1. */
  readonly share: number
}

/** Waiting requests of a policy class at other routers of the same workers. */
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
  /** Expected wait of a request that comes now; undefined: not known yet. */
  readonly expectedWaitMs: number | undefined
}

export interface TenantRow {
  readonly tenant: string
  readonly weight: number
  readonly waiting: WaitingTotals
  /** Totals since the tenant was last forgotten. */
  readonly served: ServedTotals
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>
  /** Number of workers that compute a long prompt of this tenant. */
  readonly longPromptWorkers: number
  /** The rule for long prompts makes its next long prompts wait until one of these is computed. */
  readonly isHeld: boolean
  /** Expected wait of a request of this tenant that comes now; undefined: not known yet. */
  readonly expectedWaitMs: number | undefined
}

export interface StrictPriorityRow {
  readonly strictPriority: number
  readonly waiting: WaitingTotals
  /** Requests of higher strict priority placed since the last one of this priority. */
  readonly passedOver: number
  /** The oldest has waited longer than `agingMs`, and requests of higher strict priority go before it. */
  readonly isStarving: boolean
}

/** State of the queue of one model, for `GET /queue`. */
export interface QueueSnapshot {
  readonly waiting: WaitingTotals
  readonly bytes: number
  /** Requests about which the router is being asked. */
  readonly asked: number
  /** Uncached tokens that leave the queue per second while requests wait; undefined: not known yet. */
  readonly drainTokensPerSecond: number | undefined
  readonly expectedWaitMs: number | undefined
  readonly classes: readonly ClassRow[]
  readonly tenants: readonly TenantRow[]
  /** Highest priority first. */
  readonly strictPriorities: readonly StrictPriorityRow[]
}

/** Why a request waits: its lane has no room, other requests go first, or the rule for long prompts. */
export type WaitReason = 'no_room' | 'others_first' | 'long_prompt'

/** Outlook of one waiting request. */
export interface Outlook {
  readonly why: WaitReason
  readonly waitedMs: number
  readonly expectedWaitMs: number | undefined
}
