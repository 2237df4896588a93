import t from 'tap'
import {
  BlockIndex,
  createIndexDoor,
  createIndexMemory,
  type IndexMemory,
  IndexReader,
  OverlapCounts,
} from '../src/index.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 64 }
const PROMPT = Int32Array.from({ length: 40 }, (_, i) => i * 7 + 1)
const COUNT = PROMPT.length / 2

function overlaps(reader: IndexReader): [number, number][] {
  const scores = new OverlapCounts(64)
  reader.overlap(PROMPT, COUNT, scores)
  return Array.from({ length: scores.length }, (_, i) => [scores.workerSlots[i]!, scores.blocks[i]!])
}

t.test('a reader of memory without a writer sees an empty index', async t => {
  const reader = new IndexReader([createIndexMemory(OPTIONS)])
  t.strictSame(overlaps(reader), [])
  t.equal(reader.stats().misses, 0)
})

t.test('a new writer empties the memory in place and readers go on with it', async t => {
  const memory = createIndexMemory(OPTIONS)
  const reader = new IndexReader([memory])
  for (let life = 1; life <= 3; life++) {
    const index = BlockIndex.create({ ...OPTIONS, memory })
    t.strictSame(overlaps(reader), [], `life ${life} begins empty`)
    index.store(life, undefined, PROMPT, PROMPT, COUNT)
    index.store(40 + life, undefined, PROMPT, PROMPT, COUNT - 5)
    t.strictSame(
      overlaps(reader).sort((a, b) => a[0] - b[0]),
      [
        [life, COUNT],
        [40 + life, COUNT - 5],
      ],
    )
  }
  t.equal(reader.stats().misses, 0)
})

t.test('memory made with other options is refused', async t => {
  const memory = createIndexMemory(OPTIONS)
  t.throws(() => BlockIndex.create({ ...OPTIONS, workerSlotsMax: 32, memory }), TypeError)
  t.throws(() => BlockIndex.create({ capacityBytes: 2 << 20, workerSlotsMax: 64, memory }), TypeError)
})

/** `count` prompts of 40 blocks, each of its own. */
function fill(index: BlockIndex, workerSlot: number, count: number, first = 0): void {
  for (let i = 0; i < count; i++) {
    const hashes = Int32Array.from({ length: 80 }, (_, k) => (first + i + 1) * 1000 + k)
    index.store(workerSlot, undefined, hashes, hashes, 40)
  }
}

t.test('an index takes memory as it fills, and gives it back', async t => {
  const index = BlockIndex.create({ capacityBytes: 64 << 20, workerSlotsMax: 64 })
  const empty = index.stats().bytesUsed
  t.ok(empty < 64 << 10, `${empty} bytes when empty`)
  fill(index, 1, 20_000)
  const full = index.stats()
  const perBlock = (full.bytesUsed - empty) / full.memberships
  t.ok(perBlock < 40, `${perBlock} bytes per block of 40-block prompts that share nothing`)
  index.clear(1)
  while (index.maintain());
  index.audit()
  const after = index.stats()
  t.ok(after.bytesUsed < full.bytesUsed * 0.05, `${after.bytesUsed} of ${full.bytesUsed} bytes are left`)
  t.equal(after.memorySwaps, 1)
})

t.test('what is left when most was removed is moved together; readers go on and learn of it', async t => {
  const memories: IndexMemory[] = []
  const index = BlockIndex.create({ ...OPTIONS, swapBytesMin: 1, onMemory: memory => memories.push(memory) })
  const first = index.memory
  const reader = new IndexReader([first])
  fill(index, 1, 300)
  index.store(2, undefined, PROMPT, PROMPT, COUNT)
  index.clear(1)
  while (index.maintain());
  index.audit()
  t.equal(memories.length, 1)
  t.equal(memories[0], index.memory)
  t.match(index.stats(), { chunks: 2, chunksTouched: 2, memberships: COUNT })

  index.store(3, undefined, PROMPT, PROMPT, COUNT)
  t.strictSame(overlaps(reader), [[2, COUNT]], 'the memory that was left, at the moment of the move')
  t.equal(reader.isStale(0), true)
  t.equal(reader.stats().staleLookups, 1)
  reader.replaceShard(0, index.memory)
  t.equal(reader.isStale(0), false)
  t.strictSame(overlaps(reader).sort(), [
    [2, COUNT],
    [3, COUNT],
  ])
  t.equal(reader.stats().staleLookups, 1)
})

t.test('readers with a door count nothing of a writer that is gone', async t => {
  const door = createIndexDoor()
  const reader = new IndexReader([door])
  const scores = new OverlapCounts()
  reader.overlap(PROMPT, COUNT, scores)
  t.strictSame([scores.length, scores.isComplete, reader.isStale(0)], [0, false, true])
  const first = BlockIndex.create({ ...OPTIONS, memory: door })
  first.store(1, undefined, PROMPT, PROMPT, COUNT)
  reader.replaceShard(0, first.memory)
  t.strictSame(overlaps(reader), [[1, COUNT]])

  const second = BlockIndex.create({ ...OPTIONS, memory: door })
  reader.overlap(PROMPT, COUNT, scores)
  t.strictSame([scores.length, scores.isComplete, reader.isStale(0)], [0, false, true])
  second.store(2, undefined, PROMPT, PROMPT, COUNT)
  reader.replaceShard(0, second.memory)
  t.strictSame(overlaps(reader), [[2, COUNT]])
})

interface Limits {
  readonly initial: number
}

t.test('an index that finds no memory for its capacity takes half, and says so', async t => {
  const { WebAssembly } = globalThis as unknown as { WebAssembly: { Memory: new (limits: Limits) => object } }
  const original = WebAssembly.Memory
  WebAssembly.Memory = class extends original {
    constructor(limits: Limits) {
      if (limits.initial > 16) throw new RangeError('could not allocate memory')
      super(limits)
    }
  }
  try {
    const index = BlockIndex.create({ capacityBytes: 4 << 20, workerSlotsMax: 64 })
    const { capacityHalvings, bytesLimit } = index.stats()
    t.equal(bytesLimit, (4 << 20) / 2 ** capacityHalvings)
    t.ok(capacityHalvings >= 1 && capacityHalvings <= 3)
    t.throws(() => BlockIndex.create({ capacityBytes: 2 ** 33, workerSlotsMax: 64 }), RangeError)
  } finally {
    WebAssembly.Memory = original
  }
})

t.test('a cleared slot counts for nobody at once, and its past does not come back', async t => {
  const index = BlockIndex.create(OPTIONS)
  const reader = new IndexReader([index.memory])
  fill(index, 1, 200)
  for (let life = 0; life < 16; life++) {
    index.store(1, undefined, PROMPT, PROMPT, COUNT)
    index.store(2, undefined, PROMPT, PROMPT, 3 + life)
    index.clear(1)
    t.equal(index.blocksHeld(1), 0)
    t.strictSame(overlaps(reader), [[2, 3 + life]])
    index.store(1, undefined, PROMPT, PROMPT, 2)
    t.strictSame(
      overlaps(reader).sort((a, b) => a[0] - b[0]),
      [
        [1, 2],
        [2, 3 + life],
      ],
    )
    index.maintain(10)
    index.audit()
    index.clear(2)
  }
  while (index.maintain());
  index.audit()
  t.match(index.stats(), { retiredHolders: 0, memberships: 2, blocksDistinct: 2 })
})

t.test('more clears than there are spare holders end the sweep at once', async t => {
  const index = BlockIndex.create({ ...OPTIONS, workerSlotsMax: 2 })
  for (let i = 0; i < 50; i++) {
    index.store(i & 1, undefined, PROMPT, PROMPT, COUNT)
    index.clear(i & 1)
  }
  index.audit()
  t.ok(index.stats().retiredHolders <= 4)
  t.equal(index.stats().memberships, 0)
})
