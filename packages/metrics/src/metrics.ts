/**
 * Metrics of one process: counters, gauges and histograms by name, and their Prometheus text.
 *
 * A thin layer on prom-client that holds no global state: the creator of a `Metrics` owns everything in it.
 *
 * Invariants
 *   I1  A name is `homing_<area>_<what>_<unit>`, or `homing_<what>_info`; only a counter has the unit
 *       `total`.
 *       Metrics of the process have the names that all Prometheus clients share: process_*, nodejs_*.
 *   I2  A name is declared once. Both are checked when it is declared: breaking them is a bug.
 *   I3  A collector that fails costs its own figures, not the scrape: it is counted in
 *       `homing_metrics_collector_failures_total` and the figures it set before stay.
 *   I4  An included text comes from another Metrics of the same process that declares other names.
 *
 * Figures that other modules keep (loads, mailbox depths) are read when Prometheus scrapes: see `collect`.
 *
 * Source   https://prometheus.io/docs/practices/naming/
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import prometheus from 'prom-client'
import { buildInfo } from './build-info.ts'
import { LIBRARY_PERIOD_MS, showEventLoopLag } from './event-loop-lag.ts'
import { RESIDENT_PARTS, ResidentReader } from './resident-parts.ts'

/** Values of the labels, by name; each label of the declaration exactly once. */
export type Labels<L extends string> = Readonly<Record<L, string | number>>

export interface MetricDeclaration<L extends string> {
  /** `homing_<area>_<what>_<unit>`. */
  readonly name: string
  /** One sentence for the person who reads /metrics. */
  readonly help: string
  readonly labels?: readonly L[]
}

export interface HistogramDeclaration<L extends string> extends MetricDeclaration<L> {
  /** Upper bounds in the metric's unit, ascending; an infinite one is added. */
  readonly buckets: readonly number[]
}

/** Without labels in the declaration there is nothing to pass. */
type LabelArguments<L extends string> = [L] extends [never] ? [] : [labels: Labels<L>]

export interface Counter<L extends string = never> {
  /** `count` ≥ 0. */
  add(count: number, ...labels: LabelArguments<L>): void
  /** Takes over a total that somebody else counts; for collectors. */
  setTotal(total: number, ...labels: LabelArguments<L>): void
  /** Takes over all series at once: those not among `samples` are gone, as their threads are. */
  replaceTotals(samples: Iterable<{ readonly total: number; readonly labels: Labels<L> }>): void
  /** Drops the series of what is gone for good, such as workers that have left. */
  keepOnly(isKept: (labels: Labels<L>) => boolean): Promise<void>
  /** Drops one series; nothing happens if there is none. */
  remove(labels: Labels<L>): void
}

export interface Gauge<L extends string = never> {
  set(value: number, ...labels: LabelArguments<L>): void
  add(change: number, ...labels: LabelArguments<L>): void
  /** Replaces all series at once: those not among `samples` are gone, as their workers are. */
  replace(samples: Iterable<Sample<L>>): void
}

export interface Histogram<L extends string = never> {
  /** Throws RangeError if `value` is not finite. */
  observe(value: number, ...labels: LabelArguments<L>): void
  /** Drops one series; nothing happens if there is none. */
  remove(labels: Labels<L>): void
}

/** A histogram that somebody else keeps; for collectors. */
export interface HistogramTotals<L extends string = never> {
  /**
   * Replaces all series at once. `counts`: observations up to each bound and above the one before; then those
   * above the last.
   */
  replace(samples: readonly HistogramTotal<L>[]): void
}

export interface HistogramTotal<L extends string> {
  readonly counts: readonly number[]
  readonly sum: number
  readonly labels: Labels<L>
}

/**
 * One metric of a table: a counter where its name ends with `_total`, and else a gauge. A row without a value
 * has no series of it.
 */
export type MetricColumn<Row> = readonly [name: string, help: string, value: (row: Row) => number | undefined]

/** A row of a table, and the labels of its series. */
export interface MetricRow<Row, L extends string> {
  readonly row: Row
  readonly labels: Labels<L>
}

/** Several metrics of the same things, with the same labels. */
export interface MetricTable<Row, L extends string> {
  /** Replaces all series at once: those not among `rows` are gone. */
  replace(rows: readonly MetricRow<Row, L>[]): void
  /** Sets the series of these rows; those of others stay as they were. */
  update(rows: readonly MetricRow<Row, L>[]): void
  /** As that of a counter. */
  keepOnly(isKept: (labels: Labels<L>) => boolean): Promise<void>
}

const UNITS = [
  'actors',
  'asks',
  'blocks',
  'bytes',
  'connections',
  'events',
  'info',
  'keys',
  'messages',
  'ratio',
  'replicas',
  'requests',
  'responses',
  'routers',
  'seconds',
  'spans',
  'state',
  'tabs',
  'threads',
  'tokens',
  'total',
  'workers',
] as const

/** Why `name` is no good name for a metric of the given kind; undefined when it is one. */
export function faultOfMetricName(name: string, kind: 'counter' | 'gauge' | 'histogram'): string | undefined {
  if (!/^homing((_[a-z][a-z0-9]*){3,}|_[a-z]+_info)$/.test(name))
    return `${name} is not homing_<area>_<what>_<unit>`
  const unit = name.slice(name.lastIndexOf('_') + 1)
  if (!UNITS.some(known => known === unit)) return `${name} ends with none of the units ${UNITS.join(', ')}`
  if (kind === 'counter' && unit !== 'total') return `${name} is a counter and must end with _total`
  if (kind !== 'counter' && unit === 'total') return `${name} is a ${kind} and must not end with _total`
  return undefined
}

export class Metrics {
  /** Value of the `content-type` header of what `render` answers. */
  readonly contentType: string
  readonly #registry = new prometheus.Registry()
  readonly #collectors: (() => void | Promise<void>)[] = []
  readonly #included = new Map<() => Promise<string>, string>()
  /** Declared with the first collector: without any there are no failures. */
  #collectorFailures: Counter | undefined

  constructor() {
    this.contentType = this.#registry.contentType
  }

  counter<L extends string = never>(declaration: MetricDeclaration<L>): Counter<L> {
    const series = new Map<string, CountedSeries<L>>()
    const add = (count: number, labels: Labels<L>): void => {
      if (!(count >= 0 && count < Number.POSITIVE_INFINITY))
        throw new RangeError(`cannot add ${count} to ${declaration.name}: use a finite number ≥ 0`)
      const key = keyOf(labels)
      const own = series.get(key)
      if (own === undefined) series.set(key, { value: count, labels })
      else own.value += count
    }
    const none = {} as Labels<L>
    if ((declaration.labels ?? []).length === 0) add(0, none)
    this.#register(this.#configuration(declaration, 'counter'), 'counter', () => [...series.values()])
    return {
      add: (count, ...[labels]) => add(count, labels ?? none),
      setTotal: (total, ...[labels]) => {
        series.delete(keyOf(labels ?? none))
        add(total, labels ?? none)
      },
      replaceTotals: samples => {
        series.clear()
        for (const { total, labels } of samples) add(total, labels)
      },
      keepOnly: async isKept => {
        for (const [key, { labels }] of series) if (!isKept(labels)) series.delete(key)
      },
      remove: labels => void series.delete(keyOf(labels)),
    }
  }

  gauge<L extends string = never>(declaration: MetricDeclaration<L>): Gauge<L> {
    const gauge = new prometheus.Gauge(this.#configuration(declaration, 'gauge'))
    const given = new Series<L>()
    const own = gauge.get.bind(gauge)
    let isReplaced = false
    // The series of a large fleet, a hundred thousand of them, are not taken over one by one.
    gauge.get = async () => (isReplaced ? { ...(await own()), values: given.values() } : own())
    return {
      set: (value, ...[labels]) => {
        assert.ok(!isReplaced, `${declaration.name}: its series are replaced as a whole`)
        gauge.set(labels ?? {}, value)
      },
      add: (change, ...[labels]) => {
        assert.ok(!isReplaced, `${declaration.name}: its series are replaced as a whole`)
        gauge.inc(labels ?? {}, change)
      },
      replace: samples => {
        if (!isReplaced) gauge.reset()
        isReplaced = true
        given.replace(samples)
      },
    }
  }

  histogram<L extends string = never>(declaration: HistogramDeclaration<L>): Histogram<L> {
    const { buckets } = declaration
    assert.ok(
      buckets.length > 0 && buckets.every((bound, i) => i === 0 || bound > buckets[i - 1]!),
      `${declaration.name}: buckets must ascend`,
    )
    const series = new Map<string, ObservedSeries<L>>()
    const seriesOf = (labels: Labels<L>): ObservedSeries<L> => {
      const key = keyOf(labels)
      const known = series.get(key)
      if (known !== undefined) return known
      const made = { counts: new Array<number>(buckets.length + 1).fill(0), sum: 0, labels }
      series.set(key, made)
      return made
    }
    if ((declaration.labels ?? []).length === 0) seriesOf({} as Labels<L>)
    this.#histogram(declaration, () => [...series.values()])
    return {
      observe: (value, ...[labels]) => {
        if (!Number.isFinite(value)) throw new RangeError(`cannot observe ${value}: use a finite number`)
        const own = seriesOf(labels ?? ({} as Labels<L>))
        let at = 0
        while (at < buckets.length && value > buckets[at]!) at++
        own.counts[at]!++
        own.sum += value
      },
      remove: labels => void series.delete(keyOf(labels)),
    }
  }

  /** For collectors: one metric a column, one series a row. */
  table<Row, L extends string>(
    labels: readonly L[],
    columns: readonly MetricColumn<Row>[],
  ): MetricTable<Row, L> {
    const rows = new Series<L, { readonly labels: Labels<L>; readonly row: Row }>()
    for (const [name, help, value] of columns) {
      const kind = name.endsWith('_total') ? 'counter' : 'gauge'
      this.#register(this.#configuration({ name, help, labels }, kind), kind, () =>
        [...rows.all()].flatMap(({ labels: ofRow, row }) => {
          const figure = value(row)
          return figure === undefined ? [] : [{ labels: ofRow, value: figure }]
        }),
      )
    }
    return {
      replace: given => rows.replace(given),
      update: given => rows.update(given),
      keepOnly: async isKept => rows.keepOnly(isKept),
    }
  }

  /** A histogram whose counts are taken over at each scrape. */
  histogramTotals<L extends string>(declaration: HistogramDeclaration<L>): HistogramTotals<L> {
    let samples: readonly HistogramTotal<L>[] = []
    this.#histogram(declaration, () => samples)
    return {
      replace: given => {
        samples = given
      },
    }
  }

  /**
   * Calls `collector` before each scrape, to set the figures of metrics that somebody else keeps. All
   * collectors run at the same time; each must settle by itself (an ask has its deadline).
   */
  collect(collector: () => void | Promise<void>): void {
    this.#collectorFailures ??= this.counter({
      name: 'homing_metrics_collector_failures_total',
      help: 'Collectors that failed during a scrape; their figures are as old as their last success.',
    })
    this.#collectors.push(collector)
  }

  /** Shows what another Metrics renders behind what this one has; where that fails, what it rendered last. */
  include(text: () => Promise<string>): void {
    this.collect(async () => void this.#included.set(text, await text()))
  }

  /**
   * Adds memory, processor time, files, event loop delay and garbage collection of this process (`process_*`,
   * `nodejs_*`), and the build.
   */
  observeProcess(): void {
    const register = this.#registry
    prometheus.collectDefaultMetrics({ register, eventLoopMonitoringPrecision: LIBRARY_PERIOD_MS })
    showEventLoopLag(register)
    // Counting handles and requests by type makes Node build their objects, and abort where one is just being
    // collected.
    for (const what of ['handles', 'requests']) this.#registry.removeSingleMetric(`nodejs_active_${what}`)
    // Gauges with the name of a counter; each is the sum of the one without the suffix.
    for (const what of ['handles', 'requests', 'resources'])
      this.#registry.removeSingleMetric(`nodejs_active_${what}_total`)
    const { version, commit = '' } = buildInfo()
    const build = this.gauge({
      name: 'homing_build_info',
      help: 'Version, Node version and, in a git checkout, the commit.',
      labels: ['version', 'node', 'commit'],
    })
    build.set(1, { version, node: process.versions.node, commit })
    if (process.platform === 'linux') this.#observeResident()
  }

  /** Not by a collector: the counter of their failures would be there twice where this is included. */
  #observeResident(): void {
    const reader = new ResidentReader()
    const help =
      'Resident memory as of the scrape before, by what it is for: program, compiled, allocator, heaps, other.'
    this.#register({ name: 'homing_process_resident_bytes', help }, 'gauge', () => {
      const bytes = reader.read()
      return RESIDENT_PARTS.map(part => ({ labels: { part }, value: bytes[part] }))
    })
  }

  /** The text that GET /metrics answers. Never rejects because of a collector. */
  async render(): Promise<string> {
    await this.gather()
    return this.write()
  }

  /** Runs the collectors, for `write`. Never rejects because of one. */
  async gather(): Promise<void> {
    const outcomes = await Promise.allSettled(this.#collectors.map(async collector => collector()))
    const failures = outcomes.filter(outcome => outcome.status === 'rejected').length
    if (failures > 0) this.#collectorFailures?.add(failures)
  }

  /**
   * The text, with what was gathered last. `next` is awaited between two pieces of work: others may have
   * their turn then, but no `gather`.
   */
  async write(next?: () => Promise<void> | undefined): Promise<string> {
    const own: string[] = []
    for (const { name } of this.#registry.getMetricsAsArray()) {
      try {
        own.push(await this.#text(name, next))
      } catch {
        // A value that a collector's row could not give costs its own family.
        this.#collectorFailures?.add(1)
      }
      await next?.()
    }
    return [`${own.join('\n\n')}\n`, ...this.#included.values()].join('')
  }

  /** A family of many series is written in parts. */
  async #text(family: string, next?: () => Promise<void> | undefined): Promise<string> {
    const told = await this.#registry.getSingleMetric(family)!.get()
    const parts: string[] = []
    for (let at = 0; at === 0 || at < told.values.length; at += SERIES_AT_ONCE) {
      if (at > 0) await next?.()
      const values = told.values.slice(at, at + SERIES_AT_ONCE)
      const part = new prometheus.Registry()
      part.registerMetric({ name: family, get: () => ({ ...told, values }) } as never)
      const text = (await part.metrics()).trimEnd()
      // All but the first part are without the two lines of the head.
      parts.push(at === 0 ? text : text.slice(text.indexOf('\n', text.indexOf('\n') + 1) + 1))
    }
    return parts.join('\n')
  }

  #histogram<L extends string>(
    declaration: HistogramDeclaration<L>,
    samples: () => readonly HistogramTotal<L>[],
  ): void {
    const { name, help } = this.#configuration(declaration, 'histogram')
    const bounds = [...declaration.buckets.map(String), '+Inf']
    this.#register({ name, help }, 'histogram', () =>
      samples().flatMap(({ counts, sum, labels }) => {
        let below = 0
        const buckets = bounds.map((le, at) => {
          below += counts[at] ?? 0
          return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: below }
        })
        return [
          ...buckets,
          { metricName: `${name}_sum`, labels, value: sum },
          { metricName: `${name}_count`, labels, value: below },
        ]
      }),
    )
  }

  /** A family whose figures others keep: prom-client has none that can be set, and asks this of one. */
  #register(
    { name, help }: { readonly name: string; readonly help: string },
    type: 'counter' | 'gauge' | 'histogram',
    values: () => readonly { readonly labels: object; readonly value: number }[],
  ): void {
    const get = () => ({ name, help, type, aggregator: 'sum', values: values() })
    this.#registry.registerMetric({ name, help, get, reset: () => {} } as never)
  }

  #configuration<L extends string>(
    { name, help, labels = [] }: MetricDeclaration<L>,
    kind: 'counter' | 'gauge' | 'histogram',
  ) {
    const fault = faultOfMetricName(name, kind)
    assert.ok(fault === undefined, fault)
    assert.ok(this.#registry.getSingleMetric(name) === undefined, `${name} is declared twice`)
    return { name, help, labelNames: [...labels], registers: [this.#registry] }
  }
}

/** Series by their labels: of equal ones the last counts. */
class Series<L extends string, S extends { readonly labels: Labels<L> } = Sample<L>> {
  readonly #byLabels = new Map<string, S>()

  replace(samples: Iterable<S>): void {
    this.#byLabels.clear()
    this.update(samples)
  }

  update(samples: Iterable<S>): void {
    for (const sample of samples) this.#byLabels.set(keyOf(sample.labels), sample)
  }

  keepOnly(isKept: (labels: Labels<L>) => boolean): void {
    for (const [key, { labels }] of this.#byLabels) if (!isKept(labels)) this.#byLabels.delete(key)
  }

  all(): Iterable<S> {
    return this.#byLabels.values()
  }

  values(): S[] {
    return [...this.#byLabels.values()]
  }
}

/** One series of a counter that is kept here: prom-client makes up its key from all labels each time. */
interface CountedSeries<L extends string> extends Sample<L> {
  value: number
}

/** One series of a histogram that is kept here: prom-client takes 3 µs for an observation. */
interface ObservedSeries<L extends string> extends HistogramTotal<L> {
  readonly counts: number[]
  sum: number
}

interface Sample<L extends string> {
  readonly value: number
  readonly labels: Labels<L>
}

/**
 * Callers give the labels of a family in one order. The value of a label alone is its key: that text is there
 * already.
 */
function keyOf(labels: Readonly<Record<string, string | number>>): string {
  let key: string | undefined
  for (const name in labels) {
    const value = String(labels[name])
    key = key === undefined ? value : `${key.length} ${key}${value}`
  }
  return key ?? ''
}

/** Series of one family that are written without a turn of others. */
const SERIES_AT_ONCE = 200
