/**
 * Selector: the cost of every candidate for a request, and the winner.
 *
 *   prefill (prefill.ts)  ─▶  cost, by a policy (policies/)  ─▶  winner, by the mode (pick.ts)
 *
 *   kv            temperature 0: the smallest cost, ties uniformly at random; above: softmax over the costs
 *   random        uniform
 *   round-robin   candidate `turn` mod count
 *   least-loaded  fewest active requests, ties uniformly at random; where the request prefers workers, the
 *                 smallest (requests, it included) · preference
 *   direct        the same, among the ranks of one worker
 *   power-of-two  of two that are drawn, the one with fewer active requests
 *
 * Costs are computed in every mode, so that a receipt can show the costs of mode kv. A custom selection
 * replaces the policy, and may also filter and pick.
 *
 * Cost: a few passes over the candidates. Memory is allocated only if there are more candidates than ever.
 */

import type { Random } from '@homing/base'
import type { Choice } from './choice.ts'
import { pickCertain, pickOfTwo, pickSmallest, pickSoftmax, pickUniform, smallestOther } from './pick.ts'
import { POLICIES } from './policies.ts'
import {
  type CostDescription,
  POLICY_TERMS_MAX,
  type Policy,
  type PolicyName,
  type PolicyWeights,
} from './policy.ts'
import { fillPrefill } from './prefill.ts'
import type { SelectionSettings } from './selection-settings.ts'
import type { Candidates, ChoiceTerms, CostTerms, SelectionRequest } from './types.ts'

interface OwnChoice {
  count: number
  winner: number
  runnerUp: number
  nextTurn: number
  policy: Policy
  rule: number
  overlapWeight: number
  overlapCredit: number
  temperature: number
  terms: ChoiceTerms
}

export class Selector {
  readonly #choice: OwnChoice
  readonly #weights: PolicyWeights = {
    overlapWeight: 0,
    activeRequestWeight: 0,
    prefillMsPerToken: 0,
    attentionMsPerMillionPairs: 0,
    overlapCredit: 0,
  }
  readonly #policies: Readonly<Record<PolicyName, Policy>>
  #capacity: number
  #preferredLoads: Float64Array

  /** `candidatesExpected`: initial room, which grows as needed. `policies`: by name; benches replace them. */
  constructor(candidatesExpected = 64, policies: Readonly<Record<PolicyName, Policy>> = POLICIES) {
    this.#policies = policies
    this.#capacity = Math.max(1, candidatesExpected)
    this.#preferredLoads = new Float64Array(this.#capacity)
    this.#choice = {
      count: 0,
      winner: -1,
      runnerUp: -1,
      nextTurn: 0,
      policy: POLICIES.linear,
      rule: 0,
      overlapWeight: 0,
      overlapCredit: 0,
      temperature: 0,
      terms: newTerms(this.#capacity),
    }
  }

  /**
   * Scores the candidates and chooses one. `turn` is the caller's round-robin counter; pass `nextTurn` of the
   * answer to the next call. The next call overwrites the answer. Throws RangeError without candidates and
   * for figures out of range: the caller checks eligibility and the request first. Throws
   * CustomSelectionError if a custom selection fails.
   */
  choose(
    candidates: Candidates,
    request: SelectionRequest,
    settings: SelectionSettings,
    random: Random,
    turn = 0,
  ): Choice {
    const { count, activeRequests } = candidates
    const overlapWeight = request.override?.overlapWeight ?? settings.overlapWeight
    const overlapCredit = request.override?.overlapCredit ?? settings.overlapCredit
    const temperature = request.override?.temperature ?? settings.temperature
    check(count, request, settings, overlapWeight, overlapCredit, temperature)
    this.#reserve(count)
    const { custom } = settings
    const policy = custom ?? this.#policies[settings.policy]
    const choice = this.#choice
    choice.count = count
    choice.policy = policy
    choice.overlapWeight = overlapWeight
    choice.overlapCredit = overlapCredit
    choice.temperature = temperature
    choice.nextTurn = turn

    const { terms } = choice
    const weights = this.#weights
    weights.overlapWeight = overlapWeight
    weights.overlapCredit = overlapWeight === 0 ? 0 : Math.min(1, overlapCredit)
    weights.activeRequestWeight = settings.activeRequestWeight
    weights.prefillMsPerToken = settings.prefillMsPerToken
    weights.attentionMsPerMillionPairs = settings.attentionMsPerMillionPairs
    const isAuto = policy.name === 'auto'
    fillPrefill(
      candidates,
      request,
      request.isComputed === true && isAuto,
      // auto has a term of its own for it: what it predicts is to come true.
      isAuto ? undefined : candidates.bonusBlocks,
      overlapWeight === 0 ? 0 : overlapCredit,
      settings.creditDecay,
      terms,
    )
    choice.rule = policy.score(candidates, request, weights, terms)

    const { cost, probability } = terms
    const { preferences } = candidates
    if (preferences !== undefined && custom === undefined)
      for (let i = 0; i < count; i++) cost[i]! *= preferences[i]!
    switch (settings.mode) {
      case 'kv':
        if (custom?.picks === true) {
          choice.winner = pickCertain(custom.pick(candidates, request, terms, random), count, probability)
        } else if (temperature === 0) {
          choice.winner = pickSmallest(cost, count, probability, random)
        } else {
          choice.winner = pickSoftmax(cost, count, temperature, probability, random)
        }
        break
      case 'random':
        choice.winner = pickUniform(count, probability, random)
        break
      case 'round-robin':
        choice.winner = pickCertain(turn % count, count, probability)
        choice.nextTurn = (turn + 1) % Number.MAX_SAFE_INTEGER
        break
      case 'least-loaded':
      case 'direct':
        choice.winner = pickSmallest(this.#loads(candidates), count, probability, random)
        break
      case 'power-of-two':
        choice.winner = pickOfTwo(activeRequests, count, probability, random)
        break
    }
    choice.runnerUp = smallestOther(comparesLoad(settings) ? activeRequests : cost, count, choice.winner)
    return choice
  }

  /**
   * For the guard, which draws by itself: gives candidate `other` the probability `chance`, taken from the
   * winner of the last `choose`. `isTaken`: makes it the winner.
   */
  divert(other: number, chance: number, isTaken: boolean): void {
    const choice = this.#choice
    const { winner } = choice
    const { cost, probability } = choice.terms
    if (probability[winner] === 1) probability[winner] = 1 - chance
    else for (let i = 0; i < choice.count; i++) probability[i]! *= 1 - chance
    probability[other]! += chance
    if (!isTaken) return
    choice.winner = other
    choice.runnerUp = smallestOther(cost, choice.count, other)
  }

  /**
   * Element i: whether the filter of the custom selection allows candidate i; undefined: there is no filter.
   * The caller removes the other candidates. Throws CustomSelectionError if the filter fails.
   */
  eligible(
    candidates: Candidates,
    request: SelectionRequest,
    settings: SelectionSettings,
  ): readonly boolean[] | undefined {
    const { custom } = settings
    if (custom?.filters !== true) return undefined
    this.#reserve(candidates.count)
    const { terms } = this.#choice
    const credit = request.override?.overlapCredit ?? settings.overlapCredit
    const weight = request.override?.overlapWeight ?? settings.overlapWeight
    fillPrefill(
      candidates,
      request,
      request.isComputed === true,
      candidates.bonusBlocks,
      weight === 0 ? 0 : credit,
      settings.creditDecay,
      terms,
    )
    return custom.eligible(candidates, request, terms)
  }

  /** What least-loaded compares. */
  #loads({ activeRequests, preferences, count }: Candidates): ArrayLike<number> {
    if (preferences === undefined) return activeRequests
    const loads = this.#preferredLoads
    for (let i = 0; i < count; i++) loads[i] = (activeRequests[i]! + 1) * preferences[i]!
    return loads
  }

  #reserve(count: number): void {
    if (count <= this.#capacity) return
    this.#capacity = count * 2
    this.#choice.terms = newTerms(this.#capacity)
    this.#preferredLoads = new Float64Array(this.#capacity)
  }
}

/** The terms of one candidate, copied into a record. */
export function costTerms(
  choice: Choice,
  candidates: Candidates,
  { blockSizeTokens }: SelectionRequest,
  index: number,
): CostTerms {
  const { terms, policy } = choice
  const prefillTokens = terms.prefillTokens[index]!
  return {
    workerSlot: candidates.workerSlots[index]!,
    overlapBlocks: terms.overlapBlocks[index]!,
    creditFactor: candidates.creditFactors[index]!,
    newTokens: terms.newTokens[index]!,
    prefillTokens,
    prefillBlocks: prefillTokens / blockSizeTokens,
    decodeBlocks: candidates.activeBlocks[index]! + candidates.newBlocks[index]!,
    ofPolicy: policy.terms.map((_, term) => terms.ofPolicy[index * POLICY_TERMS_MAX + term]!),
    cost: terms.cost[index]!,
    probability: terms.probability[index]!,
  }
}

/** Describes the terms and the formula of the costs of a choice, before preferences. */
export function describeCost({ policy, rule }: Choice): CostDescription {
  const { name, formula, unit } = policy.rules[rule]!
  return { policy: policy.name, rule: name, formula, unit, terms: policy.terms }
}

function comparesLoad({ mode }: SelectionSettings): boolean {
  return mode === 'least-loaded' || mode === 'power-of-two' || mode === 'direct'
}

function check(
  count: number,
  request: SelectionRequest,
  settings: SelectionSettings,
  overlapWeight: number,
  overlapCredit: number,
  temperature: number,
): void {
  if (!(count >= 1)) throw new RangeError(`cannot choose among ${count} candidates: there must be one`)
  if (!(request.promptTokens >= 0)) {
    throw new RangeError(`cannot score a prompt of ${request.promptTokens} tokens: use a number ≥ 0`)
  }
  if (!(request.blockSizeTokens >= 1)) {
    throw new RangeError(`cannot score with blocks of ${request.blockSizeTokens} tokens: use a number ≥ 1`)
  }
  if (!Object.hasOwn(POLICIES, settings.policy)) {
    const known = Object.keys(POLICIES).join(', ')
    throw new RangeError(`cannot score by policy ${JSON.stringify(settings.policy)}: there are ${known}`)
  }
  checkFigure('weigh overlap by', overlapWeight)
  checkFigure('credit overlap by', overlapCredit)
  checkFigure('choose at temperature', temperature)
  checkFigure('let credit decay by', settings.creditDecay)
  checkFigure('weigh active requests by', settings.activeRequestWeight)
  checkFigure('reckon with milliseconds per token of', settings.prefillMsPerToken)
  checkFigure('reckon with milliseconds per million pairs of tokens of', settings.attentionMsPerMillionPairs)
}

function checkFigure(what: string, figure: number): void {
  if (!(figure >= 0 && figure < Infinity)) {
    throw new RangeError(`cannot ${what} ${figure}: use a finite number ≥ 0`)
  }
}

function newTerms(capacity: number): ChoiceTerms {
  const figures = (): Float64Array => new Float64Array(capacity)
  return {
    overlapBlocks: new Int32Array(capacity),
    newTokens: figures(),
    newTokensMin: 0,
    prefillTokens: figures(),
    ofPolicy: new Float64Array(capacity * POLICY_TERMS_MAX),
    cost: figures(),
    probability: figures(),
  }
}
