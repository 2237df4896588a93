/**
 * PendingAsks: the asks of this thread that await their answer. Each has a deadline; one that another thread may answer
 * has a number too, by which the answer finds it. What comes under a number that has settled is discarded.
 */

import { AskTable } from './ask-table.ts'
import { type AskHost, PendingAsk } from './asks.ts'
import type { Deadlines } from './deadlines.ts'
import { ThreadDownError } from './errors.ts'
import { OP } from './frames.ts'
import { ID_SPAN } from './ids.ts'
import type { Counts } from './observe/counts.ts'
import type { Runtime } from './runtime.ts'

export class PendingAsks implements AskHost {
  readonly #runtime: Runtime
  readonly #counts: Counts
  readonly #deadlines: Deadlines
  /** Those that another thread may answer, by number. */
  readonly #remote = new AskTable<PendingAsk>()
  #lastNumber: number

  constructor(runtime: Runtime) {
    this.#runtime = runtime
    this.#counts = runtime.counts
    this.#deadlines = runtime.deadlines
    this.#lastNumber = runtime.uid * ID_SPAN
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
    this.#runtime.flight.note('askTimedOut', 0, ask.type, ask.timeoutMs)
  }

  cancelled(ask: PendingAsk): void {
    if (ask.thread === undefined) return
    const peer = this.#runtime.peers.get(ask.thread)
    peer?.send({ op: OP.CANCEL, target: 0, corr: ask.corr, body: 0, patches: 0 })
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

  /** No answer comes from `thread` any more: it fails them with `error`; it had not taken those of `untaken`. */
  threadLost(thread: string, error: ThreadDownError, untaken: ReadonlySet<number> | undefined): void {
    for (const ask of this.#remote.all()) {
      if (ask.thread !== thread) continue
      const isUntaken = untaken?.has(ask.corr) === true
      ask.reject(isUntaken ? new ThreadDownError(thread, 'it ended before it took the ask', false) : error)
    }
  }

  /** Fails all that another thread may answer. */
  close(): void {
    for (const ask of this.#remote.all()) ask.fail('terminated')
  }
}
