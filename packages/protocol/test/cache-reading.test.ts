/**
 * The conclusions of readers from events, against the true caches of engines that report copies in different
 * ways.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  addsCopies,
  CacheReading,
  type HeldTier,
  isPlaceholder,
  type KvEvent,
  kvRemoved,
  kvStored,
  type LeftCopies,
  type RemovableBlocks,
} from '../src/index.ts'
import { type CopyManner, EngineCache, hashOf } from './engine-cache.ts'

/** The simplest reader: a map. */
class Reader implements RemovableBlocks {
  readonly reading = new CacheReading()
  readonly #copies = new Map<string, number>()

  apply(...events: readonly KvEvent[]): this {
    for (const event of events) {
      if (event.kind === 'cleared') {
        this.#copies.clear()
        this.reading.cleared(event)
      } else if (event.kind === 'removed') {
        this.reading.remove(event, this)
      } else if (event.kind === 'stored' && this.reading.faultOf(event) === undefined) {
        for (const name of names(event.tier, event.hashes)) {
          const copies = this.#copies.get(name) ?? 0
          this.#copies.set(name, copies === 0 || addsCopies(event) ? copies + 1 : copies)
        }
      }
    }
    return this
  }

  remove(tier: HeldTier, hashes: Int32Array, manner: 'count' | 'set', left: LeftCopies): number {
    let found = 0
    for (const [i, name] of names(tier, hashes).entries()) {
      const copies = this.#copies.get(name) ?? 0
      if (copies === 0) continue
      found++
      if (manner === 'count' && copies > 1) this.#copies.set(name, copies - 1)
      else {
        this.#copies.delete(name)
        if (copies > 1) left(hashes[2 * i]!, hashes[2 * i + 1]!, copies - 1)
      }
    }
    return found
  }

  isHeld(prompt: string, tier: HeldTier = 'device'): boolean {
    return this.#copies.has(names(tier, hashOf(prompt))[0]!)
  }
}

function names(tier: string, hashes: Int32Array): string[] {
  return Array.from({ length: hashes.length / 2 }, (_, i) => `${tier} ${hashes[2 * i]} ${hashes[2 * i + 1]}`)
}

const prompt = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 4 })
const acts = fc.array(
  fc.record({
    do: fc.constantFrom('compute', 'compute', 'compute', 'evict', 'evict', 'report'),
    prompt,
    from: fc.nat({ max: 3 }),
  }),
  { maxLength: 60, size: 'max' },
)

function allPrompts(): string[] {
  let level = ['a', 'b']
  const prompts: string[] = []
  for (let length = 1; length <= 4; length++) {
    prompts.push(...level)
    level = level.flatMap(each => [`${each}a`, `${each}b`])
  }
  return prompts
}

function eventsOf(cache: EngineCache, act: { do: string; prompt: string; from: number }): KvEvent[] {
  if (act.do === 'evict') return cache.evict(act.prompt)
  if (act.do === 'report') return cache.report(act.prompt)
  return cache.compute(act.prompt, Math.min(act.from, act.prompt.length - 1))
}

for (const manner of ['each', 'last', 'blocks'] as const satisfies readonly CopyManner[]) {
  t.test(
    `no block is held that the engine does not hold, where it tells of copies so: ${manner}`,
    async t => {
      const agree = fc.property(acts, history => {
        const cache = new EngineCache(manner)
        const reader = new Reader()
        for (const act of history) {
          reader.apply(...eventsOf(cache, act))
          for (const each of allPrompts()) {
            const [held, truth] = [reader.isHeld(each), cache.isHeld(each)]
            assert.ok(truth || !held, `${each} is held after ${act.do} ${act.prompt}, and is not there`)
            // Only of an engine that removes each copy something may be missing.
            if (manner !== 'each') assert.equal(held, truth, `${each} after ${act.do} ${act.prompt}`)
          }
        }
      })
      t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
    },
  )
}

t.test('a removal takes all copies, until a second one shows that the engine removes each', async t => {
  const cache = new EngineCache('each')
  const reader = new Reader().apply(
    ...cache.compute('ab', 0),
    ...cache.compute('ab', 1),
    ...cache.evict('ab'),
  )
  t.equal(reader.isHeld('ab'), false, 'one copy is there, which nobody can know')
  reader.apply(...cache.evict('ab'))
  t.equal(reader.reading.record().removesCopies, true)
  reader.apply(...cache.compute('ab', 1), ...cache.compute('ab', 1), ...cache.evict('ab'))
  t.equal(reader.isHeld('ab'), true, 'from then on copies are counted')
  reader.apply(...cache.evict('ab'))
  t.equal(reader.isHeld('ab'), false)
})

t.test('no manner is shown by a removal that a store comes before, or of what had one copy', async t => {
  const cache = new EngineCache('last')
  const reader = new Reader()
  for (let round = 0; round < 3; round++) {
    reader.apply(
      ...cache.compute('ab', 0),
      ...cache.compute('ab', 1),
      ...cache.evict('ab'),
      ...cache.evict('ab'),
    )
  }
  const removal = kvRemoved({ hashes: hashOf('a') })
  reader.apply(removal, removal)
  t.equal(reader.reading.record().removesCopies, false)
})

t.test('what was shown ends with a clear, which may be the end of a life', async t => {
  const cache = new EngineCache('each')
  const twice = () => [...cache.compute('ab', 0), ...cache.compute('ab', 1)]
  const reader = new Reader().apply(...twice(), ...cache.evict('ab'), ...cache.evict('ab'))
  reader.apply({ kind: 'cleared', isWithdrawal: false }, ...twice(), ...cache.evict('ab'))
  t.equal(reader.isHeld('ab'), false)
})

t.test('groups outlive a clear, but not a withdrawal', async t => {
  const stores = (group: number) =>
    new EngineCache('each', { group, attention: 'full_attention' }).compute('ab', 0)
  const reader = new Reader().apply(...stores(0), { kind: 'cleared', isWithdrawal: false }, ...stores(3))
  t.equal(reader.isHeld('ab'), false, 'of two groups the one that came first counts')
  reader.apply({ kind: 'cleared', isWithdrawal: true }, ...stores(3))
  t.equal(reader.isHeld('ab'), true)
  t.equal(reader.reading.revisions, 0)
})

t.test('a report of a prefix of one block is no copy', async t => {
  const cache = new EngineCache('each')
  const reader = new Reader().apply(...cache.compute('ab', 0), ...cache.compute('ab', 1))
  reader.apply(...cache.evict('ab'), ...cache.evict('ab'))
  t.equal(reader.reading.record().removesCopies, true)
  reader.apply(...cache.report('a'), ...cache.report('a'), ...cache.evict('a'))
  t.equal(reader.isHeld('a'), false)
})

t.test('a removal of a block that is held counts, whatever group it names', async t => {
  const full = { group: 3, attention: 'full_attention' }
  for (const [fields, group] of [
    [{}, 0],
    [{ group: 0 }, undefined],
    [{ group: 0 }, 1],
    [full, undefined],
    [full, 7],
  ] as const) {
    const cache = new EngineCache('each', fields)
    const reader = new Reader().apply(...cache.compute('ab', 0))
    reader.apply(kvRemoved({ hashes: hashOf('ab'), ...(group === undefined ? {} : { group }) }))
    t.equal(reader.isHeld('ab'), false, `stored under ${JSON.stringify(fields)}, removed under ${group}`)
    t.equal(reader.isHeld('a'), true)
  }
})

t.test('a prefix that several groups keep whole is held while all of them hold it', async t => {
  const first = new EngineCache('each', { group: 1, attention: 'full_attention' })
  const second = new EngineCache('each', { group: 2, attention: 'full_attention' })
  const sliding = new EngineCache('each', { group: 0, attention: 'sliding_window' })
  const caches = [sliding, first, second]
  const reader = new Reader()
  for (const from of [0, 1]) for (const cache of caches) reader.apply(...cache.compute('ab', from))
  reader.apply(...sliding.evict('ab'), ...sliding.evict('ab'))
  t.equal(reader.isHeld('ab'), true)
  reader.apply(...second.evict('ab'))
  t.equal(reader.isHeld('ab'), false)
  reader.apply(...second.evict('ab'), ...first.evict('ab'))
  t.equal(reader.reading.record().removesCopies, false, 'removals of other groups show nothing')
})

t.test('a removal from a tier that never stored takes the block from where it is held', async t => {
  const cache = new EngineCache('each')
  const stored = cache.store('ab', 0)
  for (const tier of ['host', 'disk', 'unknown'] as const) {
    const reader = new Reader().apply(stored, kvRemoved({ hashes: hashOf('ab'), tier }))
    t.equal(reader.isHeld('ab'), false, tier)
    const other = kvStored({ ...cache.store('c', 0), tier })
    const kept = new Reader().apply(stored, other, kvRemoved({ hashes: hashOf('ab'), tier }))
    t.equal(kept.isHeld('ab'), true, `${tier}, which has stored`)
  }
})

t.test('blocks of other places neither come nor go', async t => {
  const stored = new EngineCache('each').store('ab', 0)
  const reader = new Reader().apply(kvStored({ ...stored, isLocal: false }))
  t.equal(reader.isHeld('ab'), false)
  reader.apply(stored, kvRemoved({ hashes: hashOf('ab'), isLocal: false }))
  t.equal(reader.isHeld('ab'), true)
})

t.test('what was learned is taken over', async t => {
  const agree = fc.property(
    acts,
    acts,
    fc.constantFrom<CopyManner>('each', 'last'),
    (before, after, manner) => {
      const cache = new EngineCache(manner)
      const first = new Reader()
      for (const act of before) first.apply(...eventsOf(cache, act))
      const heir = new CacheReading()
      heir.learn(structuredClone(first.reading.record()))
      assert.deepEqual(heir.record(), first.reading.record())
      const second = new CacheReading()
      for (const act of after) {
        for (const event of eventsOf(cache, act)) if (event.kind === 'stored') second.faultOf(event)
      }
      assert.equal(second.revisions, 0)
    },
  )
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 100 }))
})

t.test('hashes that had copies left are remembered up to a bound, the newest', async t => {
  const reading = new CacheReading()
  const blocks: RemovableBlocks = {
    remove(_tier, hashes, _manner, left) {
      for (let i = 0; i < hashes.length; i += 2) left(hashes[i]!, hashes[i + 1]!, 1)
      return hashes.length / 2
    },
  }
  reading.faultOf(new EngineCache('each').store('a', 0))
  for (let i = 0; i < 20_000; i++) reading.remove(kvRemoved({ hashes: Int32Array.of(i, -1) }), blocks)
  const { left } = reading.record()
  t.equal(left.length / 2, 16_384)
  t.strictSame([...left.slice(-2)], [19_999, -1])
})

t.test('stores that say nothing of prefixes are told, by reason', async t => {
  const reading = new CacheReading()
  const stored = new EngineCache('each').store('ab', 0)
  const none = new Int32Array(0)
  for (const [fields, fault] of [
    [{ isLocal: false }, 'remote'],
    [{ tier: 'unknown' }, 'otherTier'],
    [{ attention: 'mamba' }, 'otherGroup'],
    [{ hashes: none }, 'noBlocks'],
    [{ tokens: none }, 'noBlocks'],
    [{ blockSizeTokens: 3 }, 'unevenTokens'],
    [{ blockSizeTokens: 0 }, 'unevenTokens'],
    [{ tokens: none, blockSizeTokens: 0 }, undefined],
    [{}, undefined],
  ] as const) {
    const event = kvStored({ ...stored, ...fields })
    t.equal(reading.faultOf(event), fault, JSON.stringify(Object.keys(fields)))
    if (fault === undefined) t.equal(isPlaceholder(event), 'tokens' in fields)
  }
})
