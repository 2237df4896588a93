/**
 * The answer of `/query` and `/query_by_hash`: how many tokens of a prompt each rank holds, from its first one on.
 *
 * `scores`       by instance and rank; `frequencies[i]`: ranks that hold block i and all before it
 * `instances`    by instance: `gpu` is the most that one of its ranks holds on the device, `dp` that of each; `cpu` and
 *                `disk` add what lower tiers hold beyond, which this index does not follow, so they are the same.
 *                `longest_matched` is the largest of them.
 * Ranks that hold nothing of the prompt are not named.
 */

import type { IndexReader } from '@homing/index'
import { OverlapScores } from '@homing/index'
import type { Trust } from '@homing/listener'
import { type Rank, trustOf } from './rank.ts'
import type { PartitionEntry } from './registry.ts'

export interface InstanceOverlap {
  longest_matched: number
  gpu: number
  readonly dp: Record<string, number>
  cpu: number
  disk: number
}

export interface OverlapAnswer {
  readonly scores: Record<string, Record<string, number>>
  readonly frequencies: readonly number[]
  readonly instances: Record<string, InstanceOverlap>
}

export interface OverlapResult {
  readonly answer: OverlapAnswer
  /** The least trust in a rank that is named; `none` where none is. */
  readonly trust: Trust
  /** False: some shard gave no consistent view in time, or has no memory yet, and is missing. */
  readonly isComplete: boolean
}

/** From the most to the least. */
const TRUSTS: readonly Trust[] = ['exact', 'partial', 'approximate', 'none']

export class OverlapLookup {
  readonly #readers: readonly IndexReader[]
  readonly #scores = new OverlapScores()

  /** The longer overlap of the readers counts. */
  constructor(readers: readonly IndexReader[]) {
    this.#readers = readers
  }

  /** `localHashes`: pairs of the full blocks of the prompt. */
  overlap({ ranks, blockSizeTokens }: PartitionEntry, localHashes: Int32Array): OverlapResult {
    const blocksBySlot = new Map<number, number>()
    const scores = this.#scores
    let isComplete = true
    for (const reader of this.#readers) {
      reader.overlap(localHashes, localHashes.length / 2, scores)
      isComplete &&= scores.isComplete
      for (let i = 0; i < scores.length; i++) {
        const slot = scores.workerSlots[i]!
        blocksBySlot.set(slot, Math.max(scores.blocks[i]!, blocksBySlot.get(slot) ?? 0))
      }
    }
    const held: { readonly rank: Rank; readonly blocks: number }[] = []
    for (const rank of ranks) {
      const blocks = rank.fault === undefined ? (blocksBySlot.get(rank.workerSlot) ?? 0) : 0
      if (blocks > 0) held.push({ rank, blocks })
    }
    const leastTrust = Math.max(...held.map(({ rank }) => TRUSTS.indexOf(trustOf(rank).trust)))
    return { answer: answerOf(held, blockSizeTokens), trust: TRUSTS[leastTrust] ?? 'none', isComplete }
  }

  /** Whether a slot holds this block as the first of a prompt. `localHash`: its pair. */
  beginsPrompt(workerSlot: number, localHash: Int32Array): boolean {
    return this.#readers.some(reader => {
      reader.overlap(localHash, 1, this.#scores)
      return this.#scores.blocksOf(workerSlot) > 0
    })
  }
}

function answerOf(
  held: readonly { readonly rank: Rank; readonly blocks: number }[],
  blockSizeTokens: number,
): OverlapAnswer {
  const scores: Record<string, Record<string, number>> = {}
  const instances: Record<string, InstanceOverlap> = {}
  const frequencies: number[] = Array.from(
    { length: Math.max(0, ...held.map(({ blocks }) => blocks)) },
    () => 0,
  )
  for (const { rank, blocks } of held) {
    const id = rank.instanceId.toString()
    const tokens = blocks * blockSizeTokens
    scores[id] ??= {}
    scores[id][rank.dpRank] = tokens
    instances[id] ??= { longest_matched: 0, gpu: 0, dp: {}, cpu: 0, disk: 0 }
    const instance = instances[id]
    instance.dp[rank.dpRank] = tokens
    const most = Math.max(instance.gpu, tokens)
    Object.assign(instance, { longest_matched: most, gpu: most, cpu: most, disk: most })
    for (let i = 0; i < blocks; i++) frequencies[i]!++
  }
  return { scores, frequencies, instances }
}
