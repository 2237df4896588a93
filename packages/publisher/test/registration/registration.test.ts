/** Registrations of workers, how routers receive them, and which are refused. */

import { createServer } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { SimulatedClock } from '@homing/base'
import { EndpointError, MemoryNetwork, systemTransport } from '@homing/transport'
import t from 'tap'
import {
  BadRegistrationError,
  encodeRegistration,
  readRegistration,
  registerWorker,
  registrationEndpoint,
} from '../../src/index.ts'

const encode = (word: unknown): Uint8Array => Buffer.from(JSON.stringify(word))

t.test('what is written is what is read', async t => {
  const url = 'https://gpu-1:8000?ranks=2&kv_blocks=27000&taints=a,b'
  t.strictSame(readRegistration(encodeRegistration(url)), { url })
  t.equal(registrationEndpoint(['a:4222', 'b:1'], 'prod'), 'nats://a:4222,b:1/homing.workers.prod')
})

t.test('the model type of a worker is its role', async t => {
  for (const [type, role] of [
    ['Prefill', '&role=prefill'],
    ['prefill', '&role=prefill'],
    ['Decode', '&role=decode'],
    ['Chat | Completions | Decode', '&role=decode'],
    ['Chat|Completions', ''],
  ] as const) {
    const url = 'http://gpu-1:8000/?ranks=2'
    t.strictSame(readRegistration(encodeRegistration(url, type)), { url: url + role }, type)
    t.strictSame(readRegistration(encodeRegistration(url + role, type)), { url: url + role }, 'said twice')
  }
  const url = 'http://gpu-1:8000?role=decode'
  for (const [type, fault] of [
    ['Prefill', /its model_type is "Prefill": use that of role=decode in its url, or none/],
    ['Embedding', /its model_type is "Embedding": use Prefill, Decode/],
    ['Prefill|Decode', /its model_type is "Prefill\|Decode": use .* one role at most/],
    ['', /its model_type is ""/],
    ['x'.repeat(100_000), /its model_type is "[^x]+": use Prefill/],
    [7, /its model_type is no text/],
  ] as const) {
    const read = readRegistration(encode({ version: 1, url, model_type: type }))
    t.match('fault' in read && read.fault, fault)
    t.ok('fault' in read && read.fault.length < 400, 'bounded')
    if (typeof type === 'string') t.throws(() => encodeRegistration(url, type), BadRegistrationError)
  }
  const transport = new MemoryNetwork({ clock: new SimulatedClock() }).transport()
  const wrong = { url: 'http://a:1', nats: ['nats://b:1'], modelType: 'Embedding', transport }
  t.throws(() => registerWorker(wrong), /the model type "Embedding": use Prefill/)
})

t.test('what cannot be used is refused on both sides', async t => {
  for (const url of [
    '',
    'gpu:8000',
    'ftp://a',
    'http://a:1?key_file=/etc/shadow',
    `http://a?x=${'y'.repeat(5000)}`,
  ])
    t.throws(() => encodeRegistration(url), BadRegistrationError, url)
  t.throws(() => registrationEndpoint(['a:1'], 'a.b'), /use 1 to 64 letters/)
  for (const [card, fault] of [
    [new Uint8Array(0), /no JSON/],
    [Buffer.from('{'), /no JSON/],
    [encode(7), /no object/],
    [encode({ version: 2, url: 'http://a:1' }), /its version is 2, not 1/],
    [encode({ version: 1 }), /it has no url/],
    [encode({ version: 1, url: 'file:///etc/passwd' }), /its url is not http/],
    [encode({ version: 1, url: 'http://a:1?key_env=AWS_SECRET' }), /without key_file and key_env/],
  ] as const) {
    t.match((readRegistration(card) as { readonly fault: string }).fault, fault)
  }
  t.throws(() => registerWorker({ url: 'http://a:1', nats: ['nats://u:p@b'] }), EndpointError)
})

t.test('a worker that is to listen: https is refused, and one that cannot is told of in the log', async t => {
  const secure = { url: 'https://a:1', nats: ['nats://b:1'], serve: { engine: 'http://a:1' } }
  t.throws(() => registerWorker({ ...secure, listen: 'tcp://127.0.0.1:0' }), /use it with an http URL/)
  const taken = createServer()
  await new Promise<void>(resolve => taken.listen(0, '127.0.0.1', resolve))
  t.teardown(() => taken.close())
  const { port } = taken.address() as { readonly port: number }
  const told = Promise.withResolvers<string>()
  const transport = systemTransport({ clock: new SimulatedClock(), log: { warn() {} } })
  t.teardown(() => transport.close())
  const registered = registerWorker({
    ...secure,
    url: 'http://127.0.0.1:1',
    listen: `tcp://127.0.0.1:${port}`,
    log: { warn: (_: unknown, text: string) => told.resolve(text) } as never,
    transport,
  })
  t.equal(await told.promise, 'worker is not registered')
  await t.rejects(registered.ready, { code: 'HOMING_TRANSPORT_LISTEN' })
  await registered.close()
})

t.test('a worker is present until it says good-bye, and is heard anew when the broker was away', async t => {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const pass = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 100) {
      clock.advance(100)
      for (let turn = 0; turn < 5; turn++) await setImmediate()
    }
  }
  const seen: string[] = []
  const endpoint = registrationEndpoint(['b:4222'], 'default')
  network.transport().messages.present(
    { endpoint, card: undefined },
    {
      present: ({ card }) => seen.push(JSON.stringify(readRegistration(card))),
      gone: (_, reason) => seen.push(reason),
      connected: () => seen.push('connected'),
    },
  )
  const registered = registerWorker({
    url: 'http://a:1',
    nats: ['nats://b:4222'],
    transport: network.transport(),
  })
  await pass(3000)
  t.strictSame(seen, ['connected', '{"url":"http://a:1"}'])
  network.disconnect(endpoint)
  await pass(1000)
  network.reconnect(endpoint)
  await pass(3000)
  t.strictSame(seen.slice(2), ['no broker', 'connected', '{"url":"http://a:1"}'])
  registered.close()
  registered.close()
  await pass(1000)
  t.strictSame(seen.slice(5), ['bye'])
})
