/**
 * What can go wrong at the broker of a stream, with a real server: a full disk, limits that another hand has
 * set, names that are taken. Each ends with the publisher followed itself, and with the stream again when the
 * trouble is over.
 */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '@homing/base'
import { encodeEventFrames } from '@homing/protocol'
import { AckPolicy, connect, DiscardPolicy, type JetStreamManager } from 'nats'
import t, { type Test } from 'tap'
import type { EventPath, StreamOptions } from '../src/index.ts'
import { brokerMessages } from '../src/nats/messages.ts'
import { OwnLives } from '../src/nats/own-lives.ts'
import { ANSWER_MS_MAX } from '../src/nats/stream-errors.ts'
import { streamSubject } from '../src/nats/streams.ts'
import { systemBrokers } from '../src/nats/system-broker.ts'
import { SystemStreams } from '../src/nats/system-streams.ts'
import { NatsServer, type NatsServerOptions, NO_NATS_SERVER } from '../src/testing.ts'
import { text } from './inbox.ts'

const STREAM: StreamOptions = { namespace: 'fleet', retentionMs: 3_600_000, bytesMax: 2 ** 24 }
const NAME = 'homing-kv-fleet'
const DISK_BYTES = 4 * 2 ** 20
const BATCH_BYTES = 20_000

/** A disk of DISK_BYTES; undefined: this process may not mount one. */
function smallDisk(t: Test): string | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'homing-disk-'))
  const options = ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'tmpfs', folder]
  const isMounted = spawnSync('mount', options).status === 0
  t.teardown(() => {
    if (isMounted) spawnSync('umount', [folder])
    rmSync(folder, { recursive: true, force: true })
  })
  return isMounted ? folder : undefined
}

/** A publisher and one that follows it. */
async function world(
  t: Test,
  options: NatsServerOptions = {},
  own?: OwnLives,
  prepare: (manager: JetStreamManager) => Promise<void> = async () => {},
) {
  const server = await NatsServer.start({ streams: [], ...options })
  t.teardown(() => server.stop())
  const { streams: manager, close } = await server.manage()
  t.teardown(close)
  await prepare(manager)
  const warnings: string[] = []
  const process = (lives?: OwnLives) => {
    const log = { warn: (fields: object, text: string) => warnings.push(`${text} ${JSON.stringify(fields)}`) }
    const openBroker = systemBrokers(systemClock)
    const messages = brokerMessages({ clock: systemClock, log, openBroker, ...(lives && { own: lives }) })
    t.teardown(() => messages.close())
    return messages
  }
  const endpoint = server.endpoint('homing.kv.one')
  const publisher = await process().publish({ endpoint, stream: STREAM })
  t.teardown(() => publisher.close())
  const heard: string[] = []
  const subscription = process(own).subscribe(
    { endpoint, topic: '', stream: STREAM },
    {
      message(frames, number = 0) {
        heard.push(text(frames[2]).trim())
        subscription.done?.(number)
      },
      connected: (path: EventPath = 'publisher') => heard.push(path),
      disconnected: () => heard.push('disconnected'),
    },
  )
  t.teardown(() => subscription.close())
  /** How much of what was heard is looked through. */
  let from = 0
  const look = (what: RegExp): string | undefined => {
    const at = heard.findIndex((one, i) => i >= from && what.test(one))
    if (at < 0) return undefined
    from = at + 1
    return heard[at]
  }
  const next = async (what: RegExp, isOver = () => false): Promise<string | undefined> => {
    for (;;) {
      const found = look(what)
      if (found !== undefined || isOver()) return found
      await new Promise(resolve => setTimeout(resolve, 5))
    }
  }
  let sequence = 0
  const say = (): RegExp => {
    const payload = Buffer.from(`batch ${sequence}`.padEnd(BATCH_BYTES))
    publisher.send(encodeEventFrames('', sequence, payload))
    return new RegExp(`^batch ${sequence++}$`)
  }
  const told = (why: RegExp) => warnings.some(one => why.test(one))
  return {
    server,
    manager,
    next,
    told,
    /** Publishes one batch, and waits until it is heard. */
    hears: () => next(say()),
    /** Publishes until a warning says that the stream does not take it. */
    async fill(why: RegExp) {
      while (!told(why)) await next(say(), () => told(why))
    },
  }
}

t.test('with a real server', { skip: NO_NATS_SERVER }, async t => {
  t.test('what is read when the broker goes, or its stream, is an error of the stream', async t => {
    for (const trouble of ['the broker', 'the stream'] as const) {
      const server = await NatsServer.start({ streams: [] })
      t.teardown(() => server.stop())
      const connection = await connect({ servers: [server.address], reconnect: false })
      t.teardown(() => connection.close())
      const streams = new SystemStreams(connection)
      await streams.ensure(STREAM)
      const subject = streamSubject(STREAM.namespace, 'one')
      for (let i = 0; i < 600; i++) await streams.store(subject, Uint8Array.of(i & 255), `${i}`)
      let count = 0
      const read = async (): Promise<void> => {
        for await (const _ of streams.read(NAME, subject, 1)) {
          if (++count !== 100) continue
          if (trouble === 'the broker') await server.stop()
          else await (await server.manage()).streams.streams.delete(NAME)
        }
      }
      await t.rejects(read(), { code: 'HOMING_TRANSPORT_STREAM' }, trouble)
      t.ok(count >= 100 && count < 600, `${count} messages`)
    }
  })

  t.test('a thread that stands still while it reads gets all messages, each once', async t => {
    const server = await NatsServer.start({ streams: [] })
    t.teardown(() => server.stop())
    const connection = await connect({ servers: [server.address] })
    t.teardown(() => connection.close())
    const streams = new SystemStreams(connection)
    await streams.ensure({ ...STREAM, bytesMax: 2 ** 27 })
    const subject = streamSubject(STREAM.namespace, 'one')
    const count = 400
    // More than sockets hold: some of it is on its way when the request for it ends.
    for (let i = 0; i < count; i++) await streams.store(subject, new Uint8Array(60_000), `${i}`)
    const positions: number[] = []
    for await (const { position } of streams.read(NAME, subject, 1)) {
      positions.push(position)
      if (positions.length === 3 || positions.length === 200)
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ANSWER_MS_MAX + 200)
    }
    t.strictSame(
      positions,
      Array.from({ length: count }, (_, i) => i + 1),
    )
  })

  t.test('requests that bring nothing are made again, up to the end that the stream had', async t => {
    const server = await NatsServer.start({ streams: [] })
    t.teardown(() => server.stop())
    const connection = await connect({ servers: [server.address] })
    t.teardown(() => connection.close())
    /** What becomes of each request for messages, in order. */
    const fates: ('asleep' | 'nothing' | 'answered')[] = []
    let fetches = 0
    const client = connection.jetstream.bind(connection)
    connection.jetstream = options => {
      const made = client(options)
      const get = made.consumers.get.bind(made.consumers)
      made.consumers.get = async (stream, name) => {
        const consumer = await get(stream, name)
        const fetch = consumer.fetch.bind(consumer)
        consumer.fetch = async asked => {
          const fate = fates[fetches++] ?? 'answered'
          if (fate === 'nothing') return { async *[Symbol.asyncIterator]() {} } as never
          const messages = await fetch(asked)
          if (fate === 'asleep')
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ANSWER_MS_MAX + 200)
          return messages
        }
        return consumer
      }
      return made
    }
    const streams = new SystemStreams(connection)
    await streams.ensure(STREAM)
    const subject = streamSubject(STREAM.namespace, 'one')
    let stored = 0
    const store = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) await streams.store(subject, Uint8Array.of(1), `${stored++}`)
    }
    await store(300)
    const read = async (): Promise<number[]> => {
      const positions: number[] = []
      for await (const { position } of streams.read(NAME, subject, 1)) {
        if (positions.length === 0) await store(50)
        positions.push(position)
      }
      return positions
    }
    fates.push('asleep', 'nothing', 'answered', 'nothing', 'nothing', 'answered')
    t.strictSame(
      await read(),
      Array.from({ length: 300 }, (_, i) => i + 1),
    )
    fetches = 0
    fates.splice(0, fates.length, ...Array.from({ length: 10 }, () => 'nothing' as const))
    await t.rejects(read(), { code: 'HOMING_TRANSPORT_STREAM', message: /the broker sends no more/ })
    t.equal(fetches, 3)
  })

  t.test('the disk is full: the publisher is followed itself, and the stream when there is room', async t => {
    const streamsFolder = smallDisk(t)
    if (streamsFolder === undefined) {
      t.pass('skipped: no disk can be mounted here')
      return
    }
    const one = await world(t, { streamsFolder, streams: ['  max_file_store: 1073741824'] })
    await one.next(/^stream$/)
    t.ok(await one.hears())
    const ballast = join(streamsFolder, 'ballast')
    spawnSync('dd', ['if=/dev/zero', `of=${ballast}`, 'bs=64k'])
    await one.fill(/the stream does not have all events/)
    // nats-server 2.9 reads nothing from that connection any more, so the publisher is not heard, either.
    await one.next(/^(disconnected|publisher)$/)
    rmSync(ballast)
    await one.server.down()
    await one.server.up()
    await one.next(/^stream$/)
    t.ok(await one.hears())
  })

  t.test('a stream of another hand that discards what is new: the same, and why', async t => {
    const one = await world(t)
    await one.next(/^stream$/)
    const { config } = await one.manager.streams.info(NAME)
    await one.manager.streams.update(NAME, { ...config, max_bytes: 300_000, discard: DiscardPolicy.New })
    await one.fill(/maximum bytes exceeded/)
    await one.next(/^publisher$/)
    t.ok(await one.hears())
    await one.manager.streams.purge(NAME)
    await one.next(/^stream$/)
    t.ok(await one.hears())
  })

  t.test('a consumer of that name is there: the publisher is followed, then another name', async t => {
    const taken = '0123456789abcdef'
    const { newLife } = new OwnLives()
    let names = 0
    const own = new OwnLives(() => (names++ === 0 ? taken : newLife()))
    const one = await world(t, {}, own, async manager => {
      const subjects = ['homing-kv.fleet.>']
      await manager.streams.add({ name: NAME, subjects, max_age: 3_600_000_000_000, max_bytes: 2 ** 24 })
      await manager.consumers.add(NAME, { durable_name: taken, ack_policy: AckPolicy.Explicit })
    })
    await one.next(/^stream$/)
    t.ok(await one.hears())
    t.ok(one.told(/the stream cannot be followed/))
    t.ok(names > 1)
    const info = await one.manager.consumers.info(NAME, taken)
    t.equal(info.config.ack_policy, AckPolicy.Explicit, 'the consumer of another program is as it was')
  })
})
