/**
 * The windows of the reader's protocol, opened on purpose: one change of the index between the k-th and the
 * next word that a lookup reads, for every k. Each change uses memory again that the reader stands on.
 */

import t, { type Test } from 'tap'
import { BlockIndex, IndexReader, OverlapScores } from '../src/index.ts'
import { bucketOf, childHash, H_BUCKETS } from '../src/layout.ts'

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
  readonly prompt: Int32Array
  readonly before: (index: BlockIndex) => void
  readonly change: (index: BlockIndex) => void
  /** Whether the answer could be true: of some instant before or after the change, per worker slot. */
  readonly isPossible: (overlap: ReadonlyMap<number, number>) => boolean
}

/** The answers of a lookup with the change at every place in it. Throws what the lookup throws. */
function* everyPlace({ prompt, before, change }: Window): Generator<Map<number, number>> {
  const load = Atomics.load
  for (let place = 0; place < 10_000; place++) {
    const index = BlockIndex.create(OPTIONS)
    before(index)
    const reader = new IndexReader([index.memory])
    const scores = new OverlapScores()
    let reads = 0
    const patched = (words: Int32Array, at: number): number => {
      if (reads++ === place) change(index)
      return load(words, at)
    }
    Object.assign(Atomics, { load: patched })
    try {
      reader.overlap(prompt, prompt.length / 2, scores)
    } finally {
      Object.assign(Atomics, { load })
    }
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
  const buckets = new Int32Array(BlockIndex.create(OPTIONS).memory)[H_BUCKETS]!
  const bucket = (hash: number) => bucketOf(childHash(0, hash, hash), buckets)
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
