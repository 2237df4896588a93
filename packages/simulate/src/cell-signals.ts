/**
 * Cell signals: what engines tell of requests (the first token, the end), on its way to routers, in order of
 * time. Signals of one time stand in the order in which they were added.
 *
 * Cost: O(1) to add a signal that is later than all others, and to take one.
 */

import type { SimRequest } from './sim-request.ts'

/** Signals that were taken, beyond which their places are freed. */
const FREED_FROM = 1024

export interface Signal {
  readonly atMs: number
  readonly request: SimRequest
  /** The answer is whole; else its first token came. */
  readonly isLast: boolean
}

export class CellSignals {
  #signals: Signal[] = []
  #taken = 0

  /** When the next one was sent; infinite: none is under way. */
  get nextMs(): number {
    return this.#signals[this.#taken]?.atMs ?? Number.POSITIVE_INFINITY
  }

  add(atMs: number, request: SimRequest, isLast: boolean): void {
    const signals = this.#signals
    let at = signals.length
    while (at > this.#taken && signals[at - 1]!.atMs > atMs) at--
    if (at === signals.length) signals.push({ atMs, request, isLast })
    else signals.splice(at, 0, { atMs, request, isLast })
  }

  /** Takes those that were sent until then. */
  takeUntil(untilMs: number, take: (signal: Signal) => void): void {
    const signals = this.#signals
    let taken = this.#taken
    for (; taken < signals.length; taken++) {
      const signal = signals[taken]!
      if (signal.atMs > untilMs) break
      take(signal)
    }
    this.#taken = taken
    if (taken > FREED_FROM && taken * 2 > signals.length) {
      this.#signals = signals.slice(taken)
      this.#taken = 0
    }
  }
}
