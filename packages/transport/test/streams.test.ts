/**
 * Roles with a stream, at a real NATS server that keeps streams: whatever is lost or hangs, nothing is
 * believed that is not so.
 */

import { systemClock } from '@homing/base'
import {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  parseReplayReply,
  parseReplayRequest,
  replayRequestFrames,
} from '@homing/protocol'
import type { ConsumerInfo, JetStreamManager } from 'nats'
import t, { type Test } from 'tap'
import {
  type EventPath,
  type MessageTransport,
  resetStream,
  type StreamOptions,
  type Subscription,
} from '../src/index.ts'
import type { BrokerLink } from '../src/nats/broker.ts'
import { brokerMessages } from '../src/nats/messages.ts'
import { systemBrokers } from '../src/nats/system-broker.ts'
import { NatsServer, NO_NATS_SERVER } from '../src/testing.ts'
import { bytes, Inbox } from './inbox.ts'

const STREAM: StreamOptions = { namespace: 'fleet', retentionMs: 3_600_000, bytesMax: 2 ** 24 }
const NAME = 'homing-kv-fleet'

interface World {
  readonly server: NatsServer
  readonly endpoint: string
  readonly manager: JetStreamManager
  readonly warnings: Inbox<string>
  process(): MessageTransport
}

async function world(t: Test, streams: readonly string[] = []): Promise<World> {
  const server = await NatsServer.start({ streams })
  t.teardown(() => server.stop())
  const { streams: manager, close } = await server.manage()
  t.teardown(close)
  const warnings = new Inbox<string>()
  return {
    server,
    endpoint: server.endpoint('homing.kv.one'),
    manager,
    warnings,
    process() {
      const log = { warn: (_: unknown, text: string) => warnings.put(text) }
      const messages = brokerMessages({ clock: systemClock, log, openBroker: systemBrokers(systemClock) })
      t.teardown(() => messages.close())
      return messages
    },
  }
}

/** An engine that keeps its last batches, and repeats them if `replays`. */
async function publisherAt(
  t: Test,
  { endpoint, process }: World,
  { kept = 2, stream = STREAM as StreamOptions | undefined, replays = true } = {},
) {
  const messages = process()
  const ring: number[] = []
  const publisher = await messages.publish({ endpoint, stream })
  t.teardown(() => publisher.close())
  if (replays) {
    const router = await messages.serve({ endpoint }, (identity, frames) => {
      const from = parseReplayRequest(frames)
      if (from === undefined) return
      for (const sequence of ring.filter(one => one >= from))
        router.send(identity, encodeReplayReply('topic', 'kv', sequence, payloadOf(sequence)))
      router.send(identity, encodeReplayEnd('topic'))
    })
    t.teardown(() => router.close())
  }
  return {
    close: () => publisher.close(),
    say(from: number, count: number, life = '') {
      for (let sequence = from; sequence < from + count; sequence++) {
        ring.push(sequence)
        if (ring.length > kept) ring.shift()
        publisher.send(encodeEventFrames('kv', sequence, payloadOf(sequence, life)))
      }
    },
    forget: () => {
      ring.length = 0
    },
  }
}

const payloadOf = (sequence: number, life = ''): Uint8Array =>
  bytes(life === '' ? `batch ${sequence}` : `batch ${sequence} ${life}`)

interface Heard {
  readonly what: string
  readonly number: number
}

function follow(
  t: Test,
  messages: MessageTransport,
  endpoint: string,
  stream: StreamOptions | undefined = STREAM,
) {
  const inbox = new Inbox<Heard>()
  const subscription: Subscription = messages.subscribe(
    { endpoint, topic: '', stream },
    {
      message: (frames, number = 0) => inbox.put({ what: Buffer.from(frames[2]!).toString(), number }),
      connected: (path: EventPath = 'publisher') => inbox.put({ what: path, number: 0 }),
      disconnected: () => inbox.put({ what: 'disconnected', number: 0 }),
    },
  )
  t.teardown(() => subscription.close())
  const until = async (what: string): Promise<Heard> => {
    for (;;) {
      const heard = await inbox.next(what)
      if (heard.what === what) return heard
    }
  }
  return { inbox, subscription, until }
}

/** Sequences of a replay up to its end marker, or to the batch behind a hole. */
async function replay(
  t: Test,
  messages: MessageTransport,
  endpoint: string,
  from: number,
): Promise<(number | 'end')[]> {
  const inbox = new Inbox<number | 'end'>()
  const dealer = messages.dial({ endpoint, stream: STREAM }, frames => {
    dealer.took?.(1)
    const reply = parseReplayReply(frames)
    if (reply.kind !== 'malformed') inbox.put(reply.kind === 'end' ? 'end' : reply.sequence)
  })
  t.teardown(() => dealer.close())
  dealer.send(replayRequestFrames(from))
  const told: (number | 'end')[] = []
  for (;;) {
    const next = await inbox.next('a reply')
    const before = told.at(-1)
    told.push(next)
    if (next === 'end' || (before !== undefined && next !== (before as number) + 1)) break
  }
  dealer.close()
  return told
}

const sequences = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)

t.test('with a real server', { skip: NO_NATS_SERVER }, async t => {
  t.test('a follower takes batches from the stream, and they are acknowledged when it says so', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one)
    const { until, subscription } = follow(t, one.process(), one.endpoint)
    await until('stream')
    const numbers: Heard[] = []
    // One by one: what is published in one turn is one message of the stream.
    for (let i = 0; i < 3; i++) {
      engine.say(i, 1)
      numbers.push(await until(`batch ${i}`))
    }
    const [consumer] = await one.manager.consumers.list(NAME).next()
    const pending = async () => (await one.manager.consumers.info(NAME, consumer!.name)).num_ack_pending
    t.equal(await pending(), 3)
    subscription.done?.(numbers[1]!.number)
    while ((await pending()) !== 1);
    subscription.done?.(numbers[2]!.number)
    while ((await pending()) !== 0);
    subscription.close()
    while ((await one.manager.consumers.list(NAME).next()).length > 0);
  })

  t.test('one that follows without a stream hears the same publisher', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one)
    const { until } = follow(t, one.process(), one.endpoint, undefined)
    await until('publisher')
    engine.say(0, 1)
    await until('batch 0')
  })

  t.test('one with a stream follows a publisher without one itself', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one, { stream: undefined })
    const { until } = follow(t, one.process(), one.endpoint)
    await until('publisher')
    engine.say(0, 1)
    await until('batch 0')
  })

  t.test('two fleets at one broker: a publisher of another namespace is followed itself', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one, { stream: { ...STREAM, namespace: 'other' } })
    const { until } = follow(t, one.process(), one.endpoint)
    await until('publisher')
    engine.say(0, 1)
    await until('batch 0')
    t.rejects(one.manager.streams.info(NAME), /not found/)
  })

  t.test('what the publisher has forgotten is told by the stream, and the rest by the publisher', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one)
    const messages = one.process()
    const { until } = follow(t, messages, one.endpoint)
    await until('stream')
    engine.say(0, 1000)
    await until('batch 999')
    t.ok((await one.manager.streams.info(NAME)).state.messages < 100, 'many batches are one message')
    t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 1000), 'end'])
    t.strictSame(await replay(t, messages, one.endpoint, 700), [...sequences(700, 1000), 'end'])
    t.strictSame(await replay(t, messages, one.endpoint, 998), [998, 999, 'end'])
    t.strictSame(await replay(t, messages, one.endpoint, 1000), ['end'])
    engine.forget()
    t.strictSame(await replay(t, messages, one.endpoint, 990), [...sequences(990, 1000), 'end'])
  })

  t.test('a publisher that repeats nothing: the end of the stream is the end', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one, { replays: false })
    const messages = one.process()
    const { until } = follow(t, messages, one.endpoint)
    await until('stream')
    engine.say(0, 10)
    await until('batch 9')
    t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 10), 'end'])
  })

  t.test('the life before is in the stream, and not in the replay', async t => {
    const one = await world(t)
    const first = await publisherAt(t, one)
    const messages = one.process()
    const { until } = follow(t, messages, one.endpoint)
    await until('stream')
    first.say(0, 50)
    await until('batch 49')
    first.close()
    await until('disconnected')
    const second = await publisherAt(t, one)
    await until('stream')
    second.say(0, 20)
    await until('batch 19')
    t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 20), 'end'])
  })
  t.test('an engine that restarts in the life of its publisher: no end is told', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one)
    const messages = one.process()
    const { until, subscription } = follow(t, messages, one.endpoint)
    await until('stream')
    engine.say(0, 50)
    subscription.done?.((await until('batch 49')).number)
    engine.say(0, 20, 'of the second life')
    await until('batch 19 of the second life')
    const inbox = new Inbox<number | 'end'>()
    const dealer = messages.dial({ endpoint: one.endpoint, stream: STREAM }, frames => {
      const reply = parseReplayReply(frames)
      if (reply.kind !== 'malformed') inbox.put(reply.kind === 'end' ? 'end' : reply.sequence)
    })
    t.teardown(() => dealer.close())
    dealer.send(replayRequestFrames(0))
    t.match(await one.warnings.next('a warning'), /the stream cannot be read/)
    const told: (number | 'end')[] = []
    while (inbox.size > 0) told.push(await inbox.next('a reply'))
    t.strictSame(told, sequences(0, 50))
  })

  t.test('the more keys are followed, the fewer messages of each the broker sends ahead', async t => {
    const one = await world(t)
    const linked = Promise.withResolvers<BrokerLink>()
    const leave = systemBrokers(systemClock)([one.server.address]).join({
      up: link => linked.resolve(link),
      down() {},
      failed() {},
    })
    t.teardown(leave)
    const { streams } = await linked.promise
    await streams!.ensure(STREAM)
    const followed: { close(): void }[] = []
    for (let i = 0; i < 40; i++)
      followed.push(
        await streams!.consume(
          { stream: NAME, subject: `homing-kv.fleet.${i}`, name: `key-${i}` },
          { message() {}, ended() {} },
        ),
      )
    const allowed = async () => {
      const consumers: readonly (ConsumerInfo | null)[] = await one.manager.consumers.list(NAME).next()
      // One that is being deleted is listed as null.
      return consumers.flatMap(one => (one === null ? [] : [one.config.max_ack_pending]))
    }
    while ((await allowed()).some(count => count !== 64));
    for (const { close } of followed.splice(1)) close()
    while ((await allowed()).join() !== '256');
    followed[0]!.close()
  })

  t.test('messages of another program on the subject are passed over', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one)
    const messages = one.process()
    const { until, subscription } = follow(t, messages, one.endpoint)
    await until('stream')
    const subject = 'homing-kv.fleet.homing.kv.one'
    const noise = (count: number) =>
      one.server.say(
        Array.from({ length: count }, (_, i) => ({ subject, payload: bytes(`{"event": ${i}}`) })),
      )
    await noise(700)
    engine.say(0, 5)
    subscription.done?.((await until('batch 4')).number)
    await noise(700)
    engine.say(5, 5)
    subscription.done?.((await until('batch 9')).number)
    t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 10), 'end'])
  })

  t.test('a stream that is deleted under way: the publisher is followed, then the new stream', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one, { kept: 100 })
    const messages = one.process()
    const { until } = follow(t, messages, one.endpoint)
    await until('stream')
    engine.say(0, 10)
    await until('batch 9')
    await one.manager.streams.delete(NAME)
    await until('publisher')
    engine.say(10, 10)
    await until('batch 19')
    await until('stream')
    engine.say(20, 1)
    await until('batch 20')
    t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 21), 'end'])
  })

  t.test('without room at the broker the publisher is followed itself, and says why', async t => {
    const one = await world(t, ['  max_file_store: 1048576'])
    const engine = await publisherAt(t, one)
    const { until } = follow(t, one.process(), one.endpoint)
    await until('publisher')
    t.match(await one.warnings.next('a warning'), /the stream does not have all events/)
    engine.say(0, 1)
    await until('batch 0')
  })

  t.test('a stream whose messages must be smaller under way gets smaller ones, and all of them', async t => {
    const one = await world(t)
    const engine = await publisherAt(t, one, { kept: 1 })
    const messages = one.process()
    const { until } = follow(t, messages, one.endpoint)
    await until('stream')
    engine.say(0, 100)
    await until('batch 99')
    const { config } = await one.manager.streams.info(NAME)
    await one.manager.streams.update(NAME, { ...config, max_msg_size: 600 })
    engine.say(100, 100)
    await until('publisher')
    await until('stream')
    engine.say(200, 100)
    await until('batch 299')
    t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 300), 'end'])
  })

  t.test('batches that are larger than a message of the stream may be go in parts', async t => {
    const one = await world(t)
    const messages = one.process()
    const publisher = await messages.publish({ endpoint: one.endpoint, stream: STREAM })
    t.teardown(() => publisher.close())
    const { until, inbox } = follow(t, one.process(), one.endpoint)
    await until('stream')
    for (let i = 0; i < 3; i++)
      publisher.send(encodeEventFrames('kv', i, bytes(`batch ${i}`.padEnd(200_000, '.'))))
    for (let i = 0; i < 3; i++) t.match((await inbox.next('a batch')).what, new RegExp(`^batch ${i}\\.+$`))
    const { state } = await one.manager.streams.info(NAME)
    t.ok(state.bytes / state.messages < 2 ** 16 + 256, 'no message of the stream is larger')
  })

  t.test('a stream that has reached its bytes keeps the newest; the replay begins there', async t => {
    const one = await world(t)
    const small = { ...STREAM, bytesMax: 2 ** 18 }
    const engine = await publisherAt(t, one, { stream: small, kept: 1 })
    const messages = one.process()
    const { until, subscription } = follow(t, messages, one.endpoint, small)
    await until('stream')
    for (let i = 0; i < 10_000; i += 500) {
      engine.say(i, 500)
      const heard = await until(`batch ${i + 499}`)
      subscription.done?.(heard.number)
    }
    const told = await replay(t, messages, one.endpoint, 0)
    const first = told[0] as number
    t.ok(first > 0)
    t.strictSame(told, [...sequences(first, 10_000), 'end'])
  })

  t.test(
    'a publisher that is faster than its stream for too long: replays begin behind what it lost',
    async t => {
      const one = await world(t)
      const engine = await publisherAt(t, one, { kept: 1 })
      const messages = one.process()
      const { until, subscription } = follow(t, messages, one.endpoint)
      await until('stream')
      engine.say(0, 10)
      subscription.done?.((await until('batch 9')).number)
      engine.say(10, 20_000)
      t.match(await one.warnings.next('a warning'), /the stream does not have all events/)
      await until('stream')
      engine.say(20_010, 1)
      await until('batch 20010')
      const first = await replay(t, messages, one.endpoint, 0)
      t.strictSame(first.slice(0, 10), sequences(0, 10))
      const behind = first.at(-1) as number
      t.ok(behind > first.length, 'the hole is shown')
      t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(behind, 20_011), 'end'])
      t.strictSame(await replay(t, messages, one.endpoint, behind + 7), [
        ...sequences(behind + 7, 20_011),
        'end',
      ])
    },
  )

  t.test(
    'the broker is killed and comes back: what was published meanwhile is stored behind that',
    async t => {
      const one = await world(t)
      const engine = await publisherAt(t, one, { kept: 1 })
      const messages = one.process()
      const { until } = follow(t, messages, one.endpoint)
      await until('stream')
      engine.say(0, 10)
      await until('batch 9')
      await one.server.down()
      await until('disconnected')
      engine.say(10, 10)
      await one.server.up()
      await until('stream')
      engine.say(20, 1)
      await until('batch 20')
      t.strictSame(await replay(t, messages, one.endpoint, 0), [...sequences(0, 21), 'end'])
    },
  )

  t.test('a reset empties the stream', async t => {
    const one = await world(t)
    t.equal(await resetStream([one.server.address], 'fleet', systemClock), false)
    const engine = await publisherAt(t, one)
    const { until } = follow(t, one.process(), one.endpoint)
    await until('stream')
    engine.say(0, 10)
    await until('batch 9')
    t.equal(await resetStream([one.server.address], 'fleet', systemClock), true)
    t.equal((await one.manager.streams.info(NAME)).state.messages, 0)
  })

  t.test('a broker that keeps no streams, or a stream of another program: a stated error', async t => {
    const server = await NatsServer.start()
    t.teardown(() => server.stop())
    await t.rejects(resetStream([server.address], 'fleet', systemClock), {
      code: 'HOMING_TRANSPORT_STREAM',
      message: /-js/,
    })
    const one = await world(t)
    await one.manager.streams.add({ name: NAME, subjects: ['other.>'] })
    await publisherAt(t, one)
    await one.warnings.next('a warning')
  })
})
