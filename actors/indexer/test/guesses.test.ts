/**
 * Guesses in a real index against a naive model: a reader finds in the guessed layer exactly the blocks that
 * were sent and are still believed.
 */

import assert from 'node:assert/strict'
import {
  BlockIndex,
  GUESSED_LAYER,
  IndexReader,
  layeredOptions,
  layerSlot,
  OverlapCounts,
} from '@homing/index'
import fc from 'fast-check'
import t from 'tap'
import { Guesses, type GuessOptions } from '../src/guesses.ts'
import { LayerSlots } from '../src/layer-slots.ts'

const KEYS = 3
const TTL_MS = 1000

function locals(prompt: string): Int32Array {
  return Int32Array.from([...prompt].flatMap(letter => [letter.charCodeAt(0), 7]))
}

function world(options: GuessOptions = { blocksMax: 1000, pruneTargetRatio: 0.5 }) {
  const index = BlockIndex.create(layeredOptions(1 << 20, KEYS))
  const slots = new LayerSlots(KEYS)
  const guesses = new Guesses(index, slots, options)
  const reader = new IndexReader([index.memory])
  const scores = new OverlapCounts()
  let sent = 0
  const send = (workerSlot: number, prompt: string, nowMs: number, more = {}) =>
    guesses.routed(
      {
        id: `request-${++sent}`,
        workerSlot,
        epoch: 0,
        localHashes: locals(prompt),
        ttlMs: TTL_MS,
        blocksMax: 1000,
        ...more,
      },
      nowMs,
    )
  const overlap = (workerSlot: number, prompt: string) => {
    reader.overlap(locals(prompt), prompt.length, scores)
    return scores.blocksOf(layerSlot(workerSlot, GUESSED_LAYER, KEYS))
  }
  const takeBack = (id: string, workerSlot: number, prompt: string) =>
    guesses.unrouted({ id, workerSlot, epoch: 0, localHashes: locals(prompt) })
  return { index, slots, guesses, send, takeBack, overlap }
}

t.test('a prompt counts until its time is over; sent again, its whole prefix lasts anew', async t => {
  const { index, guesses, send, overlap } = world()
  t.equal(send(1, 'abcd', 0), 1000)
  t.equal(overlap(1, 'abcdef'), 4)
  t.equal(overlap(0, 'abcd'), 0, 'another key was sent nothing')
  send(1, 'abx', 500)
  t.equal(guesses.tidy(1000), 1500)
  t.equal(overlap(1, 'abcd'), 2)
  t.equal(overlap(1, 'abx'), 3)
  t.equal(guesses.tidy(1500), Number.POSITIVE_INFINITY)
  t.equal(overlap(1, 'abx'), 0)
  t.equal(index.stats().memberships, 0)
  t.match(guesses.status(), { keys: 0, blocks: 0, routed: 2, expired: 5, pruned: 0 })
})

t.test(
  'a key that was sent too much keeps a share of it: what lasts longest, and of a prompt its beginning',
  async t => {
    const { guesses, send, overlap } = world()
    send(0, 'abcdef', 0, { blocksMax: 10 })
    send(0, 'uvwxyz', 500, { blocksMax: 10 })
    guesses.tidy(500)
    t.equal(overlap(0, 'abcdef'), 0)
    t.equal(overlap(0, 'uvwxyz'), 5)
    t.equal(guesses.status().pruned, 7)
    send(0, '0123456789abcdef', 500, { blocksMax: 10 })
    guesses.tidy(500)
    t.equal(guesses.status().blocks, 5)
  },
)

t.test('all keys together have a bound: who goes beyond it gives of its own', async t => {
  const { guesses, send } = world({ blocksMax: 10, pruneTargetRatio: 0.5 })
  send(0, 'abcdef', 0)
  send(1, 'ghijklmn', 0)
  guesses.tidy(0)
  t.equal(guesses.blocksOf(0), 6)
  t.equal(guesses.blocksOf(1), 4)
})

t.test('all shards together have a bound: what expires first goes first, whatever its key', async t => {
  const counts = new Int32Array(2)
  const tree = (shard: number) => ({ blocksMax: 12, counts, shard })
  const one = world({ blocksMax: 1000, pruneTargetRatio: 0.5, tree: tree(0) })
  const other = world({ blocksMax: 1000, pruneTargetRatio: 0.5, tree: tree(1) })
  one.send(0, 'abcdef', 0)
  one.send(1, 'ghij', 500)
  t.strictSame([...counts], [10, 0])
  t.equal(other.send(0, 'kl', 500), 1500, 'there is room')
  t.equal(one.send(2, 'mn', 500), 500, 'pruned at once')
  one.guesses.tidy(500)
  // 14 are 8 too many, of which 12 / 14 are for this shard to give.
  t.strictSame(
    [0, 1, 2].map(key => one.guesses.blocksOf(key)),
    [0, 3, 2],
  )
  t.strictSame([...counts], [5, 2])
  t.equal(one.overlap(0, 'abcdef'), 0)
  t.equal(other.overlap(0, 'kl'), 2)
  one.guesses.forget(1)
  t.strictSame([...counts], [2, 2])
  world({ blocksMax: 1000, pruneTargetRatio: 0.5, tree: tree(0) })
  t.strictSame([...counts], [0, 2], 'an indexer that begins anew has none')
})

t.test('of the prompts of a fleet no more than the bound are ever believed', async t => {
  const counts = new Int32Array(1)
  const { send, guesses } = world({
    blocksMax: 1000,
    pruneTargetRatio: 0.8,
    tree: { blocksMax: 20, counts, shard: 0 },
  })
  let nowMs = 0
  for (let i = 0; i < 300; i++) {
    send(i % KEYS, `${i}:abcdefg`.slice(0, 7), nowMs)
    guesses.tidy(nowMs)
    t.ok(counts[0]! <= 20 && counts[0] === guesses.status().blocks, `${counts[0]} blocks`)
    nowMs += 7
  }
})

t.test(
  'what was sent in an earlier epoch of a key is dropped, before and after it was forgotten',
  async t => {
    const { guesses, send, overlap } = world()
    send(2, 'abc', 0, { epoch: 4 })
    guesses.forget(2, 5)
    t.equal(overlap(2, 'abc'), 0)
    send(2, 'abc', 0, { epoch: 4 })
    t.equal(overlap(2, 'abc'), 0)
    send(2, 'abc', 0, { epoch: 5 })
    t.equal(overlap(2, 'abc'), 3)
  },
)

t.test('blocks that a full index has dropped are held again when they are sent again', async t => {
  const { index, send, overlap } = world()
  send(0, 'abcd', 0)
  index.clear(layerSlot(0, GUESSED_LAYER, KEYS))
  send(0, 'abcdef', 0)
  t.equal(overlap(0, 'abcdef'), 6)
})

const steps = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        key: fc.nat(KEYS - 1),
        prompt: fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 8 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ waitMs: fc.nat(900) }) },
    { weight: 1, arbitrary: fc.record({ forget: fc.nat(KEYS - 1) }) },
  ),
  { minLength: 1, maxLength: 40, size: 'max' },
)

t.test('readers find what was sent within its time, whatever happened before', async t => {
  const property = fc.property(steps, history => {
    const { index, guesses, send, overlap } = world()
    const until = new Map<string, number>()
    let nowMs = 0
    for (const step of history) {
      if ('prompt' in step) {
        send(step.key, step.prompt, nowMs)
        for (let end = 1; end <= step.prompt.length; end++) {
          until.set(`${step.key}${step.prompt.slice(0, end)}`, Math.ceil((nowMs + TTL_MS) / 100) * 100)
        }
      } else if ('waitMs' in step) {
        nowMs += step.waitMs
        guesses.tidy(nowMs)
        for (const [name, untilMs] of until) if (untilMs <= nowMs) until.delete(name)
      } else {
        guesses.forget(step.forget)
        for (const name of until.keys()) if (name.startsWith(String(step.forget))) until.delete(name)
      }
      for (const name of until.keys()) {
        assert.equal(overlap(Number(name[0]), `${name.slice(1)}c`), name.length - 1)
      }
      assert.equal(guesses.status().blocks, until.size)
      assert.equal(index.stats().memberships, until.size)
      index.audit()
    }
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 150 }))
})

t.test('what was not sent after all is taken back, down to what was guessed before', async t => {
  const { guesses, index, send, takeBack, overlap } = world()
  send(0, 'AB', 0, { id: 'first' })
  send(0, 'ABCDE', 500, { id: 'second' })
  takeBack('second', 0, 'ABCDE')
  t.strictSame([overlap(0, 'ABCDE'), guesses.blocksOf(0)], [2, 2])
  takeBack('second', 0, 'ABCDE')
  t.equal(overlap(0, 'ABCDE'), 2, 'once')
  takeBack('never', 0, 'AB')
  t.equal(overlap(0, 'AB'), 2)
  send(0, 'ABCD', 900, { id: 'third' })
  send(0, 'ABCDEF', 1200, { id: 'fourth' })
  takeBack('third', 0, 'ABCD')
  t.equal(overlap(0, 'ABCDEF'), 6, 'somebody else needs it since')
  takeBack('fourth', 0, 'ABCDEF')
  t.equal(overlap(0, 'ABCDEF'), 4)
  send(1, 'XY', 1200, { id: 'alone' })
  takeBack('alone', 1, 'XY')
  t.strictSame(
    [overlap(1, 'XY'), guesses.blocksOf(1), index.blocksHeld(layerSlot(1, GUESSED_LAYER, KEYS))],
    [0, 0, 0],
  )
})

t.test('a long prompt is taken back as a whole', async t => {
  const { guesses, send, takeBack, overlap } = world({ blocksMax: 100_000, pruneTargetRatio: 0.5 })
  const prompt = 'A'.repeat(9000)
  send(0, prompt, 0, { id: 'long', blocksMax: 100_000 })
  t.equal(overlap(0, prompt), 9000)
  takeBack('long', 0, prompt)
  t.strictSame([overlap(0, prompt), guesses.blocksOf(0)], [0, 0])
})
