import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BlockManager, type BlockSequence, type CacheEvent } from '../src/block-manager.ts'
import { hexOfHash } from '../src/engine-hash.ts'
import { NaiveCache, type NaiveSequence } from './naive-cache.ts'

const SEED = 20_261

function ids(count: number, first = 1): number[] {
  return Array.from({ length: count }, (_, i) => first + i)
}

function prefill(
  blocks: BlockManager,
  tokenIds: readonly number[],
): { sequence: BlockSequence; hits: number } {
  const sequence = blocks.openSequence(tokenIds)
  const hits = blocks.match(sequence)
  blocks.reuse(sequence, hits)
  assert.ok(blocks.allocate(sequence, tokenIds.length))
  blocks.store(sequence, tokenIds.length)
  return { sequence, hits }
}

t.test('a block that has lost a copy says so until it is stored again', async t => {
  const blocks = new BlockManager({ blockSizeTokens: 4, blockCount: 7, hashSeed: 1 })
  const marks = (): readonly (readonly [copies: number, hasLostCopy: boolean])[] =>
    blocks.cacheSnapshot().map(({ copies, hasLostCopy }) => [copies, hasLostCopy])
  for (let round = 0; round < 3; round++) blocks.release(prefill(blocks, ids(8)).sequence)
  t.strictSame(marks(), [
    [1, false],
    [3, false],
  ])
  const other = prefill(blocks, ids(12, 700)).sequence
  t.strictSame(marks().slice(0, 2), [
    [1, false],
    [2, true],
  ])
  blocks.release(other)
  blocks.release(prefill(blocks, ids(8)).sequence)
  t.strictSame(marks().slice(0, 2), [
    [1, false],
    [2, false],
  ])
})

t.test('a prompt is found again, but never its last token', async t => {
  const blocks = new BlockManager({ blockSizeTokens: 4, blockCount: 20, hashSeed: 1 })
  const first = prefill(blocks, ids(10))
  blocks.release(first.sequence)
  t.equal(first.hits, 0)
  t.equal(blocks.match(blocks.openSequence(ids(10))), 2)
  t.equal(blocks.match(blocks.openSequence(ids(8))), 1)
  t.equal(blocks.match(blocks.openSequence(ids(9))), 2)
  t.equal(blocks.match(blocks.openSequence(ids(4))), 0)
})

t.test(
  'a prompt of exactly n blocks stores its last block anew each time, and each copy is removed',
  async t => {
    const blocks = new BlockManager({ blockSizeTokens: 4, blockCount: 7, hashSeed: 1 })
    for (let round = 0; round < 3; round++) blocks.release(prefill(blocks, ids(8)).sequence)
    const stored = blocks.takeEvents()
    const last = blocks.cacheSnapshot().find(block => block.parentHash !== null)!
    t.equal(last.copies, 3)
    t.equal(stored.filter(event => event.type === 'stored').length, 3)

    blocks.release(prefill(blocks, ids(24, 500)).sequence)
    const removed = blocks.takeEvents().filter(event => event.type === 'removed')
    const hashes = removed.map(event => hexOfHash(event.hash[0], event.hash[1]))
    t.equal(hashes.filter(hash => hash === last.hash).length, 3)
  },
)

t.test('where only the last removal is told, a hash is cached from a store to the next removal', async t => {
  for (const removals of ['each', 'last'] as const) {
    const blocks = new BlockManager({ blockSizeTokens: 4, blockCount: 9, hashSeed: 1, removals })
    const told = new Set<string>()
    let repeated = 0
    for (const [count, from] of [8, 8, 12, 8, 24, 8, 8, 16, 24, 8, 28].map((n, i) => [
      n,
      i % 3 === 2 ? 7 : 0,
    ])) {
      blocks.release(prefill(blocks, ids(count!, from)).sequence)
      for (const event of blocks.takeEvents()) {
        if (event.type === 'removed' && !told.delete(hexOfHash(event.hash[0], event.hash[1]))) repeated++
        if (event.type !== 'stored') continue
        for (let i = 0; i < event.hashes.length; i += 2) {
          told.add(hexOfHash(event.hashes[i]!, event.hashes[i + 1]!))
        }
      }
      const cached = new Set(blocks.cacheSnapshot().map(({ hash }) => hash))
      if (removals === 'last') t.strictSame([...told].sort(), [...cached].sort())
    }
    t.equal(repeated > 0, removals === 'each')
  }
})

t.test('another seed, adapter or salt gives other hashes and shares nothing', async t => {
  const make = (hashSeed: number) => new BlockManager({ blockSizeTokens: 2, blockCount: 32, hashSeed })
  const one = make(1)
  const two = make(2)
  prefill(one, ids(4))
  prefill(two, ids(4))
  t.not(one.cacheSnapshot()[0]!.hash, two.cacheSnapshot()[0]!.hash)
  t.equal(one.match(one.openSequence(ids(5), { cacheSalt: 'a' })), 0)
  t.equal(one.match(one.openSequence(ids(5), { loraName: 'a' })), 0)
  t.equal(one.match(one.openSequence(ids(5), {})), 2)
})

t.test('the cache is cleared only when nobody uses it', async t => {
  const blocks = new BlockManager({ blockSizeTokens: 4, blockCount: 8, hashSeed: 0 })
  const { sequence } = prefill(blocks, ids(9))
  t.equal(blocks.clear(), false)
  blocks.release(sequence)
  t.equal(blocks.clear(), true)
  t.strictSame(blocks.cacheSnapshot(), [])
  t.equal(blocks.takeEvents().at(-1)!.type, 'cleared')
})

type Command =
  | { readonly do: 'open'; readonly tokens: readonly number[]; readonly salt: number; readonly chunk: number }
  | { readonly do: 'decode'; readonly pick: number; readonly token: number }
  | { readonly do: 'release'; readonly pick: number }
  | { readonly do: 'clear' }

const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('open' as const),
      tokens: fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 14 }),
      salt: fc.integer({ min: 0, max: 1 }),
      chunk: fc.integer({ min: 1, max: 8 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('decode' as const), pick: fc.nat(7), token: fc.nat(1) }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('release' as const), pick: fc.nat(7) }) },
  { weight: 1, arbitrary: fc.constant({ do: 'clear' as const }) },
)

t.test('answers and reports as the naive cache does, whatever happened before', async t => {
  const agree = fc.property(
    fc.array(command, { maxLength: 60 }),
    fc.integer({ min: 1, max: 3 }),
    fc.integer({ min: 4, max: 16 }),
    (commands, blockSizeTokens, blockCount) => {
      const blocks = new BlockManager({ blockSizeTokens, blockCount, hashSeed: 7 })
      const naive = new NaiveCache(blockSizeTokens, blockCount)
      const open: { real: BlockSequence; model: NaiveSequence }[] = []
      /** Engine hash to the path it must stand for, learned from stored events. */
      const paths = new Map<string, string>()
      const copies = new Map<string, number>()

      for (const step of commands) {
        if (step.do === 'open') {
          const namespace = step.salt === 0 ? {} : { cacheSalt: 's' }
          const real = blocks.openSequence(step.tokens, namespace)
          const model = naive.open(step.tokens, String(step.salt))
          const hits = blocks.match(real)
          assert.equal(hits, naive.match(model))
          assert.ok(hits * blockSizeTokens < step.tokens.length)
          const hitsFree = new Set(
            [...Array(hits).keys()].map(i => naive.cached.find(b => b.path === naive.path(model, i))!),
          )
          const freeAfter = naive.free.filter(block => !hitsFree.has(block)).length
          const needed = Math.ceil(step.tokens.length / blockSizeTokens) - hits
          assert.equal(blocks.fits(real, hits, step.tokens.length), needed <= freeAfter)
          if (needed > freeAfter) continue
          blocks.reuse(real, hits)
          naive.reuse(model, hits)
          for (let done = hits * blockSizeTokens; done < step.tokens.length; ) {
            done = Math.min(done + step.chunk, step.tokens.length)
            assert.ok(blocks.allocate(real, done))
            naive.allocate(model, done)
            blocks.store(real, done)
            naive.store(model, done)
          }
          open.push({ real, model })
        } else if (step.do === 'decode') {
          const pair = open[step.pick % Math.max(1, open.length)]
          if (pair === undefined) continue
          blocks.append(pair.real, step.token)
          pair.model.tokenIds.push(step.token)
          const grown = blocks.allocate(pair.real, pair.real.length)
          assert.equal(grown, naive.allocate(pair.model, pair.model.tokenIds.length))
          if (!grown) {
            open.splice(open.indexOf(pair), 1)
            blocks.release(pair.real)
            naive.release(pair.model)
            continue
          }
          blocks.store(pair.real, pair.real.length)
          naive.store(pair.model, pair.model.tokenIds.length)
        } else if (step.do === 'release') {
          const [pair] = open.splice(step.pick % Math.max(1, open.length), 1)
          if (pair === undefined) continue
          blocks.release(pair.real)
          naive.release(pair.model)
        } else {
          assert.equal(blocks.clear(), naive.clear())
        }

        compareEvents(blocks.takeEvents(), naive.events, blockSizeTokens, paths, copies)
        naive.events = []
        assert.equal(blocks.freeBlocks, naive.free.length)
        assert.equal(blocks.cachedBlocks, naive.cached.length)
        // The snapshot equals the sum of the events, copy for copy; parents are cached.
        const snapshot = blocks.cacheSnapshot()
        assert.deepEqual(new Map(snapshot.map(block => [block.hash, block.copies])), copies)
        for (const { parentHash } of snapshot) assert.ok(parentHash === null || copies.has(parentHash))
      }
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { seed: SEED, numRuns: 400 }), `seed ${SEED}`)
})

function compareEvents(
  events: readonly CacheEvent[],
  expected: readonly import('./naive-cache.ts').NaiveEvent[],
  blockSizeTokens: number,
  paths: Map<string, string>,
  copies: Map<string, number>,
): void {
  assert.deepEqual(
    events.map(event => event.type),
    expected.map(event => event.type),
  )
  for (const [i, event] of events.entries()) {
    const model = expected[i]!
    if (event.type === 'stored' && model.type === 'stored') {
      assert.equal(event.hashes.length, 2 * model.paths.length)
      assert.equal(event.tokenIds.length, model.paths.length * blockSizeTokens)
      assert.equal(event.parentHash === undefined, event.firstBlockIndex === 0)
      for (const [n, path] of model.paths.entries()) {
        const hash = hexOfHash(event.hashes[2 * n]!, event.hashes[2 * n + 1]!)
        assert.equal(paths.get(hash) ?? path, path, 'one hash stands for one path')
        paths.set(hash, path)
        copies.set(hash, (copies.get(hash) ?? 0) + 1)
        const own = path
          .slice(path.indexOf(':') + 1)
          .split(',')
          .slice(-blockSizeTokens)
          .map(Number)
        assert.deepEqual([...event.tokenIds.slice(n * blockSizeTokens, (n + 1) * blockSizeTokens)], own)
      }
      if (event.parentHash !== undefined) {
        const parent = paths.get(hexOfHash(event.parentHash[0], event.parentHash[1]))!
        assert.ok(model.paths[0]!.startsWith(`${parent},`))
      }
    } else if (event.type === 'removed' && model.type === 'removed') {
      const hash = hexOfHash(event.hash[0], event.hash[1])
      assert.equal(paths.get(hash), model.path)
      const left = copies.get(hash)! - 1
      if (left === 0) copies.delete(hash)
      else copies.set(hash, left)
    } else {
      copies.clear()
    }
  }
}
