/**
 * Drain rate: how fast a queue empties, and which part of that each class or tenant gets, from recent
 * placements.
 *
 * Time counts only while requests wait: an empty queue does not show how fast a full one drains. Old figures
 * fade with FADE_MS.
 */

/** After this time a figure counts for 1/e. */
const FADE_MS = 30_000
/** With less time seen than this, the rate is not known. */
const SEEN_MS_MIN = 100

/** A sum whose parts fade with age. */
export class FadingSum {
  #sum = 0
  #atMs = Number.NEGATIVE_INFINITY

  add(value: number, nowMs: number): void {
    this.#sum = this.at(nowMs) + value
    this.#atMs = Math.max(this.#atMs, nowMs)
  }

  at(nowMs: number): number {
    return this.#sum === 0 ? 0 : this.#sum * Math.exp(-Math.max(0, nowMs - this.#atMs) / FADE_MS)
  }
}

export class DrainRate {
  readonly #tokens = new FadingSum()
  readonly #waitedMs = new FadingSum()
  #sinceMs: number | undefined

  /** From now on requests wait, or none does. */
  waits(isWaiting: boolean, nowMs: number): void {
    this.#count(nowMs)
    this.#sinceMs = isWaiting ? nowMs : undefined
  }

  /** A request that had waited was placed. */
  drained(uncachedTokens: number, nowMs: number): void {
    this.#count(nowMs)
    this.#tokens.add(uncachedTokens, nowMs)
  }

  /** undefined: not seen for long enough, or nothing moved. */
  tokensPerMs(nowMs: number): number | undefined {
    this.#count(nowMs)
    const waitedMs = this.#waitedMs.at(nowMs)
    const tokens = this.#tokens.at(nowMs)
    return waitedMs < SEEN_MS_MIN || tokens < 1e-6 ? undefined : tokens / waitedMs
  }

  #count(nowMs: number): void {
    if (this.#sinceMs === undefined || nowMs <= this.#sinceMs) return
    // What the milliseconds since then sum up to after each has faded.
    this.#waitedMs.add(FADE_MS * (1 - Math.exp((this.#sinceMs - nowMs) / FADE_MS)), nowMs)
    this.#sinceMs = nowMs
  }
}
