/**
 * Key layers: which layers a worker key has, and which worker slot of a shard each of them is.
 *
 *   worker slot of a layer = layer · keysMax + worker slot of the key
 *
 *   device      blocks on the device, from its events; its worker slot is that of the key
 *   guessed     blocks of requests sent there, not confirmed by events: see actors/indexer
 *   host, disk, external
 *               blocks on lower tiers, from its events
 *
 * A block counts for the first layer that holds it, in this order: a block that was just sent there is on the
 * device, or on its way from a lower tier to the device.
 *
 * An unused layer has no holder and costs a word. At most twice as many holders as keys are in use at a time:
 * one for the device of every key, and the same number for other layers.
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
