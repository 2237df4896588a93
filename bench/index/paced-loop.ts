/**
 * Loops B and D: the schedule by its deadlines, scaled to a window. The issuer waits for each deadline, looks
 * up itself and copies events into the ring; one thread applies them.
 *
 *   B   windows for six offered rates, log-spaced. An offered rate is kept up when everything was issued
 *       within 1.01 × window and applied within 1.10 × window. The ceiling is the highest that was.
 *   D   the window for half of that ceiling. Lag of issue, service of a lookup, deadline to the answer of a
 *       lookup, accepted to applied of an event.
 */

import { type IndexReader, OverlapCounts } from '@homing/index'
import { type Measure, type Measures, percentile, say } from '../harness.ts'
import { clockOffsetMs } from './clock-offset.ts'
import { blockOps, collect, lookUp, prepare, warmUpWith } from './drive.ts'
import { type Corpus, LOOKUP } from './kvc1.ts'
import { offeredMax, offeredMin, sampleEvery } from './parameters.ts'
import { referenceOf } from './reference.ts'
import { Writer } from './writer.ts'

const RATES = 6
const ISSUED_MAX = 1.01
const DRAINED_MAX = 1.1

interface Samples {
  readonly lagUs: Float64Array
  readonly serviceUs: Float64Array
  readonly completionUs: Float64Array
}

interface Replay {
  readonly issuedMs: number
  readonly drainedMs: number
}

export async function keepUpLoop(): Promise<Measures> {
  const { corpus, writer } = await begin()
  const ceiling = await findCeiling(corpus, writer)
  await writer.stop()
  return { keepUpCeiling: { value: ceiling, unit: 'block op/s' } }
}

export async function latencyLoop(): Promise<Measures> {
  const { corpus, writer } = await begin()
  const ceiling = await findCeiling(corpus, writer)
  // Where no rate was kept up, half of the lowest: a machine too busy for figures, but answers are still
  // checked.
  const rate = (ceiling || offeredMin) / 2
  const windowMs = windowOf(corpus, rate)
  const samples: Samples = {
    lagUs: new Float64Array(corpus.kinds.length),
    serviceUs: new Float64Array(corpus.totals.lookups),
    completionUs: new Float64Array(corpus.totals.lookups),
  }
  const reader = await writer.fresh()
  const before = writer.issuer.published
  const { drainedMs } = replay(corpus, writer, reader, windowMs, samples)
  const appliedUs = writer.appliedUs.slice(0, writer.issuer.published - before)
  await writer.check()
  await writer.stop()
  return {
    keepUpCeiling: { value: ceiling, unit: 'block op/s' },
    halfLoad: { value: rate, unit: 'block op/s' },
    halfLoadDrain: { value: Math.max(0, drainedMs / windowMs - 1), unit: '× window' },
    ...percentiles('halfLoadLag', samples.lagUs),
    ...percentiles('halfLoadLookup', samples.serviceUs),
    ...percentiles('halfLoadCompletion', samples.completionUs),
    ...percentiles('halfLoadApplied', appliedUs),
  }
}

async function begin(): Promise<{ readonly corpus: Corpus; readonly writer: Writer }> {
  const { files, corpus, warmUp } = prepare()
  const writer = await Writer.start(corpus, referenceOf(files, corpus, sampleEvery))
  warmUpWith(warmUp)
  // The loop itself has to be compiled as well.
  replay(corpus, writer, await writer.fresh(), windowOf(corpus, offeredMax), undefined)
  collect()
  return { corpus, writer }
}

/** Block ops a second; 0 when no rate was kept up. */
async function findCeiling(corpus: Corpus, writer: Writer): Promise<number> {
  let ceiling = 0
  for (let i = 0; i < RATES; i++) {
    const rate = offeredMin * (offeredMax / offeredMin) ** (i / (RATES - 1))
    const windowMs = windowOf(corpus, rate)
    const { issuedMs, drainedMs } = replay(corpus, writer, await writer.fresh(), windowMs, undefined)
    const isKept = issuedMs <= ISSUED_MAX * windowMs && drainedMs <= DRAINED_MAX * windowMs
    say(
      `  ${(rate / 1e6).toFixed(1)} M block op/s offered: issued within ${(issuedMs / windowMs).toFixed(3)} × window, ` +
        `applied within ${(drainedMs / windowMs).toFixed(3)}: ${isKept ? 'kept up' : 'not kept up'}`,
    )
    if (isKept) ceiling = rate
  }
  return ceiling
}

function windowOf(corpus: Corpus, ratePerS: number): number {
  return (blockOps(corpus) / ratePerS) * 1000
}

function replay(
  corpus: Corpus,
  { issuer }: Writer,
  reader: IndexReader,
  windowMs: number,
  samples: Samples | undefined,
): Replay {
  const { kinds, deadlines, totals } = corpus
  const scores = new OverlapCounts(totals.workers)
  const offsetMs = clockOffsetMs()
  const firstS = deadlines[0]!
  const scale = windowMs / Math.max(deadlines.at(-1)! - firstS, Number.MIN_VALUE)
  let lookups = 0
  const from = performance.now()
  for (let i = 0; i < kinds.length; i++) {
    const dueMs = from + (deadlines[i]! - firstS) * scale
    let nowMs = performance.now()
    while (nowMs < dueMs) nowMs = performance.now()
    if (kinds[i] !== LOOKUP) issuer.issue(corpus, i, samples === undefined ? 0 : nowMs + offsetMs)
    else lookUp(reader, corpus, i, scores)
    if (samples === undefined) continue
    samples.lagUs[i] = (nowMs - dueMs) * 1000
    if (kinds[i] !== LOOKUP) continue
    const endMs = performance.now()
    samples.serviceUs[lookups] = (endMs - nowMs) * 1000
    samples.completionUs[lookups++] = (endMs - dueMs) * 1000
  }
  const issuedMs = performance.now() - from
  issuer.drain()
  return { issuedMs, drainedMs: performance.now() - from }
}

function percentiles(name: string, samplesUs: Float64Array): Measures {
  const of = (q: number): Measure => ({ value: percentile(samplesUs, q), unit: 'µs' })
  return {
    [`${name}P50`]: of(50),
    [`${name}P99`]: of(99),
    [`${name}P999`]: of(99.9),
    [`${name}Max`]: of(100),
  }
}
