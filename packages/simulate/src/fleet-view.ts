/**
 * Fleet view: what a router knows of the engines' caches.
 *
 *   EventView    KV events, so many milliseconds late, some batches lost; one view may serve all routers,
 *                which hear the same events
 *   GuessView    what this router sent counts as held, for a time, up to what an engine holds; one per router
 *   EmptyView    nothing
 *
 * A view gets each event with its time and catches up when it is asked: no view needs events of the
 * simulation.
 */

import type { Random } from '@homing/base'
import { HolderTable } from './holder-table.ts'

export interface FleetView {
  /**
   * Blocks that each worker holds, according to events up to the last `overlaps`; undefined: there are no
   * events.
   */
  readonly heldBlocks: Int32Array | undefined
  /** Sets `into[w]` to the leading blocks that worker w holds, as far as is known at `nowMs`. */
  overlaps(ids: ArrayLike<number>, count: number, into: Int32Array, nowMs: number): void
  /** A prompt was sent there. */
  sent(ids: ArrayLike<number>, count: number, worker: number, nowMs: number): void
  /** Forgets everything about a worker. */
  clear(worker: number): void
}

const STORED = 0
const EVICTED = 1

export class EventView implements FleetView {
  readonly #delayMs: number
  readonly #lossShare: number
  readonly #random: Random
  readonly #table: HolderTable
  /** Events that are on their way, in order of time: a ring. */
  readonly #pending = new EventRing()
  #batchMs = 0
  #isBatchOpen = false
  #isBatchLost = false

  constructor(workers: number, delayMs: number, lossShare: number, random: Random) {
    this.#table = new HolderTable(workers)
    this.#delayMs = delayMs
    this.#lossShare = lossShare
    this.#random = random
  }

  get heldBlocks(): Int32Array {
    return this.#table.blocksHeld
  }

  /** The events of one engine at one instant are a batch: it arrives whole, or not at all. */
  beginBatch(nowMs: number): void {
    this.#batchMs = nowMs
    this.#isBatchOpen = false
  }

  stored(worker: number, id: number): void {
    this.#event(worker, id, STORED)
  }

  evicted(worker: number, id: number): void {
    this.#event(worker, id, EVICTED)
  }

  overlaps(ids: ArrayLike<number>, count: number, into: Int32Array, nowMs: number): void {
    this.#advance(nowMs)
    this.#table.overlaps(ids, count, into)
  }

  sent(): void {}

  clear(worker: number): void {
    this.#pending.forget(worker)
    this.#table.clear(worker)
  }

  #event(worker: number, id: number, kind: number): void {
    if (this.#lossShare > 0) {
      if (!this.#isBatchOpen) this.#isBatchLost = this.#random.next() < this.#lossShare
      this.#isBatchOpen = true
      if (this.#isBatchLost) return
    }
    this.#pending.push(this.#batchMs + this.#delayMs, id, worker, kind)
  }

  #advance(nowMs: number): void {
    const pending = this.#pending
    while (pending.size > 0 && pending.times[pending.first]! <= nowMs) {
      const at = pending.first
      const worker = pending.workers[at]!
      if (worker >= 0) {
        if (pending.kinds[at] === STORED) this.#table.add(pending.ids[at]!, worker)
        else this.#table.remove(pending.ids[at]!, worker)
      }
      pending.shift()
    }
  }
}

/** A ring of events that grows by doubling; bounded by what happens within the delay. */
class EventRing {
  times = new Float64Array(1024)
  ids = new Float64Array(1024)
  workers = new Int32Array(1024)
  kinds = new Uint8Array(1024)
  first = 0
  size = 0

  push(time: number, id: number, worker: number, kind: number): void {
    if (this.size === this.times.length) this.#grow()
    const at = (this.first + this.size++) & (this.times.length - 1)
    this.times[at] = time
    this.ids[at] = id
    this.workers[at] = worker
    this.kinds[at] = kind
  }

  shift(): void {
    this.first = (this.first + 1) & (this.times.length - 1)
    this.size--
  }

  /** The events of a worker no longer say anything. */
  forget(worker: number): void {
    for (let i = 0; i < this.workers.length; i++) if (this.workers[i] === worker) this.workers[i] = -1
  }

  #grow(): void {
    const { times, ids, workers, kinds, first } = this
    const length = times.length
    this.times = new Float64Array(2 * length)
    this.ids = new Float64Array(2 * length)
    this.workers = new Int32Array(2 * length)
    this.kinds = new Uint8Array(2 * length)
    for (let i = 0; i < length; i++) {
      const from = (first + i) & (length - 1)
      this.times[i] = times[from]!
      this.ids[i] = ids[from]!
      this.workers[i] = workers[from]!
      this.kinds[i] = kinds[from]!
    }
    this.first = 0
  }
}

export class GuessView implements FleetView {
  readonly #ttlMs: number
  readonly #blocksMax: number
  readonly #table: HolderTable
  /** Of each worker: id ─▶ expiry, the earliest first; leaves before roots, as they are sent together. */
  readonly #expiries: readonly Map<number, number>[]
  /** Of each worker: when its next guess expires. */
  readonly #nextExpiryMs: Float64Array

  constructor(workers: number, ttlMs: number, blocksMax: number) {
    this.#ttlMs = ttlMs
    this.#blocksMax = blocksMax
    this.#table = new HolderTable(workers)
    this.#expiries = Array.from({ length: workers }, () => new Map<number, number>())
    this.#nextExpiryMs = new Float64Array(workers).fill(Number.POSITIVE_INFINITY)
  }

  get heldBlocks(): undefined {
    return undefined
  }

  overlaps(ids: ArrayLike<number>, count: number, into: Int32Array, nowMs: number): void {
    const next = this.#nextExpiryMs
    for (let worker = 0; worker < next.length; worker++) {
      if (next[worker]! <= nowMs) this.#forget(worker, nowMs, this.#blocksMax)
    }
    this.#table.overlaps(ids, count, into)
  }

  sent(ids: ArrayLike<number>, count: number, worker: number, nowMs: number): void {
    const expiries = this.#expiries[worker]!
    const expiryMs = nowMs + this.#ttlMs
    for (let i = count - 1; i >= 0; i--) {
      const id = ids[i]!
      if (!expiries.delete(id)) this.#table.add(id, worker)
      expiries.set(id, expiryMs)
    }
    this.#forget(worker, nowMs, this.#blocksMax)
  }

  clear(worker: number): void {
    this.#forget(worker, Number.POSITIVE_INFINITY, 0)
  }

  #forget(worker: number, nowMs: number, blocksMax: number): void {
    const expiries = this.#expiries[worker]!
    let nextMs = Number.POSITIVE_INFINITY
    for (const [id, expiryMs] of expiries) {
      if (expiryMs > nowMs && expiries.size <= blocksMax) {
        nextMs = expiryMs
        break
      }
      expiries.delete(id)
      this.#table.remove(id, worker)
    }
    this.#nextExpiryMs[worker] = nextMs
  }
}

export class EmptyView implements FleetView {
  get heldBlocks(): undefined {
    return undefined
  }

  overlaps(_ids: ArrayLike<number>, _count: number, into: Int32Array): void {
    into.fill(0)
  }

  sent(): void {}

  clear(): void {}
}
