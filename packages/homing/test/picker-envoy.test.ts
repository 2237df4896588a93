/** A real Envoy, with the configuration of docs/endpoint-picker.md, before simulated engines and a picker. */

import { readFileSync } from 'node:fs'
import { EnvoyServer, freePorts } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { envoyProgram, pathOf, skipOfFile } from '../../../test/python/interpreter.ts'
import { booked, completion, type PickerWorld, startPicker } from './picker-world.ts'

const program = envoyProgram()
const skip = skipOfFile(program)

const PAGE = new URL('../../../docs/endpoint-picker.md', import.meta.url)
/** Longer than Envoy's pieces of a body, and than those that go on. */
const LONG_CHARACTERS = 200_000

/** The page's, for these engines and ports. */
function configuration(world: PickerWorld, port: number, change: (text: string) => string): string {
  const [, page] = /```yaml\n(static_resources:.*?)```/s.exec(readFileSync(PAGE, 'utf8'))!
  const engine = (endpoint: string): string => {
    const [address, enginePort] = endpoint.split(':')
    return `{ address: ${address}, port_value: ${enginePort} }`
  }
  return change(
    page!
      .replace('{ address: 0.0.0.0, port_value: 8080 }', `{ address: 127.0.0.1, port_value: ${port} }`)
      .replace('{ address: 10.0.0.1, port_value: 8000 }', engine(world.endpoints[0]!))
      .replace('{ address: 10.0.0.2, port_value: 8000 }', engine(world.endpoints[1]!))
      .replace('port_value: 9002', `port_value: ${world.port}`),
  )
}

async function start(
  t: Test,
  world: PickerWorld,
  change: (text: string) => string = text => text,
): Promise<(path: string, body?: string) => Promise<Response>> {
  const [port] = await freePorts(1)
  const envoy = await EnvoyServer.start(pathOf(program), port!, configuration(world, port!, change))
  t.teardown(() => envoy.stop())
  const headers = { 'content-type': 'application/json' }
  return (path, body) =>
    fetch(`${envoy.url}${path}`, body === undefined ? {} : { method: 'POST', headers, body })
}

/** The endpoint whose engine has had the request of an answer: what Envoy did, whatever the headers say. */
async function servedAt(
  { router, endpoints }: PickerWorld,
  { headers }: Response,
): Promise<string | undefined> {
  const decision = await fetch(`${router.adminUrl}/decisions/${headers.get('x-homing-decision')}`)
  const { request_id: id } = (await decision.json()) as { readonly request_id: string }
  for (const endpoint of endpoints) {
    const state = await (await fetch(`http://${endpoint}/admin/state`)).json()
    const { requests } = state as { readonly requests: readonly { readonly requestId: string }[] }
    if (requests.some(({ requestId }) => requestId === id)) return `${endpoint}/0`
  }
  return undefined
}

/** Waits for the receipts of all. */
async function isFree(world: PickerWorld): Promise<void> {
  while ((await booked(world)).requests > 0) await new Promise(setImmediate)
}

t.test('a real Envoy sends requests where the picker says', { skip }, async t => {
  const world = await startPicker(t, {}, 2)
  const { model } = world.fleet
  const ask = await start(t, world)

  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => ask('/v1/completions', completion(model, `prompt ${index}`))),
  )
  for (const answer of answers) {
    t.equal(answer.status, 200)
    const { choices } = (await answer.json()) as { readonly choices: readonly unknown[] }
    t.equal(choices.length, 1)
    t.equal(await servedAt(world, answer), answer.headers.get('x-homing-worker'))
  }
  const workers = new Set(answers.map(({ headers }) => headers.get('x-homing-worker')))
  t.strictSame([...workers].sort(), world.endpoints.map(endpoint => `${endpoint}/0`).sort())
  await isFree(world)

  const streamed = await ask('/v1/completions', completion(model, 'a b c', { stream: true }))
  t.match(await streamed.text(), /^data: .*data: \[DONE\]\n\n$/s)

  const long = await ask('/v1/completions', completion(model, 'word '.repeat(LONG_CHARACTERS / 5)))
  t.equal(long.status, 200)
  const { usage } = (await long.json()) as { readonly usage: { readonly prompt_tokens: number } }
  t.ok(usage.prompt_tokens > LONG_CHARACTERS / 50, 'the engine has got the whole body')

  const nvext = await ask('/v1/completions', completion(model, 'a b', { nvext: { agent_hints: {} } }))
  t.equal(nvext.status, 200, 'a shorter body goes on as well')
  await nvext.text()

  const unknown = await ask('/v1/completions', completion('other', 'a'))
  t.equal(unknown.status, 404)
  t.match(await unknown.json(), { error: { code: 'model_not_found' } })
  t.equal((await ask('/v1/completions', '{"model": ')).status, 400)

  const models = await ask('/v1/models')
  t.match(await models.json(), { data: [{ id: model }] })
  await isFree(world)
  const metrics = await (await fetch(`${world.router.adminUrl}/metrics`)).text()
  t.match(metrics, /homing_picker_requests_total\{outcome="left"\} 0\n/)
  t.match(metrics, /homing_picker_requests_total\{outcome="refused"\} 2\n/)
})

t.test('a prompt that was sent before goes to the engine that has it', { skip }, async t => {
  const world = await startPicker(t, {}, 2)
  const ask = await start(t, world)
  const body = completion(world.fleet.model, 'one two three four five six seven eight '.repeat(30))
  const first = await ask('/v1/completions', body)
  await first.text()
  const holders = [first.headers.get('x-homing-worker')]
  // Until the events of an engine have come, another one may get it, too.
  for (;;) {
    const again = await ask('/v1/completions', body)
    await again.text()
    const worker = again.headers.get('x-homing-worker')
    if (Number(again.headers.get('x-homing-overlap-blocks')) > 0) {
      t.ok(holders.includes(worker))
      t.equal(await servedAt(world, again), worker)
      return
    }
    holders.push(worker)
  }
})

t.test('bodies that Envoy buffers are read as well', { skip }, async t => {
  const world = await startPicker(t, {}, 2)
  const buffered = (text: string): string =>
    text
      .replaceAll('_body_mode: FULL_DUPLEX_STREAMED', '_body_mode: BUFFERED')
      .replaceAll('_trailer_mode: SEND', '_trailer_mode: SKIP')
  const ask = await start(t, world, buffered)
  for (const more of [{}, { nvext: { agent_hints: {} } }]) {
    const answer = await ask('/v1/completions', completion(world.fleet.model, 'a b c', more))
    t.equal(answer.status, 200)
    t.match(answer.headers.get('x-homing-worker'), /^127\.0\.0\.1:\d+\/0$/)
    t.match(await answer.json(), { choices: [{}] })
  }
  await isFree(world)
})

t.test('a client that leaves in the middle frees its booking', { skip }, async t => {
  // Slow enough to be left.
  const world = await startPicker(t, {}, 2)
  const ask = await start(t, world)
  const answer = await ask(
    '/v1/completions',
    completion(world.fleet.model, 'a', { stream: true, max_tokens: 100_000 }),
  )
  const reader = answer.body!.getReader()
  await reader.read()
  t.equal((await booked(world)).requests, 1)
  await reader.cancel()
  await isFree(world)
})

t.test('EppUnAvailableFailOpen: without the picker, Envoy goes on by itself', { skip }, async t => {
  const world = await startPicker(t, {}, 2)
  // Bodies that are streamed both ways cannot fail open once they have begun, so Envoy wants them buffered.
  const open = (text: string): string =>
    text
      .replaceAll('_body_mode: FULL_DUPLEX_STREAMED', '_body_mode: BUFFERED')
      .replaceAll('_trailer_mode: SEND', '_trailer_mode: SKIP')
      .replace('message_timeout: 60s', 'message_timeout: 60s\n              failure_mode_allow: true')
  const ask = await start(t, world, open)
  const before = await ask('/v1/completions', completion(world.fleet.model, 'a'))
  t.equal(before.status, 200)
  t.ok(before.headers.get('x-homing-worker'))
  await before.text()
  await world.router.stop()
  const after = await ask('/v1/completions', completion(world.fleet.model, 'a'))
  t.equal(after.status, 200)
  t.notOk(after.headers.get('x-homing-worker'))
  await after.text()
})
