/** What a listener says of its source: counters since it started, and where it stands. */
export interface SourceStatus {
  readonly state: 'connecting' | 'recovering' | 'live' | 'disconnected'
  /** The last sequence applied; undefined before the first. */
  readonly lastSequence: number | undefined
  /** Grows by one per life of the engine's cache seen by this listener. */
  readonly epoch: number
  readonly batches: number
  readonly events: number
  readonly gaps: number
  readonly replays: number
  readonly restarts: number
  readonly duplicates: number
  readonly malformedFrames: number
  readonly skippedEvents: number
  /** Milliseconds since the last batch; undefined before the first. */
  readonly lastEventAgeMs: number | undefined
}
