/** The bounds of a listener: what it may hold, and how long it may wait. */

export interface ListenerLimits {
  /** Live batches held back while a replay runs; past it they are given up and asked for again. */
  readonly pendingBatchesMax: number
  /** Bytes of the batches held back. */
  readonly pendingBytesMax: number
  /** A replay that sends nothing for this long has ended. */
  readonly replayTimeoutMs: number
  /** The same of one that has begun, where this is less. */
  readonly replaySilenceMs: number
  /** Replay attempts in a row that brought nothing before the replay is given up. */
  readonly replayAttemptsMax: number
  /** Replay attempts of one recovery, those that brought something included. */
  readonly replayAttemptsTotalMax: number
  /** Pause before an attempt that follows one that brought nothing; doubles up to the maximum. */
  readonly backoffMsMin: number
  readonly backoffMsMax: number
  /** How long a replay socket is left alone with which a recovery failed. */
  readonly replayPauseMs: number
  /** Pause before one more replay after a rebuild: a batch may fall between replay and subscription. */
  readonly settleMs: number
  /** Least time between two rebuilds that others ask for. */
  readonly resyncMsMin: number
  /** Batches remembered to tell a repetition from a restart. */
  readonly seenBatchesMax: number
}

/** Engines keep 10,000 batches; a replay socket answers within 0.1 s when it is idle. */
export const LISTENER_LIMITS: ListenerLimits = Object.freeze({
  pendingBatchesMax: 8192,
  pendingBytesMax: 64 * 1024 * 1024,
  replayTimeoutMs: 1500,
  replaySilenceMs: 1000,
  replayAttemptsMax: 4,
  replayAttemptsTotalMax: 64,
  backoffMsMin: 200,
  backoffMsMax: 2000,
  replayPauseMs: 60_000,
  settleMs: 1000,
  resyncMsMin: 5000,
  seenBatchesMax: 1024,
})
