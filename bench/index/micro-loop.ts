/**
 * Loop E: single operations on an index of 10 k, 1 M and 10 M memberships (chains of 128 blocks of one
 * worker).
 *
 *   stored, removed   a run of 1, 16 or 128 new blocks at the root; the same run again
 *   lookup            depth 1 … 8,000, all held; 128 blocks of which half or none are held; 128 blocks that
 *                     1, 8, 64 or 1,000 workers hold
 *
 * Chains are taken in turn, so that one is out of the caches when its turn comes again. Timed in batches of
 * at least 200 µs; the figure is the median batch, per operation.
 */

import { chainSequence } from '@homing/blocks'
import { type BlockIndex, IndexReader, OverlapCounts } from '@homing/index'
import { type Measures, percentile } from '../harness.ts'
import { createIndex } from './drive.ts'
import { microMemberships } from './parameters.ts'
import { mixInto, SplitMix } from './splitmix.ts'

const SIZES = [10_000, 1_000_000, 10_000_000] as const
const RUNS = [1, 16, 128] as const
const DEPTHS = [1, 16, 128, 1000, 8000] as const
const HOLDERS = [1, 8, 64, 1000] as const
const CHAIN_BLOCKS = 128
/** Chains that a lookup of 128 blocks takes in turn. */
const CHAINS_ASKED = 4096
const DEEP_BLOCKS = 8000
const WORKERS = 1024
const BYTES_PER_MEMBERSHIP = 44
const BATCH_MS_MIN = 0.2
const BATCHES = 40
const SEED = 3
/** First numbers of local hashes, far from those of the ballast. */
const DEEP_AT = 2 ** 40
const HELD_AT = 2 ** 41
const RUN_AT = 2 ** 42
const MISS_AT = 2 ** 43

interface Chain {
  readonly locals: Int32Array
  readonly sequences: Int32Array
}

export function microLoop(): Measures {
  const measures: Record<string, Measures[string]> = {}
  for (const size of SIZES) {
    if (size > microMemberships) break
    const name = size < 1e6 ? `${size / 1e3}k` : `${size / 1e6}M`
    for (const [operation, us] of Object.entries(measureAt(size))) {
      measures[`${operation}@${name}`] = { value: us, unit: 'µs' }
    }
  }
  return measures
}

function measureAt(size: number): Readonly<Record<string, number>> {
  const index = createIndex(WORKERS, 16 + (size * BYTES_PER_MEMBERSHIP) / 2 ** 20)
  const chains = Math.floor(size / CHAIN_BLOCKS)
  for (let c = 0; c < chains; c++) store(index, 0, chainAt(c * CHAIN_BLOCKS, CHAIN_BLOCKS))
  const deep = chainAt(DEEP_AT, DEEP_BLOCKS)
  store(index, 0, deep)
  const results: Record<string, number> = {}

  for (const run of RUNS) {
    const runs = Array.from({ length: 64 }, (_, i) => chainAt(RUN_AT + i * CHAIN_BLOCKS, run))
    const times = { stored: new Float64Array(BATCHES), removed: new Float64Array(BATCHES) }
    // A run is stored and removed in turn, so the index keeps its size.
    for (let batch = -BATCHES; batch < BATCHES; batch++) {
      let storedMs = 0
      let removedMs = 0
      let rounds = 0
      do {
        const from = performance.now()
        for (const each of runs) store(index, 1, each)
        const middle = performance.now()
        for (const each of runs) index.remove(1, each.sequences, run)
        storedMs += middle - from
        removedMs += performance.now() - middle
        rounds++
      } while (Math.min(storedMs, removedMs) < BATCH_MS_MIN)
      if (batch < 0) continue
      times.stored[batch] = (storedMs * 1000) / (rounds * runs.length)
      times.removed[batch] = (removedMs * 1000) / (rounds * runs.length)
    }
    results[`stored${run}`] = percentile(times.stored, 50)
    results[`removed${run}`] = percentile(times.removed, 50)
  }

  const reader = new IndexReader([index.memory])
  const scores = new OverlapCounts(WORKERS)
  const random = new SplitMix(SEED)
  const asked = Array.from({ length: Math.min(CHAINS_ASKED, chains) }, () =>
    chainAt(random.below(chains) * CHAIN_BLOCKS, CHAIN_BLOCKS),
  ).map(({ locals }) => locals)
  const ask = (prompts: readonly Int32Array[], count: number, blocks: number): number => {
    for (const prompt of prompts.slice(0, 8)) {
      reader.overlap(prompt, count, scores)
      const found = scores.length === 0 ? 0 : scores.blocks[0]!
      if (found !== blocks) throw new Error(`a lookup of ${count} blocks found ${found}, not ${blocks}`)
    }
    return timeLookups(reader, scores, prompts, count)
  }
  for (const depth of DEPTHS) {
    results[`lookupDepth${depth}`] = ask(depth <= CHAIN_BLOCKS ? asked : [deep.locals], depth, depth)
  }
  const missing = chainAt(MISS_AT, CHAIN_BLOCKS).locals
  results['lookupMiss'] = ask([missing], CHAIN_BLOCKS, 0)
  const halves = asked.map(locals => {
    const half = locals.slice()
    half.set(missing.subarray(CHAIN_BLOCKS), CHAIN_BLOCKS)
    return half
  })
  results['lookupHalf'] = ask(halves, CHAIN_BLOCKS, CHAIN_BLOCKS / 2)
  for (const holders of HOLDERS) {
    const held = chainAt(HELD_AT + holders * CHAIN_BLOCKS, CHAIN_BLOCKS)
    for (let worker = 0; worker < holders; worker++) store(index, worker, held)
    results[`lookupHolders${holders}`] = ask([held.locals], CHAIN_BLOCKS, CHAIN_BLOCKS)
    if (scores.length !== holders) throw new Error(`${scores.length} workers hold what ${holders} do`)
  }
  return results
}

function timeLookups(
  reader: IndexReader,
  scores: OverlapCounts,
  prompts: readonly Int32Array[],
  count: number,
): number {
  const timesUs = new Float64Array(BATCHES)
  let next = 0
  for (let batch = -BATCHES; batch < BATCHES; batch++) {
    let calls = 0
    let ms = 0
    const from = performance.now()
    do {
      for (let i = 0; i < 16; i++, calls++) {
        reader.overlap(prompts[next]!, count, scores)
        next = next + 1 === prompts.length ? 0 : next + 1
      }
      ms = performance.now() - from
    } while (ms < BATCH_MS_MIN)
    if (batch >= 0) timesUs[batch] = (ms * 1000) / calls
  }
  return percentile(timesUs, 50)
}

function chainAt(first: number, count: number): Chain {
  const locals = new Int32Array(2 * count)
  for (let i = 0; i < count; i++) mixInto(first + i, locals, 2 * i)
  return { locals, sequences: chainSequence(locals, count) }
}

function store(index: BlockIndex, worker: number, { locals, sequences }: Chain): void {
  const outcome = index.store(worker, undefined, sequences, locals, locals.length / 2)
  if (outcome !== 'stored') throw new Error(`a run was not stored: ${outcome}`)
}
