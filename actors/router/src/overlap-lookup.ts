/**
 * Overlap lookup: the leading blocks of a prompt that each candidate is credited with, layer by layer.
 *
 *   device                    if the events of the key are believed
 *   host, disk, external      in addition, for keys whose events have named them
 *   guessed                   if there are no events, or guesses cover the time until they come; and for
 *                             prompts of which only the text is known
 *
 * One lookup of all keys together answers for keys with one layer; only keys with more layers need a walk of their own.
 * A layer counts with its weight times the credit factor of its kind of knowledge: events, or guesses.
 *
 * Reads  every shard of the index, directly. The result was true at some instant of the call; for a shard that has
 *        moved, until its new memory comes, at the instant of the move.
 */

import type { ShardMemoryMessage } from '@homing/actors/indexer'
import type { WorkerKeyRecord, WorkerRecord } from '@homing/fleet'
import {
  DEVICE_LAYER,
  GUESSED_LAYER,
  type IndexMemory,
  IndexReader,
  KEY_LAYERS,
  LayerOverlaps,
  Layers,
  layerSlot,
  OverlapCounts,
  type ShardMemory,
} from '@homing/index'
import type { LayerTerm, RoutingRequest } from '@homing/placement'
import { type Audits, creditFactor } from '@homing/selection'

export interface Candidate {
  readonly worker: WorkerRecord
  readonly key: WorkerKeyRecord
}

/** What a block of a lower tier counts for, when one on the device counts 1. */
export interface LayerWeights {
  readonly host: number
  /** Also of what is held elsewhere. */
  readonly disk: number
}

export interface OverlapLookupOptions {
  readonly indexMemories: readonly ShardMemory[]
  readonly workerSlotsMax: number
  readonly weights: LayerWeights
  /** Guesses count for keys with events too. */
  readonly guessesPending: boolean
}

/** Element i of each belongs to candidate i. */
export interface Overlaps {
  /** Blocks of all layers together. */
  readonly blocks: Int32Array
  /** What these blocks count for, 0 … 1. */
  readonly creditFactors: Float64Array
  /** The part of blocks · credit factor that is in lower tiers. */
  readonly lowerTierBlocks: Float64Array
  /** Blocks of the guessed layer. */
  readonly guessedBlocks: Int32Array
  /** Layers with blocks, in their order; none where all blocks are on the device. */
  readonly layers: readonly (readonly LayerTerm[])[]
  /** False: a shard that has moved, or was busy, is missing. */
  readonly isComplete: boolean
}

/** The same, while it is filled in. */
interface OwnOverlaps extends Overlaps {
  readonly layers: (readonly LayerTerm[])[]
  isComplete: boolean
}

const DEVICE_BIT = 1 << DEVICE_LAYER
const GUESSED_BIT = 1 << GUESSED_LAYER
const NO_LAYERS: readonly LayerTerm[] = []

export class OverlapLookup {
  readonly #options: OverlapLookupOptions
  readonly #reader: IndexReader
  readonly #scores: OverlapCounts
  readonly #layerScores = new LayerOverlaps()
  /** Overlap by worker slot of a layer, for the request at hand; zero between requests. */
  readonly #bySlot: Int32Array
  /** By shard and worker slot: lower tiers that hold something, bit per layer. */
  readonly #lowerLayers: Readonly<Record<number, number>>[] = []
  readonly #memories: IndexMemory[] = []
  /** Keys and layers of the last walk in layers, kept because they are mostly the same. */
  #walkKeys: number[] = []
  #walkLayers = new Layers([])

  constructor(options: OverlapLookupOptions) {
    const slots = KEY_LAYERS.length * options.workerSlotsMax
    this.#options = options
    this.#reader = new IndexReader(options.indexMemories)
    this.#scores = new OverlapCounts(slots)
    this.#bySlot = new Int32Array(slots)
  }

  takeShard({ shard, memory, lowerLayers }: ShardMemoryMessage): void {
    this.#lowerLayers[shard] = lowerLayers
    if (this.#memories[shard] === memory) return
    this.#memories[shard] = memory
    this.#reader.replaceShard(shard, memory)
  }

  /** Whether the last lookup found that this shard has other memory now. */
  isStale(shard: number): boolean {
    return this.#reader.isStale(shard)
  }

  /** Blocks that its device holds, as its events say; −1 where they do not. */
  heldBlocks({ key: { trust, shard, workerSlot } }: Candidate): number {
    return trust === 'exact' ? this.#reader.blocksHeld(shard, workerSlot) : -1
  }

  /** An engine always computes the last token itself. */
  lookUp(request: RoutingRequest, candidates: readonly Candidate[], audits: Audits): Overlaps {
    const overlaps: OwnOverlaps = {
      blocks: new Int32Array(candidates.length),
      creditFactors: Float64Array.from(candidates, ({ key }) => eventFactor(key, audits)),
      lowerTierBlocks: new Float64Array(candidates.length),
      guessedBlocks: new Int32Array(candidates.length),
      layers: new Array(candidates.length).fill(NO_LAYERS),
      isComplete: true,
    }
    const blocksMax = Math.floor((request.promptTokens - 1) / request.blockSizeTokens)
    const count = Math.min(blocksMax, request.localHashes.length / 2)
    if (count <= 0) return overlaps
    const { workerSlotsMax } = this.#options
    const scores = this.#scores
    const bySlot = this.#bySlot
    this.#reader.overlap(request.localHashes, count, scores)
    overlaps.isComplete = scores.isComplete
    for (let i = 0; i < scores.length; i++) bySlot[scores.workerSlots[i]!] = scores.blocks[i]!
    const walked: number[] = []
    for (let i = 0; i < candidates.length; i++) {
      const candidate = candidates[i]!
      const mask = this.#layersOf(candidate, request)
      const { workerSlot } = candidate.key
      if (mask === DEVICE_BIT) {
        overlaps.blocks[i] = bySlot[workerSlot]!
      } else if (mask === GUESSED_BIT) {
        const blocks = bySlot[layerSlot(workerSlot, GUESSED_LAYER, workerSlotsMax)]!
        this.#credit(overlaps, i, candidate.key, audits, layer => (layer === GUESSED_LAYER ? blocks : 0))
      } else if (mask !== 0) {
        walked.push(i, mask)
      }
    }
    for (let i = 0; i < scores.length; i++) bySlot[scores.workerSlots[i]!] = 0
    if (walked.length > 0) this.#walk(request.localHashes, count, candidates, walked, overlaps, audits)
    return overlaps
  }

  /** Bit per layer that counts for this request. */
  #layersOf({ worker, key }: Candidate, request: RoutingRequest): number {
    const { trust, workerSlot, shard } = key
    if (trust === 'none') return 0
    if (trust === 'approximate' || request.textBlocksReason !== undefined) return GUESSED_BIT
    const pending = this.#options.guessesPending ? GUESSED_BIT : 0
    // Blocks of another size are other blocks.
    if (worker.blockSizeTokens?.value !== request.blockSizeTokens) return pending
    return DEVICE_BIT | pending | (this.#lowerLayers[shard]?.[workerSlot] ?? 0)
  }

  /** `walked`: numbers of candidates of several layers, each followed by its layers. */
  #walk(
    localHashes: Int32Array,
    count: number,
    candidates: readonly Candidate[],
    walked: readonly number[],
    overlaps: OwnOverlaps,
    audits: Audits,
  ): void {
    const { workerSlotsMax } = this.#options
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
    overlaps.isComplete &&= scores.isComplete
    for (let walk = 0; 2 * walk < walked.length; walk++) {
      const i = walked[2 * walk]!
      this.#credit(overlaps, i, candidates[i]!.key, audits, layer => scores.blocksOf(walk, layer))
    }
  }

  #credit(
    overlaps: OwnOverlaps,
    i: number,
    key: WorkerKeyRecord,
    audits: Audits,
    blocksOf: (layer: number) => number,
  ): void {
    const terms: LayerTerm[] = []
    let sum = 0
    let credited = 0
    for (const [layer, name] of KEY_LAYERS.entries()) {
      const blocks = blocksOf(layer)
      if (blocks === 0) continue
      const factor = this.#factorOf(name, key, audits)
      terms.push({ layer: name, blocks, factor })
      sum += blocks
      credited += blocks * factor
      if (layer === GUESSED_LAYER) overlaps.guessedBlocks[i] = blocks
      else if (layer !== DEVICE_LAYER) overlaps.lowerTierBlocks[i]! += blocks * factor
    }
    if (sum === 0) return
    overlaps.blocks[i] = sum
    overlaps.creditFactors[i] = credited / sum
    overlaps.layers[i] = terms
  }

  #factorOf(layer: LayerTerm['layer'], key: WorkerKeyRecord, audits: Audits): number {
    const { host, disk } = this.#options.weights
    switch (layer) {
      case 'device':
        return eventFactor(key, audits)
      case 'guessed': {
        const { precision, requests } = audits.guessPrecision(key.workerSlot)
        return creditFactor('approximate', precision, requests)
      }
      case 'host':
        return host * eventFactor(key, audits)
      case 'disk':
      case 'external':
        return disk * eventFactor(key, audits)
    }
  }
}

function eventFactor(key: WorkerKeyRecord, audits: Audits): number {
  const { precision, requests } = audits.precision(key.workerSlot)
  return creditFactor(key.trust, precision, requests)
}
