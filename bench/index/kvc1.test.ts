import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chainSequence } from '@homing/blocks'
import t from 'tap'
import { writeFleet } from './fleet.ts'
import { CorpusReader, CorpusWriter, LOOKUP, loadCorpus, REMOVED, STORED } from './kvc1.ts'
import { mixInto, SplitMix } from './splitmix.ts'
import { generateSessions } from './traces.ts'

const folder = mkdtempSync(join(tmpdir(), 'homing-kvc1-'))
t.teardown(() => rmSync(folder, { recursive: true, force: true }))

const locals = Int32Array.of(1, -2, 3, -4, 5, -6)
const sequences = chainSequence(locals, 3)

t.test('a file holds what was written, whole or piece by piece', async t => {
  const path = join(folder, 'few.kvc1')
  const writer = new CorpusWriter(path, 64, 5)
  writer.lookup(0.25, 4, locals, 3)
  writer.stored(0.5, 1, locals, sequences, 0, 2)
  writer.stored(0.5, 1, locals, sequences, 2, 3)
  writer.removed(1, 2, sequences, 3)
  const totals = writer.close()
  t.match(totals, { records: 4, lookups: 1, lookupBlocks: 3, storedBlocks: 3, removedBlocks: 3, workers: 5 })

  const corpus = loadCorpus(path)
  t.strictSame(corpus.totals, totals)
  t.strictSame([...corpus.kinds], [LOOKUP, STORED, STORED, REMOVED])
  t.strictSame([...corpus.workers], [4, 1, 1, 2])
  t.strictSame([...corpus.counts], [3, 2, 1, 3])
  t.strictSame([...corpus.deadlines], [0.25, 0.5, 0.5, 1])
  t.strictSame([...corpus.hashes[0]!], [...locals])
  t.strictSame([...corpus.locals[1]!], [...locals.subarray(0, 4)])
  t.strictSame([...corpus.hashes[1]!], [...sequences.subarray(0, 4)])
  t.equal(corpus.parents[1], undefined)
  t.strictSame([...corpus.parents[2]!], [...sequences.subarray(2, 4)])
  t.strictSame([...corpus.hashes[3]!], [...sequences])

  const reader = new CorpusReader(path)
  for (let i = 0; reader.next(); i++) {
    const { kind, worker, count, hasParent, parent, hashes } = reader.record
    t.strictSame([kind, worker, count], [corpus.kinds[i], corpus.workers[i], corpus.counts[i]])
    t.strictSame([...hashes.subarray(0, 2 * count)], [...corpus.hashes[i]!])
    t.strictSame(hasParent ? [...parent] : undefined, corpus.parents[i] && [...corpus.parents[i]!])
  }
  reader.close()
})

t.test('the finaliser in int32 words is that of SplitMix64', async t => {
  // The first outputs of SplitMix64 for the seed 1234567.
  const random = new SplitMix(1234567)
  const outputs = Array.from({ length: 3 }, () => random.below(2 ** 32))
  t.strictSame(
    outputs,
    [6457827717110365317n, 3203168211198807973n, 9817491932198370423n].map(output => Number(output >> 32n)),
  )
  const words = new Int32Array(2)
  mixInto(1234567, words, 0)
  t.equal((BigInt(words[1]! >>> 0) << 32n) | BigInt(words[0]! >>> 0), 6457827717110365317n)
})

t.test(
  'a fleet never holds more than its caches, and the live file is what is left of the schedule',
  async t => {
    const [path, livePath] = [join(folder, 'fleet.kvc1'), join(folder, 'fleet-live.kvc1')]
    const options = { workers: 3, blockTokens: 64, cacheBlocks: 600, copies: 2, stretch: 0 }
    const { totals, live } = writeFleet(generateSessions(120, 5), options, path, livePath)
    const corpus = loadCorpus(path)
    t.strictSame(corpus.totals, totals)
    t.equal(live.storedBlocks, totals.storedBlocks - totals.removedBlocks)

    const held = Array.from({ length: options.workers }, () => new Set<string>())
    const keys = (hashes: Int32Array) =>
      Array.from({ length: hashes.length / 2 }, (_, i) => `${hashes[2 * i]},${hashes[2 * i + 1]}`)
    let faults = 0
    for (const [i, kind] of corpus.kinds.entries()) {
      if (kind === LOOKUP) continue
      const set = held[corpus.workers[i]!]!
      const parent = corpus.parents[i]
      if (parent !== undefined && !set.has(keys(parent)[0]!)) faults++
      for (const key of keys(corpus.hashes[i]!)) {
        if (set.has(key) === (kind === STORED)) faults++
        if (kind === STORED) set.add(key)
        else set.delete(key)
      }
      if (set.size > options.cacheBlocks) faults++
    }
    t.equal(faults, 0)

    const alive = loadCorpus(livePath)
    for (const [i, worker] of alive.workers.entries()) {
      for (const key of keys(alive.hashes[i]!)) if (!held[worker]!.delete(key)) faults++
    }
    t.equal(faults, 0)
    t.ok(held.every(set => set.size === 0))
  },
)
