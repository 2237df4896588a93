/**
 * Snapshot pass: takes a snapshot of every worker key whose events are in the stream, and purges what they
 * stand for, once the stream has more messages than it should, or is half as full or half as old as it may
 * be: past that the broker discards the oldest, whether a snapshot has them or not. Of all routers at a
 * stream one does so at a time.
 *
 *   lock ─▶ for each key: revision ─▶ dump ─▶ lock renewed ─▶ upload, switch ─▶ purge
 *           (renewed while it dumps and uploads, too: kept-lock.ts)
 *        └▶ tidy ─▶ unlock
 *
 * Cost     of a stream that is only old, keys are passed over whose snapshot is younger than a quarter of
 *          what the stream keeps: so each is dumped four times in that at most.
 *
 * Invariants
 *   I1  A snapshot is switched to only if none has come since before its dump: a holder whose lock has ended
 *       cannot replace a later one by an earlier one. Nor does a router that lags behind the one before.
 *   I2  Only what a snapshot that is in force has, or its publisher gives, and all consumers have dealt with,
 *       is purged. So whatever ends where, snapshot and stream meet.
 */

import type { SnapshotAnswer } from '@homing/actors/listener'
import type { Clock } from '@homing/base'
import type { NamedSnapshot, StreamFill, StreamStore } from '@homing/transport'
import { KeptLock } from './kept-lock.ts'

export interface SnapshotSource {
  /** Under which its publisher publishes. */
  readonly subject: string
  /** Undefined: it is not known whole, or could not be proven later. `stored`: the one that is there. */
  take(stored: NamedSnapshot): Promise<SnapshotAnswer>
}

export interface SnapshotPass {
  /**
   * `below`: the stream is not as full that one is due. `locked`: another router is at it. `lost`: the lock
   * ended. `failed`: of a key, or of what is left over.
   */
  readonly outcome: 'below' | 'locked' | 'done' | 'lost' | 'failed'
  readonly taken: number
  /** Keys whose stored one says as much, or whose publisher gives snapshots itself. */
  readonly unchanged: number
  /** Keys of which none could be taken now. */
  readonly skipped: number
  /** Keys of which one could not be stored, or what it stands for not be purged. */
  readonly failed: number
  readonly purgedMessages: number
  /** How long the stream keeps a message; undefined: it has no such limit. */
  readonly ageMsMax: number | undefined
  /** The subject of the last key that had its turn; undefined: none had. */
  readonly last: string | undefined
}

/** Counters over all passes. */
export interface SnapshotCounts {
  readonly passes: Readonly<Record<SnapshotPass['outcome'], number>>
  readonly taken: number
  readonly unchanged: number
  readonly skipped: number
  readonly failed: number
  readonly purgedMessages: number
  readonly begunAgain: number
}

export interface PassOptions {
  readonly thresholdMessages: number
  /** In the order of their turns. */
  readonly sources: readonly SnapshotSource[]
  /**
   * Subjects of keys that this router has had in the last `keptMs`, for which the stream keeps a message;
   * undefined: it does not run for so long.
   */
  known(keptMs: number): ReadonlySet<string> | undefined
  readonly clock: Clock
  /** Something could not be done; the rest is. */
  warn(error: unknown, text: string): void
}

/** Then it is the broker, and not the key. */
const FAILED_IN_ROW_MAX = 3
const NOTHING = { taken: 0, unchanged: 0, skipped: 0, failed: 0, purgedMessages: 0 }

type Sum = { -readonly [Name in keyof Omit<SnapshotPass, 'outcome'>]: SnapshotPass[Name] }
type PassStore = Omit<StreamStore, 'close' | 'read'>

/** Rejects with StreamError if the stream cannot be looked at or locked. */
export async function snapshotPass(
  store: PassStore,
  { thresholdMessages, sources, known, clock, warn }: PassOptions,
): Promise<SnapshotPass> {
  const fill = await store.fill()
  const { ageMsMax } = fill
  const isFull = fill.messages > thresholdMessages || isHalfFull(fill)
  const sum: Sum = { ...NOTHING, ageMsMax, last: undefined }
  if (!isFull && fill.ageMs <= half(ageMsMax)) return { outcome: 'below', ...sum }
  const held = await store.lock()
  if (held === undefined) return { outcome: 'locked', ...sum }
  const lock = new KeptLock(held, clock)
  let outcome: 'done' | 'lost' | 'failed' = 'done'
  try {
    let failedInRow = 0
    for (const source of sources) {
      sum.last = source.subject
      try {
        const one = await passOne(store, lock, source, isFull ? undefined : half(half(ageMsMax)))
        if (one === 'lost') return { outcome: 'lost', ...sum }
        sum.taken += one.taken
        sum.unchanged += one.unchanged
        sum.skipped += one.skipped
        sum.purgedMessages += one.purgedMessages
        failedInRow = 0
      } catch (error) {
        outcome = 'failed'
        sum.failed++
        warn(error, 'a worker key has no new snapshot beside the stream')
        if (++failedInRow === FAILED_IN_ROW_MAX) break
      }
    }
    try {
      await store.tidy(known(ageMsMax ?? Number.POSITIVE_INFINITY))
    } catch (error) {
      outcome = 'failed'
      warn(error, 'what is left over beside the stream stays')
    }
    return { outcome, ...sum }
  } finally {
    // It ends by itself.
    await lock.release().catch((error: unknown) => warn(error, 'the lock for snapshots is not given back'))
  }
}

/** Those behind the key that had the last turn, then the others: a slow key holds up each other one once. */
export function turnsBehind(sources: readonly SnapshotSource[], last: string | undefined): SnapshotSource[] {
  const turn = sources.findIndex(({ subject }) => subject === last) + 1
  return [...sources.slice(turn), ...sources.slice(0, turn)]
}

/** `freshMs`: a snapshot that is younger will do; undefined: none will. */
async function passOne(
  store: PassStore,
  lock: KeptLock,
  { subject, take }: SnapshotSource,
  freshMs: number | undefined,
): Promise<typeof NOTHING | 'lost'> {
  const stored = await store.named(subject)
  if (freshMs !== undefined && stored.revision > 0 && stored.ageMs < freshMs) return NOTHING
  const answer = await lock.during(() => take(stored))
  if (!(await lock.renew())) return 'lost'
  if (answer === undefined) return { ...NOTHING, skipped: 1 }
  // A router that starts asks the publisher.
  if (answer === 'ofPublisher')
    return { ...NOTHING, unchanged: 1, purgedMessages: await store.purge(subject) }
  if (answer === 'unchanged')
    return { ...NOTHING, unchanged: 1, purgedMessages: await store.purge(subject, stored) }
  const replaced = await lock.during(() => store.replace(subject, answer, stored.revision))
  if (replaced === 'late') return 'lost'
  if (replaced === 'older') return { ...NOTHING, skipped: 1 }
  return { ...NOTHING, taken: 1, purgedMessages: await store.purge(subject, answer) }
}

function isHalfFull({ messages, messagesMax, bytes, bytesMax }: StreamFill): boolean {
  return messages > half(messagesMax) || bytes > half(bytesMax)
}

/** Of no limit: infinite. */
function half(limit: number | undefined): number {
  return limit === undefined ? Number.POSITIVE_INFINITY : limit / 2
}
