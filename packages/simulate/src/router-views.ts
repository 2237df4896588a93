/** Router views: what the engines of a cell hold in truth, and what its routers know of that. */

import { seededRandom } from '@homing/base'
import type { CellSpec } from './cell-types.ts'
import type { SimEngine } from './engine.ts'
import { EmptyView, EventView, type FleetView, GuessView } from './fleet-view.ts'
import { HolderTable } from './holder-table.ts'
import type { Oracle } from './router-sight.ts'
import type { SimRequest } from './sim-request.ts'
import { FlippedView } from './troubles.ts'

const GUESS_TTL_MS = 120_000

export class RouterViews {
  readonly #spec: CellSpec
  readonly #capacityBlocks: number
  readonly #truth: HolderTable
  /** Undefined: no events are needed. */
  readonly #events: EventView | undefined

  /** `capacityBlocks`: of each engine. */
  constructor(spec: CellSpec, capacityBlocks: number) {
    const { workers, view, seed } = spec
    this.#spec = spec
    this.#capacityBlocks = capacityBlocks
    this.#truth = new HolderTable(workers)
    const lossShare = view.lossShare ?? 0
    const hasEvents = view.kind === 'late' || (view.kind === 'exact' && lossShare > 0)
    const delayMs = view.kind === 'late' ? view.eventDelayMs : 0
    this.#events = hasEvents
      ? new EventView(workers, delayMs, lossShare, seededRandom(seed ^ 0x2545f491))
      : undefined
  }

  /** What engines tell from now on is of this time. */
  beginBatch(nowMs: number): void {
    this.#events?.beginBatch(nowMs)
  }

  stored(worker: number, blockId: number): void {
    this.#truth.add(blockId, worker)
    this.#events?.stored(worker, blockId)
  }

  evicted(worker: number, blockId: number): void {
    this.#truth.remove(blockId, worker)
    this.#events?.evicted(worker, blockId)
  }

  /** A worker has died, with its cache. */
  clear(worker: number): void {
    this.#truth.clear(worker)
  }

  /** Blocks behind those that its engine holds, which other engines hold. */
  missedBlocks({ blockIds, blocks, placesHeld }: SimRequest): number {
    let missed = 0
    for (let i = placesHeld; i < blocks && this.#truth.holders(blockIds[i]!) > 0; i++) missed++
    return missed
  }

  /** For one router. */
  newView(): FleetView {
    const view = this.#plainView()
    return this.#spec.trouble === 'flipped-root' ? new FlippedView(view) : view
  }

  /** A router that knows what engines have still to do; undefined: it goes by its own books. */
  oracle(engines: readonly SimEngine[], outstandingTokens: (worker: number) => number): Oracle | undefined {
    if (this.#spec.selection.oracleView !== true) return undefined
    return {
      view: this.#truthView(),
      activeBlocks: worker => engines[worker]!.activeBlocks,
      pendingPrefillTokens: worker => engines[worker]!.pendingPrefillTokens,
      requests: worker => engines[worker]!.requests,
      outstandingTokens,
    }
  }

  #plainView(): FleetView {
    const { workers, view } = this.#spec
    if (this.#events !== undefined) return this.#events
    switch (view.kind) {
      case 'exact':
      case 'late':
        return this.#truthView()
      case 'guessed':
      case 'text':
        return new GuessView(workers, view.guessTtlMs ?? GUESS_TTL_MS, this.#capacityBlocks)
      case 'none':
        return new EmptyView()
    }
  }

  #truthView(): FleetView {
    return {
      heldBlocks: this.#truth.blocksHeld,
      overlaps: (ids, count, into) => this.#truth.overlaps(ids, count, into),
      sent() {},
      clear() {},
    }
  }
}
