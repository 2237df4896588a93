/**
 * Snapshot pass: takes a snapshot of every worker key whose events are in the stream, and purges what they
 * stand for, once the stream has more messages than it should. Of all routers at a stream one does so at a
 * time.
 *
 *   lock ─▶ for each key: revision ─▶ dump ─▶ lock renewed ─▶ upload, switch ─▶ purge
 *        └▶ tidy ─▶ unlock
 *
 * Invariants
 *   I1  A snapshot is switched to only if none has come since before its dump: a holder whose lock has ended
 *       cannot replace a later one by an earlier one. Nor does a router that lags behind the one before.
 *   I2  Only what a snapshot that is in force has, and all consumers have dealt with, is purged. So whatever
 *       ends where, snapshot and stream meet.
 */

import type { KeySnapshot } from '@homing/actors/listener'
import type { StreamStore } from '@homing/transport'

export interface SnapshotSource {
  /** Under which its publisher publishes. */
  readonly subject: string
  /** Undefined: it is not known whole, or could not be proven later. */
  take(): Promise<KeySnapshot | undefined>
}

export interface SnapshotPass {
  /**
   * `below`: the stream has fewer messages than the threshold. `locked`: another router is at it. `lost`: the
   * lock ended.
   */
  readonly outcome: 'below' | 'locked' | 'done' | 'lost'
  readonly taken: number
  /** Keys of which none could be taken now. */
  readonly skipped: number
  readonly purgedMessages: number
}

/** Counters over all passes. */
export interface SnapshotCounts {
  readonly passes: Readonly<Record<SnapshotPass['outcome'] | 'failed', number>>
  readonly taken: number
  readonly skipped: number
  readonly purgedMessages: number
  readonly begunAgain: number
}

const NOTHING = { taken: 0, skipped: 0, purgedMessages: 0 }

/** Rejects with StreamError; what was done until then stays. */
export async function snapshotPass(
  store: Omit<StreamStore, 'close' | 'read'>,
  thresholdMessages: number,
  sources: readonly SnapshotSource[],
): Promise<SnapshotPass> {
  if ((await store.messages()) <= thresholdMessages) return { outcome: 'below', ...NOTHING }
  const lock = await store.lock()
  if (lock === undefined) return { outcome: 'locked', ...NOTHING }
  try {
    const sum = { ...NOTHING }
    for (const { subject, take } of sources) {
      const revision = await store.revision(subject)
      const snapshot = await take()
      if (!(await lock.renew())) return { outcome: 'lost', ...sum }
      const replaced = snapshot && (await store.replace(subject, snapshot, revision))
      if (replaced === 'late') return { outcome: 'lost', ...sum }
      if (snapshot === undefined || replaced === 'older') {
        sum.skipped++
        continue
      }
      sum.taken++
      sum.purgedMessages += await store.purge(subject, snapshot)
    }
    await store.tidy()
    return { outcome: 'done', ...sum }
  } finally {
    await lock.release()
  }
}
