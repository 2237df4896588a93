/**
 * Overlaps: the leading blocks of a prompt that each candidate is credited with, and what they count for.
 *
 * A layer counts with its weight times the credit factor of its kind of knowledge: events, or guesses.
 */

import type { WorkerKeyRecord } from '@homing/fleet'
import { DEVICE_LAYER, GUESSED_LAYER, KEY_LAYERS, type KeyLayer } from '@homing/index'
import { type Audits, creditFactor } from '@homing/selection'
import type { Candidate } from './candidate.ts'
import type { LabelOverlaps, LabelWeights } from './label-lookup.ts'
import type { LayerTerm } from './receipt.ts'

/** What a block of a lower tier counts for; a block on the device counts 1. */
export interface LayerWeights {
  readonly host: number
  /** Also for blocks in external storage. */
  readonly disk: number
}

/** Element i of each belongs to candidate i. */
export interface Overlaps {
  /** Blocks of all layers together. */
  readonly blocks: Int32Array
  /** What these blocks count for, 0 … 1. */
  readonly creditFactors: Float64Array
  /** The part of `blocks` · `creditFactors` that is in lower tiers. */
  readonly lowerTierBlocks: Float64Array
  /** Blocks of the guessed layer. */
  readonly guessedBlocks: Int32Array
  /** Layers with blocks, in their order; empty if all blocks are on the device. */
  readonly layers: readonly (readonly LayerTerm[])[]
  /** What labels say of the candidates; undefined: nothing. */
  readonly labels?: LabelOverlaps | undefined
  /**
   * Blocks that count for the cost beside `blocks`, and that no worker holds: the bonus of matching experts,
   * and what pooled blocks weigh above 1. Undefined: none.
   */
  readonly bonusBlocks?: Float64Array | undefined
  /** The part of `blocks` · `creditFactors` that must be read out of pooled memory. Undefined: none. */
  readonly readBlocks?: Float64Array | undefined
}

/** Overlaps while they are filled in. */
export interface OpenOverlaps extends Overlaps {
  /** See FoundOverlaps. */
  isComplete: boolean
  readonly layers: (readonly LayerTerm[])[]
}

const NO_LAYERS: readonly LayerTerm[] = []

/** Overlaps without any blocks. */
export function newOverlaps(candidates: readonly Candidate[], audits: Audits): OpenOverlaps {
  const count = candidates.length
  const creditFactors = new Float64Array(count)
  for (let i = 0; i < count; i++) creditFactors[i] = eventFactor(candidates[i]!.key, audits)
  return {
    blocks: new Int32Array(count),
    creditFactors,
    lowerTierBlocks: new Float64Array(count),
    guessedBlocks: new Int32Array(count),
    layers: new Array(count).fill(NO_LAYERS),
    isComplete: true,
  }
}

/** Credits candidate `i` with blocks that are not all on the device. `blocksOf`: of a layer of KEY_LAYERS. */
export function creditLayers(
  overlaps: OpenOverlaps,
  i: number,
  key: WorkerKeyRecord,
  audits: Audits,
  weights: LayerWeights,
  blocksOf: (layer: number) => number,
): void {
  const terms: LayerTerm[] = []
  let sum = 0
  let credited = 0
  for (const [layer, name] of KEY_LAYERS.entries()) {
    const blocks = blocksOf(layer)
    if (blocks === 0) continue
    const factor = factorOf(name, key, audits, weights)
    terms.push({ layer: name, blocks, factor })
    sum += blocks
    credited += blocks * factor
    if (layer === GUESSED_LAYER) overlaps.guessedBlocks[i] = blocks
    else if (layer !== DEVICE_LAYER) overlaps.lowerTierBlocks[i]! += blocks * factor
  }
  if (sum === 0) return
  overlaps.blocks[i] = sum
  // With one layer, no quotient: it may be off by a rounding error.
  overlaps.creditFactors[i] = terms.length === 1 ? terms[0]!.factor : credited / sum
  overlaps.layers[i] = terms
}

/** The overlaps with what labels add to them. `isMigration`: a stream goes on elsewhere. */
export function withLabels(
  overlaps: OpenOverlaps,
  labels: LabelOverlaps | undefined,
  weights: LabelWeights,
  isMigration: boolean,
): OpenOverlaps {
  if (labels === undefined) return overlaps
  const weight = isMigration ? weights.migration : weights.pooled
  const factor = Math.min(1, weight)
  const bonusBlocks = new Float64Array(labels.moe.length)
  const readBlocks = new Float64Array(labels.moe.length)
  let hasBonus = false
  let isRead = false
  for (let i = 0; i < bonusBlocks.length; i++) {
    const pooled = labels.pooled[i]!
    bonusBlocks[i] = labels.moe[i]! * weights.moe + pooled * (weight - factor)
    if (bonusBlocks[i]! > 0) hasBonus = true
    if (pooled === 0) continue
    readBlocks[i] = pooled * factor
    isRead = true
    const blocks = overlaps.blocks[i]!
    const credited = blocks * overlaps.creditFactors[i]! + pooled * factor
    const device: LayerTerm = { layer: 'device', blocks, factor: overlaps.creditFactors[i]! }
    const held = overlaps.layers[i]!.length > 0 || blocks === 0 ? overlaps.layers[i]! : [device]
    overlaps.layers[i] = [...held, { layer: 'pooled', blocks: pooled, factor }]
    overlaps.blocks[i] = blocks + pooled
    overlaps.creditFactors[i] = blocks === 0 ? factor : credited / (blocks + pooled)
    overlaps.lowerTierBlocks[i]! += pooled * factor
  }
  return {
    ...overlaps,
    labels,
    bonusBlocks: hasBonus ? bonusBlocks : undefined,
    readBlocks: isRead ? readBlocks : undefined,
  }
}

/** The overlaps of the candidates that are kept. */
export function keptOverlaps(overlaps: Overlaps, isKept: readonly boolean[]): Overlaps {
  const only = (_: unknown, i: number): boolean => isKept[i] === true
  return {
    blocks: overlaps.blocks.filter(only),
    creditFactors: overlaps.creditFactors.filter(only),
    lowerTierBlocks: overlaps.lowerTierBlocks.filter(only),
    guessedBlocks: overlaps.guessedBlocks.filter(only),
    layers: overlaps.layers.filter(only),
    labels: overlaps.labels && {
      moe: overlaps.labels.moe.filter(only),
      pooled: overlaps.labels.pooled.filter(only),
    },
    bonusBlocks: overlaps.bonusBlocks?.filter(only),
    readBlocks: overlaps.readBlocks?.filter(only),
  }
}

function factorOf(
  layer: KeyLayer,
  key: WorkerKeyRecord,
  audits: Audits,
  { host, disk }: LayerWeights,
): number {
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

function eventFactor(key: WorkerKeyRecord, audits: Audits): number {
  const { precision, requests } = audits.precision(key.workerSlot)
  return creditFactor(key.trust, precision, requests)
}
