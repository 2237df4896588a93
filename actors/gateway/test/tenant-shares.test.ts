/** One tenant's flood leaves places and memory for others, and its hints count only where it is trusted. */

import type { Decision } from '@homing/placement'
import type { HttpExchange } from '@homing/transport'
import t from 'tap'
import type { ClientCall } from './client-call.ts'
import { HOST, start, type World } from './gateway-world.ts'
import { DECISION, READ } from './sample-records.ts'
import { end, head } from './worker-exchange.ts'

const FLOOD = { 'x-homing-tenant': 'flood' }
const CHAT = { 'x-tenant-id': 'chat' }
const MADE_ROOM = [503, 'ServiceUnavailableError', 'queue_full', null]
const TOO_MANY = [503, 'ServiceUnavailableError', 'overloaded', null]

/** Everything waits from now on. */
function holdAll({ script }: World): void {
  script.decide = () => undefined
}

async function sample({ ask }: World, name: string): Promise<number | undefined> {
  const { body } = await ask('GET', '/metrics')
  const line = body.split('\n').find(one => one.startsWith(`${name} `))
  return line === undefined ? undefined : Number(line.slice(name.length + 1))
}

t.test('when all places are taken, the tenant with most of them makes room with its newest', async t => {
  const world = await start(t, { openRequestsMax: 4, overloadStatus: 429 })
  const { ask, settled } = world
  holdAll(world)
  const post = (headers: Readonly<Record<string, string>>) =>
    ask('POST', '/v1/completions', { headers, body: '{}' })
  const flood = [await post(FLOOD), await post(FLOOD), await post(FLOOD), await post(FLOOD)]
  t.strictSame((await post(FLOOD)).error, TOO_MANY, 'its own fifth')
  const chat = [await post(CHAT)]
  t.equal(chat[0]!.end, 'open')
  t.strictSame(
    flood.map(call => call.end),
    ['open', 'open', 'open', 'complete'],
  )
  t.strictSame(flood[3]!.error, [429, ...MADE_ROOM.slice(1)])
  t.match(
    flood[3]!.body,
    /--max-open-requests is reached, and of all tenants flood holds most for its weight/,
  )
  t.ok(Number(flood[3]!.headers['retry-after']) >= 1)
  t.strictSame(settled(), ['decision-4'], 'the queue hears of it at once')
  chat.push(await post(CHAT))
  t.strictSame(
    flood.map(call => call.end),
    ['open', 'open', 'complete', 'complete'],
  )
  t.strictSame((await post(CHAT)).error, TOO_MANY, 'each has its half')
  t.strictSame((await post(FLOOD)).error, TOO_MANY)
  t.strictSame(
    chat.map(call => call.end),
    ['open', 'open'],
  )
  t.equal(await sample(world, 'homing_gateway_open_requests'), 4)
  t.equal(await sample(world, 'homing_gateway_made_room_requests_total{setting="--max-open-requests"}'), 2)
})

t.test('one that makes room between the decision and its call is refused, and no worker gets it', async t => {
  // From none of the microtasks in which the decision goes from its placement to the call, to past all.
  for (let ticks = 0; ticks <= 12; ticks++) {
    const world = await start(t, { openRequestsMax: 2 })
    const { network, listening, script, log, send, ask, calls, logged, settled } = world
    const held: HttpExchange[] = []
    await network.transport().http.listen({ host: HOST, port: 1 }, exchange => void held.push(exchange))
    const chat = send('POST', '/v1/completions', { headers: CHAT, body: '{}', origin: `http://${HOST}:1` })
    await ask('POST', '/v1/completions', { headers: FLOOD, body: '{}' })
    const decisionOf = (id: string): Decision => {
      let left = ticks
      const step = (): void => {
        if (left-- > 0) queueMicrotask(step)
        else listening.onExchange(held[0]!)
      }
      step()
      script.decide = () => undefined
      return { ...DECISION, id }
    }
    script.decide = (_, id) => ({
      kind: 'decided',
      // Read as the answer comes to its placement.
      get decision() {
        return decisionOf(id)
      },
    })
    const flood = await ask('POST', '/v1/completions', { headers: FLOOD, body: '{}' })
    const failed = logged.lines.filter(({ text }) => text === 'exchange failed')
    t.strictSame(failed, [], `after ${ticks} ticks`)
    if (calls.length > 1) {
      t.strictSame([flood.end, chat.error, settled()], ['open', TOO_MANY, []], `called before tick ${ticks}`)
      t.ok(ticks > 0)
    } else {
      t.strictSame(flood.error, MADE_ROOM, `after ${ticks} ticks`)
      t.strictSame([chat.end, settled()], ['open', ['decision-2']])
      t.ok(ticks < 12, 'the last tick is past the call')
    }
    t.equal(log.asked.length, calls.length > 1 ? 2 : 3)
  }
})

t.test('what a worker has does not make room; what is still being read does', async t => {
  const world = await start(t, { openRequestsMax: 3 })
  const { ask, answer, script, network, system, send } = world
  const served = await ask('POST', '/v1/completions', { headers: FLOOD, body: '{}' })
  const also = await ask('POST', '/v1/completions', { headers: FLOOD, body: '{}' })
  network.faults.http = ({ method }) => (method === 'POST' ? 'stall-body' : 'deliver')
  const slow = await ask('POST', '/v1/completions', { headers: FLOOD, body: '{}' })
  network.faults.http = () => 'deliver'
  holdAll(world)
  const chat = await ask('POST', '/v1/completions', { headers: CHAT, body: '{}' })
  t.equal(chat.end, 'open')
  t.strictSame(slow.error, MADE_ROOM)
  t.strictSame([served.end, also.end], ['open', 'open'])
  t.strictSame((await ask('POST', '/v1/completions', { headers: CHAT, body: '{}' })).error, TOO_MANY)
  t.equal(await sample(world, 'homing_gateway_open_requests'), 3)
  script.decide = (_, id) => ({ kind: 'decided', decision: { ...DECISION, id } })
  await answer(head(), end)
  t.equal(also.status, 200)
  const more = send('POST', '/v1/completions', { headers: CHAT, body: '{}' })
  await system.settle()
  t.equal(more.end, 'open', 'a place that is free')
})

t.test('requests of operators take no places and make no room', async t => {
  const world = await start(t, { openRequestsMax: 2 }, {}, { consoleAnswers: false })
  const { ask } = world
  holdAll(world)
  const operators = [await ask('POST', '/route', { body: '{}' }), await ask('POST', '/route', { body: '{}' })]
  const chats = [0, 1].map(() => ask('POST', '/v1/completions', { headers: CHAT, body: '{}' }))
  const open = [...operators, ...(await Promise.all(chats))]
  t.strictSame((await ask('POST', '/v1/completions', { headers: CHAT, body: '{}' })).error, TOO_MANY)
  t.strictSame(
    open.map(call => call.end),
    ['open', 'open', 'open', 'open'],
  )
})

t.test('weights share the places, and made-up names have one share together', async t => {
  for (const unnamed of ['shared', 'own'] as const) {
    const tenants = { weights: new Map([['flood', 3]]), unnamed, trusted: [] }
    const world = await start(t, { openRequestsMax: 8, tenants })
    holdAll(world)
    const post = (tenant: string) =>
      world.ask('POST', '/v1/completions', { headers: { 'x-homing-tenant': tenant }, body: '{}' })
    const flood = []
    for (let i = 0; i < 8; i++) flood.push(await post('flood'))
    const strangers = []
    for (let i = 0; i < 8; i++) strangers.push(await post(`made up ${i}`))
    const isOpen = (calls: readonly ClientCall[]) => calls.filter(call => call.end === 'open').length
    t.strictSame([isOpen(flood), isOpen(strangers)], unnamed === 'shared' ? [6, 2] : [2, 6], unnamed)
  }
})

t.test('bodies that wait make room for those of a tenant that holds less', async t => {
  const world = await start(t, { bodiesBytesMax: 100 })
  const { ask } = world
  holdAll(world)
  const post = (headers: Readonly<Record<string, string>>, bytes: number) =>
    ask('POST', '/v1/completions', { headers, body: 'x'.repeat(bytes) })
  const flood = [await post(FLOOD, 30), await post(FLOOD, 30), await post(FLOOD, 30)]
  t.strictSame((await post(FLOOD, 30)).error, TOO_MANY)
  const chat = [await post(CHAT, 25)]
  t.equal(chat[0]!.end, 'open')
  t.strictSame(
    flood.map(call => call.end),
    ['open', 'open', 'complete'],
  )
  t.strictSame(flood[2]!.error, MADE_ROOM)
  t.match(flood[2]!.body, '--max-bodies-bytes')
  chat.push(await post(CHAT, 40))
  t.strictSame(
    flood.map(call => call.end),
    ['open', 'complete', 'complete'],
  )
  t.strictSame((await post(CHAT, 40)).error, TOO_MANY)
  t.equal(await sample(world, 'homing_gateway_body_bytes'), 95)
})

t.test('hints count for trusted tenants only; what is ignored is in the receipt and counted', async t => {
  const hinted = {
    ...READ,
    priority: { jumpSeconds: 5, strict: 9 },
    expectedOutputTokens: 1000,
    tracking: { assumesReuse: undefined, prefillTokens: false },
  }
  const read = () => ({ kind: 'read', request: hinted }) as const
  for (const [trusted, tenant, ignored] of [
    ['all', 'made up', undefined],
    [['chat'], 'chat', undefined],
    [['chat'], 'made up', /^strict_priority, priority, osl, track_prefill_tokens ignored: .* name made up$/],
    [[], 'chat', /ignored: --router-trusted-hints does not name chat$/],
    [[], '', /ignored: --router-trusted-hints does not name requests without a tenant$/],
  ] as const) {
    const tenants = { weights: new Map<string, number>(), unnamed: 'own', trusted } as const
    const world = await start(t, { tenants, queueMsMax: 1000 }, { read })
    await world.ask('POST', '/v1/completions', { headers: { 'x-homing-tenant': tenant }, body: '{}' })
    const routing = world.log.asked.at(-1)!
    const hints = world.log.hints.at(-1)
    const count = await sample(world, 'homing_gateway_ignored_hints_total{hint="strict_priority"}')
    if (ignored === undefined) {
      t.strictSame([routing.ignoredHints, routing.expectedOutputTokens], [undefined, 1000])
      t.match(hints, { strictPriority: 9, priorityJumpSeconds: 5 })
      t.equal(count, undefined)
    } else {
      t.match(routing.ignoredHints, ignored)
      t.strictSame([routing.expectedOutputTokens, routing.tracking], [undefined, undefined])
      t.match(hints, { strictPriority: 0, priorityJumpSeconds: 0, tenant })
      t.equal(count, 1)
    }
  }
})
