/**
 * Live batches held back until the history before them is complete: ascending by sequence, bounded in
 * number and bytes.
 */

export interface PendingBatch {
  readonly sequence: number
  readonly payload: Uint8Array
  readonly fingerprint: number
}

export interface PendingLimits {
  readonly batchesMax: number
  readonly bytesMax: number
}

export class PendingBatches {
  readonly #limits: PendingLimits
  #batches: PendingBatch[] = []
  /** Batches before this position have been taken. */
  #head = 0
  #bytes = 0

  constructor(limits: PendingLimits) {
    this.#limits = limits
  }

  get size(): number {
    return this.#batches.length - this.#head
  }

  get first(): PendingBatch | undefined {
    return this.#batches[this.#head]
  }

  /** The last sequence of the run without a hole that begins with the first one; undefined: none is held. */
  get firstRunEnd(): number | undefined {
    let at = this.#head
    if (at === this.#batches.length) return undefined
    while (this.#batches[at + 1]?.sequence === this.#batches[at]!.sequence + 1) at++
    return this.#batches[at]!.sequence
  }

  /** A sequence that is not held yet. False: the bound is reached and the batch is not held. */
  tryAdd(batch: PendingBatch): boolean {
    if (this.size >= this.#limits.batchesMax) return false
    if (this.#bytes + batch.payload.length > this.#limits.bytesMax) return false
    let position = this.#batches.length
    while (position > this.#head && this.#batches[position - 1]!.sequence > batch.sequence) position--
    if (position === this.#batches.length) this.#batches.push(batch)
    else this.#batches.splice(position, 0, batch)
    this.#bytes += batch.payload.length
    return true
  }

  removeFirst(): void {
    const batch = this.first
    if (batch === undefined) return
    this.#bytes -= batch.payload.length
    this.#head++
    if (this.#head < 64 || this.#head * 2 < this.#batches.length) return
    this.#batches = this.#batches.slice(this.#head)
    this.#head = 0
  }

  /** Forgets everything before the last run without a hole: what is left can be applied in one go. */
  keepLastRun(): void {
    let start = this.#batches.length - 1
    while (start > this.#head && this.#batches[start - 1]!.sequence === this.#batches[start]!.sequence - 1)
      start--
    for (let before = start - this.#head; before > 0; before--) this.removeFirst()
  }

  clear(): void {
    this.#batches = []
    this.#head = 0
    this.#bytes = 0
  }
}
