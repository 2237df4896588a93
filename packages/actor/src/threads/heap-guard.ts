/**
 * HeapGuard: protects a thread beside main before its heap is full, because an isolate that runs out of memory may
 * take the whole process with it, whatever `resourceLimits` says.
 *
 *   calm ──shedAt──▶ shedding ──recycleAt──▶ recycling ──▶ replaced by main
 *    ▲                   │
 *    └──below shedAt − CALM_MARGIN
 *
 * A thread that is recycled reads its rings no more, and ends when its mailboxes are empty, after DRAIN_MS_MAX, or
 * half way from recycleAt to a full heap.
 *
 * Only memory in use after a collection counts: garbage is no pressure. So a full collection comes before each
 * change for the worse, COLLECT_MS_MIN apart; V8 would soon make one itself.
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { OP } from '../links/frames.ts'
import { MAIN } from '../links/life.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Deadline } from '../values/deadlines.ts'

/** Shares of the heap limit, 0 … 1. */
export interface HeapPressure {
  readonly shedAt: number
  readonly recycleAt: number
}

const CALM_MARGIN = 0.1
const COLLECT_MS_MIN = 1000
/** A thread that sheds may have no turns in which to look. */
const LOOK_MS = 20
/** How long a thread that is recycled may work on what it has taken. */
export const DRAIN_MS_MAX = 1000
const DRAINED_LOOK_MS = 5

export class HeapGuard {
  readonly #runtime: Runtime
  readonly #settings: HeapPressure
  readonly #collect: () => void
  #collectedMs = Number.NEGATIVE_INFINITY
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
    const runtime = this.#runtime
    const { shedAt, recycleAt } = this.#settings
    if (this.#isRecycling) {
      if (share >= (1 + recycleAt) / 2) this.#end()
      return
    }
    if (runtime.inbound.isShedding && share < shedAt - CALM_MARGIN) {
      runtime.inbound.isShedding = false
      runtime.flight.note('shed', 0, '', 0)
      runtime.log.info({ share: round(share) }, 'heap pressure is over')
      return
    }
    if (share < shedAt) return
    const nowMs = runtime.clock.nowMs()
    let live = share
    if (nowMs - this.#collectedMs >= COLLECT_MS_MIN) {
      this.#collectedMs = nowMs
      this.#collect()
      live = runtime.heap.share()
    }
    if (live >= recycleAt) this.#recycle(live)
    else if (live >= shedAt && !runtime.inbound.isShedding) this.#shed(live)
  }

  #shed(share: number): void {
    const runtime = this.#runtime
    runtime.inbound.isShedding = true
    runtime.flight.note('shed', 0, '', percent(share))
    runtime.log.warn({ share: round(share) }, 'heap pressure: messages of other threads are shed')
    const again: Deadline = {
      dueMs: 0,
      position: -1,
      expire: () => {
        this.look(runtime.heap.share())
        if (runtime.inbound.isShedding && !this.#isRecycling) runtime.deadlines.add(again, LOOK_MS)
      },
    }
    runtime.deadlines.add(again, LOOK_MS)
  }

  /** What waits in the rings goes to the next life; what this one has is handled first. */
  #recycle(share: number): void {
    const runtime = this.#runtime
    this.#isRecycling = true
    runtime.flight.note('recycle', 0, '', percent(share))
    for (const peer of runtime.peers.values()) peer.link?.pause?.()
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

  /** What is not handled by now is lost, as when a thread dies. */
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

let gc: (() => void) | undefined
const TRIES = 10

/** Node lends its collector only to contexts that are made while the flag is set, which other threads set and reset too. */
function collectGarbage(): void {
  for (let tries = 0; gc === undefined && tries < TRIES; tries++) {
    setFlagsFromString('--expose-gc')
    gc = runInNewContext('globalThis.gc') as (() => void) | undefined
    setFlagsFromString('--no-expose-gc')
  }
  gc?.()
}
