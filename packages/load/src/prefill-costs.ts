/**
 * Prefill costs: how long the prefill of a worker takes, where a step with few tokens takes as long as one
 * with some more.
 *
 *   prefill   step ms · steps + token ms · charged + pair ms · new · (prompt − new / 2)
 *   charged   the new tokens, and what the last step lacks to the knee
 *
 * A step reads all weights, however few tokens are in it. Up to the knee, reading takes longer than
 * computing. The knee is the accelerator's operations ÷ its bytes from memory in a second: 150 to 400 tokens,
 * for dense models. It is not stated, and tokens may be guessed from text; so all of KNEES learn from the
 * same rows, and the one that predicted best counts. Without it, a fleet that mostly computes a hundred
 * tokens behind a cached prefix takes a thousand of them for half of what they are.
 *
 * The knee is that of the fleet. Another one counts once its recent errors are clearly smaller.
 *
 * Source   docs/decisions/0037-what-auto-weighs.md, section The knee.
 */

import { AUTO_CONSTANTS } from './auto-constants.ts'
import { type Coefficients, type CostKnowledge, LearnedCosts, PREFILL_PRIOR } from './engine-costs.ts'

const { KNEE_PRIOR, KNEE_ROWS_MIN, KNEE_FADE, KNEE_BETTER_SHARE, KNEE_RATIO_MAX } = AUTO_CONSTANTS.knee

/** In tokens. */
export const KNEES: readonly number[] = AUTO_CONSTANTS.knee.KNEES

/**
 * Prefill that was done: steps, tokens as each of KNEES charges them, and the sum of new · (prompt − new /
 * 2).
 */
interface PrefillWork {
  readonly steps: number
  readonly chargedTokens: readonly number[]
  readonly attention: number
}

export class PrefillCosts {
  readonly #candidates = KNEES.map(kneeTokens => ({
    kneeTokens,
    costs: new LearnedCosts(priorOf(kneeTokens)),
    /** Mean square of ln(predicted ÷ seen), of late. */
    error: 0,
  }))
  #best = this.#candidates[KNEES.indexOf(KNEE_PRIOR)]!
  #rows = 0

  /** Tokens below which a step takes no less. */
  get kneeTokens(): number {
    return this.#best.kneeTokens
  }

  of(workerSlot: number): Coefficients {
    return this.#best.costs.of(workerSlot)
  }

  /** Milliseconds to compute `newTokens` of a prompt alone. */
  cost(workerSlot: number, newTokens: number, promptTokens: number, stepTokens: number): number {
    return prefillCost(this.of(workerSlot), newTokens, promptTokens, stepTokens, this.kneeTokens)
  }

  knowledge(workerSlot: number): CostKnowledge {
    return this.#best.costs.knowledge(workerSlot)
  }

  /** Number of observations of the worker. */
  rows(workerSlot: number): number {
    return this.#best.costs.rows(workerSlot)
  }

  /** `weight`: 1 for an observation that is certain, less for one that is not. */
  observe(workerSlot: number, work: PrefillWork, observedMs: number, weight: number): void {
    const { steps, chargedTokens, attention } = work
    for (const [at, candidate] of this.#candidates.entries()) {
      const tokens = chargedTokens[at]!
      const [stepMs, tokenMs, pairMs] = candidate.costs.of(workerSlot)
      const ratio = (stepMs * steps + tokenMs * tokens + pairMs * attention) / observedMs
      const error = Math.log(Math.min(KNEE_RATIO_MAX, Math.max(1 / KNEE_RATIO_MAX, ratio))) ** 2
      if (error < Infinity) candidate.error += (1 - KNEE_FADE) * weight * (error - candidate.error)
      candidate.costs.observe(workerSlot, steps, tokens, attention, observedMs, weight)
    }
    if (++this.#rows < KNEE_ROWS_MIN) return
    const least = this.#candidates.reduce((best, each) => (each.error < best.error ? each : best))
    if (least.error < KNEE_BETTER_SHARE * this.#best.error) this.#best = least
  }

  forget(workerSlot: number): void {
    for (const { costs } of this.#candidates) costs.forget(workerSlot)
  }

  /** The time by which what was learned ages. */
  tick(nowMs: number): void {
    for (const { costs } of this.#candidates) costs.tick(nowMs)
  }

  /** Of the fleet, or of the worker in a slot, one for each of KNEES; undefined: nothing was seen of it. */
  image(workerSlot: number | 'fleet'): readonly Float64Array[] | undefined {
    const images: Float64Array[] = []
    for (const { costs } of this.#candidates) {
      const image = costs.image(workerSlot)
      if (image !== undefined) images.push(image)
    }
    return images.length === KNEES.length ? images : undefined
  }

  /** Takes over images that were taken `agoMs` ago, unless it knows more already. */
  restore(workerSlot: number | 'fleet', images: readonly Float64Array[], agoMs: number): void {
    for (const [at, { costs }] of this.#candidates.entries()) costs.restore(workerSlot, images[at]!, agoMs)
  }

  /** Observations, the position of the best of KNEES, and the errors of all. */
  get kneeImage(): Float64Array {
    const errors = this.#candidates.map(({ error }) => error)
    return Float64Array.of(this.#rows, this.#candidates.indexOf(this.#best), ...errors)
  }

  /** Takes over what is known of the knee, unless it knows more already. */
  restoreKnee(image: Float64Array): void {
    const [rows, best, ...errors] = image
    if (this.#rows > 0) return
    this.#rows = rows!
    this.#best = this.#candidates[best!]!
    for (const [at, candidate] of this.#candidates.entries()) candidate.error = errors[at]!
  }
}

/** Whether these are the numbers of `kneeImage`. */
export function isKneeImage(image: Float64Array): boolean {
  const [rows, best, ...errors] = image
  const isBest = Number.isSafeInteger(best) && best! >= 0 && best! < KNEES.length
  const isRows = Number.isSafeInteger(rows) && rows! >= 0
  const errorMax = Math.log(KNEE_RATIO_MAX) ** 2
  return isBest && isRows && errors.length === KNEES.length && errors.every(e => e >= 0 && e <= errorMax)
}

/** Few tokens take as long with every knee. */
function priorOf(kneeTokens: number): Coefficients {
  const [stepMs, tokenMs, pairMs] = PREFILL_PRIOR
  return [stepMs + tokenMs * (KNEE_PRIOR - kneeTokens), tokenMs, pairMs]
}

/** `newTokens` > 0, and what the last of their steps has less than `kneeTokens`. */
export function chargedTokens(newTokens: number, stepTokens: number, kneeTokens: number): number {
  const last = newTokens - (Math.ceil(newTokens / stepTokens) - 1) * stepTokens
  return newTokens + shortOfKnee(last, stepTokens, kneeTokens)
}

/** What a step with so many tokens has less than `kneeTokens`, or than it can hold. */
export function shortOfKnee(tokens: number, stepTokens: number, kneeTokens: number): number {
  return Math.max(0, Math.min(stepTokens, kneeTokens) - tokens)
}

/** Milliseconds to compute `newTokens` of a prompt alone. */
export function prefillCost(
  coefficients: Coefficients,
  newTokens: number,
  promptTokens: number,
  stepTokens: number,
  kneeTokens: number,
): number {
  return (
    coefficients[0] * Math.ceil(newTokens / stepTokens) +
    coefficients[1] * chargedTokens(newTokens, stepTokens, kneeTokens) +
    coefficients[2] * newTokens * (promptTokens - newTokens / 2)
  )
}
