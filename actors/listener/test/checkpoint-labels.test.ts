/** Labels in checkpoints: members that are not known come back, and a text that is none is refused. */

import { createLabelMemory, LabelTable, labelImageOf, readLabelImage } from '@homing/index'
import t from 'tap'
import { decodeCheckpoint, encodeCheckpoint } from '../src/checkpoint.ts'

function checkpointOf(members: string): Buffer {
  const table = new LabelTable(createLabelMemory(1 << 18), () => true)
  table.stored({
    workerSlot: 1,
    engineHash: [1, 2],
    sequenceHash: [3, 4],
    moe: { layerId: 1, expertId: 2, expertGroup: undefined, members },
    place: undefined,
    isHeld: true,
  })
  return Buffer.concat(
    encodeCheckpoint({
      source: 'tcp://10.0.0.1:5557',
      key: '10.0.0.1:8000/0',
      processStartSeconds: undefined,
      point: { nextSequence: 9, fingerprints: [1], isWhole: true, wasCleared: false, gapReason: 'late' },
      image: {
        blockSizeTokens: 16,
        salts: [],
        reading: {
          groups: [],
          tiers: ['device'],
          removesCopies: false,
          left: new Int32Array(0),
        },
        localHashes: new Int32Array(0),
        parents: new Int32Array(0),
        held: new Int32Array(0),
        labels: labelImageOf(table, 1)!,
        orphans: new Int32Array(0),
      },
    }),
  )
}

t.test('members that are not known come back as they were', async t => {
  const members = '{"heat":[1,18446744073709551615,"ä"]}'
  const { labels } = decodeCheckpoint(checkpointOf(members)).image
  t.strictSame(
    readLabelImage(labels)?.map(({ moe }) => moe?.members),
    [members],
  )
})

for (const text of [
  '',
  'null',
  '{}',
  '[1]',
  '{"b":1,"a":1}',
  '{"a": 1}',
  '{"a":1',
  `{"a":"${'x'.repeat(1017)}"}`,
])
  t.test(`a text that cannot be one of members is refused: ${text.slice(0, 20)}`, async t => {
    t.throws(() => decodeCheckpoint(checkpointOf(text)), /members of labels/)
  })
