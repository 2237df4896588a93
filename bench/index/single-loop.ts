/**
 * Loop A: one thread, closed. The schedule back to back (`mixed`), all lookups on the full index, then the
 * events alone into a fresh index, stored and removed apart. It describes the data structure and nothing
 * else.
 */

import { PerformanceObserver } from 'node:perf_hooks'
import { IndexReader, OverlapCounts } from '@homing/index'
import { threadCpuUs } from '../actors/cpu.ts'
import { type Measures, percentile } from '../harness.ts'
import {
  apply,
  blockOps,
  collect,
  createIndex,
  lookUp,
  perSecond,
  prepare,
  requireAllTaken,
  sumOf,
  warmUpWith,
} from './drive.ts'
import { type Corpus, LOOKUP, recordsOf, STORED } from './kvc1.ts'
import { eventBatches as eventBatchCount, sampleEvery } from './parameters.ts'
import { referenceOf, requireAnswer, requireHeld } from './reference.ts'

/** Batches of passes over all lookups, after the pass with a clock around each. */
const LOOKUP_BATCHES = 3
/** CPU time is counted in steps of some milliseconds, so a batch takes at least this. */
const BATCH_MS_MIN = 100

export function singleLoop(): Measures {
  const { files, corpus, warmUp } = prepare()
  const reference = referenceOf(files, corpus, sampleEvery)
  warmUpWith(warmUp)
  collect()
  const collections = watchCollections()

  const { kinds, totals } = corpus
  const index = createIndex(totals.workers)
  const reader = new IndexReader([index.memory])
  const scores = new OverlapCounts(totals.workers)
  // Sampled answers are kept and compared when the clock has stopped.
  const answers = new Map<number, Map<number, number>>()
  let keptMs = 0
  const mixedCpuFrom = threadCpuUs()
  const mixedFrom = performance.now()
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] !== LOOKUP) {
      apply(index, corpus, i)
      continue
    }
    lookUp(reader, corpus, i, scores)
    if (!reference.answers.has(i)) continue
    const from = performance.now()
    answers.set(i, scores.toMap())
    keptMs += performance.now() - from
  }
  const mixedMs = performance.now() - mixedFrom - keptMs
  const mixedCpuUs = threadCpuUs() - mixedCpuFrom
  for (const [i, expected] of reference.answers) requireAnswer(i, answers.get(i)!, expected)
  requireHeld([index], reference.held)
  requireAllTaken(index)
  const stats = index.stats()

  const lookups = recordsOf(corpus, LOOKUP)
  const firstFrom = performance.now()
  pass(reader, corpus, lookups, scores)
  const firstMs = performance.now() - firstFrom
  const timesUs = new Float64Array(lookups.length)
  let sum = 0
  for (let k = 0; k < lookups.length; k++) {
    const from = performance.now()
    lookUp(reader, corpus, lookups[k]!, scores)
    timesUs[k] = (performance.now() - from) * 1000
    sum += sumOf(scores)
  }
  const batches = Array.from({ length: LOOKUP_BATCHES }, () =>
    batch(() => pass(reader, corpus, lookups, scores)),
  )
  const lookupMs = Math.min(...batches.map(({ ms }) => ms))

  const eventBatches = Array.from({ length: eventBatchCount }, () => eventsAlone(corpus))
  const best = eventBatches.reduce((a, b) => (a.cpuUs < b.cpuUs ? a : b))
  const events = totals.storedEvents + totals.removedEvents
  const pauses = collections()
  return {
    mixed: perSecond(blockOps(corpus), mixedMs, 'block op/s'),
    mixedCpu: { value: (mixedCpuUs * 1000) / blockOps(corpus), unit: 'ns CPU' },
    events: perSecond(totals.storedBlocks + totals.removedBlocks, best.storedMs + best.removedMs, 'block/s'),
    stored: perSecond(totals.storedBlocks, best.storedMs, 'block/s'),
    ...(totals.removedBlocks === 0
      ? {}
      : { removed: perSecond(totals.removedBlocks, best.removedMs, 'block/s') }),
    eventCpu: { value: best.cpuUs / events, unit: 'µs CPU' },
    lookupsFirstPass: perSecond(lookups.length, firstMs, 'lookup/s'),
    lookups: perSecond(lookups.length, lookupMs, 'lookup/s'),
    lookupBlocks: perSecond(totals.lookupBlocks, lookupMs, 'block/s'),
    lookupCpu: { value: Math.min(...batches.map(({ cpuUs }) => cpuUs)) / lookups.length, unit: 'µs CPU' },
    lookupP50: { value: percentile(timesUs, 50), unit: 'µs' },
    lookupP99: { value: percentile(timesUs, 99), unit: 'µs' },
    bytesPerMembership: { value: stats.bytesUsed / stats.memberships, unit: 'B' },
    memberships: { value: stats.memberships, unit: 'memberships' },
    scoreSum: { value: sum, unit: 'blocks' },
    comparedLookups: { value: reference.answers.size, unit: 'lookups' },
    gcLongest: { value: Math.max(0, ...pauses), unit: 'ms' },
    gcTotal: { value: pauses.reduce((a, b) => a + b, 0), unit: 'ms' },
  }
}

function pass(reader: IndexReader, corpus: Corpus, lookups: Int32Array, scores: OverlapCounts): void {
  for (let k = 0; k < lookups.length; k++) lookUp(reader, corpus, lookups[k]!, scores)
}

/** What one round of `work` takes, over as many as fill a batch. */
function batch(work: () => void): { readonly ms: number; readonly cpuUs: number } {
  const cpu = threadCpuUs()
  const from = performance.now()
  let rounds = 0
  do {
    work()
    rounds++
  } while (performance.now() - from < BATCH_MS_MIN)
  return { ms: (performance.now() - from) / rounds, cpuUs: (threadCpuUs() - cpu) / rounds }
}

/** All events into a fresh index, over as many as fill a batch. */
function eventsAlone(corpus: Corpus): { storedMs: number; removedMs: number; cpuUs: number } {
  const { kinds, totals } = corpus
  let storedMs = 0
  let removedMs = 0
  let rounds = 0
  const { cpuUs } = batch(() => {
    const index = createIndex(totals.workers)
    for (let i = 0; i < kinds.length; i++) {
      if (kinds[i] === LOOKUP) continue
      const from = performance.now()
      apply(index, corpus, i)
      const ms = performance.now() - from
      if (kinds[i] === STORED) storedMs += ms
      else removedMs += ms
    }
    rounds++
  })
  return { storedMs: storedMs / rounds, removedMs: removedMs / rounds, cpuUs }
}

/** Gives the pauses of the garbage collector since the call, in milliseconds. */
function watchCollections(): () => readonly number[] {
  const observer = new PerformanceObserver(() => {})
  observer.observe({ entryTypes: ['gc'] })
  return () => observer.takeRecords().map(({ duration }) => duration)
}
