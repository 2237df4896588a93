/**
 * Custom selection: user code that replaces the policy. It has up to three steps, each a plain function of
 * the data of a worker key.
 *
 *   filter  ─▶  score  ─▶  pick
 *   may it take the request?   its cost, the lowest wins   which one, where that is not the cheapest
 *
 * Bounds   the functions run on the thread of the router, once per candidate and request; they must not wait.
 *          Each candidate becomes a record, so a decision takes a few times as long as with a policy.
 * Fails    if a function throws, or its answer cannot be used, only this request is refused, with
 *          CustomSelectionError.
 */

import { CodedError, type Random } from '@homing/base'
import {
  POLICY_TERMS_MAX,
  type Policy,
  type PolicyRule,
  type PolicyWeights,
  type TermDescription,
} from './policy.ts'
import type { Candidates, CandidateWorker, ChoiceTerms, SelectionRequest } from './types.ts'

/** A worker key that may take the request, with its data. */
export interface SelectionCandidate extends CandidateWorker {
  /** Leading blocks of the prompt that it holds. */
  readonly overlapBlocks: number
  /** Weight of these blocks, 0 … 1. */
  readonly creditFactor: number
  /** Tokens of this prompt that it would have to compute; at least 1. */
  readonly newTokens: number
  /** Tokens of other prompts that it has yet to compute. */
  readonly queuedPrefillTokens: number
  /** The sum of the last two. */
  readonly prefillTokens: number
  /** Blocks in use by its running requests. */
  readonly activeBlocks: number
  /** Blocks of this prompt that are not in use there. */
  readonly newBlocks: number
  readonly activeRequests: number
  /**
   * Factor from the request's preferred taints: below 1 if it prefers this worker, above 1 if it avoids it.
   * Not part of the score unless your function uses it.
   */
  readonly preference: number
}

/** The request that is placed. */
export interface SelectedRequest {
  /** Model name given by the client; '' if none. */
  readonly model: string
  /** False: an image, or a relayed route. Then its tokens and overlap are not known, and only load counts. */
  readonly isPromptKnown: boolean
  /** 1 if the prompt is not known. */
  readonly promptTokens: number
  readonly blockSizeTokens: number
}

export interface CustomSelection {
  /** Its name in receipts. */
  readonly name: string
  /** Unit of the score, as receipts show it: 'tokens', 'ms', … */
  readonly unit: string
  /** False: the candidate is left out. Default: none is. */
  readonly filter?: (candidate: SelectionCandidate, request: SelectedRequest) => boolean
  /** The cost of a candidate, a finite number; lower is better. */
  readonly score: (candidate: SelectionCandidate, request: SelectedRequest) => number
  /**
   * Returns the index of the winner; `costs[i]` is the cost of candidate i. Default: the cheapest, or softmax
   * if the temperature is above 0.
   */
  readonly pick?: (
    candidates: readonly SelectionCandidate[],
    costs: readonly number[],
    request: SelectedRequest,
    random: Random,
  ) => number
}

/** A custom selection failed, or its answer cannot be used; the request is refused. */
export class CustomSelectionError extends CodedError {
  readonly code = 'HOMING_SELECTION_CUSTOM'

  constructor(selection: string, step: string, reason: string, cause?: unknown) {
    super(
      `cannot place the request: ${step} of the selection ${JSON.stringify(selection)} ${reason}`,
      { selection, step },
      { cause },
    )
  }
}

/** Returns the same object, typed. Throws TypeError if it is not a valid selection. */
export function defineSelection(selection: CustomSelection): CustomSelection {
  const fault = faultOfSelection(selection)
  if (fault !== undefined) throw new TypeError(`cannot define a selection: ${fault}`)
  return selection
}

/** Why a value is not a valid selection, for people; undefined: it is valid. */
export function faultOfSelection(value: unknown): string | undefined {
  if (value === null || typeof value !== 'object') return 'it is not an object with name, unit and score'
  const { name, unit, filter, score, pick } = value as Record<string, unknown>
  if (typeof name !== 'string' || name === '') return 'name is not a text'
  if (typeof unit !== 'string') return 'unit is not a text'
  if (typeof score !== 'function') return 'score is not a function'
  if (filter !== undefined && typeof filter !== 'function') return 'filter is not a function'
  if (pick !== undefined && typeof pick !== 'function') return 'pick is not a function'
  return undefined
}

/** The policy that scores and picks with a custom selection. */
export class CustomPolicy implements Policy {
  readonly name: string
  readonly terms: readonly TermDescription[]
  readonly rules: readonly PolicyRule[]
  readonly #selection: CustomSelection

  constructor(selection: CustomSelection) {
    const { name, unit } = selection
    this.name = name
    this.terms = [{ name: 'score', unit, means: `What the selection ${name} answered.` }]
    this.rules = [{ name, formula: 'score', unit }]
    this.#selection = selection
  }

  get filters(): boolean {
    return this.#selection.filter !== undefined
  }

  get picks(): boolean {
    return this.#selection.pick !== undefined
  }

  /** Element i: whether candidate i may take the request. The prefill of `terms` is there. */
  eligible(candidates: Candidates, request: SelectionRequest, terms: ChoiceTerms): readonly boolean[] {
    const asked = requestOf(request)
    return this.#views(candidates, terms).map(view => {
      const isEligible = this.#call('filter', view, () => this.#selection.filter?.(view, asked) ?? true)
      if (typeof isEligible === 'boolean') return isEligible
      throw this.#error('filter', `answered ${String(isEligible)} for ${view.worker}: use true or false`)
    })
  }

  score(
    candidates: Candidates,
    request: SelectionRequest,
    _weights: PolicyWeights,
    terms: ChoiceTerms,
  ): number {
    const asked = requestOf(request)
    for (const [i, view] of this.#views(candidates, terms).entries()) {
      const cost = this.#call('score', view, () => this.#selection.score(view, asked))
      if (typeof cost !== 'number' || !Number.isFinite(cost)) {
        throw this.#error('score', `answered ${String(cost)} for ${view.worker}: use a finite number`)
      }
      terms.ofPolicy[i * POLICY_TERMS_MAX] = cost
      terms.cost[i] = cost
    }
    return 0
  }

  pick(candidates: Candidates, request: SelectionRequest, terms: ChoiceTerms, random: Random): number {
    const views = this.#views(candidates, terms)
    const costs = Array.from(terms.cost.subarray(0, candidates.count))
    const index = this.#call('pick', undefined, () =>
      this.#selection.pick?.(views, costs, requestOf(request), random),
    )
    if (Number.isInteger(index) && index! >= 0 && index! < views.length) return index!
    throw this.#error(
      'pick',
      `answered ${String(index)}: use the index of a candidate, 0 … ${views.length - 1}`,
    )
  }

  #call<T>(step: string, view: SelectionCandidate | undefined, call: () => T): T {
    try {
      return call()
    } catch (thrown) {
      const at = view === undefined ? '' : ` for ${view.worker}`
      const message = thrown instanceof Error ? thrown.message : String(thrown)
      throw this.#error(step, `failed${at}: ${message}`, thrown)
    }
  }

  #error(step: string, reason: string, cause?: unknown): CustomSelectionError {
    return new CustomSelectionError(this.name, step, reason, cause)
  }

  #views(candidates: Candidates, terms: ChoiceTerms): SelectionCandidate[] {
    const { nameOf, preferences } = candidates
    if (nameOf === undefined) throw new RangeError('cannot select: the candidates have no names')
    return Array.from({ length: candidates.count }, (_, i) => ({
      ...nameOf(i),
      preference: preferences?.[i] ?? 1,
      overlapBlocks: terms.overlapBlocks[i]!,
      creditFactor: candidates.creditFactors[i]!,
      newTokens: terms.newTokens[i]!,
      queuedPrefillTokens: candidates.activePrefillTokens[i]!,
      prefillTokens: terms.prefillTokens[i]!,
      activeBlocks: candidates.activeBlocks[i]!,
      newBlocks: candidates.newBlocks[i]!,
      activeRequests: candidates.activeRequests[i]!,
    }))
  }
}

function requestOf({
  model = '',
  isPromptKnown = true,
  promptTokens,
  blockSizeTokens,
}: SelectionRequest): SelectedRequest {
  return { model, isPromptKnown, promptTokens, blockSizeTokens }
}
