/**
 * The windows of the reader's protocol, opened on purpose: one change of the index between the k-th and the
 * next word that a lookup reads, for every k. Each change uses memory again that the reader stands on.
 */

import t, { type Test } from 'tap'
import { BlockIndex, type IndexOptions, IndexReader, OverlapCounts } from '../src/index.ts'
import { loopsOver } from '../src/loops.ts'
import { CHUNK_WORDS, H_CHUNK_BASE, SET } from '../src/words.ts'
import { interleave } from './interleave.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 40, access: 'atomic' } as const

/** count hashes from `first`, two equal words each. */
function chain(first: number, count: number): Int32Array {
  return Int32Array.from({ length: 2 * count }, (_, i) => first + (i >> 1))
}

function join(...parts: Int32Array[]): Int32Array {
  return Int32Array.from(parts.flatMap(part => [...part]))
}

/** Leaves first, as engines do. Local and engine hashes are the same here. */
function removeAll(index: BlockIndex, slot: number, hashes: Int32Array): void {
  for (let at = hashes.length - 2; at >= 0; at -= 2) index.remove(slot, hashes.subarray(at, at + 2), 1)
}

function storeAll(index: BlockIndex, slot: number, hashes: Int32Array): void {
  index.store(slot, undefined, hashes, hashes, hashes.length / 2)
}

interface Window {
  readonly options?: Partial<IndexOptions>
  readonly prompt: Int32Array
  readonly before: (index: BlockIndex) => void
  readonly change: (index: BlockIndex) => void
  /** Whether the answer could be true: of some instant before or after the change, per worker slot. */
  readonly isPossible: (overlap: ReadonlyMap<number, number>) => boolean
}

/** The answers of a lookup with the change at every place in it. Throws what the lookup throws. */
function* everyPlace({ options, prompt, before, change }: Window): Generator<Map<number, number>> {
  for (let place = 0; place < 10_000; place++) {
    const index = BlockIndex.create({ ...OPTIONS, ...options })
    before(index)
    const reader = new IndexReader([index.memory])
    const scores = new OverlapCounts()
    let reads = 0
    const between = () => {
      if (reads++ === place) change(index)
    }
    interleave('load', between, () => reader.overlap(prompt, prompt.length / 2, scores))
    yield scores.toMap()
    if (reads <= place) return
  }
}

function holds(t: Test, window: Window): void {
  let places = 0
  for (const overlap of everyPlace(window)) {
    if (!window.isPossible(overlap)) t.fail(`place ${places}: ${JSON.stringify([...overlap])}`)
    places++
  }
  t.ok(places > 20 && places < 10_000, `${places} places`)
}

/**
 * The same for lookups that fall between any two stores of the change; one that cannot say is not an answer.
 */
function holdsWithin(t: Test, { options, prompt, before, change, isPossible }: Window): void {
  const index = BlockIndex.create({ ...OPTIONS, ...options })
  before(index)
  const reader = new IndexReader([index.memory])
  const scores = new OverlapCounts()
  let stores = 0
  let answers = 0
  const between = () => {
    reader.overlap(prompt, prompt.length / 2, scores)
    stores++
    if (!scores.isComplete) return
    answers++
    if (!isPossible(scores.toMap())) t.fail(`store ${stores}: ${JSON.stringify([...scores.toMap()])}`)
  }
  interleave('store', between, () => change(index))
  t.ok(stores > 20 && answers > stores / 2, `${answers} answers at ${stores} stores`)
}

t.test('a child counts only below the block that its parent was when the reader was there', async t => {
  const first = chain(100, 16)
  const tail = chain(500, 4)
  const other = join(chain(300, 16), tail)
  holds(t, {
    prompt: join(first, tail),
    before(index) {
      storeAll(index, 1, join(first, tail))
      storeAll(index, 2, first)
    },
    change(index) {
      removeAll(index, 1, join(first, tail))
      removeAll(index, 2, first)
      storeAll(index, 2, other) // in the same two chunks
    },
    isPossible: overlap => (overlap.get(2) ?? 0) <= 16,
  })
})

t.test('a slot whose block was popped and replaced is not credited to the old block', async t => {
  const trunk = chain(100, 5)
  const old = chain(200, 5)
  holds(t, {
    prompt: join(trunk, old),
    before(index) {
      storeAll(index, 1, join(trunk, old))
      storeAll(index, 2, trunk)
    },
    change(index) {
      removeAll(index, 1, old)
      index.store(2, trunk.subarray(8), chain(300, 5), chain(300, 5), 5)
    },
    isPossible: overlap => (overlap.get(2) ?? 0) === 5 && (overlap.get(1) ?? 0) >= 5,
  })
})

t.test('a chunk that is used again for other blocks is not credited to those it had', async t => {
  const old = chain(100, 12)
  const next = join(chain(100, 1), chain(300, 11))
  holds(t, {
    prompt: old,
    before: index => storeAll(index, 1, old),
    change(index) {
      removeAll(index, 1, old)
      storeAll(index, 2, next)
    },
    isPossible: overlap => (overlap.get(2) ?? 0) <= 1,
  })
})

t.test('a reader that strays from a freed chunk into another chain does not miss what follows', async t => {
  const loops = loopsOver(BlockIndex.create(OPTIONS).memory)
  const bucket = (hash: number) => loops.bucketOfHead(0, hash, hash)
  let colliding = 101
  while (bucket(colliding) !== bucket(100)) colliding++
  let elsewhere = colliding + 1
  while (bucket(elsewhere) === bucket(100)) elsewhere++
  holds(t, {
    prompt: chain(100, 3),
    before(index) {
      storeAll(index, 1, chain(100, 3))
      storeAll(index, 2, chain(colliding, 1)) // before it in the chain
    },
    change(index) {
      removeAll(index, 2, chain(colliding, 1))
      storeAll(index, 2, chain(elsewhere, 1)) // the same chunk, another chain
    },
    isPossible: overlap => overlap.get(1) === 3 && !overlap.has(2),
  })
})

/**
 * 30 prompts of 12 blocks; of each the first chunk ends with a block below which the second chunk hangs
 * alone.
 */
function storeSparse(index: BlockIndex): void {
  for (let i = 0; i < 30; i++) {
    const trunk = chain(1000 * (i + 1), 6)
    storeAll(index, 1, trunk)
    index.store(1, trunk.subarray(8, 10), chain(1000 * (i + 1) + 500, 4), chain(1000 * (i + 1) + 500, 4), 4)
    // A branch and a chunk below the second chunk, so that a merge has children to move.
    const last = chain(1000 * (i + 1) + 503, 1)
    index.store(1, last, chain(1000 * (i + 1) + 600, 3), chain(1000 * (i + 1) + 600, 3), 3)
    index.store(
      1,
      chain(1000 * (i + 1) + 501, 1),
      chain(1000 * (i + 1) + 700, 2),
      chain(1000 * (i + 1) + 700, 2),
      2,
    )
    index.remove(1, trunk.subarray(10), 1)
  }
}

t.test('blocks that are merged into the chunk above are found at every moment', async t => {
  const prompt = (i: number) => join(chain(1000 * i, 5), chain(1000 * i + 500, 4), chain(1000 * i + 600, 3))
  const merged = BlockIndex.create(OPTIONS)
  storeSparse(merged)
  const chunks = merged.stats().chunks
  while (merged.maintain());
  merged.audit()
  t.ok(merged.stats().chunks < chunks - 20, `${merged.stats().chunks} chunks of ${chunks}`)
  for (const i of [1, 15, 30]) {
    const window: Window = {
      prompt: prompt(i),
      before: storeSparse,
      change(index) {
        while (index.maintain());
      },
      isPossible: overlap => overlap.get(1) === 12,
    }
    holds(t, window)
    holdsWithin(t, window)
  }
  const window: Window = {
    prompt: join(chain(7000, 5), chain(7500, 2), chain(7700, 2)),
    before: storeSparse,
    change(index) {
      while (index.maintain());
    },
    isPossible: overlap => overlap.get(1) === 9,
  }
  holds(t, window)
  holdsWithin(t, window)
})

t.test('blocks that are moved to other chunks, and to other memory, are found at every moment', async t => {
  const trunk = chain(100, 40)
  const branch = chain(300, 20)
  const before = (index: BlockIndex) => {
    for (let i = 0; i < 60; i++) storeAll(index, 3, chain(10_000 + 100 * i, 20))
    storeAll(index, 1, trunk)
    storeAll(index, 2, trunk.subarray(0, 66))
    index.store(1, trunk.subarray(30, 32), branch, branch, 20)
  }
  for (const prompt of [trunk, join(trunk.subarray(0, 32), branch)]) {
    const window: Window = {
      options: { swapBytesMin: 1 },
      prompt,
      before,
      change(index) {
        const memory = index.memory
        index.clear(3)
        while (index.maintain());
        if (index.memory === memory) throw new Error('nothing was moved')
      },
      isPossible: overlap =>
        overlap.get(1) === prompt.length / 2 && overlap.get(2) === (prompt === trunk ? 33 : 16),
    }
    holds(t, window)
    holdsWithin(t, window)
  }
})

t.test('a bucket that is split while a reader looks into it loses nothing', async t => {
  const window: Window = {
    prompt: chain(100, 40),
    before(index) {
      for (let i = 0; i < 39; i++) storeAll(index, 3, chain(5000 + i, 1))
      storeAll(index, 1, chain(100, 40))
    },
    change(index) {
      for (let i = 0; i < 300; i++) storeAll(index, 3, chain(20_000 + i, 1))
    },
    isPossible: overlap => overlap.get(1) === 40,
  }
  holds(t, window)
  holdsWithin(t, window)
})

t.test(
  'a holder that is given to another worker slot is not credited with what its former owner held',
  async t => {
    const prompt = chain(100, 40)
    const window: Window = {
      prompt,
      before(index) {
        storeAll(index, 1, prompt)
        storeAll(index, 2, prompt)
      },
      change(index) {
        index.clear(1)
        while (index.maintain());
        storeAll(index, 7, prompt.subarray(0, 6))
      },
      isPossible: overlap =>
        overlap.get(2) === 40 && (overlap.get(7) ?? 0) <= 3 && (overlap.get(1) ?? 40) === 40,
    }
    holds(t, window)
    holdsWithin(t, window)

    // The same if the walk ends at a block that another worker slot holds.
    const ended: Window = {
      prompt: prompt.subarray(0, 40),
      before(index) {
        storeAll(index, 1, prompt.subarray(0, 20))
        storeAll(index, 2, prompt)
        index.remove(2, prompt, 10)
      },
      change(index) {
        index.clear(1)
        while (index.maintain());
        storeAll(index, 7, prompt.subarray(0, 6))
      },
      isPossible: overlap => (overlap.get(1) ?? 10) === 10 && (overlap.get(7) ?? 0) <= 3 && !overlap.has(2),
    }
    holds(t, ended)
    holdsWithin(t, ended)
  },
)

t.test('an id that is given to another set is not taken for the set that it was', async t => {
  const prompt = chain(100, 2)
  const [first, second] = [prompt.subarray(0, 2), prompt.subarray(2)]
  const setWord = (index: BlockIndex, slot: number): number => {
    const words = new Int32Array(index.memory.buffer)
    return words[words[H_CHUNK_BASE]! + 2 * CHUNK_WORDS + SET + slot]!
  }
  /** A set that no block has any more. */
  const intern = (index: BlockIndex, one: number, other: number) => {
    const spare = chain(900, 1)
    storeAll(index, one, spare)
    storeAll(index, other, spare)
    index.remove(one, spare, 1)
    index.remove(other, spare, 1)
  }
  const window: Window = {
    options: { capacityBytes: 64 << 10, workerSlotsMax: 40 },
    prompt,
    before(index) {
      // Who holds something has a holder; a new one would have the lookup begin again.
      for (let slot = 0; slot < 40; slot++) storeAll(index, slot, chain(800, 1))
      for (const slot of [5, 6, 9]) {
        storeAll(index, slot, prompt)
        index.remove(slot, first, 1)
      }
      storeAll(index, 1, first)
      storeAll(index, 2, first)
    },
    change(index) {
      const id = setWord(index, 0)
      index.remove(1, first, 1)
      index.remove(2, first, 1)
      storeAll(index, 3, prompt)
      storeAll(index, 4, prompt)
      index.remove(4, first, 1)
      for (const slot of [5, 6, 9]) index.remove(slot, second, 1)
      let pair = 0
      for (let i = 0; setWord(index, 1) !== id; i++) {
        if (i === 2000) throw new Error('the id was not given out again')
        index.store(9, first, second, second, 1, 'count', [3])
        // Ids come back all at once when they run out, the last one first.
        for (let k = (i * 7) % 80; k >= 0; k--) {
          intern(index, 10 + (pair % 15), 25 + (Math.floor(pair / 15) % 15))
          pair++
        }
        index.remove(9, second, 1)
      }
    },
    isPossible: overlap => (overlap.get(1) ?? 0) <= 1 && (overlap.get(2) ?? 0) <= 1,
  }
  holds(t, window)
})
