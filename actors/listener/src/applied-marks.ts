/**
 * Applied marks: how far the batches of a consumer at the broker are applied, so that they are
 * acknowledged behind that and never before.
 *
 *   handled(n) ──nothing is held back──▶ fence to the indexer ──passed──▶ done(n)
 *                                          (one at a time)
 *
 * Batches that wait for a replay are not acknowledged: the broker then sends UNTAKEN_MAX messages more at
 * most. A fence that is lost with its indexer acknowledges nothing; what follows is a rebuild, and the next
 * fence.
 */

export interface AppliedMarksOptions {
  /** Live batches wait for earlier ones. */
  readonly holdsBack: () => boolean
  /**
   * Calls `passed` when everything that the indexer was sent before is applied, and `lost` if that is not
   * known.
   */
  readonly fence: (passed: () => void, lost: () => void) => void
  readonly done: (number: number) => void
}

export class AppliedMarks {
  readonly #options: AppliedMarksOptions
  /** The last message that was handled, and the last one that is told; 0: none. */
  #handled = 0
  #told = 0
  #isFenced = false

  constructor(options: AppliedMarksOptions) {
    this.#options = options
  }

  /** The message with this number was handed to the follower. 0: it has none. */
  handled(number: number): void {
    if (number > 0) this.#handled = number
    this.look()
  }

  /** Batches may be held back no longer. */
  look(): void {
    if (this.#isFenced || this.#handled === this.#told || this.#options.holdsBack()) return
    const number = this.#handled
    this.#isFenced = true
    this.#options.fence(
      () => {
        this.#isFenced = false
        this.#told = number
        this.#options.done(number)
        this.look()
      },
      () => {
        this.#isFenced = false
      },
    )
  }
}
