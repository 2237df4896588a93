/**
 * What refers to a response goes to the worker that has it; where the gateway does not know that, it is
 * placed by load, and says so.
 */

import { RESPONSE_ID_CHARACTERS_MAX } from '@homing/openai'
import t, { type Test } from 'tap'
import { ResponseHolders } from '../src/response-holders.ts'
import { start, type World } from './gateway-world.ts'
import { DECISION, fleetOf, READ, WORKER } from './sample-records.ts'
import { utf8 } from './utf8.ts'

const JSON_TYPE = { 'content-type': 'application/json' }
const EVENTS_TYPE = { 'content-type': 'text/event-stream' }

async function world(t: Test, decision = DECISION, args: Parameters<typeof start>[1] = {}): Promise<World> {
  return start(t, args, {
    read: ({ body }) => {
      const { previous_response_id: previousResponseId } = JSON.parse(new TextDecoder().decode(body))
      return { kind: 'read', request: { ...READ, previousResponseId } }
    },
    decide: (_, id) => ({ kind: 'decided', decision: { ...decision, id } }),
  })
}

const create = (world: World, body: object = {}, path = '/v1/responses') =>
  world.ask('POST', path, { headers: JSON_TYPE, body: JSON.stringify({ model: 'm', ...body }) })

async function respond(world: World, id: string, isStream = false): Promise<void> {
  await create(world)
  const response = { id, object: 'response', usage: null }
  await world.answer(http => {
    http.writeHead(200, isStream ? EVENTS_TYPE : JSON_TYPE)
    http.write(
      utf8(
        isStream
          ? `event: response.created\ndata: ${JSON.stringify({ type: 'response.created', response })}\n\n`
          : JSON.stringify(response),
      ),
    )
    if (!isStream) http.end()
  })
}

/** Where a request was asked to go. */
async function placed(world: World, method: string, path: string, body?: object) {
  await (body === undefined ? world.ask(method, path) : create(world, body))
  const { pinnedInstanceId, pinnedRank, unknownPromptReason } = world.called().routing
  return { pinnedInstanceId, pinnedRank, unknownPromptReason }
}

async function sample(world: World, name: string): Promise<string | undefined> {
  const { body } = await world.ask('GET', '/metrics')
  return new RegExp(`^${name} (.*)$`, 'm').exec(body)?.[1]
}

const HERE = { pinnedInstanceId: 7, unknownPromptReason: /at the worker that has it/ }
const LOST = { pinnedInstanceId: undefined, unknownPromptReason: /gone or not known/ }

t.test('what goes on from a response, asks for it, cancels or deletes it goes to its worker', async t => {
  const w = await world(t)
  await respond(w, 'resp_1')
  t.match(await placed(w, 'POST', '/v1/responses', { previous_response_id: 'resp_1' }), HERE)
  t.match(await placed(w, 'GET', '/v1/responses/resp_1'), HERE)
  t.match(await placed(w, 'DELETE', '/v1/responses/resp_1'), HERE)
  t.match(await placed(w, 'POST', '/v1/responses/resp_1/cancel'), HERE)
  t.equal(w.called().request.path, '/v1/responses/resp_1/cancel')
  t.match(await placed(w, 'GET', '/v1/responses/resp_2'), LOST)
  t.match(await placed(w, 'POST', '/v1/responses', {}), {
    pinnedInstanceId: undefined,
    unknownPromptReason: undefined,
  })
  t.equal(await sample(w, 'homing_gateway_remembered_responses'), '1')
  t.equal(await sample(w, 'homing_gateway_lost_responses_total'), '1')
})

t.test('an action that an operator has added is no id; its body may refer to a response', async t => {
  const w = await world(t, DECISION, {
    relayRoutes: [{ method: 'POST', path: '/v1/responses/compact' }],
  })
  await respond(w, 'resp_1')
  const compact = async (body: object) => {
    await create(w, body, '/v1/responses/compact')
    const { pinnedInstanceId, unknownPromptReason } = w.called().routing
    return { pinnedInstanceId, unknownPromptReason }
  }
  t.match(await compact({ input: 'x' }), { pinnedInstanceId: undefined, unknownPromptReason: /by load/ })
  t.equal(await sample(w, 'homing_gateway_lost_responses_total'), '0')
  t.match(await compact({ previous_response_id: 'resp_1' }), HERE)
  t.match(await compact({ previous_response_id: 'resp_2' }), LOST)
})

t.test('behind a route with * what is known as a response is one, and all else an action', async t => {
  const w = await world(t, DECISION, { relayRoutes: [{ method: 'POST', path: '/v1/responses/*' }] })
  await respond(w, 'resp_1')
  await create(w, {}, '/v1/responses/resp_1')
  t.match(w.called().routing, HERE)
  await create(w, { previous_response_id: 'resp_1' }, '/v1/responses/compact')
  t.match(w.called().routing, HERE)
})

t.test('a response can be cancelled while it streams, at its rank', async t => {
  const w = await world(t, { ...DECISION, dpRank: 2, pinRank: true })
  await respond(w, 'resp_1', true)
  t.match(await placed(w, 'POST', '/v1/responses/resp_1/cancel'), { ...HERE, pinnedRank: 2 })
})

t.test('a pin or a list of the client wins over the worker that has the response', async t => {
  const w = await world(t)
  await respond(w, 'resp_1')
  const headers = { 'x-worker-instance-id': '3' }
  await w.ask('GET', '/v1/responses/resp_1', { headers })
  t.equal(w.called().routing.pinnedInstanceId, 3)
  w.script.read = () => ({
    kind: 'read',
    request: {
      ...READ,
      previousResponseId: 'resp_1',
      constraints: { allowedInstanceIds: [1], requiredTaints: [], preferredTaints: {} },
    },
  })
  t.match(await placed(w, 'POST', '/v1/responses', {}), LOST)
})

t.test('a worker that is gone, down, or serves another model has the response no more', async t => {
  const w = await world(t)
  await respond(w, 'resp_1')
  for (const workers of [
    [],
    [{ ...WORKER, state: 'down' as const }],
    [{ ...WORKER, state: 'draining' as const }],
    [{ ...WORKER, models: [] }],
  ]) {
    w.ref.tell({ type: 'fleet', fleet: fleetOf(...workers) })
    t.match(await placed(w, 'POST', '/v1/responses', { previous_response_id: 'resp_1' }), LOST)
  }
  w.ref.tell({ type: 'fleet', fleet: fleetOf(WORKER) })
  t.match(await placed(w, 'POST', '/v1/responses', { previous_response_id: 'resp_1' }), HERE)
  t.equal(await sample(w, 'homing_gateway_lost_responses_total'), '4')
})

t.test('a worker that has left and came back has none of its responses', async t => {
  const w = await world(t)
  await respond(w, 'resp_1')
  w.ref.tell({ type: 'fleet', fleet: fleetOf({ ...WORKER, joinedMs: WORKER.joinedMs + 1 }) })
  t.match(await placed(w, 'POST', '/v1/responses', { previous_response_id: 'resp_1' }), LOST)
  await respond(w, 'resp_2')
  t.match(await placed(w, 'GET', '/v1/responses/resp_2'), LOST, 'the answer is of the life before')
})

t.test('of more responses than may be remembered, the oldest are forgotten', async t => {
  const w = await world(t)
  for (const id of ['resp_1', 'resp_2', 'resp_3', 'resp_1', 'resp_4']) await respond(w, id)
  const known = async (id: string) =>
    (await placed(w, 'GET', `/v1/responses/${id}`)).pinnedInstanceId !== undefined
  t.strictSame(
    [await known('resp_1'), await known('resp_2'), await known('resp_3'), await known('resp_4')],
    [true, false, true, true],
  )
  await respond(w, 'x'.repeat(RESPONSE_ID_CHARACTERS_MAX + 1))
  t.equal(await sample(w, 'homing_gateway_remembered_responses'), '3')
})

t.test('the ids of other answers are not remembered', async t => {
  const w = await world(t)
  for (const path of ['/v1/chat/completions', '/v1/messages']) {
    await create(w, {}, path)
    await w.answer(http => {
      http.writeHead(200, JSON_TYPE)
      http.end(utf8('{"id":"resp_1","object":"response"}'))
    })
  }
  await create(w)
  await w.answer(http => {
    http.writeHead(404, JSON_TYPE)
    http.end(utf8('{"error":{"message":"no such route","id":"resp_1"}}'))
  })
  t.equal(await sample(w, 'homing_gateway_remembered_responses'), '0')
})

t.test('a response that is named as one of another client takes nothing away from it', t => {
  const holders = new ResponseHolders(10)
  const of = (client: string) => ({ workerId: 'a', joinedMs: 1, dpRank: undefined, client })
  holders.heard('resp', of('one'))
  holders.heard('resp', { ...of('other'), workerId: 'b' })
  t.strictSame(holders.heldOf('resp'), of('one'))
  holders.heard('resp', { ...of('one'), workerId: 'b' })
  t.equal(holders.heldOf('resp')!.workerId, 'b')
  t.end()
})
