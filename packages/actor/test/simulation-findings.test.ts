/** Faults found by simulations, one test each. */

import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { type ActorRef, defineActor, type Reply, type Supervision } from '@homing/actor'
import { createSimulation } from '@homing/actor/simulation'
import { type CodedError, SimulatedClock } from '@homing/base'
import t from 'tap'
import { OP, type PeerAddress } from '../src/links/frames.ts'
import type { Frame, LinkHandlers, ThreadLink } from '../src/links/link.ts'
import { ringBytes } from '../src/links/ring/ring.ts'
import { openRing } from '../src/links/ring/ring-link.ts'
import type { Runtime } from '../src/runtime/runtime.ts'
import { makeRuntime } from './linked-runtimes.ts'

const RING_WORDS = 1024

/** Opens a link as the life `uid`, and keeps what it is given. */
function openAs(
  uid: number,
  address: PeerAddress,
  previous?: ThreadLink,
): { link: ThreadLink; frames: Frame[] } {
  const frames: Frame[] = []
  let link: ThreadLink | undefined
  const handlers: LinkHandlers = {
    onFrame: frame => void frames.push({ ...frame }),
    onBatch: () => true,
    handedOver: () => 0,
    isHandled: () => true,
    onSilent() {},
    onClosed() {},
    onUnsendable() {},
    onUnreadable() {},
  }
  const runtime = {
    uid,
    counts: makeRuntime('counts', uid, new SimulatedClock()).counts,
    lives: {
      connect(
        _name: string,
        _uid: number,
        open: (handlers: LinkHandlers, previous?: ThreadLink) => ThreadLink,
      ) {
        link = open(handlers, previous)
      },
    },
  }
  openRing(runtime as unknown as Runtime, address)
  return { link: link!, frames }
}

t.test('what was said to a life that read nothing is not taken by the life after it', async t => {
  const toX = new SharedArrayBuffer(ringBytes(RING_WORDS))
  const open: MessagePort[] = []
  /** The addresses of the two ends when life `uid` of x starts. */
  const addresses = (uid: number, isHeir: boolean): [ofX: PeerAddress, ofMain: PeerAddress] => {
    const { port1, port2 } = new MessageChannel()
    open.push(port1, port2)
    const toMain = new SharedArrayBuffer(ringBytes(RING_WORDS))
    return [
      { name: 'x', uid, port: port1, out: toX, in: toMain, isHeir: false },
      { name: 'main', uid: 1, port: port2, out: toMain, in: toX, isHeir },
    ]
  }
  t.teardown(() => {
    for (const port of open) port.close()
  })
  const hello = (uid: number): Frame => ({ op: OP.HELLO, target: 0, corr: uid, body: 0, patches: 0 })
  const stop = (target: number): Frame => ({ op: OP.STOP, target, corr: 0, body: false, patches: 0 })
  const tell = (target: number): Frame => ({ op: OP.TELL, target, corr: 0, body: null, patches: 0 })

  // Life 2 dies before it opens its end; then life 3 does.
  const { link } = openAs(1, addresses(2, false)[0])
  for (const frame of [hello(2), stop(20), tell(21)]) link.send(frame)
  openAs(1, addresses(3, true)[0], link)
  for (const frame of [hello(3), stop(30)]) link.send(frame)
  const [ofX, ofMain] = addresses(4, true)
  openAs(1, ofX, link)
  for (const frame of [hello(4), stop(40)]) link.send(frame)
  const { frames } = openAs(4, ofMain)
  for (let rounds = 0; rounds < 100 && frames.length < 3; rounds++)
    await new Promise(resolve => setImmediate(resolve))
  t.strictSame(
    frames.map(({ op, target }) => [op, target]),
    [
      [OP.TELL, 21],
      [OP.HELLO, 0],
      [OP.STOP, 40],
    ],
  )
})

type BroodMessage =
  | { readonly type: 'brood'; readonly thread: string; readonly isRestarted?: boolean }
  | { readonly type: 'idle' }

const RESTARTED: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '1ms', max: '1ms' },
}

const brooder = defineActor(
  import.meta.url,
  'brooder',
)<BroodMessage, undefined>({
  setup(ctx) {
    return {
      brood({ thread, isRestarted = false }) {
        const supervised = isRestarted ? { supervision: RESTARTED } : {}
        ctx.spawn(brooder, { name: 'chick', args: undefined, thread, ...supervised })
      },
      idle() {},
    }
  },
})

t.test(
  'an actor that is spawned while main has not yet heard of the death of its thread ends, or lives',
  async t => {
    for (let seed = 1; seed <= 20; seed++) {
      const simulation = await createSimulation({ seed, pools: { core: { count: 2 } } })
      const parent = simulation.spawn(brooder, { name: 'parent', args: undefined, thread: 'core-1' })
      const other = simulation.spawn(brooder, { name: 'other', args: undefined, thread: 'core-0' })
      await simulation.run(undefined, { within: 10 })
      simulation.crash('core-0', 'beforeTurn')
      other.tell({ type: 'idle' })
      for (let spawn = 0; spawn < 30; spawn++) {
        parent.tell({ type: 'brood', thread: 'core-0' })
        await simulation.run(undefined, { within: 0.1 })
      }
      await simulation.run(undefined, { within: 500 })
      // Nothing that is left waits for a child that nobody has: its stop would take until it is given up.
      const beganMs = simulation.clock.nowMs()
      await simulation.settle(simulation.stop(parent))
      const tookMs = simulation.clock.nowMs() - beganMs
      t.ok(tookMs < 100, `seed ${seed}: ${tookMs.toFixed(3)} ms`)
      await simulation.settle(simulation.shutdown())
    }
  },
)

t.test(
  'a child whose parent died with its thread is not brought back with the thread of its own',
  async t => {
    let restarted = 0
    for (let seed = 1; seed <= 20; seed++) {
      const simulation = await createSimulation({ seed, pools: { core: { count: 2 } } })
      const other = simulation.spawn(brooder, { name: 'other', args: undefined, thread: 'core-0' })
      const parent = simulation.spawn(brooder, { name: 'parent', args: undefined, thread: 'core-1' })
      await simulation.run(undefined, { within: 10 })
      // So that main may hear of the death before it has read what the dead had sent.
      simulation.setFaults({ delay: 0.5, delayMsMax: 20 })
      simulation.crash('core-1', 'afterTurn')
      parent.tell({ type: 'brood', thread: 'core-0', isRestarted: true })
      await simulation.run(undefined, { within: 50 })
      simulation.crash('core-0', 'beforeTurn')
      other.tell({ type: 'idle' })
      await simulation.run(undefined, { within: 500 })
      const actors = await simulation.settle(simulation.describe())
      t.strictSame(JSON.stringify(actors).includes('chick'), false, `seed ${seed}`)
      restarted += (await simulation.settle(simulation.stats())).threadRestarts
      await simulation.settle(simulation.shutdown())
    }
    t.equal(restarted, 40, 'both threads died in every run')
  },
)

t.test('a child whose parent is dead, and main knows it by the link only, is not brought back', async t => {
  let orphans = 0
  for (let seed = 1; seed <= 200; seed++) {
    const simulation = await createSimulation({ seed, pools: { core: { count: 2 } } })
    const other = simulation.spawn(brooder, { name: 'other', args: undefined, thread: 'core-0' })
    const parent = simulation.spawn(brooder, { name: 'parent', args: undefined, thread: 'core-1' })
    parent.tell({ type: 'brood', thread: 'core-0', isRestarted: true })
    await simulation.run(undefined, { within: 10 })
    simulation.crash('core-0', 'beforeTurn')
    simulation.crash('core-1', 'beforeTurn')
    for (const ref of [other, parent]) ref.tell({ type: 'idle' })
    await simulation.run(undefined, { within: 500 })
    const actors = await simulation.settle(simulation.describe())
    if (JSON.stringify(actors).includes('chick')) orphans++
    t.equal((await simulation.settle(simulation.stats())).threadRestarts, 2)
    await simulation.settle(simulation.shutdown())
  }
  t.equal(orphans, 0)
})

t.test(
  'an actor that is spawned to a thread known to be dead starts in its next life, and is charged nothing',
  async t => {
    let spawned = 0
    for (let seed = 1; seed <= 20; seed++) {
      const simulation = await createSimulation({ seed, pools: { core: { count: 1 } } })
      const first = simulation.spawn(brooder, { name: 'first', args: undefined, thread: 'core-0' })
      await simulation.run(undefined, { within: 10 })
      simulation.crash('core-0', 'beforeTurn')
      first.tell({ type: 'idle' })
      const isDown = (): boolean =>
        simulation.flight('main', 100)!.some(({ kind, type }) => kind === 'linkClosed' && type === 'core-0')
      t.equal(await simulation.run(isDown, { within: 100 }), 'reached')
      const ended: string[] = []
      for (const supervision of [{ ...RESTARTED, max: 0 }, { directive: 'stop' }] satisfies Supervision[]) {
        const name = `${supervision.directive}, seed ${seed}`
        const ref = simulation.spawn(brooder, { name, args: undefined, thread: 'core-0', supervision })
        simulation.whenTerminated(ref).then(({ reason }) => void ended.push(`${name}: ${reason}`))
      }
      await simulation.run(undefined, { within: 500 })
      if (simulation.threads().find(({ name }) => name === 'core-0')?.lives === 2) spawned++
      t.strictSame(ended, [])
      await simulation.settle(simulation.shutdown())
    }
    t.equal(spawned, 20, 'the thread was replaced in every run')
  },
)

t.test('no life is linked with one that is known to be over', async t => {
  let together = 0
  for (let seed = 1; seed <= 200; seed++) {
    const simulation = await createSimulation({ seed, pools: { core: { count: 2 } } })
    const all = ['core-0', 'core-1'].map(thread =>
      simulation.spawn(brooder, { name: `on ${thread}`, args: undefined, thread }),
    )
    await simulation.run(undefined, { within: 10 })
    for (const thread of ['core-0', 'core-1']) simulation.crash(thread, 'beforeTurn')
    for (const ref of all) ref.tell({ type: 'idle' })
    await simulation.run(undefined, { within: 500 })
    const closed = new Set<number>()
    const seenByMain = simulation.flight('main', 1000)!
    for (const { kind, detail: life, type: name, atMs: startedMs } of seenByMain) {
      if (kind === 'linkClosed') closed.add(life)
      if (kind !== 'linkOpened' || closed.size === 0) continue
      const links = simulation
        .flight(name!, 1000)!
        .filter(event => event.kind === 'linkOpened' && event.atMs >= startedMs)
      t.strictSame(
        links.filter(({ detail }) => closed.has(detail)),
        [],
        `seed ${seed}: life ${life}`,
      )
    }
    if (closed.size === 2) together++
    await simulation.settle(simulation.shutdown())
  }
  t.equal(together, 200)
})

const noted: number[] = []

type NoterMessage =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'count'; readonly reply: Reply<number> }

const noter = defineActor(
  import.meta.url,
  'noter',
)<NoterMessage, undefined>({
  setup: () => ({
    note: ({ n }) => void noted.push(n),
    count: ({ reply }) => reply(noted.length),
  }),
})

const teller = defineActor(
  import.meta.url,
  'teller',
)<{ readonly type: 'start' }, undefined>({
  setup(ctx) {
    return {
      start() {
        const ref = ctx.spawn(noter, {
          name: 'noter',
          args: undefined,
          thread: 'core-0',
          supervision: RESTARTED,
        })
        for (let n = 0; n < 10; n++) ref.tell({ type: 'note', n })
      },
    }
  },
})

t.test('what an actor is told right after its spawn, and its dead thread had not taken, it gets', async t => {
  let waited = 0
  for (let seed = 1; seed <= 150; seed++) {
    noted.length = 0
    let taken = 0
    let isReplaced = false
    const simulation = await createSimulation({
      seed,
      pools: { core: { count: 2 } },
      // So that the heir of the thread may be told of its actors by main after it has read what they were
      // told.
      faults: { delay: 0.5, delayMsMax: 20 },
      observer: {
        taken({ op, body }, thread) {
          if (
            op === OP.TELL &&
            thread === 'core-0' &&
            (body as { type: string }).type === 'note' &&
            !isReplaced
          )
            taken++
        },
        started: () => {
          isReplaced = true
        },
      },
    })
    isReplaced = false
    const parent = simulation.spawn(teller, { name: 'parent', args: undefined, thread: 'core-1' })
    const other = simulation.spawn(brooder, { name: 'other', args: undefined, thread: 'core-0' })
    await simulation.run(undefined, { within: 10 })
    simulation.crash('core-0', 'beforeTurn')
    other.tell({ type: 'idle' })
    await simulation.run(undefined, { within: (seed % 10) / 10 })
    parent.tell({ type: 'start' })
    await simulation.run(undefined, { within: 500 })
    t.strictSame(noted, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].slice(taken), `seed ${seed}`)
    if (isReplaced) waited++
    await simulation.settle(simulation.shutdown())
  }
  t.equal(waited, 150, 'the thread was replaced in every run')
})

type ChainMessage = { readonly type: 'pass'; readonly to?: ActorRef<ChainMessage>; readonly n: number }

const chain = defineActor(
  import.meta.url,
  'chain',
)<ChainMessage, undefined>({
  setup: () => ({
    // Numbers of its own, so that both parts of the way are told apart.
    pass: ({ to, n }) => void to?.tell({ type: 'pass', n: n + 100 }),
  }),
})

t.test(
  'what two threads that die together had on the way between them is lost, and said to be lost at once',
  async t => {
    let lostCount = 0
    for (let seed = 1; seed <= 100; seed++) {
      const onTheWay = new Set<number>()
      const numberOf = ({ op, body }: Frame): number | undefined =>
        op === OP.TELL ? (body as { n?: number }).n : undefined
      const simulation = await createSimulation({
        seed,
        pools: { core: { count: 2 } },
        observer: {
          sent: frame => void onTheWay.add(numberOf(frame) ?? -1),
          taken: frame => void onTheWay.delete(numberOf(frame) ?? -1),
          lost(frame) {
            if (onTheWay.delete(numberOf(frame) ?? -1)) lostCount++
          },
        },
      })
      const writer = simulation.spawn(chain, { name: 'writer', args: undefined, thread: 'core-0' })
      const reader = simulation.spawn(chain, { name: 'reader', args: undefined, thread: 'core-1' })
      const other = simulation.spawn(brooder, { name: 'other', args: undefined, thread: 'core-0' })
      await simulation.run(undefined, { within: 10 })
      simulation.crash('core-1', 'beforeTurn')
      reader.tell({ type: 'pass', n: 0 })
      await simulation.run(undefined, { within: 0.05 })
      for (let n = 1; n <= 10; n++) writer.tell({ type: 'pass', to: reader, n })
      await simulation.run(undefined, { within: 0.3 })
      simulation.crash('core-0', 'beforeTurn')
      other.tell({ type: 'idle' })
      await simulation.run(undefined, { within: 500 })
      t.strictSame([...onTheWay], [], `seed ${seed}`)
      await simulation.settle(simulation.shutdown())
    }
    t.ok(lostCount > 0)
  },
)

t.test('what waited for a thread that is given up are dead letters, with a reason', async t => {
  const simulation = await createSimulation({ seed: 1, pools: { core: { count: 1 } }, threadRestartsMax: 0 })
  const ref = simulation.spawn(noter, { name: 'noter', args: undefined, thread: 'core-0' })
  await simulation.run(undefined, { within: 10 })
  noted.length = 0
  simulation.hang('core-0', '60m')
  for (let n = 0; n < 100; n++) t.equal(ref.tell({ type: 'note', n }), 'ok')
  simulation.killThread('core-0').catch(() => {})
  await simulation.run(undefined, { within: 100 })
  t.equal(ref.tell({ type: 'note', n: 100 }), 'dead')
  const { deadLetters, deadLettersByReason } = await simulation.settle(simulation.stats())
  t.equal(deadLettersByReason.dead, 101)
  t.equal(deadLetters, 101)
  await simulation.settle(simulation.shutdown())
})

t.test('nothing of the real heap is seen in a simulation', async t => {
  const simulation = await createSimulation({ seed: 1, pools: { core: { count: 1 } } })
  const ref = simulation.spawn(noter, { name: 'noter', args: undefined, thread: 'core-0' })
  // The heap is looked at every 256 turns.
  for (let n = 0; n < 600; n++) {
    ref.tell({ type: 'note', n })
    await simulation.run(undefined, { within: 1 })
  }
  const { total } = simulation.counters()
  // Of both threads.
  t.match(total, { heapUsedBytes: 0, heapLimitBytes: 2 * 2 ** 32 })
  await simulation.settle(simulation.shutdown())
})

const settled: string[] = []

const asker = defineActor(
  import.meta.url,
  'asker',
)<{ readonly type: 'go' }, { readonly to: ActorRef<NoterMessage> }>({
  setup(ctx, { to }) {
    return {
      go() {
        for (let n = 0; n < 10; n++) to.tell({ type: 'note', n })
        const beganMs = ctx.clock.nowMs()
        const settle = (outcome: string): void =>
          void settled.push(`${outcome} ${ctx.clock.nowMs() - beganMs < 50 ? 'at once' : 'late'}`)
        to.ask({ type: 'count' }, { timeout: '10s' }).then(
          () => settle('answered'),
          (error: CodedError) => settle(error.code),
        )
      },
    }
  },
})

t.test('to a life that starts while another thread is away, it is away too', async t => {
  for (let seed = 1; seed <= 20; seed++) {
    noted.length = 0
    settled.length = 0
    const simulation = await createSimulation({
      seed,
      pools: { core: { count: 2 } },
      threadBackoff: { min: '500ms', max: '500ms' },
    })
    const to = simulation.spawn(noter, {
      name: 'noter',
      args: undefined,
      thread: 'core-0',
      supervision: RESTARTED,
    })
    const from = simulation.spawn(asker, {
      name: 'asker',
      args: { to },
      thread: 'core-1',
      supervision: RESTARTED,
    })
    await simulation.run(undefined, { within: 10 })
    // The first life comes back at once, the second after its backoff.
    for (const thread of ['core-0', 'core-0', 'core-1']) {
      simulation.killThread(thread).catch(() => {})
      await simulation.run(undefined, { within: 20 })
    }
    from.tell({ type: 'go' })
    await simulation.run(undefined, { within: 100 })
    t.strictSame(noted, [], 'the thread is away')
    t.strictSame(settled, ['HOMING_ACTOR_THREAD_DOWN at once'], `seed ${seed}`)
    await simulation.run(undefined, { within: 1000 })
    t.strictSame(noted, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], `seed ${seed}`)
    await simulation.settle(simulation.shutdown())
  }
})
