/**
 * Loop S: shards by worker. The schedule goes into one, two and four indexes; worker number modulo the count
 * chooses the index. One thread asks all indexes in turn. Passes over all lookups alternate, and times are
 * compared within a round.
 */

import { type BlockIndex, IndexReader, OverlapCounts } from '@homing/index'
import { type Measures, percentile } from '../harness.ts'
import { apply, collect, createIndex, lookUp, prepare, requireAllTaken, sumOf, warmUpWith } from './drive.ts'
import { type Corpus, LOOKUP, recordsOf } from './kvc1.ts'
import { sampleEvery, shardRounds } from './parameters.ts'
import { referenceOf, requireHeld } from './reference.ts'

const SHARDS = [1, 2, 4] as const

export function shardLoop(): Measures {
  const { files, corpus, warmUp } = prepare()
  const reference = referenceOf(files, corpus, sampleEvery)
  warmUpWith(warmUp)
  const lookups = recordsOf(corpus, LOOKUP)
  const scores = new OverlapCounts(corpus.totals.workers)
  const sides = SHARDS.map(shards => {
    const indexes = fill(corpus, shards)
    requireHeld(indexes, reference.held)
    const reader = new IndexReader(indexes.map(({ memory }) => memory))
    const blocks = indexes.reduce((sum, index) => sum + index.stats().blocksDistinct, 0)
    return {
      shards,
      reader,
      blocks,
      timesUs: new Float64Array(lookups.length),
      roundMs: [] as number[],
      sum: 0,
    }
  })
  collect()
  for (let round = 0; round <= shardRounds; round++) {
    for (const side of sides) {
      side.sum = 0
      const from = performance.now()
      for (let k = 0; k < lookups.length; k++) {
        const lookupFrom = performance.now()
        lookUp(side.reader, corpus, lookups[k]!, scores)
        side.timesUs[k] = (performance.now() - lookupFrom) * 1000
        side.sum += sumOf(scores)
      }
      // The first round warms up.
      if (round > 0) side.roundMs.push(performance.now() - from)
    }
  }
  const [one] = sides as [(typeof sides)[number]]
  const measures: Record<string, Measures[string]> = {}
  for (const { shards, timesUs, roundMs, sum, blocks } of sides) {
    if (sum !== one.sum)
      throw new Error(`the sum of all scores of ${shards} shards is ${sum}, not ${one.sum}`)
    measures[`shards${shards}P50`] = { value: percentile(timesUs, 50), unit: 'µs' }
    measures[`shards${shards}P99`] = { value: percentile(timesUs, 99), unit: 'µs' }
    measures[`shards${shards}Blocks`] = { value: blocks, unit: 'blocks' }
    if (shards === 1) continue
    const ratios = Float64Array.from(roundMs, (ms, round) => ms / one.roundMs[round]!)
    measures[`shards${shards}Times`] = { value: percentile(ratios, 50), unit: '× one shard' }
  }
  return measures
}

function fill(corpus: Corpus, shards: number): readonly BlockIndex[] {
  const { kinds, workers, totals } = corpus
  const indexes = Array.from({ length: shards }, () => createIndex(totals.workers))
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] !== LOOKUP) apply(indexes[workers[i]! % shards]!, corpus, i)
  }
  for (const index of indexes) requireAllTaken(index)
  return indexes
}
