/** Streams that another worker goes on with: what it is sent, what the client gets, and what is settled. */

import type { HttpExchange } from '@homing/transport'
import t from 'tap'
import { decisionFor } from './call-world.ts'
import {
  type Act,
  BEGUN,
  BODY,
  CHAT,
  DONE,
  delta,
  dieSoon,
  event,
  IDS,
  LIMITS,
  more,
  REST,
  ROLE,
  run,
  SAME,
  SSE,
  seen,
  text,
  WHOLE,
} from './continuation-world.ts'
import { start as startWorld } from './gateway-world.ts'
import { DECISION, fleetOf, READ, WORKER, WORKER_HOST } from './sample-records.ts'
import { textOf } from './utf8.ts'
import { data, die, finish, head } from './worker-exchange.ts'

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
