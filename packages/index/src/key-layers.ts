/**
 * Key layers: which layers a worker key has, and which worker slot of a shard each of them is.
 *
 *   worker slot of a layer = layer · keysMax + worker slot of the key
 *
 *   device      blocks on the device, from its events; its worker slot is that of the key
 *   guessed     blocks sent there and not yet confirmed, or never to be: see actors/indexer
 *   host, disk, external
 *               blocks on lower tiers, from its events
 *
 * A block counts for the first layer that holds it, in this order: a block that was just sent there is on the
 * device, or on its way to it, whatever lower tier it may come from.
 *
 * A layer that is not used has no holder and costs a word. Twice as many holders as keys may be in use at a
 * time, so the device of every key has one, and as many other layers.
 */

import type { IndexOptions } from './types.ts'

export const KEY_LAYERS = ['device', 'guessed', 'host', 'disk', 'external'] as const

export type KeyLayer = (typeof KEY_LAYERS)[number]

export const DEVICE_LAYER = 0
export const GUESSED_LAYER = 1

const HOLDERS_PER_KEY = 2

/** `layer`: an index of KEY_LAYERS. `keySlot`: 0 … keysMax − 1. */
export function layerSlot(keySlot: number, layer: number, keysMax: number): number {
  return layer * keysMax + keySlot
}

/** What a shard for so many worker keys is made with. */
export function layeredOptions(
  capacityBytes: number,
  keysMax: number,
): Pick<IndexOptions, 'capacityBytes' | 'workerSlotsMax' | 'holdersMax'> {
  return {
    capacityBytes,
    workerSlotsMax: KEY_LAYERS.length * keysMax,
    holdersMax: HOLDERS_PER_KEY * keysMax,
  }
}
