/**
 * Fading mean: mean and variance of recent values. The first `reach` values have equal weight; after that, a
 * value fades by the factor e within `reach` values.
 */

/** Count, mean, variance, and the sum of the squares of the weights. */
export type FadingMeanState = readonly [count: number, mean: number, variance: number, weightSquares: number]

export class FadingMean {
  /** Values since it was cleared. */
  count = 0
  /** 0 without values. */
  mean = 0
  readonly #reach: number
  /** Weight of a new value, once there are `reach` of them. */
  readonly #weight: number
  #variance = 0
  /** Σ w² / (Σ w)² of the weights. */
  #weightSquares = 0

  /** `reach` ≥ 2, in values. */
  constructor(reach: number) {
    this.#reach = reach
    this.#weight = 1 / reach
  }

  /** Sample variance, ≥ 0. */
  get variance(): number {
    return this.#weightSquares < 1 ? this.#variance / (1 - this.#weightSquares) : 0
  }

  /** Effective sample size: as many values of equal weight. */
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

  /** What `restore` takes, of a mean with the same reach. */
  get state(): FadingMeanState {
    return [this.count, this.mean, this.#variance, this.#weightSquares]
  }

  restore([count, mean, variance, weightSquares]: FadingMeanState): void {
    this.count = count
    this.mean = mean
    this.#variance = variance
    this.#weightSquares = weightSquares
  }
}
