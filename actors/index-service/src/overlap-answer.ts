/**
 * The answer of `/query` and `/query_by_hash`: how many tokens of a prompt each rank holds, from the first
 * token on.
 *
 * `scores`       by instance and rank, on the device; `frequencies[i]`: ranks that hold block i and all
 *                before it there
 * `instances`    by instance: `gpu` is the most that one of its ranks holds on the device, `dp` that of each;
 *                `cpu` is the longest run whose blocks are all on the device or the host; `disk` also
 *                includes disks and stores outside the machine. `longest_matched` is the largest of them:
 *                `disk`.
 * Ranks that hold nothing of the prompt are not listed.
 *
 * Cost: three walks through the index; the second and third end at once for ranks that have no lower tier.
 */

import {
  type IndexReader,
  KEY_LAYERS,
  LayerOverlaps,
  Layers,
  layerSlot,
  OverlapCounts,
  TRUSTS,
  type Trust,
} from '@homing/index'
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

/** What is looked up for a partition, until its ranks are others. Key i of the layers is rank i. */
interface Plan {
  readonly revision: number
  readonly ranks: readonly Rank[]
  readonly toHost: Layers
  readonly toDisk: Layers
}

/** Blocks that a rank holds, each with those of the tiers above. */
interface Held {
  readonly rank: Rank
  readonly gpu: number
  readonly cpu: number
  readonly disk: number
}

const DEVICE = KEY_LAYERS.indexOf('device')
const TO_HOST = [DEVICE, KEY_LAYERS.indexOf('host')]
const TO_DISK = [...TO_HOST, KEY_LAYERS.indexOf('disk'), KEY_LAYERS.indexOf('external')]

export interface IndexQueryOptions {
  /** Reader of the shards. */
  readonly reader: IndexReader
  /**
   * Reader of inherited blocks, on the device; undefined: nothing is ever inherited. The longer overlap of
   * the two counts.
   */
  readonly inheritedReader: IndexReader | undefined
  readonly workerSlotsMax: number
}

export class IndexQuery {
  readonly #options: IndexQueryOptions
  readonly #scores = new OverlapCounts()
  readonly #layerScores = new LayerOverlaps()
  readonly #plans = new WeakMap<PartitionEntry, Plan>()

  constructor(options: IndexQueryOptions) {
    this.#options = options
  }

  /** `localHashes`: pairs of the full blocks of the prompt. */
  overlap(partition: PartitionEntry, localHashes: Int32Array): OverlapResult {
    const plan = this.#planOf(partition)
    const device = this.#deviceBlocks(localHashes)
    const toHost = this.#blocksInLayers(plan.toHost, localHashes)
    const toDisk = this.#blocksInLayers(plan.toDisk, localHashes)
    const held: Held[] = []
    for (const [i, rank] of plan.ranks.entries()) {
      if (rank.fault !== undefined) continue
      const gpu = device.blocks.get(rank.workerSlot) ?? 0
      const cpu = Math.max(gpu, toHost.blocks[i]!)
      const disk = Math.max(cpu, toDisk.blocks[i]!)
      if (disk > 0) held.push({ rank, gpu, cpu, disk })
    }
    const leastTrust = Math.max(...held.map(({ rank }) => TRUSTS.indexOf(trustOf(rank).trust)))
    return {
      answer: answerOf(held, partition.blockSizeTokens),
      trust: TRUSTS[leastTrust] ?? 'none',
      isComplete: device.isComplete && toHost.isComplete && toDisk.isComplete,
    }
  }

  /** By worker slot. */
  #deviceBlocks(localHashes: Int32Array) {
    const { reader, inheritedReader } = this.#options
    const blocks = new Map<number, number>()
    let isComplete = true
    const scores = this.#scores
    for (const each of inheritedReader === undefined ? [reader] : [reader, inheritedReader]) {
      each.overlap(localHashes, localHashes.length / 2, scores)
      isComplete &&= scores.isComplete
      for (let i = 0; i < scores.length; i++) {
        const slot = scores.workerSlots[i]!
        blocks.set(slot, Math.max(scores.blocks[i]!, blocks.get(slot) ?? 0))
      }
    }
    return { blocks, isComplete }
  }

  /** By position of the key: the longest run of which each block is in one of its layers. */
  #blocksInLayers(layers: Layers, localHashes: Int32Array) {
    const scores = this.#layerScores
    this.#options.reader.extend(localHashes, localHashes.length / 2, layers, scores)
    const blocks = new Int32Array(layers.keyCount)
    for (let key = 0; key < layers.keyCount; key++) {
      for (let layer = 0; layer < layers.layersMax; layer++) blocks[key]! += scores.blocksOf(key, layer)
    }
    return { blocks, isComplete: scores.isComplete }
  }

  #planOf(partition: PartitionEntry): Plan {
    const known = this.#plans.get(partition)
    if (known?.revision === partition.revision) return known
    const ranks = [...partition.ranks]
    const { workerSlotsMax } = this.#options
    const among = (layers: readonly number[]) =>
      new Layers(
        ranks.map(({ workerSlot }) => layers.map(layer => layerSlot(workerSlot, layer, workerSlotsMax))),
      )
    const { revision } = partition
    const plan = { revision, ranks, toHost: among(TO_HOST), toDisk: among(TO_DISK) }
    this.#plans.set(partition, plan)
    return plan
  }
}

function answerOf(held: readonly Held[], blockSizeTokens: number): OverlapAnswer {
  const scores: Record<string, Record<string, number>> = {}
  const instances: Record<string, InstanceOverlap> = {}
  const frequencies: number[] = Array.from({ length: Math.max(0, ...held.map(({ gpu }) => gpu)) }, () => 0)
  for (const { rank, gpu, cpu, disk } of held) {
    const id = rank.instanceId.toString()
    instances[id] ??= { longest_matched: 0, gpu: 0, dp: {}, cpu: 0, disk: 0 }
    const instance = instances[id]
    instance.gpu = Math.max(instance.gpu, gpu * blockSizeTokens)
    instance.cpu = Math.max(instance.cpu, cpu * blockSizeTokens)
    instance.disk = Math.max(instance.disk, disk * blockSizeTokens)
    instance.longest_matched = instance.disk
    instance.dp[rank.dpRank] = gpu * blockSizeTokens
    if (gpu === 0) continue
    scores[id] ??= {}
    scores[id][rank.dpRank] = gpu * blockSizeTokens
    // Only the last block that it holds; those before it are added below.
    frequencies[gpu - 1]!++
  }
  for (let i = frequencies.length - 2; i >= 0; i--) frequencies[i]! += frequencies[i + 1]!
  return { scores, frequencies, instances }
}
