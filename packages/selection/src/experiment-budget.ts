/**
 * Experiment budget: what the guard may spend on experiments once nothing was found for QUIET_MS, in prompt
 * tokens that are computed only because the control arm decided.
 *
 *   tried   while the policy is trusted: control gets so few experiments that they cost QUIET_TRIED_SHARE of
 *           the prompts on average
 *   saved   for tests: QUIET_SAVED_SHARE of the prompts, at most for SAVED_TESTS tests
 *
 * Both together are below a thousandth of the prompt tokens. Before that time, and while something is off,
 * nothing is limited here. The limits follow from means, not from the request at hand, so both arms keep
 * getting requests of the same kinds.
 */

import { AUTO_CONSTANTS } from '@homing/load'
import { FadingMean, type FadingMeanState } from './fading-mean.ts'

const { QUIET_MS, QUIET_TRIED_SHARE, QUIET_SAVED_SHARE, SAVED_TESTS } = AUTO_CONSTANTS.guard
const { TEST_OUTCOMES, FIRST_TOKEN_OUTCOMES } = AUTO_CONSTANTS.guard

export interface ExperimentBudgetState {
  /** Since something was found; undefined: no decision was made yet. */
  readonly quietForMs: number | undefined
  readonly savedTokens: number
  readonly extra: FadingMeanState
  readonly prompt: FadingMeanState
}

export class ExperimentBudget {
  /** Undefined: no decision was made yet in this life. */
  #foundMs: number | undefined
  /** Of an earlier life, before the first decision of this one. */
  #quietForMs = 0
  #savedTokens = 0
  /** Extra tokens of experiments, if control decides. */
  readonly #extra = new FadingMean(FIRST_TOKEN_OUTCOMES)
  /** Tokens of the prompts of all decisions. */
  readonly #prompt = new FadingMean(FIRST_TOKEN_OUTCOMES)

  /** Affinity was found to be worse, or is trusted again. */
  found(nowMs: number): void {
    this.#foundMs = nowMs
    this.#savedTokens = 0
  }

  isQuiet(nowMs: number): boolean {
    return this.#foundMs !== undefined && nowMs - this.#foundMs >= QUIET_MS
  }

  /** A decision was made. `extraTokens`: of an experiment; undefined: it is none. */
  decided(promptTokens: number, extraTokens: number | undefined, nowMs: number): void {
    this.#foundMs ??= nowMs - this.#quietForMs
    const prompt = boundedTokens(promptTokens)
    this.#prompt.add(prompt)
    if (extraTokens !== undefined) this.#extra.add(boundedTokens(extraTokens))
    if (!this.isQuiet(nowMs)) return
    const saved = this.#savedTokens + QUIET_SAVED_SHARE * prompt
    this.#savedTokens = Math.min(SAVED_TESTS * this.#testTokens, saved)
  }

  /** Control decided in a test that the savings pay. */
  spend(extraTokens: number): void {
    this.#savedTokens -= boundedTokens(extraTokens)
  }

  get paysTest(): boolean {
    return this.#savedTokens >= this.#testTokens
  }

  get hasSavings(): boolean {
    return this.#savedTokens > 0
  }

  /** The share of the experiments that control may get, at most `share`. */
  triedShare(share: number): number {
    const extra = this.#extra.mean
    return extra > 0 ? Math.min(share, (QUIET_TRIED_SHARE * this.#prompt.mean) / extra) : share
  }

  state(nowMs: number): ExperimentBudgetState {
    const quietForMs = this.#foundMs === undefined ? undefined : nowMs - this.#foundMs
    return {
      quietForMs,
      savedTokens: this.#savedTokens,
      extra: this.#extra.state,
      prompt: this.#prompt.state,
    }
  }

  restore({ quietForMs = 0, savedTokens, extra, prompt }: ExperimentBudgetState): void {
    this.#quietForMs = quietForMs
    this.#savedTokens = savedTokens
    this.#extra.restore(extra)
    this.#prompt.restore(prompt)
  }

  /** What control costs in a test. */
  get #testTokens(): number {
    return TEST_OUTCOMES * this.#extra.mean
  }
}

/** Tokens as a number that can be added up. */
export function boundedTokens(tokens: number): number {
  return tokens > 0 ? Math.min(Number.MAX_SAFE_INTEGER, tokens) : 0
}
