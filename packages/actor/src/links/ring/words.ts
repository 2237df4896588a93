/**
 * Words: 32-bit words of memory that two threads use at once. The lock-free parts (ring.ts) are written
 * against this interface: `AtomicWords` is the real memory, the model checker brings its own.
 */

export interface Words {
  /** Sequentially consistent. */
  load(index: number): number
  /** Sequentially consistent. */
  store(index: number, value: number): void
  /** Sequentially consistent; returns the value before. */
  exchange(index: number, value: number): number
  /** No order of its own: right only when loads and stores above keep the other thread away. */
  read(index: number): number
  write(index: number, value: number): void
}

/** The words of a SharedArrayBuffer. */
export class AtomicWords implements Words {
  readonly array: Int32Array

  constructor(buffer: SharedArrayBuffer) {
    this.array = new Int32Array(buffer)
  }

  load(index: number): number {
    return Atomics.load(this.array, index)
  }

  store(index: number, value: number): void {
    Atomics.store(this.array, index, value)
  }

  exchange(index: number, value: number): number {
    return Atomics.exchange(this.array, index, value)
  }

  read(index: number): number {
    return this.array[index]!
  }

  write(index: number, value: number): void {
    this.array[index] = value
  }
}
