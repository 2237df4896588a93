/** Slot blocks: the blocks of one worker slot of an index, as removals and images need them. */

import {
  type BlockIndex,
  type Copies,
  DEVICE_LAYER,
  HELD_WORDS,
  KEY_LAYERS,
  ORPHAN_WORDS,
} from '@homing/index'
import type { HeldTier, LeftCopies, RemovableBlocks } from '@homing/protocol'
import type { LayerSlots } from './layer-slots.ts'
import type { KeyImage } from './messages.ts'

export const LAYER_OF_TIER: Readonly<Record<HeldTier, number>> = {
  device: DEVICE_LAYER,
  host: KEY_LAYERS.indexOf('host'),
  disk: KEY_LAYERS.indexOf('disk'),
  external: KEY_LAYERS.indexOf('external'),
}

/** Removes blocks of the worker slot that is set. */
export class SlotBlocks implements RemovableBlocks {
  workerSlot = 0
  /** Blocks removed from the device. */
  fromDevice = 0
  readonly #index: BlockIndex
  readonly #layers: LayerSlots

  constructor(index: BlockIndex, layers: LayerSlots) {
    this.#index = index
    this.#layers = layers
  }

  remove(tier: HeldTier, hashes: Int32Array, copies: Copies, left: LeftCopies): number {
    const layer = LAYER_OF_TIER[tier]
    const slot = this.#layers.slotOf(this.workerSlot, layer)
    const { removed } = this.#index.remove(slot, hashes, hashes.length / 2, copies, left)
    if (layer === DEVICE_LAYER) this.fromDevice += removed
    return removed
  }
}

/** The image without these layers. */
export function withoutLayers(image: KeyImage, missing: readonly number[]): KeyImage {
  const kept = (words: Int32Array, size: number, layerAt: number): Int32Array => {
    const records = Array.from({ length: words.length / size }, (_, i) =>
      words.subarray(i * size, (i + 1) * size),
    )
    const left = records.filter(record => !missing.includes(record[layerAt]!))
    return Int32Array.from(left.flatMap(record => [...record]))
  }
  const held = kept(image.held, HELD_WORDS, 1)
  return { ...image, held, orphans: kept(image.orphans, ORPHAN_WORDS, 0) }
}
