/**
 * The conformance cases of the Gateway API inference extension that concern a picker, under their names, and
 * what the endpoint picker protocol says besides: with frames as an Envoy sends them.
 */

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  AskingEnvoy,
  type AskingStream,
  answerIn,
  BODY_MODE,
  destinationIn,
  pieceIn,
  setHeaders,
} from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { booked, completion, type PickerWorld, settled, startPicker } from './picker-world.ts'

const STEERING = 'test-epp-endpoint-selection'
const SERVED = 'x-conformance-test-served-endpoint'
/** As the extension's own case has them. */
const REQUESTS = 100
const CONCURRENT = 10
const UNAVAILABLE = 14

/** For the tests that change nothing which others would see. */
const shared = await startPicker(t, {
  pickerConformance: true,
  pickerFallbacks: 2,
  bodyBytesMax: 4096,
  modelAliases: ['known=homing-demo'],
})

async function envoyOf(t: Test, { port }: PickerWorld): Promise<AskingEnvoy> {
  const envoy = await AskingEnvoy.connect(port)
  t.teardown(() => envoy.close())
  return envoy
}

/** Answers as a worker does that has generated two tokens. */
async function answer(stream: AskingStream, served?: string): Promise<Readonly<Record<string, string>>> {
  stream.answerHead(200, { 'content-type': 'application/json' }, served)
  let response = await stream.next()
  // What is left of the body of the request goes on first.
  while (response?.request_body) response = await stream.next()
  const usage = { prompt_tokens: 3, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 0 } }
  stream.answerBody(JSON.stringify({ choices: [{ text: 'a b' }], usage }), true)
  await stream.next()
  stream.end()
  await stream.ended
  return setHeaders(response)
}

/** Where the first of the list is, for each of 100 requests, ten at a time. */
async function chosen(
  world: PickerWorld,
  envoy: AskingEnvoy,
  steering: string,
): Promise<ReadonlySet<string>> {
  const found = new Set<string>()
  let next = 0
  const run = async (): Promise<void> => {
    while (next < REQUESTS) {
      const prompt = `Write as if you were a critic: San Francisco ${next++}`
      const stream = envoy.ask({
        headers: { [STEERING]: steering },
        body: completion(world.fleet.model, prompt),
      })
      for (const endpoint of destinationIn(await stream.next())?.split(',') ?? ['none']) found.add(endpoint)
      await answer(stream)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENT }, run))
  return found
}

t.test('GatewayFollowingEPPRouting', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const [a, b, c] = world.endpoints as [string, string, string]
  t.strictSame(await chosen(world, envoy, c), new Set([c]), 'a single designated pod')
  t.strictSame([...(await chosen(world, envoy, `${a},${b}`))].sort(), [a, b].sort(), 'two designated pods')
  t.strictSame([...(await chosen(world, envoy, `${a},${b},${c}`))].sort(), [a, b, c].sort(), 'all pods')
  t.strictSame(await booked(world), { requests: 0, prefillTokens: 0 })
})

t.test('GatewayFollowingEPPRoutingWithDataParallelism', async t => {
  // Each rank is a port of the same address.
  const world = shared
  const envoy = await envoyOf(t, world)
  const [a, b] = world.endpoints as [string, string]
  const all = new Set(world.endpoints)
  t.strictSame([...(await chosen(world, envoy, '127.0.0.1'))].sort(), [...all].sort(), 'any rank of the pod')
  t.strictSame(await chosen(world, envoy, b), new Set([b]), 'a fixed rank')
  t.strictSame([...(await chosen(world, envoy, `${a},10.9.9.9:1, ${b}`))].sort(), [a, b].sort())
})

t.test('GatewayDestinationEndpointServed', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  for (const endpoint of world.endpoints) {
    const stream = envoy.ask({ headers: { [STEERING]: endpoint }, body: completion(world.fleet.model, 'a') })
    t.equal(destinationIn(await stream.next()), endpoint)
    t.match(await answer(stream, endpoint), { [SERVED]: endpoint, 'x-homing-worker': `${endpoint}/0` })
  }

  // The first could not be reached: the request is booked at the one that answers.
  const stream = envoy.ask({ body: completion(world.fleet.model, 'b c d') })
  const list = destinationIn(await stream.next())!.split(',')
  t.strictSame([...list].sort(), [...world.endpoints].sort())
  const told = await answer(stream, list[2])
  t.equal(told[SERVED], list[2])
  t.match(await settled(world, told['x-homing-decision']!), { delivered: { outcome: 'error' } })
  const { decisions } = (await (await fetch(`${world.router.adminUrl}/decisions?limit=1`)).json()) as {
    readonly decisions: readonly { readonly id: string; readonly worker: string }[]
  }
  t.equal(decisions[0]!.worker, `${list[2]}/0`)
  t.match(await settled(world, decisions[0]!.id), { delivered: { outcome: 'ok' } })
  t.strictSame(await booked(world), { requests: 0, prefillTokens: 0 })
})

t.test('EppUnAvailableFailOpen', async t => {
  const world = await startPicker(t)
  const envoy = await envoyOf(t, world)
  const probe = await AskingEnvoy.connect(world.healthPort, true)
  t.teardown(() => probe.close())
  t.equal(await probe.check('readiness'), 1)
  const before = envoy.ask({ body: completion(world.fleet.model, 'a') })
  t.ok(destinationIn(await before.next()), 'it chooses')
  await answer(before)
  await world.router.stop()
  const after = envoy.ask({ body: completion(world.fleet.model, 'a') })
  t.match(await after.ended, { code: UNAVAILABLE }, 'Envoy learns at once that it is away')
})

t.test('a subset confines the choice, and one without a worker is 503', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const body = completion(world.fleet.model, 'a b c')
  for (const endpoint of world.endpoints) {
    const stream = envoy.ask({ body, subset: [endpoint, '10.9.9.9:1'] })
    t.equal(destinationIn(await stream.next()), endpoint)
    stream.cancel()
  }
  for (const subset of [[], ['10.9.9.9:1']]) {
    const refusal = answerIn(await envoy.ask({ body, subset }).next())
    t.equal(refusal?.status, 503)
    t.match(refusal?.body, /cannot choose an endpoint/)
  }
})

t.test('errors are answered at once: 400, 404, 413', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const cases: readonly (readonly [number, RegExp, string])[] = [
    [400, /JSON/, '{"model": '],
    [404, /other/, completion('other', 'a')],
    [413, /4096/, completion(world.fleet.model, 'x'.repeat(5000))],
  ]
  for (const [status, says, body] of cases) {
    const refusal = answerIn(await envoy.ask({ body }).next())
    t.equal(refusal?.status, status)
    t.match(refusal?.body, says)
  }
  t.strictSame(await booked(world), { requests: 0, prefillTokens: 0 })
})

t.test('busy workers are 429, or the status that is set', async t => {
  const busy = { activePrefillTokensThreshold: 0, queueThreshold: 'none', overloadStatus: 429 } as const
  const world = await startPicker(t, busy)
  const envoy = await envoyOf(t, world)
  const open: AskingStream[] = []
  let refusal: ReturnType<typeof answerIn>
  // As many as it takes for each worker to have one.
  for (let index = 0; index < 50 && refusal === undefined; index++) {
    const stream = envoy.ask({ body: completion(world.fleet.model, `prompt ${index} `.repeat(50)) })
    refusal = answerIn(await stream.next())
    open.push(stream)
  }
  t.equal(refusal?.status, 429)
  for (const stream of open) stream.cancel()
})

t.test('load is booked from the choice to the end, and freed when the client leaves', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const stream = envoy.ask({
    path: '/v1/chat/completions',
    body: JSON.stringify({
      model: world.fleet.model,
      messages: [{ role: 'user', content: 'hello there '.repeat(40) }],
      stream: true,
    }),
  })
  t.ok(destinationIn(await stream.next()))
  const sent = await booked(world)
  t.equal(sent.requests, 1)
  t.ok(sent.prefillTokens > 0)
  stream.answerHead(200, { 'content-type': 'text/event-stream' })
  stream.answerBody('data: {"choices":[{"delta":{"content":"a"}}]}\n\n', false)
  for (let count = 0; count < 3; count++) await stream.next()
  while ((await booked(world)).prefillTokens > 0) await new Promise(setImmediate)
  t.equal((await booked(world)).requests, 1, 'it still writes')
  stream.cancel()
  await stream.ended
  while ((await booked(world)).requests > 0) await new Promise(setImmediate)
})

t.test('a prompt goes where its blocks are, and its receipt says what the answer told', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  // Long enough for whole blocks.
  const body = completion(world.fleet.model, 'one two three four five six seven eight nine ten '.repeat(20))
  const first = envoy.ask({ body })
  const [endpoint] = destinationIn(await first.next())!.split(',')
  const told = await answer(first)
  t.match(await settled(world, told['x-homing-decision']!), {
    worker: `${endpoint}/0`,
    delivered: { outcome: 'ok', status: 200, completion_tokens: 2 },
  })
  // The engine has computed it: its events say so.
  const asked = await fetch(`http://${endpoint}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })
  await asked.text()
  for (;;) {
    const again = envoy.ask({ body })
    const [where] = destinationIn(await again.next())!.split(',')
    const headers = await answer(again)
    if (Number(headers['x-homing-overlap-blocks']) > 0) {
      t.equal(where, endpoint)
      return
    }
  }
})

/** A chat of which an Envoy with `request_body_mode: BUFFERED` shows the head of the answer. */
async function answeredUnseen(envoy: AskingEnvoy, model: string, isStream: boolean) {
  const modes = { request: BODY_MODE.buffered, response: BODY_MODE.none }
  const messages = [{ role: 'user', content: 'hello' }]
  const body = JSON.stringify({ model, messages, stream: isStream })
  const stream = envoy.ask({ path: '/v1/chat/completions', body, modes })
  await stream.next()
  stream.sendBody(body)
  await stream.next()
  stream.answerHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' })
  const id = setHeaders(await stream.next())['x-homing-decision']!
  return { stream, id }
}

t.test('answers of which only the head is shown (NONE) blame no worker', async t => {
  const world = await startPicker(t, { pickerFallbacks: 0 }, 1)
  const envoy = await envoyOf(t, world)
  // More than a worker may fail before it is left out.
  for (const isStream of [true, false])
    for (let count = 0; count < 4; count++) {
      const { stream, id } = await answeredUnseen(envoy, world.fleet.model, isStream)
      while ((await booked(world)).prefillTokens > 0) await new Promise(setImmediate)
      t.equal((await booked(world)).requests, 1, 'it counts until Envoy ends the stream')
      stream.end()
      t.match(await stream.ended, { code: 0 })
      t.match(await settled(world, id), { delivered: { outcome: 'ok', status: 200 } })
    }
  const { workers } = (await (await fetch(`${world.router.adminUrl}/workers`)).json()) as {
    readonly workers: readonly { readonly health: { readonly state: string } }[]
  }
  t.match(workers, [{ health: { state: 'up' } }])
})

t.test('an answer of which only the head is shown (NONE) may be silent', async t => {
  const world = await startPicker(t, { pickerFallbacks: 0, silenceTimeoutMs: 3000 }, 1)
  const envoy = await envoyOf(t, world)
  const { stream, id } = await answeredUnseen(envoy, world.fleet.model, true)
  // One whose body is shown, and does not come, is given up.
  const shown = envoy.ask({ body: completion(world.fleet.model, 'b') })
  await shown.next()
  shown.answerHead(200, { 'content-type': 'text/event-stream' })
  while ((await booked(world)).requests > 1) await new Promise(setImmediate)
  stream.end()
  t.match(await settled(world, id), { delivered: { outcome: 'ok' } })
})

t.test('a worker that answers with failures is left out, as in the router', async t => {
  const world = await startPicker(t, { pickerFallbacks: 2 })
  const envoy = await envoyOf(t, world)
  const bad = world.endpoints[0]!
  const isOut = async (): Promise<boolean> => {
    const { workers } = (await (await fetch(`${world.router.adminUrl}/workers`)).json()) as {
      readonly workers: readonly { readonly id: string; readonly health: { readonly state: string } }[]
    }
    return workers.find(({ id }) => id === bad)!.health.state === 'ejected'
  }
  for (let index = 0; !(await isOut()); index++) {
    t.ok(index < 500, 'it is left out in the end')
    const stream = envoy.ask({ body: completion(world.fleet.model, `question ${index}`) })
    const [where] = destinationIn(await stream.next())!.split(',')
    if (where === bad) {
      stream.answerHead(503, { 'content-type': 'text/plain' }, undefined, true)
      stream.end()
      await stream.ended
    } else await answer(stream)
  }
  const stream = envoy.ask({ body: completion(world.fleet.model, 'after that') })
  const [, ...others] = destinationIn(await stream.next())!.split(',')
  t.notOk(others.includes(bad), 'nor is it tried where the first cannot be reached')
  await answer(stream)
})

t.test('others of the list have the taints that the request requires, and the same rank', async t => {
  const world = await startPicker(t, { pickerFallbacks: 2 }, 3, ([a, b, c]) => [
    `${a}?taints=gpu`,
    `${b}?taints=gpu`,
    `${c}`,
  ])
  const envoy = await envoyOf(t, world)
  const [a, b] = world.endpoints as [string, string]
  const nvext = { routing_constraints: { required_taints: ['gpu'] } }
  const stream = envoy.ask({ body: completion(world.fleet.model, 'a', { nvext }) })
  t.strictSame(
    destinationIn(await stream.next())!
      .split(',')
      .sort(),
    [a, b].sort(),
  )
  stream.cancel()
  const ranked = await startPicker(t, { pickerFallbacks: 2 }, 3, all => all.map(url => `${url}?ranks=2`))
  const other = (await envoyOf(t, ranked)).ask({ body: completion(ranked.fleet.model, 'a') })
  const list = destinationIn(await other.next())!.split(',')
  t.equal(list.length, 1, 'a header names the rank of the first')
  other.cancel()
})

t.test(
  'workers that an Envoy cannot call are left out, and a model that has no others is refused',
  async t => {
    const card = { id: 'toy', object: 'model', owned_by: 'custom', model_input: 'Tokens' }
    const worker = createServer(({ url }, reply) => {
      if (url === '/metrics') reply.end('process_start_time_seconds 1\n')
      else reply.setHeader('content-type', 'application/json').end(JSON.stringify({ data: [card] }))
    })
    await once(worker.listen(0, '127.0.0.1'), 'listening')
    t.teardown(() => worker.close())
    const url = `http://127.0.0.1:${(worker.address() as AddressInfo).port}`
    const world = await startPicker(t, { pickerFallbacks: 3 }, 1, workers => [...workers, url])
    const envoy = await envoyOf(t, world)
    for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v1/embeddings']) {
      const messages = [{ role: 'user', content: 'a' }]
      const body = JSON.stringify({ model: 'toy', prompt: 'a', input: 'a', messages, max_tokens: 4 })
      const headers = { 'content-type': 'application/json' }
      const refusal = answerIn(await envoy.ask({ path, headers, body }).next())
      t.equal(refusal?.status, 400, path)
      t.match(refusal?.body, /its workers take token ids, which an Envoy does not send/, path)
    }
    for (let count = 0; count < 3; count++) {
      const stream = envoy.ask({ method: 'GET', path: '/v1/models' })
      t.equal(destinationIn(await stream.next()), world.endpoints[0])
      stream.cancel()
    }
  },
)

t.test('a body goes on whatever its method, though it be empty', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const modes = { request: BODY_MODE.buffered, response: BODY_MODE.none }
  for (const body of ['', '{}']) {
    const streamed = envoy.ask({ method: 'GET', path: '/v1/models', body })
    t.ok(destinationIn(await streamed.next()))
    t.strictSame(pieceIn(await streamed.next()), { text: body, isEnd: true })
    streamed.cancel()
    const buffered = envoy.ask({ method: 'GET', path: '/v1/models', body, modes })
    t.equal(destinationIn(await buffered.next()), undefined)
    buffered.sendBody(body)
    t.ok(destinationIn(await buffered.next()))
    buffered.cancel()
  }
})

t.test('a request without a body goes to a worker by load', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const stream = envoy.ask({ method: 'GET', path: '/v1/models' })
  const [first] = destinationIn(await stream.next())!.split(',')
  t.ok(world.endpoints.includes(first!))
  stream.cancel()
})

t.test('nvext and aliases are cut from the body that goes on', async t => {
  const world = shared
  const envoy = await envoyOf(t, world)
  const stream = envoy.ask({ body: completion('known', 'a b', { nvext: { agent_hints: {} } }) })
  t.ok(destinationIn(await stream.next()))
  const piece = (await stream.next())?.request_body?.response.body_mutation?.streamed_response
  const sent = JSON.parse(Buffer.from(piece!.body!).toString()) as Record<string, unknown>
  t.equal(sent['model'], world.fleet.model)
  t.equal(sent['nvext'], undefined)
  stream.cancel()
})
