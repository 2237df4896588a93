/**
 * Selector: the cost of every candidate for a request, and who wins.
 *
 *   overlap       = min(overlap, full blocks of the prompt)
 *   prefillTokens = activePrefillTokens + max(0, promptTokens − overlap · creditFactor · blockSizeTokens)
 *   cost          = overlapWeight · prefillTokens / blockSizeTokens + activeBlocks + newBlocks
 *
 *   kv            T = 0: the smallest cost, ties uniformly at random.
 *                 T > 0: chance ∝ exp(−cost / (max − min) / T); all equal: uniform. The range in the
 *                 exponent makes T free of the scale of the costs.
 *   random        uniform
 *   round-robin   candidate `turn` mod count
 *   least-loaded  fewest active requests, ties uniformly at random
 *
 * Costs are filled in every mode, so that a receipt can show what another mode would have seen.
 * At most one random number is drawn, and none where one candidate is certain.
 *
 * Cost: a few passes over the candidates; nothing is allocated unless there are more than ever before.
 * Source: Dynamo's linear rule and softmax (its key-value router), with the clamps it lacked at first.
 */

import type { Random } from '@homing/clock'
import type {
  Candidates,
  CandidateTerms,
  Choice,
  ChoiceTerms,
  SelectionRequest,
  SelectionSettings,
} from './types.ts'

interface OwnChoice {
  count: number
  winner: number
  runnerUp: number
  nextTurn: number
  overlapWeight: number
  temperature: number
  terms: ChoiceTerms
}

export class Selector {
  readonly #choice: OwnChoice
  #capacity: number

  /** `candidatesExpected`: room to start with; it grows by itself. */
  constructor(candidatesExpected = 64) {
    this.#capacity = Math.max(1, candidatesExpected)
    this.#choice = {
      count: 0,
      winner: -1,
      runnerUp: -1,
      nextTurn: 0,
      overlapWeight: 0,
      temperature: 0,
      terms: newTerms(this.#capacity),
    }
  }

  /**
   * Scores the candidates and chooses one. `turn` is the caller's round-robin counter; take `nextTurn` of the
   * answer for the next call. The answer is overwritten by the next call. RangeError without candidates
   * and for figures out of range: eligibility and requests are checked before.
   */
  choose(
    candidates: Candidates,
    request: SelectionRequest,
    settings: SelectionSettings,
    random: Random,
    turn = 0,
  ): Choice {
    const { count } = candidates
    const overlapWeight = request.override?.overlapWeight ?? settings.overlapWeight
    const temperature = request.override?.temperature ?? settings.temperature
    check(count, request, overlapWeight, temperature)
    if (count > this.#capacity) {
      this.#capacity = count * 2
      this.#choice.terms = newTerms(this.#capacity)
    }
    const choice = this.#choice
    choice.count = count
    choice.overlapWeight = overlapWeight
    choice.temperature = temperature
    choice.nextTurn = turn

    const { terms } = choice
    score(candidates, request, overlapWeight, terms)
    const keys = settings.mode === 'least-loaded' ? candidates.activeRequests : terms.costBlocks
    if (settings.mode === 'random') {
      choice.winner = chooseUniform(count, terms.probability, random)
    } else if (settings.mode === 'round-robin') {
      choice.winner = chooseCertain(turn % count, count, terms.probability)
      choice.nextTurn = (turn + 1) % Number.MAX_SAFE_INTEGER
    } else if (settings.mode === 'least-loaded' || temperature === 0) {
      choice.winner = chooseSmallest(keys, count, terms.probability, random)
    } else {
      choice.winner = chooseSoftmax(terms.costBlocks, count, temperature, terms.probability, random)
    }
    choice.runnerUp = smallestOther(keys, count, choice.winner)
    return choice
  }
}

/** The terms of one candidate as a record of its own. */
export function candidateTerms(choice: Choice, candidates: Candidates, index: number): CandidateTerms {
  const { terms } = choice
  return {
    workerSlot: candidates.workerSlots[index]!,
    overlapBlocks: terms.overlapBlocks[index]!,
    creditFactor: candidates.creditFactors[index]!,
    prefillTokens: terms.prefillTokens[index]!,
    prefillBlocks: terms.prefillBlocks[index]!,
    decodeBlocks: terms.decodeBlocks[index]!,
    costBlocks: terms.costBlocks[index]!,
    probability: terms.probability[index]!,
  }
}

function check(count: number, request: SelectionRequest, overlapWeight: number, temperature: number): void {
  if (!(count >= 1)) throw new RangeError(`cannot choose among ${count} candidates: there must be one`)
  if (!(request.promptTokens >= 0)) {
    throw new RangeError(`cannot score a prompt of ${request.promptTokens} tokens: use a number ≥ 0`)
  }
  if (!(request.blockSizeTokens >= 1)) {
    throw new RangeError(`cannot score with blocks of ${request.blockSizeTokens} tokens: use a number ≥ 1`)
  }
  if (!(overlapWeight >= 0 && overlapWeight < Infinity)) {
    throw new RangeError(`cannot weigh overlap by ${overlapWeight}: use a finite number ≥ 0`)
  }
  if (!(temperature >= 0 && temperature < Infinity)) {
    throw new RangeError(`cannot choose at temperature ${temperature}: use a finite number ≥ 0`)
  }
}

function score(
  candidates: Candidates,
  request: SelectionRequest,
  overlapWeight: number,
  terms: ChoiceTerms,
): void {
  const { count, overlapBlocks, creditFactors, activeBlocks, newBlocks, activePrefillTokens } = candidates
  const { promptTokens, blockSizeTokens } = request
  const promptBlocks = Math.floor(promptTokens / blockSizeTokens)
  for (let i = 0; i < count; i++) {
    const overlap = Math.min(overlapBlocks[i]!, promptBlocks)
    const creditedTokens = overlap * creditFactors[i]! * blockSizeTokens
    const prefillTokens = activePrefillTokens[i]! + Math.max(0, promptTokens - creditedTokens)
    const prefillBlocks = prefillTokens / blockSizeTokens
    const decodeBlocks = activeBlocks[i]! + newBlocks[i]!
    terms.overlapBlocks[i] = overlap
    terms.prefillTokens[i] = prefillTokens
    terms.prefillBlocks[i] = prefillBlocks
    terms.decodeBlocks[i] = decodeBlocks
    terms.costBlocks[i] = overlapWeight * prefillBlocks + decodeBlocks
  }
}

function chooseUniform(count: number, probability: Float64Array, random: Random): number {
  probability.fill(1 / count, 0, count)
  return count === 1 ? 0 : random.below(count)
}

function chooseCertain(winner: number, count: number, probability: Float64Array): number {
  probability.fill(0, 0, count)
  probability[winner] = 1
  return winner
}

function chooseSmallest(
  keys: ArrayLike<number>,
  count: number,
  probability: Float64Array,
  random: Random,
): number {
  let smallest = keys[0]!
  let ties = 1
  let first = 0
  for (let i = 1; i < count; i++) {
    const key = keys[i]!
    if (key < smallest) {
      smallest = key
      ties = 1
      first = i
    } else if (key === smallest) {
      ties++
    }
  }
  if (ties === 1) return chooseCertain(first, count, probability)
  let skip = random.below(ties)
  let winner = -1
  for (let i = 0; i < count; i++) {
    const isTied = keys[i] === smallest
    probability[i] = isTied ? 1 / ties : 0
    if (isTied && skip-- === 0) winner = i
  }
  return winner
}

function chooseSoftmax(
  costs: Float64Array,
  count: number,
  temperature: number,
  probability: Float64Array,
  random: Random,
): number {
  let smallest = costs[0]!
  let largest = smallest
  for (let i = 1; i < count; i++) {
    const cost = costs[i]!
    if (cost < smallest) smallest = cost
    if (cost > largest) largest = cost
  }
  const range = largest - smallest
  if (range === 0) return chooseUniform(count, probability, random)
  let sum = 0
  for (let i = 0; i < count; i++) {
    // The largest exponent is 0: the cheapest candidate. Dividing twice keeps the range out of underflow.
    const weight = Math.exp(-(costs[i]! - smallest) / range / temperature)
    probability[i] = weight
    sum += weight
  }
  for (let i = 0; i < count; i++) probability[i]! /= sum
  const drawn = random.next()
  let cumulative = 0
  let last = 0
  for (let i = 0; i < count; i++) {
    if (probability[i] === 0) continue
    cumulative += probability[i]!
    last = i
    if (drawn < cumulative) return i
  }
  // Rounding may leave the sum a little below the number drawn.
  return last
}

function smallestOther(keys: ArrayLike<number>, count: number, winner: number): number {
  let index = -1
  for (let i = 0; i < count; i++) {
    if (i !== winner && (index < 0 || keys[i]! < keys[index]!)) index = i
  }
  return index
}

function newTerms(capacity: number): ChoiceTerms {
  return {
    overlapBlocks: new Int32Array(capacity),
    prefillTokens: new Float64Array(capacity),
    prefillBlocks: new Float64Array(capacity),
    decodeBlocks: new Float64Array(capacity),
    costBlocks: new Float64Array(capacity),
    probability: new Float64Array(capacity),
  }
}
