/** Streams that another worker goes on with: what it is sent, what the client gets, and what is settled. */

import { createHash } from 'node:crypto'
import type { ReadRequest } from '@homing/actors/tokenizer'
import type { HttpExchange } from '@homing/transport'
import t, { type Test } from 'tap'
import { decisionFor } from './call-world.ts'
import { start as startWorld } from './gateway-world.ts'
import { DECISION, fleetOf, READ, WORKER, WORKER_HOST } from './sample-records.ts'
import { textOf } from './utf8.ts'
import { data, die, finish, head } from './worker-exchange.ts'

const LIMITS = {
  ...{ retriesMax: 2, retryShare: 1, stallMsMin: 10_000, silenceMsMax: 60_000, requestMsMax: 0 },
  ...{ migrationsMax: 1, migrationBytesMax: 1_048_576 },
}
const CHAT = '/v1/chat/completions'
const BODY = { model: 'm', messages: [], max_tokens: 9, stream: true }
const SSE = { 'content-type': 'text/event-stream' }
/** Every text has these ids, behind whatever stands before it. */
const IDS = [1, 2, 3]
const SAME = { id: 'a', object: 'chat.completion.chunk', created: 1, model: 'm' }

const event = (chunk: object): string => `data: ${JSON.stringify(chunk)}\n\n`
const delta = (members: object, finish: string | null = null): string =>
  event({ ...SAME, choices: [{ index: 0, delta: members, finish_reason: finish }] })
const text = (content: string, finish: string | null = null): string => delta({ content }, finish)
const ROLE = delta({ role: 'assistant', content: '' })
const TEXT_CHOICE = { index: 0, delta: { content: 'one' }, finish_reason: null }
const DONE = 'data: [DONE]\n\n'
/** Of the completion with which another one goes on. */
const more = (content: string, finish: string | null = null): string =>
  event({
    id: 'b',
    object: 'text_completion',
    created: 2,
    choices: [{ index: 0, text: content, finish_reason: finish }],
  })
const REST = finish(`${more(' two', 'stop')}${DONE}`)
const BEGUN = [head(200, SSE), data(ROLE + text('one'))]

type Act = Parameters<Awaited<ReturnType<typeof startWorld>>['serve']>[1]

const ALL_FILTERED = {
  kind: 'refused',
  error: { code: 'HOMING_ROUTER_ALL_FILTERED', message: 'none', details: {} },
} as const

/** A little later than what was sent. */
const dieSoon: Act = () => {}

/** Workers at ports 1, 2, …, in the order in which the router chooses them; all but the last die then. */
async function run(
  t: Test,
  acts: readonly (readonly Act[])[],
  {
    body = BODY,
    migrationsMax = 1,
    dies = true,
    joins = [],
    more = {},
    takes = () => true,
    refuses = () => false,
    reads = () => {},
    path = CHAT,
    decides,
    offers,
    hasIds = () => true,
    bodiesBytesMax = 10_000,
  }: {
    body?: object
    migrationsMax?: number
    dies?: boolean
    joins?: readonly string[]
    more?: Partial<ReadRequest>
    /** A worker would take what is left. */
    takes?: () => boolean
    /** All decisions but the first are refused: what `takes` says does not hold. */
    refuses?: () => boolean
    /** Called when ids are asked for. */
    reads?: () => void
    path?: string
    /** The first decision comes when this is over. */
    decides?: Promise<void>
    /** The tokenizer knows ids. */
    hasIds?: () => boolean
    bodiesBytesMax?: number
    /** The others come when this is over. */
    offers?: Promise<void>
  } = {},
) {
  let port = 0
  const sent: { path: string; body: Record<string, unknown> }[] = []
  const world = await startWorld(
    t,
    {
      exchangeLimits: { ...LIMITS, migrationsMax },
      audit: false,
      accessLog: { path: '-', sample: 1 },
      bodiesBytesMax,
    },
    {
      measure: () => (takes() ? { cachedTokens: 0, boundWorker: undefined } : undefined),
      read: ({ body: bytes, wantTokenIds }) => {
        if (wantTokenIds) reads()
        const { prompt } = JSON.parse(textOf(bytes)) as { prompt?: unknown }
        // As a tokenizer that treats the beginning of a text otherwise, and makes one token of some pairs.
        const isPair = joins.some(pair => typeof prompt === 'string' && prompt.startsWith(pair))
        const isText = typeof prompt === 'string' && prompt.length > 1
        const before = isPair ? [8, ...IDS] : isText ? [9, ...IDS] : typeof prompt === 'string' ? [9] : IDS
        const ids = wantTokenIds && hasIds() ? Int32Array.from(before) : undefined
        const read = {
          ...READ,
          isStream: true,
          isCounted: true,
          tokenIds: ids,
          promptTokens: ids?.length ?? 3,
          ...more,
        }
        return { kind: 'read', request: read }
      },
      decide: async () => {
        if (port > 0 && refuses()) return ALL_FILTERED
        const at = ++port
        await (at === 1 ? decides : offers)
        if (at <= acts.length) return { kind: 'decided', decision: decisionFor(at) }
        return { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} } }
      },
    },
    { hasWorker: false },
  )
  for (const [i, does] of acts.entries()) {
    const dying: Act = exchange => void world.system.clock.after(1, () => exchange.destroy())
    const acted = does.map(act => (act === dieSoon ? dying : act))
    await world.serve(
      i + 1,
      async exchange => {
        sent.push({ path: exchange.path, body: JSON.parse(textOf(await exchange.readBody(100_000))) })
      },
      ...acted,
      ...(dies && i < acts.length - 1 ? [dying] : []),
    )
  }
  const client = world.send('POST', path, { body: JSON.stringify(body) })
  for (let i = 0; i < 4; i++) {
    await world.system.settle()
    await world.system.advance(10)
  }
  const settled = world.log.settled.map(({ delivery, isPlacedAgain }) => [delivery.outcome, isPlacedAgain])
  const { text: metrics } = { text: (await world.ask('GET', '/metrics')).body }
  const outcomes = [...metrics.matchAll(/^homing_gateway_continuations_total\{outcome="(\w+)"\} 1$/gm)]
  return { world, client, sent, settled, outcomes: outcomes.map(([, outcome]) => outcome) }
}

/** The texts of a stream, and the code of the error with which it ends. */
function seen(body: string): readonly [text: string, end: string] {
  const events = body.split('\n\n').filter(each => each.startsWith('data: {'))
  const chunks = events.map(each => JSON.parse(each.slice('data: '.length)))
  const said = chunks.map(({ choices }) => choices?.[0]?.delta?.content ?? '').join('')
  return [said, body.endsWith(DONE) ? 'done' : (chunks.at(-1)?.error?.code ?? 'cut')]
}

t.test('the rest is a completion of ids, and each placement is settled once', async t => {
  const { client, sent, settled, outcomes } = await run(t, [BEGUN, [head(200, SSE), REST]])
  t.strictSame(seen(client.body), ['one two', 'done'])
  t.match(sent[1], { path: '/v1/completions' })
  t.strictSame(sent[1]!.body, { model: 'm', prompt: [...IDS, ...IDS], max_tokens: 6, stream: true })
  t.strictSame(settled, [
    ['error', true],
    ['ok', false],
  ])
  t.strictSame(outcomes, ['place'])
})

t.test('where no worker goes on, the client gets the first error, and the router an end', async t => {
  for (const [members, outcome] of [
    [{}, 'not_placed'],
    [{ logprobs: true }, 'logprobs'],
    [{ stop: ['e!'] }, 'stops'],
    [{ bad_words: ['x'] }, 'penalties'],
  ] as const) {
    const { client, settled, outcomes, world } = await run(t, [[...BEGUN, dieSoon]], {
      body: { ...BODY, ...members },
    })
    t.strictSame(seen(client.body), ['one', 'upstream_failed'], outcome)
    t.strictSame(settled.at(-1), ['error', false])
    t.strictSame(outcomes, [outcome])
    const told = world.log.settled.map(({ delivery }) => delivery.notContinued)
    // Where none took it, the first placement had been settled before.
    if (outcome !== 'not_placed') t.strictSame(told, [outcome])
    t.match(world.log.workerFailed, [{ workerId: `${WORKER_HOST}:1`, fault: { kind: 'cut' } }])
  }
})

t.test('a prompt that kills a second worker takes no third one', async t => {
  const { client, sent, world } = await run(t, [BEGUN, [die], [die]])
  t.strictSame(seen(client.body), ['one', 'upstream_failed'])
  t.equal(sent.length, 2)
  t.equal(world.log.asked.length, 2)
})

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

const WHOLE = [
  head(200, { 'content-type': 'application/json' }),
  finish(JSON.stringify({ ...SAME, choices: [{ index: 0, message: {}, finish_reason: 'stop' }] })),
]
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

t.test(
  'of many requests at the limit of a drain, so many at a time are offered, each in its turn',
  async t => {
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
  },
)

t.test('at the limit of a drain, no request is offered while so many others still are', async t => {
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

t.test('a rest that fails before its first byte goes on where tries are left', async t => {
  const refuses = (status: number): Act[] => [
    head(status, { 'content-type': 'application/json' }),
    finish('{}'),
  ]
  const [broken, rest] = [[die], [head(200, SSE), REST]]
  for (const [what, second, migrationsMax, end] of [
    ['dies', broken, 2, 'done'],
    ['dies', broken, 1, 'upstream_failed'],
    ['answers 500', refuses(500), 2, 'done'],
    ['answers 500', refuses(500), 1, 'upstream_failed'],
    ['answers 503', refuses(503), 1, 'done'],
  ] as const) {
    const { client, sent, settled, outcomes, world } = await run(t, [BEGUN, second, rest], { migrationsMax })
    const isDone = end === 'done'
    t.strictSame(seen(client.body), [isDone ? 'one two' : 'one', end], `${what}, ${migrationsMax} may go on`)
    t.equal(sent.length, isDone ? 3 : 2)
    t.strictSame(settled.at(-1), [isDone ? 'ok' : 'error', false])
    t.equal(settled.length, sent.length)
    t.strictSame(outcomes, [isDone ? 'place' : 'limit'])
    t.equal(world.log.settled.at(-1)!.delivery.notContinued, isDone ? undefined : 'limit')
    t.equal(world.log.settled[0]!.delivery.notContinued, undefined)
    const [first, next] = world.log.workerFailed.map(({ workerId }) => workerId)
    t.strictSame([first, isDone ? next : undefined].filter(Boolean), [
      `${WORKER_HOST}:1`,
      ...(isDone ? [`${WORKER_HOST}:2`] : []),
    ])
  }
  const three = await run(t, [BEGUN, broken, refuses(500), broken, rest], { migrationsMax: 3 })
  t.strictSame(seen(three.client.body), ['one', 'upstream_failed'])
  t.equal(three.sent.length, 4, 'as many attempts as may go on, and the first one')
})

t.test(
  'an error that the client caused passes; another one is left, and blames if the rest is served',
  async t => {
    const own = event({
      error: { message: 'too long', type: 'invalid_request_error', code: 'context_length_exceeded' },
    })
    const passed = await run(t, [[head(200, SSE), finish(ROLE + text('one') + own + DONE)], []], {
      dies: false,
    })
    t.strictSame(seen(passed.client.body), ['one', 'done'])
    t.match(passed.client.body, /too long/)
    t.strictSame(passed.world.log.workerFailed, [])
    const dead = `${event({ error: { message: 'dead', type: 'InternalServerError', code: 500 } })}${DONE}`
    const acts = [
      [head(200, SSE), finish(ROLE + text('one') + dead)],
      [head(200, SSE), REST],
    ]
    const left = await run(t, acts, { dies: false })
    t.strictSame(seen(left.client.body), ['one two', 'done'])
    t.match(left.world.log.workerFailed, [{ workerId: `${WORKER_HOST}:1`, fault: { kind: 'failed' } }])
    // Its last event lacks the empty line, and everything comes in one piece.
    const open = [
      [head(200, SSE), finish(ROLE + text('one') + dead.slice(0, dead.indexOf('\n\n') + 1))],
      acts[1]!,
    ]
    t.strictSame(seen((await run(t, open, { dies: false })).client.body), ['one two', 'done'])
  },
)

const GIVEN_UP = [head(200, SSE), finish(ROLE + text('one') + delta({}, 'abort') + DONE)]

t.test('a stream that its engine gives up goes on elsewhere', async t => {
  const acts = [GIVEN_UP, [head(200, SSE), REST]]
  const { client, settled, outcomes, world } = await run(t, acts, { dies: false })
  t.strictSame(seen(client.body), ['one two', 'done'])
  t.notMatch(client.body, /abort/)
  t.strictSame(settled, [
    ['error', true],
    ['ok', false],
  ])
  t.strictSame(outcomes, ['place'])
  t.match(world.log.workerFailed, [{ workerId: `${WORKER_HOST}:1`, fault: { kind: 'failed' } }])
  const nothing = [
    [head(200, SSE), finish(ROLE + delta({}, 'abort') + DONE)],
    [head(200, SSE), finish(text('x'))],
  ]
  t.match((await run(t, nothing, { dies: false })).sent[1], { path: CHAT }, 'nothing was there: anew')
})

const JSON_HEAD = { 'content-type': 'application/json' }
const GIVEN_UP_WHOLE = { ...SAME, choices: [{ index: 0, message: { content: 'o' }, finish_reason: 'abort' }] }

t.test('all that an engine has when it fails is begun anew, more than the retry budget has', async t => {
  for (const [what, ...acts] of [
    ['gives up whole answers', head(200, JSON_HEAD), finish(JSON.stringify(GIVEN_UP_WHOLE))],
    ['answers 500', head(500, JSON_HEAD), finish('{"error":{"message":"dead"}}')],
    ['dies', die],
  ] as const) {
    const world = await startWorld(
      t,
      {
        ...{ openRequestsMax: 200, bodiesBytesMax: 1_000_000, audit: false },
        exchangeLimits: { ...LIMITS, retryShare: 0 },
      },
      {
        decide: ({ excludedWorkers }, id) => ({
          kind: 'decided',
          decision: decisionFor(excludedWorkers.length === 0 ? 1 : 2, id),
        }),
      },
      { hasWorker: false },
    )
    const open: HttpExchange[] = []
    await world.serve(1, exchange => void open.push(exchange))
    await world.serve(2, ...WHOLE)
    const ask = async (count: number) => {
      const clients = Array.from({ length: count }, (_, i) => {
        const body = { ...BODY, user: String(i), stream: false }
        return world.send('POST', CHAT, { body: JSON.stringify(body) })
      })
      await world.system.settle()
      t.equal(open.length, count)
      for (const exchange of open.splice(0)) for (const act of acts) act(exchange)
      await world.system.settle()
      return clients.filter(({ status, body }) => status === 200 && !body.includes('abort')).length
    }
    t.equal(await ask(100), 100, what)
    t.equal(world.log.settled.filter(({ delivery }) => delivery.outcome === 'ok').length, 100)
    if (what !== 'answers 500') continue
    await world.system.advance(1)
    t.equal(await ask(40), 32, 'what it gets from then on is at the cost of the budget')
    await world.system.advance(60_000)
    t.equal(await ask(100), 100, 'a minute later it is another failure')
  }
})

t.test('where no worker goes on with a stream that was given up, its end is no success', async t => {
  for (const [members, migrationsMax] of [
    [{ n: 2 }, 1],
    [{ logprobs: true }, 1],
    [{}, 0],
    [{}, 1],
  ] as const) {
    const body = { ...BODY, ...members }
    const { client, settled } = await run(t, [GIVEN_UP], { body, migrationsMax, dies: false })
    t.strictSame(seen(client.body), ['one', 'upstream_failed'], JSON.stringify(members))
    t.strictSame(settled.at(-1), ['error', false])
  }
  const talks = finish(`${ROLE + text('one "abort') + text('', 'stop')}${DONE}`)
  const { client } = await run(t, [[head(200, SSE), talks]], { dies: false })
  t.strictSame(seen(client.body), ['one "abort', 'done'], 'a text about it is a text')
})

t.test('a stream that ends without its end is a failure, also where no worker may go on', async t => {
  const choice = (index: number, members: object, finish: string | null = null): string =>
    event({ ...SAME, choices: [{ index, delta: members, finish_reason: finish }] })
  const one = text('one')
  const tool = delta({ tool_calls: [{ index: 0, function: { name: 'f', arguments: '{}' } }] })
  const probable = event({ ...SAME, choices: [{ index: 0, delta: { content: 'one' }, logprobs: {} }] })
  const cases: readonly (readonly [
    outcome: string,
    begun: string,
    rest: string,
    Parameters<typeof run>[2],
  ])[] = [
    ['limit', one, text('', 'stop'), { migrationsMax: 0 }],
    ['limit', one + tool, delta({}, 'tool_calls'), { migrationsMax: 0 }],
    ['pinned', one, text('', 'stop'), { more: { pinnedInstanceId: 7 } }],
    ['other_content', delta({ reasoning: 'why' }) + one, text('', 'stop'), {}],
    ['other_content', one + tool, delta({}, 'tool_calls'), {}],
    ['logprobs', probable, text('', 'stop'), {}],
    [
      'choices',
      one + choice(1, { content: 'two' }) + choice(0, {}, 'stop') + choice(1, { content: '!' }),
      choice(1, {}, 'length'),
      {},
    ],
  ]
  for (const [outcome, begun, rest, options] of cases) {
    const ends = [head(200, SSE), finish(ROLE + begun)]
    const cut = await run(t, [ends], { ...options, dies: false })
    t.match(seen(cut.client.body)[1], 'upstream_failed', `${outcome}: ${cut.client.body}`)
    t.strictSame(cut.settled, [['error', false]])
    t.strictSame(cut.outcomes, [outcome])
    t.match(cut.world.log.workerFailed, [{ workerId: `${WORKER_HOST}:1`, fault: { kind: 'cut' } }])
    const whole = await run(t, [[head(200, SSE), finish(ROLE + begun + rest)]], { ...options, dies: false })
    t.equal(whole.client.body, ROLE + begun + rest, `${outcome}: its end is there, though no [DONE]`)
    t.strictSame(whole.settled, [['ok', false]])
  }
  const second = await run(t, [BEGUN, [head(200, SSE), finish(more(' two'))]])
  t.strictSame(seen(second.client.body), ['one two', 'upstream_failed'], 'the second one ends without it')
  t.strictSame(second.settled.at(-1), ['error', false])
})

t.test('where only the end was missing it is written, whatever was asked for', async t => {
  for (const members of [{}, { n: 1, tools: [{ type: 'function' }] }, { logprobs: true }]) {
    const acts = [[head(200, SSE), data(ROLE + text('one', 'stop'))], []]
    const { client, settled, outcomes } = await run(t, acts, { body: { ...BODY, ...members } })
    t.strictSame(seen(client.body), ['one', 'done'])
    t.strictSame(settled, [['ok', false]])
    t.strictSame(outcomes, ['end'])
  }
  const nothing = await run(t, [[head(200, SSE), data(ROLE + delta({}, 'stop'))], []], {
    body: { ...BODY, stream_options: { include_usage: true } },
  })
  t.match(nothing.client.body, /"usage":\{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0\}/)
})

t.test('asked anew, the usage is the engine’s own, and a turn begins once', async t => {
  const usage = { prompt_tokens: 1500, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 1024 } }
  const acts = [
    [head(200, SSE), data(ROLE)],
    [
      head(200, SSE),
      finish(delta({ role: 'assistant', content: 'one' }) + event({ ...SAME, choices: [], usage }) + DONE),
    ],
  ]
  const { client, sent } = await run(t, acts)
  t.strictSame(seen(client.body), ['one', 'done'])
  t.equal(sent[1]!.path, CHAT)
  t.ok(client.body.includes(JSON.stringify(usage)))
  t.equal(client.body.split('"role"').length, 2)
})

const withIds = (content: string, ...ids: readonly number[]): string =>
  event({ ...SAME, choices: [{ index: 0, delta: { content }, token_ids: ids, finish_reason: null }] })

t.test('a stream with token ids is continued by them, with and without a text', async t => {
  const rest = event({
    choices: [{ index: 0, text: ' two', prompt_token_ids: [1], token_ids: [7], finish_reason: 'stop' }],
  })
  const body = { ...BODY, return_token_ids: true }
  // The last one has no text yet: a character may need another token.
  const begun = data(ROLE + withIds('one', 5) + withIds('', 6))
  const { client, sent } = await run(
    t,
    [
      [head(200, SSE), begun],
      [head(200, SSE), finish(rest + DONE)],
    ],
    { body },
  )
  t.strictSame(seen(client.body), ['one two', 'done'])
  const { model, stream } = BODY
  t.strictSame(sent[1]!.body, {
    ...{ model, stream, prompt: [...IDS, 5, 6], max_tokens: 7, return_token_ids: true },
  })
  t.strictSame(
    [...client.body.matchAll(/"token_ids":\[(.*?)\]/g)].map(([, ids]) => ids),
    ['5', '6', '7'],
  )
  t.notMatch(client.body, /prompt_token_ids/)
})

t.test(
  'a stream whose engine ignores that ids are asked for is continued by its text, without ids',
  async t => {
    const body = { ...BODY, return_token_ids: true }
    // As other engines do that do not know the member.
    for (const begun of [
      text('one'),
      event({ ...SAME, choices: [{ delta: { content: 'one' }, token_ids: null }] }),
    ]) {
      const acts = [
        [head(200, SSE), data(ROLE + begun)],
        [head(200, SSE), REST],
      ]
      const { client, sent, outcomes } = await run(t, acts, { body })
      t.strictSame(seen(client.body), ['one two', 'done'])
      const { model, stream } = BODY
      t.strictSame(sent[1]!.body, { model, stream, prompt: [...IDS, ...IDS], max_tokens: 6 })
      t.strictSame(outcomes, ['place'])
    }
  },
)

t.test('where the ids are not known, or text may be held back, nothing is said twice', async t => {
  for (const [members, event, outcome] of [
    [{ return_token_ids: true }, withIds('one', 5) + text(' two'), 'ids'],
    [{ return_token_ids: true, stop: '###' }, withIds('', 5), 'stops'],
    [{}, withIds('', 5) + text('one'), 'ids'],
  ] as const) {
    const acts = [[head(200, SSE), data(ROLE + event)], [REST]]
    const { sent, client, outcomes } = await run(t, acts, { body: { ...BODY, ...members } })
    t.equal(seen(client.body)[1], 'upstream_failed')
    t.strictSame([sent.length, outcomes], [1, [outcome]])
  }
})

t.test('a text that begins with a line feed is continued, too', async t => {
  const begun = [head(200, SSE), data(ROLE + text('\none'))]
  const { client, sent } = await run(t, [begun, [head(200, SSE), REST]], { joins: ['\n\n', '|\n'] })
  t.strictSame(seen(client.body), ['\none two', 'done'])
  t.strictSame(sent[1]!.body['prompt'], [...IDS, ...IDS])
})

t.test('the access log and the metrics have the whole', async t => {
  const usage = { prompt_tokens: 6, completion_tokens: 4, total_tokens: 10 }
  const rest = finish(more(' two', 'stop') + event({ choices: [], usage }) + DONE)
  const body = { ...BODY, stream_options: { include_usage: true } }
  const { client, world } = await run(t, [BEGUN, [head(200, SSE), rest]], { body })
  t.match(client.body, /"usage":\{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10\}/)
  t.match(world.accessLines[0], { outcome: 'ok', attempts: 2, prompt_tokens: 3, output_tokens: 7 })
  t.match((await world.ask('GET', '/metrics')).body, /^homing_request_output_tokens_sum\{model="m"\} 7$/m)
})

t.test('while its prompt is read again, the body is given to no other request', async t => {
  const given: Uint8Array[] = []
  const world = await startWorld(
    t,
    { bodyBytesMax: 100_000, bodiesBytesMax: 1_000_000, openRequestsMax: 100, exchangeLimits: LIMITS },
    {
      read: ({ body }) => {
        given.push(body)
        if (given.length === 2) return undefined
        return { kind: 'read', request: { ...READ, isStream: true } }
      },
    },
    { usesBody: () => false },
  )
  const long = (word: string): string =>
    JSON.stringify({ ...BODY, messages: [{ role: 'user', content: `${word} `.repeat(5000) }] })
  const client = world.send('POST', CHAT, { body: long('mine') })
  await world.system.settle()
  await world.answer(...BEGUN)
  await world.answer(die)
  t.equal(given.length, 2)
  client.call.abort()
  await world.system.settle()
  await world.ask('POST', CHAT, { body: long('other') })
  t.equal(textOf(given[1]!), long('mine'))
})

t.test('while the rest is read, its client sees comments, and the request keeps its time', async t => {
  let reads = 0
  const limits = { ...LIMITS, requestMsMax: 4000, streamKeepAliveMs: 500 }
  const world = await startWorld(
    t,
    { exchangeLimits: limits },
    { read: () => (++reads > 1 ? undefined : { kind: 'read', request: { ...READ, isStream: true } }) },
  )
  const client = world.send('POST', CHAT, { body: JSON.stringify(BODY) })
  await world.system.settle()
  await world.answer(...BEGUN)
  await world.answer(die)
  t.equal(reads, 2)
  for (let step = 0; step < 3; step++) await world.system.advance(1000)
  t.equal(client.end, 'open')
  t.ok(client.body.split('\n\n:').length > 2, client.body)
  for (let step = 0; step < 2; step++) await world.system.advance(1000)
  t.strictSame(seen(client.body), ['one', 'timeout'])
})

t.test('a client that leaves during the last read takes everything along', async t => {
  let [reads, leaves] = [0, () => {}]
  const world = await startWorld(
    t,
    { exchangeLimits: LIMITS },
    {
      read: ({ body, wantTokenIds }) => {
        reads++
        const { prompt } = JSON.parse(textOf(body)) as { prompt?: unknown }
        const ids = Int32Array.from(prompt === '\n' ? [9] : typeof prompt === 'string' ? [9, ...IDS] : IDS)
        if (ids.length === 4) leaves()
        const tokenIds = wantTokenIds ? ids : undefined
        return {
          kind: 'read',
          request: { ...READ, isStream: true, isCounted: true, tokenIds, promptTokens: ids.length },
        }
      },
    },
  )
  const client = world.send('POST', CHAT, { body: JSON.stringify(BODY) })
  leaves = () => client.call.abort()
  await world.system.settle()
  await world.answer(...BEGUN)
  await world.answer(die)
  await world.system.settle()
  t.equal(reads, 4, 'nothing was read for the rest')
  t.match((await world.ask('GET', '/metrics')).body, /^homing_gateway_body_bytes 0$/m)
})

t.test('with --enforce-disagg the rest has two legs, too', async t => {
  const prefill = {
    ...WORKER,
    id: 'prefill:1',
    instanceId: 10,
    role: { value: 'prefill', source: 'given' },
  } as const
  const decode = { ...WORKER, role: { value: 'decode', source: 'given' } } as const
  const world = await startWorld(
    t,
    { exchangeLimits: LIMITS, disagg: { isEnforced: true, stay: undefined } },
    {
      decide: (request, id) => {
        const isPrefill = request.leg?.kind === 'prefill'
        const at = isPrefill ? { workerId: prefill.id, worker: 'prefill:1/0' } : {}
        return { kind: 'decided', decision: { ...DECISION, id, ...at } }
      },
      read: ({ wantTokenIds }) => {
        const tokenIds = wantTokenIds ? Int32Array.from(IDS) : undefined
        return {
          kind: 'read',
          request: { ...READ, isStream: true, promptTokens: 3, isCounted: true, tokenIds },
        }
      },
    },
  )
  world.ref.tell({ type: 'fleet', fleet: fleetOf(prefill, decode) })
  await world.system.settle()
  await world.ask('POST', CHAT, { body: JSON.stringify(BODY) })
  const handed = {
    choices: [{ index: 0, finish_reason: 'length' }],
    kv_transfer_params: { do_remote_prefill: true },
  }
  const hands = [head(200, { 'content-type': 'application/json' }), finish(JSON.stringify(handed))] as const
  await world.answer(...hands)
  await world.answer(...BEGUN)
  await world.answer(die)
  await world.system.settle()
  t.match(JSON.parse(world.called().body), { max_tokens: 1, kv_transfer_params: { do_remote_decode: true } })
  await world.answer(...hands)
  t.match(JSON.parse(world.called().body), {
    prompt: [1, 2, 3],
    kv_transfer_params: { do_remote_prefill: true },
  })
  t.strictSame(
    world.log.asked.map(({ leg }) => leg?.kind),
    ['prefill', 'decode', 'prefill', 'decode'],
  )
})
