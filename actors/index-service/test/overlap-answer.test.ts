/** The tiers of an answer, over an index that the test writes itself. */

import { BlockIndex, IndexReader, KEY_LAYERS, layeredOptions, layerSlot } from '@homing/index'
import t from 'tap'
import { IndexQuery } from '../src/overlap-answer.ts'
import { newRank } from '../src/rank.ts'

const SLOTS_MAX = 4
/** Local hashes of the blocks a, b, c, …; engine hashes are the same numbers. */
const chain = (letters: string): Int32Array =>
  Int32Array.from([...letters].flatMap(letter => [letter.charCodeAt(0), 0]))

t.test('what lower tiers hold beyond the device is added, tier by tier', async t => {
  const index = BlockIndex.create(layeredOptions(1 << 20, SLOTS_MAX))
  const store = (slot: number, tier: (typeof KEY_LAYERS)[number], letters: string): void => {
    const inTier = layerSlot(slot, KEY_LAYERS.indexOf(tier), SLOTS_MAX)
    index.store(inTier, undefined, chain(letters), chain(letters), letters.length)
  }
  store(0, 'device', 'ab')
  store(0, 'host', 'abcd')
  store(0, 'disk', 'abcde')
  store(1, 'device', 'a')
  store(2, 'host', 'abc')
  // What nobody has confirmed counts for no answer.
  store(3, 'guessed', 'abcdef')

  const rank = (workerSlot: number, instanceId: bigint, dpRank: number) => {
    const place = {
      model: 'm',
      group: 'g',
      blockSizeTokens: 16,
      endpoint: 'tcp://a:1',
      replayEndpoint: undefined,
    }
    return newRank({ ...place, instanceId, dpRank }, workerSlot, 0)
  }
  const ranks = new Set([rank(0, 7n, 0), rank(1, 7n, 1), rank(2, 8n, 0), rank(3, 9n, 0)])
  const partition = { model: 'm', group: 'g', blockSizeTokens: 16, ranks, revision: 1 }
  const reader = new IndexReader([index.memory])
  const lookup = new IndexQuery({ reader, inheritedReader: undefined, workerSlotsMax: SLOTS_MAX })
  const { answer, isComplete } = lookup.overlap(partition, chain('abcdefgh'))
  t.strictSame(answer, {
    scores: { 7: { 0: 32, 1: 16 } },
    frequencies: [2, 1],
    instances: {
      7: { longest_matched: 80, gpu: 32, dp: { 0: 32, 1: 16 }, cpu: 64, disk: 80 },
      8: { longest_matched: 48, gpu: 0, dp: { 0: 0 }, cpu: 48, disk: 48 },
    },
  })
  t.equal(isComplete, true)
})
