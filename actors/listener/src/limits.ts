/** The bounds of a listener: how much it may hold, and how long it may wait. */

export interface ListenerLimits {
  /** Live batches held back while a replay runs; past it they are dropped and requested again. */
  readonly pendingBatchesMax: number
  /** Bytes of the batches held back. */
  readonly pendingBytesMax: number
  /** A replay that sends nothing for this long has ended. */
  readonly replayTimeoutMs: number
  /** The same for a replay that has begun, if this is less. */
  readonly replaySilenceMs: number
  /** Replay attempts in a row without result before the replay is given up. */
  readonly replayAttemptsMax: number
  /** Replay attempts of one recovery, successful ones included. */
  readonly replayAttemptsTotalMax: number
  /** Pause after an attempt without result; doubles up to the maximum. */
  readonly backoffMsMin: number
  readonly backoffMsMax: number
  /** How long a replay socket is left alone after a recovery failed with it. */
  readonly replayPauseMs: number
  /** Pause before the check that follows a rebuild: a batch may fall between replay and subscription. */
  readonly settleMs: number
  /** Time between two checks that the engine still repeats what is applied. */
  readonly checkIntervalMs: number
  /** A live batch after such a silence is checked at once: an engine that restarts is silent meanwhile. */
  readonly checkSilenceMs: number
  /** Batches since the last check that the next one compares; if there are more, only the last batch. */
  readonly checkBatchesMax: number
  /** How long a history may count as exact after a live batch that no replay has confirmed yet. */
  readonly unconfirmedMsMax: number
  /**
   * After a late batch, no history begins for this long with a batch that is older than the newest one. If
   * the engine's clock was set back, a history begins after this time.
   */
  readonly lateMsMax: number
  /** Contradictions after which live socket and replay are kept apart (fewer mean restarts)… */
  readonly contradictionsMax: number
  /** …if they come within this time; see contradictions.ts. */
  readonly contradictionsWithinMs: number
  /** How long they are kept apart before they are compared again; doubles up to the maximum. */
  readonly apartMsMin: number
  readonly apartMsMax: number
  /** Least time between two rebuilds that others ask for. */
  readonly resyncMsMin: number
  /**
   * Batches remembered to tell a repetition from a restart: so many applied ones, and so many live ones.
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
