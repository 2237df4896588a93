/**
 * Prefill costs: how long the prefill of a worker takes, where a step with few tokens takes no less than one with some more.
 *
 *   prefill   p0 · steps + p1 · m + p2 · n·(prompt − n/2)    m = n, and what the last step has less than the knee
 *
 * A step reads all weights, however few tokens are in it. Up to the knee, which is the accelerator's operations ÷ its bytes from memory
 * in a second (150 to 400 tokens, for dense models), that takes longer than to compute them. Where is not known, and tokens may be guessed from text,
 * so all of KNEES learn from the same rows, and the one that predicted best counts. Without it a fleet that mostly computes a hundred tokens
 * behind a cached prefix takes a thousand of them for half of what they are.
 *
 * The knee is that of the fleet. Another one counts once its errors of late are clearly smaller.
 */

import { type Coefficients, type CostKnowledge, LearnedCosts, PREFILL_PRIOR } from './engine-costs.ts'

/** In tokens. */
export const KNEES: readonly number[] = [0, 64, 128, 256]
/** Counts until another one predicts better. */
const KNEE_PRIOR = 256
/** Rows before the knee moves. */
const ROWS_MIN = 32
/** Kept of the weight of all earlier errors when one comes. */
const FADE = 0.985
/** Errors of another knee, as a part of those of the present one, from which on it counts. */
const BETTER = 0.7
/** Errors count up to so many times too slow or too fast. */
const RATIO_MAX = 8

/** Prefill that was done: steps, tokens as each of KNEES charges them, and Σ n·(prompt − n/2). */
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

  /** `weight`: 1 for an observation that is certain, less for one that is not. */
  observe(workerSlot: number, work: PrefillWork, observedMs: number, weight: number): void {
    const { steps, chargedTokens, attention } = work
    for (const [at, candidate] of this.#candidates.entries()) {
      const tokens = chargedTokens[at]!
      const [p0, p1, p2] = candidate.costs.of(workerSlot)
      const ratio = (p0 * steps + p1 * tokens + p2 * attention) / observedMs
      const error = Math.log(Math.min(RATIO_MAX, Math.max(1 / RATIO_MAX, ratio))) ** 2
      if (error < Infinity) candidate.error += (1 - FADE) * weight * (error - candidate.error)
      candidate.costs.observe(workerSlot, steps, tokens, attention, observedMs, weight)
    }
    if (++this.#rows < ROWS_MIN) return
    const least = this.#candidates.reduce((best, each) => (each.error < best.error ? each : best))
    if (least.error < BETTER * this.#best.error) this.#best = least
  }

  forget(workerSlot: number): void {
    for (const { costs } of this.#candidates) costs.forget(workerSlot)
  }
}

/** Few tokens take as long with every knee. */
function priorOf(kneeTokens: number): Coefficients {
  const [p0, p1, p2] = PREFILL_PRIOR
  return [p0 + p1 * (KNEE_PRIOR - kneeTokens), p1, p2]
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
  p: Coefficients,
  newTokens: number,
  promptTokens: number,
  stepTokens: number,
  kneeTokens: number,
): number {
  return (
    p[0] * Math.ceil(newTokens / stepTokens) +
    p[1] * chargedTokens(newTokens, stepTokens, kneeTokens) +
    p[2] * newTokens * (promptTokens - newTokens / 2)
  )
}
