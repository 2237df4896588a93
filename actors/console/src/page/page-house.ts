/** The section `house` of the page, from the answer of `/actors`. */

import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { HouseActor, HouseSection } from '@homing/page'
import type { ActorRow, ActorsView } from '../views/actors-view.ts'

/** Threads, and actors in their tree. */
export const HOUSE_ROWS = 200
const RESOLUTION_MS = 10

/** The delay of the event loop of this thread, measured while somebody looks. */
export class LoopDelay {
  readonly #histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })

  start(): void {
    this.#histogram.enable()
  }

  stop(): void {
    this.#histogram.disable()
    this.#histogram.reset()
  }

  /** Figures since the last call; null: none were measured. */
  take(): HouseSection['loop_delay_ms'] {
    const histogram = this.#histogram
    if (histogram.count === 0) return null
    // The histogram has whole intervals of its timer; what is longer than that is delay.
    const delayMs = (ns: number): number => Math.max(0, Math.round((ns / 1e6 - RESOLUTION_MS) * 10) / 10)
    const figures = {
      p50: delayMs(histogram.percentile(50)),
      p99: delayMs(histogram.percentile(99)),
      max: delayMs(histogram.max),
    }
    histogram.reset()
    return figures
  }
}

export function houseSection(view: ActorsView, loopDelay: HouseSection['loop_delay_ms']): HouseSection {
  return {
    threads: view.threads.map(row => ({
      thread: row.thread,
      state: row.state,
      lives: row.lives,
      answered: row.answered,
      actors: row.actors,
      handled: row.handled,
      mailbox_high_water: row.mailbox_high_water,
      busy_ms: row.busy_ms,
      heap_used_bytes: row.heap_used_bytes,
      heap_limit_bytes: row.heap_limit_bytes,
    })),
    actors: view.actors.map(actorOf),
    left_out: view.left_out,
    loop_delay_ms: loopDelay,
    rss_bytes: process.memoryUsage.rss(),
  }
}

const actorOf = (row: ActorRow): HouseActor => ({ ...row, children: row.children.map(actorOf) })
