/**
 * Choice and lookup by their definitions, with records and maps: what `decide` is checked against and
 * compared with.
 */

import type { Random } from '@homing/base'
import type { Candidates, SelectionRequest, SelectionSettings } from '@homing/selection'

export interface NaiveChoice {
  readonly winner: number
  readonly costs: readonly number[]
  readonly probabilities: readonly number[]
}

/** Weight 1. Draws from `random` as the definition has it: once among ties, once for the softmax. */
export function naiveChoose(
  candidates: Candidates,
  { promptTokens, blockSizeTokens }: SelectionRequest,
  temperature: number,
  random: Random,
): NaiveChoice {
  const all = Array.from({ length: candidates.count }, (_, i) => i)
  const costs = all.map(i => {
    const overlap = Math.min(candidates.overlapBlocks[i]!, Math.floor(promptTokens / blockSizeTokens))
    const uncached = promptTokens - overlap * blockSizeTokens
    const prefillBlocks = (candidates.activePrefillTokens[i]! + uncached) / blockSizeTokens
    return prefillBlocks + candidates.activeBlocks[i]! + candidates.newBlocks[i]!
  })
  const smallest = costs.reduce((a, b) => Math.min(a, b))
  const range = costs.reduce((a, b) => Math.max(a, b)) - smallest
  if (temperature === 0 || range === 0) {
    const ties = all.filter(i => costs[i] === smallest)
    const winner = ties.length === 1 ? ties[0]! : ties[random.below(ties.length)]!
    return { winner, costs, probabilities: costs.map(cost => (cost === smallest ? 1 / ties.length : 0)) }
  }
  const weights = costs.map(cost => Math.exp(-(cost - smallest) / range / temperature))
  const sum = weights.reduce((a, b) => a + b)
  const probabilities = weights.map(weight => weight / sum)
  const drawn = random.next()
  let cumulative = 0
  const winner = probabilities.findIndex(probability => {
    cumulative += probability
    return drawn < cumulative
  })
  return { winner: winner < 0 ? candidates.count - 1 : winner, costs, probabilities }
}

/** Costs with the default weights of each policy. */
export function naiveCosts(
  { policy, overlapCredit, creditDecay }: SelectionSettings,
  candidates: Candidates,
  { promptTokens, blockSizeTokens }: SelectionRequest,
): readonly number[] {
  const queuedMin = Math.min(...Array.from(candidates.activePrefillTokens).slice(0, candidates.count))
  const creditAt = (i: number): number => {
    const promptsAhead = (candidates.activePrefillTokens[i]! - queuedMin) / promptTokens
    return overlapCredit / (1 + creditDecay * promptsAhead)
  }
  const all = Array.from({ length: candidates.count }, (_, i) => ({
    fresh: Math.max(1, promptTokens - creditAt(i) * candidates.overlapBlocks[i]! * blockSizeTokens),
    queued: candidates.activePrefillTokens[i]!,
    blocks: candidates.activeBlocks[i]! + candidates.newBlocks[i]!,
    requests: candidates.activeRequests[i]!,
  }))
  switch (policy) {
    case 'linear':
      return all.map(({ fresh, queued, blocks }) => (queued + fresh) / blockSizeTokens + blocks)
    case 'product':
      return all.map(({ fresh, queued, requests }) => (queued + fresh) * (requests + 1))
    case 'est-ttft':
      return all.map(({ fresh, queued }) => 0.023 * (queued + fresh) + 0.96e-6 * fresh * 0.6 * promptTokens)
    case 'threshold': {
      const requests = all.map(candidate => candidate.requests)
      const [fewest, most] = [Math.min(...requests), Math.max(...requests)]
      const shares = all.map(({ fresh }) => fresh / promptTokens)
      const isBalanced = !(most - fewest > 64 && most > 1.5 * fewest)
      return isBalanced && 1 - Math.min(...shares) > 0.3 ? shares : requests
    }
    default:
      throw new RangeError(`cannot score by ${policy}: it is no fixed policy`)
  }
}

/** Those that may win. */
export function naiveWinners(
  { mode, temperature }: SelectionSettings,
  candidates: Candidates,
  costs: readonly number[],
): readonly number[] {
  const all = costs.map((_, i) => i)
  const requests = all.map(i => candidates.activeRequests[i]!)
  switch (mode) {
    case 'kv':
      return temperature > 0 ? all : all.filter(i => costs[i]! <= Math.min(...costs) * (1 + 1e-9))
    case 'least-loaded':
    case 'direct':
      return all.filter(i => requests[i] === Math.min(...requests))
    case 'power-of-two':
      // Never the only one with the most.
      return all.filter(i => requests.some((other, j) => j !== i && other >= requests[i]!))
    default:
      return all
  }
}

/** Which workers hold each block. */
export class NaiveIndex {
  readonly #holders = new Map<bigint, Set<number>>()

  store(worker: number, sequenceHashes: Int32Array, count: number): void {
    const hashes = asBigints(sequenceHashes)
    for (let i = 0; i < count; i++) {
      const holders = this.#holders.get(hashes[i]!) ?? new Set()
      this.#holders.set(hashes[i]!, holders.add(worker))
    }
  }

  overlaps(sequenceHashes: Int32Array, count: number): Map<number, number> {
    const hashes = asBigints(sequenceHashes)
    const overlaps = new Map<number, number>()
    for (let i = 0; i < count; i++) {
      const holders = this.#holders.get(hashes[i]!)
      if (holders === undefined) break
      for (const worker of holders) if ((overlaps.get(worker) ?? 0) === i) overlaps.set(worker, i + 1)
    }
    return overlaps
  }
}

function asBigints(hashes: Int32Array): BigInt64Array {
  return new BigInt64Array(hashes.buffer, hashes.byteOffset, hashes.length / 2)
}
