/** ThreadSlot: one thread beside main over all its lives, as main keeps it. */

import type { ThreadBounds } from '../contract/settings.ts'
import type { ThreadStatus } from '../contract/types.ts'
import type { Disposal } from '../runtime/runtime.ts'
import type { PastLife, ThreadEnd, ThreadEndReason } from '../values/thread-end.ts'
import { recordOf } from '../values/thrown.ts'
import type { HostedThread } from './thread-host.ts'

const RESTART_WINDOW_MS = 60_000
/** Lives whose ends are told to the next. */
const PAST_LIVES_MAX = 16

/** How a thread beside main stands. */
export interface ThreadStanding {
  readonly name: string
  readonly state: Exclude<ThreadStatus['state'], 'ended'>
  /** Times it was replaced within the last minute. */
  readonly restartsLately: number
}

export class ThreadSlot {
  readonly name: string
  /** Undefined: it is of a pool. */
  readonly bounds: ThreadBounds | undefined
  /** The present life; 0 between two. */
  uid = 0
  /** It has been linked with others, or is about to be. */
  hasLived = false
  worker: HostedThread | undefined = undefined
  lastError: unknown = undefined
  isStopping = false
  /** It is not asked to release anything before it ends. */
  isKilled = false
  /** It was not told to end. */
  hasDied = false
  /** Its end, once requested; a shutdown joins the end of a dedicated thread. */
  stopping: Promise<Disposal> | undefined = undefined
  isReady = false
  /** Its heap is full: it is about to be replaced. */
  isRecycling = false
  /** Why it is being ended, when that is known before its end. */
  endReason: ThreadEndReason = 'threadExit'
  /** The lives before the present one, oldest first: the last PAST_LIVES_MAX. */
  readonly pastLives: PastLife[] = []
  /** Settled at the next ready or final end. */
  whenReady = quietResolvers()
  /** The present life, or the last. */
  #lastUid = 0
  /** When it was replaced, within the last minute. */
  #restartTimesMs: number[] = []

  constructor(name: string, bounds: ThreadBounds | undefined) {
    this.name = name
    this.bounds = bounds
  }

  /** It ends with its one actor. */
  get isDedicated(): boolean {
    return this.bounds !== undefined
  }

  /** How long it may give no sign of life, where the others may `systemMs`. */
  hungAfterMs(systemMs: number): number {
    return Math.max(systemMs, this.bounds?.hungAfterMs ?? 0)
  }

  get standing(): ThreadStanding {
    return { name: this.name, restartsLately: this.#restartTimesMs.length, state: this.#state }
  }

  get #state(): ThreadStanding['state'] {
    if (this.isStopping) return 'stopping'
    if (this.uid === 0) return 'replacing'
    if (this.endReason === 'threadHung') return 'hung'
    return this.isReady ? 'running' : 'starting'
  }

  /** How its present life ends, as far as main knows. */
  get end(): ThreadEnd {
    const { endReason: reason, lastError } = this
    return { reason, ...(lastError === undefined ? {} : { error: recordOf(lastError) }) }
  }

  /** True while nothing is known against its present life. */
  get isServing(): boolean {
    return this.isReady && !this.isStopping && !this.isRecycling && this.endReason === 'threadExit'
  }

  /** True when it was replaced within the last minute. */
  get wasReplaced(): boolean {
    return this.#restartTimesMs.length > 0
  }

  /** A life begins. */
  begin(uid: number): void {
    if (this.hasLived) this.pastLives.push({ uid: this.#lastUid, end: this.end })
    if (this.pastLives.length > PAST_LIVES_MAX) this.pastLives.shift()
    this.uid = uid
    this.#lastUid = uid
    this.hasLived = true
    this.isReady = false
    this.isRecycling = false
    this.lastError = undefined
    this.endReason = 'threadExit'
  }

  /**
   * Counts a replacement: its number within the last minute, from 1. Undefined when there were `max` already.
   */
  countRestart(nowMs: number, max: number): number | undefined {
    this.#restartTimesMs = this.#restartTimesMs.filter(timeMs => nowMs - timeMs < RESTART_WINDOW_MS)
    if (this.#restartTimesMs.length >= max) return undefined
    this.#restartTimesMs.push(nowMs)
    return this.#restartTimesMs.length
  }

  /** Somebody may wait for the next ready again. */
  awaitReady(): void {
    this.whenReady = quietResolvers()
  }
}

function quietResolvers(): PromiseWithResolvers<void> {
  const resolvers = Promise.withResolvers<void>()
  // Often no caller waits; an unhandled rejection must not count as a failure of its own.
  resolvers.promise.catch(() => {})
  return resolvers
}
