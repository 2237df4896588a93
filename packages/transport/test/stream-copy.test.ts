/**
 * What a publisher keeps for its stream: stored in order, again after a failure, the oldest lost past the
 * bound, and what the broker refuses for good passed over.
 */

import assert from 'node:assert/strict'
import { SimulatedClock } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { BrokerCounts } from '../src/broker-counts.ts'
import { StreamError } from '../src/errors.ts'
import { decodeFrames, decodePayload, encodeMessage, Parts, unpacked } from '../src/nats/payload.ts'
import { StreamCopy, UNSTORED_MESSAGES_MAX } from '../src/nats/stream-copy.ts'
import { type BrokerStreams, PACK_BYTES_MAX, STREAM_HEADER_BYTES } from '../src/nats/streams.ts'
import { bytes, text } from './inbox.ts'

const RUNS = Number(process.env['HOMING_STREAM_RUNS'] ?? 50)

function world() {
  const clock = new SimulatedClock()
  const counts = new BrokerCounts()
  const stored: string[] = []
  const words: boolean[] = []
  const state = {
    refuses: false,
    /** Of a message with its headers; what the stream says, and what it takes. */
    saysBytesMax: undefined as number | undefined,
    takesBytesMax: Number.POSITIVE_INFINITY,
    /** The message that is refused, counted from the next; those behind it are stored. */
    refusesAt: 0,
    /** The message whose answer is lost, in the same way: it is stored. */
    forgetsAt: 0,
  }
  const refused = (): Promise<never> => Promise.reject(new StreamError('cannot store', 'no room'))
  const ids = new Set<string>()
  const payloads: Uint8Array[] = []
  const streams = {
    ensure: () =>
      state.refuses
        ? refused()
        : Promise.resolve({ difference: undefined, messageBytesMax: state.saysBytesMax }),
    store(_: string, payload: Uint8Array, id: string) {
      if (state.refuses) return refused()
      if (payload.length + STREAM_HEADER_BYTES > state.takesBytesMax)
        return Promise.reject(new StreamError('cannot store', 'message size exceeds maximum allowed', true))
      if (state.refusesAt > 0 && --state.refusesAt === 0) return refused()
      if (ids.has(id)) return Promise.resolve()
      ids.add(id)
      payloads.push(payload)
      stored.push(...unpacked(payload).map(text))
      return state.forgetsAt > 0 && --state.forgetsAt === 0 ? refused() : Promise.resolve()
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
  return { clock, copy, counts, payloads, stored, words, state, streams, settle }
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

t.test('one that lost events is whole again while its engine goes on speaking', async t => {
  const { clock, copy, counts, stored, words, state, streams, settle } = world()
  copy.up(streams)
  await settle()
  state.refuses = true
  let number = 0
  const speak = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      add(copy, number++, 1)
      for (let turn = 0; turn < 8; turn++) await Promise.resolve()
      clock.advance(10)
    }
  }
  await speak(UNSTORED_MESSAGES_MAX + 500)
  t.equal(copy.isWhole, false)
  t.ok(counts.streamLostMessages > 0)
  state.refuses = false
  await speak(3000)
  t.equal(copy.isWhole, true)
  t.strictSame(words, [true, false, true])
  const lost = counts.streamLostMessages
  await speak(10)
  await settle()
  t.equal(counts.streamLostMessages, lost)
  t.strictSame(stored, texts(lost, number))
  copy.close()
})

t.test('what is under way while too much waits is stored, and not counted as lost', async t => {
  const { copy, counts, stored, streams, settle } = world()
  copy.up(streams)
  await settle()
  add(copy, 0, 10)
  // Its pack is under way, and not answered.
  await Promise.resolve()
  add(copy, 10, UNSTORED_MESSAGES_MAX)
  await settle()
  t.equal(stored.length + counts.streamLostMessages, UNSTORED_MESSAGES_MAX + 10)
  t.strictSame(stored.slice(0, 10), texts(0, 10))
  t.equal(copy.isWhole, true)
  copy.close()
})

/** The first frame of each message, as a reader of the stream puts them together. */
const read = (payloads: readonly Uint8Array[]): string[] => {
  const parts = new Parts()
  return payloads.flatMap(unpacked).flatMap(one => {
    const payload = decodePayload(one)
    const body = payload === undefined || payload === 'other-version' ? undefined : parts.add(payload)
    const frames = body && decodeFrames(body)
    return frames === undefined ? [] : [text(frames[0])]
  })
}
const SENDER = { life: '0'.repeat(16), connection: 1 }
const message = (name: string, size: number): readonly Uint8Array[] =>
  encodeMessage([bytes(name), new Uint8Array(size)], SENDER, 2 ** 20)

t.test('no message of the stream is larger than it, its broker and a pack may be', async t => {
  for (const saysBytesMax of [undefined, 20_000, 1000]) {
    const { copy, payloads, state, streams, settle } = world()
    Object.assign(state, { saysBytesMax, takesBytesMax: saysBytesMax ?? state.takesBytesMax })
    copy.up(streams, 50_000)
    for (const size of [10, 900, 10, 300_000, 3000, 10]) copy.add(message(String(size), size))
    await settle()
    t.equal(copy.isWhole, true)
    t.strictSame(read(payloads), ['10', '900', '10', '300000', '3000', '10'])
    const bytesMax = Math.min(50_000, (saysBytesMax ?? PACK_BYTES_MAX) - STREAM_HEADER_BYTES)
    t.ok(payloads.every(({ length }) => length <= bytesMax))
    copy.close()
  }
})

t.test('a stream that takes less than before gets what is not stored in smaller messages', async t => {
  const { copy, counts, payloads, state, streams, settle } = world()
  copy.up(streams)
  await settle()
  Object.assign(state, { saysBytesMax: 2000, takesBytesMax: 2000 })
  for (let i = 0; i < 100; i++) copy.add(message(String(i), 300))
  copy.add(message('large', 5000))
  await settle()
  t.equal(copy.isWhole, true)
  t.equal(counts.streamLostMessages, 0)
  t.strictSame(read(payloads), [...texts(0, 100), 'large'])
  copy.close()
})

t.test('what is refused for good is lost, counted and passed over; the rest is stored', async t => {
  const { copy, counts, payloads, state, streams, settle } = world()
  copy.up(streams)
  await settle()
  // The stream takes less than it says.
  state.takesBytesMax = 2000
  copy.add(message('before', 10))
  await settle()
  copy.add(message('large', 3000))
  await settle()
  copy.add(message('behind', 10))
  await settle()
  t.strictSame(read(payloads), ['before', 'behind'])
  t.equal(counts.streamLostMessages, 1)
  t.equal(copy.isWhole, true)
  copy.close()
})

t.test('a message in parts of which one is refused is in the stream once more, and whole', async t => {
  const { copy, payloads, state, streams, settle } = world()
  copy.up(streams)
  await settle()
  copy.add(message('before', 10))
  await settle()
  state.refusesAt = 2
  copy.add(message('large', 300_000))
  copy.add(message('behind', 10))
  await settle()
  copy.add(message('larger', 400_000))
  await settle()
  t.strictSame(read(payloads), ['before', 'behind', 'large', 'larger'])
  t.equal(copy.isWhole, true)
  copy.close()
})

t.test('after a failure one pack alone is under way until it is stored', async t => {
  const { copy, stored, state, streams, settle } = world()
  copy.up(streams)
  await settle()
  add(copy, 0, 1)
  await settle()
  state.refusesAt = 1
  add(copy, 1, 32 * 8)
  await settle()
  const numbers = stored.map(Number)
  t.strictSame(
    [...numbers].sort((a, b) => a - b),
    numbers.map((_, i) => i),
  )
  // Those that were under way with it are before it, and no others.
  t.ok(
    numbers.every((number, at) => at - number <= 32 * 3),
    String(numbers),
  )
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

const troubles = fc.array(
  fc.record({
    sizes: fc.array(fc.constantFrom(10, 300, 3000, 30_000), { maxLength: 6 }),
    trouble: fc.constantFrom('none', 'refused', 'forgotten', 'smaller', 'larger', 'lies'),
    at: fc.integer({ min: 1, max: 8 }),
  }),
  { minLength: 1, maxLength: 12 },
)

t.test(
  'whatever is refused, forgotten or to be smaller: a copy that lost nothing can be read whole',
  async t => {
    let losses = 0
    const reads = fc.asyncProperty(troubles, async steps => {
      const { copy, counts, payloads, state, streams, settle } = world()
      copy.up(streams)
      await settle()
      const added: string[] = []
      for (const { sizes, trouble, at } of steps) {
        if (trouble === 'refused') state.refusesAt = at
        if (trouble === 'forgotten') state.forgetsAt = at
        if (trouble === 'smaller') state.saysBytesMax = state.takesBytesMax = 500 + 700 * at
        if (trouble === 'larger') state.saysBytesMax = state.takesBytesMax = 100_000
        // It takes less than it says.
        if (trouble === 'lies') state.takesBytesMax = 300 * at
        for (const size of sizes) {
          added.push(`${added.length}`)
          copy.add(message(added.at(-1)!, size))
        }
        await settle()
      }
      Object.assign(state, { refusesAt: 0, forgetsAt: 0, saysBytesMax: 100_000, takesBytesMax: 100_000 })
      added.push('last')
      copy.add(message('last', 3000))
      await settle()
      assert.equal(copy.isWhole, true)
      const heard = read(payloads)
      assert.ok(heard.every(name => added.includes(name)))
      const once = new Set(heard)
      assert.equal(once.has('last'), true, 'what was lost before spoils nothing')
      assert.ok(added.length - once.size <= counts.streamLostMessages, `${[...once]} of ${added.length}`)
      losses += counts.streamLostMessages
      copy.close()
    })
    await fc.assert(reads, { numRuns: RUNS })
    t.ok(losses > 0)
  },
)
