/**
 * Tiers: events of device, host and disk of a worker key, looked up in layers and compared with plain sets.
 */

import assert from 'node:assert/strict'
import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import {
  BlockIndex,
  IndexReader,
  KEY_LAYERS,
  LayerOverlaps,
  Layers,
  layeredOptions,
  layerSlot,
} from '@homing/index'
import { KV_CLEARED, type KvEvent, kvRemoved, kvStored } from '@homing/protocol'
import fc from 'fast-check'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'

const KEYS = 2
const BLOCK_TOKENS = 4
const TIERS = ['device', 'host', 'disk'] as const
type Tier = (typeof TIERS)[number]

function world() {
  const index = BlockIndex.create(layeredOptions(1 << 20, KEYS))
  const slots = new LayerSlots(KEYS)
  const applier = new EventApplier(index, slots)
  const reader = new IndexReader([index.memory])
  const scores = new LayerOverlaps()
  const layers = new Layers([KEY_LAYERS.map((_, layer) => layerSlot(0, layer, KEYS))])
  applier.open(0)
  return {
    index,
    slots,
    applier,
    apply: (...events: KvEvent[]) => applier.apply(0, BLOCK_TOKENS, events),
    /** Blocks of the prompt in each tier, one after the other. */
    extend(prompt: string): Partial<Record<string, number>> {
      const { local, count } = hashBlocks(tokensOf(prompt), BLOCK_TOKENS, DEFAULT_SEED)
      reader.extend(local, count, layers, scores)
      const blocks = KEY_LAYERS.map((name, layer) => [name, scores.blocksOf(0, layer)] as const)
      return Object.fromEntries(blocks.filter(([, held]) => held > 0))
    },
  }
}

/** One block per letter. */
function tokensOf(prompt: string): Int32Array {
  return Int32Array.from(
    [...prompt].flatMap(letter => Array<number>(BLOCK_TOKENS).fill(letter.charCodeAt(0))),
  )
}

/** The engine hashes of the last `count` blocks of a prompt. */
function hashesOf(prompt: string, count = prompt.length): Int32Array {
  const words: number[] = []
  for (let end = prompt.length - count + 1; end <= prompt.length; end++) {
    let name = 7
    for (const letter of prompt.slice(0, end)) name = (Math.imul(name, 31) + letter.charCodeAt(0)) | 0
    words.push(name, end)
  }
  return Int32Array.from(words)
}

/** The blocks of a prompt from `from` on. */
function stored(prompt: string, from: number, tier: Tier): KvEvent {
  return kvStored({
    hashes: hashesOf(prompt, prompt.length - from),
    parent: from === 0 ? undefined : hashesOf(prompt.slice(0, from), 1),
    tokens: tokensOf(prompt.slice(from)),
    blockSizeTokens: BLOCK_TOKENS,
    tier,
  })
}

const placeholder = (prompt: string, tier: Tier): KvEvent =>
  kvStored({ hashes: hashesOf(prompt), tokens: new Int32Array(0), blockSizeTokens: 0, tier })
const removed = (prompt: string, tier: Tier, count = 1): KvEvent =>
  kvRemoved({ hashes: hashesOf(prompt, count), tier })

t.test('a prefix goes on in the next tier where one ends', async t => {
  const w = world()
  w.apply(stored('abcd', 0, 'device'), placeholder('abcd', 'host'), removed('abcd', 'device', 2))
  t.strictSame(w.extend('abcdef'), { device: 2, host: 2 })
  // The host keeps the parent, and the device stores what comes after it.
  w.apply(stored('abcde', 4, 'device'), stored('abcdef', 5, 'disk'))
  t.strictSame(w.extend('abcdef'), { device: 3, host: 2, disk: 1 })
  t.strictSame(w.slots.lowerLayers(), { 0: (1 << 2) | (1 << 3) })
  t.strictSame(w.applier.status().layersHeld, { 0: { host: 4, disk: 1 } })
  w.apply(removed('ab', 'host'))
  t.strictSame(w.extend('abcdef'), { device: 3, host: 2, disk: 1 }, 'the device has it too')
  w.apply(removed('ab', 'device'))
  t.strictSame(w.extend('abcdef'), { device: 1 })
})

t.test('a block comes back to the device by a placeholder, as some engines load it', async t => {
  const w = world()
  w.apply(stored('ab', 0, 'host'))
  t.strictSame(w.extend('ab'), { host: 2 })
  w.apply(placeholder('ab', 'device'), removed('ab', 'host', 2))
  t.strictSame(w.extend('ab'), { device: 2 })
})

t.test('a clear clears all tiers, and says so; so does another epoch', async t => {
  const w = world()
  w.apply(stored('ab', 0, 'device'), placeholder('ab', 'host'))
  t.equal(w.apply(KV_CLEARED).wasCleared, true)
  t.strictSame(w.extend('ab'), {})
  w.apply(stored('ab', 0, 'host'))
  w.applier.open(0)
  t.strictSame(w.extend('ab'), {})
  t.strictSame(w.slots.lowerLayers(), {})
})

t.test('where too many tiers are in use, those of others are skipped', async t => {
  const w = world()
  t.equal(w.slots.take(1, 2), true)
  t.equal(w.slots.take(1, 3), true)
  w.apply(stored('ab', 0, 'host'), stored('ab', 0, 'device'))
  t.strictSame(w.extend('ab'), { device: 2 })
  t.equal(w.applier.status().eventsSkipped.noLayer, 1)
})

const steps = fc.array(
  fc.record({
    kind: fc.constantFrom('store', 'store', 'store', 'move', 'remove', 'remove', 'clear'),
    prompt: fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 7 }),
    count: fc.integer({ min: 1, max: 7 }),
    tier: fc.constantFrom(...TIERS),
  }),
  { minLength: 1, maxLength: 60, size: 'max' },
)

t.test('each tier adds what no earlier one holds, after any history', async t => {
  const property = fc.property(steps, history => {
    const w = world()
    const held: Record<Tier, Set<string>> = { device: new Set(), host: new Set(), disk: new Set() }
    /** A removal from a tier that never stored takes the blocks from all. */
    const storedOn = new Set<Tier>()
    const isHeld = (name: string) => TIERS.some(tier => held[tier].has(name))
    for (const { kind, prompt, count, tier } of history) {
      const from = Math.max(0, prompt.length - count)
      const names = Array.from({ length: prompt.length - from }, (_, i) => prompt.slice(0, from + i + 1))
      if (kind === 'clear') {
        w.apply(KV_CLEARED)
        for (const each of TIERS) held[each].clear()
        storedOn.clear()
      } else if (kind === 'store') {
        // Copies are not counted here: the device would, and other tests do.
        if (from > 0 && !isHeld(prompt.slice(0, from))) continue
        if (tier === 'device' && names.some(name => held.device.has(name))) continue
        w.apply(stored(prompt, from, tier))
        storedOn.add(tier)
        for (const name of names) held[tier].add(name)
      } else if (kind === 'move') {
        w.apply(placeholder(prompt, tier))
        storedOn.add(tier)
        for (let end = 1; end <= prompt.length; end++) {
          if (isHeld(prompt.slice(0, end))) held[tier].add(prompt.slice(0, end))
        }
      } else {
        w.apply(removed(prompt, tier, names.length))
        for (const each of storedOn.has(tier) ? [tier] : TIERS) {
          for (const name of names) held[each].delete(name)
        }
      }
      w.index.audit()
      for (const asked of ['aaaaaaa', 'abababa', 'bbbbbbb', prompt]) {
        const wanted: Partial<Record<Tier, number>> = {}
        for (let end = 1; end <= asked.length; end++) {
          const tier = TIERS.find(tier => held[tier].has(asked.slice(0, end)))
          if (tier === undefined) break
          wanted[tier] = (wanted[tier] ?? 0) + 1
        }
        assert.deepEqual(w.extend(asked), wanted, asked)
      }
    }
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 200 }))
})
