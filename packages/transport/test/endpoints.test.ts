/**
 * Endpoints: what is read as one can be given to libzmq, which throws at what it does not take; and a socket
 * that throws all the same ends nothing else.
 */

import process from 'node:process'
import { setImmediate } from 'node:timers/promises'
import { seededRandom, systemClock } from '@homing/base'
import t from 'tap'
import * as zmq from 'zeromq'
import { parseEtcdEndpoint } from '../src/endpoint.ts'
import {
  type EndpointError,
  faultOfEndpoint,
  parseBrokerEndpoint,
  parseEndpoint,
  systemTransport,
} from '../src/index.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const TRIES = 2000
const MESSAGE_CHARACTERS_MAX = 500

const REFUSED = [
  'tcp://_:5557',
  'tcp://-a:1',
  'tcp://.a:1',
  'tcp://a..b:1',
  'tcp://gpu?node:1',
  'tcp://gpu node:1',
  'tcp://gpu/node:1',
  'tcp://gpu\u0000node:1',
  'tcp://günther:1',
  'tcp://eth0;10.0.0.1:1',
  'tcp://10.0.0.1:1;10.0.0.2:1',
  'tcp://a:+1',
  'tcp://a:0',
  'tcp://a:65536',
  'tcp://*:1',
  'tcp://[]:1',
  'tcp://[::g]:1',
  'tcp://[::1]x:1',
  'tcp://[::1%]:1',
  'tcp://[10.0.0.1]:1',
  'tcp://::1:1',
  `tcp://${'a'.repeat(64)}:1`,
  `tcp://${'a.'.repeat(127)}a:1`,
  `tcp://${'a'.repeat(1_000_000)}:1`,
  'ipc://',
  'ipc://*',
  'ipc://@',
  'ipc://a\u0000b',
  'ipc://a\nb',
  `ipc://${'a'.repeat(108)}`,
  `ipc://${'é'.repeat(54)}`,
  `ipc://${'a'.repeat(1_000_000)}`,
  'inproc://a',
  'udp://a:1',
  'pgm://a:1',
  'nats://_:4222/a',
  'nats://a?b:4222/a',
  'nats://a:4222/a b',
  `nats://${'a'.repeat(1_000_000)}:4222/a`,
  `nats://a:4222/${'a'.repeat(1_000_000)}`,
  'nats://a:4222/>',
  '',
]

t.test('what no socket takes is refused, with an error of bounded length that says why', async t => {
  for (const endpoint of REFUSED) {
    const shown = JSON.stringify(endpoint.slice(0, 40))
    t.type(faultOfEndpoint(endpoint), 'string', shown)
    t.throws(() => parseEndpoint(endpoint, 'connect'), { code: 'HOMING_TRANSPORT_ENDPOINT' }, shown)
    try {
      parseEndpoint(endpoint, 'connect')
    } catch (error) {
      const { message, details } = error as EndpointError
      t.ok(message.length < MESSAGE_CHARACTERS_MAX, `${shown}: ${message.length} characters`)
      t.ok(JSON.stringify(details).length < MESSAGE_CHARACTERS_MAX, shown)
    }
  }
})

const HOST_PARTS = [
  'a',
  'Z',
  '9',
  '-',
  '_',
  '.',
  '%',
  ':',
  '[',
  ']',
  ';',
  '?',
  ' ',
  '\u0000',
  'ü',
  '*',
  '/',
  '@',
]

t.test('what is taken, libzmq takes, too', async t => {
  const random = seededRandom(SEED)
  const draw = (parts: readonly string[], most: number): string =>
    Array.from({ length: 1 + random.below(most) }, () => parts[random.below(parts.length)]).join('')
  const context = new zmq.Context({ blocky: false, maxSockets: 1024 })
  let taken = 0
  for (let i = 0; i < TRIES; i++) {
    const host =
      random.below(4) === 0 ? `[${draw(['f', '0', ':', '::', '%', 'lo', '1'], 6)}]` : draw(HOST_PARTS, 5)
    const endpoint =
      random.below(5) === 0 ? `ipc://${draw(HOST_PARTS, 130)}` : `tcp://${host}:${random.below(70_000)}`
    if (faultOfEndpoint(endpoint) !== undefined) continue
    taken++
    const socket = new zmq.Subscriber({ context, linger: 0, ipv6: endpoint.includes('[') })
    try {
      socket.connect(endpoint)
    } catch (error) {
      t.fail(`seed ${SEED}: ${JSON.stringify(endpoint)}: ${(error as Error).message}`)
    } finally {
      socket.close()
      // What is closed goes in a later turn.
      await setImmediate()
    }
  }
  t.ok(taken > 50, `${taken} of ${TRIES} were taken, seed ${SEED}`)
})

t.test('names as clusters have them are taken', async t => {
  for (const endpoint of [
    'tcp://localhost:5557',
    'tcp://vllm-0.vllm.default.svc.cluster.local:5557',
    'tcp://docker_engine_1:5557',
    'tcp://host.:5557',
    'tcp://10.0.0.1:65535',
    'tcp://[::1]:5557',
    'tcp://[fe80::1%eth0]:5557',
    'ipc:///tmp/kv events',
    'ipc://@abstract',
  ])
    t.equal(faultOfEndpoint(endpoint), undefined, endpoint)
  t.strictSame(parseBrokerEndpoint('nats://a:4222,b_c/kv.0').servers, ['a:4222', 'b_c:4222'])
})

t.test('a handler that throws at a message loses its connection, and no other one does', async t => {
  const warnings: object[] = []
  const transport = systemTransport({
    clock: systemClock,
    log: { warn: fields => void warnings.push(fields) },
  })
  t.teardown(() => transport.close())
  const publisher = await transport.messages.publish({ endpoint: 'tcp://127.0.0.1:0' })
  const { endpoint } = publisher
  const heard: string[] = []
  const done = Promise.withResolvers<void>()
  const subscribe = (name: string) =>
    transport.messages.subscribe(
      { endpoint, topic: '' },
      {
        connected: () => heard.push(`${name} connected`),
        disconnected: () => heard.push(`${name} disconnected`),
        message([frame]) {
          const word = Buffer.from(frame!).toString()
          if (word === 'bad' && name === 'weak') throw new Error('a bug of the owner')
          heard.push(`${name} ${word}`)
          if (word === 'last' && name === 'weak') done.resolve()
        },
      },
    )
  subscribe('weak')
  subscribe('strong')
  const timer = setInterval(() => publisher.send([Buffer.from('warm')]), 5)
  t.teardown(() => clearInterval(timer))
  const both = (): boolean => heard.includes('weak warm') && heard.includes('strong warm')
  while (!both()) await new Promise(resolve => setTimeout(resolve, 1))
  clearInterval(timer)
  publisher.send([Buffer.from('bad')])
  publisher.send([Buffer.from('last')])
  await done.promise
  const told = heard.filter(word => !word.endsWith('warm'))
  t.strictSame(
    told.filter(word => word.startsWith('weak')),
    ['weak connected', 'weak disconnected', 'weak connected', 'weak last'],
  )
  t.notOk(told.includes('strong disconnected'))
  t.match(warnings, [{ culprit: endpoint }])
})

t.test('an exchange whose handler throws is cut, and the server goes on', async t => {
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0 }, exchange => {
    if (exchange.path === '/bad') throw new Error('a bug of the owner')
    exchange.writeHead(200, {})
    exchange.end(Buffer.from('well'))
  })
  const url = `http://127.0.0.1:${listener.port}`
  await t.rejects(fetch(`${url}/bad`))
  t.equal(await (await fetch(`${url}/good`)).text(), 'well')
})

t.test('a server of etcd that names no port is at that of etcd, not at that of a broker', async t => {
  t.strictSame(parseEtcdEndpoint('etcd://10.0.0.7,10.0.0.8:99,[fd00::1]/homing.a'), {
    servers: ['http://10.0.0.7:2379', 'http://10.0.0.8:99', 'http://[fd00::1]:2379'],
    subject: 'homing.a',
  })
  t.match(parseEtcdEndpoint('etcds://etcd/a'), { servers: ['https://etcd:2379'] })
})
