/**
 * Pending selections: what `/select` answered, for a while, so that `/reservations` can book it by its id.
 *
 *   /select with an id ─▶ kept ─▶ taken by the reservation that books it
 *                           └──▶ older than `ttlMs`, or pushed out by newer ones
 *
 * Bounds  `entriesMax` entries, `bytesMax` bytes of hashes and ids; past either the oldest go.
 */

import type { Rank } from '@homing/actors/index-service'
import type { Partition } from './requests.ts'

/** In the units of the names. */
export interface PendingBounds {
  readonly ttlMs: number
  readonly entriesMax: number
  readonly bytesMax: number
}

export interface PendingSelection extends Partition {
  readonly selectionId: string
  /** A worker that was replaced meanwhile has others. */
  readonly rank: Rank
  /** Pairs [lo, hi]. */
  readonly sequenceHashes: Int32Array
  readonly promptTokens: number
  readonly prefillTokens: number
  readonly countsPrefill: boolean
}

interface Kept {
  readonly selection: PendingSelection
  readonly keptMs: number
  readonly bytes: number
}

/** Beside its hashes and texts. */
const SELECTION_BYTES = 256

export class PendingSelections {
  readonly #bounds: PendingBounds
  readonly #nowMs: () => number
  /** By id; the oldest first. */
  readonly #kept = new Map<string, Kept>()
  #bytes = 0
  /** What went without being reserved. */
  readonly lost = { expired: 0, evicted: 0 }

  constructor(bounds: PendingBounds, nowMs: () => number) {
    this.#bounds = bounds
    this.#nowMs = nowMs
  }

  get count(): number {
    return this.#kept.size
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Replaces what was kept under the same id. */
  keep(selection: PendingSelection): void {
    this.expire()
    this.forget(selection.selectionId)
    const { selectionId, model, group, sequenceHashes } = selection
    const texts = 2 * (selectionId.length + model.length + group.length)
    const bytes = SELECTION_BYTES + texts + sequenceHashes.byteLength
    const { entriesMax, bytesMax } = this.#bounds
    if (bytes > bytesMax) {
      this.lost.evicted++
      return
    }
    this.#kept.set(selectionId, { selection, keptMs: this.#nowMs(), bytes })
    this.#bytes += bytes
    for (const id of this.#kept.keys()) {
      if (this.#kept.size <= entriesMax && this.#bytes <= bytesMax) break
      this.forget(id)
      this.lost.evicted++
    }
  }

  /** It stays, so that a reservation that fails can be tried again. */
  find(selectionId: string): PendingSelection | undefined {
    this.expire()
    return this.#kept.get(selectionId)?.selection
  }

  forget(selectionId: string): void {
    this.#bytes -= this.#kept.get(selectionId)?.bytes ?? 0
    this.#kept.delete(selectionId)
  }

  /** Those that are too old. */
  expire(): void {
    for (const [id, { keptMs }] of this.#kept) {
      if (this.#nowMs() - keptMs < this.#bounds.ttlMs) return
      this.forget(id)
      this.lost.expired++
    }
  }
}
