/**
 * Prefill and decode apart: what each engine is sent, byte for byte, and what becomes of a request when
 * either leg fails, is late, or its client leaves. Each leg is settled once.
 */

import type { FleetMessage, WorkerRecord } from '@homing/fleet'
import t, { type Test } from 'tap'
import { LegBodies, readPrefillAnswer } from '../src/leg-bodies.ts'
import { start as startWorld } from './gateway-world.ts'
import { DECISION, fleetOf, READ, WORKER } from './sample-records.ts'
import type { Script } from './scripted-actors.ts'
import { data, die, end, finish, head } from './worker-exchange.ts'

type Decide = Script['decide']

const PREFILL: WorkerRecord = {
  ...WORKER,
  id: 'prefill:1',
  instanceId: 10,
  role: { value: 'prefill', source: 'given' },
  taints: ['topology/zone=a', 'gpu'],
}
const DECODE: WorkerRecord = {
  ...WORKER,
  role: { value: 'decode', source: 'given' },
  taints: ['topology/zone=a'],
}
const BODY =
  '{ "model":"m", "messages":[{"role":"user","content":"a\\u00e9"}],\n "max_tokens":9 ,"min_tokens":3}'
const ASKS =
  '"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}'
const PREFILL_BODY = `{ "model":"m", "messages":[{"role":"user","content":"a\\u00e9"}],\n "max_tokens":1,${ASKS}}`
const PARAMS =
  '{"do_remote_prefill": true, "remote_block_ids":[[1,2]], "remote_engine_id":"e", "remote_port":5600, "later": 1.0}'
const HANDED = `{"id":"x","choices":[{"index":0,"finish_reason":"length"}],"usage":{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":32}},"kv_transfer_params":${PARAMS}}`
const ANSWER = '{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2}}'
const json = head(200, { 'content-type': 'application/json' })

const decideLegs: Decide = (request, id) => ({
  kind: 'decided',
  decision:
    request.leg?.kind === 'prefill'
      ? { ...DECISION, id, workerId: PREFILL.id, worker: 'prefill:1/0' }
      : { ...DECISION, id },
})

async function start(
  t: Test,
  decide: Decide = decideLegs,
  { workers = [PREFILL, DECODE], settings = {}, read = {} } = {},
) {
  const exchangeLimits = {
    retriesMax: 2,
    retryShare: 1,
    stallMsMin: 0,
    silenceMsMax: 60_000,
    requestMsMax: 0,
  }
  const world = await startWorld(
    t,
    { queueMsMax: 300_000, exchangeLimits, ...settings },
    { decide, read: () => ({ kind: 'read', request: { ...READ, ...read } }) },
  )
  const message: FleetMessage = { type: 'fleet', fleet: fleetOf(...workers) }
  world.ref.tell(message)
  await world.system.settle()
  const ask = (body = BODY, path = '/v1/chat/completions') =>
    world.ask('POST', path, { body, headers: { 'x-request-id': 'request-1' } })
  const metric = async (name: string, label: string): Promise<number> => {
    const { body } = await world.ask('GET', '/metrics')
    return Number(new RegExp(`${name}\\{${label}\\} (\\d+)`).exec(body)?.[1] ?? 0)
  }
  const legs = (outcome: string) => metric('homing_gateway_prefill_legs_total', `outcome="${outcome}"`)
  const alone = (reason: string) => metric('homing_gateway_decode_alone_total', `reason="${reason}"`)
  const outcomes = () =>
    world.log.settled.map(({ delivery, wasTaken, isPlacedAgain }) => [
      delivery.outcome,
      wasTaken,
      isPlacedAgain,
    ])
  return { ...world, ask, legs, alone, outcomes, metric }
}

t.test('the client gets the answer of the decode leg, which gets what the prefill leg said', async t => {
  const { ask, called, calls, answer, log, settled, outcomes, tracker, legs } = await start(t)
  const client = await ask()
  t.match(called().request, { path: '/v1/chat/completions', headers: { 'x-request-id': 'request-1' } })
  t.equal(called().body, PREFILL_BODY)
  t.equal(client.status, undefined, 'the client sees nothing of it')
  await answer(json, finish(HANDED))
  t.equal(called().body, `${BODY.slice(0, -1)},"kv_transfer_params":${PARAMS}}`)
  t.match(called().request, { headers: { 'x-request-id': 'request-1' } })
  await answer(json, finish(ANSWER))
  t.match(client, {
    status: 200,
    body: ANSWER,
    headers: { 'x-homing-worker': DECISION.worker, 'x-homing-prefill-worker': 'prefill:1/0' },
  })
  t.equal(calls.length, 2)
  const [first, second] = log.asked
  t.match(first, {
    leg: { kind: 'prefill' },
    outputTokensMax: 1,
    tracking: { activeBlocks: false },
    isStream: false,
  })
  t.match(second, {
    leg: { kind: 'decode', handover: 'kv_transfer', topology: ['topology/zone=a'] },
    tracking: { prefillTokens: false, assumesReuse: false },
    override: { overlapWeight: 0 },
  })
  t.strictSame(
    log.hints.map(hints => hints !== undefined),
    [true, false],
    'what was computed does not wait',
  )
  t.strictSame(settled(), ['decision-1', 'decision-2'])
  t.strictSame(outcomes(), [
    ['ok', true, true],
    ['ok', true, false],
  ])
  t.match(log.settled[0]!.delivery, { cachedTokens: 32, completionTokens: undefined })
  t.match(tracker.waiting, [
    { type: 'prefillComplete', teaches: true },
    { type: 'prefillComplete', teaches: true },
  ])
  t.equal(await legs('handed_over'), 1)
})

t.test('every route and form of a limit is one token, and a stream is none', async t => {
  for (const [path, body, sent] of [
    [
      '/v1/completions',
      '{"prompt":"a","stream":true,"stream_options":{"include_usage":true}}',
      '{"prompt":"a","stream":false,"max_tokens":1',
    ],
    [
      '/v1/chat/completions',
      '{"messages":[1],"max_completion_tokens":8,"n":3}',
      '{"messages":[1],"max_completion_tokens":1,"n":1',
    ],
    ['/v1/responses', '{"input":"a"}', '{"input":"a","max_output_tokens":1,"store":false'],
    ['/v1/messages', '{"min_tokens":2,"messages":[1],"max_tokens":8}', '{"messages":[1],"max_tokens":1'],
  ] as const) {
    const { ask, called } = await start(t)
    await ask(body, path)
    t.equal(called().body, `${sent},${ASKS}}`, path)
  }
})

t.test('a first token that ends the answer is the answer', async t => {
  const whole = HANDED.replace('"length"', '"stop"').replace(PARAMS, 'null')
  const { ask, calls, answer, settled, legs, metric } = await start(t)
  const client = await ask()
  await answer(json, finish(whole))
  t.match(client, { status: 200, body: whole, end: 'complete' })
  t.equal(calls.length, 1)
  t.strictSame(settled(), ['decision-1'])
  t.equal(await legs('answered'), 1)
  t.equal(await metric('homing_request_output_tokens_sum', 'model="m"'), 1, 'its tokens count as any others')

  const stream = await start(t, decideLegs, { read: { isStream: true } })
  await stream.ask()
  await stream.answer(json, finish(whole))
  t.equal(stream.called().body, BODY, 'of a stream, the decode worker makes it')
})

t.test('where no hand-over comes, one worker gets the request as it is', async t => {
  const ends = {
    'answers 500': [head(500), finish('{}')],
    'answers 400': [json, head(400), finish('{}')].slice(1),
    'breaks off': [die],
    'hands nothing over': [json, finish(HANDED.replace(PARAMS, 'null'))],
    'answers no JSON': [head(200, { 'content-type': 'text/plain' }), finish('no')],
    'breaks off in its answer': [json, data('{"id"'), die],
  }
  for (const [what, acts] of Object.entries(ends)) {
    let prefills = 0
    const decide: Decide = (request, id) =>
      request.leg?.kind === 'prefill' && ++prefills > 1
        ? { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} } }
        : decideLegs(request, id)
    const { ask, called, answer, alone, settled, log } = await start(t, decide)
    const client = await ask()
    await answer(...acts)
    t.equal(called().body, BODY, what)
    t.equal(log.asked.at(-1)!.leg, undefined, what)
    await answer(json, finish(ANSWER))
    t.match(client, { status: 200, body: ANSWER }, what)
    t.equal(await alone('failed'), 1, what)
    t.strictSame(
      settled(),
      log.asked.map((_, i) => `decision-${i + 1}`),
      `${what}: each is settled`,
    )
  }
})

t.test('a silent prefill worker is given up', async t => {
  const { ask, called, calls, system, log } = await start(t, (request, id) =>
    request.leg?.kind === 'prefill' && request.excludedWorkers.length > 0
      ? { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} } }
      : decideLegs(request, id),
  )
  await ask()
  await system.advance('61s')
  t.ok(calls[0]!.isGone)
  t.equal(called().body, BODY)
  t.match(log.workerFailed, [{ workerId: PREFILL.id }])
})

t.test('a hand-over that the decode worker cannot take is not its fault, and is not used twice', async t => {
  const { ask, called, answer, alone, settled, outcomes, log } = await start(t)
  const client = await ask()
  await answer(json, finish(HANDED))
  await answer(head(500), finish('{"error":"KV load failed"}'))
  t.equal(called().body, BODY)
  t.strictSame(log.asked.at(-1)!.excludedWorkers, [], 'the same worker may have it')
  await answer(json, finish(ANSWER))
  t.match(client, { status: 200, body: ANSWER })
  t.strictSame(log.workerFailed, [])
  t.equal(await alone('lost'), 1)
  t.strictSame(settled(), ['decision-1', 'decision-2', 'decision-3'])
  t.strictSame(outcomes()[1], ['error', true, true])
})

t.test('a decode worker that fails hand-overs again and again gets none, while others are there', async t => {
  const others = [DECODE, { ...DECODE, id: 'decode:2', instanceId: 11 }]
  for (const [decodes, avoided] of [
    [others, [DECODE.id]],
    [[DECODE], []],
    // Where the prompt was computed, it is the only one.
    [[DECODE, { ...others[1]!, taints: [] }], []],
  ] as const) {
    const { ask, answer, log, system } = await start(t, decideLegs, { workers: [PREFILL, ...decodes] })
    const excluded = () => log.asked.filter(({ leg }) => leg?.kind === 'decode').at(-1)!.excludedWorkers
    const lose = async () => {
      await ask()
      await answer(json, finish(HANDED))
      await answer(head(500), finish('{"error":"KV load failed"}'))
      await answer(json, finish(ANSWER))
    }
    const take = async () => {
      await ask()
      await answer(json, finish(HANDED))
      await answer(json, finish(ANSWER))
    }
    await lose()
    await take()
    await lose()
    await take()
    t.strictSame(excluded(), [], 'what it takes makes good what it lost')
    await lose()
    await lose()
    await take()
    t.strictSame(excluded(), avoided, `${decodes.length}`)
    await system.advance('31s')
    await take()
    t.strictSame(excluded(), [], 'after a while it is tried again')
  }
})

t.test('strictly, a prompt for whose legs there is no room is refused', async t => {
  for (const isEnforced of [true, false]) {
    const disagg = { isEnforced, stay: undefined }
    const settings = { disagg, bodiesBytesMax: 2 * BODY.length }
    const { ask, answer, alone } = await start(t, decideLegs, { settings })
    const client = await ask()
    if (isEnforced) t.match(client, { status: 503, body: /the bodies of its legs would be more than/ })
    else {
      await answer(json, finish(ANSWER))
      t.match(client, { status: 200 })
      t.equal(await alone('no_room'), 1)
    }
  }
})

t.test('a decode worker that sheds load leaves the hand-over to another', async t => {
  const { ask, called, answer } = await start(t)
  const client = await ask()
  await answer(json, finish(HANDED))
  const { body } = called()
  await answer(head(503), finish('{}'))
  t.equal(called().body, body)
  await answer(json, finish(ANSWER))
  t.match(client, { status: 200 })
})

t.test('a client that leaves ends the leg that is under way, whichever it is', async t => {
  for (const answered of [0, 1]) {
    const { ask, called, answer, system, outcomes, settled } = await start(t)
    const client = await ask()
    if (answered > 0) await answer(json, finish(HANDED))
    client.call.abort()
    await system.settle()
    t.ok(called().isGone)
    t.equal(settled().length, answered + 1)
    t.equal(outcomes().at(-1)![0], 'aborted')
  }
  // Before it is placed, too.
  const { ask, system, settled, log } = await start(t, () => undefined)
  const client = await ask()
  client.call.abort()
  await system.settle()
  t.equal(settled().length, log.asked.length)
})

t.test('a prompt of which little is new stays on decode, if that is wanted', async t => {
  const stay = { tokens: 60, share: 0.7 }
  const settings = { disagg: { isEnforced: false, stay } }
  for (const [cachedTokens, isSplit] of [
    [41, false],
    [40, true],
    [0, true],
  ] as const) {
    const { ask, script, log, alone } = await start(t, decideLegs, { settings })
    script.measure = () => ({ cachedTokens, boundWorker: undefined })
    await ask()
    t.equal(log.asked[0]!.leg?.kind, isSplit ? 'prefill' : undefined, `${cachedTokens} of 100 are cached`)
    t.equal(await alone('cached'), isSplit ? 0 : 1)
  }
  // No answer comes, and the client leaves.
  await leavesEarly(t, settings)
})

t.test('by auto, the cheaper way is taken, and a prompt goes apart where that is not known', async t => {
  const settings = { disagg: { isEnforced: false, stay: 'auto' } } as const
  for (const [wholeMs, isSplit] of [
    [99, false],
    [100, false],
    [101, true],
    [undefined, true],
  ] as const) {
    const { ask, script, log, alone } = await start(t, decideLegs, { settings })
    const costs = { prefillMs: 50, transferMs: 10, decodeMs: 40 }
    script.weighLegs = () => ({ costs: wholeMs === undefined ? undefined : { ...costs, wholeMs } })
    await ask()
    t.equal(log.asked[0]!.leg?.kind, isSplit ? 'prefill' : undefined, `${wholeMs} ms whole, 100 in two legs`)
    t.equal(await alone('cheaper'), isSplit ? 0 : 1)
    if (!isSplit) t.strictSame(log.asked[0]!.legCosts, { ...costs, wholeMs })
  }
  await leavesEarly(t, settings)
})

async function leavesEarly(t: Test, settings: object): Promise<void> {
  const { ask, log, calls, system } = await start(t, decideLegs, { settings })
  const client = await ask()
  client.call.abort()
  await system.advance('5s')
  t.equal(log.asked.length, 0, 'nothing is placed for it')
  t.equal(calls.length, 0)
}

t.test('strictly, a request without a hand-over is refused, and a lost one begins anew', async t => {
  const settings = { disagg: { isEnforced: true, stay: undefined } }
  const none = await start(t, decideLegs, { workers: [DECODE], settings })
  t.match(await none.ask(), { status: 503, body: /prefill of this model is pending/ })
  t.equal(none.calls.length, 0)

  const { ask, called, answer } = await start(t, decideLegs, { settings })
  const client = await ask()
  await answer(json, finish(HANDED))
  await answer(head(500), finish('{}'))
  t.equal(called().body, PREFILL_BODY, 'the prompt is computed again')
  await answer(json, finish(HANDED.replace(PARAMS, 'null')))
  t.match(client, { status: 503, body: /hands nothing over/ })
})

t.test('a decode worker that fails every hand-over does not get them for ever', async t => {
  const settings = { disagg: { isEnforced: true, stay: undefined } }
  const { ask, calls, answer } = await start(t, decideLegs, { settings })
  const client = await ask()
  for (let round = 0; round < 3; round++) {
    await answer(json, finish(HANDED))
    await answer(head(500), finish('{"error":"KV load failed"}'))
  }
  t.match(client, { status: 500, body: /KV load failed/ })
  t.equal(calls.length, 6, 'once more than anything else that fails')
})

t.test('a response, and an answer that only began, are no answers of the prefill leg', async t => {
  const answers: readonly (readonly [string, string])[] = [
    ['responses', '{"object":"response","status":"queued"}'],
    ['responses', '{"object":"response","status":"completed"}'],
    ['chat', '{"choices":[{"index":0,"finish_reason":"length"}]}'],
  ]
  for (const [route, body] of answers)
    t.match(readPrefillAnswer(Buffer.from(body)), { params: undefined, isWhole: false }, `${route} ${body}`)
  const later = new LegBodies(Buffer.from('{"input":"a","background":true}'))
  t.notOk(later.hasNoTies, 'its answer is fetched later')
  const sent = Buffer.from(new LegBodies(Buffer.from('{"input":"a"}')).prefill('responses')).toString()
  t.match(JSON.parse(sent), { input: 'a', max_output_tokens: 1, store: false })
})

t.test('without prefill workers nothing is asked twice, and what needs one worker gets one', async t => {
  const plain = await start(t, decideLegs, { workers: [WORKER] })
  await plain.ask()
  t.equal(plain.called().body, BODY)
  t.equal(plain.log.asked.length, 1)

  for (const body of [
    '{"prompt":["a","b"]}',
    '{"prompt":"a","echo":true}',
    '{"prompt":"a","kv_transfer_params":{}}',
  ]) {
    const { ask, called, alone } = await start(t)
    await ask(body, '/v1/completions')
    t.equal(called().body, body)
    t.equal(await alone('unfit'), 1)
  }
  const pinned = await start(t, decideLegs, { read: { pinnedInstanceId: 7, isWholePin: true } })
  await pinned.ask()
  t.equal(pinned.called().body, BODY, 'one worker is named for all of it')
})

t.test('a prefill pin holds or is refused', async t => {
  const read = { prefillPin: { instanceId: 10, rank: undefined } }
  const { ask, log } = await start(t, decideLegs, { read })
  await ask()
  t.match(log.asked[0], { leg: { kind: 'prefill' }, pinnedInstanceId: 10 })
  const refused = await start(
    t,
    () => ({ kind: 'refused', error: { code: 'HOMING_ROUTER_PINNED_WORKER', message: 'none', details: {} } }),
    { read, workers: [WORKER] },
  )
  t.match(await refused.ask(), { status: 400 })
  t.equal(refused.calls.length, 0)
})

const ROOM = /"bootstrap_host":"b","bootstrap_port":8998,"bootstrap_room":(\d+)\}$/
const SGLANG = {
  workers: [
    {
      ...PREFILL,
      keys: [WORKER.keys[0]!, { ...WORKER.keys[0]!, key: 'prefill:1/1', dpRank: 1 }],
      handover: { value: 'bootstrap', source: 'probed' },
      bootstrap: { host: 'b', port: { value: 8998, source: 'probed' } },
    },
    { ...DECODE, handover: { value: 'bootstrap', source: 'probed' } },
  ] satisfies readonly WorkerRecord[],
}
const decideRank1: Decide = (request, id) => {
  const decided = decideLegs(request, id) as Extract<ReturnType<Decide>, { readonly kind: 'decided' }>
  return request.leg?.kind === 'prefill'
    ? { ...decided, decision: { ...decided.decision, dpRank: 1, pinRank: true } }
    : decided
}

t.test('by bootstrap, both legs are sent at once, to a room of the rank', async t => {
  const { ask, calls, system, settled, legs } = await start(t, decideRank1, SGLANG)
  const client = await ask()
  t.equal(calls.length, 2)
  t.equal(calls[0]!.body, calls[1]!.body)
  const [prefix, room] = [calls[0]!.body.split(',"bootstrap_host"')[0], ROOM.exec(calls[0]!.body)?.[1]]
  t.equal(prefix, BODY.slice(0, -1))
  t.equal(BigInt(room!) % 2n, 1n, 'the room is one of rank 1')
  t.strictSame(calls.map(({ http }) => http.headers['x-data-parallel-rank']).sort(), ['1', undefined])
  const [decode, prefill] = calls.toSorted(({ http }) =>
    http.headers['x-data-parallel-rank'] === '1' ? 1 : -1,
  )
  for (const act of [json, finish(HANDED)]) act(prefill!.http)
  await system.settle()
  for (const act of [json, finish(ANSWER)]) act(decode!.http)
  await system.settle()
  t.match(client, { status: 200, body: ANSWER })
  t.strictSame(settled(), ['decision-1', 'decision-2'])
  t.equal(await legs('handed_over'), 1)
})

t.test('a prefill leg that fails ends its decode leg at once, and both begin anew', async t => {
  const { ask, calls, system, settled, log } = await start(t, decideRank1, SGLANG)
  const client = await ask()
  const isPrefill = (i: number) => calls[i]!.http.headers['x-data-parallel-rank'] === '1'
  const [prefill, decode] = isPrefill(0) ? [0, 1] : [1, 0]
  for (const act of [head(500), end]) act(calls[prefill]!.http)
  await system.settle()
  t.ok(calls[decode]!.isGone, 'it waits for nothing')
  t.equal(calls.length, 4)
  t.strictSame(log.asked[2]!.excludedWorkers, [PREFILL.id])
  t.not(ROOM.exec(calls[2]!.body)![1], ROOM.exec(calls[0]!.body)![1], 'in another room')
  client.call.abort()
  await system.settle()
  t.ok(calls[2]!.isGone && calls[3]!.isGone, 'both legs end with their client')
  t.strictSame(settled().toSorted(), ['decision-1', 'decision-2', 'decision-3', 'decision-4'])
})
