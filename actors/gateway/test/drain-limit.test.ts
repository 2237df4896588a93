/** What a worker still has at the limit of its drain: what goes on elsewhere, and what stays. */

import { createHash } from 'node:crypto'
import type { HttpExchange } from '@homing/transport'
import t from 'tap'
import { decisionFor } from './call-world.ts'
import {
  type Act,
  BEGUN,
  BODY,
  CHAT,
  DONE,
  event,
  LIMITS,
  REST,
  ROLE,
  run,
  SAME,
  SSE,
  seen,
  TEXT_CHOICE,
  text,
  WHOLE,
} from './continuation-world.ts'
import { start as startWorld } from './gateway-world.ts'
import { fleetOf, READ, WORKER, WORKER_HOST } from './sample-records.ts'
import { data, finish, head } from './worker-exchange.ts'

const OTHER = { ...WORKER, id: `${WORKER_HOST}:2`, instanceId: 2 }

t.test(
  'what a worker has at the limit of its drain goes on where it can, and stays where it cannot',
  async t => {
    const down = { ...OTHER, state: 'down' } as const
    const endless = { ...OTHER, models: [{ ...WORKER.models[0]!, maxModelTokens: undefined }] }
    const goes = { settled: ['aborted', 'ok'], sent: 2, said: 'one two' }
    const stays = { settled: ['ok'], sent: 1, said: 'one and more' }
    for (const [what, members, fleet, migrationsMax, expected] of [
      ['it may go on', {}, [OTHER], 1, goes],
      ['no other worker is up', {}, [down], 1, stays],
      ['no worker may go on', {}, [OTHER], 0, stays],
      ['none would take it', {}, [OTHER], 1, stays],
      ['none takes it', {}, [OTHER], 1, stays],
      ['logprobs', { logprobs: true }, [OTHER], 1, stays],
      ['a stop string may have begun', { stop: ['e!'] }, [OTHER], 1, stays],
      ['no limit of its length is known', { max_tokens: undefined }, [endless], 1, stays],
    ] as const) {
      let first: HttpExchange | undefined
      let isGone = false
      let hasMore = false
      const more = (): void => {
        if (first === undefined || isGone || hasMore) return
        hasMore = true
        data(text(' and'))(first)
      }
      const held: Act = exchange => {
        first = exchange
        exchange.onClientGone(() => {
          isGone = true
        })
      }
      const acts = [
        [...BEGUN, held],
        [head(200, SSE), REST],
      ]
      const { client, world, sent } = await run(t, acts, {
        body: { ...BODY, ...members },
        migrationsMax,
        dies: false,
        takes: () => what !== 'none would take it',
        refuses: () => what === 'none takes it',
        // It comes while the ids of the text are looked for.
        reads: () => more(),
      })
      world.ref.tell({ type: 'fleet', fleet: fleetOf(...fleet), overdue: [`${WORKER_HOST}:7`] })
      await world.system.settle()
      t.equal(sent.length, 1, 'that was another worker')
      world.ref.tell({ type: 'fleet', fleet: fleetOf(...fleet), overdue: [`${WORKER_HOST}:1`] })
      await world.system.settle()
      await world.system.advance(10)
      more()
      if (!isGone) finish(text(' more', 'stop') + DONE)(first!)
      await world.system.settle()
      t.strictSame(seen(client.body), [expected.said, 'done'], what)
      t.equal(sent.length, expected.sent, what)
      t.equal(isGone, expected.sent === 2, what)
      t.strictSame(
        world.log.settled.map(({ delivery }) => delivery.outcome),
        what === 'none takes it' ? ['aborted', ...expected.settled] : expected.settled,
        what,
      )
      t.strictSame(world.log.workerFailed, [], `${what}: no worker is to blame`)
      const metrics = (await world.ask('GET', '/metrics')).body
      const counted = [...metrics.matchAll(/^homing_gateway_continuations_total\{outcome="(\w+)"\} 1$/gm)]
      t.strictSame(
        counted.map(([, outcome]) => outcome),
        expected.sent === 2 ? ['place'] : [],
        what,
      )
    }
  },
)

const ANEW = [head(200, SSE), finish(ROLE + text('anew', 'stop') + DONE)]

t.test('what waits for its first byte at the limit of a drain is asked of another worker', async t => {
  for (const [what, options, second, isLeft] of [
    ['a stream', {}, ANEW, true],
    ['a stream that no worker may go on with', { migrationsMax: 0 }, ANEW, true],
    ['a stream whose head has come', { begun: [head(200, SSE), data(': wait\n\n')] }, ANEW, true],
    ['a whole answer', { more: { isStream: false } }, WHOLE, true],
    ['a pin', { more: { pinnedInstanceId: 7 } }, ANEW, false],
    ['none would take it', { takes: () => false }, ANEW, false],
    ['none takes it', { refuses: () => true }, ANEW, false],
    ['a prompt that breaks workers', {}, ANEW, false],
    ['no completion', { path: '/v1/embeddings', more: { isStream: false } }, WHOLE, false],
  ] as const) {
    let isGone = false
    let first: HttpExchange | undefined
    const held: Act = exchange => {
      first = exchange
      exchange.onClientGone(() => {
        isGone = true
      })
    }
    const { begun = [], ...others } = options as typeof options & { readonly begun?: readonly Act[] }
    const { client, world, sent } = await run(t, [[...begun, held], second], { ...others, dies: false })
    if (what === 'a prompt that breaks workers') {
      const digest = createHash('sha256').update(JSON.stringify(BODY)).digest('base64')
      for (const workerId of ['x:1', 'x:2'])
        world.ref.tell({ type: 'promptBroke', digest, workerId, ageMs: 0 })
    }
    world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
    await world.system.settle()
    await world.system.advance(10)
    t.equal(isGone, isLeft, what)
    t.equal(sent.length, isLeft ? 2 : 1, what)
    if (!isLeft) for (const act of second) act(first!)
    await world.system.settle()
    t.equal(client.status, 200, what)
    t.equal(client.end, 'complete', what)
    if (second === ANEW) t.strictSame(seen(client.body), ['anew', 'done'], what)
    const { settled, workerFailed, asked, hints } = world.log
    t.strictSame(
      settled.map(({ delivery: { outcome }, isPlacedAgain }) => [outcome, isPlacedAgain]),
      isLeft
        ? [
            ['aborted', true],
            ['ok', false],
          ]
        : [...(what === 'none takes it' ? [['aborted', true]] : []), ['ok', false]],
      what,
    )
    t.strictSame(workerFailed, [], `${what}: no worker is to blame`)
    if (!isLeft) continue
    t.strictSame(asked[1]!.excludedWorkers, [`${WORKER_HOST}:1`])
    t.equal(hints[1], undefined, 'it has waited before')
    t.match(
      (await world.ask('GET', '/metrics')).body,
      /^homing_request_retries_total\{model="m",reason="drained"\} 1$/m,
    )
  }
})

t.test('what cannot go on elsewhere at the limit of a drain does so later, once it can', async t => {
  for (const [what, begins, asks, expected] of [
    ['another worker comes up before the first byte', false, 'takes', 'anew'],
    ['another worker comes up after it', true, 'takes', 'one two'],
    ['another worker takes it later, before the first byte', false, 'refuses', 'anew'],
    ['another worker takes it later, after it', true, 'refuses', 'one two'],
  ] as const) {
    let mayTake = asks === 'refuses'
    let isRefused = true
    let first: HttpExchange | undefined
    const held: Act = exchange => {
      first = exchange
    }
    const second = begins ? [head(200, SSE), REST] : ANEW
    const { client, world, sent } = await run(t, [[held], second], {
      takes: () => mayTake,
      refuses: () => asks === 'refuses' && isRefused,
      dies: false,
    })
    world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
    await world.system.settle()
    await world.system.advance(2000)
    if (begins) for (const act of BEGUN) act(first!)
    mayTake = true
    isRefused = false
    await world.system.advance(1000)
    t.equal(sent.length, 1, 'not asked in every second')
    for (let i = 0; i < 6; i++) await world.system.advance(1000)
    t.equal(sent.length, 2, what)
    t.strictSame(seen(client.body), [expected, 'done'], what)
  }
})

t.test('of many requests at the limit of a drain, 64 at a time are offered, each in its turn', async t => {
  const held = new Set<HttpExchange>()
  const offered: number[] = []
  const COUNT = 150
  const world = await startWorld(
    t,
    { exchangeLimits: LIMITS, audit: false, openRequestsMax: COUNT, bodiesBytesMax: 1_000_000 },
    {
      read: () => ({ kind: 'read', request: { ...READ, isStream: true } }),
      measure: () => {
        offered.push(world.system.clock.nowMs())
        return undefined
      },
      decide: (_, id) => ({ kind: 'decided', decision: { ...decisionFor(1), id } }),
    },
    { hasWorker: false },
  )
  await world.serve(1, exchange => void held.add(exchange))
  for (let i = 0; i < COUNT; i++) world.send('POST', CHAT, { body: JSON.stringify(BODY) })
  await world.system.settle()
  t.equal(held.size, COUNT)
  world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
  await world.system.settle()
  t.equal(offered.length, 64)
  for (let i = 0; i < 10; i++) await world.system.advance(1000)
  const perLook = new Map<number, number>()
  for (const atMs of offered) perLook.set(atMs, (perLook.get(atMs) ?? 0) + 1)
  t.equal(Math.max(...perLook.values()), 64)
  const [firstMs = 0] = offered
  t.equal(offered.filter(atMs => atMs < firstMs + 5000).length, COUNT, 'each before the first one again')
  t.ok(offered.length >= 2 * COUNT, 'and again')
})

t.test('at the limit of a drain, no further request is offered while 64 are', async t => {
  const COUNT = 150
  let held = 0
  let measured = 0
  const world = await startWorld(
    t,
    { exchangeLimits: LIMITS, audit: false, openRequestsMax: COUNT, bodiesBytesMax: 1_000_000 },
    {
      read: () => ({ kind: 'read', request: { ...READ, isStream: true } }),
      // Without an answer, it is over after a second.
      measure: () => void measured++,
      decide: (_, id) => ({ kind: 'decided', decision: { ...decisionFor(1), id } }),
    },
    { hasWorker: false },
  )
  await world.serve(1, () => void held++)
  for (let i = 0; i < COUNT; i++) world.send('POST', CHAT, { body: JSON.stringify(BODY) })
  await world.system.settle()
  t.equal(held, COUNT)
  for (let i = 0; i < 3; i++) {
    world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
    await world.system.settle()
  }
  t.equal(measured, 64, 'with each message about the fleet')
  await world.system.advance(2000)
  world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
  await world.system.settle()
  t.equal(measured, 128, 'the next ones, once these are over')
})

t.test('what another worker takes at the limit of a drain is settled, also after a fault', async t => {
  for (const begins of [false, true]) {
    const acts = [begins ? [...BEGUN, () => {}] : [() => {}], ANEW] as const
    const { world } = await run(t, acts, { dies: false })
    Object.assign(world.logged.lines, {
      push: ({ level }: { level: string }) => {
        if (level === 'warn') throw new Error('a fault of ours')
      },
    })
    world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
    await world.system.settle()
    await world.system.advance(10)
    t.equal(world.log.asked.length, 2)
    t.equal(world.log.settled.length, 2, begins ? 'of a stream' : 'before its first byte')
  }
})

t.test('what a client that leaves during an offer was given is counted once', async t => {
  const { promise: offers, resolve } = Promise.withResolvers<void>()
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 }
  const begun = [head(200, SSE), data(ROLE + event({ ...SAME, choices: [TEXT_CHOICE], usage })), () => {}]
  const { client, world } = await run(t, [begun, ANEW], { offers, dies: false })
  world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
  await world.system.settle()
  t.equal(world.log.asked.length, 2)
  client.call.abort()
  await world.system.settle()
  resolve()
  await world.system.settle()
  const line = world.accessLines.find(({ outcome }) => outcome === 'aborted')
  t.match(line, { outcome: 'aborted', output_tokens: 2 })
})

t.test('what a stream lacks for a while at the limit of a drain does not keep it there', async t => {
  for (const [what, members, said] of [
    ['ids', {}, 'one two'],
    ['an end of what may be a stop string', { stop: ['e!'] }, 'one and two'],
    ['a worker that takes it', {}, 'one two'],
  ] as const) {
    let lacks = true
    let reads = 0
    let first: HttpExchange | undefined
    const held: Act = exchange => {
      first = exchange
    }
    const acts = [
      [...BEGUN, held],
      [head(200, SSE), REST],
    ]
    const { client, world, sent } = await run(t, acts, {
      body: { ...BODY, ...members },
      hasIds: () => what !== 'ids' || !lacks,
      reads: () => {
        reads++
      },
      refuses: () => what === 'a worker that takes it' && lacks,
      // For one rest, and not for each that no worker took.
      bodiesBytesMax: 600,
      dies: false,
    })
    world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
    await world.system.settle()
    for (let i = 0; i < 50; i++) await world.system.advance(1000)
    t.equal(sent.length, 1, what)
    if (what === 'ids') t.ok(reads >= 10 && reads <= 11, `once for each offer, while it pauses: ${reads}`)
    lacks = false
    if (said === 'one and two') data(text(' and'))(first!)
    for (let i = 0; i < 6; i++) await world.system.advance(1000)
    t.equal(sent.length, 2, what)
    t.strictSame(seen(client.body), [said, 'done'], what)
  }
})

t.test('what happens while another worker is looked for at the limit of a drain comes first', async t => {
  for (const [what, begins, outcome] of [
    ['its client leaves', false, 'aborted'],
    ['its client leaves a stream', true, 'aborted'],
    ['its answer begins', false, 'ok'],
    ['its worker dies', false, 'error'],
  ] as const) {
    const { promise: offers, resolve } = Promise.withResolvers<void>()
    let first: HttpExchange | undefined
    const held: Act = exchange => {
      first = exchange
    }
    const acts = [begins ? [...BEGUN, held] : [held], ANEW, ANEW]
    const { client, world, sent } = await run(t, acts, { offers, dies: false })
    world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
    await world.system.settle()
    t.equal(world.log.asked.length, 2, what)
    if (what === 'its worker dies') first!.destroy()
    else if (outcome === 'ok') for (const act of ANEW) act(first!)
    else client.call.abort()
    await world.system.settle()
    resolve()
    await world.system.settle()
    await world.system.advance(10)
    const ids = world.log.settled.map(({ id }) => id)
    t.equal(new Set(ids).size, world.log.asked.length, `${what}: all that was asked for is settled`)
    t.equal(ids.length, new Set(ids).size, `${what}: once`)
    t.equal(sent.length, what === 'its worker dies' ? 2 : 1, what)
    const own = world.log.settled.find(({ id }) => world.log.names.get(id) === 'decision-1')
    t.equal(own?.delivery.outcome, outcome, what)
    if (outcome !== 'aborted') t.strictSame(seen(client.body), ['anew', 'done'], what)
  }
})

t.test('a stream that was decided for a worker which has left meanwhile is asked of another one', async t => {
  const { promise: decides, resolve } = Promise.withResolvers<void>()
  const { client, world, sent } = await run(t, [[], ANEW], { decides, dies: false })
  world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [`${WORKER_HOST}:1`] })
  await world.system.settle()
  resolve()
  await world.system.settle()
  t.equal(sent.length, 1)
  await world.system.advance(1000)
  await world.system.settle()
  t.equal(sent.length, 2)
  t.strictSame(seen(client.body), ['anew', 'done'])
})

t.test('a worker that comes again after its drain keeps what it has', async t => {
  let mayTake = false
  const { world, sent } = await run(t, [[], ANEW], { takes: () => mayTake, dies: false })
  const first = { ...WORKER, id: `${WORKER_HOST}:1` }
  world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER), overdue: [first.id] })
  await world.system.settle()
  world.ref.tell({ type: 'fleet', fleet: fleetOf(OTHER, first) })
  mayTake = true
  for (let i = 0; i < 12; i++) await world.system.advance(1000)
  t.equal(sent.length, 1)
})
