/** The memory of labels: what clearing it takes from the system, and what it leaves. */

import t from 'tap'
import { clearLabelMemory, createLabelMemory, LabelTable } from '../../src/index.ts'

t.test('memory that no writer has changed is cleared without taking it from the system', async t => {
  const memory = createLabelMemory(2 ** 28)
  const before = process.memoryUsage.rss()
  clearLabelMemory(memory)
  const grown = process.memoryUsage.rss() - before
  t.ok(grown < 2 ** 27, `${grown} bytes`)
})

t.test('memory that its last writer left is empty again', async t => {
  const memory = createLabelMemory(2 ** 16)
  const moe = { layerId: 1, expertId: 2, expertGroup: undefined }
  const hashes = { engineHash: [1, 2], sequenceHash: [3, 4] } as const
  const table = new LabelTable(memory, () => true)
  table.stored({ workerSlot: 0, ...hashes, moe, place: undefined, isHeld: true })
  t.ok(table.has(0))
  t.equal([...new LabelTable(memory, () => true).recordsAt(3, 4)].length, 1)
  clearLabelMemory(memory)
  const next = new LabelTable(memory, () => true)
  t.strictSame([...next.recordsAt(3, 4)], [])
  t.equal(next.stats().labelledBlocks, 0)
})
