/**
 * Indexed heap: a binary heap whose items know their place in it, so that any of them can leave or move.
 *
 * An item can be in several heaps at once, each with a slot of its own in `heapPlaces`.
 * Cost: push, remove and update O(log size), and O(1) for an item that belongs where it is put; `first` O(1).
 */

export interface HeapItem {
  /** Element s: its place in the heap with slot s; −1 while it is in none. */
  readonly heapPlaces: number[]
}

export class IndexedHeap<T extends HeapItem> {
  readonly #items: T[] = []
  readonly #slot: number
  /** A total order: of two different items one is always before the other. */
  readonly #isBefore: (a: T, b: T) => boolean

  constructor(slot: number, isBefore: (a: T, b: T) => boolean) {
    this.#slot = slot
    this.#isBefore = isBefore
  }

  get size(): number {
    return this.#items.length
  }

  get first(): T | undefined {
    return this.#items[0]
  }

  has(item: T): boolean {
    return item.heapPlaces[this.#slot]! >= 0
  }

  /** Adds an item that is not in it. */
  push(item: T): void {
    this.#items.push(item)
    this.#rise(item, this.#items.length - 1)
  }

  /** Takes an item out; false when it is not in it. */
  remove(item: T): boolean {
    const at = item.heapPlaces[this.#slot]!
    if (at < 0) return false
    item.heapPlaces[this.#slot] = -1
    const last = this.#items.pop()!
    if (last !== item) this.#settle(last, at)
    return true
  }

  /** The item has changed: puts it where it belongs now. Does nothing for one that is not in it. */
  update(item: T): void {
    const at = item.heapPlaces[this.#slot]!
    if (at >= 0) this.#settle(item, at)
  }

  #settle(item: T, at: number): void {
    const parent = (at - 1) >> 1
    if (at > 0 && this.#isBefore(item, this.#items[parent]!)) this.#rise(item, at)
    else this.#sink(item, at)
  }

  #rise(item: T, from: number): void {
    let at = from
    while (at > 0) {
      const parent = (at - 1) >> 1
      const other = this.#items[parent]!
      if (!this.#isBefore(item, other)) break
      this.#put(other, at)
      at = parent
    }
    this.#put(item, at)
  }

  #sink(item: T, from: number): void {
    const size = this.#items.length
    let at = from
    for (;;) {
      let child = 2 * at + 1
      if (child >= size) break
      if (child + 1 < size && this.#isBefore(this.#items[child + 1]!, this.#items[child]!)) child++
      const other = this.#items[child]!
      if (!this.#isBefore(other, item)) break
      this.#put(other, at)
      at = child
    }
    this.#put(item, at)
  }

  #put(item: T, at: number): void {
    this.#items[at] = item
    item.heapPlaces[this.#slot] = at
  }
}
