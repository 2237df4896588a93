/**
 * Snapshot pass: takes a snapshot of every worker key whose events are in the stream, and purges what they
 * stand for, once the stream has more messages than it should, or is half as full or half as old as it may be:
 * past that the broker discards the oldest, whether a snapshot has them or not. Of all routers at a stream
 * one does so at a time.
 *
 *   lock ─▶ for each key: revision ─▶ dump ─▶ lock renewed ─▶ upload, switch ─▶ purge
 *        └▶ tidy ─▶ unlock
 *
 * Cost     of a stream that is only old, keys are passed over whose snapshot is younger than a quarter of what
 *          the stream keeps: so each is dumped four times in that at most.
 *
 * Invariants
 *   I1  A snapshot is switched to only if none has come since before its dump: a holder whose lock has ended
 *       cannot replace a later one by an earlier one. Nor does a router that lags behind the one before.
 *   I2  Only what a snapshot that is in force has, and all consumers have dealt with, is purged. So whatever
 *       ends where, snapshot and stream meet.
 */

import type { KeySnapshot } from '@homing/actors/listener'
import type { StreamFill, StreamStore } from '@homing/transport'

export interface SnapshotSource {
  /** Under which its publisher publishes. */
  readonly subject: string
  /** Undefined: it is not known whole, or could not be proven later. */
  take(): Promise<KeySnapshot | undefined>
}

export interface SnapshotPass {
  /**
   * `below`: the stream is not as full that one is due. `locked`: another router is at it. `lost`: the
   * lock ended.
   */
  readonly outcome: 'below' | 'locked' | 'done' | 'lost'
  readonly taken: number
  /** Keys of which none could be taken now. */
  readonly skipped: number
  readonly purgedMessages: number
  /** How long the stream keeps a message; undefined: it has no such limit. */
  readonly ageMsMax: number | undefined
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
  const fill = await store.fill()
  const { ageMsMax } = fill
  const isFull = fill.messages > thresholdMessages || isHalfFull(fill)
  const sum = { ...NOTHING, ageMsMax }
  if (!isFull && fill.ageMs <= half(ageMsMax)) return { outcome: 'below', ...sum }
  const lock = await store.lock()
  if (lock === undefined) return { outcome: 'locked', ...sum }
  try {
    for (const { subject, take } of sources) {
      const { revision, ageMs } = await store.named(subject)
      if (!isFull && revision > 0 && ageMs < half(half(ageMsMax))) continue
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

function isHalfFull({ messages, messagesMax, bytes, bytesMax }: StreamFill): boolean {
  return messages > half(messagesMax) || bytes > half(bytesMax)
}

/** Of no limit: infinite. */
function half(limit: number | undefined): number {
  return limit === undefined ? Number.POSITIVE_INFINITY : limit / 2
}
