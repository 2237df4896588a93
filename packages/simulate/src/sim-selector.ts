/**
 * Sim selector: the product's Selector, and beside it the rules of the simulator's own that policies are
 * compared with.
 *
 * A rule takes the place of mode and policy. The costs are those of the policy all the same, as a receipt
 * shows them.
 */

import type { Random } from '@homing/base'
import {
  type Candidates,
  type Choice,
  POLICIES,
  type SelectionRequest,
  type SelectionSettings,
  Selector,
  withoutTerm,
} from '@homing/selection'
import type { CellSelection, CellSpec } from './cell-types.ts'
import type { SimRequest } from './sim-request.ts'

export class SimSelector extends Selector {
  readonly #selection: CellSelection
  /** Of the rule threshold-received: new tokens sent to each worker, and scratch. */
  readonly #receivedTokens: Float64Array
  readonly #keys: Float64Array
  /** The request that is placed. */
  request: SimRequest | undefined

  constructor(spec: CellSpec) {
    super(spec.workers, policiesFor(spec))
    this.#selection = spec.selection
    this.#receivedTokens = new Float64Array(spec.workers)
    this.#keys = new Float64Array(spec.workers)
  }

  override choose(
    candidates: Candidates,
    request: SelectionRequest,
    settings: SelectionSettings,
    random: Random,
    turn?: number,
  ): Choice {
    const { rule, nearTieMs } = this.#selection
    if (rule !== undefined) {
      // Costs without a draw: the rule alone draws.
      const choice = super.choose(candidates, request, { ...settings, mode: 'round-robin' }, random, 0)
      return this.#take(this.#byRule(candidates, request, random), choice)
    }
    const choice = super.choose(candidates, request, settings, random, turn)
    return nearTieMs === undefined
      ? choice
      : this.#take(nearTie(choice, candidates, nearTieMs, random), choice)
  }

  #take(winner: number, choice: Choice): Choice {
    if (winner !== choice.winner) this.divert(winner, 1, true)
    return choice
  }

  #byRule(candidates: Candidates, request: SelectionRequest, random: Random): number {
    switch (this.#selection.rule) {
      case 'session':
        return sessionChoice(this.request!, candidates)
      case 'overlap':
        return overlapChoice(candidates, random)
      case 'logged':
        return loggedChoice(this.request!, candidates)
      default:
        return this.#receivedChoice(candidates, request, random)
    }
  }

  /** The product's threshold policy, but for its last clause, and ties that go to the fewest requests. */
  #receivedChoice(
    { count, workerSlots, overlapBlocks, activeRequests }: Candidates,
    { promptTokens, blockSizeTokens }: SelectionRequest,
    random: Random,
  ): number {
    const keys = this.#keys
    let fewest = Number.POSITIVE_INFINITY
    let most = 0
    let overlapMax = 0
    for (let i = 0; i < count; i++) {
      fewest = Math.min(fewest, activeRequests[i]!)
      most = Math.max(most, activeRequests[i]!)
      overlapMax = Math.max(overlapMax, overlapBlocks[i]!)
    }
    const isUneven = most - fewest > 64 && most > 1.5 * fewest
    const isCached = (overlapMax * blockSizeTokens) / promptTokens > 0.3
    for (let i = 0; i < count; i++) {
      if (isUneven) keys[i] = activeRequests[i]!
      else if (isCached)
        keys[i] = overlapBlocks[i] === overlapMax ? activeRequests[i]! : Number.POSITIVE_INFINITY
      else keys[i] = this.#receivedTokens[workerSlots[i]!]!
    }
    const winner = smallest(keys, count, random)
    const newTokens = Math.max(1, promptTokens - overlapBlocks[winner]! * blockSizeTokens)
    this.#receivedTokens[workerSlots[winner]!]! += newTokens
    return winner
  }
}

function policiesFor({ selection }: CellSpec): typeof POLICIES {
  const { policy, withoutTerm: term } = selection
  if (policy === undefined || term === undefined) return POLICIES
  return { ...POLICIES, [policy]: withoutTerm(POLICIES[policy], term) }
}

/** Where the trace says that it went. */
function loggedChoice({ trace, index }: SimRequest, { count, workerSlots }: Candidates): number {
  for (let i = 0; i < count; i++) if (workerSlots[i] === trace.worker) return i
  throw new RangeError(`cannot place request ${index} at worker ${trace.worker}: it is not there`)
}

/**
 * Highest random weight: each key has a fixed order of all workers, and takes the first one that is there.
 */
function sessionChoice({ trace, blockIds, blocks }: SimRequest, { count, workerSlots }: Candidates): number {
  const key =
    trace.sessionId === undefined ? (blockIds[Math.min(1, blocks - 1)] ?? 0) : textHash(trace.sessionId)
  let best = 0
  let bestWeight = -1
  for (let i = 0; i < count; i++) {
    const weight = mix(key, workerSlots[i]!)
    if (weight > bestWeight) {
      best = i
      bestWeight = weight
    }
  }
  return best
}

function overlapChoice({ count, overlapBlocks, activeRequests }: Candidates, random: Random): number {
  let best = 0
  let ties = 1
  for (let i = 1; i < count; i++) {
    const order = overlapBlocks[best]! - overlapBlocks[i]! || activeRequests[i]! - activeRequests[best]!
    if (order < 0) {
      best = i
      ties = 1
    } else if (order === 0 && random.below(++ties) === 0) {
      best = i
    }
  }
  return best
}

/**
 * Of two among those within `nearTieMs` of the best cost, the one with fewer requests, the cheaper one where
 * these are equal.
 */
function nearTie(
  { winner, terms: { cost } }: Choice,
  { count, activeRequests }: Candidates,
  nearTieMs: number,
  random: Random,
): number {
  const near: number[] = []
  for (let i = 0; i < count; i++) if (cost[i]! - cost[winner]! <= nearTieMs) near.push(i)
  if (near.length < 2) return winner
  const [first] = near.splice(random.below(near.length), 1)
  const second = near[random.below(near.length)]!
  const order = activeRequests[first!]! - activeRequests[second]! || cost[first!]! - cost[second]!
  return order <= 0 ? first! : second
}

/** Ties uniformly at random. */
function smallest(keys: Float64Array, count: number, random: Random): number {
  let best = 0
  let ties = 1
  for (let i = 1; i < count; i++) {
    if (keys[i]! < keys[best]!) {
      best = i
      ties = 1
    } else if (keys[i] === keys[best] && random.below(++ties) === 0) {
      best = i
    }
  }
  return best
}

function textHash(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0
}

/** 32 bits; the finisher is murmur3's. */
function mix(a: number, b: number): number {
  let hash =
    Math.imul((a | 0) ^ 0x9e3779b1, 0x85ebca77) ^ Math.imul(Math.floor(a / 4_294_967_296) + 1, 0xc2b2ae3d)
  hash = Math.imul(hash ^ (hash >>> 16) ^ Math.imul(b + 1, 0x27d4eb2f), 0x7feb352d)
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b)
  return (hash ^ (hash >>> 16)) >>> 0
}
