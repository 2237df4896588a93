/**
 * `nodejs_eventloop_lag_*_seconds`: by how much a timer of the main thread came late, since the last scrape.
 *
 * Under the names of the metrics library and in place of its own, whose timer wakes an idle router a hundred
 * times a second (half of what it costs then), and whose figures have the period of that timer in them. What
 * comes late within PERIOD_MS behind a scrape does not show: the histogram begins anew with its next ring.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Gauge, type Registry } from 'prom-client'

/** A tenth of a second is what an alert asks about, and a scrape of 15 s has 150 of them. */
const PERIOD_MS = 100
/** For the timer of the library: a month. */
export const LIBRARY_PERIOD_MS = 2 ** 31 - 1

type Delays = ReturnType<typeof monitorEventLoopDelay>

/** What is recorded is the time between two rings of the timer. */
const lagOf = (ns: number): number => Math.max(0, ns / 1e9 - PERIOD_MS / 1e3)

const FIGURES: Readonly<Record<string, readonly [what: string, seconds: (delays: Delays) => number]>> = {
  min: ['Shortest delay', ({ min }) => lagOf(min)],
  max: ['Longest delay', ({ max }) => lagOf(max)],
  mean: ['Mean delay', ({ mean }) => lagOf(mean)],
  stddev: ['Standard deviation of the delays', ({ stddev }) => stddev / 1e9],
  p50: ['Median of the delays', delays => lagOf(delays.percentile(50))],
  p90: ['90th percentile of the delays', delays => lagOf(delays.percentile(90))],
  p99: ['99th percentile of the delays', delays => lagOf(delays.percentile(99))],
}

/** Puts its gauges in the place of those that the library registered. */
export function showEventLoopLag(registry: Registry): void {
  const delays = monitorEventLoopDelay({ resolution: PERIOD_MS })
  delays.enable()
  const show = (): void => {
    if (delays.count === 0) return
    for (const [gauge, secondsOf] of gauges) gauge.set(secondsOf(delays))
    delays.reset()
  }
  const gauges = Object.entries(FIGURES).map(([figure, [what, secondsOf]], number) => {
    const name = `nodejs_eventloop_lag_${figure}_seconds`
    registry.removeSingleMetric(name)
    const help = `${what} of the event loop of the main thread since the last scrape, in seconds.`
    // The first one reads the delays for all: a registry collects it before the others.
    const gauge = new Gauge({ name, help, registers: [registry], ...(number === 0 ? { collect: show } : {}) })
    return [gauge, secondsOf] as const
  })
}
