/**
 * Pending selections: what `/select` answered, for a while, so that `/reservations` can book it by its id.
 *
 *   /select with an id ─▶ kept ─▶ taken by the reservation that books it
 *                           └──▶ older than `ttlMs`, or pushed out by newer ones
 *
 * Bounds  `entriesMax` entries, `bytesMax` bytes of hashes and texts; past either the oldest go.
 */

import type { Rank } from '@homing/actors/index-service'
import type { RoutingRequest } from '@homing/placement'
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
  /** What is to be placed there: without what only the choice went by, which may be long. */
  readonly request: RoutingRequest
  readonly prefillTokens: number
}

interface Kept {
  readonly selection: PendingSelection
  readonly keptMs: number
  readonly bytes: number
}

/** Beside its hashes and texts. */
const SELECTION_BYTES = 512
/** Of a set of separators. */
const SEPARATORS_BYTES = 8

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
    const bytes = bytesOf(selection)
    const { entriesMax, bytesMax } = this.#bounds
    if (bytes > bytesMax) {
      this.lost.evicted++
      return
    }
    this.#kept.set(selection.selectionId, { selection, keptMs: this.#nowMs(), bytes })
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

function bytesOf({ selectionId, model, group, request }: PendingSelection): number {
  const { requestId, sessionId = '', localHashes, sequenceHashes, separated } = request
  // Ids and names are in the request again.
  const texts = [selectionId, model, group, requestId, request.model, sessionId]
  const hashes = localHashes.byteLength + sequenceHashes.byteLength + (separated?.hashes.byteLength ?? 0)
  const characters = texts.reduce((sum, text) => sum + text.length, 0)
  return SELECTION_BYTES + 2 * characters + hashes + SEPARATORS_BYTES * (separated?.unnamed.length ?? 0)
}
