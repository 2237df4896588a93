/**
 * Receipts: the last decisions by id, within two bounds: the number of receipts, and the rows in all of them
 * together. A row is a candidate or an excluded worker; in a fleet of a thousand worker keys every decision
 * has a thousand rows.
 *
 * If there are too many rows, the oldest receipts are shortened to the chosen worker, the runner-up and the
 * cheapest of the others. If that is not enough, the oldest receipts are dropped.
 */

import type { CandidateTerms, Delivery, Receipt } from './receipt.ts'

/** Maximum candidates, and maximum excluded workers, in a shortened receipt. */
export const SHORT_ROWS = 8

export interface ReceiptBounds {
  /** Receipts; ≥ 0. */
  readonly receiptsMax: number
  /** Rows of all receipts together; ≥ 0. */
  readonly rowsMax: number
}

export class Receipts {
  readonly #bounds: ReceiptBounds
  /** In order of decision: a Map keeps the order of insertion, also when a value is replaced. */
  readonly #byId = new Map<string, Receipt>()
  /** Receipts that can be shortened, in the same order. */
  readonly #long = new Set<string>()
  #rows = 0

  constructor(bounds: ReceiptBounds) {
    this.#bounds = bounds
  }

  /** Rows kept now. */
  get rows(): number {
    return this.#rows
  }

  add(receipt: Receipt): void {
    const { receiptsMax, rowsMax } = this.#bounds
    this.#byId.set(receipt.id, receipt)
    this.#rows += rowsOf(receipt)
    if (isLong(receipt)) this.#long.add(receipt.id)
    if (this.#byId.size > receiptsMax) this.#forgetOldest()
    while (this.#rows > rowsMax) {
      if (this.#long.size > 0) this.#shortenOldest()
      else this.#forgetOldest()
    }
  }

  /** Adds what was delivered, if the receipt is still kept. */
  complete(id: string, delivery: Delivery): void {
    const receipt = this.#byId.get(id)
    if (receipt !== undefined) this.#byId.set(id, { ...receipt, delivery })
  }

  /** That of a decode leg has that of its prefill leg in it. */
  get(id: string): Receipt | undefined {
    const receipt = this.#byId.get(id)
    return receipt && this.#withPrefill(receipt)
  }

  /** The latest first, at most `limit`. A prefill leg that is in another receipt is no row of its own. */
  latest(limit: number): Receipt[] {
    const found: Receipt[] = []
    const inOthers = new Set<string>()
    for (const receipt of [...this.#byId.values()].reverse()) {
      if (found.length >= limit) break
      const prefillId = receipt.leg?.prefillId
      if (prefillId !== undefined) inOthers.add(prefillId)
      if (!inOthers.has(receipt.id)) found.push(this.#withPrefill(receipt))
    }
    return found
  }

  #withPrefill(receipt: Receipt): Receipt {
    const prefillId = receipt.leg?.prefillId
    const prefill = prefillId === undefined ? undefined : this.#byId.get(prefillId)
    return prefill === undefined ? receipt : { ...receipt, prefill }
  }

  #forgetOldest(): void {
    for (const [id, receipt] of this.#byId) {
      this.#byId.delete(id)
      this.#long.delete(id)
      this.#rows -= rowsOf(receipt)
      return
    }
  }

  #shortenOldest(): void {
    for (const id of this.#long) {
      this.#long.delete(id)
      const receipt = this.#byId.get(id)!
      const short = shortened(receipt)
      this.#byId.set(id, short)
      this.#rows += rowsOf(short) - rowsOf(receipt)
      return
    }
  }
}

function rowsOf(receipt: Receipt): number {
  return receipt.candidates.length + receipt.excluded.length
}

function isLong(receipt: Receipt): boolean {
  return receipt.candidates.length > SHORT_ROWS || receipt.excluded.length > SHORT_ROWS
}

/** Keeps the order, and counts what was left out. */
function shortened(receipt: Receipt): Receipt {
  const { candidates, excluded, worker, runnerUp } = receipt
  const place = (candidate: CandidateTerms): number => {
    if (candidate.worker === worker) return 0
    return candidate.worker === runnerUp ? 1 : 2
  }
  const byRelevance = candidates.toSorted((one, other) => place(one) - place(other) || one.cost - other.cost)
  const kept = new Set(byRelevance.slice(0, SHORT_ROWS))
  return {
    ...receipt,
    candidates: candidates.filter(candidate => kept.has(candidate)),
    candidatesLeftOut: candidates.length - kept.size,
    excluded: excluded.slice(0, SHORT_ROWS),
    excludedLeftOut: Math.max(0, excluded.length - SHORT_ROWS),
  }
}
