/**
 * Steps that all loops share: make an index, feed it a record, query it, and check that it took everything.
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { BlockIndex, IndexReader, OverlapCounts } from '@homing/index'
import type { Measure } from '../harness.ts'
import { type CorpusFiles, openCorpus, requireTotals } from './corpora.ts'
import { type Corpus, LOOKUP, loadCorpus, STORED } from './kvc1.ts'
import { capacityMb, choice, plant, warmUpChoice } from './parameters.ts'

const PLANTED_EVENT_MS = 0.006
const WARM_UP_PASSES = 2

export interface Prepared {
  readonly files: CorpusFiles
  readonly corpus: Corpus
  readonly warmUp: Corpus
}

export function prepare(): Prepared {
  const files = openCorpus(choice)
  const corpus = loadCorpus(files.path)
  requireTotals(files, corpus.totals)
  return { files, corpus, warmUp: loadCorpus(openCorpus(warmUpChoice).path) }
}

export function createIndex(workers: number, megabytes: number = capacityMb): BlockIndex {
  return BlockIndex.create({
    capacityBytes: megabytes * 2 ** 20,
    workerSlotsMax: workers,
    orphanBytesMax: 64 << 10,
  })
}

/** Record i of the corpus, which is an event. */
export function apply(index: BlockIndex, corpus: Corpus, i: number): void {
  applyRun(
    index,
    corpus.kinds[i]!,
    corpus.workers[i]!,
    corpus.parents[i],
    corpus.hashes[i]!,
    corpus.locals[i]!,
    corpus.counts[i]!,
  )
}

export function applyRun(
  index: BlockIndex,
  kind: number,
  worker: number,
  parent: Int32Array | undefined,
  engines: Int32Array,
  locals: Int32Array,
  count: number,
): void {
  if (kind === STORED) index.store(worker, parent, engines, locals, count)
  else index.remove(worker, engines, count)
  if (plant === 'event') for (const from = performance.now(); performance.now() - from < PLANTED_EVENT_MS; );
}

/** Record i of the corpus, which is a lookup. */
export function lookUp(reader: IndexReader, corpus: Corpus, i: number, scores: OverlapCounts): void {
  reader.overlap(corpus.hashes[i]!, corpus.counts[i]!, scores)
  if (plant === 'lookup') reader.overlap(corpus.hashes[i]!, corpus.counts[i]!, scores)
}

/** Replays a small corpus into an index that is then forgotten. */
export function warmUpWith(corpus: Corpus): void {
  const { kinds, totals } = corpus
  const scores = new OverlapCounts(totals.workers)
  for (let pass = 0; pass < WARM_UP_PASSES; pass++) {
    const index = createIndex(totals.workers, Math.max(capacityMb, 8))
    const reader = new IndexReader([index.memory])
    for (let i = 0; i < kinds.length; i++) {
      if (kinds[i] === LOOKUP) lookUp(reader, corpus, i, scores)
      else apply(index, corpus, i)
    }
  }
}

/** An index that dropped something is fast and small for the wrong reason. */
export function requireAllTaken(index: BlockIndex): void {
  const stats = index.stats()
  if (stats.evictedForSpace + stats.refusedBlocks + stats.orphanBlocks > 0) {
    throw new Error(`the corpus does not fit into capacityMb=${capacityMb}: ${JSON.stringify(stats)}`)
  }
}

export function sumOf(scores: OverlapCounts): number {
  let sum = 0
  for (let i = 0; i < scores.length; i++) sum += scores.blocks[i]!
  return sum
}

export function blockOps({ totals }: Corpus): number {
  return totals.lookupBlocks + totals.storedBlocks + totals.removedBlocks
}

export function perSecond(count: number, ms: number, unit: string): Measure {
  return { value: (count / ms) * 1000, unit }
}

/** Collects garbage twice: what is left is used. */
export function collect(): void {
  for (let i = 0; i < 2; i++) garbageCollector()
}

const garbageCollector = exposeCollector()

function exposeCollector(): () => void {
  setFlagsFromString('--expose-gc')
  return runInNewContext('gc') as () => void
}
