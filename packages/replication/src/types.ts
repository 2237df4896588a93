/** What a replica tells the others: the bookings of its router, as they begin and end. */

/** A request was sent to a worker. */
export interface BookedOperation {
  readonly kind: 'booked'
  /** Unique among the bookings of its replica. */
  readonly id: string
  /** Worker key, 'host:port/rank'. */
  readonly worker: string
  /**
   * Blocks that its replica has active on that worker, its own included; those that requests share count
   * once.
   */
  readonly activeBlocks: number
  readonly promptTokens: number
  /** Tokens that the worker must compute, as predicted. */
  readonly prefillTokens: number
  /** They count as prefill tokens; false: only the model of the engine is told of them. */
  readonly countsPrefill: boolean
  /** Its first token will be told. */
  readonly isStream: boolean
  /** How long it waited in its queue, in milliseconds. */
  readonly waitedMs: number
  /** Tokens of a step of the worker at most. */
  readonly stepTokens: number
  /** Session that is bound to the worker by it. */
  readonly session?: string | undefined
}

/** Its prompt is computed. */
export interface FirstTokenOperation {
  readonly kind: 'firstToken'
  readonly id: string
}

/** It is over, however; implies its first token. */
export interface FreedOperation {
  readonly kind: 'freed'
  readonly id: string
  /** Blocks that its replica still has active on that worker. */
  readonly activeBlocks: number
  readonly outputTokens?: number | undefined
  /** Share of the prompt that was cached, 0 … 1. */
  readonly cachedShare?: number | undefined
}

export type ReplicaOperation = BookedOperation | FirstTokenOperation | FreedOperation

/** Operations of one replica, in order. */
export interface ReplicaBatch {
  /** Of the stream: 16 hexadecimal digits, others in each life. */
  readonly life: string
  /**
   * From 0, without gaps. Of a batch without operations, which only says that the stream lives: that of the
   * next one.
   */
  readonly sequence: number
  readonly operations: readonly ReplicaOperation[]
}

/** A booking that is open. In a snapshot `activeBlocks` is that of now. */
export interface OpenBooking extends BookedOperation {
  readonly hasFirstToken: boolean
}

/** All open bookings of a replica, as of before the batch `nextSequence`. */
export interface ReplicaSnapshot {
  readonly life: string
  readonly nextSequence: number
  readonly bookings: readonly OpenBooking[]
}

/** What waits at a replica, of one model and policy class. */
export interface WaitingRow {
  readonly model: string
  readonly policyClass: string
  readonly requests: number
  readonly promptTokens: number
  /** Of them, those that no cache has. */
  readonly uncachedTokens: number
}

/** One message of a snapshot. */
export interface SnapshotPart extends ReplicaSnapshot {
  /** 0 … parts − 1. */
  readonly part: number
  readonly parts: number
}
