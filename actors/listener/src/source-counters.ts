/** Counters of a listener for its source, since it started. */

import type { SourceStatus } from './messages.ts'

export type CountedStatus = Pick<
  SourceStatus,
  | 'batches'
  | 'events'
  | 'gaps'
  | 'replays'
  | 'restarts'
  | 'contradictions'
  | 'duplicates'
  | 'malformedFrames'
  | 'skippedEvents'
  | 'droppedBatches'
  | 'foreignRanks'
  | 'lastEventAgeMs'
>

export class SourceCounters {
  batches = 0
  events = 0
  gaps = 0
  replays = 0
  restarts = 0
  contradictions = 0
  duplicates = 0
  malformedFrames = 0
  skippedEvents = 0
  droppedBatches = 0
  foreignRanks = 0
  /** When the last batch was applied; undefined: none was. */
  lastBatchMs: number | undefined

  status(nowMs: number): CountedStatus {
    const { lastBatchMs, ...counted } = this
    return {
      ...counted,
      lastEventAgeMs: lastBatchMs === undefined ? undefined : Math.max(0, nowMs - lastBatchMs),
    }
  }
}
