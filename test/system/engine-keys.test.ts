/**
 * Engines behind API keys and TLS, as processes: probed, followed, routed, exact; and the key is in nothing
 * that the router says.
 *
 * Certificates are made by openssl. TLS ends in this process, in front of a simulated engine, as it does in
 * front of many real ones.
 */

import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { freePorts } from '@homing/transport/testing'
import t from 'tap'
import { certificate, expiredCertificate, hasOpenssl, tlsFront } from './certificates.ts'
import { RouterClient, send, startEngines, startProcess, startTestRouter, until } from './fleet.ts'
import { startRawEngine } from './raw-engine.ts'

/** Of this run alone: another run on this machine has other process lists. */
const KEY = `sk-homing-5f0c1e2d3b4a-${process.pid}`
const OTHER_KEY = `sk-other-9a8b7c6d5e4f-${process.pid}`
const CLIENT_KEY = `of-the-client-${process.pid}`
const MODEL = 'homing-sim'
const skip = hasOpenssl ? false : 'openssl is not installed'
const prompt = Array.from({ length: 96 }, (_, at) => 40 + ((at * 7) % 80))

const portOf = (url: string): number => Number(new URL(url).port)

t.test('an engine behind key and TLS is exact, and nothing tells the key', { skip }, async t => {
  const folder = t.testdir({ key: `${KEY}\n`, checkpoints: {} })
  const keyFile = join(folder, 'key')
  const engine = await startProcess('engine', [
    ...['--port', '0', '--events-port', '0', '--replay-port', '0', '--api-key-file', keyFile],
  ])
  t.teardown(() => engine.kill('SIGKILL'))
  const made = certificate(folder, 'front', 'DNS:localhost,IP:127.0.0.1')
  const front = await tlsFront(made, portOf(engine.url))
  t.teardown(() => void front.server.close())
  const [log, accessLog, checkpoints] = ['decisions.jsonl', 'access.jsonl', 'checkpoints'].map(name =>
    join(folder, name),
  ) as [string, string, string]
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'debug', '--decision-log', log],
    ...['--access-log', accessLog, '--checkpoint-dir', checkpoints, '--checkpoint-interval', '1s'],
    ...['--worker', `https://localhost:${front.port}?key_file=${keyFile}`],
    ...['--engine-ca-file', join(folder, 'front.pem')],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  const client = new RouterClient(router.url)
  await client.trusted('exact')
  const headers = { authorization: `Bearer ${CLIENT_KEY}`, 'x-api-key': CLIENT_KEY }
  for (let turn = 0; turn < 2; turn++) {
    for (const stream of [false, true]) {
      const answer = await client.send('/v1/completions', {
        body: { model: MODEL, prompt, max_tokens: 4, stream },
        headers,
      })
      t.equal(answer.status, 200, answer.text)
    }
  }
  await until('the prompt is held', async () =>
    (await client.workers())[0]!.worker_keys[0]!.blocks_held >= 6 ? true : undefined,
  )
  const again = await client.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 4 },
    headers: { ...headers, 'x-dynamo-request-strict-priority': '9' },
  })
  t.equal(again.json.usage.prompt_tokens_details.cached_tokens, 80)
  const receipt = (await client.send(`/decisions/${again.headers['x-homing-decision']}`)).json
  t.match(receipt.ignored_hints, /^strict_priority ignored/, 'a router with a key trusts no hints by default')
  t.equal((await client.send('/tokenize', { body: { model: MODEL, prompt: 'a' } })).status, 200)
  // What clients send goes nowhere: with it alone the engine refuses.
  t.equal((await send(engine.url, '/v1/models', { headers })).status, 401)

  const texts: string[] = []
  const { id } = (await client.workers())[0]!
  for (const path of [
    `/workers/${id}/diagnosis`,
    `/decisions/${again.headers['x-homing-decision']}`,
    '/busy_threshold',
    '/replicas',
    '/what_if',
    '/no-such-route',
    '/',
    '/workers',
    '/actors',
    '/actors?format=text',
    '/actors/flight',
    '/metrics',
    '/decisions',
    '/queue',
    '/dump',
    '/health',
    '/ready',
    '/v1/models',
  ])
    texts.push((await client.send(path)).text)
  const unknown = await client.send('/v1/completions', { body: { model: 'none', prompt }, headers })
  t.equal(unknown.status, 404)
  // The router refuses this one by itself.
  const refused = await client.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 'many' },
    headers,
  })
  t.equal(refused.status, 400, refused.text)
  const routed = await client.send('/route', { body: { model: MODEL, prompt }, headers })
  texts.push(unknown.text, refused.text, routed.text)
  texts.push(JSON.stringify(again.headers), execFileSync('ps', ['-eo', 'args']).toString())
  const files = await until('there is a checkpoint', async () => {
    const names = readdirSync(checkpoints).filter(name => name.endsWith('.checkpoint'))
    return names.length > 0 ? names : undefined
  })
  router.kill('SIGTERM')
  await router.ended
  for (const file of [log, accessLog, ...files.map(name => join(checkpoints, name))])
    texts.push(readFileSync(file, 'latin1'))
  texts.push([...router.outputLines, ...router.errorLines].join('\n'))
  for (const [at, text] of texts.entries()) {
    t.ok(text.length > 0, `text ${at} has something in it`)
    t.notOk(text.includes(KEY), `text ${at} of ${texts.length} does not have the key: ${text.slice(0, 80)}`)
    t.notOk(
      text.includes(CLIENT_KEY),
      `text ${at} of ${texts.length} does not have the client's: ${text.slice(0, 80)}`,
    )
  }
})

t.test("an engine without a key gets the client's, and no other engine's", async t => {
  const folder = t.testdir({ key: `${KEY}\n` })
  const { engines, stop } = await startEngines([{ apiKey: KEY }])
  t.teardown(stop)
  // Its answer repeats the head that it received.
  const echo = await startRawEngine(MODEL, (socket, { head }) => {
    const body = JSON.stringify({ echo: head })
    const type = 'content-type: application/json'
    socket.end(`HTTP/1.1 200 OK\r\n${type}\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
  })
  t.teardown(() => echo.close())
  const router = await startTestRouter([`${engines[0]!.url}?key_file=${join(folder, 'key')}`, echo.url], [])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  const ask = async (url: string, headers = {}) => {
    const nvext = { backend_instance_id: (await client.worker(url)).instance_id }
    return client.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 2, nvext }, headers })
  }
  const headers = { authorization: `Bearer ${CLIENT_KEY}` }
  for (let i = 0; i < 2; i++) {
    t.equal((await ask(engines[0]!.url, headers)).status, 200, 'with the key that the router has for it')
    const { status, text } = await ask(echo.url, headers)
    t.equal(status, 200, text)
    t.match(text, new RegExp(`authorization: Bearer ${CLIENT_KEY}`, 'i'))
    t.notOk(text.includes(KEY))
  }
  t.notMatch((await ask(echo.url)).text, /authorization/i, 'who sends none has none')
  for (const { head } of echo.requests) t.notOk(head.includes(KEY))
})

t.test(
  'a simulated engine with key file and certificate is exact, with nothing in front',
  { skip },
  async t => {
    const folder = t.testdir({ key: `${KEY}\n` })
    certificate(folder, 'engine', 'IP:127.0.0.1')
    const at = (name: string) => join(folder, name)
    const engine = await startProcess('engine', [
      ...['--port', '0', '--events-port', '0', '--replay-port', '0', '--api-key-file', at('key')],
      ...['--tls-cert', at('engine.pem'), '--tls-key', at('engine.key')],
    ])
    t.teardown(() => engine.kill('SIGKILL'))
    t.match(engine.url, /^https:\/\/127\.0\.0\.1:\d+$/)
    const argv = ['--engine-api-key-file', at('key'), '--engine-ca-file', at('engine.pem')]
    const router = await startTestRouter([engine.url], argv)
    t.teardown(() => router.stop(0))
    const client = new RouterClient(router.url)
    await client.trusted('exact')
    const body = { model: MODEL, prompt, max_tokens: 4 }
    for (let i = 0; i < 2; i++) t.equal((await client.send('/v1/completions', { body })).status, 200)
    const plain = await startTestRouter([engine.url.replace('https', 'http')], [])
    t.teardown(() => plain.stop(0))
    t.equal((await new RouterClient(plain.url).workers())[0]!.state, 'down')
  },
)

t.test(
  'a wrong key is a state with a reason, and a key that is changed counts without a restart',
  async t => {
    const { engines, stop } = await startEngines([{ apiKey: KEY }, {}])
    t.teardown(stop)
    const folder = t.testdir({ key: OTHER_KEY })
    const file = join(folder, 'key')
    const router = await startTestRouter(
      [`${engines[0]!.url}?key_file=${file}`, engines[1]!.url],
      ['--probe-interval', '100ms'],
    )
    t.teardown(() => router.stop(0))
    const client = new RouterClient(router.url)
    const stateOf = async () => (await client.worker(engines[0]!.url)).state_reason
    t.match(await stateOf(), /answers 401: the engine does not accept the key/)
    const body = { model: MODEL, prompt, max_tokens: 2 }
    for (let i = 0; i < 4; i++)
      t.equal((await client.send('/v1/completions', { body })).status, 200, 'the other one serves')
    writeFileSync(file, `${KEY}\n`)
    await until('it is up', async () =>
      (await client.worker(engines[0]!.url)).state === 'up' ? true : undefined,
    )
    rmSync(file)
    await until('it is down', async () =>
      (await client.worker(engines[0]!.url)).state === 'down' ? true : undefined,
    )
    t.match(await stateOf(), /API key of this worker cannot be had/)
  },
)

t.test('an engine that comes back with another key fails no request, and gets none', async t => {
  const folder = t.testdir({ key: `${KEY}\n`, other: `${OTHER_KEY}\n` })
  const [port, events, replay] = (await freePorts(3)).map(String) as [string, string, string]
  const start = (file: string) =>
    startProcess('engine', [
      ...['--port', port, '--events-port', events, '--replay-port', replay, '--speed', '0'],
      ...['--api-key-file', join(folder, file)],
    ])
  const first = await start('key')
  t.teardown(() => first.kill('SIGKILL'))
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const argv = ['--probe-interval', '1h', '--probe-timeout', '5s']
  const router = await startTestRouter(
    [`${first.url}?key_file=${join(folder, 'key')}`, engines[0]!.url],
    argv,
  )
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted('exact')
  first.kill('SIGKILL')
  await first.ended
  const second = await start('other')
  t.teardown(() => second.kill('SIGKILL'))
  // The router does not know yet: a request finds out.
  t.equal((await client.worker(first.url)).state, 'up')
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, number) =>
      client.send('/v1/completions', {
        body: { model: MODEL, prompt: [...prompt, 40 + number], max_tokens: 2 },
        headers: { authorization: `Bearer ${CLIENT_KEY}` },
      }),
    ),
  )
  const there = engines[0]!.url.slice('http://'.length)
  for (const { status, headers, text } of answers) {
    t.equal(status, 200, text)
    t.equal(headers['x-homing-worker'], `${there}/0`)
  }
  const { state_reason } = await until('it is down', async () => {
    const worker = await client.worker(first.url)
    return worker.state === 'down' ? worker : undefined
  })
  t.match(state_reason, /answers 401: the engine does not accept the key/)
  t.notOk(state_reason.includes(KEY))
})

t.test('one key for all engines, and the key of a client reaches those that have none', async t => {
  const { engines, stop } = await startEngines([{ apiKey: KEY }, { apiKey: OTHER_KEY }])
  t.teardown(stop)
  process.env['HOMING_TEST_KEY'] = OTHER_KEY
  process.env['HOMING_ENGINE_API_KEY'] = KEY
  t.teardown(() => {
    delete process.env['HOMING_TEST_KEY']
    delete process.env['HOMING_ENGINE_API_KEY']
  })
  const router = await startTestRouter([engines[0]!.url, `${engines[1]!.url}?key_env=HOMING_TEST_KEY`], [])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted('exact')
  for (const { instance_id } of await client.workers()) {
    const body = { model: MODEL, prompt, max_tokens: 2, nvext: { backend_instance_id: instance_id } }
    t.equal((await client.send('/v1/completions', { body })).status, 200)
  }
})

t.test(
  'behind a proxy of another host, an engine is followed at the host that is named for its events',
  { skip },
  async t => {
    const folder = t.testdir()
    const { engines, stop } = await startEngines([{ host: '127.0.0.2' }])
    t.teardown(stop)
    const made = certificate(folder, 'proxy', 'IP:127.0.0.1')
    const front = await tlsFront(made, portOf(engines[0]!.url), '127.0.0.2')
    t.teardown(() => void front.server.close())
    const url = `https://127.0.0.1:${front.port}`
    const argv = ['--engine-ca-file', join(folder, 'proxy.pem')]
    for (const [query, trust] of [
      ['', 'approximate'],
      ['?events_host=127.0.0.2', 'exact'],
    ] as const) {
      const router = await startTestRouter([`${url}${query}`], argv)
      const client = new RouterClient(router.url)
      await client.trusted(trust)
      await router.stop(0)
    }
  },
)

t.test('what is wrong with TLS is said, with what would be right', { skip }, async t => {
  const folder = t.testdir()
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const port = portOf(engines[0]!.url)
  const good = certificate(folder, 'good', 'IP:127.0.0.1')
  const named = certificate(folder, 'named', 'DNS:elsewhere.example')
  const expired = expiredCertificate(folder, 'IP:127.0.0.1')
  const fronts = await Promise.all([good, named, expired].map(given => tlsFront(given, port)))
  for (const { server } of fronts) t.teardown(() => void server.close())
  const [plain, elsewhere, late] = fronts.map(front => front.port)
  const cases: [string, readonly string[], RegExp][] = [
    [`https://127.0.0.1:${plain}`, [], /certificate: give it.*--engine-ca-file/],
    [`https://127.0.0.1:${elsewhere}`, ['--engine-ca-file', join(folder, 'named.pem')], /another host name/],
    [
      `https://127.0.0.1:${late}`,
      ['--engine-ca-file', join(folder, 'expired.pem')],
      /its certificate has expired/,
    ],
    [`https://127.0.0.1:${port}`, [], /does not speak TLS/],
  ]
  for (const [url, argv, words] of cases) {
    const router = await startTestRouter([url], argv)
    const { state, state_reason } = await new RouterClient(router.url).worker(url)
    t.equal(state, 'down', url)
    t.match(state_reason, words)
    t.notOk(state_reason.includes('root CA'), 'the advice is ours')
    await router.stop(0)
  }
  const redirecting = createHttpServer((_, response) =>
    response.writeHead(301, { location: 'http://elsewhere.example/v1/models?a=b' }).end(),
  )
  await new Promise<void>(resolve => redirecting.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void redirecting.close())
  const from = `http://127.0.0.1:${(redirecting.address() as AddressInfo).port}`
  const follower = await startTestRouter([from], [])
  t.match(
    (await new RouterClient(follower.url).worker(from)).state_reason,
    /301, a redirect to http:\/\/elsewhere\.example: give the URL of the engine itself/,
  )
  await follower.stop(0)
  writeFileSync(join(folder, 'none.pem'), 'nothing')
  await t.rejects(
    startTestRouter([engines[0]!.url], ['--engine-ca-file', join(folder, 'none.pem')]),
    /no certificate in PEM form/,
  )
})

t.test('a key file that cannot be used ends the start, and what is in it is not told', async t => {
  const folder = t.testdir({ empty: '', lines: `${KEY}\n${KEY}`, strange: `${KEY} ü` })
  for (const [name, words] of [
    ['absent', /cannot be read: ENOENT/],
    ['.', /cannot be read: EISDIR/],
    ['empty', /is empty/],
    ['lines', /several lines/],
    ['strange', /printable ASCII/],
  ] as const) {
    const started = startTestRouter(['http://127.0.0.1:1'], ['--engine-api-key-file', join(folder, name)])
    const message = await started.then(
      () => 'started',
      (thrown: Error) => thrown.message,
    )
    t.match(message, words, name)
    t.notOk(message.includes(KEY), name)
  }
})

t.test('a secret in a URL is refused, and not repeated', async t => {
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const router = await startTestRouter([engines[0]!.url], [])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  for (const url of [
    `http://user:${KEY}@127.0.0.1:1`,
    `http://127.0.0.1:1?api_key=${KEY}`,
    `http://127.0.0.1:1?key=${KEY}`,
    `http://127.0.0.1:1?key_env=${KEY}`,
  ]) {
    const { status, text } = await client.send('/workers', { body: { url } })
    t.equal(status, 400, url)
    t.match(text, /key_file|key_env/)
    t.notOk(text.includes(KEY), 'the secret is not repeated')
  }
})
