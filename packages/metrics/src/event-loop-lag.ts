/**
 * `nodejs_eventloop_lag_*_seconds`: by how much a timer of the main thread came late, since the last scrape.
 *
 * Under the names of the metrics library and in place of its own, whose timer wakes an idle router a hundred
 * times a second (a quarter of what it costs then), and whose figures have the period of that timer in them.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Gauge, type Registry } from 'prom-client'

/** A tenth of a second is what an alert asks about, and a scrape of 15 s has 150 of them. */
const PERIOD_MS = 100
/** For the timer of the library: a month. */
export const LIBRARY_PERIOD_MS = 2 ** 31 - 1

const NAME = 'nodejs_eventloop_lag'
type Delays = ReturnType<typeof monitorEventLoopDelay>

const FIGURES: Readonly<Record<string, readonly [help: string, ns: (delays: Delays) => number]>> = {
  min: ['The shortest delay of the event loop', ({ min }) => min],
  max: ['The longest delay of the event loop', ({ max }) => max],
  mean: ['The mean delay of the event loop', ({ mean }) => mean],
  p50: ['The median of the delays of the event loop', delays => delays.percentile(50)],
  p90: ['The 90th percentile of the delays of the event loop', delays => delays.percentile(90)],
  p99: ['The 99th percentile of the delays of the event loop', delays => delays.percentile(99)],
}

/** Puts its gauges in the place of those that the library registered. */
export function showEventLoopLag(registry: Registry): void {
  const delays = monitorEventLoopDelay({ resolution: PERIOD_MS })
  delays.enable()
  // The intervals between two rings of the timer are recorded.
  const lagS = (ns: number): number => Math.max(0, ns / 1e9 - PERIOD_MS / 1e3)
  const gaugeOf = (name: string, help: string, collect?: () => Promise<void>): Gauge => {
    registry.removeSingleMetric(name)
    return new Gauge({
      name,
      help: `${help}, in seconds.`,
      registers: [registry],
      ...(collect && { collect }),
    })
  }
  // The first of them, since each says what it has when its turn comes.
  const now = gaugeOf(`${NAME}_seconds`, 'How long this scrape waited for the event loop', async () => {
    const askedAt = performance.now()
    if (delays.count > 0) {
      for (const [gauge, ns] of gauges) gauge.set(lagS(ns(delays)))
      stddev.set(delays.stddev / 1e9)
      delays.reset()
    }
    await new Promise(resolve => setImmediate(resolve))
    now.set((performance.now() - askedAt) / 1e3)
  })
  const gauges = Object.entries(FIGURES).map(
    ([figure, [help, ns]]) => [gaugeOf(`${NAME}_${figure}_seconds`, help), ns] as const,
  )
  const stddev = gaugeOf(`${NAME}_stddev_seconds`, 'The standard deviation of the delays of the event loop')
}
