/** Mistakes in the calling code are reported to the caller, and harm no other actor. */

import {
  type ActorRef,
  type Behavior,
  createActorSystem,
  defineCapability,
  MalformedMessageError,
  type Message,
  type Reply,
  type Signal,
  signal,
  UnhandledMessageError,
  UnserializableMessageError,
} from '@homing/actor'
import { createSimulation, runSeeds } from '@homing/actor/simulation'
import { createTestSystem } from '@homing/actor/testing'
import t from 'tap'
import { echo, parent } from './fixtures/echo.ts'
import { typed } from './fixtures/typed.ts'
import { actor, startSystem } from './inline-actors.ts'
import { soon, startThreads } from './thread-systems.ts'

type Told =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'get'; readonly reply: Reply<number> }

/** Counts its notes. */
const counting = actor<Told>(() => {
  let notes = 0
  return { note: () => void notes++, get: m => m.reply(notes) }
})

const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

const malformed: readonly unknown[] = [
  null,
  undefined,
  7,
  'note',
  {},
  [],
  { type: 7 },
  { type: null },
  revoked(),
]

t.test('what is no message is a dead letter, and the actor goes on', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(counting, { name: 'a', args: undefined })
  for (const message of malformed) t.equal(ref.tell(message as never), 'dead')
  for (const message of malformed) await t.rejects(ref.ask(message as never, soon), MalformedMessageError)
  ref.tell({ type: 'note', n: 1 })
  t.equal(await ref.ask({ type: 'get' }, soon), 1)
  const { deadLettersByReason, asksPending } = await sys.stats()
  t.equal(deadLettersByReason.malformed, malformed.length)
  t.equal(asksPending, 0)
})

t.test(
  'what is no message is a dead letter also when its actor is on another thread, has ended or is its sender',
  async t => {
    const sys = await startThreads(t)
    const far = sys.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
    const ended = sys.spawn(counting, { name: 'ended', args: undefined })
    await sys.stop(ended)
    for (const ref of [far as unknown as ActorRef<Told>, ended]) {
      for (const message of malformed) t.equal(ref.tell(message as never), 'dead')
      for (const message of malformed) await t.rejects(ref.ask(message as never, soon), MalformedMessageError)
    }
    const itself = sys.spawn(
      actor<Told>(ctx => {
        ctx.schedule(0, null as never)
        ctx.pipe(
          Promise.resolve(),
          () => ({ type: 7 }) as never,
          () => null as never,
        )
        let notes = 0
        return { note: () => void notes++, get: m => m.reply(notes) }
      }),
      { name: 'itself', args: undefined },
    )
    itself.tell({ type: 'note', n: 1 })
    t.equal(await itself.ask({ type: 'get' }, soon), 1)
    t.equal(await far.ask({ type: 'where' }, soon), 'p-0', 'its thread goes on')
    const { threadRestarts } = await sys.stats()
    t.equal(threadRestarts, 0)
  },
)

t.test('a message that loses its type on the way or while it waits is a dead letter', async t => {
  const sys = await startThreads(t)
  const far = sys.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
  t.equal(far.tell(Object.assign(/note/, { type: 'note', n: 1 }) as never), 'ok', 'a clone of it has no type')
  t.equal(await far.ask({ type: 'where' }, soon), 'p-0')
  const here = sys.spawn(counting, { name: 'here', args: undefined })
  const message: { type: string; n: number } = { type: 'note', n: 1 }
  here.tell(message as never)
  message.type = undefined as never
  t.equal(await here.ask({ type: 'get' }, soon), 0)
  const { deadLettersByReason, threadRestarts } = await sys.stats()
  t.equal(deadLettersByReason.malformed, 2)
  t.equal(threadRestarts, 0)
})

t.test('a message that cannot be read cannot travel; tell says so and does not throw', async t => {
  const sys = await startThreads(t)
  const ref = sys.spawn(typed, { name: 'typed', args: undefined, thread: 'p-0' })
  // From here on there is a link.
  await ref.ask({ type: 'add', a: 1, b: 2 }, soon)
  const unreadable = <M extends Message>(message: M, field: string): M =>
    Object.defineProperty(message, field, {
      enumerable: true,
      get() {
        throw new Error('no field')
      },
    })
  t.equal(ref.tell(unreadable({ type: 'note', n: 0, text: '' }, 'text')), 'dead')
  t.equal(ref.tell(unreadable({ type: 'odd', any: 0 }, 'any')), 'dead')
  const ask = ref.ask(unreadable({ type: 'add', a: 1, b: 2 }, 'b'), soon)
  await t.rejects(ask, UnserializableMessageError)
  t.equal((await sys.stats()).deadLettersByReason.unserializable, 2)
  t.match(await ref.ask({ type: 'tally' }, soon), { notes: 0, odd: [] })
})

const inherited = [
  'toString',
  'constructor',
  'valueOf',
  'hasOwnProperty',
  'isPrototypeOf',
  '__proto__',
  '__defineGetter__',
]

class Counter {
  notes = 0
  readonly #stopped: () => void

  constructor(stopped: () => void) {
    this.#stopped = stopped
  }

  note(_: object): void {
    this.notes++
  }

  get(m: { readonly reply: Reply<number> }): void {
    m.reply(this.notes)
  }

  [signal](given: Signal): void {
    if (given.type === 'stopped') this.#stopped()
  }
}

class LoudCounter extends Counter {
  override note(m: object): void {
    super.note(m)
  }
}

const behaviors: Readonly<Record<string, (stopped: () => void) => Behavior<Told>>> = {
  'a plain object': stopped => {
    const own = {
      notes: 0,
      note() {
        own.notes++
      },
      get(m: { readonly reply: Reply<number> }) {
        m.reply(this.notes)
      },
      [signal](given: Signal) {
        if (given.type === 'stopped') stopped()
      },
    }
    return own
  },
  'a frozen object': stopped => {
    let notes = 0
    return Object.freeze({
      note: () => void notes++,
      get: (m: { readonly reply: Reply<number> }) => m.reply(notes),
      [signal](given: Signal) {
        if (given.type === 'stopped') stopped()
      },
    })
  },
  'an object of a class': stopped => new LoudCounter(stopped),
}

for (const [what, make] of Object.entries(behaviors)) {
  t.test(`${what} is a behavior, and what every object inherits is no arm of it`, async t => {
    const sys = startSystem(t)
    let stops = 0
    const ref = sys.spawn(
      actor<Told>(() => make(() => void stops++)),
      { name: 'a', args: undefined },
    )
    for (const type of inherited) t.equal(ref.tell({ type } as never), 'ok')
    for (const type of inherited) await t.rejects(ref.ask({ type } as never, soon), UnhandledMessageError)
    ref.tell({ type: 'note', n: 1 })
    t.equal(await ref.ask({ type: 'get' }, soon), 1)
    t.equal((await sys.stats()).deadLettersByReason['no arm'], 2 * inherited.length)
    await sys.stop(ref)
    t.equal(stops, 1)
  })
}

t.test('what cannot travel is named by its path', async t => {
  const sys = await startThreads(t)
  const ref = sys.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
  const cyclic: { next?: object } = {}
  cyclic.next = cyclic
  class Session {}
  const unreadable = Object.defineProperty({}, 'field', {
    enumerable: true,
    get() {
      throw new Error('no field')
    },
  })
  const cases: readonly (readonly [unknown, string, string])[] = [
    [{ request: { user: { callback() {} } } }, 'value.request.user.callback', 'a function'],
    [{ list: [1, { of: Symbol('s') }] }, 'value.list[1].of', 'a symbol'],
    [{ 'not a name': new Session() }, 'value["not a name"]', 'an instance of Session'],
    [{ known: new Map([['a', { ref }]]) }, 'value.known', 'a Map or Set'],
    [cyclic, `value${'.next'.repeat(7)}…`, 'a value'],
    [{ unreadable }, 'value.unreadable.field', 'a value'],
    [() => {}, 'value', 'a function'],
  ]
  for (const [value, path, what] of cases) {
    await t.rejects(ref.ask({ type: 'echo', value }, soon), {
      code: 'HOMING_ACTOR_UNSERIALIZABLE',
      details: { path, what },
    })
  }
  const args = { told: { of: () => {} } } as never
  t.throws(() => sys.spawn(echo, { name: 'never', args, thread: 'p-0' }), {
    message:
      'cannot send told.of, a function, to another thread: only refs and the reply of an ask may travel',
  })
})

t.test('stop ends also an actor that is the child of another, on any thread', async t => {
  const sys = await startThreads(t)
  for (const childThread of ['main', 'p-0']) {
    const above = sys.spawn(parent, { name: 'parent', args: { childThread } })
    const child = await above.ask({ type: 'child' }, soon)
    t.equal(await child.ask({ type: 'where' }, soon), childThread)
    t.equal((await sys.stop(child)).reason, 'stopped')
    t.equal((await sys.stop(child)).reason, 'stopped', 'also when it has ended already')
    t.equal(child.tell({ type: 'note', n: 1 }), childThread === 'main' ? 'dead' : 'ok')
    t.strictSame(await above.ask({ type: 'events' }, soon), ['parent.child stopped'])
  }
})

t.test('options that mean nothing are RangeErrors at the call', async t => {
  const sys = startSystem(t)
  const backoff = { min: 10, max: 10 }
  const restart = { directive: 'restart', max: 1, within: '1s', backoff }
  const spawns: readonly (readonly [object, RegExp])[] = [
    [{ supervision: { directive: 'restrat' } }, /directive/],
    [{ supervision: { ...restart, backoff: undefined } }, /backoff/],
    [{ supervision: { ...restart, type: 'temporary' } }, /type/],
    [{ supervision: { ...restart, whenExhausted: 'restart' } }, /whenExhausted/],
    [{ mailbox: { capacity: 1, overflow: 'dropNew' } }, /overflow/],
    [{ name: undefined }, /name/],
    [{ mailbx: { capacity: 1 } }, /'mailbx'.*use name, args/],
    [{ mailbox: { capacity: 1, overflw: 'reject' } }, /'overflw'/],
    [{ mailbox: null }, /mailbox/],
    [{ supervision: { ...restart, maxi: 1 } }, /'maxi'/],
    [{ supervision: { ...restart, backoff: { ...backoff, jiter: 1 } } }, /'jiter'/],
    [{ supervision: 'restart' }, /supervision/],
    [{ thread: null }, /null/],
    [{ thread: '' }, /thread/],
    [{ thread: 7 }, /7/],
    [{ thread: { pool: 'p' } }, /key/],
    [{ shutdown: Number.NaN }, /NaN/],
  ]
  for (const [options, message] of spawns) {
    t.throws(
      () => sys.spawn(counting, { name: 'a', args: undefined, ...options } as never),
      { name: 'RangeError', message },
      JSON.stringify(options),
    )
  }
  t.throws(() => sys.spawn(undefined as never, { name: 'a', args: undefined }), {
    name: 'RangeError',
    message: /cannot spawn .*defineActor/,
  })
  t.throws(() => sys.spawn({} as never, { name: 'a', args: undefined }), { name: 'RangeError' })
  t.throws(() => sys.spawn(counting, undefined as never), { name: 'RangeError', message: /options/ })
  t.throws(() => actor<Told>(undefined as never), { name: 'RangeError', message: /setup/ })
  t.throws(() => actor<Told>(() => ({}) as never, { reentrent: true } as never), {
    name: 'RangeError',
    message: /'reentrent'/,
  })
  const ref = sys.spawn(counting, { name: 'a', args: undefined })
  await t.rejects(ref.ask({ type: 'get' }, undefined as never), { name: 'RangeError', message: /timeout/ })
  await t.rejects(ref.ask({ type: 'get' }, { timeout: Number.NaN }), {
    name: 'RangeError',
    message: "cannot use NaN as a duration: use milliseconds or '50ms', '2s', '5m'",
  })
  const asks: readonly (readonly [unknown, RegExp])[] = [
    [null, /timeout/],
    [500, /500/],
    [{ timout: '1s' }, /'timout'/],
    [
      { timeout: '1s', signall: AbortSignal.abort() },
      /'signall' in the ask of a: use timeout, signal, transfer/,
    ],
    [{ timeout: '1s', trasnfer: [] }, /'trasnfer'/],
    [{ timeout: '1s', signal: 'stop' }, /'stop' as signal/],
    [{ timeout: '1s', signal: null }, /null as signal/],
  ]
  for (const [options, message] of asks) {
    await t.rejects(
      ref.ask({ type: 'get' }, options as never),
      { name: 'RangeError', message },
      JSON.stringify(options),
    )
  }
  t.equal((await sys.stats()).asksPending, 0, 'none of them was sent')
  const stops: readonly (readonly [unknown, RegExp])[] = [
    [{ aftr: 'mailbox' }, /'aftr' in the options of a stop: use after, within/],
    [{ after: 'mailbox', withn: '1s' }, /'withn'/],
    [{ after: 'everything' }, /'everything'/],
    [{ within: '1s' }, /within/],
    ['mailbox', /'mailbox'/],
    [null, /null/],
  ]
  for (const [options, message] of stops) {
    await t.rejects(sys.stop(ref, options as never), { name: 'RangeError', message }, JSON.stringify(options))
    const stopper = sys.spawn(
      actor<Told>(ctx => ({ note: () => ctx.stop(undefined, options as never), get() {} })),
      { name: 'stopper', args: undefined },
    )
    stopper.tell({ type: 'note', n: 1 })
    const { reason, error } = await sys.whenTerminated(stopper)
    t.equal(reason, 'failed', JSON.stringify(options))
    t.match(error?.message, message)
  }
  t.equal(await ref.ask({ type: 'get' }, soon), 0, 'it goes on')
  const systems: readonly (readonly [object | null, RegExp])[] = [
    [{ pool: { p: { count: 1 } } }, /'pool'/],
    [{ pools: { p: { count: 1, size: 2 } } }, /'size'/],
    [
      { pools: { p: { count: 1, preload: 'file:///a.js' } } },
      /preload file:\/\/\/a\.js in pool p: use a list/,
    ],
    [{ pools: { p: null } }, /pool p/],
    [{ heapPressure: { shedAfter: 0.5 } }, /'shedAfter'/],
    [{ heapPressure: true }, /heapPressure/],
    [{ threadBackoff: { min: 1, most: 2 } }, /'most'/],
    [{ logLevel: 'verbose' }, /logLevel/],
    [{ logFormat: 'xml' }, /logFormat/],
    [{ hungAfter: Number.NaN }, /NaN/],
    [null, /options/],
  ]
  for (const [options, message] of systems) {
    await t.rejects(
      createActorSystem(options as never),
      { name: 'RangeError', message },
      JSON.stringify(options),
    )
  }
  for (const [options, message] of [
    [{ deadlin: 1 }, /'deadlin' in the options of a shutdown: use deadline, after, within/],
    [{ aftr: 'mailbox' }, /'aftr'/],
    [null, /null/],
  ] as const) {
    await t.rejects(async () => sys.shutdown(options as never), { name: 'RangeError', message })
  }
  t.throws(() => defineCapability({ name: 'c', create() {}, dispos() {} } as never), {
    name: 'RangeError',
    message: /'dispos' in capability c/,
  })
  for (const threadRestartsMax of [Number.NaN, -1, 0.5]) {
    await t.rejects(createActorSystem({ threadRestartsMax, logLevel: 'silent' }), {
      name: 'RangeError',
      message: /restarts/,
    })
  }
})

t.test('options of test systems and simulations that mean nothing are RangeErrors at the call', async t => {
  const tests: readonly (readonly [unknown, RegExp])[] = [
    [{ byRefrence: true }, /'byRefrence' in the options of a test system: use clock, /],
    [{ clok: 1 }, /'clok'/],
    [null, /null/],
  ]
  for (const [options, message] of tests) {
    t.throws(() => createTestSystem(options as never), { name: 'RangeError', message })
  }
  const faults: readonly (readonly [unknown, RegExp])[] = [
    [{ crsh: 0.01 }, /'crsh' in faults: use drop, /],
    [{ crash: 2 }, /2 as crash/],
    [{ drop: Number.NaN }, /NaN as drop/],
    [{ delay: '0.1' }, /'0.1' as delay/],
    [{ hangMsMax: -1 }, /-1 as hangMsMax/],
    [{ crashPoints: ['midturn'] }, /'midturn'/],
    [{ crashPoints: 'midTurn' }, /crashPoints/],
    [{ threads: 'p-0' }, /threads/],
    [null, /null/],
  ]
  const simulations: readonly (readonly [unknown, RegExp])[] = [
    [{}, /seed/],
    [{ seed: 'x' }, /seed/],
    [{ seed: 1, fault: {} }, /'fault' in the options of a simulation: use seed, /],
    [{ seed: 1, pools: { p: { size: 1 } } }, /'size' in pool p/],
    [{ seed: 1, pools: { p: { count: 0.5 } } }, /0.5 threads/],
    [{ seed: 1, threadBackoff: { min: 1, most: 2 } }, /'most'/],
    [null, /null/],
    ...faults.map(([given, message]) => [{ seed: 1, faults: given }, message] as const),
  ]
  for (const [options, message] of simulations) {
    await t.rejects(
      createSimulation(options as never),
      { name: 'RangeError', message },
      JSON.stringify(options),
    )
  }
  const simulation = await createSimulation({ seed: 1 })
  for (const [given, message] of faults) {
    t.throws(() => simulation.setFaults(given as never), { name: 'RangeError', message })
  }
  await t.rejects(
    simulation.run(() => true, { step: 5 } as never),
    { name: 'RangeError', message: /'step'/ },
  )
  await simulation.settle(simulation.shutdown())
  await t.rejects(runSeeds({ first: 1, count: 1, command: () => '', repeated: true } as never, never), {
    name: 'RangeError',
    message: /'repeated'/,
  })
})

async function never(): Promise<never> {
  throw new Error('no seed is to run')
}
