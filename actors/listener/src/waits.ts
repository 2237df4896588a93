/**
 * The waits of a follower: at most one for its next move, and one for the time when the trust may change.
 * One timer serves both; a wake-up of an earlier wait is dropped by its number.
 */

/**
 * What each wait is for. `replies`: the silence that ends an attempt. `attempt`: the pause before the next
 * attempt. `retry`: the next try of something refused. `check`: the next check that nothing is missing.
 * `rebuild`: the start of a rebuild that is due. `compare`: the next look whether the replay socket agrees
 * with the live one again. `reconcile`: the end of keeping the two apart.
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

  /** Replaces the wait for the move before. */
  set(to: Move, delayMs: number): void {
    this.#move = { to, dueMs: this.#nowMs() + delayMs }
    this.#arm()
  }

  cancel(): void {
    this.#move = undefined
    this.#arm()
  }

  /** Undefined: the trust does not change by time alone. */
  setTrust(delayMs: number | undefined): void {
    const dueMs = delayMs === undefined ? undefined : this.#nowMs() + delayMs
    if (dueMs === this.#trustDueMs) return
    this.#trustDueMs = dueMs
    this.#arm()
  }

  /**
   * What is due: a look at the trust, or a move. A move may set the next move to the same time; a look does
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
