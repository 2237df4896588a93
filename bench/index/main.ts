/**
 * Question   How fast and how small is the prefix index?
 * Workload   corpus=small: the conversation trace on 64 workers, 64-token blocks, 6,875 blocks each: 12,031
 *            lookups, 2.1 M blocks stored, 1.7 M removed. corpus=main: 20 copies, 128 workers, 22 M stored.
 *            corpus=synthetic: generated sessions; also what runs where no trace is found.
 * Loop       one thread, closed: the schedule back to back (mixed), then the events alone, then all lookups
 *            twice on the full index; latencies are of the second pass.
 * Checked    every 1,000th lookup and the final dump of every worker against the caches that made the events;
 *            `scoreSum`, the sum of all scores on the full index, pins the behavior.
 * Read it    block ops count every hash of a lookup, a stored or a removed event. A lookup includes its
 *            timer (about 60 ns). Compare runs on one machine only. `--vs naive`: maps of strings, no memory.
 */

import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { BlockIndex, IndexReader, OverlapScores } from '@homing/index'
import { isSmoke, type Measures, parameter, percentile, runBench } from '../harness.ts'
import {
  type Corpus,
  engineHash,
  generateSessions,
  LOOKUP,
  makeCorpus,
  type Operation,
  readTrace,
  STORED,
} from './corpus.ts'
import { NaivePeer } from './naive-peer.ts'

const TRACE_FILE = 'mooncake_conversation_trace.jsonl.gz'
const MAIN = 'main'
const SYNTHETIC = 'synthetic'

const corpusName = parameter('corpus', { smoke: SYNTHETIC, full: 'small' })
const isMain = corpusName === MAIN
const traceGiven = parameter('trace', { smoke: '', full: '' })
const workers = parameter('workers', { smoke: 8, full: isMain ? 128 : 64 })
const blockTokens = parameter('blockTokens', { smoke: 64, full: isMain ? 128 : 64 })
const cacheBlocks = parameter('cacheBlocks', { smoke: 600, full: isMain ? 16_384 : 6875 })
const copies = parameter('copies', { smoke: 1, full: isMain ? 20 : 1 })
const stretch = parameter('stretch', { smoke: 0, full: isMain ? 4 : 0 })
const seed = parameter('seed', { smoke: 1, full: 1 })
const requests = parameter('requests', { smoke: 300, full: 12_000 })
const sampleEvery = parameter('sampleEvery', { smoke: 10, full: 1000 })
const capacityMb = parameter('capacityMb', { smoke: 2, full: isMain ? 64 : 14 })

/** Replayed before the clock starts, so that the optimising compiler has settled. */
const WARM_UP_REQUESTS = 1500

interface Prepared {
  readonly corpus: Corpus
  readonly warmUp: Corpus
}

function prepare(): Prepared {
  const options = { workers, blockTokens, cacheBlocks, copies, stretch, seed, sampleEvery }
  const path = corpusName === SYNTHETIC ? undefined : findTrace()
  if (path === undefined && corpusName !== SYNTHETIC) {
    process.stderr.write(
      `  no ${TRACE_FILE} found (trace=FILE or HOMING_TRACES=DIRECTORY): generated sessions instead\n`,
    )
  }
  const trace = path === undefined ? generateSessions(requests, seed) : readTrace(path)
  const warmUpTrace = generateSessions(isSmoke ? 100 : WARM_UP_REQUESTS, seed + 1)
  const warmUp = makeCorpus(warmUpTrace, { ...options, copies: 1, cacheBlocks: Math.min(cacheBlocks, 2000) })
  return { corpus: makeCorpus(trace, options), warmUp }
}

function findTrace(): string | undefined {
  if (traceGiven !== '') return traceGiven
  const directories = [
    process.env['HOMING_TRACES'],
    fileURLToPath(new URL('../../../shared/traces', import.meta.url)),
  ]
  return directories
    .filter(directory => directory !== undefined)
    .map(directory => `${directory}/${TRACE_FILE}`)
    .find(path => existsSync(path))
}

function ours(): Measures {
  const { corpus, warmUp } = prepare()
  const { operations } = corpus
  const scores = new OverlapScores(workers)
  {
    const index = create()
    const reader = new IndexReader([index.memory])
    for (let pass = 0; pass < 2; pass++) {
      for (const operation of warmUp.operations) {
        if (operation.kind === LOOKUP) reader.overlap(operation.locals, operation.count, scores)
        else applyEvent(index, operation)
      }
    }
  }
  globalThis.gc?.()

  // Mixed: the whole schedule. Sampled answers are kept and compared after the clock has stopped.
  const index = create()
  const reader = new IndexReader([index.memory])
  const answers = new Map<number, Map<number, number>>()
  let keptMs = 0
  const mixedFrom = performance.now()
  for (let i = 0; i < operations.length; i++) {
    const operation = operations[i]!
    if (operation.kind !== LOOKUP) {
      applyEvent(index, operation)
      continue
    }
    reader.overlap(operation.locals, operation.count, scores)
    if (!corpus.expected.has(i)) continue
    const from = performance.now()
    answers.set(i, scores.toMap())
    keptMs += performance.now() - from
  }
  const mixedMs = performance.now() - mixedFrom - keptMs
  for (const [i, expected] of corpus.expected) requireEqual(`lookup ${i}`, answers.get(i)!, expected)
  requireHeld(index, corpus)
  const stats = index.stats()
  if (stats.evictedForSpace + stats.refusedBlocks + stats.orphanBlocks > 0) {
    throw new Error(`the corpus does not fit into capacityMb=${capacityMb}: ${JSON.stringify(stats)}`)
  }

  // Full index: two passes of all lookups.
  const lookups = operations.filter(operation => operation.kind === LOOKUP)
  const passes = [0, 0]
  const sums = [0, 0]
  const timesUs = new Float64Array(lookups.length)
  for (let pass = 0; pass < 2; pass++) {
    const passFrom = performance.now()
    for (let i = 0; i < lookups.length; i++) {
      const from = performance.now()
      reader.overlap(lookups[i]!.locals, lookups[i]!.count, scores)
      timesUs[i] = (performance.now() - from) * 1000
      for (let k = 0; k < scores.length; k++) sums[pass]! += scores.blocks[k]!
    }
    passes[pass] = performance.now() - passFrom
  }
  if (sums[0] !== sums[1]) throw new Error(`the sum of all scores changed: ${sums}`)

  // Events alone, stored and removed apart.
  const again = create()
  let storedMs = 0
  let removedMs = 0
  for (const operation of operations) {
    if (operation.kind === LOOKUP) continue
    const from = performance.now()
    applyEvent(again, operation)
    const ms = performance.now() - from
    if (operation.kind === STORED) storedMs += ms
    else removedMs += ms
  }

  const { lookupBlocks, storedBlocks, removedBlocks } = corpus
  const perSecond = (count: number, ms: number, unit: string) => ({ value: (count / ms) * 1000, unit })
  return {
    mixed: perSecond(lookupBlocks + storedBlocks + removedBlocks, mixedMs, 'block op/s'),
    events: perSecond(storedBlocks + removedBlocks, storedMs + removedMs, 'block/s'),
    stored: perSecond(storedBlocks, storedMs, 'block/s'),
    removed: perSecond(removedBlocks, removedMs, 'block/s'),
    lookupsFirstPass: perSecond(lookups.length, passes[0]!, 'lookup/s'),
    lookups: perSecond(lookups.length, passes[1]!, 'lookup/s'),
    lookupP50: { value: percentile(timesUs, 50), unit: 'µs' },
    lookupP99: { value: percentile(timesUs, 99), unit: 'µs' },
    bytesPerMembership: { value: stats.bytesUsed / stats.memberships, unit: 'B' },
    memberships: { value: stats.memberships, unit: 'memberships' },
    scoreSum: { value: sums[0]!, unit: 'blocks' },
    comparedLookups: { value: corpus.expected.size, unit: 'lookups' },
  }
}

function naive(): Measures {
  const { corpus } = prepare()
  const peer = new NaivePeer()
  const from = performance.now()
  for (const { kind, worker, locals, engines, parent, count } of corpus.operations) {
    if (kind === LOOKUP) peer.overlap(locals, count)
    else if (kind === STORED) peer.store(worker, parent, engines, locals, count)
    else peer.remove(worker, engines, count)
  }
  const ms = performance.now() - from
  let sum = 0
  for (const { kind, locals, count } of corpus.operations) {
    if (kind === LOOKUP) for (const blocks of peer.overlap(locals, count).values()) sum += blocks
  }
  const blocks = corpus.lookupBlocks + corpus.storedBlocks + corpus.removedBlocks
  return {
    mixed: { value: (blocks / ms) * 1000, unit: 'block op/s' },
    scoreSum: { value: sum, unit: 'blocks' },
  }
}

function create(): BlockIndex {
  return BlockIndex.create({
    capacityBytes: capacityMb << 20,
    workerSlotsMax: workers,
    orphanBytesMax: 64 << 10,
  })
}

function applyEvent(index: BlockIndex, operation: Operation): void {
  if (operation.kind === STORED) {
    index.store(operation.worker, operation.parent, operation.engines, operation.locals, operation.count)
  } else {
    index.remove(operation.worker, operation.engines, operation.count)
  }
}

function requireEqual(
  what: string,
  answer: ReadonlyMap<number, number>,
  expected: ReadonlyMap<number, number>,
): void {
  const isEqual =
    answer.size === expected.size && [...expected].every(([key, value]) => answer.get(key) === value)
  if (!isEqual)
    throw new Error(`${what}: ${JSON.stringify([...answer])}, not ${JSON.stringify([...expected])}`)
}

function requireHeld(index: BlockIndex, { held }: Corpus): void {
  held.forEach((blocks, worker) => {
    const expected = new Set<number>()
    for (const block of blocks) {
      const [low, high] = engineHash(block)
      expected.add((high >>> 0) * 2 ** 21 + ((low >>> 0) % 2 ** 21)) // 53 of the 64 bits
      if (!index.has(worker, [low, high])) throw new Error(`worker ${worker} lacks block ${block}`)
    }
    let dumped = 0
    for (const { engineHash: hash } of index.dump(worker)) {
      dumped++
      if (!expected.has((hash[1] >>> 0) * 2 ** 21 + ((hash[0] >>> 0) % 2 ** 21))) {
        throw new Error(`worker ${worker} does not hold ${hash}`)
      }
    }
    if (dumped !== blocks.size)
      throw new Error(`worker ${worker}: ${dumped} blocks dumped, not ${blocks.size}`)
  })
}

await runBench(
  { name: 'index', question: 'How fast and how small is the prefix index?', peers: { naive } },
  ours,
)
