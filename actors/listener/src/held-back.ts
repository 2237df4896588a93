/**
 * Batches held back: live batches that came while an earlier one was missing. They continue the history once
 * it has reached them.
 *
 * Invariants
 *   I1  Bounded in number and bytes; beyond the bound a batch is dropped, and missing.
 *   I2  A batch continues the history only if it is not older than its predecessor and has the same rank. It
 *       may be left over from a life of the engine that ended unnoticed before a replay was answered, or fill
 *       a hole of such a life.
 */

import type { History } from './history.ts'
import type { Life } from './life.ts'
import type { ListenerLimits } from './limits.ts'
import { type PendingBatch, PendingBatches } from './pending-batches.ts'
import type { SourceCounters } from './source-counters.ts'

/**
 * `empty`: the history has reached the live socket. `hole`: something is missing before the next one.
 * `refused`: the indexer did not take it. `otherRank`, `older`: the next one is of another publisher, or
 * life.
 */
export type Drained = 'empty' | 'hole' | 'refused' | 'otherRank' | 'older'

export class HeldBack {
  readonly #history: History
  readonly #life: Life
  readonly #counters: SourceCounters
  readonly #batches: PendingBatches

  constructor(history: History, life: Life, counters: SourceCounters, limits: ListenerLimits) {
    this.#history = history
    this.#life = life
    this.#counters = counters
    this.#batches = new PendingBatches({
      batchesMax: limits.pendingBatchesMax,
      bytesMax: limits.pendingBytesMax,
    })
  }

  get first(): PendingBatch | undefined {
    return this.#batches.first
  }

  /**
   * Where a history that reaches this sequence may begin: with a run that contains it; undefined: there is
   * none.
   */
  beginningBefore(sequence: number): number | undefined {
    const { first, firstRunEnd } = this.#batches
    if (first === undefined || first.sequence >= sequence || firstRunEnd! < sequence) return undefined
    return first.sequence
  }

  hold(batch: PendingBatch): void {
    if (!this.#batches.tryAdd(batch)) this.#counters.droppedBatches++
  }

  forget(): void {
    this.#batches.clear()
  }

  /** Keeps only the newest run of batches, which can begin a history. Returns its first batch, if any. */
  keepNewestRun(): PendingBatch | undefined {
    this.#batches.keepLastRun()
    const first = this.#batches.first
    // A batch was dropped after these: the next batch begins the history.
    if (first !== undefined && first.sequence + this.#batches.size <= this.#life.liveMax)
      this.#batches.clear()
    return this.#batches.first
  }

  /** Applies them as far as they continue the history. */
  drain(): Drained {
    const [history, life] = [this.#history, this.#life]
    for (let batch = this.#batches.first; batch !== undefined; batch = this.#batches.first) {
      const { expected } = history
      const { sequence, fingerprint } = batch
      if (expected === undefined || sequence > expected) return 'hole'
      if (sequence < expected) {
        if (life.compare(sequence, fingerprint) === 'other') return 'older'
        this.#counters.duplicates++
      } else {
        const applied = history.apply(batch, 'live', true)
        if (applied !== 'applied') return applied
      }
      this.#batches.removeFirst()
    }
    const { expected } = history
    return (expected === undefined ? life.liveMax < 0 : expected > life.liveMax) ? 'empty' : 'hole'
  }
}
