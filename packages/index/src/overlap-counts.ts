/**
 * OverlapCounts: the answer of one lookup, a list of (worker slot, leading blocks held), reused from
 * call to call so that a lookup allocates nothing.
 *
 * Worker slots without overlap are absent; order has no meaning. Owner: the caller of the reader.
 */

export class OverlapCounts {
  /** Worker slots; the first `length` entries count. */
  workerSlots: Int32Array
  /** Leading blocks that `workerSlots[i]` holds, at least 1. */
  blocks: Int32Array
  length = 0
  /** False when some shard gave no consistent view in time and is missing here. */
  isComplete = true

  /** @param capacity Entries to reserve; a reader enlarges it where needed. */
  constructor(capacity = 0) {
    this.workerSlots = new Int32Array(capacity)
    this.blocks = new Int32Array(capacity)
  }

  /** Makes room for `capacity` entries; the old content is lost. */
  reserve(capacity: number): void {
    if (this.workerSlots.length >= capacity) return
    this.workerSlots = new Int32Array(capacity)
    this.blocks = new Int32Array(capacity)
    this.length = 0
  }

  /** Blocks of one worker slot; 0 when absent. Linear: for tests and people. */
  blocksOf(workerSlot: number): number {
    for (let i = 0; i < this.length; i++) {
      if (this.workerSlots[i] === workerSlot) return this.blocks[i]!
    }
    return 0
  }

  /** The same as a map, for tests and people. */
  toMap(): Map<number, number> {
    const map = new Map<number, number>()
    for (let i = 0; i < this.length; i++) map.set(this.workerSlots[i]!, this.blocks[i]!)
    return map
  }
}
