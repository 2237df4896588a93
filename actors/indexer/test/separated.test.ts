/**
 * Prompts with a cache salt, an adapter or an extra key, sent to engines whose events do not name them: a
 * prompt without one is never credited with more than its engine holds for it.
 */

import assert from 'node:assert/strict'
import { DEFAULT_SEED, hashBlocks, hashLocals, namespaceSeed } from '@homing/blocks'
import { BlockIndex, IndexReader, layeredOptions, OverlapCounts } from '@homing/index'
import {
  ADAPTER,
  ALL_SEPARATORS,
  EXTRA_KEY,
  KV_CLEARED,
  type KvEvent,
  type KvStored,
  kvRemoved,
  kvStored,
  SALT,
  type SeparatedPrompt,
} from '@homing/protocol'
import fc from 'fast-check'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'
import { NamespacedBeginnings } from '../src/namespaced-beginnings.ts'

const BLOCK = 2

function world() {
  const index = BlockIndex.create(layeredOptions(1 << 20, 4))
  const applier = new EventApplier(index, new LayerSlots(4))
  const reader = new IndexReader([index.memory])
  applier.open(0)
  const lacks: string[] = []
  return {
    applier,
    lacks,
    apply(...events: readonly KvEvent[]): void {
      const report = applier.apply(0, BLOCK, events)
      if (report.lacks !== undefined) lacks.push(report.lacks)
    },
    sent(prompt: string, unnamed: number): void {
      applier.separated(0, begun(prompt, unnamed))
    },
    /** Blocks of a prompt that the worker slot is credited with. */
    overlap(prompt: string, namespace: { loraName?: string; cacheSalt?: string } = {}): number {
      const { local, count } = hashBlocks(tokensOf(prompt), BLOCK, namespaceSeed(namespace))
      const scores = new OverlapCounts()
      reader.overlap(local, count, scores)
      return scores.blocksOf(0)
    },
  }
}

/** A letter is a token. */
function tokensOf(prompt: string): Int32Array {
  return Int32Array.from(prompt, letter => letter.charCodeAt(0))
}

/** What the router says of a prompt of the base model that is sent with separators. */
function begun(prompt: string, unnamed: number): SeparatedPrompt {
  const firstTokens = Math.min(prompt.length, BLOCK)
  const hashes = new Int32Array(2)
  hashLocals(tokensOf(prompt).subarray(0, firstTokens), firstTokens, DEFAULT_SEED, hashes)
  return { firstTokens, hashes, unnamed: [unnamed] }
}

function hashOf(prompt: string, separator: string): Int32Array {
  let low = 7
  for (const letter of prompt + separator) low = (Math.imul(low, 31) + letter.charCodeAt(0)) | 0
  return Int32Array.of(low, prompt.length)
}

/**
 * An engine with a cache for each separator, which names none. Either they go into its hashes, as in vLLM, or
 * not, as in SGLang: then equal blocks of two caches have one hash.
 */
class Engine {
  readonly #hashes: 'differ' | 'agree'
  readonly #caches = new Map<string, Set<string>>()

  constructor(hashes: 'differ' | 'agree') {
    this.#hashes = hashes
  }

  compute(prompt: string, separator: string): KvEvent[] {
    const whole = prompt.slice(0, prompt.length - (prompt.length % BLOCK))
    const cache = this.#cache(separator)
    let from = 0
    while (from < whole.length && cache.has(whole.slice(0, from + BLOCK))) from += BLOCK
    if (from === whole.length) return []
    const hashes: number[] = []
    for (let end = from + BLOCK; end <= whole.length; end += BLOCK) {
      cache.add(whole.slice(0, end))
      hashes.push(...this.#hash(whole.slice(0, end), separator))
    }
    return [
      kvStored({
        hashes: Int32Array.from(hashes),
        parent: from === 0 ? undefined : this.#hash(whole.slice(0, from), separator),
        tokens: tokensOf(whole.slice(from)),
        blockSizeTokens: BLOCK,
        tells: 0,
      }),
    ]
  }

  /** The deepest block of a prompt. */
  evict(prompt: string, separator: string): KvEvent[] {
    const cache = this.#cache(separator)
    const held = [...cache].filter(each => prompt.startsWith(each)).sort((a, b) => b.length - a.length)[0]
    if (held === undefined || [...cache].some(each => each.length > held.length && each.startsWith(held)))
      return []
    cache.delete(held)
    return [kvRemoved({ hashes: this.#hash(held, separator) })]
  }

  held(prompt: string, separator = ''): number {
    let blocks = 0
    while (
      this.#cache(separator).has(prompt.slice(0, (blocks + 1) * BLOCK)) &&
      blocks * BLOCK < prompt.length
    )
      blocks++
    return blocks
  }

  #hash(prompt: string, separator: string): Int32Array {
    return hashOf(prompt, this.#hashes === 'differ' ? separator : '')
  }

  #cache(separator: string): Set<string> {
    const known = this.#caches.get(separator) ?? new Set<string>()
    this.#caches.set(separator, known)
    return known
  }
}

const letters = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 8 })
const acts = fc.array(
  fc.record({
    do: fc.constantFrom('send', 'send', 'send', 'evict', 'open'),
    prompt: letters,
    separator: fc.constantFrom('', '', 's', 'k'),
    /** What the engine generates. */
    more: fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 4 }),
  }),
  { maxLength: 30, size: 'max' },
)

for (const hashes of ['differ', 'agree'] as const) {
  t.test(
    `a prompt is credited with no block of a prompt with a separator, where hashes ${hashes}`,
    async t => {
      const agree = fc.property(acts, history => {
        const w = world()
        const engine = new Engine(hashes)
        const told: KvEvent[] = []
        for (const { do: what, prompt, separator, more } of history) {
          const events: KvEvent[] = []
          if (what === 'send') {
            if (separator !== '') w.sent(prompt, separator === 's' ? SALT : EXTRA_KEY)
            events.push(...engine.compute(prompt, separator), ...engine.compute(prompt + more, separator))
          } else if (what === 'evict') {
            events.push(...engine.evict(prompt + more, separator))
          } else {
            // Rebuilt from a replay: what was sent is remembered.
            w.applier.open(0)
            w.apply(...told)
          }
          told.push(...events)
          w.apply(...events)
          for (const asked of ['aaaaaaaa', 'abababab', 'bbbbbbbb', prompt + more]) {
            const [credited, held] = [w.overlap(asked), engine.held(asked)]
            assert.ok(credited <= held, `${asked} is credited with ${credited} blocks of ${held}`)
          }
        }
        assert.deepEqual(w.lacks, [])
      })
      t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
    },
  )
}

t.test('what was stored before stays credited where hashes differ, and what begins otherwise', async t => {
  const w = world()
  const engine = new Engine('differ')
  w.apply(...engine.compute('aabb', ''), ...engine.compute('bbaa', ''))
  w.sent('aabbaa', SALT)
  w.apply(...engine.compute('aabbaa', 's'))
  w.apply(...engine.compute('aabbab', ''), ...engine.compute('babb', ''))
  t.strictSame(
    ['aabbab', 'aabbaa', 'bbaa', 'babb'].map(prompt => w.overlap(prompt)),
    [3, 2, 2, 2],
  )
  t.strictSame([w.overlap('aabbaa', { cacheSalt: 's' }), w.applier.status().unclearStores], [0, 1])
  w.apply(...engine.compute('aabb', 'other'), ...engine.compute('aabb', 'third'))
  t.equal(w.overlap('aabb'), 2, 'sent by others, their blocks cannot be told from those that are there')
})

t.test('an engine that names its separators is credited with all of it', async t => {
  for (const tells of [ALL_SEPARATORS, SALT | ADAPTER]) {
    const w = world()
    w.sent('aabb', SALT)
    w.sent('bbbb', EXTRA_KEY)
    const stored = (prompt: string, fields: object) =>
      kvStored({
        hashes: Int32Array.from([...hashOf(prompt.slice(0, 2), ''), ...hashOf(prompt, '')]),
        tokens: tokensOf(prompt),
        blockSizeTokens: BLOCK,
        tells,
        ...fields,
      })
    w.apply(stored('aabb', {}), stored('bbbb', {}))
    t.strictSame([w.overlap('aabb'), w.overlap('bbbb')], [2, tells === ALL_SEPARATORS ? 2 : 0])
  }
})

t.test('an engine that has named a separator once always does', async t => {
  for (const [named, separator] of [
    [{ cacheSalt: 'x' }, SALT],
    [{ loraName: 'x' }, ADAPTER],
    [{ loraId: 3 }, ADAPTER],
  ] as const) {
    const w = world()
    const engine = new Engine('differ')
    w.sent('aabb', separator)
    const [store] = engine.compute('aabb', '')
    const [other] = engine.compute('bb', '')
    w.apply({ ...other, ...named } as KvEvent, store!)
    t.equal(w.overlap('aabb'), 2)
    w.apply(KV_CLEARED, store!)
    t.equal(w.overlap('aabb'), 0, 'a clear may be the end of a life')
  }
})

t.test('a prompt may have several separators, of which some are named', async t => {
  const prompts = new NamespacedBeginnings()
  const tokens = tokensOf('aabb')
  const seeds = { none: DEFAULT_SEED, salt: namespaceSeed({ cacheSalt: 's' }) }
  const hashes = new Int32Array(4)
  hashLocals(tokens.subarray(0, BLOCK), BLOCK, seeds.none, hashes, 0)
  hashLocals(tokens.subarray(0, BLOCK), BLOCK, seeds.salt, hashes, 2)
  prompts.add({ firstTokens: BLOCK, hashes, unnamed: [SALT | ADAPTER, ADAPTER] })
  for (const [seed, untold, expected] of [
    ['none', ALL_SEPARATORS, true],
    ['none', SALT | ADAPTER, true],
    ['none', SALT, false],
    ['none', ADAPTER, false],
    ['none', 0, false],
    ['salt', ADAPTER, true],
    ['salt', EXTRA_KEY, false],
  ] as const) {
    t.equal(prompts.mayBegin(tokens, seeds[seed], untold), expected, `${seed}, untold ${untold}`)
  }
  t.equal(prompts.mayBegin(tokensOf('bbbb'), seeds.none, ALL_SEPARATORS), false)
  t.equal(prompts.mayBegin(tokensOf('b'), seeds.none, ALL_SEPARATORS), true, 'too short to be told apart')
})

t.test('where the router does not know the prompt its source is told, again after a clear', async t => {
  const w = world()
  const engine = new Engine('differ')
  const unknown = { firstTokens: 0, hashes: new Int32Array(0) }
  t.equal(w.applier.separated(0, { ...unknown, unnamed: [SALT | ADAPTER] }), undefined, 'no event was seen')
  const told = kvStored({ ...(engine.compute('bb', '')[0] as KvStored), tells: ALL_SEPARATORS })
  const untold = engine.compute('aa', '')
  w.apply(told)
  t.strictSame(w.lacks, [])
  w.apply(...untold, ...engine.compute('abab', ''))
  t.match(w.lacks, [
    /^prompts that the router does not know were sent there with a cache salt, an adapter, and/,
  ])
  t.equal(w.overlap('aa'), 1)
  w.apply(KV_CLEARED)
  t.equal(w.lacks.length, 1)
  w.apply(...untold)
  t.equal(w.lacks.length, 2)
  const late = world()
  late.apply(told)
  t.equal(late.applier.separated(0, { ...unknown, unnamed: [SALT] }), undefined)
  late.apply(KV_CLEARED)
  const other = world()
  other.apply(...new Engine('differ').compute('aa', ''))
  const say = () => other.applier.separated(0, { ...unknown, unnamed: [SALT] })
  t.match(say(), /^prompts that the router does not know/, 'at once, where events were seen')
  t.equal(say(), undefined, 'once')
})

t.test('two hashes of equal tokens show separators of prompts that did not pass the router', async t => {
  const w = world()
  const engine = new Engine('differ')
  w.apply(...engine.compute('aabb', ''), ...engine.compute('bbbb', 's'), ...engine.compute('aa', ''))
  t.strictSame(w.lacks, [])
  w.apply(...engine.compute('aaba', 's'))
  t.match(w.lacks, [/^blocks of equal tokens have several hashes there/])
  w.apply(KV_CLEARED, ...new Engine('differ').compute('aabb', ''))
  t.equal(w.lacks.length, 1)
  const told = (event: KvEvent) => kvStored({ ...(event as KvStored), tells: ALL_SEPARATORS })
  w.apply(...new Engine('differ').compute('aabb', '').map(told))
  t.equal(w.lacks.length, 1, 'the same hash is the same block')
})

t.test('two hashes of equal tokens show another life where events name all separators', async t => {
  const w = world()
  const told = (event: KvEvent) => kvStored({ ...(event as KvStored), tells: ALL_SEPARATORS })
  const compute = (seed: string) => new Engine('differ').compute('aabb', seed).map(told)
  w.apply(...compute(''), ...compute(''))
  t.strictSame(w.lacks, [])
  // Its hashes have another seed, as those of a vLLM with xxhash that began anew.
  w.apply(...compute('another life'))
  t.match(w.lacks, [/^blocks of equal tokens have several hashes there, and .* two lives or two engines$/])
  w.apply(KV_CLEARED, ...compute('another life'))
  t.equal(w.lacks.length, 1)
})

t.test('beyond the bounds prompts are as if they were not known', async t => {
  const many = new NamespacedBeginnings()
  const mark = (i: number): SeparatedPrompt => ({
    firstTokens: 2,
    hashes: Int32Array.of(i, 0),
    unnamed: [SALT],
  })
  for (let i = 0; i < 16_384; i++) many.add(mark(i))
  many.add(mark(5))
  t.equal(many.unknownOf(SALT), 0, 'what is known takes no room')
  many.add(mark(16_384))
  t.strictSame([many.unknownOf(SALT), many.unknownOf(ADAPTER)], [SALT, 0])
  const lengths = new NamespacedBeginnings()
  for (let firstTokens = 1; firstTokens <= 65; firstTokens++) {
    lengths.add({ firstTokens, hashes: Int32Array.of(1, 0), unnamed: [EXTRA_KEY] })
    t.equal(lengths.unknownOf(EXTRA_KEY), firstTokens <= 64 ? 0 : EXTRA_KEY)
  }
})

t.test('a worker slot that serves another key knows nothing of what was sent to the one before', async t => {
  const w = world()
  w.sent('aabb', SALT)
  w.applier.forgetSeparated(0, 1)
  w.applier.release(0)
  w.applier.open(0)
  w.apply(...new Engine('differ').compute('aabb', ''))
  t.equal(w.overlap('aabb'), 2)
})

t.test('what is credited to nobody stays so in an image', async t => {
  const w = world()
  const engine = new Engine('differ')
  w.sent('aabb', SALT)
  w.apply(...engine.compute('aabb', 's'))
  const image = structuredClone(w.applier.image(0)!)
  const heir = world()
  t.equal(heir.applier.load(0, image), true)
  heir.apply(...engine.compute('aabbab', 's'))
  t.equal(heir.overlap('aabbab'), 0)
})

const SALTED = hashOf('abcd', 'salt')
/** Its first block, from an engine whose events name no salt. */
const SALTED_STORE = kvStored({
  hashes: SALTED,
  parent: undefined,
  tokens: tokensOf('ab'),
  blockSizeTokens: BLOCK,
  tells: 0,
})

t.test(
  'what was sent with a salt is remembered while its worker slot is released and opened again',
  async t => {
    const w = world()
    w.sent('abcd', SALT)
    w.applier.release(0)
    w.applier.open(0)
    w.apply(SALTED_STORE)
    t.equal(w.overlap('abcd'), 0)
  },
)

t.test(
  'beginnings of all keys of a shard share one bound, and a key that is gone gives its own back',
  async t => {
    const { applier } = world()
    applier.open(1)
    applier.apply(1, BLOCK, [SALTED_STORE])
    /** Messages to the source of the worker slot. */
    const sent = (workerSlot: number, count: number): Set<string | undefined> => {
      const mark = (i: number) => ({ firstTokens: 2, hashes: Int32Array.of(i, 0), unnamed: [SALT] })
      return new Set(Array.from({ length: count }, (_, i) => applier.separated(workerSlot, mark(i))))
    }
    for (let workerSlot = 2; workerSlot < 18; workerSlot++) sent(workerSlot, 16_384)
    applier.forgetSeparated(2, 1)
    t.strictSame(sent(1, 16_384), new Set([undefined]), 'what the key that is gone had found room')
    applier.forgetSeparated(1, 1)
    sent(2, 16_384)
    t.match([...sent(1, 1)][0], /^prompts that the router does not know/, 'one more than there is room for')
  },
)

t.test('it is forgotten with the key that it was sent to, also where it comes late', async t => {
  const w = world()
  const sent = (prompt: string, epoch: number) => w.applier.separated(0, begun(prompt, SALT), epoch)
  sent('abcd', 3)
  w.applier.forgetSeparated(0, 4)
  w.applier.release(0)
  sent('abcd', 3)
  w.applier.open(0)
  w.apply(SALTED_STORE)
  t.equal(w.overlap('abcd'), 1, 'the next key of this slot was sent nothing')
  sent('abcd', 4)
  w.applier.open(0)
  w.apply(SALTED_STORE)
  t.equal(w.overlap('abcd'), 0, 'and now it was')
})
