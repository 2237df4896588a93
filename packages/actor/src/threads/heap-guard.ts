/**
 * HeapGuard: protects a thread beside main before its heap is full, because an isolate that runs out of
 * memory may take the whole process with it, whatever `resourceLimits` says.
 *
 *   calm ──shedAt──▶ shedding ──recycleAt, or shedFor──▶ recycling ──▶ replaced by main
 *    ▲                   │
 *    └───────────────────┘ below shedAt − CALM_MARGIN; after shedFor, below shedAt
 *
 * Shedding always ends after `shedFor`: the thread serves again, or is recycled. Times of shedding add up
 * until the thread has been calm for `shedFor`, so a heap that rises and falls does not shed for longer
 * either. The other threads know that it sheds: a tell there answers `full`.
 *
 * A recycled thread no longer reads its rings. It ends when its mailboxes are empty, after DRAIN_MS_MAX, or
 * half way from recycleAt to a full heap.
 *
 * Only memory in use after a collection counts, not garbage. So a full collection comes before each change;
 * V8 would soon make one itself. If the heap grows faster than collections may follow each other, the thread
 * sheds until the next collection, because a flood fills a small heap within milliseconds; half way from
 * recycleAt to a full heap it is recycled.
 */

import { OP } from '../links/frames.ts'
import { MAIN } from '../links/life.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Deadline } from '../values/deadlines.ts'
import { collectGarbage } from './collector.ts'

/** `shedAt`, `recycleAt`: shares of the heap limit, 0 … 1. */
export interface HeapPressure {
  readonly shedAt: number
  readonly recycleAt: number
  /** The longest time in which messages of other threads are refused. */
  readonly shedForMs: number
}

const CALM_MARGIN = 0.1
/** Between two collections: as a rule, and when the heap has grown by GROWTH since. */
const COLLECT_MS_MIN = 1000
const COLLECT_GROWN_MS_MIN = 100
const GROWTH = 0.1
/**
 * The time between two collections is so many times that of the last. V8 ends an isolate that spends most of
 * its time on collections while its heap is 80 % full.
 */
const COLLECT_SHARE = 5
/** A thread that sheds may have no turns in which to look. */
const HEAP_LOOK_MS = 20
/** How long a thread that is recycled may work on what it has taken. */
export const DRAIN_MS_MAX = 1000
const DRAINED_LOOK_MS = 5

export class HeapGuard {
  readonly #runtime: Runtime
  readonly #settings: HeapPressure
  readonly #collect: () => void
  #collectedMs = Number.NEGATIVE_INFINITY
  /** How long the last collection took. */
  #collectMs = 0
  /** The share that was in use after the last collection. */
  #live = 0
  #shedSinceMs = 0
  /** How long it shed before that, without as long a calm. */
  #shedMsBefore = 0
  #calmSinceMs = Number.NEGATIVE_INFINITY
  /** The next look while it sheds. */
  readonly #nextLook: Deadline = { dueMs: 0, position: -1, expire: () => this.#lookAgain() }
  /** It sheds, and a collection has shown that it must. */
  #isProven = false
  #isRecycling = false

  /** `collect` makes a full collection. */
  constructor(runtime: Runtime, settings: HeapPressure, collect: () => void = collectGarbage) {
    this.#runtime = runtime
    this.#settings = settings
    this.#collect = collect
    runtime.heap.onPressure = share => this.look(share)
  }

  /** `share` of the heap limit is in use. */
  look(share: number): void {
    const { inbound, clock, heap } = this.#runtime
    const { shedAt, recycleAt, shedForMs } = this.#settings
    const almostFull = (1 + recycleAt) / 2
    if (this.#isRecycling) {
      if (share >= almostFull) this.#end()
      return
    }
    const { isShedding } = inbound
    const calmBelow = this.#isProven ? shedAt - CALM_MARGIN : shedAt
    if (share < calmBelow) {
      if (isShedding) this.#calm(share)
      return
    }
    const nowMs = clock.nowMs()
    if (!isShedding && nowMs - this.#calmSinceMs >= shedForMs) this.#shedMsBefore = 0
    const shedMs = this.#shedMsBefore + (isShedding ? nowMs - this.#shedSinceMs : 0)
    const hasNoTime = shedMs >= shedForMs
    const isOver = isShedding && hasNoTime
    const hasGrown = share >= recycleAt || share - this.#live >= GROWTH
    const waitMs = Math.max(hasGrown ? COLLECT_GROWN_MS_MIN : COLLECT_MS_MIN, this.#collectMs * COLLECT_SHARE)
    if (!isOver && nowMs - this.#collectedMs < waitMs) {
      if (share >= almostFull) this.#recycle(share)
      else if (!isShedding && hasGrown && !hasNoTime) this.#shed(share)
      return
    }
    this.#collect()
    this.#collectedMs = clock.nowMs()
    this.#collectMs = this.#collectedMs - nowMs
    const live = heap.share()
    this.#live = live
    if (live >= recycleAt) this.#recycle(live)
    else if (live < calmBelow || (isOver && live < shedAt)) {
      if (isShedding) this.#calm(live)
    } else if (hasNoTime) this.#recycle(live)
    else {
      this.#isProven = true
      if (!isShedding) this.#shed(live)
    }
  }

  #calm(share: number): void {
    const { inbound, flight, log, clock } = this.#runtime
    this.#isProven = false
    this.#calmSinceMs = clock.nowMs()
    this.#shedMsBefore += this.#calmSinceMs - this.#shedSinceMs
    inbound.shed(false)
    flight.note('shed', 0, '', 0)
    log.info({ share: round(share) }, 'heap pressure is over')
  }

  #shed(share: number): void {
    const runtime = this.#runtime
    this.#shedSinceMs = runtime.clock.nowMs()
    runtime.inbound.shed(true)
    runtime.flight.note('shed', 0, '', percent(share))
    runtime.log.warn({ share: round(share) }, 'heap pressure: messages of other threads are shed')
    // A thread that sheds again after a moment of calm has one planned.
    if (this.#nextLook.position === -1) runtime.deadlines.add(this.#nextLook, HEAP_LOOK_MS)
  }

  #lookAgain(): void {
    const { heap, inbound, deadlines } = this.#runtime
    this.look(heap.share())
    if (inbound.isShedding && this.#nextLook.position === -1) deadlines.add(this.#nextLook, HEAP_LOOK_MS)
  }

  /** What waits in the rings goes to the next life; what this one has is handled first. */
  #recycle(share: number): void {
    const runtime = this.#runtime
    this.#isRecycling = true
    runtime.flight.note('recycle', 0, '', percent(share))
    for (const peer of runtime.peers.values()) peer.link?.pause?.()
    // What they tell from now on waits for the next life.
    if (runtime.inbound.isShedding) runtime.inbound.shed(false)
    runtime.log.warn({ share: round(share) }, 'heap pressure: the thread is recycled')
    const sinceMs = runtime.clock.nowMs()
    this.#report(false)
    const look: Deadline = {
      dueMs: 0,
      position: -1,
      expire: () => {
        const isLate = runtime.clock.nowMs() - sinceMs >= DRAIN_MS_MAX
        if (isLate || runtime.isDrained) this.#end()
        else if (!runtime.turns.isHalted) runtime.deadlines.add(look, DRAINED_LOOK_MS)
      },
    }
    runtime.deadlines.add(look, DRAINED_LOOK_MS)
  }

  /** Messages that are not handled by now are lost, as when a thread dies. */
  #end(): void {
    if (this.#runtime.turns.isHalted) return
    this.#runtime.turns.isHalted = true
    this.#report(true)
  }

  #report(isDrained: boolean): void {
    this.#runtime.peers
      .to(MAIN)
      .send({ op: OP.RECYCLE, target: 0, corr: this.#runtime.uid, body: isDrained, patches: 0 })
  }
}

function percent(share: number): number {
  return Math.round(share * 100)
}

function round(share: number): number {
  return percent(share) / 100
}
