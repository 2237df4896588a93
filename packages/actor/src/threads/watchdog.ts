/**
 * Watchdog: regularly looks for the signs of life that every thread gives (observe/thread-memory.ts), and
 * reports a thread that gives none for `hungAfterMs`.
 */

import type { Clock } from '@homing/base'
import type { ThreadSlot } from './thread-slot.ts'

/**
 * Signs of life are given and looked at this often within `hungAfterMs`, but no oftener than every
 * WATCH_MS_MIN.
 */
const WATCHES = 20
const WATCH_MS_MIN = 2
const WATCH_MS_MAX = 1000

/** The signs that a thread had given, and since when they are no more. */
interface Signs {
  beats: number
  beatMs: number
}

export interface WatchdogHost {
  readonly clock: Clock
  slots(): Iterable<ThreadSlot>
  /** Signs of life of a thread, over all its lives. */
  beatsOf(slot: ThreadSlot): number
  /** The thread gave no sign in time. */
  hangs(slot: ThreadSlot): void
}

export class Watchdog {
  /** Between two signs of life; 0: none are asked for. */
  readonly intervalMs: number
  readonly #host: WatchdogHost
  readonly #hungAfterMs: number
  readonly #signs = new WeakMap<ThreadSlot, Signs>()
  #isStopped = false

  /** `hungAfterMs` 0: no thread is watched. */
  constructor(host: WatchdogHost, hungAfterMs: number) {
    this.#host = host
    this.#hungAfterMs = hungAfterMs
    this.intervalMs =
      hungAfterMs <= 0 ? 0 : Math.min(WATCH_MS_MAX, Math.max(WATCH_MS_MIN, hungAfterMs / WATCHES))
  }

  start(): void {
    if (this.intervalMs > 0) this.#watch(this.#host.clock.nowMs())
  }

  stop(): void {
    this.#isStopped = true
  }

  /** A life of the thread is ready, which is a sign of it. */
  ready(slot: ThreadSlot): void {
    const beats = this.#signs.get(slot)?.beats ?? 0
    this.#signs.set(slot, { beats, beatMs: this.#host.clock.nowMs() })
  }

  #watch(lastMs: number): void {
    if (this.#isStopped) return
    const host = this.#host
    const nowMs = host.clock.nowMs()
    // Main did not run for a while either, perhaps no thread did: that time proves nothing.
    const lateMs = Math.max(0, nowMs - lastMs - 2 * this.intervalMs)
    for (const slot of host.slots()) {
      const signs = this.#signs.get(slot)
      if (signs === undefined || !slot.isServing) continue
      const beats = host.beatsOf(slot)
      signs.beatMs = beats === signs.beats ? signs.beatMs + lateMs : nowMs
      signs.beats = beats
      if (nowMs - signs.beatMs >= slot.hungAfterMs(this.#hungAfterMs)) host.hangs(slot)
    }
    host.clock.after(this.intervalMs, () => this.#watch(nowMs), { unref: true })
  }
}
