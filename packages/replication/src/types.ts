/** What a replica tells the others: the bookings of its router, as they begin and end. */

/** Some of the sequence hashes of a prompt, by which replicas find the blocks that they share. */
export interface BookedDigest {
  /** Blocks of the prompt. */
  readonly count: number
  /** Pairs [lo, hi], as many as its length gives; see `chainDigest` of packages/load. */
  readonly hashes: Int32Array
}

/** A request was sent to a worker. */
export interface BookedOperation {
  readonly kind: 'booked'
  /** Unique among the bookings of its replica. */
  readonly id: string
  /** Worker key, 'host:port/rank'. */
  readonly worker: string
  /**
   * Active blocks of its replica on that worker, its own included; blocks that requests share count once.
   */
  readonly activeBlocks: number
  /** The part of `activeBlocks` of which no digest tells; undefined: it does not send digests. */
  readonly otherBlocks?: number | undefined
  /** Undefined: the prompt is not known, or there is no room for its digest. */
  readonly digest?: BookedDigest | undefined
  readonly promptTokens: number
  /** Tokens that the worker must compute, as predicted. */
  readonly prefillTokens: number
  /** They count as prefill tokens; false: only the model of the engine gets them. */
  readonly countsPrefill: boolean
  /** Its first token will be reported. */
  readonly isStream: boolean
  /** How long it waited in its queue, in milliseconds. */
  readonly waitedMs: number
  /** Most tokens of one step of the worker. */
  readonly stepTokens: number
  /** Session that the booking binds to the worker. */
  readonly session?: string | undefined
}

/** Its prompt is computed. */
export interface FirstTokenOperation {
  readonly kind: 'firstToken'
  readonly id: string
}

/** The request has ended, with or without success; implies its first token. */
export interface FreedOperation {
  readonly kind: 'freed'
  readonly id: string
  /** Blocks that its replica still has active on that worker. */
  readonly activeBlocks: number
  /** As of a booking. */
  readonly otherBlocks?: number | undefined
  readonly outputTokens?: number | undefined
  /** Share of the prompt that was cached, 0 … 1. */
  readonly cachedShare?: number | undefined
  /** Undefined: no session has moved with it. */
  readonly moved?: MovedBinding | undefined
}

/** A session that is bound to another worker now, because that one was asked second and served a request. */
export interface MovedBinding {
  readonly session: string
  /** Worker key. */
  readonly worker: string
}

/**
 * What was said here of a booking of another replica, by its id: that replica acts on it, and tells all
 * others. Callers of services that are told by hand may tell whichever replica they reach.
 */
export interface ReportedOperation {
  readonly kind: 'reported'
  readonly id: string
  /** It has ended; false: it had its first token. */
  readonly isFreed: boolean
}

export type ReplicaOperation = BookedOperation | FirstTokenOperation | FreedOperation | ReportedOperation

/** Operations of one replica, in order. */
export interface ReplicaBatch {
  /** Of the stream: 16 hexadecimal digits, others in each life. */
  readonly life: string
  /**
   * From 0, without gaps. A batch without operations only says that the stream lives: it has the number of
   * the next batch.
   */
  readonly sequence: number
  readonly operations: readonly ReplicaOperation[]
}

/** An open booking. In a snapshot `activeBlocks` and `otherBlocks` are the present figures. */
export interface OpenBooking extends BookedOperation {
  readonly hasFirstToken: boolean
}

/** All open bookings of a replica, as of before the batch `nextSequence`. */
export interface ReplicaSnapshot {
  readonly life: string
  readonly nextSequence: number
  readonly bookings: readonly OpenBooking[]
}

/** What digests say of the operations of a batch, by their place. */
export interface DigestBatch {
  readonly life: string
  /** Of the batch that follows. */
  readonly sequence: number
  readonly digests: readonly (OperationDigest | undefined)[]
}

export type OperationDigest = Pick<BookedOperation, 'otherBlocks' | 'digest'>

/** What digests say of open bookings, by their ids; a part of a snapshot that follows. */
export interface DigestSnapshot {
  readonly life: string
  readonly digests: ReadonlyMap<string, OperationDigest>
}

/** The waiting requests of a replica, for one model and policy class. */
export interface WaitingRow {
  readonly model: string
  readonly policyClass: string
  readonly requests: number
  readonly promptTokens: number
  /** The part of them that no cache holds. */
  readonly uncachedTokens: number
}

/** One message of a snapshot. */
export interface SnapshotPart extends ReplicaSnapshot {
  /** 0 … parts − 1. */
  readonly part: number
  readonly parts: number
}
