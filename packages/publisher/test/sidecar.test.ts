import assert from 'node:assert/strict'
import { SimulatedClock, seededRandom } from '@homing/base'
import {
  decodeKvBatch,
  encodeEventFrames,
  encodeKvBatch,
  KV_CLEARED,
  type KvEvent,
  kvRemoved,
  parseEventFrames,
  unreadEvents,
} from '@homing/protocol'
import { MemoryNetwork, type Publisher } from '@homing/transport'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { wordsOf } from '../src/engine-hash.ts'
import { Sidecar, type SidecarStatus } from '../src/index.ts'
import { replay, snapshot } from './asking.ts'
import { history, keyOf, storedChain } from './histories.ts'
import { NaiveCache } from './naive-cache.ts'

const ENGINE = 'tcp://10.0.0.1:5557'
const EVENTS = 'tcp://10.0.0.1:5657'
const REPLAY = 'tcp://10.0.0.1:6657'

/** An engine without replay, its sidecar, and a follower of the sidecar from the start. */
class World {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly messages = this.network.transport().messages
  readonly warnings: string[] = []
  /** What the engine holds, and what the follower believes. */
  engineCache = new NaiveCache()
  readonly follower = new NaiveCache()
  readonly followed: number[] = []
  /** The time stamps of the same. */
  readonly seconds: number[] = []
  /** The follower's conclusion from the batches alone: it knows everything that the engine holds. */
  followerIsWhole = false
  sidecar!: Sidecar
  #engine: Publisher | undefined
  /** By the engine's clock, which no restart sets back: two lives never publish the same batch. */
  #seconds = 1
  #sequence = 0

  async open({ topic = '' } = {}): Promise<this> {
    await this.startEngine()
    this.sidecar = await Sidecar.open({
      clock: this.clock,
      random: seededRandom(1),
      messages: this.messages,
      log: { info: () => 'ok', warn: (_, text) => void this.warnings.push(text) },
      engineEndpoint: ENGINE,
      eventsEndpoint: EVENTS,
      replayEndpoint: REPLAY,
      topic,
      replayForm: 'topic',
      queuedMessagesMax: 100_000,
      repliesMax: 4,
      bufferBatchesMax: 10_000,
    })
    this.messages.subscribe(
      { endpoint: EVENTS, topic: '' },
      {
        message: frames => {
          const { sequence, payload } = parseEventFrames(frames)
          this.followed.push(sequence)
          const batch = decodeKvBatch(payload)
          this.seconds.push(batch.timestampSeconds)
          this.follower.applyAll(batch.events)
          if (sequence === 0) this.followerIsWhole = true
          for (const event of batch.events) {
            if (event.kind === 'cleared') this.followerIsWhole = !event.isWithdrawal
          }
          if (unreadEvents(batch) > 0) this.followerIsWhole = false
        },
        connected() {},
        disconnected() {},
      },
    )
    await this.settle()
    return this
  }

  get status(): SidecarStatus {
    return this.sidecar.status()!
  }

  async startEngine(): Promise<void> {
    this.#engine = await this.messages.publish({ endpoint: ENGINE })
    this.#sequence = 0
    this.engineCache = new NaiveCache()
  }

  /**
   * Another process, on the same port. The connection may break in between, or come back before the sidecar
   * notices.
   */
  async restartEngine(noticed: boolean): Promise<void> {
    if (noticed) {
      this.#engine?.close()
      await this.settle()
      await this.startEngine()
      await this.settle()
    } else {
      this.#sequence = 0
      this.engineCache = new NaiveCache()
    }
  }

  publish(
    events: readonly KvEvent[],
    fate: 'sent' | 'lost' | 'twice' | 'garbled' | 'unknown' = 'sent',
    topic = '',
  ): void {
    this.engineCache.applyAll(events)
    const unknownEvents = fate === 'unknown' ? 1 : 0
    const batch = { timestampSeconds: this.#seconds++, rank: 0, events, unknownEvents }
    const payload = encodeKvBatch(batch, 'vllm-map')
    const frames = encodeEventFrames(topic, this.#sequence++, payload)
    if (fate === 'garbled') frames[2] = payload.subarray(0, payload.length - 1)
    for (let i = fate === 'twice' ? 2 : fate === 'lost' ? 0 : 1; i > 0; i--) this.#engine?.send(frames)
  }

  /** Sends a batch on this socket, from any engine. */
  send(sequence: number, seconds: number, events: readonly KvEvent[], rank = 0): void {
    const payload = encodeKvBatch({ timestampSeconds: seconds, rank, events }, 'vllm-map')
    this.#engine?.send(encodeEventFrames('', sequence, payload))
  }

  async settle(): Promise<void> {
    for (let i = 0; i < 10; i++) {
      await new Promise(resolve => setImmediate(resolve))
      this.clock.advance(100)
    }
  }

  async settled<T>(promise: Promise<T>): Promise<T> {
    await this.settle()
    return promise
  }
}

async function world(t: Test, options?: { readonly topic?: string }): Promise<World> {
  const w = await new World().open(options)
  t.teardown(() => w.sidecar.close(0))
  return w
}

function kinds(events: readonly KvEvent[]): readonly string[] {
  return events.map(event => (event.kind === 'cleared' && event.isWithdrawal ? 'withdrawn' : event.kind))
}

t.test('an engine is published again, with a replay and a snapshot that it does not have', async t => {
  const w = await world(t)
  w.publish([storedChain([1, 2], 0)])
  w.publish([storedChain([1, 3], 1), kvRemoved({ hashes: wordsOf([keyOf([1, 2])]) })])
  await w.settle()
  t.strictSame(w.followed, [0, 1])
  t.strictSame(w.follower.state(), w.engineCache.state())
  const again = await w.settled(replay(w.messages, REPLAY, 0))
  t.strictSame(new NaiveCache().applyAll(again.events).state(), w.engineCache.state())
  const { replies, events } = await w.settled(snapshot(w.messages, REPLAY))
  t.match(replies, [{ kind: 'part', nextSequence: 2, isWhole: true }])
  t.strictSame(new NaiveCache().applyAll(events).state(), w.engineCache.state())
  t.strictSame(w.warnings, [])
})

t.test('batches that were lost end what is known: a clear goes out before the next', async t => {
  const w = await world(t)
  w.publish([storedChain([1, 2], 0)])
  w.publish([kvRemoved({ hashes: wordsOf([keyOf([1, 2])]) })], 'lost')
  w.publish([storedChain([3], 0)])
  await w.settle()
  const { events, batches } = await w.settled(replay(w.messages, REPLAY, 0))
  t.strictSame(kinds(events), ['stored', 'withdrawn', 'stored'])
  t.strictSame(
    batches.map(({ sequence }) => sequence),
    [0, 1, 2],
  )
  t.match(w.status, { gaps: 1, clears: 1, isWhole: false, expectedSequence: 3, nextSequence: 3 })
  t.match(w.warnings, [/were lost: earlier events are withdrawn/])
  t.match((await w.settled(snapshot(w.messages, REPLAY))).replies, [{ isWhole: false }])

  w.publish([KV_CLEARED])
  w.publish([storedChain([2], 0)])
  await w.settle()
  t.equal(w.status.isWhole, true, 'the engine itself said that it is empty')
})

t.test('an engine that restarts has a new cache, noticed or not', async t => {
  for (const noticed of [true, false]) {
    const w = await world(t)
    w.publish([storedChain([1, 2], 0)])
    await w.settle()
    await w.restartEngine(noticed)
    t.equal(w.follower.blocks.size, noticed ? 0 : 2)
    w.publish([storedChain([3], 0)])
    await w.settle()
    t.strictSame(w.follower.state(), w.engineCache.state())
    t.match(w.status, {
      restarts: noticed ? 0 : 1,
      disconnections: noticed ? 1 : 0,
      clears: 2,
      isWhole: true,
    })
    const again = await w.settled(replay(w.messages, REPLAY, 1))
    t.strictSame(kinds(again.events), ['withdrawn', 'cleared', 'stored'])
    t.equal(w.followerIsWhole, true, 'it is told that the engine is new')
  }
})

t.test('who joins late is unsure of what was before, until the engine clears', async t => {
  const w = await world(t)
  w.publish([storedChain([1], 0)], 'lost')
  w.publish([storedChain([2], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, gaps: 0, clears: 1, nextSequence: 2 })
  const { events } = await w.settled(replay(w.messages, REPLAY, 0))
  t.strictSame(kinds(events), ['withdrawn', 'stored'], 'number 0 does not pass for the first of the engine')
  t.equal(w.followerIsWhole, false)
  w.publish([storedChain([3], 0)], 'twice')
  w.publish([KV_CLEARED])
  await w.settle()
  t.match(w.status, { isWhole: true, duplicates: 1 })
  t.equal(w.followerIsWhole, true)
})

t.test('a first batch that cannot be read leaves the start unknown', async t => {
  const w = await world(t)
  w.publish([storedChain([1], 0)], 'garbled')
  w.publish([storedChain([2], 0)])
  await w.settle()
  t.strictSame([w.status.isWhole, w.followerIsWhole], [false, false])
})

t.test('a batch that comes twice is published once', async t => {
  const w = await world(t)
  w.publish([storedChain([1], 0)])
  w.publish([storedChain([2], 0)], 'twice')
  w.publish([storedChain([3], 0)])
  await w.settle()
  t.match(w.status, { duplicates: 1, restarts: 0, clears: 0, nextSequence: 3 })
  t.strictSame(w.follower.state(), w.engineCache.state())
})

t.test('a batch that cannot be read may have removed something', async t => {
  const w = await world(t)
  w.publish([storedChain([1], 0)])
  w.publish([kvRemoved({ hashes: wordsOf([keyOf([1])]) })], 'garbled')
  w.publish([storedChain([2], 0)])
  await w.settle()
  t.match(w.status, { unreadable: 1, gaps: 0, clears: 1, isWhole: false, nextSequence: 3 })
  t.strictSame(w.follower.state(), w.engineCache.state())
})

t.test(
  'after an event of an unknown kind what is held is not known whole, until the engine clears',
  async t => {
    const w = await world(t)
    w.publish([storedChain([1], 0)])
    w.publish([storedChain([2], 0)], 'unknown')
    w.publish([storedChain([3], 0)], 'unknown')
    await w.settle()
    t.match(w.status, { unknownKinds: 2, unreadable: 0, clears: 0, isWhole: false, nextSequence: 3 })
    t.match(w.warnings, [/of unknown kinds/])
    t.strictSame([w.follower.blocks.size, w.followerIsWhole], [3, false])
    const { replies, events } = await w.settled(snapshot(w.messages, REPLAY))
    t.match(replies, [{ isWhole: false, mayBeStale: true }], 'what could not be read may have been a removal')
    t.equal(new NaiveCache().applyAll(events).blocks.size, 3)
    w.publish([KV_CLEARED, storedChain([4], 0)])
    await w.settle()
    t.strictSame([w.status.isWhole, w.followerIsWhole], [true, true])
    t.match((await w.settled(snapshot(w.messages, REPLAY))).replies, [{ isWhole: true, mayBeStale: false }])
  },
)

t.test('a removal counts whatever group it names: of the store, another, or none', async t => {
  for (const [stored, removed] of [
    [0, undefined],
    [undefined, 0],
    [0, 1],
    [3, 0],
  ]) {
    const w = await world(t)
    w.publish([storedChain([1, 2], 0, stored === undefined ? {} : { group: stored })])
    const hashes = wordsOf([keyOf([1, 2])])
    w.publish([kvRemoved({ hashes, ...(removed === undefined ? {} : { group: removed }) })])
    await w.settle()
    const { events } = await w.settled(snapshot(w.messages, REPLAY))
    t.strictSame(
      [...new NaiveCache().applyAll(events).blocks.keys()],
      [`device/${keyOf([1])}`],
      `stored under ${stored}, removed under ${removed}`,
    )
  }
})

t.test('events of another topic are skipped, and said once', async t => {
  const w = await world(t, { topic: 'kv' })
  w.publish([storedChain([1], 0)], 'sent', 'kv')
  w.publish([storedChain([2], 0)], 'sent', 'other')
  await w.settle()
  t.match(w.status, { foreignTopics: 1, nextSequence: 1 })
  t.match(w.warnings, [/another topic/])
})

t.test('what a follower holds is held by the engine, whatever happened', async t => {
  const step = fc.oneof(
    { weight: 8, arbitrary: fc.tuple(fc.constant('sent' as const), history) },
    { weight: 1, arbitrary: fc.tuple(fc.constantFrom('lost', 'twice', 'garbled', 'unknown'), history) },
    { weight: 1, arbitrary: fc.tuple(fc.constantFrom('restart', 'crash', 'cut'), fc.constant([])) },
  )
  const holds = fc.asyncProperty(fc.array(step, { maxLength: 25 }), async steps => {
    const w = await new World().open()
    let isUnnoticed = false
    for (const [step, events] of steps) {
      // Only the next batch shows a crash that broke no connection. If that batch were lost, the one after it
      // could have the expected number, and show nothing.
      const what: typeof step = step === 'lost' && isUnnoticed ? 'sent' : step
      isUnnoticed = what === 'crash' || (isUnnoticed && what === 'cut')
      if (what === 'restart') await w.restartEngine(true)
      else if (what === 'crash') await w.restartEngine(false)
      else if (what === 'cut') {
        w.network.disconnect(ENGINE)
        await w.settle()
        w.network.reconnect(ENGINE)
        await w.settle()
      } else {
        w.publish(events, what)
        await w.settle()
      }
      // After an unnoticed crash, only the engine's next batch shows it.
      if (what === 'crash' || what === 'lost') continue
      assert.equal(w.followerIsWhole, w.status.isWhole)
      const isSure = w.status.expectedSequence !== undefined && w.status.isWhole
      const engine = new Map(w.engineCache.state() as [string, unknown][])
      for (const [name, block] of w.follower.state() as [string, unknown][]) {
        if (isSure) assert.deepEqual(block, engine.get(name))
        else assert.ok(engine.has(name), `${name} is believed and not held`)
      }
      if (isSure) assert.equal(w.follower.blocks.size, engine.size)
    }
    assert.deepEqual(
      w.followed,
      w.followed.map((_, i) => i),
    )
    const { events } = await w.settled(snapshot(w.messages, REPLAY))
    assert.deepEqual(new NaiveCache().applyAll(events).state(), w.follower.state())
    await w.sidecar.close(0)
  })
  await t.resolves(fc.assert(holds, { numRuns: 60 }))
})

t.test('a batch 0 that comes late is no restart, and no history is whole because of it', async t => {
  const w = await world(t)
  w.send(1, 11, [storedChain([1, 3], 1), kvRemoved({ hashes: wordsOf([keyOf([1, 2])]) })])
  w.send(0, 10, [storedChain([1, 2], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, restarts: 0, late: 1, blocks: 0 })
  t.match(w.warnings.at(-1), /is older than the one before it/)
  w.send(2, 12, [storedChain([5], 0)])
  w.send(0, 13, [storedChain([6], 0)])
  await w.settle()
  t.match(w.status, { isWhole: true, restarts: 1, blocks: 1 }, 'a younger one is')
})

t.test('a batch left over from the life before, with just the number expected, is not believed', async t => {
  const w = await world(t)
  w.send(0, 10, [storedChain([1], 0)])
  w.send(1, 11, [storedChain([2], 0)])
  await w.settle()
  t.match(w.status, { isWhole: true, blocks: 2 })
  w.send(2, 5, [storedChain([3], 0)])
  w.send(3, 6, [KV_CLEARED, storedChain([4], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, late: 2, blocks: 0 }, 'nor is one behind it')
  w.send(2, 12, [storedChain([5], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, late: 2, restarts: 0, blocks: 1 })
})

t.test('a clock that is set back ends a history, and another one begins', async t => {
  const w = await world(t)
  w.send(0, 10_000, [storedChain([1], 0)])
  w.send(1, 9000, [storedChain([2], 0)])
  w.send(2, 9001, [storedChain([3], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, late: 2, blocks: 0 })
  w.clock.advance(1000)
  w.send(3, 9002, [storedChain([4], 0)])
  w.send(4, 9003, [storedChain([5], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, late: 2, blocks: 2 })
  w.send(5, 9004, [KV_CLEARED])
  await w.settle()
  t.match(w.status, { isWhole: true, blocks: 0 })
})

t.test('what the sidecar says itself is no younger than what it has heard', async t => {
  const w = await world(t)
  w.send(0, 10_000, [storedChain([1], 0)])
  w.send(5, 10_001, [storedChain([2], 0)])
  await w.settle()
  t.strictSame(w.seconds, [10_000, 10_000, 10_001], 'whatever its own clock says')
})

t.test('two publishers on the socket of one engine are noticed, and neither is published', async t => {
  const w = await world(t)
  for (let i = 0; i < 5; i++) {
    w.send(i, 10 + i, [storedChain([i], 0)])
    w.send(i, 10.5 + i, [storedChain([100 + i], 0)])
  }
  await w.settle()
  t.match(w.status, { isWhole: false, blocks: 0, restarts: 2 })
  t.strictSame(
    w.warnings.filter(text => /two publishers/.test(text)),
    ['two publishers number their batches on the socket of the engine: none of it is published for a while'],
  )
  t.strictSame(w.follower.state(), new NaiveCache().state())
  t.equal(w.followerIsWhole, false)

  w.send(5, 20, [storedChain([7], 0)])
  w.send(0, 21, [storedChain([8], 0)])
  await w.settle()
  t.match(w.status, { isWhole: false, blocks: 0 }, 'one setback is enough as long as it is not calm')
  w.clock.advance(10_000)
  w.send(0, 30, [storedChain([9], 0)])
  await w.settle()
  t.match(w.status, { isWhole: true, blocks: 1 }, 'an engine that restarts when all is calm is believed')
})

t.test('an engine that names another dp rank than before is not one engine', async t => {
  const w = await world(t)
  w.send(0, 10, [storedChain([1], 0)])
  w.send(1, 11, [storedChain([2], 0)], 1)
  await w.settle()
  t.match(w.status, { isWhole: false, blocks: 0 })
  t.match(w.warnings.at(-1), /two publishers/)
})
