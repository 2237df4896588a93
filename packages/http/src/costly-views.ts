/**
 * Costly views: answers that are as large as the fleet, made on the thread that serves requests.
 *
 *   gather (other actors are asked) ──▶ wait for the turn and the rest ──▶ write, in slices ──▶ rest
 *
 * One view is written at a time, in slices of SLICE_MS, between which requests have their turn. After that
 * the thread is left to requests for REST_TIMES as long as the writing took, so that views take a part of its
 * time, however often they are asked for.
 */

import type { Clock } from '@homing/base'

const SLICE_MS = 4
const REST_TIMES = 3
/** A client that asks for a very large view waits no longer than this for the one before. */
const REST_MS_MAX = 2000

/** Long work in slices. */
export class Slices {
  readonly #clock: Pick<Clock, 'nowMs' | 'after'>
  #beganMs: number
  #workMs = 0

  constructor(clock: Pick<Clock, 'nowMs' | 'after'>) {
    this.#clock = clock
    this.#beganMs = clock.nowMs()
  }

  /** Work so far, without the turns of others, in milliseconds. */
  get workMs(): number {
    return this.#workMs + this.#clock.nowMs() - this.#beganMs
  }

  /** To be awaited between two pieces of work: undefined, or resolves when others have had their turn. */
  next(): Promise<void> | undefined {
    const nowMs = this.#clock.nowMs()
    const tookMs = nowMs - this.#beganMs
    if (tookMs < SLICE_MS) return undefined
    this.#workMs += tookMs
    // Until others have had their turn, nothing is counted.
    this.#beganMs = nowMs
    return new Promise(resolve =>
      this.#clock.after(0, () => {
        this.#beganMs = this.#clock.nowMs()
        resolve()
      }),
    )
  }
}

export class CostlyViews {
  readonly #clock: Clock
  #isWriting = false
  /** Those that wait for their turn. Shared ones are few, and go first: a scrape has a time limit. */
  readonly #waiting: { readonly shared: (() => void)[]; readonly single: (() => void)[] } = {
    shared: [],
    single: [],
  }
  #freeAtMs = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * The same answer for all who ask before the gathering for it begins, which is after the one before is
   * written. It rejects as `gather` and `write` do.
   */
  shared<S, T>(gather: () => Promise<S>, write: (state: S, slices: Slices) => Promise<T>): () => Promise<T> {
    let last: Promise<unknown> = Promise.resolve()
    let coming: Promise<T> | undefined
    return () => {
      coming ??= last.then(() => {
        coming = undefined
        return this.#make(gather, write, 'shared')
      })
      last = coming.catch(() => undefined)
      return coming
    }
  }

  /** One for the one who asks. Rejects as `gather` and `write` do. */
  make<S, T>(gather: () => Promise<S>, write: (state: S, slices: Slices) => Promise<T>): Promise<T> {
    return this.#make(gather, write, 'single')
  }

  async #make<S, T>(
    gather: () => Promise<S>,
    write: (state: S, slices: Slices) => Promise<T>,
    line: 'shared' | 'single',
  ): Promise<T> {
    const state = await gather()
    if (this.#isWriting) await new Promise<void>(resolve => this.#waiting[line].push(resolve))
    this.#isWriting = true
    try {
      return await this.#write(slices => write(state, slices))
    } finally {
      const next = this.#waiting.shared.shift() ?? this.#waiting.single.shift()
      // The next in line has the turn at once, so that no newcomer gets it.
      if (next === undefined) this.#isWriting = false
      else next()
    }
  }

  async #write<T>(write: (slices: Slices) => Promise<T>): Promise<T> {
    const restMs = this.#freeAtMs - this.#clock.nowMs()
    if (restMs > 0) await new Promise<void>(resolve => this.#clock.after(restMs, resolve))
    const slices = new Slices(this.#clock)
    try {
      return await write(slices)
    } finally {
      this.#freeAtMs = this.#clock.nowMs() + Math.min(REST_MS_MAX, REST_TIMES * slices.workMs)
    }
  }
}
