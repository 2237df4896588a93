/**
 * Holder table: which workers hold which blocks, by the id of a block.
 *
 *   id ─▶ node ─▶ | bit per worker, in words of 32 | holders |
 *
 * A node lives while a worker holds its block. An id stands for a block and all before it, so the overlap of
 * a prompt is found by intersecting the workers of one block after the other.
 *
 * Cost: one lookup per block and call; `overlaps` one pass over the workers, and one over their words per
 * block until no worker is left.
 */

const NODES_AT_START = 1024

export class HolderTable {
  readonly workers: number
  readonly #words: number
  readonly #nodeOf = new Map<number, number>()
  #bits: Int32Array
  #holders: Int32Array
  readonly #free: number[] = []
  #used = 0
  /** Blocks of each worker. */
  readonly blocksHeld: Int32Array
  /** Workers that hold all blocks so far. */
  readonly #alive: Int32Array

  constructor(workers: number) {
    this.workers = workers
    this.#words = Math.ceil(workers / 32)
    this.#bits = new Int32Array(NODES_AT_START * this.#words)
    this.#holders = new Int32Array(NODES_AT_START)
    this.blocksHeld = new Int32Array(workers)
    this.#alive = new Int32Array(this.#words)
  }

  /** Blocks that some worker holds. */
  get size(): number {
    return this.#nodeOf.size
  }

  add(id: number, worker: number): void {
    let node = this.#nodeOf.get(id)
    if (node === undefined) {
      node = this.#free.pop() ?? this.#newNode()
      this.#nodeOf.set(id, node)
    }
    const word = node * this.#words + (worker >> 5)
    const bit = 1 << (worker & 31)
    if ((this.#bits[word]! & bit) !== 0) return
    this.#bits[word]! |= bit
    this.#holders[node]!++
    this.blocksHeld[worker]!++
  }

  remove(id: number, worker: number): void {
    const node = this.#nodeOf.get(id)
    if (node === undefined) return
    const word = node * this.#words + (worker >> 5)
    const bit = 1 << (worker & 31)
    if ((this.#bits[word]! & bit) === 0) return
    this.#bits[word]! &= ~bit
    this.#holders[node]!--
    this.blocksHeld[worker]!--
    if (this.#holders[node]! > 0) return
    this.#nodeOf.delete(id)
    this.#free.push(node)
  }

  /** Takes a worker out everywhere; O(blocks). */
  clear(worker: number): void {
    for (const id of [...this.#nodeOf.keys()]) this.remove(id, worker)
  }

  /** Workers that hold a block. */
  holders(id: number): number {
    const node = this.#nodeOf.get(id)
    return node === undefined ? 0 : this.#holders[node]!
  }

  /** Sets `into[w]` to the number of leading blocks that worker w holds. */
  overlaps(ids: ArrayLike<number>, count: number, into: Int32Array): void {
    const alive = this.#alive
    const words = this.#words
    alive.fill(-1)
    const workersOfLast = this.workers & 31
    if (workersOfLast !== 0) alive[words - 1] = (1 << workersOfLast) - 1
    let depth = 0
    for (; depth < count; depth++) {
      const node = this.#nodeOf.get(ids[depth]!)
      if (node === undefined) break
      const at = node * words
      let left = 0
      for (let word = 0; word < words; word++) {
        const before = alive[word]!
        if (before === 0) continue
        const after = before & this.#bits[at + word]!
        setBits(into, word, before ^ after, depth)
        alive[word] = after
        left |= after
      }
      if (left === 0) return
    }
    for (let word = 0; word < words; word++) setBits(into, word, alive[word]!, depth)
  }

  #newNode(): number {
    const node = this.#used++
    if (node === this.#holders.length) {
      const bits = new Int32Array(this.#bits.length * 2)
      bits.set(this.#bits)
      this.#bits = bits
      const holders = new Int32Array(this.#holders.length * 2)
      holders.set(this.#holders)
      this.#holders = holders
    }
    return node
  }
}

function setBits(into: Int32Array, word: number, bits: number, value: number): void {
  let left = bits
  while (left !== 0) {
    const lowest = left & -left
    into[word * 32 + 31 - Math.clz32(lowest)] = value
    left ^= lowest
  }
}
