/**
 * What a publisher keeps for its stream: stored in order, again after a failure, and the oldest lost past
 * the bound.
 */

import { SimulatedClock } from '@homing/base'
import t from 'tap'
import { BrokerCounts } from '../src/broker-counts.ts'
import { StreamError } from '../src/errors.ts'
import { unpacked } from '../src/nats/payload.ts'
import { StreamCopy, UNSTORED_MESSAGES_MAX } from '../src/nats/stream-copy.ts'
import type { BrokerStreams } from '../src/nats/streams.ts'
import { bytes, text } from './conformance.ts'

function world() {
  const clock = new SimulatedClock()
  const counts = new BrokerCounts()
  const stored: string[] = []
  const words: boolean[] = []
  const state = { refuses: false }
  const refused = (): Promise<never> => Promise.reject(new StreamError('cannot store', 'no room'))
  const streams = {
    ensure: () => (state.refuses ? refused() : Promise.resolve(undefined)),
    store(_: string, payload: Uint8Array) {
      if (state.refuses) return refused()
      stored.push(...unpacked(payload).map(text))
      return Promise.resolve()
    },
  } as unknown as BrokerStreams
  const copy: StreamCopy = new StreamCopy({
    stream: { namespace: 'fleet', retentionMs: 1000, bytesMax: 1000 },
    subject: 'homing.kv.one',
    endpoint: 'nats://a:4222/homing.kv.one',
    life: '0'.repeat(16),
    clock,
    counts,
    log: { warn() {} },
    changed: () => words.push(copy.isWhole),
  })
  /** Lets promises and pauses pass. */
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 40; i++) {
      for (let turn = 0; turn < 50; turn++) await Promise.resolve()
      clock.advance(250)
    }
  }
  return { copy, counts, stored, words, state, streams, settle }
}

const add = (copy: StreamCopy, from: number, count: number): void => {
  for (let i = from; i < from + count; i++) copy.add([bytes(String(i))])
}
const texts = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => String(from + i))

t.test('what came before the connection and during a failure is stored behind it, in order', async t => {
  const { copy, stored, words, state, streams, settle } = world()
  add(copy, 0, 3)
  copy.up(streams)
  await settle()
  t.equal(copy.isWhole, true)
  state.refuses = true
  add(copy, 3, 3)
  await settle()
  t.equal(copy.isWhole, false)
  add(copy, 6, 3)
  state.refuses = false
  await settle()
  t.equal(copy.isWhole, true)
  t.strictSame(stored, texts(0, 9))
  t.strictSame(words, [true, false, true])
  copy.close()
})

t.test('past the bound the oldest is lost to the stream, and counted', async t => {
  const { copy, counts, stored, streams, settle } = world()
  add(copy, 0, UNSTORED_MESSAGES_MAX + 5)
  t.equal(counts.streamLostMessages, 5)
  copy.up(streams)
  await settle()
  t.strictSame(stored, texts(5, UNSTORED_MESSAGES_MAX + 5))
  t.equal(copy.isWhole, true)
  copy.close()
})

t.test('without a connection, or streams at its broker, it is not whole', async t => {
  const { copy, counts, streams, settle } = world()
  copy.up(streams)
  await settle()
  copy.down()
  t.equal(copy.isWhole, false)
  copy.up(undefined)
  await settle()
  t.equal(copy.isWhole, false)
  t.ok(counts.streamFailures > 0)
  copy.close()
})
