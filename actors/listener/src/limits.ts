/** The bounds of a listener: how much it may hold, and how long it may wait. */

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
  /** Pause before the check that follows a rebuild: a batch may fall between replay and subscription. */
  readonly settleMs: number
  /** Time between two checks that the engine still repeats what is applied. */
  readonly checkIntervalMs: number
  /** A live batch behind such a silence is checked at once: an engine that restarts is silent meanwhile. */
  readonly checkSilenceMs: number
  /** Batches since the last check that are compared by the next one; of more, only the last. */
  readonly checkBatchesMax: number
  /** How long a history may count as exact after a live batch that no replay has confirmed yet. */
  readonly unconfirmedMsMax: number
  /**
   * After a batch came late, no history begins for so long with one that is older than the newest one before.
   * If it is the engine's clock that was set back, one begins then.
   */
  readonly lateMsMax: number
  /**
   * Contradictions between events and replay, or of events among themselves, that are taken for a restart
   * each…
   */
  readonly contradictionsMax: number
  /** …within this time. Past it the two are kept apart: see contradictions.ts. */
  readonly contradictionsWithinMs: number
  /** How long they are kept apart before they are compared again; doubles up to the maximum. */
  readonly apartMsMin: number
  readonly apartMsMax: number
  /** Least time between two rebuilds that others ask for. */
  readonly resyncMsMin: number
  /**
   * Batches remembered to tell a repetition from a restart, of those applied and of those on the live socket.
   */
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
  checkIntervalMs: 60_000,
  checkSilenceMs: 2000,
  checkBatchesMax: 256,
  unconfirmedMsMax: 80,
  lateMsMax: 1000,
  contradictionsMax: 3,
  contradictionsWithinMs: 60_000,
  apartMsMin: 1000,
  apartMsMax: 30_000,
  resyncMsMin: 5000,
  seenBatchesMax: 1024,
})
