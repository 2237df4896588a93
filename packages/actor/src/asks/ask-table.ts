/**
 * AskTable: asks in flight by their number. Numbers are given out one after the other, so those in flight
 * mostly lie close together: an ask is kept at its number modulo the size of a flat table, and in a Map when
 * another one that takes longer is there. A Map for all of them costs a third of a cross-thread ask in
 * garbage.
 */

/** Something that waits under a number. */
export interface Numbered {
  readonly corr: number
}

const ASK_SLOTS_MIN = 256
const SLOTS_MAX = 1 << 16

export class AskTable<T extends Numbered> {
  #slots: (T | undefined)[]
  #mask: number
  readonly #others = new Map<number, T>()
  #size = 0

  constructor() {
    this.#slots = new Array<T | undefined>(ASK_SLOTS_MIN).fill(undefined)
    this.#mask = ASK_SLOTS_MIN - 1
  }

  get size(): number {
    return this.#size
  }

  get(corr: number): T | undefined {
    const found = this.#slots[(corr | 0) & this.#mask]
    if (found !== undefined && found.corr === corr) return found
    return this.#others.size === 0 ? undefined : this.#others.get(corr)
  }

  /** Adds one whose number is not in the table. */
  add(ask: T): void {
    if (this.#size * 2 >= this.#slots.length && this.#slots.length < SLOTS_MAX) this.#grow()
    this.#size++
    const at = (ask.corr | 0) & this.#mask
    if (this.#slots[at] === undefined) this.#slots[at] = ask
    else this.#others.set(ask.corr, ask)
  }

  delete(corr: number): void {
    const at = (corr | 0) & this.#mask
    if (this.#slots[at]?.corr === corr) {
      this.#slots[at] = undefined
      this.#size--
    } else if (this.#others.size > 0 && this.#others.delete(corr)) this.#size--
  }

  clear(): void {
    this.#slots.fill(undefined)
    this.#others.clear()
    this.#size = 0
  }

  /** All of them now; what happens to the table meanwhile does not matter. */
  all(): readonly T[] {
    return [...this.#slots.filter(ask => ask !== undefined), ...this.#others.values()]
  }

  #grow(): void {
    const all = this.all()
    this.#slots = new Array<T | undefined>(this.#slots.length * 2).fill(undefined)
    this.#mask = this.#slots.length - 1
    this.#others.clear()
    for (const ask of all) {
      const at = (ask.corr | 0) & this.#mask
      if (this.#slots[at] === undefined) this.#slots[at] = ask
      else this.#others.set(ask.corr, ask)
    }
  }
}
