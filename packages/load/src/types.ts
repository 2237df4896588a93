/**
 * Inputs and outputs of the active load: bookings, projections, totals.
 *
 * Bookings are named by text ids, worker keys by small numbers (`workerSlot`, 0 … workerSlotsMax − 1)
 * that the caller hands out. Sequence hashes are pairs of int32 words `[lo, hi]`.
 */

export interface ActiveLoadOptions {
  /** Worker slots are 0 … workerSlotsMax − 1. */
  readonly workerSlotsMax: number
  /** Requests booked at one time; one more is refused with 'full'. Default 65,536. */
  readonly requestsMax?: number | undefined
  /**
   * Active prompt blocks at one time, over all slots; a booking that may pass it is refused with 'full'.
   * Default 4,194,304.
   */
  readonly activeBlocksMax?: number | undefined
}

/** One request as it is booked on a worker slot. Nothing of it is kept by reference. */
export interface BookedLoad {
  /**
   * Sequence hashes of the full blocks of the prompt, from its first block on: words 0 … 2·count − 1.
   * A partial last block has no hash and is not counted as active.
   */
  readonly sequenceHashes: Int32Array
  /** Blocks in `sequenceHashes`; 0 when active blocks are not tracked. */
  readonly count: number
  /** Length of the prompt in tokens; for `totals` only. */
  readonly promptTokens: number
  /**
   * Prompt tokens the worker must still compute (effective uncached tokens). Rounded; below 0 counts as 0.
   */
  readonly prefillTokens: number
  /** When it was booked; the first sign of life for `expire`. Default: the latest time that was told. */
  readonly nowMs?: number
}

/**
 * 'duplicate': the id is booked already (anywhere). 'full': a bound was reached. Either way nothing changed.
 */
export type BookOutcome = 'booked' | 'duplicate' | 'full'

/**
 * The load of some worker slots as a request would find it: element i belongs to `workerSlots[i]` of
 * the call. Owned by the ActiveLoad and overwritten by its next `project`.
 */
export interface LoadProjection {
  readonly count: number
  /** Blocks in use by running requests now; blocks shared on one slot count once. */
  readonly activeBlocks: Int32Array
  /** The part of `activeBlocks` that is known to be of answers. */
  readonly outputBlocks: Int32Array
  /** Blocks of the prompt that are not active there, counted after the leading run that is. */
  readonly newBlocks: Int32Array
  /** Tokens booked and not yet prefilled, without those of this request. */
  readonly activePrefillTokens: Float64Array
  readonly activeRequests: Int32Array
}

/** The load of one worker slot. */
export interface LoadTotals {
  readonly activeBlocks: number
  readonly activePrefillTokens: number
  readonly activeRequests: number
  /** Prompt tokens of all active requests, cached or not. */
  readonly activePromptTokens: number
}

export interface LoadStats {
  readonly requests: number
  /** Pairs (active prompt block, worker slot). */
  readonly activeBlocks: number
  /** Different active prompt blocks, over all slots. */
  readonly distinctBlocks: number
  readonly bookedTotal: number
  readonly duplicatesTotal: number
  readonly refusedTotal: number
  readonly freedTotal: number
  readonly expiredTotal: number
}

/** What `ActiveLoad` (./active-load.ts, `new ActiveLoad(options)`) does. All of it is synchronous. */
export interface ActiveLoadMethods {
  book(bookingId: string, workerSlot: number, booking: BookedLoad): BookOutcome
  /** The prompt is computed: its prefill tokens are subtracted. False: unknown, or done before. */
  prefillComplete(bookingId: string, nowMs?: number): boolean
  /** A sign of life, so that `expire` leaves the request alone. False: unknown. */
  touch(bookingId: string, nowMs: number): boolean
  /**
   * Sets the output blocks of a request; each weighs `fraction` (0 … 1, default 1), those of its prompt weigh
   * 1. False: unknown.
   */
  setOutputBlocks(bookingId: string, count: number, fraction?: number): boolean
  /**
   * Blocks that others have active on a slot, and how many of them are known to be of answers; they count in
   * `project` and `totals`.
   */
  setForeignBlocks(workerSlot: number, blocks: number, outputBlocks?: number): void
  ownBlocks(workerSlot: number): number
  /** Ends a request; implies prefillComplete. False: unknown, or freed before. */
  free(bookingId: string): boolean
  /** Frees every request of a slot and returns their ids. */
  freeWorker(workerSlot: number): string[]
  /** Frees the requests without a sign of life for `idleMs`; returns their ids, the longest silent first. */
  expire(nowMs: number, idleMs: number): string[]
  project(sequenceHashes: Int32Array, count: number, workerSlots: ArrayLike<number>): LoadProjection
  totals(workerSlot: number): LoadTotals
  readonly stats: LoadStats
}
