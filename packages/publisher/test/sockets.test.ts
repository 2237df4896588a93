/** The publisher on real sockets: nothing of a long replay is lost, whatever else is published meanwhile. */

import { systemClock } from '@homing/base'
import { systemTransport } from '@homing/transport'
import t from 'tap'
import { createPublisher } from '../src/index.ts'
import { replay, snapshot } from './asking.ts'
import { BLOCK_SIZE, keyOf, tokensOf } from './histories.ts'
import { NaiveCache } from './naive-cache.ts'

const BATCHES = 9000
const ANY = 'tcp://127.0.0.1:0'

t.test('9000 batches are repeated whole to three peers at once, while more are published', async t => {
  const publisher = await createPublisher({
    eventsEndpoint: ANY,
    replayEndpoint: ANY,
    blockSizeTokens: BLOCK_SIZE,
    bufferBatchesMax: BATCHES,
    bufferBytesMax: 2 ** 28,
  })
  const { messages, close } = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(async () => {
    close()
    await publisher.close()
  })
  const store = (i: number): void => {
    const chain = Array.from({ length: 250 }, (_, at) => (at === 0 ? i : at % 4))
    const blocks = chain.slice(0, 8).map((letter, at) => ({
      hash: keyOf(chain.slice(0, at + 1)),
      tokens: tokensOf([letter]),
    }))
    publisher.stored(undefined, blocks)
    publisher.flush()
  }
  for (let i = 0; i < BATCHES; i++) store(i)

  const endpoint = publisher.replayEndpoint!
  const asked = [0, 0, BATCHES / 2].map(start => replay(messages, endpoint, start))
  const dumped = snapshot(messages, endpoint)
  for (let i = 0; i < 100; i++) {
    await new Promise(resolve => setImmediate(resolve))
    store(BATCHES + i)
  }
  for (const [i, { batches }] of (await Promise.all(asked)).entries()) {
    const first = batches[0]!.sequence
    t.strictSame(
      batches.map(({ sequence }) => sequence),
      Array.from({ length: batches.length }, (_, at) => first + at),
      'without a hole',
    )
    t.ok(batches.length >= (i < 2 ? BATCHES - 100 : BATCHES / 2 - 100))
  }
  t.ok(new NaiveCache().applyAll((await dumped).events).blocks.size >= BATCHES * 8)
})
