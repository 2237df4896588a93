/**
 * Fading mean: mean and variance of the last values. The first ones weigh alike; once there are as many as it
 * reaches back, older ones fade by the factor e within that number.
 */

export class FadingMean {
  /** Values since it was cleared. */
  count = 0
  /** 0 where there is none. */
  mean = 0
  readonly #reach: number
  /** Of a value, once there are as many as it reaches back. */
  readonly #weight: number
  #variance = 0
  /** Σ w² / (Σ w)² of the weights. */
  #weightSquares = 0

  /** `reach` ≥ 2, in values. */
  constructor(reach: number) {
    this.#reach = reach
    this.#weight = 1 / reach
  }

  /** ≥ 0; that of a sample. */
  get variance(): number {
    return this.#weightSquares < 1 ? this.#variance / (1 - this.#weightSquares) : 0
  }

  /** Values of equal weight that would say as much. */
  get effective(): number {
    return this.#weightSquares > 0 ? 1 / this.#weightSquares : 0
  }

  /** `value` is finite. */
  add(value: number): void {
    const weight = ++this.count < this.#reach ? 1 / this.count : this.#weight
    const kept = 1 - weight
    const delta = value - this.mean
    this.mean += weight * delta
    this.#variance = kept * (this.#variance + weight * delta * delta)
    this.#weightSquares = kept * kept * this.#weightSquares + weight * weight
  }

  clear(): void {
    this.count = this.mean = this.#variance = this.#weightSquares = 0
  }
}
