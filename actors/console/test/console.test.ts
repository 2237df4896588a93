/** The console by its messages, between owners that are silent or scripted. */

import { type ActorRef, defineActor } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { TokenizerMessage } from '@homing/actors/tokenizer'
import type { TrackerMessage } from '@homing/actors/tracker'
import { jsonAnswer } from '@homing/http'
import { MODEL_LABELS_DEFAULT } from '@homing/metrics'
import { MemoryNetwork, transportCapability } from '@homing/transport'
import t, { type Test } from 'tap'
import { type ConsoleArgs, type FromConsole, OPERATOR_ROUTES, operatorConsole } from '../src/index.ts'

const ASK = { timeout: '1m' } as const
const HOST = '10.0.0.9'
const PORT = 9000

export const scriptedGateway = defineActor(
  import.meta.url,
  'scriptedGateway',
)<FromConsole, undefined>({
  setup() {
    const error = { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot place it', details: {} }
    return {
      metrics: ({ reply }) => reply({ life: 'one', text: 'homing_gateway_open_requests 7\n' }),
      health: ({ reply }) => reply(jsonAnswer(200, { status: 'ok' })),
      refused() {},
      clientStalled() {},
      explain: ({ reply }) => reply({ kind: 'refused', error, param: undefined }),
      bestWorker: ({ reply }) => reply(error),
      potentialLoads: ({ reply }) => reply(error),
      reservedPrefilled: ({ reply }) => reply(error),
      freeReserved: ({ reply }) => reply(error),
    }
  },
})

interface From {
  readonly headers?: Readonly<Record<string, string>>
  readonly peerAddress?: string
  readonly body?: Uint8Array | undefined
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

function start(t: Test, change: Partial<ConsoleArgs> = {}) {
  const { clock } = createTestSystem()
  const network = new MemoryNetwork({ clock })
  const system = createTestSystem({ clock, provide: [[transportCapability, network.transport()]] })
  t.teardown(() => system.shutdown())
  const directory = system.probe<DirectoryMessage>('directory')
  const args: ConsoleArgs = {
    host: HOST,
    adminPort: undefined,
    bodyBytesMax: 1000,
    bodySilenceMsMax: 60_000,
    clientStallMsMax: 120_000,
    page: 'local',
    pageTabsMax: 8,
    askMsMax: 1000,
    readMsMax: 5000,
    modelLabels: MODEL_LABELS_DEFAULT,
    relayed: ['POST /v1/embeddings'],
    router: system.probe<RouterMessage>('router').ref,
    queue: system.probe<QueueMessage>('queue').ref,
    directory: directory.ref,
    tracker: system.probe<TrackerMessage>('tracker').ref,
    tokenizer: system.probe<TokenizerMessage>('tokenizer').ref,
    indexers: [],
    ...change,
  }
  const spawn = (other: Partial<ConsoleArgs> = {}) =>
    system.spawn(operatorConsole, { name: 'console', args: { ...args, ...other } })
  const ref = spawn()
  const gateway = system.spawn(scriptedGateway, { name: 'gateway', args: undefined })
  const serve = async (path: string, method = 'GET', from: From = {}) => {
    const { headers = {}, peerAddress = '127.0.0.1', body } = from
    const request = { method, path, query: '', headers, peerAddress, body }
    const { status, headers: answered, body: bytes } = await ref.ask({ type: 'serve', request }, ASK)
    return { status, headers: answered, text: new TextDecoder().decode(bytes) }
  }
  const client = network.transport()
  return { system, network, ref, spawn, client, directory, gateway: gateway as ActorRef<FromConsole>, serve }
}

t.test('what needs the gateway waits until it is known, and nothing else does', async t => {
  const { system, ref, gateway, serve } = start(t)
  t.equal((await serve('/')).status, 200)
  let isScraped = false
  const scrape = serve('/metrics').then(answer => {
    isScraped = true
    return answer
  })
  const route = serve('/route', 'POST')
  await system.advance('2s')
  t.equal(isScraped, false)
  ref.tell({ type: 'gateways', gateways: [gateway] })
  const { status, text } = await scrape
  t.equal(status, 200)
  t.match(text, /^homing_gateway_open_requests 7$/m)
  t.match(text, /^homing_metrics_collector_failures_total \d+$/m)
  t.match(await route, { status: 503, text: /cannot place it/ })
})

t.test('one request more than a hundred at one time is refused at once', async t => {
  const { system, serve } = start(t)
  const waiting = Array.from({ length: 100 }, () => serve('/decisions'))
  await system.settle()
  t.match(await serve('/'), { status: 503, text: /cannot answer another operator request: 100 / })
  await system.advance('1s')
  for (const { status } of await Promise.all(waiting)) t.equal(status, 504)
  t.equal((await serve('/')).status, 200)
})

t.test('who is elsewhere may not change the fleet, unless the key is sent', async t => {
  const changes = [
    ['/workers', 'POST', { type: 'addWorker' }],
    ['/workers/a:1', 'DELETE', { type: 'removeWorker', workerId: 'a:1' }],
    ['/workers/a:1/drain', 'POST', { type: 'drainWorker', workerId: 'a:1' }],
  ] as const
  for (const [peerAddress, authorization, adminKey, isAllowed] of [
    ['10.0.0.7', undefined, undefined, false],
    ['10.0.0.7', 'Bearer guess', undefined, false],
    ['10.0.0.7', 'Bearer guess', 'secret', false],
    ['10.0.0.7', undefined, 'secret', false],
    ['10.0.0.7', 'Bearer secret', 'secret', true],
    ['10.0.0.7', 'bearer  secret ', 'secret', true],
    ['::ffff:10.0.0.7', undefined, undefined, false],
    ['::ffff:127.0.0.1', undefined, undefined, true],
    ['127.8.9.10', undefined, undefined, true],
    ['::1', undefined, 'secret', true],
    ['', undefined, undefined, false],
    ['127.0.0.1.example', undefined, undefined, false],
    ['::ffff:127.0.0.1', 'Bearer guess', 'secret', true],
  ] as const) {
    const { serve, directory } = start(t, { adminKey })
    for (const [path, method, told] of changes) {
      const what = `${method} ${path} from ${JSON.stringify(peerAddress)} with ${authorization} of ${adminKey}`
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization }
      const body = method === 'POST' && path === '/workers' ? utf8('{"url":"http://a:1"}') : undefined
      const served = serve(path, method, { headers, peerAddress, body })
      if (isAllowed) {
        const asked = await directory.next()
        t.match(asked, told, what)
        if (asked.type === 'addWorker') asked.reply({ id: 'a:1' })
        else if (asked.type === 'removeWorker' || asked.type === 'drainWorker') asked.reply(true)
      }
      const { status, text } = await served
      if (isAllowed) t.ok(status >= 200 && status < 300, `${what}: ${status}`)
      else t.match({ status, text }, { status: 403, text: /--admin-key-file/ }, what)
      t.equal(directory.waiting.length, 0, `${what}: nothing more is asked`)
    }
  }
})

/** What no operator on this machine sends, each with a path that it may not read either. */
const STRANGERS: readonly (readonly [headers: Readonly<Record<string, string>>, mayRead: boolean])[] = [
  [{ host: 'evil.example:8000', origin: 'http://evil.example:8000' }, false],
  [{ host: 'evil.example:8000' }, false],
  [{ host: 'localhost:8000', origin: 'http://evil.example' }, false],
  [{ host: 'localhost:8000', origin: 'null' }, false],
  [{ host: 'localhost:8000', referer: 'http://evil.example/' }, false],
  [{ host: 'localhost:8000', 'sec-fetch-site': 'cross-site' }, false],
  [{ host: 'localhost:8000', 'sec-fetch-site': 'same-site' }, false],
  ...[
    'forwarded',
    'via',
    'x-forwarded-for',
    'x-forwarded-host',
    'x-forwarded-proto',
    'x-forwarded-port',
    'x-real-ip',
    'cf-connecting-ip',
    'true-client-ip',
    'x-client-ip',
    'x-cluster-client-ip',
    'x-envoy-external-address',
    'fly-client-ip',
  ].map(name => [{ host: 'localhost:8000', [name]: '10.0.0.7' }, true] as const),
]
/** Anyone may have them: they say nothing of this router. */
const OPEN_PATHS = new Set(['/', '/page/*'])

t.test('no page of another site and no proxy reaches any operator route', async t => {
  const { serve, system, directory } = start(t)
  for (const { method, path } of OPERATOR_ROUTES) {
    if (OPEN_PATHS.has(path)) continue
    // Of a body, POST /route reads the prompt and changes nothing.
    const isChange = method !== 'GET' && path !== '/route'
    for (const [headers, mayRead] of STRANGERS) {
      if (mayRead && !isChange) continue
      const what = `${method} ${path} with ${JSON.stringify(headers)}`
      const body = method === 'POST' ? utf8('{"url":"http://a:1"}') : undefined
      const { status, text } = await serve(path.replace('*', 'a:1/drain'), method, { headers, body })
      t.equal(status, 403, what)
      t.match(text, mayRead ? /--admin-key-file/ : /cannot (GET|POST|DELETE) /, what)
    }
  }
  await system.settle()
  t.equal(directory.waiting.length, 0, 'nothing is asked')
  const key = 'a-key-of-16-chars'
  const keyed = start(t, { adminKey: key, hostNames: ['router.example.org'] })
  const headers = { host: 'evil.example', authorization: `Bearer ${key}` }
  t.equal((await keyed.serve('/queue', 'PUT', { headers })).status, 405)
  const removed = keyed.serve('/workers/a:1', 'DELETE', { headers })
  const asked = await keyed.directory.next()
  if (asked.type === 'removeWorker') asked.reply(true)
  t.equal((await removed).status, 200, 'the key counts from anywhere')
  const named = await keyed.serve('/workers/a:1', 'DELETE', { headers: { host: 'router.example.org' } })
  t.equal(named.status, 403, 'a further name gives no right to change anything')
})

t.test('a port that is taken is told, and fails the console when the start is over', async t => {
  const { system, ref, spawn } = start(t, { adminPort: PORT })
  t.strictSame(await ref.ask({ type: 'address' }, ASK), { host: HOST, port: PORT })
  const second = spawn()
  t.match(await second.ask({ type: 'address' }, ASK), {
    code: 'HOMING_TRANSPORT_LISTEN',
    message: /10\.0\.0\.9:9000/,
  })
  const ended = system.whenTerminated(second)
  second.tell({ type: 'started' })
  t.match(await ended, { reason: 'failed' })
  ref.tell({ type: 'started' })
  t.match(await ref.ask({ type: 'address' }, ASK), { port: PORT })
})

t.test('a port for metrics serves them and health alone', async t => {
  const { system, ref, spawn, gateway, client } = start(t, { adminPort: PORT, metricsPort: PORT + 1 })
  ref.tell({ type: 'gateways', gateways: [gateway] })
  t.strictSame(await ref.ask({ type: 'metricsAddress' }, ASK), { host: HOST, port: PORT + 1 })
  const ask = async (port: number, path: string, method = 'GET') => {
    const asked = client.http.fetch({ origin: `http://${HOST}:${port}`, method, path }, { timeoutMs: 30_000 })
    await system.advance('2s')
    const { status, body } = await asked
    return { status, text: new TextDecoder().decode(body) }
  }
  const metrics = /^homing_gateway_open_requests 7$/m
  t.match(await ask(PORT + 1, '/metrics'), { status: 200, text: metrics })
  t.equal((await ask(PORT + 1, '/metrics', 'POST')).status, 405)
  for (const path of ['/health', '/live'])
    t.match(await ask(PORT + 1, path), { status: 200, text: /"status": "ok"/ }, path)
  for (const path of ['/', '/workers', '/dump', '/ready', '/v1/models']) {
    const text = /this port serves \/metrics, \/health and \/live alone/
    t.match(await ask(PORT + 1, path), { status: 404, text }, path)
  }
  t.match(await ask(PORT, '/metrics'), { status: 200, text: metrics }, 'and it stays where it was')

  const second = spawn({ adminPort: undefined })
  t.match(await second.ask({ type: 'metricsAddress' }, ASK), { code: 'HOMING_TRANSPORT_LISTEN' })
  const ended = system.whenTerminated(second)
  second.tell({ type: 'started' })
  t.match(await ended, { reason: 'failed' })
})

t.test('a port for metrics has a room of its own, which is counted', async t => {
  const { system, ref, gateway, client, network } = start(t, {
    adminPort: PORT,
    metricsPort: PORT + 1,
    openOperatorRequestsMax: 2,
    bodyBytesMax: 100,
  })
  ref.tell({ type: 'gateways', gateways: [gateway] })
  await ref.ask({ type: 'metricsAddress' }, ASK)
  const ask = (port: number, path: string, method = 'GET', body?: Uint8Array) =>
    client.http.fetch(
      { origin: `http://${HOST}:${port}`, method, path, ...(body && { body }) },
      { timeoutMs: 30_000 },
    )
  // Their bodies do not come.
  network.faults.http = ({ method }) => (method === 'POST' ? 'stall-body' : 'deliver')
  const posted = ['/', '/metrics', '/workers', '/route'].map(path => ask(PORT + 1, path, 'POST', utf8('{}')))
  await system.settle()
  t.strictSame(
    (await Promise.all(posted)).map(({ status }) => status),
    [404, 405, 404, 404],
    'no body is awaited',
  )
  const atAdmin = ['/route', '/route'].map(path => ask(PORT, path, 'POST', utf8('{}')).catch(() => undefined))
  await system.settle()
  t.equal((await ask(PORT, '/queue')).status, 503, 'one client has all it may have')
  const scrape = ask(PORT + 1, '/metrics')
  await system.advance('2s')
  const { status, body } = await scrape
  t.equal(status, 200)
  const text = new TextDecoder().decode(body)
  t.match(text, /^homing_metrics_port_open_requests 1$/m)
  t.match(text, /^homing_metrics_port_refused_total\{bound="requests"\} 0$/m)
  t.match(text, /^homing_operator_open_requests 1$/m)
  t.equal((await ask(PORT + 1, '/health')).status, 200)
  await system.advance('2m')
  await Promise.all(atAdmin)
})

t.test('a scrape too many at a port for metrics is told of its own bound', async t => {
  const { system, ref, gateway, client } = start(t, { metricsPort: PORT + 1 })
  ref.tell({ type: 'gateways', gateways: [gateway] })
  await ref.ask({ type: 'metricsAddress' }, ASK)
  const origin = `http://${HOST}:${PORT + 1}`
  const scrapes = Array.from({ length: 9 }, () =>
    client.http.fetch({ origin, method: 'GET', path: '/metrics' }, { timeoutMs: 30_000 }),
  )
  await system.advance('2s')
  const refused = (await Promise.all(scrapes)).filter(({ status }) => status === 503)
  t.equal(refused.length, 1)
  const text = new TextDecoder().decode(refused[0]!.body)
  t.match(
    text,
    /cannot answer another request: 8 requests for metrics and health are open; ask again in a second/,
  )
  t.notMatch(text, /operator/)
})

t.test('without --admin-port, the room of a port for metrics is counted all the same', async t => {
  const { system, ref, gateway, client } = start(t, { metricsPort: PORT + 1 })
  ref.tell({ type: 'gateways', gateways: [gateway] })
  await ref.ask({ type: 'metricsAddress' }, ASK)
  const origin = `http://${HOST}:${PORT + 1}`
  const scrape = client.http.fetch({ origin, method: 'GET', path: '/metrics' }, { timeoutMs: 30_000 })
  await system.advance('2s')
  const text = new TextDecoder().decode((await scrape).body)
  t.match(text, /^homing_metrics_port_open_requests 1$/m)
  t.notMatch(text, /^homing_operator_open_requests /m, 'those are of the gateway')
})

t.test('without a port of its own it has no address', async t => {
  const { ref } = start(t)
  t.equal(await ref.ask({ type: 'metricsAddress' }, ASK), undefined)
  t.equal(await ref.ask({ type: 'address' }, ASK), undefined)
})

const BROWSER = { headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8', host: 'localhost:9000' } }

t.test('a browser gets the page, and a program the list of routes', async t => {
  const { serve } = start(t)
  const page = await serve('/', 'GET', BROWSER)
  t.match(page.headers['content-type'], 'text/html')
  t.match(page.headers['content-security-policy'], /default-src 'none'/)
  t.match(page.text, '<!doctype html>')
  t.match(JSON.parse((await serve('/')).text), { product: 'homing' })
  t.match(JSON.parse((await serve('/', 'GET', { headers: { accept: 'application/json' } })).text), {
    product: 'homing',
  })
})

t.test(
  'a file of the page that the browser has is not sent again, and one that is not there is 404',
  async t => {
    const { serve } = start(t)
    const { etag } = (await serve('/page/main.ts')).headers
    const again = await serve('/page/main.ts', 'GET', { headers: { 'if-none-match': etag! } })
    t.match(again, { status: 304, text: '' })
    const compressed = await serve('/page/main.ts', 'GET', { headers: { 'accept-encoding': 'gzip, br' } })
    t.equal(compressed.headers['content-encoding'], 'gzip')
    t.match(await serve('/page/main.js'), { status: 404, text: /GET \/ has the page/ })
  },
)

t.test('without a key the live part is for this machine, under its own name', async t => {
  const { serve } = start(t)
  const live = (from: From) => serve('/page/live', 'GET', from)
  for (const host of ['localhost:9000', '127.0.0.1:9000', '[::1]:9000'])
    t.match(
      await live({ headers: { host } }),
      { status: 200, headers: { 'content-type': /^text\/event-stream/ } },
      host,
    )
  const refused = { status: 403, text: /--admin-key-file or --page open/ }
  t.match(await live({ headers: { host: 'localhost' }, peerAddress: '10.0.0.7' }), refused)
  t.match(await live({ headers: { host: 'localhost', 'x-forwarded-for': '10.0.0.7' } }), refused)
  t.match(await live({ headers: { host: 'localhost', origin: 'http://elsewhere' } }), refused)
  // A name of somebody else that leads to this machine.
  t.match(await live({ headers: { host: 'elsewhere:9000' } }), refused)
})

t.test('with a key the live part is for whoever has it', async t => {
  const { serve } = start(t, { adminKey: 'secret' })
  const live = (from: From) => serve('/page/live', 'GET', from)
  t.match(await live({ headers: { host: 'localhost' } }), { status: 403, text: /send the key/ })
  t.match(await live({ headers: { authorization: 'Bearer other' } }), { status: 403 })
  t.match(await live({ headers: { authorization: 'Bearer secret' }, peerAddress: '10.0.0.7' }), {
    status: 200,
  })
  t.match(await serve('/page/main.ts', 'GET', { peerAddress: '10.0.0.7' }), { status: 200 })
})

t.test('--page open shows it to everybody, --page off to nobody', async t => {
  const open = start(t, { page: 'open' })
  t.match(await open.serve('/page/live', 'GET', { peerAddress: '10.0.0.7' }), { status: 200 })
  const off = start(t, { page: 'off' })
  t.match((await off.serve('/', 'GET', BROWSER)).headers['content-type'], 'application/json')
  t.match(await off.serve('/page/live'), { status: 404, text: /--page off/ })
})

t.test('owners that do not answer leave the page alive, and are named', async t => {
  const { system, ref } = start(t)
  const update = ref.ask({ type: 'pageUpdate', gateway: 'gateway', isFirst: true }, ASK)
  await system.advance('3s')
  const { events, pauseMs } = await update
  const beat = JSON.parse(events.find(({ event }) => event === 'beat')!.data)
  t.strictSame(beat.silent.toSorted(), ['decisions', 'fleet', 'map', 'pays', 'waiting'])
  t.match(events.map(({ event }) => event).toSorted(), ['beat', 'house'])
  t.equal(beat.build_ms, 1000, 'as long as owners may take')
  t.equal(
    pauseMs,
    10_000,
    '50 times that, but less than the silence after which a tab takes its stream to be lost',
  )
})
