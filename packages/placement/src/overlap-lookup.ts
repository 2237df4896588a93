/**
 * Overlap lookup: the leading blocks of a prompt that each candidate is credited with, layer by layer.
 *
 *   device                    if the key has KV events, and the prompt has hashes of its block size
 *   host, disk, external      in addition, if events of the key have named blocks there
 *   guessed                   alone, if the key has no KV events, or only the text of the prompt is known;
 *                             in addition, if `guessesPending` is set
 *
 * A first lookup covers all keys and is enough for keys with one layer. A second one, the walk, covers only
 * keys with several layers. overlaps.ts defines what a layer counts for. Blocks in pooled memory that follow
 * all of these are one more layer, and a query for experts may add a bonus: label-lookup.ts.
 *
 * Reads  every shard of the index, directly. Each overlap was true at some instant of the call. If a shard
 *        has moved and its new memory has not come yet, it is read as it was at the instant of the move.
 */

import {
  DEVICE_LAYER,
  GUESSED_LAYER,
  type IndexMemory,
  IndexReader,
  KEY_LAYERS,
  type LabelMemory,
  LayerOverlaps,
  Layers,
  layerSlot,
  OverlapCounts,
  type ShardMemory,
} from '@homing/index'
import type { Audits } from '@homing/selection'
import type { Candidate } from './candidate.ts'
import { LabelLookup, type LabelWeights, NO_LABEL_WEIGHTS } from './label-lookup.ts'
import {
  creditLayers,
  type LayerWeights,
  newOverlaps,
  type OpenOverlaps,
  type Overlaps,
  withLabels,
} from './overlaps.ts'
import type { RoutingRequest } from './routing-request.ts'

/** Where a shard of the index is now, and which of its lower tiers hold blocks. */
export interface ShardView {
  readonly shard: number
  readonly memory: IndexMemory
  /** By worker slot: bit i for layer i of KEY_LAYERS; worker keys without any are left out. */
  readonly lowerLayers: Readonly<Record<number, number>>
  /** Labels of its blocks; undefined: none are kept. */
  readonly labels?: LabelMemory | undefined
}

export interface OverlapLookupOptions {
  readonly indexMemories: readonly ShardMemory[]
  readonly workerSlotsMax: number
  readonly weights: LayerWeights
  /** Guesses count for keys with events, too. */
  readonly guessesPending: boolean
  /** Default: labels count for nothing. */
  readonly labelWeights?: LabelWeights | undefined
}

/** What the index holds of a prompt. */
export interface FoundOverlaps extends Overlaps {
  /** False: a shard was not read, because its memory has not come, its writer is gone, or it was busy. */
  readonly isComplete: boolean
}

const DEVICE_BIT = 1 << DEVICE_LAYER
const GUESSED_BIT = 1 << GUESSED_LAYER

export class OverlapLookup {
  readonly #options: OverlapLookupOptions
  readonly #reader: IndexReader
  readonly #scores: OverlapCounts
  readonly #labels = new LabelLookup()
  readonly #layerScores = new LayerOverlaps()
  /** By worker slot: overlap of a layer for the current request; zero between requests. */
  readonly #bySlot: Int32Array
  /** By shard and worker slot: the lower tiers that hold blocks, one bit per layer. */
  readonly #lowerLayers: Readonly<Record<number, number>>[] = []
  readonly #memories: IndexMemory[] = []
  /** Keys and layers of the last walk, kept because the next walk mostly has the same. */
  #walkKeys: number[] = []
  #walkLayers = new Layers([])

  constructor(options: OverlapLookupOptions) {
    const slots = KEY_LAYERS.length * options.workerSlotsMax
    this.#options = options
    this.#reader = new IndexReader(options.indexMemories)
    this.#scores = new OverlapCounts(slots)
    this.#bySlot = new Int32Array(slots)
  }

  takeShard({ shard, memory, lowerLayers, labels }: ShardView): void {
    this.#labels.reader.setShard(shard, labels)
    this.#lowerLayers[shard] = lowerLayers
    if (this.#memories[shard] === memory) return
    this.#memories[shard] = memory
    this.#reader.replaceShard(shard, memory)
  }

  /** Whether the last lookup found that this shard has moved to other memory. */
  isStale(shard: number): boolean {
    return this.#reader.isStale(shard)
  }

  /** Blocks that the device holds according to its events; −1 if they are not known. */
  heldBlocks({ key: { trust, shard, workerSlot } }: Candidate): number {
    return trust === 'exact' ? this.#reader.blocksHeld(shard, workerSlot) : -1
  }

  /**
   * The overlap of each candidate. It never covers the whole prompt: engines compute the last token. It is 0
   * for a prompt that the engine computes whatever it has cached.
   */
  lookUp(request: RoutingRequest, candidates: readonly Candidate[], audits: Audits): FoundOverlaps {
    const overlaps = newOverlaps(candidates, audits)
    const blocksMax = Math.floor((request.promptTokens - 1) / request.blockSizeTokens)
    const count = Math.min(blocksMax, request.localHashes.length / 2)
    if (count <= 0 || request.cacheUse === 'unread') return overlaps
    const { workerSlotsMax, weights } = this.#options
    const scores = this.#scores
    const bySlot = this.#bySlot
    this.#reader.overlap(request.localHashes, count, scores)
    overlaps.isComplete = scores.isComplete
    for (let i = 0; i < scores.length; i++) bySlot[scores.workerSlots[i]!] = scores.blocks[i]!
    const walked: number[] = []
    for (let i = 0; i < candidates.length; i++) {
      const candidate = candidates[i]!
      const mask = this.#layersOf(candidate, request)
      const { key } = candidate
      if (mask === DEVICE_BIT) {
        overlaps.blocks[i] = bySlot[key.workerSlot]!
      } else if (mask === GUESSED_BIT) {
        const blocks = bySlot[layerSlot(key.workerSlot, GUESSED_LAYER, workerSlotsMax)]!
        creditLayers(overlaps, i, key, audits, weights, layer => (layer === GUESSED_LAYER ? blocks : 0))
      } else if (mask !== 0) {
        walked.push(i, mask)
      }
    }
    for (let i = 0; i < scores.length; i++) bySlot[scores.workerSlots[i]!] = 0
    if (walked.length > 0 && !this.#walk(request.localHashes, count, candidates, walked, overlaps, audits))
      overlaps.isComplete = false
    return this.#labelled(request, candidates, overlaps, count)
  }

  #labelled(
    request: RoutingRequest,
    candidates: readonly Candidate[],
    overlaps: OpenOverlaps,
    count: number,
  ): FoundOverlaps {
    if (request.textBlocksReason !== undefined || !this.#labels.concerns(request)) return overlaps
    // A guess says nothing of experts.
    const { blocks, guessedBlocks } = overlaps
    const held = guessedBlocks.some(guessed => guessed > 0)
      ? blocks.map((sum, i) => sum - guessedBlocks[i]!)
      : blocks
    const labels = this.#labels.lookUp(request, candidates, held, blocks, count)
    const weights = this.#options.labelWeights ?? NO_LABEL_WEIGHTS
    return withLabels(overlaps, labels, weights, request.continues !== undefined)
  }

  /** The layers that count for this request, one bit each. */
  #layersOf({ worker, key }: Candidate, request: RoutingRequest): number {
    const { trust, workerSlot, shard } = key
    if (trust === 'none') return 0
    if (trust === 'approximate' || request.textBlocksReason !== undefined) return GUESSED_BIT
    const pending = this.#options.guessesPending ? GUESSED_BIT : 0
    // Blocks of another size have other hashes.
    if (worker.blockSizeTokens?.value !== request.blockSizeTokens) return pending
    return DEVICE_BIT | pending | (this.#lowerLayers[shard]?.[workerSlot] ?? 0)
  }

  /**
   * `walked`: pairs of a candidate's index and the bits of its layers. Returns whether every shard was read.
   */
  #walk(
    localHashes: Int32Array,
    count: number,
    candidates: readonly Candidate[],
    walked: readonly number[],
    overlaps: OpenOverlaps,
    audits: Audits,
  ): boolean {
    const { workerSlotsMax, weights } = this.#options
    const keys: number[] = []
    for (let at = 0; at < walked.length; at += 2) {
      keys.push(candidates[walked[at]!]!.key.workerSlot, walked[at + 1]!)
    }
    if (keys.length !== this.#walkKeys.length || keys.some((word, at) => word !== this.#walkKeys[at])) {
      const slots: number[][] = []
      for (let at = 0; at < keys.length; at += 2) {
        const [keySlot, mask] = [keys[at]!, keys[at + 1]!]
        slots.push(
          KEY_LAYERS.map((_, layer) =>
            (mask & (1 << layer)) === 0 ? -1 : layerSlot(keySlot, layer, workerSlotsMax),
          ),
        )
      }
      this.#walkKeys = keys
      this.#walkLayers = new Layers(slots)
    }
    const scores = this.#layerScores
    this.#reader.extend(localHashes, count, this.#walkLayers, scores)
    for (let walk = 0; 2 * walk < walked.length; walk++) {
      const i = walked[2 * walk]!
      const { key } = candidates[i]!
      creditLayers(overlaps, i, key, audits, weights, layer => scores.blocksOf(walk, layer))
    }
    return scores.isComplete
  }
}
