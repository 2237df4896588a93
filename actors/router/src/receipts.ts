/** Receipts: the last `kept` decisions by id, the oldest forgotten first. */

import type { Delivery, Receipt } from './messages.ts'

export class Receipts {
  readonly #kept: number
  /** In order of decision: a Map keeps the order of insertion, also when a value is replaced. */
  readonly #byId = new Map<string, Receipt>()

  /** `kept` ≥ 0. */
  constructor(kept: number) {
    this.#kept = kept
  }

  add(receipt: Receipt): void {
    this.#byId.set(receipt.id, receipt)
    if (this.#byId.size <= this.#kept) return
    for (const oldest of this.#byId.keys()) {
      this.#byId.delete(oldest)
      return
    }
  }

  /** Adds what was delivered; a receipt that is no longer kept is not completed. */
  complete(id: string, delivery: Delivery): void {
    const receipt = this.#byId.get(id)
    if (receipt !== undefined) this.#byId.set(id, { ...receipt, delivery })
  }

  get(id: string): Receipt | undefined {
    return this.#byId.get(id)
  }

  /** The latest first, at most `limit`. */
  latest(limit: number): Receipt[] {
    const all = [...this.#byId.values()]
    return all.slice(Math.max(0, all.length - limit)).reverse()
  }
}
