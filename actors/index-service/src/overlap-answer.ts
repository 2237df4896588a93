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
 * `moe_scores`, `cxl_accessible_scores`
 *                by instance and rank, blocks: those that it holds with a matching expert, only where the
 *                query has `moe_query`; and pooled ones that it reaches behind what it holds on any tier,
 *                only where some block is pooled. Ranks with none are not listed there.
 * Ranks that hold nothing of the prompt are not listed elsewhere. With `fallback_to_unlabeled: false` and a
 * rank that has a matching block, ranks without one are not listed anywhere.
 *
 * Cost: three walks through the index; the second and third end at once for ranks that have no lower tier.
 */

import { chainSequence } from '@homing/blocks'
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
import type { LabelLookup, MoeQuery } from '@homing/placement'
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
  readonly moe_scores?: RankScores
  readonly cxl_accessible_scores?: RankScores
}

/** By instance and rank. */
type RankScores = Record<string, Record<string, number>>

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

/** Of a rank of a plan. */
interface RankLabels {
  readonly moe: number
  readonly pooled: number
}

/** Blocks that a rank holds, each with those of the tiers above. */
interface Held {
  readonly rank: Rank
  readonly gpu: number
  readonly cpu: number
  readonly disk: number
  readonly labels: RankLabels
}

const NOTHING = { gpu: 0, cpu: 0, disk: 0 }
const NO_LABELS: RankLabels = { moe: 0, pooled: 0 }
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
  /** Undefined: labels are not looked at. */
  readonly labels?: LabelLookup
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
  overlap(partition: PartitionEntry, localHashes: Int32Array, moeQuery?: MoeQuery): OverlapResult {
    const plan = this.#planOf(partition)
    const device = this.#deviceBlocks(localHashes)
    const toHost = this.#blocksInLayers(plan.toHost, localHashes)
    const toDisk = this.#blocksInLayers(plan.toDisk, localHashes)
    const tiers = plan.ranks.map(({ workerSlot, fault }, i) => {
      if (fault !== undefined) return NOTHING
      const gpu = device.blocks.get(workerSlot) ?? 0
      const cpu = Math.max(gpu, toHost.blocks[i]!)
      return { gpu, cpu, disk: Math.max(cpu, toDisk.blocks[i]!) }
    })
    const labels = this.#labelsOf(plan, partition, localHashes, tiers, moeQuery)
    const isFiltered = moeQuery?.fallbackToUnlabeled === false && labels.some(({ moe }) => moe > 0)
    const held: Held[] = []
    for (const [i, rank] of plan.ranks.entries()) {
      const { moe, pooled } = labels[i]!
      if (rank.fault !== undefined || (isFiltered && moe === 0)) continue
      if (tiers[i]!.disk + pooled > 0) held.push({ rank, ...tiers[i]!, labels: labels[i]! })
    }
    const leastTrust = Math.max(...held.map(({ rank }) => TRUSTS.indexOf(trustOf(rank).trust)))
    return {
      answer: {
        ...answerOf(
          held.filter(({ disk }) => disk > 0),
          partition.blockSizeTokens,
        ),
        ...(moeQuery && { moe_scores: scoresOf(held, ({ moe }) => moe) }),
        ...(this.#options.labels?.reader.hasPooled === true && {
          cxl_accessible_scores: scoresOf(held, ({ pooled }) => pooled),
        }),
      },
      trust: TRUSTS[leastTrust] ?? 'none',
      isComplete: device.isComplete && toHost.isComplete && toDisk.isComplete,
    }
  }

  /** By position of the rank. */
  #labelsOf(
    { ranks }: Plan,
    { blockSizeTokens }: PartitionEntry,
    localHashes: Int32Array,
    tiers: readonly { readonly disk: number }[],
    moeQuery: MoeQuery | undefined,
  ): readonly RankLabels[] {
    const { labels } = this.#options
    const isOfUse = labels !== undefined && (labels.reader.hasPooled || moeQuery !== undefined)
    if (!isOfUse || ranks.length === 0) return ranks.map(() => NO_LABELS)
    const count = localHashes.length / 2
    const candidates = ranks.map(rank => ({
      worker: { instanceId: 0, eventsId: rank.instanceId, blockSizeTokens: undefined },
      // Of a rank that is not followed rightly nothing is known.
      key: { ...rank, trust: trustOf(rank).trust },
    }))
    const held = Int32Array.from(tiers, ({ disk }) => disk)
    const request = { sequenceHashes: chainSequence(localHashes, count), moeQuery, blockSizeTokens }
    const found = labels.lookUp(request, candidates, held, held, count)
    if (found === undefined) return ranks.map(() => NO_LABELS)
    return ranks.map((_, i) => ({ moe: found.moe[i]!, pooled: found.pooled[i]! }))
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

/** Ranks with none are not in it. */
function scoresOf(held: readonly Held[], of: (labels: RankLabels) => number): RankScores {
  const scores: RankScores = {}
  for (const { rank, labels } of held) {
    const blocks = of(labels)
    if (blocks === 0) continue
    const id = rank.instanceId.toString()
    scores[id] ??= {}
    scores[id][rank.dpRank] = blocks
  }
  return scores
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
