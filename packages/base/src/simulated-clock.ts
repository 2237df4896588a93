/**
 * A clock that stands still until it is told to move. Timers fire in order of their due time,
 * equal times in order of creation; a timer set by a callback fires in the same `advance` when due.
 */

import type { Clock, Timer } from './clock.ts'

interface PendingTimer extends Timer {
  readonly dueMs: number
  readonly order: number
  readonly callback: () => void
}

export class SimulatedClock implements Clock {
  #nowMs = 0
  #order = 0
  readonly #pending = new Set<PendingTimer>()
  readonly #originWallMs: number

  /** `originWallMs`: what `wallMs` says at simulated time 0. */
  constructor(originWallMs = Date.UTC(2026, 0, 1)) {
    this.#originWallMs = originWallMs
  }

  nowMs(): number {
    return this.#nowMs
  }

  wallMs(): number {
    return this.#originWallMs + this.#nowMs
  }

  after(delayMs: number, callback: () => void): Timer {
    const timer: PendingTimer = {
      dueMs: this.#nowMs + Math.max(0, delayMs),
      order: this.#order++,
      callback,
      cancel: () => void this.#pending.delete(timer),
    }
    this.#pending.add(timer)
    return timer
  }

  /** Pending timers, fired or cancelled ones not counted. */
  get pendingCount(): number {
    return this.#pending.size
  }

  /** When the next timer is due, or undefined when none is pending. */
  get nextDueMs(): number | undefined {
    return this.#next()?.dueMs
  }

  /** Moves time forward by `ms` and fires what is due on the way, at its own time. */
  advance(ms: number): void {
    const target = this.#nowMs + ms
    for (let timer = this.#next(); timer !== undefined && timer.dueMs <= target; timer = this.#next()) {
      this.#pending.delete(timer)
      this.#nowMs = timer.dueMs
      timer.callback()
    }
    this.#nowMs = target
  }

  #next(): PendingTimer | undefined {
    let next: PendingTimer | undefined
    for (const timer of this.#pending) {
      if (
        next === undefined ||
        timer.dueMs < next.dueMs ||
        (timer.dueMs === next.dueMs && timer.order < next.order)
      ) {
        next = timer
      }
    }
    return next
  }
}
