/**
 * Layers: worker slots that belong together, and the blocks that each of them adds to a prefix.
 *
 * Several stores may hold blocks for one worker key: its device, its host's memory, a disk. Each has a worker
 * slot of its own. A request can use a block from any of them, so the prefix goes on where the first one
 * ends:
 *
 *   device   a b c · · · g        of a prompt a b c d e f g:
 *   host     a b · d e · ·        device 3 + 1 (a b c, g), host 2 (d e), disk 1 (f)
 *   disk     · · · · · f ·
 *
 * A block that several layers hold counts for the first in order, so each block counts once. The sum over
 * the layers is the leading run of the prompt whose blocks are each in some layer.
 */

/** Which worker slots belong together. Made once, used for many lookups. */
export class Layers {
  readonly keyCount: number
  /** Layers of the key that has most. */
  readonly layersMax: number
  /** Worker slot of key k's layer l at k · layersMax + l, in order; −1: it has no such layer. */
  readonly slots: Int32Array

  /** @param keys Of each key, the worker slots of its layers in order; all of one key in the same shard. */
  constructor(keys: readonly (readonly number[])[]) {
    this.keyCount = keys.length
    this.layersMax = Math.max(1, ...keys.map(slots => slots.length))
    this.slots = new Int32Array(keys.length * this.layersMax).fill(-1)
    keys.forEach((slots, key) => {
      this.slots.set(slots, key * this.layersMax)
    })
  }
}

/** The answer of one lookup in layers, reused from call to call. Owner: the caller of the reader. */
export class LayerOverlaps {
  /**
   * Blocks that layer l of key k is credited with, at k · layersMax + l of the layers that were asked for.
   */
  blocks = new Int32Array(0)
  layersMax = 0
  /** False when some shard gave no consistent view in time and is missing here. */
  isComplete = true

  /** Makes everything 0. */
  reset(layers: Layers): void {
    this.layersMax = layers.layersMax
    if (this.blocks.length < layers.slots.length) this.blocks = new Int32Array(layers.slots.length)
    else this.blocks.fill(0, 0, layers.slots.length)
    this.isComplete = true
  }

  blocksOf(key: number, layer: number): number {
    return this.blocks[key * this.layersMax + layer]!
  }
}
