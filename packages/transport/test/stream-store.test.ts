/**
 * Snapshots beside a stream at a real NATS server: one holder of the lock, no older snapshot, no purge too
 * much.
 */

import { createHash } from 'node:crypto'
import { systemClock } from '@homing/base'
import { encodeEventFrames } from '@homing/protocol'
import { connect, type JetStreamClient, type KV } from 'nats'
import t, { type Test } from 'tap'
import { resetStream, type StreamOptions } from '../src/index.ts'
import { brokerStreamStore } from '../src/nats/broker-stream-store.ts'
import { brokerMessages } from '../src/nats/messages.ts'
import { withinMs } from '../src/nats/stream-errors.ts'
import { systemBrokers } from '../src/nats/system-broker.ts'
import { SystemSnapshots } from '../src/nats/system-snapshots.ts'
import { SystemStreams } from '../src/nats/system-streams.ts'
import { NatsServer, NO_NATS_SERVER, TcpProxy } from '../src/testing.ts'
import { bytes, Inbox, text } from './inbox.ts'

const STREAM: StreamOptions = { namespace: 'fleet', retentionMs: 3_600_000, bytesMax: 2 ** 24 }
const NAME = 'homing-kv-fleet'
const SUBJECT = 'homing.kv.one'

async function world(t: Test) {
  const server = await NatsServer.start({ streams: [] })
  t.teardown(() => server.stop())
  const { streams: manager, views, close } = await server.manage()
  t.teardown(close)
  const openBroker = systemBrokers(systemClock)
  const store = brokerStreamStore([server.address], STREAM, systemClock, openBroker)
  t.teardown(() => store.close())
  const messages = brokerMessages({ clock: systemClock, log: { warn() {} }, openBroker })
  t.teardown(() => messages.close())
  return { server, manager, views, store, messages }
}

/** A publisher that has published this number of batches, and one that follows it. */
async function published(
  t: Test,
  { server, messages, manager }: Awaited<ReturnType<typeof world>>,
  count: number,
  {
    batchBytes = 0,
    messageBytesMax,
  }: { readonly batchBytes?: number; readonly messageBytesMax?: number } = {},
) {
  const endpoint = server.endpoint(SUBJECT)
  if (messageBytesMax !== undefined)
    await manager.streams.add({
      ...{ name: NAME, subjects: ['homing-kv.fleet.>'], max_msg_size: messageBytesMax },
      ...{ max_age: STREAM.retentionMs * 1_000_000, max_bytes: STREAM.bytesMax },
    })
  const heard = new Inbox<{ readonly what: string; readonly number: number }>()
  const lives = new Inbox<string>()
  const publisher = await messages.publish({ endpoint, stream: STREAM })
  const subscription = messages.subscribe(
    { endpoint, topic: '', stream: STREAM },
    {
      message: (frames, number = 0) => heard.put({ what: text(frames[2]), number }),
      connected: (path, life) => {
        if (path === 'stream') lives.put(life!)
      },
      disconnected() {},
    },
  )
  t.teardown(() => {
    publisher.close()
    subscription.close()
  })
  const life = await lives.next('the stream')
  const numbers: number[] = []
  for (let i = 0; i < count; i++) {
    publisher.send(encodeEventFrames('', i, bytes(`batch ${i}`.padEnd(batchBytes))))
    // What is published in one turn is one message of the stream.
    numbers.push((await heard.next('a batch')).number)
  }
  const state = async () => (await manager.streams.info(NAME)).state
  const more = async (): Promise<number> => {
    publisher.send(encodeEventFrames('', count, bytes('one more')))
    return (await heard.next('a batch')).number
  }
  return { life, numbers, subscription, state, more }
}

t.test(
  'a look whose questions are never answered ends, and what fails behind the end is no fault',
  async t => {
    const never = Promise.withResolvers<number>()
    await t.rejects(
      withinMs(20, () => never.promise),
      /no whole answer within 20 ms/,
    )
    never.reject(new Error('late'))
    t.equal(await withinMs(10_000, async () => 1), 1)
    await t.rejects(
      withinMs(10_000, () => Promise.reject(new Error('at once'))),
      /at once/,
    )
  },
)

t.test('beside a stream', { skip: NO_NATS_SERVER }, async t => {
  t.test('a snapshot is what was stored last, by one who knew of the one before', async t => {
    const { store, manager } = await world(t)
    const snapshot = (name: string) => ({ bytes: bytes(name), life: '0'.repeat(16), keepFrom: 0 })
    t.equal(await store.read(SUBJECT), undefined)
    t.match(await store.named(SUBJECT), { revision: 0 })
    t.equal(await store.replace(SUBJECT, snapshot('first'), 0), 'replaced')
    t.equal(await store.replace(SUBJECT, snapshot('late'), 0), 'late')
    const { revision } = await store.named(SUBJECT)
    const large = { ...snapshot(''), keepFrom: 5, bytes: new Uint8Array(3_000_000).fill(7) }
    t.equal(await store.replace(SUBJECT, large, revision), 'replaced')
    t.equal(await store.replace(SUBJECT, snapshot('late'), revision), 'late')
    const named = await store.named(SUBJECT)
    t.match(named, { keepFrom: 5, life: '0'.repeat(16) })
    t.ok(named.ageMs < 60_000)
    t.equal(await store.replace(SUBJECT, snapshot('older'), named.revision), 'older')
    t.strictSame(await store.read(SUBJECT), large.bytes)
    t.equal(await store.read('homing.kv.two'), undefined)
    const { state } = await manager.streams.info(`OBJ_${NAME}-images`)
    t.ok(state.bytes < 3_200_000, 'what is no snapshot any more is gone')
    await store.tidy(new Set())
    t.strictSame(await store.read(SUBJECT), large.bytes)
  })

  t.test(
    'an entry that another program has written is a stated error, until a snapshot replaces it',
    async t => {
      const { store, views } = await world(t)
      const snapshot = { bytes: bytes('x'), life: '0'.repeat(16), keepFrom: 7 }
      await store.replace(SUBJECT, snapshot, 0)
      const entries = await views.kv(`${NAME}-snapshots`)
      for (const other of ['no JSON', 'null', '{"object":1}']) {
        for await (const key of await entries.keys()) await entries.put(key, other)
        await t.rejects(store.read(SUBJECT), { code: 'HOMING_TRANSPORT_STREAM' })
        await store.tidy(new Set())
        const { revision } = await store.named(SUBJECT)
        t.equal(await store.replace(SUBJECT, snapshot, revision), 'replaced')
        t.equal(text(await store.read(SUBJECT)), 'x')
      }
    },
  )

  t.test('a broker that takes longer for the whole than for one answer stores it all the same', async t => {
    const { server } = await world(t)
    const proxy = await TcpProxy.start(() => server.address)
    t.teardown(() => proxy.stop())
    proxy.slow(4000)
    const store = brokerStreamStore([proxy.address], STREAM, systemClock, systemBrokers(systemClock))
    t.teardown(() => store.close())
    const large = Uint8Array.from({ length: 12_000_000 }, (_, i) => i * i)
    t.equal(await store.replace(SUBJECT, { bytes: large, life: '0'.repeat(16), keepFrom: 0 }, 0), 'replaced')
    t.ok(Buffer.compare(large, (await store.read(SUBJECT))!) === 0)
    t.equal(await store.replace('homing.kv.two', { bytes: bytes(''), life: '', keepFrom: 0 }, 0), 'replaced')
    t.equal((await store.read('homing.kv.two'))?.length, 0, 'one without bytes, too')
  })

  t.test('of a worker that left, and of an upload that ended under way, nothing stays', async t => {
    const { server, manager } = await world(t)
    const connection = await connect({ servers: [server.address] })
    t.teardown(() => connection.close())
    let names = 0
    const store = new SystemSnapshots({
      ...{ connection, streams: new SystemStreams(connection), namespace: STREAM.namespace },
      ...{ newName: () => `name${names++}`, unnamedMs: 300 },
    })
    // A second is the shortest that a broker keeps a message.
    const second = { max_age: 1000 * 1_000_000, duplicate_window: 1000 * 1_000_000 }
    await manager.streams.add({ name: NAME, subjects: ['homing-kv.fleet.>'], ...second })
    const snapshot = { bytes: bytes('x'), life: '0'.repeat(16), keepFrom: 0 }
    for (const subject of ['homing.kv.left', 'homing.kv.known', 'homing.kv.tells'])
      t.equal(await store.replace(subject, snapshot, 0), 'replaced')
    const { revision } = await store.named('homing.kv.known')
    t.equal(await store.replace('homing.kv.known', snapshot, revision), 'replaced')
    connection.publish(`$O.${NAME}-images.C.under-way`, 'a chunk')
    const subjects = async (stream: string): Promise<number> => {
      const { state } = await manager.streams.info(stream, { subjects_filter: '>' })
      return Object.keys(state.subjects ?? {}).length
    }
    do {
      await connection.jetstream().publish('homing-kv.fleet.homing.kv.tells', 'something')
      await store.tidy(new Set(['homing.kv.known']))
    } while ((await subjects(`KV_${NAME}-snapshots`)) > 2 || (await subjects(`OBJ_${NAME}-images`)) > 4)
    t.equal(await store.read('homing.kv.left'), undefined)
    t.equal(text(await store.read('homing.kv.known')), 'x')
    t.equal(text(await store.read('homing.kv.tells')), 'x')
  })

  t.test(
    'an entry put there by hand, as docs/durable-events.md says, is read, and replaced later',
    async t => {
      const { store, views } = await world(t)
      await store.tidy(new Set())
      const key = createHash('sha256').update(SUBJECT).digest('hex').slice(0, 32)
      const entry = { object: `${key}.dynamo`, subject: SUBJECT, life: '0'.repeat(16), keepFrom: 0 }
      await (await views.os(`${NAME}-images`)).putBlob({ name: entry.object }, bytes('[]'))
      await (await views.kv(`${NAME}-snapshots`)).put(key, JSON.stringify(entry))
      t.equal(text(await store.read(SUBJECT)), '[]')
      await store.tidy(new Set())
      const { revision } = await store.named(SUBJECT)
      const next = { bytes: bytes('x'), life: '1'.repeat(16), keepFrom: 0 }
      t.equal(await store.replace(SUBJECT, next, revision), 'replaced')
      t.equal(text(await store.read(SUBJECT)), 'x')
    },
  )

  t.test('a snapshot that was switched to stays, though the answer to the switch is lost', async t => {
    const { server } = await world(t)
    const connection = await connect({ servers: [server.address] })
    t.teardown(() => connection.close())
    let isLost = false
    /** The connection, but for the answer to the first entry that is made. */
    const lossy = withMethod(connection, 'jetstream', made => {
      const client = made as JetStreamClient
      const views = withMethod(client.views, 'kv', async bucket =>
        withMethod(await (bucket as Promise<KV>), 'create', async revision => {
          const isFirst = !isLost
          isLost = true
          await revision
          if (isFirst) throw new Error('no answer')
          return revision
        }),
      )
      return new Proxy(client, {
        get: (target, key) => {
          const value: unknown = key === 'views' ? views : Reflect.get(target, key)
          return typeof value === 'function' ? value.bind(target) : value
        },
      })
    })
    let names = 0
    const store = new SystemSnapshots({
      ...{ connection: lossy, streams: new SystemStreams(connection), namespace: STREAM.namespace },
      ...{ newName: () => `name${names++}`, unnamedMs: 0 },
    })
    const snapshot = { bytes: bytes('x'), life: '0'.repeat(16), keepFrom: 7 }
    await t.rejects(store.replace(SUBJECT, snapshot, 0), { code: 'HOMING_TRANSPORT_STREAM' })
    t.ok(isLost)
    await store.tidy(new Set([SUBJECT]))
    t.equal(text(await store.read(SUBJECT)), 'x')
    t.match(await store.named(SUBJECT), { life: snapshot.life, keepFrom: 7 })
  })

  t.test('an entry whose object is gone says nothing, and the next snapshot takes its place', async t => {
    const { store, views } = await world(t)
    const snapshot = { bytes: bytes('x'), life: '0'.repeat(16), keepFrom: 7 }
    t.equal(await store.replace(SUBJECT, snapshot, 0), 'replaced')
    const images = await views.os(`${NAME}-images`)
    for (const { name } of await images.list()) await images.delete(name)
    const named = await store.named(SUBJECT)
    t.match(named, { life: '', keepFrom: 0, ageMs: Number.POSITIVE_INFINITY })
    t.equal(await store.replace(SUBJECT, snapshot, named.revision), 'replaced')
    t.equal(text(await store.read(SUBJECT)), 'x')
  })

  t.test('of a worker that is not known yet nothing is deleted', async t => {
    const { server, manager } = await world(t)
    const connection = await connect({ servers: [server.address] })
    t.teardown(() => connection.close())
    const store = new SystemSnapshots({
      ...{ connection, streams: new SystemStreams(connection), namespace: STREAM.namespace },
      ...{ newName: () => 'name', unnamedMs: 0 },
    })
    const short = { max_age: 1_000_000_000, duplicate_window: 1_000_000_000 }
    await manager.streams.add({ name: NAME, subjects: ['homing-kv.fleet.>'], ...short })
    const snapshot = { bytes: bytes('x'), life: '0'.repeat(16), keepFrom: 0 }
    t.equal(await store.replace(SUBJECT, snapshot, 0), 'replaced')
    do await store.tidy(undefined)
    while ((await store.named(SUBJECT)).ageMs < 2000)
    t.equal(text(await store.read(SUBJECT)), 'x')
    await store.tidy(new Set())
    t.equal(await store.read(SUBJECT), undefined)
  })

  t.test('a stream that no publisher has made yet is empty', async t => {
    const { store } = await world(t)
    t.match(await store.fill(), { messages: 0, bytes: 0, ageMs: 0 })
  })

  t.test('one at a time has the lock, and one that lost it hears so', async t => {
    const { store, manager } = await world(t)
    const lock = await store.lock()
    t.ok(lock)
    t.equal(await store.lock(), undefined)
    t.equal(await lock!.renew(), true)
    // As when it has not renewed it in time.
    await manager.streams.purge(`KV_${NAME}-locks`)
    const other = await store.lock()
    t.ok(other)
    t.equal(await lock!.renew(), false)
    await lock!.release()
    t.equal(await other!.renew(), true)
    await other!.release()
    const next = await store.lock()
    t.ok(next)
    await next!.release()
  })

  t.test('the lock of one that died ends by itself, by the time of the broker', async t => {
    const { store, manager, views } = await world(t)
    const lock = await store.lock()
    t.ok(lock)
    t.equal(await store.lock(), undefined)
    // What is in the bucket lives shorter, until the lock of the dead one has gone. nats-server 2.9 sets its
    // timer anew only where there was none.
    const bucket = `KV_${NAME}-locks`
    const { config } = await manager.streams.info(bucket)
    const second = 1000 * 1_000_000
    for (const max_age of [0, second])
      await manager.streams.update(bucket, { ...config, max_age, duplicate_window: second })
    const locks = await views.kv(`${NAME}-locks`)
    while ((await locks.get('snapshots')) !== null);
    await manager.streams.update(bucket, config)
    const next = await store.lock()
    t.ok(next)
    t.equal(await lock!.renew(), false, 'the dead one would hear that it has lost it')
    await lock!.release()
    t.equal(await next!.renew(), true)
  })

  t.test('an upload by a clock that is a day late is not taken for an old one', async t => {
    const { store, views } = await world(t)
    const lock = await store.lock()
    const images = await views.os(`${NAME}-images`)
    const SystemDate = Date
    globalThis.Date = class extends SystemDate {
      constructor(...given: [] | [number]) {
        super(given.length === 0 ? SystemDate.now() - 86_400_000 : given[0])
      }
    } as DateConstructor
    try {
      await images.putBlob({ name: 'under-way' }, bytes('of another router'))
    } finally {
      globalThis.Date = SystemDate
    }
    await store.tidy(new Set())
    t.equal(text((await images.getBlob('under-way')) ?? undefined), 'of another router')
    await lock!.release()
  })

  t.test('the age of a stream goes by the time of the broker, whatever the clock here says', async t => {
    const one = await world(t)
    await published(t, one, 1)
    const SystemDate = Date
    for (const shiftMs of [86_400_000, -86_400_000]) {
      globalThis.Date = class extends SystemDate {
        static override now = () => SystemDate.now() + shiftMs
        constructor(...given: [] | [number]) {
          super(given.length === 0 ? SystemDate.now() + shiftMs : given[0])
        }
      } as DateConstructor
      try {
        const { ageMs } = await one.store.fill()
        t.ok(ageMs >= 0 && ageMs < 60_000, `${ageMs}`)
      } finally {
        globalThis.Date = SystemDate
      }
    }
  })

  t.test('no more is purged than the snapshot has and every consumer has dealt with', async t => {
    const one = await world(t)
    const { life, numbers, subscription, state, more } = await published(t, one, 100)
    const fill = await one.store.fill()
    t.match(fill, { messages: 100, bytesMax: STREAM.bytesMax, ageMsMax: STREAM.retentionMs })
    t.ok(fill.bytes > 100 && fill.messagesMax === undefined, JSON.stringify(fill))
    t.equal(await one.store.purge(SUBJECT, { life, keepFrom: 50 }), 0, 'nothing is dealt with yet')
    subscription.done?.(numbers[29]!)
    const floor = async () => {
      const [consumer] = await one.manager.consumers.list(NAME).next()
      return consumer!.ack_floor.stream_seq
    }
    while ((await floor()) < 30);
    t.equal(await one.store.purge(SUBJECT, { life, keepFrom: 50 }), 30)
    subscription.done?.(await more())
    while ((await floor()) < 101);
    t.equal(await one.store.purge(SUBJECT, { life: 'f'.repeat(16), keepFrom: 1000 }), 0, 'of another life')
    t.equal(await one.store.purge(SUBJECT, { life, keepFrom: 50 }), 20)
    t.equal((await state()).first_seq, 51)
    t.equal(await one.store.purge('homing.kv.two', { life, keepFrom: 50 }), 0)
    t.equal(await one.store.purge('homing.kv.two'), 0)
    t.equal(await one.store.purge(SUBJECT), 51, 'without a snapshot: all that is dealt with')
    t.equal((await state()).messages, 0)
  })

  t.test('what comes in parts is purged, too, and so is what is before messages of others', async t => {
    const one = await world(t)
    const sizes = { batchBytes: 3000, messageBytesMax: 1024 }
    const { life, numbers, subscription, state } = await published(t, one, 60, sizes)
    const { last_seq: last } = await state()
    t.equal(last, 240, 'each batch is four messages')
    const stranger = await connect({ servers: [one.server.address] })
    t.teardown(() => stranger.close())
    for (let i = 0; i < 10; i++) stranger.publish(`homing-kv.fleet.${SUBJECT}`, `not ours ${i}`)
    await stranger.flush()
    subscription.done?.(numbers.at(-1)!)
    const floor = async () => (await one.manager.consumers.list(NAME).next())[0]!.ack_floor.stream_seq
    while ((await floor()) < last);
    t.equal(await one.store.purge(SUBJECT, { life: 'f'.repeat(16), keepFrom: 1000 }), 0, 'of another life')
    t.equal(await one.store.purge(SUBJECT, { life, keepFrom: 40 }), 160)
  })

  t.test('a reset deletes snapshots and empties the stream', async t => {
    const one = await world(t)
    const { life } = await published(t, one, 10)
    await one.store.replace(SUBJECT, { bytes: bytes('x'), life, keepFrom: 0 }, 0)
    t.equal(await resetStream([one.server.address], 'fleet', systemClock), true)
    const store = brokerStreamStore([one.server.address], STREAM, systemClock, systemBrokers(systemClock))
    t.teardown(() => store.close())
    t.equal(await store.read(SUBJECT), undefined)
    t.match(await store.fill(), { messages: 0, ageMs: 0 })
  })

  t.test(
    'buckets that are deleted under way are made anew; without a broker it is a stated error',
    async t => {
      const { server, store, manager } = await world(t)
      const snapshot = { bytes: bytes('x'), life: '0'.repeat(16), keepFrom: 0 }
      await store.replace(SUBJECT, snapshot, 0)
      for (const bucket of ['OBJ_homing-kv-fleet-images', 'KV_homing-kv-fleet-snapshots'])
        await manager.streams.delete(bucket)
      await t.rejects(store.replace(SUBJECT, snapshot, 0), { code: 'HOMING_TRANSPORT_STREAM' })
      t.equal(await store.replace(SUBJECT, snapshot, 0), 'replaced')
      await server.down()
      await t.rejects(store.read(SUBJECT), { code: 'HOMING_TRANSPORT_STREAM' })
    },
  )
})

/** `object`, whose method `name` has its answer changed. */
function withMethod<T extends object>(object: T, name: keyof T, change: (answer: never) => unknown): T {
  return new Proxy(object, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key)
      if (typeof value !== 'function') return value
      if (key !== name) return value.bind(target)
      return (...given: unknown[]) => change(value.apply(target, given) as never)
    },
  })
}
