/**
 * `nodejs_eventloop_lag_*_seconds`: by how much a timer of the main thread came late, since the last scrape.
 *
 * Under the names of the metrics library and in place of its own, whose timer wakes an idle router a hundred
 * times a second (half of what it costs then), and whose figures have the period of that timer in them.
 */

import { createHistogram, type Histogram } from 'node:perf_hooks'
import { systemClock } from '@homing/base'
import { Gauge, type Registry } from 'prom-client'

/** A tenth of a second is what an alert asks about, and a scrape of 15 s has 150 of them. */
const PERIOD_MS = 100
/** For the timer of the library: a month. */
export const LIBRARY_PERIOD_MS = 2 ** 31 - 1

const secondsOf = (ns: number): number => ns / 1e9

const FIGURES: Readonly<Record<string, readonly [what: string, ns: (delays: Histogram) => number]>> = {
  min: ['Shortest delay', ({ min }) => min],
  max: ['Longest delay', ({ max }) => max],
  mean: ['Mean delay', ({ mean }) => mean],
  stddev: ['Standard deviation of the delays', ({ stddev }) => stddev],
  p50: ['Median of the delays', delays => delays.percentile(50)],
  p90: ['90th percentile of the delays', delays => delays.percentile(90)],
  p99: ['99th percentile of the delays', delays => delays.percentile(99)],
}

/** Puts its gauges in the place of those that the library registered. */
export function showEventLoopLag(registry: Registry): void {
  const delays = createHistogram()
  const ringAt = (dueMs: number): void => {
    const ring = (): void => {
      const nowMs = systemClock.nowMs()
      delays.record(Math.max(1, Math.round((nowMs - dueMs) * 1e6)))
      ringAt(nowMs + PERIOD_MS)
    }
    systemClock.after(PERIOD_MS, ring, { unref: true })
  }
  ringAt(systemClock.nowMs() + PERIOD_MS)
  const show = (): void => {
    if (delays.count === 0) return
    for (const [gauge, ns] of gauges) gauge.set(secondsOf(ns(delays)))
    delays.reset()
  }
  const gauges = Object.entries(FIGURES).map(([figure, [what, ns]], number) => {
    const name = `nodejs_eventloop_lag_${figure}_seconds`
    registry.removeSingleMetric(name)
    const help = `${what} of the event loop of the main thread since the last scrape, in seconds.`
    // The first one looks for all: each says what it has when its turn comes.
    const gauge = new Gauge({ name, help, registers: [registry], ...(number === 0 ? { collect: show } : {}) })
    return [gauge, ns] as const
  })
}
