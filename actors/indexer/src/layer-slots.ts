/**
 * Layer slots: which layers of which worker keys are in use in a shard.
 *
 * The device of every key has its place in the shard; of other layers as many as there are keys may be in use at one
 * time (packages/index, key-layers.ts). Past that nothing is held for another layer until one is given back.
 */

import { DEVICE_LAYER, layerSlot } from '@homing/index'

export class LayerSlots {
  readonly keysMax: number
  /** By key: bit per layer in use; the device always has its place and no bit. */
  readonly #masks = new Map<number, number>()
  #otherLayers = 0

  constructor(keysMax: number) {
    this.keysMax = keysMax
  }

  /** The worker slot of a layer. Throws RangeError for a key that the shard has no room for. */
  slotOf(keySlot: number, layer: number): number {
    if (!(keySlot >= 0 && keySlot < this.keysMax)) {
      throw new RangeError(`worker slot ${keySlot} is not of 0 … ${this.keysMax - 1}`)
    }
    return layerSlot(keySlot, layer, this.keysMax)
  }

  /** Bit per layer of this key that is in use, besides the device. */
  maskOf(keySlot: number): number {
    return this.#masks.get(keySlot) ?? 0
  }

  /** Uses a layer from now on. False: too many are in use. */
  take(keySlot: number, layer: number): boolean {
    const mask = this.maskOf(keySlot)
    if (layer === DEVICE_LAYER || (mask & (1 << layer)) !== 0) return true
    if (this.#otherLayers >= this.keysMax) return false
    this.#otherLayers++
    this.#masks.set(keySlot, mask | (1 << layer))
    return true
  }

  /** Its slot in the index is empty, and stays so. */
  giveBack(keySlot: number, layer: number): void {
    const mask = this.maskOf(keySlot)
    const bit = 1 << layer
    if ((mask & bit) === 0) return
    this.#otherLayers--
    if (mask === bit) this.#masks.delete(keySlot)
    else this.#masks.set(keySlot, mask & ~bit)
  }

  /** Keys with their layers in use: bit per layer. */
  used(): Iterable<readonly [keySlot: number, mask: number]> {
    return this.#masks
  }
}
