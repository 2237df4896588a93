/**
 * Long prompts in slices: what engine, queue and client see of them, and what becomes of them when one fails.
 */

import { toErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import t, { type Test } from 'tap'
import { start as startWorld } from './gateway-world.ts'
import { DECISION, fleetOf, READ, WORKER } from './sample-records.ts'
import type { Script } from './scripted-actors.ts'
import { data, die, end, finish, head } from './worker-exchange.ts'

/** Of the one worker; the prompt has 100 tokens, in blocks of 16. */
const STEP_TOKENS = 32
const IDS = Int32Array.from({ length: READ.promptTokens }, (_, i) => 1000 + i)
const MEMBERS = { model: 'm', cache_salt: 's' }
const BODY = JSON.stringify({
  ...MEMBERS,
  messages: [{ role: 'user', content: 'a long text' }],
  max_tokens: 9,
})
const ANSWER =
  '{"usage":{"prompt_tokens":100,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":96}}}'
const SLICE = { endTokens: STEP_TOKENS, stepTokens: STEP_TOKENS }

type Decide = Script['decide']

/** As queue and router decide about a prompt that they slice. */
const decideSliced: Decide = (request, id) => {
  const decision = { ...DECISION, id, overlapBlocks: 0, predictedTokens: 0 }
  if (request.slice !== undefined) return { kind: 'decided', decision }
  return { kind: 'decided', decision: { ...decision, slice: SLICE }, isLong: true, isSliced: true }
}

async function start(t: Test, decide: Decide = decideSliced) {
  // Of a tenant without whom nothing is sliced; refused, so that nothing is left of it.
  let isOther = true
  const world = await startWorld(
    t,
    { slicesWithinMs: 600_000, queueMsMax: 300_000 },
    {
      decide: (request, id) =>
        world.log.maySlice.at(-1) === true || request.slice !== undefined
          ? decide(request, id)
          : { kind: 'decided', decision: { ...DECISION, id } },
      read: ({ wantTokenIds }) =>
        isOther
          ? { kind: 'refused', error: toErrorRecord(new Error('of the other tenant')), param: undefined }
          : {
              kind: 'read',
              request: { ...READ, isCounted: true, tokenIds: wantTokenIds ? IDS : undefined },
            },
    },
  )
  const message: FleetMessage = {
    type: 'fleet',
    fleet: fleetOf({ ...WORKER, maxBatchedTokens: { value: STEP_TOKENS, source: 'given' } }),
  }
  world.ref.tell(message)
  await world.system.settle()
  await world.ask('POST', '/v1/chat/completions', { body: BODY, headers: { 'x-homing-tenant': 'other' } })
  isOther = false
  const ask = (headers = {}) =>
    world.ask('POST', '/v1/chat/completions', {
      body: BODY,
      headers: { 'x-request-id': 'request-1', ...headers },
    })
  /** The worker computes the slice that it got last. */
  const computed = (cachedTokens?: number) => world.answer(...sliceAnswer(cachedTokens))
  /** The other tenant has not come for as long as it counts. */
  const tenantAlone = () => world.system.advance('601s')
  return { ...world, ask, computed, tenantAlone }
}

function sliceAnswer(cachedTokens?: number) {
  const details =
    cachedTokens === undefined ? '' : `,"prompt_tokens_details":{"cached_tokens":${cachedTokens}}`
  return [
    head(200, { 'content-type': 'text/event-stream' }),
    data('data: {"choices":[{"index":0,"text":"x","finish_reason":"length"}]}\n\n'),
    data(`data: {"choices":[],"usage":{"prompt_tokens":32,"completion_tokens":1${details}}}\n\n`),
    finish('data: [DONE]\n\n'),
  ]
}

const json = head(200, { 'content-type': 'application/json' })

/** The body of the slice with this number, from 1. */
function sliceBody(number: number) {
  return {
    ...MEMBERS,
    prompt: [...IDS.subarray(0, number * STEP_TOKENS)],
    max_tokens: 1,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  }
}

t.test('without another tenant, no ids are asked for and nothing is sliced', async t => {
  const { ask, called, answer, log, tenantAlone } = await start(t)
  await tenantAlone()
  const client = await ask()
  t.match(called().request, { path: '/v1/chat/completions' })
  t.strictSame(log.maySlice, [false])
  await answer(json, finish(ANSWER))
  t.match(client, { status: 200 })
})

t.test('a prompt is computed a step at a time, and its own request gets the rest', async t => {
  const { ask, computed, called, calls, answer, log, settled, tracker } = await start(t)
  const client = await ask({ authorization: 'Bearer key' })
  for (const [i, cachedTokens] of [0, 32, 64].entries()) {
    t.match(called().request, {
      method: 'POST',
      path: '/v1/completions',
      headers: { 'x-request-id': `request-1-slice-${i + 1}`, authorization: 'Bearer key' },
    })
    t.strictSame(JSON.parse(called().body), sliceBody(i + 1))
    t.equal(client.status, undefined, 'the client sees nothing of it')
    t.strictSame(log.computed, [], 'the prompt counts as long')
    await computed(cachedTokens)
  }
  t.match(called().request, { path: '/v1/chat/completions', headers: { 'x-request-id': 'request-1' } })
  t.equal(called().body, BODY)
  await answer(json, finish(ANSWER))
  t.match(client, { status: 200, body: ANSWER, end: 'complete' })
  t.equal(calls.length, 4)
  t.strictSame(log.maySlice, [true, false, false, false])
  t.strictSame(
    log.asked.map(({ promptTokens, slice }) => [
      promptTokens,
      slice?.computedTokens,
      slice?.sent,
      slice?.isLast,
    ]),
    [
      [100, undefined, undefined, undefined],
      [64, 32, 1, false],
      [96, 64, 2, false],
      [100, 96, 3, true],
    ],
  )
  t.strictSame(log.computed, ['decision-1'])
  t.strictSame(settled(), ['decision-1', 'decision-2', 'decision-3', 'decision-4'])
  t.strictSame(
    log.settled.map(({ delivery, isPlacedAgain }) => [
      delivery.outcome,
      delivery.completionTokens,
      delivery.cachedTokens,
      isPlacedAgain,
    ]),
    [
      ['ok', undefined, 0, true],
      ['ok', undefined, 32, true],
      ['ok', undefined, 64, true],
      ['ok', 2, 96, false],
    ],
  )
  t.strictSame(
    tracker.waiting.map(({ type }) => type),
    ['prefillComplete', 'prefillComplete', 'prefillComplete', 'prefillComplete'],
  )
  t.equal(log.firstTokens.length, 0, 'no slice is an outcome for the guard')
})

const refused: Decide = (request, id) =>
  request.slice?.isLast === false
    ? { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'gone', details: {} } }
    : decideSliced(request, id)
const refusedLast: Decide = (request, id) =>
  request.slice?.isLast === true
    ? { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'gone', details: {} } }
    : decideSliced(request, id)

type World = Awaited<ReturnType<typeof start>>

/**
 * What may go wrong after the first slice; the request then goes whole, and the client sees nothing of it.
 */
const FAILURES: readonly {
  readonly name: string
  readonly outcome: string
  readonly decide?: Decide
  readonly fail: (world: World) => Promise<unknown>
  /** The next prompt is sent in slices again. */
  readonly isTrusted: boolean
}[] = [
  {
    name: 'the engine has no such route',
    outcome: 'refused',
    fail: ({ answer }) => answer(head(404, {}), end),
    isTrusted: false,
  },
  {
    name: 'the engine refuses it with 400',
    outcome: 'refused',
    fail: ({ answer }) => answer(head(400, { 'content-type': 'application/json' }), finish('{"error":{}}')),
    isTrusted: true,
  },
  {
    name: 'the engine fails with 500',
    outcome: 'refused',
    fail: ({ answer }) => answer(head(500, {}), finish('no')),
    isTrusted: true,
  },
  {
    name: 'the stream has an error in it',
    outcome: 'failed',
    fail: ({ answer }) =>
      answer(head(200, { 'content-type': 'text/event-stream' }), finish('data: {"error":{"code":500}}\n\n')),
    isTrusted: true,
  },
  { name: 'the connection breaks', outcome: 'failed', fail: ({ answer }) => answer(die), isTrusted: true },
  {
    name: 'the engine is silent',
    outcome: 'silent',
    fail: ({ system }) => system.advance('61s'),
    isTrusted: true,
  },
  {
    name: 'its blocks are evicted again and again',
    outcome: 'evicted',
    fail: async ({ computed }) => {
      await computed(0)
      await computed(0)
    },
    isTrusted: true,
  },
  {
    name: 'the worker leaves before the next slice',
    outcome: 'not_placed',
    decide: refused,
    fail: async () => {},
    isTrusted: true,
  },
  {
    name: 'the worker leaves before the rest',
    outcome: 'computed',
    decide: refusedLast,
    fail: async ({ computed }) => {
      await computed()
      await computed()
    },
    isTrusted: true,
  },
]

for (const { name, outcome, decide, fail, isTrusted } of FAILURES) {
  t.test(`the request goes whole when ${name}`, async t => {
    const world = await start(t, decide)
    const { ask, computed, called, answer, log, settled } = world
    const client = await ask()
    await computed(0)
    await fail(world)
    t.equal(called().body, BODY)
    t.equal(log.asked.at(-1)!.slice, undefined, 'any worker may take it')
    t.equal(log.maySlice.at(-1), false, 'the rule for long prompts holds it as any other')
    await answer(json, finish(ANSWER))
    t.match(client, { status: 200, body: ANSWER, end: 'complete' })
    t.strictSame(log.computed, ['decision-1'], 'its slices do not count as a long prompt any more')
    t.strictSame(settled().toSorted(), [...log.names.values()].toSorted(), 'each place is settled once')
    t.match(await metricsOf(world), `homing_gateway_sliced_prompts_total{outcome="${outcome}"} 1`)
    await ask()
    t.equal(log.maySlice.at(-1), isTrusted, isTrusted ? 'the next is sliced' : 'no slices for this engine')
  })
}

async function metricsOf({ ref, system }: World): Promise<string> {
  const asked = ref.ask({ type: 'metrics' }, { timeout: 1000 })
  await system.settle()
  return (await asked).text
}

t.test('the waits for slices count together, and the queue may refuse one by the deadline', async t => {
  const error = { code: 'HOMING_QUEUE_DEADLINE', message: 'too late', details: {} }
  let isLate = false
  const world = await start(t, (request, id) =>
    isLate && request.slice !== undefined ? { kind: 'refused', error } : decideSliced(request, id),
  )
  const { ask, computed, log, system, settled, calls } = world
  const client = await ask()
  await system.advance('5s')
  isLate = true
  await computed()
  t.match(client, { status: 503, end: 'complete' })
  t.ok(log.agesMs.at(-1)! < 5000, 'the time in which it was computed does not count')
  t.strictSame(settled(), ['decision-1', 'decision-2'])
  t.equal(calls.length, 1)
  t.strictSame(log.computed, ['decision-1'])
})

t.test('a client that leaves ends its slice, and all that it holds', async t => {
  const { ask, called, calls, settled, log, system } = await start(t)
  const client = await ask()
  client.call.abort()
  await system.settle()
  t.ok(called().isGone)
  t.strictSame(settled(), ['decision-1'])
  t.match(log.settled[0]?.delivery, { outcome: 'aborted' })
  t.strictSame(log.computed, ['decision-1'])
  t.equal(calls.length, 1)
})

t.test('an engine that does not use what slices computed gets none for a while', async t => {
  const { ask, computed, answer, log } = await start(t)
  await ask()
  for (let i = 0; i < 3; i++) await computed()
  await answer(json, finish(ANSWER.replace('96', '0')))
  await ask()
  t.equal(log.maySlice.at(-1), false)
})

t.test('an engine that does not say what it used is judged by its events', async t => {
  for (const predictedTokens of [0, 96]) {
    const decideLast: Decide = (request, id) =>
      request.slice?.isLast === true
        ? { kind: 'decided', decision: { ...DECISION, id, trust: 'exact', predictedTokens } }
        : decideSliced(request, id)
    const { ask, computed, answer, log } = await start(t, decideLast)
    await ask()
    for (let i = 0; i < 3; i++) await computed()
    await answer(json, finish('{"usage":{"prompt_tokens":100,"completion_tokens":2}}'))
    await ask()
    t.equal(log.maySlice.at(-1), predictedTokens > 0, `its events say ${predictedTokens}`)
  }
})

t.test('prompts that only their engine knows exactly are not sliced, nor those that do not wait', async t => {
  const unsliced = [
    { estimate: { tokensMax: 200 } },
    { isCounted: false },
    { tokenizedBy: 'nobody' as const, isCounted: false, tokenIds: undefined },
    { cacheUse: 'unread' as const },
    { choicesCount: 2 },
    { previousResponseId: 'r' },
    { upstreamBody: Buffer.from('{"model":"m","best_of":2}') },
    { upstreamBody: Buffer.from('{"model":"m","kv_transfer_params":{}}') },
  ]
  for (const change of unsliced) {
    const world = await start(t)
    world.script.read = () => ({
      kind: 'read',
      request: { ...READ, isCounted: true, tokenIds: IDS, ...change },
    })
    await world.ask()
    t.strictSame(world.log.maySlice, [false], JSON.stringify(change))
  }
  const world = await start(t)
  await world.ask({ 'x-homing-do-not-queue': 'true' })
  t.strictSame(world.log.maySlice, [false], 'do not queue')
  world.ref.tell({ type: 'fleet', fleet: fleetOf(WORKER) })
  await world.ask()
  t.strictSame(world.log.maySlice, [false, false], 'it is not longer than a step')
})
