import t from 'tap'
import { BlockIndex, createIndexMemory, IndexReader, OverlapScores } from '../src/index.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 64 }
const PROMPT = Int32Array.from({ length: 40 }, (_, i) => i * 7 + 1)
const COUNT = PROMPT.length / 2

function overlaps(reader: IndexReader): [number, number][] {
  const scores = new OverlapScores(64)
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
