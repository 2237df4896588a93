/**
 * Reference: the right answers to a corpus, found by replaying its events into one plain set per worker.
 * Sampled lookups get the overlap with every worker; at the end a count and a digest of what every worker
 * holds.
 *
 * Independent of how the corpus was made and of the index. Kept beside the corpus, since it takes longer than
 * the index does.
 */

import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { chainSequence } from '@homing/blocks'
import type { BlockIndex } from '@homing/index'
import { say } from '../harness.ts'
import type { CorpusFiles } from './corpora.ts'
import { type Corpus, LOOKUP, STORED } from './kvc1.ts'

export interface Reference {
  /** By record: worker → leading blocks; of every `every`-th lookup. */
  readonly answers: ReadonlyMap<number, ReadonlyMap<number, number>>
  /** By worker, after the last record. */
  readonly held: readonly Holding[]
}

/** Order-free: a count, the exclusive or and the sums of both words of all hashes. */
interface Holding {
  count: number
  xorLow: number
  xorHigh: number
  sumLow: number
  sumHigh: number
}

interface Stored {
  readonly answers: [number, [number, number][]][]
  readonly held: Holding[]
}

/** From the file beside the corpus, which is made when it is not there. */
export function referenceOf(files: CorpusFiles, corpus: Corpus, every: number): Reference {
  const path = files.path.replace(/kvc1$/, `reference-${every}.json`)
  if (!existsSync(path)) {
    say(`  replaying ${files.name} into plain sets …`)
    const made = replay(corpus, every)
    writeFileSync(`${path}.${process.pid}.part`, JSON.stringify(made))
    renameSync(`${path}.${process.pid}.part`, path)
  }
  const { answers, held } = JSON.parse(readFileSync(path, 'utf8')) as Stored
  return { answers: new Map(answers.map(([record, scores]) => [record, new Map(scores)])), held }
}

export function requireAnswer(
  record: number,
  answer: ReadonlyMap<number, number>,
  expected: ReadonlyMap<number, number>,
): void {
  const isEqual =
    answer.size === expected.size && [...expected].every(([worker, blocks]) => answer.get(worker) === blocks)
  if (isEqual) return
  throw new Error(`lookup ${record}: ${JSON.stringify([...answer])}, not ${JSON.stringify([...expected])}`)
}

/** Dumps every worker of the indexes (each has some of the workers) and compares. */
export function requireHeld(indexes: readonly BlockIndex[], held: readonly Holding[]): void {
  for (const [worker, expected] of held.entries()) {
    const found = noHolding()
    for (const index of indexes) {
      for (const { engineHash } of index.dump(worker)) add(found, engineHash[0], engineHash[1])
    }
    if (JSON.stringify(found) !== JSON.stringify(expected)) {
      throw new Error(`worker ${worker} holds ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`)
    }
  }
}

function replay(corpus: Corpus, every: number): Stored {
  const { kinds, workers, counts, hashes } = corpus
  const sets = Array.from({ length: corpus.totals.workers }, () => new Set<number>())
  const answers: Stored['answers'] = []
  const held = sets.map(noHolding)
  let lookups = 0
  for (let i = 0; i < kinds.length; i++) {
    const count = counts[i]!
    if (kinds[i] === LOOKUP) {
      if (lookups++ % every === 0) answers.push([i, overlaps(sets, chainSequence(hashes[i]!, count))])
      continue
    }
    const set = sets[workers[i]!]!
    const isStored = kinds[i] === STORED
    for (let k = 0; k < count; k++) {
      const low = hashes[i]![2 * k]!
      const high = hashes[i]![2 * k + 1]!
      if (isStored === set.has(keyOf(low, high))) throw new Error(`record ${i} contradicts those before it`)
      if (isStored) set.add(keyOf(low, high))
      else set.delete(keyOf(low, high))
      add(held[workers[i]!]!, low, high, isStored ? 1 : -1)
    }
  }
  return { answers, held }
}

function overlaps(sets: readonly ReadonlySet<number>[], sequences: Int32Array): [number, number][] {
  const scores: [number, number][] = []
  for (const [worker, set] of sets.entries()) {
    let blocks = 0
    while (
      2 * blocks < sequences.length &&
      set.has(keyOf(sequences[2 * blocks]!, sequences[2 * blocks + 1]!))
    ) {
      blocks++
    }
    if (blocks > 0) scores.push([worker, blocks])
  }
  return scores
}

/** 53 of the 64 bits: two hashes of one worker that share them would be noticed in the replay. */
function keyOf(low: number, high: number): number {
  return (high >>> 0) * 2 ** 21 + ((low >>> 0) % 2 ** 21)
}

function noHolding(): Holding {
  return { count: 0, xorLow: 0, xorHigh: 0, sumLow: 0, sumHigh: 0 }
}

/** Adds a hash, or takes it away with `sign` −1. */
function add(holding: Holding, low: number, high: number, sign = 1): void {
  holding.count += sign
  holding.xorLow ^= low
  holding.xorHigh ^= high
  holding.sumLow = (holding.sumLow + sign * low) | 0
  holding.sumHigh = (holding.sumHigh + sign * high) | 0
}
