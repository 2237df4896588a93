/**
 * The waits of a follower: at most one for its next move, and beside it one for the time when the trust may
 * be another. One timer serves both; what wakes for an earlier one is dropped by its number.
 */

/**
 * `replies`: the silence that ends an attempt. `attempt`: the pause before the next one. `retry`: until
 * something refused is tried again. `check`: until a replay is to show that nothing is missing. `rebuild`:
 * until one that is due may begin. `compare`: until it is seen whether the replay socket agrees with the live
 * one again. `reconcile`: until two publishers are followed again.
 */
export type Move = 'replies' | 'attempt' | 'retry' | 'check' | 'rebuild' | 'compare' | 'reconcile'

export class Waits {
  readonly #nowMs: () => number
  readonly #setWait: (wait: number, delayMs: number) => void
  #number = 0
  #move: { readonly to: Move; readonly dueMs: number } | undefined
  #trustDueMs: number | undefined

  /** `setWait` wakes with the number after the delay, unless it is called again before. */
  constructor(nowMs: () => number, setWait: (wait: number, delayMs: number) => void) {
    this.#nowMs = nowMs
    this.#setWait = setWait
  }

  /** Replaces the move that was waited for. */
  set(to: Move, delayMs: number): void {
    this.#move = { to, dueMs: this.#nowMs() + delayMs }
    this.#arm()
  }

  cancel(): void {
    this.#move = undefined
    this.#arm()
  }

  /** Undefined: it will not be another one by time alone. */
  setTrust(delayMs: number | undefined): void {
    const dueMs = delayMs === undefined ? undefined : this.#nowMs() + delayMs
    if (dueMs === this.#trustDueMs) return
    this.#trustDueMs = dueMs
    this.#arm()
  }

  /**
   * What is due: a look at the trust, or a move. A move may set the next one to the same time, a look does
   * not.
   */
  over(number: number): Move | 'trust' | undefined {
    if (number !== this.#number) return undefined
    const nowMs = this.#nowMs()
    const { to, dueMs } = this.#move ?? { to: undefined, dueMs: Number.POSITIVE_INFINITY }
    if (this.#trustDueMs !== undefined && this.#trustDueMs <= nowMs && this.#trustDueMs <= dueMs) {
      this.setTrust(undefined)
      return 'trust'
    }
    if (dueMs > nowMs) {
      this.#arm()
      return undefined
    }
    this.#move = undefined
    this.#arm()
    return to
  }

  #arm(): void {
    this.#number++
    const dueMs = Math.min(
      this.#move?.dueMs ?? Number.POSITIVE_INFINITY,
      this.#trustDueMs ?? Number.POSITIVE_INFINITY,
    )
    if (dueMs < Number.POSITIVE_INFINITY) this.#setWait(this.#number, Math.max(0, dueMs - this.#nowMs()))
  }
}
