/**
 * Bounded names: names that others choose (models, adapters), as values of a label.
 *
 * At most `namesMax` have a label of their own, all others share OTHER_NAMES. A name that was not seen for
 * `idleMs` loses its label, and what was counted for it: a counter that comes back begins at 0, as after a
 * restart. Counts never move to another label, where they would look like a burst.
 */

export const OTHER_NAMES = 'other'

/** How many models have labels of their own, and for how long after their last request. */
export interface ModelLabels {
  readonly modelsMax: number
  readonly modelIdleMs: number
}

export const MODEL_LABELS_DEFAULT: ModelLabels = { modelsMax: 100, modelIdleMs: 3_600_000 }

export interface BoundedNamesOptions {
  readonly namesMax: number
  readonly idleMs: number
  /** The label of this name is gone: its series must go, too. */
  readonly forgotten: (name: string) => void
}

export class BoundedNames {
  readonly #options: BoundedNamesOptions
  /** When each was seen last; the longest idle first. */
  readonly #seenMs = new Map<string, number>()

  constructor(options: BoundedNamesOptions) {
    this.#options = options
  }

  has(name: string): boolean {
    return this.#seenMs.has(name)
  }

  /** The label of a name that is seen now. */
  of(name: string, nowMs: number): string {
    if (!this.#seenMs.delete(name) && this.#seenMs.size >= this.#options.namesMax) {
      this.sweep(nowMs)
      if (this.#seenMs.size >= this.#options.namesMax) return OTHER_NAMES
    }
    this.#seenMs.set(name, nowMs)
    return name
  }

  /** Forgets the names that are idle; to be called before a scrape. */
  sweep(nowMs: number): void {
    const { idleMs, forgotten } = this.#options
    for (const [name, seenMs] of this.#seenMs) {
      if (nowMs - seenMs < idleMs) return
      this.#seenMs.delete(name)
      forgotten(name)
    }
  }
}
