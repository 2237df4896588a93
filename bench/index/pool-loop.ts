/**
 * Loop C: overload of one writer thread. The issuer reads the schedule as fast as it can, does the lookups
 * itself (validating reader on shared memory) and copies the events into the ring. The rate counts all block
 * ops until the last event was applied; lookups see an index that is at most a ring of events behind. If the
 * writer never waits, its CPU time bounds the rate; if it waits, its CPU time includes the spinning.
 */

import { OverlapCounts } from '@homing/index'
import { type Measures, percentile } from '../harness.ts'
import { blockOps, collect, lookUp, perSecond, prepare, warmUpWith } from './drive.ts'
import { LOOKUP } from './kvc1.ts'
import { sampleEvery } from './parameters.ts'
import { referenceOf } from './reference.ts'
import { Writer } from './writer.ts'

export async function poolLoop(): Promise<Measures> {
  const { files, corpus, warmUp } = prepare()
  const writer = await Writer.start(corpus, referenceOf(files, corpus, sampleEvery))
  warmUpWith(warmUp)
  const reader = await writer.fresh()
  collect()

  const { kinds, totals } = corpus
  const { issuer } = writer
  const scores = new OverlapCounts(totals.workers)
  const timesUs = new Float64Array(totals.lookups)
  let lookups = 0
  const from = performance.now()
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] === LOOKUP) {
      const lookupFrom = performance.now()
      lookUp(reader, corpus, i, scores)
      timesUs[lookups++] = (performance.now() - lookupFrom) * 1000
    } else issuer.issue(corpus, i, 0)
  }
  const issuedMs = performance.now() - from
  issuer.drain()
  const drainedMs = performance.now() - from
  const writerCpuUs = await writer.check()
  await writer.stop()
  const { retries, misses } = reader.stats()
  return {
    poolDrained: perSecond(blockOps(corpus), drainedMs, 'block op/s'),
    poolWriterCpu: { value: (writerCpuUs * 1000) / blockOps(corpus), unit: 'ns CPU' },
    poolIssueShare: { value: issuedMs / drainedMs, unit: '× drained' },
    poolLookupP50: { value: percentile(timesUs, 50), unit: 'µs' },
    poolLookupP99: { value: percentile(timesUs, 99), unit: 'µs' },
    poolRetries: { value: retries, unit: 'walks begun again' },
    poolMisses: { value: misses, unit: 'lookups given up' },
  }
}
