/**
 * Event heap: which worker's step ends next. A worker has one pending end at most, so it is named by its
 * number.
 *
 * Equal times come in order of `push`. Cost: O(log workers) per call, O(1) to look at the next.
 */

export class EventHeap {
  /** Workers, the next one first; a binary heap of `#size` places. */
  readonly #heap: Int32Array
  readonly #times: Float64Array
  /** Counts pushes, to order equal times. */
  readonly #orders: Float64Array
  #size = 0
  #pushes = 0

  constructor(workers: number) {
    this.#heap = new Int32Array(workers)
    this.#times = new Float64Array(workers)
    this.#orders = new Float64Array(workers)
  }

  /** Infinity when nothing is pending. */
  get nextMs(): number {
    return this.#size === 0 ? Number.POSITIVE_INFINITY : this.#times[this.#heap[0]!]!
  }

  /** The worker that is next; only while something is pending. */
  get next(): number {
    return this.#heap[0]!
  }

  push(worker: number, atMs: number): void {
    this.#times[worker] = atMs
    this.#orders[worker] = this.#pushes++
    let at = this.#size++
    while (at > 0) {
      const parent = (at - 1) >> 1
      const other = this.#heap[parent]!
      if (!this.#isBefore(worker, other)) break
      this.#heap[at] = other
      at = parent
    }
    this.#heap[at] = worker
  }

  /** Takes the next one out. */
  pop(): number {
    const worker = this.#heap[0]!
    this.#size--
    if (this.#size > 0) this.#sink(this.#heap[this.#size]!)
    return worker
  }

  /** Takes the next one out and pushes it again: cheaper than both. */
  moveNext(atMs: number): void {
    const worker = this.#heap[0]!
    this.#times[worker] = atMs
    this.#orders[worker] = this.#pushes++
    this.#sink(worker)
  }

  /** Takes a worker out that may be pending; O(workers). */
  remove(worker: number): void {
    const pending = this.#heap.slice(0, this.#size).indexOf(worker)
    if (pending < 0) return
    const rest = Array.from(this.#heap.subarray(0, this.#size)).filter(other => other !== worker)
    rest.sort((a, b) => (this.#isBefore(a, b) ? -1 : 1))
    this.#heap.set(rest)
    this.#size = rest.length
  }

  /** Puts a worker in the place of the first one, and down from there. */
  #sink(worker: number): void {
    const heap = this.#heap
    const size = this.#size
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= size) break
      if (child + 1 < size && this.#isBefore(heap[child + 1]!, heap[child]!)) child++
      const other = heap[child]!
      if (!this.#isBefore(other, worker)) break
      heap[at] = other
      at = child
    }
    heap[at] = worker
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#times[a]! - this.#times[b]!
    return difference < 0 || (difference === 0 && this.#orders[a]! < this.#orders[b]!)
  }
}
