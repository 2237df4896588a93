/**
 * Peers that ask and do not read, on real sockets: together they hold little, and a peer that reads is served
 * meanwhile.
 */

import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { SimulatedClock, systemClock } from '@homing/base'
import { snapshotRequestFrames } from '@homing/protocol'
import { type Offered, systemTransport } from '@homing/transport'
import t from 'tap'
import { createPublisher } from '../src/index.ts'
import { PacedReplies, REPLY_TURNS_MAX } from '../src/paced-replies.ts'
import { SharedSnapshots, SNAPSHOTS_MAX } from '../src/shared-snapshots.ts'
import { snapshot } from './asking.ts'

const ANY = 'tcp://127.0.0.1:0'
const SILENT = 200
const BLOCK_SIZE = 256
const WAIT_MS_MAX = 240_000
const frames = snapshotRequestFrames()

t.test('200 silent peers hold little, and an honest one gets its snapshot at once', async t => {
  // Timers fire, but no peer has been silent for long before the test says so.
  let passedMs = 0
  const publisher = await createPublisher({
    eventsEndpoint: ANY,
    replayEndpoint: ANY,
    blockSizeTokens: BLOCK_SIZE,
    clock: { ...systemClock, nowMs: () => passedMs },
  })
  const { messages, close } = systemTransport({ clock: systemClock, log: { warn() {} } })
  const silent: Socket[] = []
  t.teardown(async () => {
    close()
    for (const socket of silent) socket.destroy()
    await publisher.close()
  })
  const tokens = Array.from({ length: BLOCK_SIZE }, (_, i) => 100_000 + i)
  for (let hash = 1n; hash <= 16000n; hash++) publisher.stored(undefined, [{ hash, tokens }])
  publisher.flush()

  const before = process.memoryUsage().rss
  const port = Number(/\d+$/.exec(publisher.replayEndpoint!)![0])
  for (let i = 0; i < SILENT; i++) silent.push(await silentPeer(port))
  await until(() => publisher.stats.snapshots === SILENT)

  const { events } = await snapshot(messages, publisher.replayEndpoint!)
  t.equal(events.length, 16000, 'all of its 16 MB')
  // Its own answer may be open still: it is at its end a burst later.
  t.ok(publisher.stats.openReplies >= SILENT, 'it did not wait for one of the others to end')
  const grownMb = (process.memoryUsage().rss - before) / 1e6
  t.comment(`${SILENT} silent peers: ${grownMb.toFixed(0)} MB`)
  t.ok(grownMb < 250, `${grownMb.toFixed(0)} MB`)
  t.ok(publisher.stats.openSnapshots <= SNAPSHOTS_MAX)
  t.ok(publisher.stats.takenSnapshots < 10, 'peers at one state share a snapshot')

  // Each ends by itself: its answer first, its connection by the kernel.
  passedMs = 60_000
  await until(() => publisher.stats.openReplies === 0)
  t.ok(publisher.stats.unreadReplies >= SILENT)
})

t.test('past all places the answer that has been stalled longest is given up', async t => {
  const clock = new SimulatedClock()
  const got = new Map<number, number>()
  const peerOf = (identity: Uint8Array): number => identity[0]! * 256 + identity[1]!
  const replies = new PacedReplies({
    clock,
    peersMax: 2,
    peerBytesMax: 2 ** 30,
    // Peer 0 reads; the others take one message and no more.
    offer(identity): Offered {
      const peer = peerOf(identity)
      const count = got.get(peer) ?? 0
      if (peer > 0 && count > 0) return 'full'
      got.set(peer, count + 1)
      return 'taken'
    },
  })
  const ask = (peer: number): string =>
    replies.begin(
      Uint8Array.of(peer >> 8, peer),
      Array.from({ length: 1000 }, () => [new Uint8Array(10)]),
    )
  for (let peer = 1; peer <= 2 * REPLY_TURNS_MAX; peer++) ask(peer)
  t.equal(replies.size, 2 * REPLY_TURNS_MAX)
  t.equal(ask(0), 'busy', 'they may be about to read')
  const pass = async (ms: number): Promise<void> => {
    for (let i = 0; i < 10; i++) await new Promise(resolve => setImmediate(resolve))
    for (let passed = 0; passed < ms; passed += 50) clock.advance(50)
  }
  await pass(100)
  t.equal(ask(0), 'begun')
  await pass(200)
  t.equal(got.get(0), 1000, 'one that reads is served')
  await pass(10_000)
  t.equal(replies.size, 0, 'and the others are given up')
  t.equal(replies.givenUp, 2 * REPLY_TURNS_MAX)
})

t.test('however many peers ask at however many states, a few snapshots are open', async t => {
  let sequence = 0
  let repeatable = 0
  let open = 0
  const shared = new SharedSnapshots({
    take: () => {
      open++
      return {
        nextSequence: sequence,
        isWhole: true,
        mayBeStale: false,
        offersHashes: true,
        in: () => ({ count: 2, part: () => new Uint8Array(8) }),
        release: () => void open--,
      }
    },
    nextSequence: () => sequence,
    canRepeatFrom: from => from >= repeatable,
  })
  const taken = [shared.take('tokens')]
  for (sequence = 1; sequence < 100; sequence++) taken.push(shared.take('tokens'), shared.take('tokens'))
  t.equal(open, SNAPSHOTS_MAX)
  t.equal(shared.taken, SNAPSHOTS_MAX)
  t.equal(taken.at(-1)!.nextSequence, SNAPSHOTS_MAX - 1, 'the youngest, with the batches behind it')
  t.equal(taken.at(-1)!.part(0), taken.at(-2)!.part(0), 'a part is written once')

  const byHashes = shared.take('hashes')
  t.equal(shared.taken, SNAPSHOTS_MAX, 'a question in another form ends none')
  t.match(byHashes, { form: 'hashes', nextSequence: SNAPSHOTS_MAX - 1, parts: 2 })
  t.ok(taken[0]!.part(0), 'the oldest goes on')
  t.not(byHashes.part(0), taken.at(-1)!.part(0), 'each form has parts of its own')
  taken.push(byHashes)

  repeatable = 50
  t.equal(shared.take('tokens').nextSequence, 100)
  t.equal(open, SNAPSHOTS_MAX)
  t.equal(taken[0]!.part(1), undefined, 'the oldest has ended')
  for (const one of taken) one.release()
  t.equal(open, 1)
})

async function until(isSo: () => boolean): Promise<void> {
  for (
    const endMs = performance.now() + WAIT_MS_MAX;
    !isSo();
    await new Promise(resolve => setTimeout(resolve, 5))
  ) {
    if (performance.now() > endMs) throw new Error(`not within ${WAIT_MS_MAX} ms`)
  }
}

/** Speaks ZMTP 3.0 as a DEALER, asks for a snapshot and reads nothing from then on. */
async function silentPeer(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  const greeting = Buffer.alloc(64)
  greeting.set([0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0])
  greeting.write('NULL', 12)
  const property = (name: string, value: string): Buffer => {
    const size = Buffer.alloc(4)
    size.writeUInt32BE(value.length)
    return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), size, Buffer.from(value)])
  }
  const ready = Buffer.concat([Buffer.from('\x05READY'), property('Socket-Type', 'DEALER')])
  await once(socket, 'connect')
  let heard = 0
  const hears = async (bytes: number): Promise<void> => {
    while (heard < bytes) heard += (await once(socket, 'data'))[0].length
  }
  socket.write(greeting)
  await hears(64)
  socket.write(Buffer.concat([Buffer.from([4, ready.length]), ready]))
  await hears(65)
  for (const [index, frame] of frames.entries()) {
    socket.write(Buffer.concat([Buffer.from([index < frames.length - 1 ? 1 : 0, frame.length]), frame]))
  }
  socket.pause()
  return socket
}
