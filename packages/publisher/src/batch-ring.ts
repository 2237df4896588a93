/**
 * Batch ring: the last batches of one publisher, to be repeated. Numbers them: 0, 1, 2, … without a gap.
 *
 * Bounds   `batchesMax` batches and `bytesMax` bytes of payload; the oldest are forgotten first, and a batch
 *          that is larger than the whole bound is not kept at all.
 */

export interface BufferedBatch {
  /** The batch's number on the wire, and its event id. */
  readonly sequence: number
  readonly payload: Uint8Array
}

export interface BatchRingOptions {
  readonly batchesMax: number
  readonly bytesMax: number
}

export class BatchRing {
  readonly #batchesMax: number
  readonly #bytesMax: number
  /** Kept batches from `#first` on; earlier ones were forgotten. */
  #batches: BufferedBatch[] = []
  #first = 0
  #bytes = 0
  #nextSequence = 0

  constructor({ batchesMax, bytesMax }: BatchRingOptions) {
    this.#batchesMax = batchesMax
    this.#bytesMax = bytesMax
  }

  /** What the next batch gets; the number of batches so far. */
  get nextSequence(): number {
    return this.#nextSequence
  }

  get size(): number {
    return this.#batches.length - this.#first
  }

  /** Bytes of payload kept. */
  get bytes(): number {
    return this.#bytes
  }

  /** The oldest batch that is kept; undefined: none is. */
  get oldest(): number | undefined {
    return this.#batches[this.#first]?.sequence
  }

  /** Numbers a batch and keeps it. The payload must not change afterwards. */
  add(payload: Uint8Array): number {
    const sequence = this.#nextSequence++
    this.#batches.push({ sequence, payload })
    this.#bytes += payload.length
    while (this.size > this.#batchesMax || (this.#bytes > this.#bytesMax && this.size > 0)) {
      this.#bytes -= this.#batches[this.#first++]!.payload.length
    }
    // All at once, now and then: shifting each time would move the whole array.
    if (this.#first > this.#batches.length / 2) {
      this.#batches = this.#batches.slice(this.#first)
      this.#first = 0
    }
    return sequence
  }

  /** Kept batches with `start` ≤ sequence ≤ `end`, in order. */
  range(start: number, end = Number.POSITIVE_INFINITY): readonly BufferedBatch[] {
    const { oldest } = this
    if (oldest === undefined) return []
    const from = this.#first + Math.max(0, start - oldest)
    return this.#batches.slice(from, Math.max(from, this.#first + Math.max(0, end - oldest + 1)))
  }

  /** The payload of a kept batch. */
  get(sequence: number): Uint8Array | undefined {
    const { oldest } = this
    if (oldest === undefined || sequence < oldest) return undefined
    return this.#batches[this.#first + sequence - oldest]?.payload
  }
}
