/**
 * Usual times: how long requests of about the same size take, so that the times of different requests can be
 * compared: each is divided by the mean of its class.
 *
 *   first token    by log2 of the prompt's tokens
 *   whole answer   by log2 of the prompt's and of the output's tokens; a length that is not known counts as 0
 *
 * Bounded: LENGTH_CLASSES means of first tokens, and the square of that of answers, made when needed. A time
 * counts as at most GUARD_OUTLIER_TIMES the mean.
 */

import { AUTO_CONSTANTS } from '@homing/load'
import { FadingMean, type FadingMeanState } from './fading-mean.ts'

const { GUARD_OUTLIER_TIMES, FIRST_TOKEN_MS_MIN, FIRST_TOKEN_MS_MAX } = AUTO_CONSTANTS.guard
const { LENGTH_CLASSES, LENGTH_OUTCOMES_MIN, LENGTH_OUTCOMES } = AUTO_CONSTANTS.guard

/** Classes with their means. */
export type UsualTimesState = readonly (readonly [index: number, mean: FadingMeanState])[]

export class UsualTimes {
  /** By class; those of first tokens before those of answers. */
  readonly #means: (FadingMean | undefined)[] = Array.from(
    { length: LENGTH_CLASSES * (LENGTH_CLASSES + 1) },
    () => undefined,
  )

  /** 1 ÷ the mean time to the first token; 0 if that is not known. */
  firstTokenWeight(promptTokens: number): number {
    return weightOf(this.#means[classOf(promptTokens)])
  }

  /** Counts a time to the first token. Returns what it counts as, in ms. */
  firstToken(promptTokens: number, ms: number): number {
    return addTo(this.#meanOf(classOf(promptTokens)), ms)
  }

  /**
   * Counts the time of a whole answer. Returns it ÷ the mean before, at most GUARD_OUTLIER_TIMES; 0: that is
   * not known.
   */
  answer(promptTokens: number, outputTokens: number, ms: number): number {
    const output = 1 + classOf(outputTokens)
    const mean = this.#meanOf(LENGTH_CLASSES * output + classOf(promptTokens))
    const weight = weightOf(mean)
    return weight * addTo(mean, ms)
  }

  get state(): UsualTimesState {
    return this.#means.flatMap((mean, index) => (mean === undefined ? [] : [[index, mean.state] as const]))
  }

  restore(state: UsualTimesState): void {
    for (const [index, mean] of state) this.#meanOf(index).restore(mean)
  }

  #meanOf(index: number): FadingMean {
    this.#means[index] ??= new FadingMean(LENGTH_OUTCOMES)
    return this.#means[index]
  }
}

/** `ms` within the times that count. */
export function boundedMs(ms: number): number {
  return Math.min(FIRST_TOKEN_MS_MAX, Math.max(FIRST_TOKEN_MS_MIN, ms))
}

function addTo(mean: FadingMean, ms: number): number {
  const bounded = mean.count === 0 ? boundedMs(ms) : Math.min(GUARD_OUTLIER_TIMES * mean.mean, boundedMs(ms))
  mean.add(bounded)
  return bounded
}

function weightOf(mean: FadingMean | undefined): number {
  return mean !== undefined && mean.count >= LENGTH_OUTCOMES_MIN && mean.mean > 0 ? 1 / mean.mean : 0
}

function classOf(tokens: number): number {
  if (!(tokens >= 1)) return 0
  return tokens < 2 ** 32 ? 31 - Math.clz32(tokens) : LENGTH_CLASSES - 1
}
