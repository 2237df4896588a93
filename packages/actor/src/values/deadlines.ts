/**
 * Deadlines: all timers of a thread (asks, schedules, backoffs, stops) behind one timer of the clock.
 *
 * A binary heap of entries by due time; each entry knows its position, so that one is removed in
 * O(log n) without a search. Asks with equal timeouts arrive in order of their due time, which makes
 * adding O(1) in practice. The clock's timer is left armed when the earliest entry goes away: a
 * sequence of answered asks costs one timer per timeout, not one per ask. Timers are unref'd; the
 * system keeps the process alive.
 *
 * Reading the clock costs a third of an ask. So entries of one burst of microtasks get their time together,
 * at its end: never too early, and late by at most the length of the burst, in which no timer could fire
 * anyway.
 */

import type { Clock, Timer } from '@homing/base'

/** Something that expires. */
export interface Deadline {
  /** Before the entry has its time: the delay. */
  dueMs: number
  /** In the heap; −1: nowhere; −2 − n: it is the n-th of those that have no time yet. */
  position: number
  expire(): void
}

/** More entries of one burst than this leave no memory behind. */
const FRESH_KEPT_MAX = 1024

/** A timer may fire this much early, because of rounding. */
const EARLY_MS_MAX = 1e-6

export class Deadlines {
  readonly #clock: Clock
  readonly #heap: Deadline[] = []
  /** Entries of the burst that runs. */
  readonly #fresh: (Deadline | undefined)[] = []
  #freshCount = 0
  #timer: Timer | undefined
  #armedMs = Number.POSITIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    let fresh = 0
    for (const entry of this.#fresh) if (entry !== undefined) fresh++
    return this.#heap.length + fresh
  }

  /** Adds an entry that expires `delayMs` from now; never, when that is Infinity. */
  add(entry: Deadline, delayMs: number): void {
    if (delayMs === Number.POSITIVE_INFINITY) return
    if (this.#clock.afterBurst === undefined) {
      this.#insert(entry, delayMs, this.#clock.nowMs())
      return
    }
    if (this.#freshCount === 0) this.#clock.afterBurst(this.#endBurst)
    entry.dueMs = delayMs
    entry.position = -2 - this.#freshCount
    this.#fresh[this.#freshCount++] = entry
  }

  readonly #endBurst = (): void => {
    const count = this.#freshCount
    this.#freshCount = 0
    let nowMs = Number.NaN
    for (let i = 0; i < count; i++) {
      const entry = this.#fresh[i]
      if (entry === undefined) continue
      this.#fresh[i] = undefined
      if (Number.isNaN(nowMs)) nowMs = this.#clock.nowMs()
      this.#insert(entry, entry.dueMs, nowMs)
    }
    if (this.#fresh.length > FRESH_KEPT_MAX) this.#fresh.length = 0
  }

  #insert(entry: Deadline, delayMs: number, nowMs: number): void {
    entry.dueMs = nowMs + delayMs
    entry.position = this.#heap.length
    this.#heap.push(entry)
    this.#up(entry)
    if (entry.position === 0 && entry.dueMs < this.#armedMs) this.#arm(delayMs, entry.dueMs)
  }

  /** Removes an entry; does nothing when it expired or was removed already. */
  remove(entry: Deadline): void {
    const position = entry.position
    if (position === -1) return
    entry.position = -1
    if (position < -1) {
      this.#fresh[-2 - position] = undefined
      return
    }
    const last = this.#heap.pop()!
    if (last === entry) return
    last.position = position
    this.#heap[position] = last
    this.#up(last)
    this.#down(last)
  }

  /** Forgets every entry without expiring it. */
  clear(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#armedMs = Number.POSITIVE_INFINITY
    for (const entry of this.#heap) entry.position = -1
    for (const entry of this.#fresh) if (entry !== undefined) entry.position = -1
    this.#heap.length = 0
    this.#fresh.length = 0
    this.#freshCount = 0
  }

  #arm(delayMs: number, dueMs: number): void {
    this.#timer?.cancel()
    this.#armedMs = dueMs
    this.#timer = this.#clock.after(delayMs, this.#fire, { unref: true })
  }

  readonly #fire = (): void => {
    this.#timer = undefined
    this.#armedMs = Number.POSITIVE_INFINITY
    const nowMs = this.#clock.nowMs() + EARLY_MS_MAX
    // Entries added by what expires here are due later or wait for the next timer: no endless loop.
    for (let budget = this.#heap.length; budget > 0; budget--) {
      const first = this.#heap[0]
      if (first === undefined || first.dueMs > nowMs) break
      this.remove(first)
      first.expire()
    }
    const next = this.#heap[0]
    if (next !== undefined && next.dueMs < this.#armedMs) {
      this.#arm(Math.max(0, next.dueMs - this.#clock.nowMs()), next.dueMs)
    }
  }

  #up(entry: Deadline): void {
    const heap = this.#heap
    let position = entry.position
    while (position > 0) {
      const parentPosition = (position - 1) >> 1
      const parent = heap[parentPosition]!
      if (parent.dueMs <= entry.dueMs) break
      heap[position] = parent
      parent.position = position
      position = parentPosition
    }
    heap[position] = entry
    entry.position = position
  }

  #down(entry: Deadline): void {
    const heap = this.#heap
    const size = heap.length
    let position = entry.position
    for (;;) {
      let childPosition = 2 * position + 1
      if (childPosition >= size) break
      if (childPosition + 1 < size && heap[childPosition + 1]!.dueMs < heap[childPosition]!.dueMs)
        childPosition++
      const child = heap[childPosition]!
      if (child.dueMs >= entry.dueMs) break
      heap[position] = child
      child.position = position
      position = childPosition
    }
    heap[position] = entry
    entry.position = position
  }
}
