/**
 * Layer slots: which layers of which worker keys are in use in a shard.
 *
 * The device layer of every key has its place in the shard. At most as many other layers as there are keys
 * are in use at a time (packages/index, key-layers.ts). Any further layer holds nothing until one is given
 * back.
 */

import { DEVICE_LAYER, GUESSED_LAYER, layerSlot } from '@homing/index'

const NO_SLOTS: readonly number[] = []

export class LayerSlots {
  readonly keysMax: number
  /** By key: bit per layer in use; the device always has its place and no bit. */
  readonly #masks = new Map<number, number>()
  #otherLayers = 0
  /** Grows whenever `lowerLayers` changes. */
  #lowerRevision = 0

  constructor(keysMax: number) {
    this.keysMax = keysMax
  }

  get lowerRevision(): number {
    return this.#lowerRevision
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
    if (layer === DEVICE_LAYER) return true
    const mask = this.maskOf(keySlot)
    if ((mask & (1 << layer)) !== 0) return true
    if (this.#otherLayers >= this.keysMax) return false
    this.#otherLayers++
    if (layer !== GUESSED_LAYER) this.#lowerRevision++
    this.#masks.set(keySlot, mask | (1 << layer))
    return true
  }

  /** Its slot in the index is empty, and stays so. */
  giveBack(keySlot: number, layer: number): void {
    const mask = this.maskOf(keySlot)
    const bit = 1 << layer
    if ((mask & bit) === 0) return
    this.#otherLayers--
    if (layer !== GUESSED_LAYER) this.#lowerRevision++
    if (mask === bit) this.#masks.delete(keySlot)
    else this.#masks.set(keySlot, mask & ~bit)
  }

  /** The worker slots of this key that are in use and filled by events, without the slot of `layer`. */
  othersOf(keySlot: number, layer: number): readonly number[] {
    const mask = (this.maskOf(keySlot) | (1 << DEVICE_LAYER)) & ~((1 << GUESSED_LAYER) | (1 << layer))
    if (mask === 0) return NO_SLOTS
    const slots: number[] = []
    for (let other = 0; mask >>> other !== 0; other++) {
      if (((mask >>> other) & 1) === 1) slots.push(this.slotOf(keySlot, other))
    }
    return slots
  }

  /** By key: bit per layer in use other than device and guessed; keys with none are left out. */
  lowerLayers(): Readonly<Record<number, number>> {
    const lower: Record<number, number> = {}
    for (const [keySlot, mask] of this.#masks) {
      const bits = mask & ~(1 << GUESSED_LAYER)
      if (bits !== 0) lower[keySlot] = bits
    }
    return lower
  }

  /** Keys with their layers in use: bit per layer. */
  used(): Iterable<readonly [keySlot: number, mask: number]> {
    return this.#masks
  }
}
