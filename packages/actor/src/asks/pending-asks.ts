/**
 * PendingAsks: the asks of this thread that await an answer. Each has a deadline; an ask that another thread
 * may answer also has a number, by which the answer finds it. An answer to a settled number is discarded.
 */

import type { Counts } from '../observe/counts.ts'
import type { FlightRecorder } from '../observe/flight.ts'
import type { Deadlines } from '../values/deadlines.ts'
import { ThreadDownError } from '../values/errors.ts'
import { ID_SPAN } from '../values/ids.ts'
import type { ThreadEnd } from '../values/thread-end.ts'
import { AskTable } from './ask-table.ts'
import { type AskHost, PendingAsk } from './asks.ts'

/** The thread whose asks these are. */
export interface AskingThread {
  readonly uid: number
  readonly deadlines: Deadlines
  readonly counts: Counts
  readonly flight: FlightRecorder
  /** Tells another thread that the asker no longer waits for the answer to this number. */
  cancelAsk(thread: string, corr: number): void
}

export class PendingAsks implements AskHost {
  readonly #thread: AskingThread
  readonly #counts: Counts
  readonly #deadlines: Deadlines
  /** Those that another thread may answer, by number. */
  readonly #remote = new AskTable<PendingAsk>()
  #lastNumber: number

  constructor(thread: AskingThread) {
    this.#thread = thread
    this.#counts = thread.counts
    this.#deadlines = thread.deadlines
    this.#lastNumber = thread.uid * ID_SPAN
  }

  open(
    actor: string,
    type: string,
    timeoutMs: number,
    resolve: (value: never) => void,
    reject: (error: unknown) => void,
  ): PendingAsk {
    const ask = new PendingAsk(this, actor, type, timeoutMs, resolve, reject)
    this.#counts.asksPending++
    this.#deadlines.add(ask, timeoutMs)
    return ask
  }

  settled(ask: PendingAsk): void {
    this.#counts.asksPending--
    this.#deadlines.remove(ask)
    if (ask.corr !== 0) this.#remote.delete(ask.corr)
  }

  timedOut(ask: PendingAsk): void {
    this.#counts.asksTimedOut++
    this.#thread.flight.note('askTimedOut', 0, ask.type, ask.timeoutMs)
  }

  cancelled(ask: PendingAsk): void {
    if (ask.thread !== undefined) this.#thread.cancelAsk(ask.thread, ask.corr)
  }

  /** The number of an ask, which it gets now unless it has one. */
  numberOf(ask: PendingAsk): number {
    if (ask.corr === 0) {
      this.#lastNumber++
      ask.corr = this.#lastNumber
      // Nobody waits for one that has settled: an answer to its number is discarded.
      if (!ask.isSettled) this.#remote.add(ask)
    }
    return ask.corr
  }

  /** The ask with a number, unless it has settled. */
  get(corr: number): PendingAsk | undefined {
    return this.#remote.get(corr)
  }

  /** How many another thread may answer. */
  get remoteCount(): number {
    return this.#remote.size
  }

  /**
   * No answer comes from `thread` any more: it fails them with `error`; it had not taken those of `untaken`.
   */
  threadLost(
    thread: string,
    error: ThreadDownError,
    untaken: ReadonlySet<number> | undefined,
    end: ThreadEnd | undefined,
  ): void {
    for (const ask of this.#remote.all()) {
      if (ask.thread !== thread) continue
      const isUntaken = untaken?.has(ask.corr) === true
      ask.reject(
        isUntaken ? new ThreadDownError(thread, 'it ended before it took the ask', false, end) : error,
      )
    }
  }

  /** Fails all that another thread may answer. */
  close(): void {
    for (const ask of this.#remote.all()) ask.fail('terminated')
  }
}
