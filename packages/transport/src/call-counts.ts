/** Counts of calls, for metrics. */
export interface CallCounts {
  /** Calls that are under way. */
  openCalls: number
  /** Of answers, what waits because their readers are paused. */
  heldBytes: number
  /** Calls that have ended. */
  readonly endedCalls: { answered: number; failed: number; aborted: number }
}
