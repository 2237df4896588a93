/**
 * IdleHeap: gives the room for young objects back once a thread is idle.
 *
 * That room grows while a thread loads its modules or is under load, to 16 MB and more, and V8 makes it
 * smaller only when it collects: a thread without work never does, and keeps it. So a thread that was idle
 * for IDLE_LOOKS looks collects its young objects, a few milliseconds, and again at the next looks until the
 * room is small: V8 leaves it as it is where many objects have survived. A thread that has been busy since
 * may collect again.
 *
 * V8 makes the room smaller where little was allocated in the last 5 s, so the looks take longer than that.
 */

import { performance } from 'node:perf_hooks'
import { getHeapSpaceStatistics } from 'node:v8'
import type { Clock, Timer } from '@homing/base'
import { collectGarbage } from './collector.ts'

const IDLE_LOOK_MS = 2000
const IDLE_LOOKS = 3
/** A thread is idle while its event loop is busy for less than this share of the time. */
const IDLE_BUSY_SHARE = 0.1
/** Two halves of 1 MiB, with which a thread begins, and what is next to them. */
const ROOM_BYTES_MAX = 2.5 * 2 ** 20
/** Of one time of idleness. */
const COLLECTIONS_MAX = 3

/** What it looks at, and what it does. */
export interface ThreadHeap {
  /** Share of the time since the last call in which the event loop was busy, 0 … 1. */
  busyShare(): number
  /** What young objects take of the system, free room included. */
  youngRoomBytes(): number
  collectYoung(): void
}

export class IdleHeap {
  readonly #clock: Clock
  readonly #heap: ThreadHeap
  #idleLooks = 0
  #collections = 0
  #next: Timer

  constructor(clock: Clock, heap: ThreadHeap = ownHeap()) {
    this.#clock = clock
    this.#heap = heap
    this.#next = this.#lookLater()
  }

  stop(): void {
    this.#next.cancel()
  }

  #lookLater(): Timer {
    return this.#clock.after(IDLE_LOOK_MS, () => this.#look(), { unref: true })
  }

  #look(): void {
    this.#next = this.#lookLater()
    if (this.#heap.busyShare() >= IDLE_BUSY_SHARE) {
      this.#idleLooks = 0
      this.#collections = 0
      return
    }
    this.#idleLooks++
    if (this.#idleLooks < IDLE_LOOKS || this.#collections >= COLLECTIONS_MAX) return
    if (this.#heap.youngRoomBytes() <= ROOM_BYTES_MAX) return
    this.#collections++
    this.#heap.collectYoung()
  }
}

function ownHeap(): ThreadHeap {
  let last = performance.eventLoopUtilization()
  return {
    busyShare() {
      const now = performance.eventLoopUtilization()
      const { utilization } = performance.eventLoopUtilization(now, last)
      last = now
      return utilization
    },
    youngRoomBytes: () =>
      getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space')?.physical_space_size ?? 0,
    collectYoung: () => collectGarbage('young'),
  }
}
