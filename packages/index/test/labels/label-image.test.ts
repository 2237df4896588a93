/** Images of the labels of a slot: what they share, and what is refused. */

import t from 'tap'
import { createLabelMemory, LabelTable, labelImageOf, POOL_STATE, readLabelImage } from '../../src/index.ts'
import { isLegal } from './naive-labels.ts'

t.test('an image has each set of workers once, and is refused past its bound', async t => {
  const table = new LabelTable(createLabelMemory(1 << 20), isLegal)
  const workerIds = Int32Array.from({ length: 2 * 1000 }, (_, i) => i)
  for (let i = 0; i < 500; i++) {
    table.stored({
      workerSlot: 1,
      engineHash: [i, 1],
      sequenceHash: [i, 2],
      moe: undefined,
      // Each block with an array of its own.
      place: { state: POOL_STATE.cxlPooled, poolId: 1, workerIds: workerIds.slice() },
      isHeld: true,
    })
  }
  const image = labelImageOf(table, 1)!
  t.equal(image.length, 2 + 1 + 2000 + 500 * 11)
  t.equal(readLabelImage(image)?.length, 500)
  t.strictSame(labelImageOf(table, 1, image.length), image)
  t.equal(labelImageOf(table, 1, image.length - 1), undefined)
  t.strictSame(labelImageOf(table, 2, 0), new Int32Array(0))
  for (const end of [1, 2, 3, 1000, image.length - 1])
    t.equal(readLabelImage(image.subarray(0, end)), undefined)
  t.equal(readLabelImage(image.with(0, 1)), undefined, 'another form')
  t.equal(readLabelImage(image.with(image.length - 1, 2)), undefined, 'a set that is not there')
})

t.test('an image has each text of members once, and what is cut short is none', async t => {
  const table = new LabelTable(createLabelMemory(1 << 16), isLegal)
  const said = (n: number, members: string) => ({
    workerSlot: 1,
    engineHash: [n, 1] as const,
    sequenceHash: [n, 2] as const,
    moe: { layerId: 1, expertId: n, expertGroup: undefined, members },
    place: {
      state: POOL_STATE.localGpu,
      poolId: undefined,
      workerIds: new Int32Array(0),
      members: '{"b":2}',
    },
    isHeld: true,
  })
  const texts = ['{"a":"äöü"}', '{"b":2}', '{"a":"äöü"}']
  for (const [n, members] of texts.entries()) t.ok(table.stored(said(n, members)))
  const image = labelImageOf(table, 1)!
  t.equal(image.length, 2 + 1 + (1 + 4) + (1 + 2) + 3 * 13)
  const read = readLabelImage(image)!
  t.strictSame(
    read.map(({ moe, place }) => [moe?.members, place.members]),
    texts.map(text => [text, '{"b":2}']),
  )
  t.equal(labelImageOf(table, 1, image.length - 1), undefined)
  for (let end = 1; end < image.length - 12; end++) {
    const part = readLabelImage(image.subarray(0, end))
    if ((image.length - end) % 13 !== 0) t.equal(part, undefined, `${end} words`)
  }
  t.equal(readLabelImage(image.with(image.length - 1, 3)), undefined, 'a text that is not there')
})
