import { SimulatedClock, seededRandom } from '@homing/base'
import {
  decodeKvBatch,
  decodeSnapshotBatch,
  type KvBatch,
  parseEventFrames,
  parseSnapshotReply,
  replayRequestFrames,
  snapshotRequestFrames,
} from '@homing/protocol'
import { MemoryNetwork } from '@homing/transport'
import t, { type Test } from 'tap'
import {
  BadBlockError,
  BlockSizeError,
  createPublisher,
  type KvPublisher,
  PublisherClosedError,
  type PublisherOptions,
  PublisherOptionsError,
  type StoredBlock,
} from '../src/index.ts'
import { PacedReplies, REPLY_TURNS_MAX } from '../src/paced-replies.ts'
import { replay, snapshot } from './asking.ts'
import { BLOCK_SIZE, keyOf, tokensOf } from './histories.ts'
import { NaiveCache } from './naive-cache.ts'

const EVENTS = 'tcp://10.0.0.1:5557'
const REPLAY = 'tcp://10.0.0.1:6557'

class World {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly messages = this.network.transport().messages
  readonly batches: { readonly sequence: number; readonly topic: string; readonly batch: KvBatch }[] = []
  publisher!: KvPublisher

  async open(t: Test, options: Partial<PublisherOptions> = {}): Promise<this> {
    this.publisher = await createPublisher({
      eventsEndpoint: EVENTS,
      replayEndpoint: REPLAY,
      blockSizeTokens: BLOCK_SIZE,
      messages: this.messages,
      clock: this.clock,
      random: seededRandom(1),
      ...options,
    })
    t.teardown(() => this.publisher.close())
    this.messages.subscribe(
      { endpoint: EVENTS, topic: '' },
      {
        message: frames => {
          const { sequence, topic, payload } = parseEventFrames(frames)
          this.batches.push({ sequence, topic, batch: decodeKvBatch(payload) })
        },
        connected() {},
        disconnected() {},
      },
    )
    await this.settle()
    return this
  }

  /** Until nothing is under way any more. */
  async settle(): Promise<void> {
    for (let i = 0; i < 50; i++) {
      await new Promise(resolve => setImmediate(resolve))
      this.clock.advance(1)
    }
  }

  /** Until a request that was made has arrived, and the first burst of its answer is out. */
  async firstBurst(): Promise<void> {
    while (this.publisher.stats.replays === 0) {
      await new Promise(resolve => setImmediate(resolve))
      this.clock.advance(0)
    }
  }

  async settled<T>(promise: Promise<T>): Promise<T> {
    await this.settle()
    return promise
  }
}

function world(t: Test, options?: Partial<PublisherOptions>): Promise<World> {
  return new World().open(t, options)
}

/** The blocks of a chain from `from` on. */
function blocks(chain: readonly number[], from = 0): readonly StoredBlock[] {
  return chain.slice(from).map((letter, i) => ({
    hash: keyOf(chain.slice(0, from + i + 1)),
    tokens: tokensOf([letter]),
  }))
}

t.test('what is called in one turn is one batch, and batches are numbered from 0', async t => {
  const w = await world(t, { topic: 'kv-events', dpRank: 2 })
  const { batches, publisher } = w
  publisher.stored(undefined, blocks([1, 2]))
  publisher.removed([keyOf([1, 2])])
  publisher.cleared()
  t.equal(publisher.nextSequence, 0, 'not before the turn ends')
  await Promise.resolve()
  publisher.stored(undefined, blocks([3]))
  await new Promise(resolve => setImmediate(resolve))
  await w.settle()
  t.strictSame(
    batches.map(({ sequence, topic, batch }) => [
      sequence,
      topic,
      batch.rank,
      ...batch.events.map(({ kind }) => kind),
    ]),
    [
      [0, 'kv-events', 2, 'stored', 'removed', 'cleared'],
      [1, 'kv-events', 2, 'stored'],
    ],
  )
})

t.test('a store has parent, tokens and block size as routers expect them', async t => {
  const w = await world(t)
  const { batches, publisher } = w
  publisher.stored(keyOf([1]), blocks([1, 2, 3], 1), {
    loraName: 'adapter',
    cacheSalt: 'tenant',
    tier: 'host',
  })
  publisher.flush()
  await w.settle()
  const [event] = batches[0]!.batch.events
  t.match(event, {
    kind: 'stored',
    tokens: tokensOf([2, 3]),
    blockSizeTokens: BLOCK_SIZE,
    tier: 'host',
    loraName: 'adapter',
    cacheSalt: 'tenant',
  })
  const cache = new NaiveCache().applyAll(batches[0]!.batch.events)
  t.equal(cache.blocks.get(`host/${keyOf([1, 2])}`)?.parent, keyOf([1]))
  t.equal(cache.blocks.get(`host/${keyOf([1, 2, 3])}`)?.parent, keyOf([1, 2]))
})

t.test('a batch ends early when it is full, and a long store is split', async t => {
  const w = await world(t, { batchBlocksMax: 2, batchEventsMax: 3 })
  const { batches, publisher } = w
  const chain = [1, 2, 3, 1, 2]
  publisher.stored(undefined, blocks(chain), { cacheSalt: 'tenant' })
  for (let i = 0; i < 4; i++) publisher.cleared()
  publisher.flush()
  await w.settle()
  t.strictSame(
    batches.map(({ batch }) =>
      batch.events.map(event => (event.kind === 'stored' ? event.hashes.length / 2 : event.kind)),
    ),
    [[2], [2], [1, 'cleared', 'cleared'], ['cleared', 'cleared']],
  )
  const whole = new NaiveCache()
  for (const { batch } of batches.slice(0, 2)) whole.applyAll(batch.events)
  t.equal(whole.orphans, 0, 'each part names its parent')
})

t.test('hashes are 64-bit integers, signed or not, or digests of 32 bytes', async t => {
  const w = await world(t)
  const { batches, publisher } = w
  const digest = new Uint8Array(32)
  new DataView(digest.buffer).setBigUint64(24, 2n ** 64n - 2n)
  const tokens = tokensOf([1])
  publisher.stored(undefined, [
    { hash: -1n, tokens },
    { hash: digest, tokens },
    { hash: 0n, tokens },
  ])
  publisher.removed([2n ** 64n - 1n])
  publisher.flush()
  await w.settle()
  t.strictSame(
    [...new NaiveCache().applyAll(batches[0]!.batch.events).blocks.keys()],
    [`device/${2n ** 64n - 2n}`, 'device/0'],
  )
})

t.test('a block of the wrong size is one clear error, and nothing of its call is published', async t => {
  const { publisher } = await world(t)
  const store = (tokens: readonly number[]) => () =>
    publisher.stored(undefined, [...blocks([1]), { hash: 9n, tokens }])
  t.throws(store([1, 2, 3]), new BlockSizeError({ index: 1, count: 2 }, 3, BLOCK_SIZE), 'too few')
  t.throws(store([1, 2, 3]), {
    code: 'HOMING_PUBLISHER_BLOCK_SIZE',
    message:
      'cannot publish block 1 of 2: it has 3 tokens and blockSizeTokens is 4; publish a block when it is full',
    details: { block: 1, tokens: 3, blockSizeTokens: 4 },
  })
  t.throws(store([1, 2, 3, 4, 5, 6, 7, 8]), { message: /one entry per block, or create the publisher with/ })
  publisher.flush()
  t.equal(publisher.nextSequence, 0)
})

t.test('hashes and tokens that no block can have are errors that say which', async t => {
  const { publisher } = await world(t)
  const tokens = tokensOf([1])
  const store =
    (hash: unknown, with_: ArrayLike<number> = tokens, parent?: bigint) =>
    () =>
      publisher.stored(parent, [...blocks([1]), { hash: hash as bigint, tokens: with_ }])
  for (const [call, message] of [
    [store(2n ** 64n), /block 1 of 2: hash 18446744073709551616 does not fit into 64 bits/],
    [store(7), /block 1 of 2: its hash is a number; use a bigint/],
    [store(new Uint8Array(8)), /its hash has 8 bytes; a digest has 32/],
    [store(keyOf([1])), /that of the parent or of a block before it/],
    [store(5n, tokens, 5n), /that of the parent or of a block before it/],
    [store(5n, [1, 2, 3, -1]), /its token 3 is -1; use whole numbers from 0 to 4294967295/],
    [store(5n, [1, 2, 3.5, 4]), /its token 2 is 3.5/],
    [() => publisher.removed([1n, 2n ** 64n]), /the removal of block 1 of 2: hash/],
    [() => publisher.stored(2n ** 64n, blocks([1])), /the parent: hash/],
    [
      () =>
        publisher.publishCxlStateTransition([1n], 'in_transit', {
          poolId: 0,
          accessibleWorkers: Array.from({ length: 1025 }, (_, i) => i),
        }),
      /1025 workers have access; name at most 1024/,
    ],
  ] as const) {
    t.throws(call, BadBlockError)
    t.throws(call, { code: 'HOMING_PUBLISHER_BAD_BLOCK', message })
  }
  publisher.flush()
  t.equal(publisher.nextSequence, 0)
})

t.test('options that cannot be are refused with their range', async t => {
  const open = (options: Partial<PublisherOptions>) =>
    createPublisher({
      eventsEndpoint: EVENTS,
      blockSizeTokens: 16,
      messages: new World().messages,
      ...options,
    })
  const stream = { namespace: 'a.b', retentionMs: 1000, bytesMax: 1000 }
  await t.rejects(open({ stream }), {
    code: 'HOMING_PUBLISHER_BAD_OPTIONS',
    message: "cannot create a publisher: stream.namespace is a.b, use 1 to 64 letters, digits, '-' and '_'",
  })
  await t.rejects(open({ blockSizeTokens: 0 }), PublisherOptionsError)
  await t.rejects(open({ blockSizeTokens: 0 }), {
    code: 'HOMING_PUBLISHER_BAD_OPTIONS',
    message: 'cannot create a publisher: blockSizeTokens is 0, use a whole number from 1 to 65536',
  })
  await t.rejects(open({ dpRank: 0.5 }), { message: /dpRank is 0.5/ })
  await t.rejects(open({ bufferBatchesMax: 5000, queuedMessagesMax: 5000 }), {
    message: /queuedMessagesMax is 5000, use a whole number from 5001 to 100000/,
  })
  await t.rejects(open({ eventsEndpoint: 'here' }), { code: 'HOMING_TRANSPORT_ENDPOINT' })
})

t.test('after close calls are refused, and what was queued has gone out', async t => {
  const w = await world(t)
  const { publisher } = w
  publisher.stored(undefined, blocks([1]))
  await publisher.close()
  await publisher.close()
  await w.settle()
  t.equal(publisher.nextSequence, 1)
  t.throws(() => publisher.cleared(), PublisherClosedError)
  t.throws(() => publisher.stored(undefined, blocks([1])), { code: 'HOMING_PUBLISHER_CLOSED' })
  t.strictSame([publisher.endpoint, publisher.replayEndpoint], ['', undefined])
})

t.test('batches are repeated in both framings, from where they are asked for', async t => {
  for (const [replayForm, frameCount] of [
    ['topic', 4],
    ['plain', 3],
  ] as const) {
    const w = await world(t, { replayForm, topic: 'kv', bufferBatchesMax: 3 })
    for (let letter = 0; letter < 5; letter++) {
      w.publisher.stored(undefined, blocks([letter]))
      w.publisher.flush()
    }
    const whole = await w.settled(replay(w.messages, REPLAY, 0))
    t.strictSame(
      whole.batches.map(({ sequence, topic }) => [sequence, topic]),
      [2, 3, 4].map(sequence => [sequence, replayForm === 'topic' ? 'kv' : '']),
    )
    t.strictSame([...whole.frameCounts], [frameCount])
    t.strictSame(
      (await w.settled(replay(w.messages, REPLAY, 4))).batches.map(({ sequence }) => sequence),
      [4],
    )
    t.strictSame((await w.settled(replay(w.messages, REPLAY, 2 ** 53 - 1))).batches, [])
    await w.publisher.close()
  }
})

t.test('a snapshot and the batches behind it give what the engine holds', async t => {
  const w = await world(t, { bufferBatchesMax: 1 })
  const { publisher } = w
  const empty = await w.settled(snapshot(w.messages, REPLAY))
  t.match(empty.replies, [{ kind: 'part', nextSequence: 0, part: 0, parts: 1, isWhole: true }])
  t.strictSame(empty.events, [])

  publisher.stored(undefined, blocks([1, 2, 3]))
  publisher.flush()
  publisher.stored(keyOf([1]), blocks([1, 1], 1))
  publisher.removed([keyOf([1, 2, 3])])
  const { replies, events } = await w.settled(snapshot(w.messages, REPLAY))
  t.match(replies, [{ kind: 'part', nextSequence: 2, isWhole: true }], 'what was queued is in it')

  publisher.stored(keyOf([1, 2]), blocks([1, 2, 0], 2))
  publisher.flush()
  await w.settle()
  const live = w.batches.filter(({ sequence }) => sequence >= 2).flatMap(({ batch }) => batch.events)
  const late = new NaiveCache().applyAll(events).applyAll(live)
  const early = new NaiveCache().applyAll(w.batches.flatMap(({ batch }) => batch.events))
  t.strictSame(late.state(), early.state())
  t.equal(late.orphans, 0)
})

t.test('a large cache comes in parts, all of one moment', async t => {
  const w = await world(t)
  for (let chain = 0; chain < 100; chain++) {
    const letters = Array.from({ length: 500 }, (_, i) => (i === 0 ? chain : i % 4))
    w.publisher.stored(undefined, blocks(letters))
  }
  const { replies, events } = await w.settled(snapshot(w.messages, REPLAY))
  t.ok(replies.length > 1)
  const headers = replies.map(reply => (reply.kind === 'part' ? [reply.part, reply.parts] : []))
  t.strictSame(
    headers,
    replies.map((_, part) => [part, replies.length]),
  )
  t.equal(new NaiveCache().applyAll(events).blocks.size, 50_000)

  const byHashes = await w.settled(snapshot(w.messages, REPLAY, 'hashes'))
  const first = {
    kind: 'part',
    form: 'hashes',
    offersHashes: true,
    part: 0,
    isWhole: true,
  }
  t.match(byHashes.replies[0], first)
  t.match(replies[0], { ...first, form: 'tokens' }, 'it says that it could have')
  const blocksOf = (all: typeof events) =>
    all.reduce((sum, event) => sum + (event.kind === 'stored' ? event.hashes.length / 2 : 0), 0)
  t.equal(blocksOf(byHashes.events), 50_000)
  t.ok(byHashes.events.every(event => event.kind === 'stored' && event.localHashes !== undefined))
})

t.test('where any block has a salt no snapshot offers hashes, since none would go by them', async t => {
  for (const cacheSalt of [undefined, 'a tenant']) {
    const w = await world(t)
    const more = cacheSalt === undefined ? {} : { cacheSalt }
    w.publisher.stored(undefined, blocks([1, 2, 3]))
    w.publisher.stored(undefined, blocks([2, 2, 3]), more)
    const { replies } = await w.settled(snapshot(w.messages, REPLAY))
    t.match(replies, [{ kind: 'part', form: 'tokens', offersHashes: cacheSalt === undefined }])
    const asked = await w.settled(snapshot(w.messages, REPLAY, 'hashes'))
    const isHashed = asked.events.map(event => event.kind === 'stored' && event.localHashes !== undefined)
    t.ok(isHashed.every(is => is === (cacheSalt === undefined)))
    await w.publisher.close()
  }
})

t.test('a burst of an answer hashes a few thousand blocks and no more', async t => {
  const w = await world(t)
  for (let chain = 0; chain < 50; chain++)
    w.publisher.stored(
      undefined,
      Array.from({ length: 1000 }, (_, i) => ({ hash: BigInt(chain * 1000 + i + 1), tokens: tokensOf([i]) })),
    )
  w.publisher.flush()
  let blocks = 0
  const dealer = w.messages.dial({ endpoint: REPLAY }, frames => {
    const reply = parseSnapshotReply(frames)
    if (reply.kind !== 'part') return
    for (const event of decodeSnapshotBatch(reply.payload).events)
      if (event.kind === 'stored') blocks += event.hashes.length / 2
  })
  t.teardown(() => dealer.close())
  dealer.send(snapshotRequestFrames('hashes'))
  while (w.publisher.stats.snapshots === 0) {
    await new Promise(resolve => setImmediate(resolve))
    w.clock.advance(0)
  }
  for (let i = 0; i < 50; i++) {
    await new Promise(resolve => setImmediate(resolve))
    w.clock.advance(0)
  }
  t.ok(blocks > 0 && blocks <= 8192, `${blocks} blocks at once`)
  await w.settle()
  t.equal(blocks, 50_000)
})

t.test('the answers are those of the documented ranges', async t => {
  const { publisher } = await world(t)
  publisher.stored(undefined, blocks([1]))
  t.match(publisher.getEventsInIdRange(0), { kind: 'events', batches: [{ sequence: 0 }] })
  t.match(publisher.getEventsInIdRange(), { kind: 'treeDump', lastEventId: 0, nextEventId: 1 })
  t.match(publisher.stats, {
    events: 1,
    storedBlocks: 1,
    removedBlocks: 0,
    publishedBatches: 1,
    blocks: 1,
    bufferedBatches: 1,
    replays: 0,
  })
})

t.test('more peers than are answered at full speed take turns; past all turns they are refused', async t => {
  const w = await world(t, { repliesMax: 1 })
  for (let batch = 0; batch < 200; batch++) {
    w.publisher.cleared()
    w.publisher.flush()
  }
  const first = Array.from({ length: REPLY_TURNS_MAX }, () => replay(w.messages, REPLAY, 0))
  const last = snapshot(w.messages, REPLAY)
  t.match((await w.settled(last)).replies, [{ kind: 'refused' }])
  while (w.publisher.stats.openReplies > 0) await w.settle()
  for (const replayed of first) t.equal((await w.settled(replayed)).batches.length, 200)
  t.match((await w.settled(snapshot(w.messages, REPLAY))).replies, [{ kind: 'part' }])
})

t.test('a peer that asks again and again is not sent more than a bound, until it connects anew', async t => {
  const peerBytesMax = 100_000
  const w = await world(t, { peerBytesMax })
  for (let first = 0; first < 300; first++) w.publisher.stored(undefined, blocks([first, 1, 2]))
  let bytes = 0
  let refused = 0
  const dealer = w.messages.dial({ endpoint: REPLAY }, frames => {
    if (parseSnapshotReply(frames).kind === 'refused') refused++
    for (const frame of frames) bytes += frame.length
  })
  dealer.send(snapshotRequestFrames())
  await w.settle()
  const snapshotBytes = bytes
  for (let i = 0; i < 20; i++) {
    dealer.send(snapshotRequestFrames())
    await w.settle()
  }
  t.ok(refused > 0)
  t.equal(w.publisher.stats.excessReplies, refused)
  t.ok(bytes >= peerBytesMax && bytes < peerBytesMax + 2 * snapshotBytes, `${bytes} bytes`)

  const before = bytes
  dealer.send(replayRequestFrames(0))
  await w.settle()
  t.equal(bytes, before, 'a replay gets no answer')
  t.equal(w.publisher.stats.excessReplies, refused + 1)
  t.match((await w.settled(snapshot(w.messages, REPLAY))).replies, [{ kind: 'part' }])
  dealer.close()
})

t.test('what peers were sent is forgotten when there are too many of them', async t => {
  const sent: number[] = []
  const replies = new PacedReplies({
    clock: new SimulatedClock(),
    peersMax: 1,
    peerBytesMax: 10,
    offer: identity => (sent.push(identity[0]! * 256 + identity[1]!) > 0 ? 'taken' : 'full'),
  })
  const ask = (peer: number): string => replies.begin(Uint8Array.of(peer >> 8, peer), [[new Uint8Array(10)]])
  t.equal(ask(0), 'begun')
  t.equal(ask(0), 'excess')
  for (let peer = 1; peer < 16_384; peer++) ask(peer)
  t.equal(ask(0), 'excess')
  ask(16_384)
  t.equal(ask(1), 'begun', 'the one that was silent longest')
  t.equal(ask(0), 'excess')
})

t.test('a replay that is under way survives that its batches are forgotten', async t => {
  const w = await world(t, { bufferBatchesMax: 200 })
  const publish = (count: number): void => {
    for (let batch = 0; batch < count; batch++) {
      w.publisher.cleared()
      w.publisher.flush()
    }
  }
  publish(200)
  const asked = replay(w.messages, REPLAY, 0)
  await w.firstBurst()
  publish(200)
  const sequences = (await w.settled(asked)).batches.map(({ sequence }) => sequence)
  t.strictSame(
    sequences,
    Array.from({ length: 200 }, (_, i) => i),
  )
})

t.test('close waits for answers that are under way, as long as it may', async t => {
  const w = await world(t)
  for (let batch = 0; batch < 1000; batch++) {
    w.publisher.cleared()
    w.publisher.flush()
  }
  const asked = replay(w.messages, REPLAY, 0)
  await w.firstBurst()
  const closed = w.publisher.close(10_000)
  t.throws(() => w.publisher.cleared(), PublisherClosedError)
  t.equal((await w.settled(asked)).batches.length, 1000)
  await closed
})
