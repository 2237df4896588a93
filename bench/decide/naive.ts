/** Choice and lookup by their definitions, with records and maps: what `decide` is checked against and compared with. */

import type { Random } from '@homing/clock'
import type { Candidates, SelectionRequest } from '@homing/selection'

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
