/**
 * Requests over a real NATS server: a client gets the same answers as over HTTP, and requests that break on
 * the way end as they do there.
 */

import { type RequestHandler, register } from '@homing/publisher'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  type EngineHandle,
  RouterClient,
  send,
  startEngines,
  startProcess,
  startTestRouter,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const needsServer = { skip: NO_NATS_SERVER } as const

async function server(t: Test, configuration: readonly string[] = []): Promise<NatsServer> {
  const nats = await NatsServer.start({ configuration })
  t.teardown(() => nats.stop())
  return nats
}

/** Registers itself, and serves at the broker. */
async function engineAt(t: Test, nats: NatsServer, name: string, argv: readonly string[] = []) {
  const engine = await startProcess('engine', [
    ...['--port', '0', '--nats', nats.address, '--nats-subject', `homing.kv.${name}`, '--register', 'test'],
    ...['--request-plane', 'nats', '--speed', '0', '--blocks', '300', ...argv],
  ])
  t.teardown(() => engine.kill('SIGKILL'))
  return engine
}

async function routerAt(
  t: Test,
  nats: NatsServer,
  plane: string,
  argv: readonly string[] = [],
  workers: string[] = [],
) {
  const router = await startTestRouter(workers, [
    ...['--nats', nats.address, '--worker-namespace', 'test', '--request-plane', plane, ...argv],
  ])
  t.teardown(() => router.stop(0))
  return new RouterClient(router.url)
}

function hasUp(client: RouterClient, count: number): Promise<unknown> {
  return until(`${count} workers are up`, async () =>
    (await client.workers()).filter(({ state }) => state === 'up').length === count ? true : undefined,
  )
}

/** Has a door for the connections of routers, and no broker. */
async function engineWithDoor(t: Test) {
  const engine = await startProcess('engine', [
    ...['--port', '0', '--events-port', '0', '--replay-port', '0', '--blocks', '300'],
    ...['--request-plane', 'tcp', '--speed', '0'],
  ])
  t.teardown(() => engine.kill('SIGKILL'))
  const door = await until('it names its door', async () =>
    engine.outputLines
      .join(' ')
      .match(/requests (tcp:\S+)/)
      ?.at(1),
  )
  return { engine, url: `${engine.url}?requests=${door}` }
}

/** Without what differs between two answers of one engine. */
const plain = (text: string): string =>
  text.replace(/"(id|created)":("[^"]*"|\d+)/g, '"$1":0').replace(/"cached_tokens":\d+/g, '"cached_tokens":0')

t.test('answers over NATS are those over HTTP, of any kind', needsServer, async t => {
  const nats = await server(t)
  await engineAt(t, nats, 'one')
  const [overHttp, overNats] = [await routerAt(t, nats, 'http'), await routerAt(t, nats, 'nats')]
  for (const client of [overHttp, overNats]) await hasUp(client, 1)
  t.equal(await calledAt(overHttp), null)
  t.match(await calledAt(overNats), /^nats:\/\/127\.0\.0\.1:\d+\/\S+$/)
  const messages = [{ role: 'user', content: 'Which way is home?' }]
  for (const [path, body] of [
    ['/v1/chat/completions', { model: MODEL, messages, max_tokens: 20 }],
    ['/v1/chat/completions', { model: MODEL, messages, max_tokens: 20, stream: true }],
    [
      '/v1/chat/completions',
      { model: MODEL, messages, max_tokens: 5, stream: true, stream_options: { include_usage: true } },
    ],
    ['/v1/completions', { model: MODEL, prompt: 'x', max_tokens: 3 }],
    ['/v1/completions', { model: MODEL, prompt: 'long '.repeat(100_000), max_tokens: 3 }],
    ['/v1/completions', { model: MODEL, prompt: 'x', max_tokens: -1 }],
  ] as const) {
    const [http, natsAnswer] = [await overHttp.send(path, { body }), await overNats.send(path, { body })]
    t.equal(natsAnswer.status, http.status)
    t.equal(plain(natsAnswer.text), plain(http.text), `${path} ${JSON.stringify(body).slice(0, 80)}`)
    t.equal(natsAnswer.headers['content-type'], http.headers['content-type'])
  }
  const [ofHttp, ofNats] = [await told(overHttp), await told(overNats)]
  t.strictSame(ofNats, ofHttp, 'metrics and receipts are the same')
  t.ok(ofNats.counters.length > 5 && ofNats.receipts.length === 5)
})

t.test(
  'answers over TCP are those over HTTP; who leaves, and a worker that dies, end their streams',
  async t => {
    const { engine, url } = await engineWithDoor(t)
    const routerOf = async (plane: string) => {
      const router = await startTestRouter([url], ['--request-plane', plane])
      t.teardown(() => router.stop(0))
      return new RouterClient(router.url)
    }
    const [overHttp, overTcp] = [await routerOf('http'), await routerOf('tcp')]
    for (const client of [overHttp, overTcp]) await hasUp(client, 1)
    t.equal(await calledAt(overHttp), null)
    t.match(await calledAt(overTcp), /^tcp:\/\/127\.0\.0\.1:\d+$/)
    const messages = [{ role: 'user', content: 'Which way is home?' }]
    for (const [path, body] of [
      ['/v1/chat/completions', { model: MODEL, messages, max_tokens: 20 }],
      ['/v1/chat/completions', { model: MODEL, messages, max_tokens: 20, stream: true }],
      ['/v1/completions', { model: MODEL, prompt: [1, 2, 3], max_tokens: 3, return_token_ids: true }],
      ['/v1/completions', { model: MODEL, prompt: 'long '.repeat(100_000), max_tokens: 3 }],
      ['/v1/completions', { model: MODEL, prompt: 'x', max_tokens: -1 }],
    ] as const) {
      const [http, tcp] = [await overHttp.send(path, { body }), await overTcp.send(path, { body })]
      t.equal(tcp.status, http.status)
      t.equal(plain(tcp.text), plain(http.text), `${path} ${JSON.stringify(body).slice(0, 80)}`)
      t.equal(tcp.headers['content-type'], http.headers['content-type'])
    }
    const [ofHttp, ofTcp] = [await told(overHttp), await told(overTcp)]
    t.strictSame(ofTcp, ofHttp, 'metrics and receipts are the same')

    await send(engine.url, '/admin/faults', { body: { slowMs: 50 } })
    const long = { ...ask, max_tokens: 2000, ignore_eos: true }
    const left = await overTcp.open('/v1/completions', { body: long })
    const open = async () =>
      Number(/^homing_tcp_open_requests (\d+)$/m.exec((await overTcp.send('/metrics')).text)?.[1])
    await until('it is under way', async () => ((await open()) > 0 ? true : undefined))
    left.body.on('error', () => {})
    left.body.destroy()
    await until('nothing is under way', async () => ((await open()) === 0 ? true : undefined))
    const cut = await overTcp.open('/v1/completions', { body: long })
    t.equal(cut.statusCode, 200)
    engine.kill('SIGKILL')
    const text = await cut.body.text()
    t.match(text, /"error"/, 'the stream ends with an error')
    t.notMatch(text, /\[DONE\]/)
  },
)

async function calledAt(client: RouterClient): Promise<string | null> {
  const { workers } = (await client.send('/workers')).json as { workers: { called_at: string | null }[] }
  return workers[0]!.called_at
}

/** What a router counts and keeps of its requests, without times. */
async function told(client: RouterClient) {
  const lines = (await client.send('/metrics')).text.split('\n')
  const counters = lines.filter(line =>
    /^homing_(gateway_(requests|failures)_total|request_(started_total|retries_total|output_tokens))/.test(
      line,
    ),
  )
  const { decisions } = (await client.send('/decisions')).json as { decisions: { delivered: Delivered }[] }
  const receipts = decisions.map(({ delivered }) => {
    const { outcome, status, prompt_tokens, completion_tokens } = delivered
    return { outcome, status, prompt_tokens, completion_tokens }
  })
  return { counters, receipts }
}

interface Delivered {
  readonly outcome: string
  readonly status: number
  readonly prompt_tokens: number
  readonly completion_tokens: number
}

/** A worker in this process. */
function workerAt(t: Test, nats: NatsServer, port: number, handler: RequestHandler, more = '') {
  const registered = register({
    url: `http://worker:${port}?model=${MODEL}&block_size=16&kv_blocks=100${more}`,
    nats: [nats.address],
    namespace: 'test',
    serve: { handler },
  })
  t.teardown(() => registered.close())
  return registered
}

/** What routers ask a worker, answered. */
function engineLike(completions: RequestHandler): RequestHandler {
  return request => {
    if (request.path === '/v1/completions') return completions(request)
    const json = { 'content-type': 'application/json' }
    if (request.path === '/v1/models')
      return {
        status: 200,
        headers: json,
        body: JSON.stringify({ object: 'list', data: [{ id: MODEL, object: 'model' }] }),
      }
    return request.path === '/health' ? { status: 200 } : { status: 404 }
  }
}

const STREAM = { 'content-type': 'text/event-stream' }
const event = (text: string): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'text_completion', model: MODEL, choices: [{ index: 0, text }] })}\n\n`
const ask = { model: MODEL, prompt: 'x', stream: true, max_tokens: 5 }

t.test(
  'a program without an HTTP server serves, hears who leaves, and stops for who reads slowly',
  needsServer,
  async t => {
    const nats = await server(t)
    let given = 0
    let aborted: () => void = () => {}
    const whenAborted = new Promise<void>(resolve => {
      aborted = resolve
    })
    workerAt(
      t,
      nats,
      1,
      engineLike(({ signal }) => {
        signal.addEventListener('abort', aborted)
        return {
          status: 200,
          headers: STREAM,
          body: (async function* () {
            for (; ; given++) yield event('y'.repeat(10_000))
          })(),
        }
      }),
    )
    const client = await routerAt(t, nats, 'nats', ['--request-window-bytes', '65536'])
    await hasUp(client, 1)
    const answer = await client.open('/v1/completions', { body: ask })
    t.equal(answer.statusCode, 200)
    // The client reads nothing: the events given stay in sockets and in the window.
    let last = -1
    await until('the worker stands still', async () => {
      if (given === last && given > 0) return true
      last = given
      return undefined
    })
    t.ok(given * 10_000 < 32 * 2 ** 20, `${given} events were given`)
    const figure = async (name: string): Promise<number> => {
      const line = new RegExp(
        `^homing_broker_${name.replace('(', `{broker="${nats.address}"`).replace(')', '}')} (.*)$`,
        'm',
      )
      return Number(line.exec((await client.send('/metrics')).text)?.[1])
    }
    t.equal(await figure('connected_state()'), 1)
    t.equal(await figure('open_requests()'), 1)
    const heldBytes = await until('the window is full', async () => {
      const bytes = await figure('held_bytes()')
      return bytes > 65_536 / 2 ? bytes : undefined
    })
    t.ok(heldBytes <= 65_536, `${heldBytes} bytes wait`)
    answer.body.destroy()
    answer.body.on('error', () => {})
    await whenAborted
    t.equal(await figure('open_requests()'), 0)
    t.equal(await figure('held_bytes()'), 0)
    t.equal(await figure('requests_total(,outcome="aborted")'), 1)
  },
)

t.test(
  'a registered engine is killed in mid-answer while one request has no byte yet and one waits: all end, and nothing is left',
  needsServer,
  async t => {
    const nats = await server(t)
    const engine = await engineAt(t, nats, 'first', ['--speed', '1'])
    const options = [
      '--router-replica-sync',
      '--router-policy',
      'linear',
      '--router-queue-threshold',
      '0.001',
    ]
    const client = await routerAt(t, nats, 'nats', options)
    const other = await routerAt(t, nats, 'nats', options)
    for (const one of [client, other]) {
      await hasUp(one, 1)
      await one.trusted()
    }
    const body = (prompt: string, more: object) => ({ ...ask, prompt: `${prompt} `.repeat(100), ...more })
    // It does not end before it hangs.
    await send(engine.url, '/admin/faults', { body: { slowMs: 100 } })
    const answer = await client.open('/v1/completions', {
      body: body('answers', { max_tokens: 2000, ignore_eos: true }),
    })
    t.equal(answer.statusCode, 200)
    await until('it generates', async () => {
      const { requests, prefillTokens } = await bookedAt(client)
      return requests === 1 && prefillTokens === 0 ? true : undefined
    })
    await send(engine.url, '/admin/faults', { body: { hang: 'generation' } })
    const begun = (prompt: string, stream: boolean) =>
      client.send('/v1/completions', { body: body(prompt, { stream }) })
    // Of a stream it is known that its prompt is still computed.
    const unanswered = begun('computes', true)
    for (const one of [client, other]) {
      await until('both are booked', async () => ((await bookedAt(one)).requests === 2 ? true : undefined))
      await until('it has blocks', async () =>
        [...(await one.indexedBlocks()).values()].some(({ length }) => length > 0) ? true : undefined,
      )
    }
    t.match((await other.send('/replicas')).json, { booked_elsewhere: 2, replicas: [{ open_bookings: 2 }] })
    const waiting = begun('waits', false)
    const waits = async () => (await client.send('/queue')).json.requests
    await until('the third waits', async () => ((await waits()) === 1 ? true : undefined))
    engine.kill('SIGKILL')
    const text = await answer.body.text()
    t.match(text, /"error"/, 'the stream ends with an error')
    t.notMatch(text, /\[DONE\]/)
    for (const one of [await unanswered, await waiting]) {
      t.equal(one.status, 503, one.text)
      t.match(one.json, { error: { code: 'no_worker' } })
    }
    const { decisions } = (await client.send('/decisions')).json
    const cut = JSON.stringify(decisions.at(-1))
    t.match(cut, /HOMING_DISPATCH_UPSTREAM_FAILED|HOMING_DISPATCH_NO_ANSWER/)
    t.match(cut, /nothing was heard from/)
    for (const one of [client, other]) {
      await until('it has left', async () => ((await one.workers()).length === 0 ? true : undefined))
      const nothing = { requests: 0, blocks: 0, prefillTokens: 0 }
      t.strictSame(await bookedAt(one), nothing, 'nothing is booked there')
      t.equal((await one.indexedBlocks()).size, 0, 'no block of it is left')
      t.match((await one.send('/queue')).json, { requests: 0, prompt_tokens: 0, bytes: 0 }, 'nothing waits')
    }
    await until('nothing is open elsewhere', async () => {
      const { booked_elsewhere, replicas } = (await other.send('/replicas')).json
      return booked_elsewhere === 0 && replicas[0].open_bookings === 0 ? true : undefined
    })
  },
)

/** What the tracker has booked at all workers. */
async function bookedAt(client: RouterClient) {
  const { text } = await client.send('/metrics')
  const sum = (name: string): number =>
    [...text.matchAll(new RegExp(`^homing_tracker_active_${name}\\{.*\\} (.*)$`, 'gm'))].reduce(
      (all, [, value]) => all + Number(value),
      0,
    )
  return { requests: sum('requests'), blocks: sum('blocks'), prefillTokens: sum('prefill_tokens') }
}

t.test(
  'nobody serves the subject, or the broker dies before the first byte: others take the request, over HTTP where that is their way',
  needsServer,
  async t => {
    const nats = await server(t)
    const plainEngine = await startProcess('engine', [
      ...['--port', '0', '--speed', '0', '--events-port', '0', '--replay-port', '0'],
    ])
    t.teardown(() => plainEngine.kill('SIGKILL'))
    const gone = await engineAt(t, nats, 'gone')
    let calls = 0
    let isHolding = false
    let heldCount = 0
    workerAt(
      t,
      nats,
      2,
      engineLike(async ({ signal }) => {
        calls++
        if (isHolding) {
          heldCount++
          await new Promise(resolve => signal.addEventListener('abort', resolve))
        }
        return { status: 200, headers: { 'content-type': 'application/json' }, body: '{"choices":[]}' }
      }),
    )
    const client = await routerAt(t, nats, 'nats', ['--router-mode', 'round-robin'], [plainEngine.url])
    await hasUp(client, 3)
    const complete = async (name: string): Promise<number> =>
      (await client.send('/v1/completions', { body: { ...ask, prompt: name, stream: false } })).status
    const retries = async (): Promise<number> =>
      Number(/^homing_request_retries_total.* (\d+)$/m.exec((await client.send('/metrics')).text)?.[1] ?? 0)
    for (let i = 0; i < 9; i++) t.equal(await complete(`all are there ${i}`), 200)
    t.ok(calls > 0 && calls < 8, `${calls} of 9 went to the handler`)
    t.equal(await retries(), 0)
    gone.kill('SIGKILL')
    await gone.ended
    for (let i = 0; i < 3; i++) t.equal(await complete(`one is gone ${i}`), 200)
    t.ok((await retries()) > 0, 'the one that is gone was tried')
    isHolding = true
    const open = [0, 1, 2].map(i => complete(`the broker dies ${i}`))
    await until('the handler holds a request', () => (heldCount > 0 ? true : undefined))
    await nats.down()
    t.strictSame(await Promise.all(open), [200, 200, 200])
    for (let i = 0; i < 3; i++) t.equal(await complete(`the broker is away ${i}`), 200)
  },
)

t.test('a sidecar serves an engine that routers cannot reach', needsServer, async t => {
  const nats = await server(t)
  const engine = await startProcess('engine', [
    ...['--port', '0', '--speed', '0', '--events-port', '0', '--replay-port', '0'],
  ])
  t.teardown(() => engine.kill('SIGKILL'))
  const events = await until('it names its events', async () =>
    engine.outputLines
      .join(' ')
      .match(/events (tcp:\S+),/)
      ?.at(1),
  )
  const sidecar = await startProcess('sidecar', [
    ...['--events', events, '--event-plane', 'nats', '--nats', nats.address, '--worker', 'no-such-host:8000'],
    ...[
      '--register',
      'test',
      '--request-plane',
      'nats',
      '--engine-url',
      engine.url,
      '--max-body-bytes',
      '4KiB',
    ],
  ])
  t.teardown(() => sidecar.kill('SIGKILL'))
  const client = await routerAt(t, nats, 'nats')
  await hasUp(client, 1)
  const answer = await client.send('/v1/completions', { body: { ...ask, stream: false } })
  t.equal(answer.status, 200, answer.text)
  t.match(answer.headers['x-homing-worker'], /^no-such-host:8000/)
  const large = await client.send('/v1/completions', { body: { ...ask, prompt: 'long '.repeat(1000) } })
  t.equal(large.status, 413, large.text)
  t.match(large.json, { error: { code: 'body_too_large', message: /more than 4096 bytes/ } })
  sidecar.kill('SIGTERM')
  await until('it has left', async () => ((await client.workers()).length === 0 ? true : undefined))
})

t.test(
  'the broker dies in mid-answer and comes back: the answer ends with an error, the next is whole',
  needsServer,
  async t => {
    const nats = await server(t)
    const aborted: boolean[] = []
    let isHeld = true
    workerAt(
      t,
      nats,
      3,
      engineLike(({ signal }) => ({
        status: 200,
        headers: STREAM,
        body: (async function* () {
          yield event('first')
          if (isHeld)
            await new Promise<void>(resolve => {
              signal.addEventListener('abort', () => {
                aborted.push(true)
                resolve()
              })
            })
          yield 'data: [DONE]\n\n'
        })(),
      })),
    )
    const client = await routerAt(t, nats, 'nats')
    await hasUp(client, 1)
    const answer = await client.open('/v1/completions', { body: ask })
    await nats.down()
    const text = await answer.body.text()
    t.match(text, /first/)
    t.match(text, /the connection to the NATS broker [\d.:]+ ended/)
    await until('the handler hears it', async () => (aborted.length === 1 ? true : undefined))
    isHeld = false
    const during = await client.send('/v1/completions', { body: ask })
    t.ok(during.status === 502 || during.status === 503, `${during.status} while there is no broker`)
    await nats.up()
    const after = await until('it is back', async () => {
      const next = await client.send('/v1/completions', { body: ask })
      return next.status === 200 ? next : undefined
    })
    t.match(after.text, /\[DONE\]/)
  },
)

t.test('an engine publishes over TCP, and is called over NATS (000-11)', needsServer, async t => {
  const nats = await server(t)
  const { engines, stop } = await startEngines([{ blocks: 100 }])
  t.teardown(stop)
  const engine = engines[0]!
  const { events, eventsPort, replayPort } = engine.description.ranks[0]!
  const relay: RequestHandler = async ({ method, path, headers, body }) => {
    const answer = await send(engine.url, path, {
      method,
      headers: { 'content-type': String(headers['content-type'] ?? '') },
      ...(body.length === 0 ? {} : { body }),
    })
    return {
      status: answer.status,
      headers: { 'content-type': answer.headers['content-type'] ?? '' },
      body: answer.bytes,
    }
  }
  workerAt(t, nats, 4, relay, `&events_host=127.0.0.1&events=${eventsPort}&replay=${replayPort}`)
  const client = await routerAt(t, nats, 'nats')
  await hasUp(client, 1)
  await client.trusted()
  t.equal(await calledAt(client), nats.endpoint('homing.requests.worker_4'))
  t.match((await client.workers())[0], { worker_keys: [{ events: { endpoint: events } }] })
  const served: EngineHandle = { url: 'http://worker:4', state: engine.state }
  const body = { model: MODEL, prompt: 'over two ways '.repeat(30), max_tokens: 2 }
  for (const isCached of [false, true]) {
    const answer = await client.send('/v1/completions', { body })
    t.equal(answer.status, 200, answer.text)
    t.equal(
      Number(answer.headers['x-homing-overlap-blocks']) > 0,
      isCached,
      'its cache is known by its events',
    )
    t.equal(answer.json.usage.prompt_tokens_details.cached_tokens > 0, isCached)
    await client.caughtUp([served])
  }
  t.ok((await assertIndexEqualsCaches(client, [served])) > 0)
})

t.test(
  'a router that is killed in mid-answer: the handler is told that its client left',
  needsServer,
  async t => {
    const nats = await server(t)
    let abortedCount = 0
    const worker = workerAt(
      t,
      nats,
      5,
      engineLike(({ signal }) => ({
        status: 200,
        headers: STREAM,
        body: (async function* () {
          yield event('first')
          await new Promise(resolve => signal.addEventListener('abort', resolve))
          abortedCount++
        })(),
      })),
    )
    const router = await startProcess('router', [
      ...['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '1', '--tokenizer-threads', '1'],
      ...['--nats', nats.address, '--worker-namespace', 'test', '--request-plane', 'nats'],
    ])
    t.teardown(() => router.kill('SIGKILL'))
    const client = new RouterClient(router.url)
    await hasUp(client, 1)
    const answer = await client.open('/v1/completions', { body: ask })
    t.equal(answer.statusCode, 200)
    // A probe may be open besides.
    await until('it alone is open', () => (worker.openRequests === 1 ? true : undefined))
    t.equal(abortedCount, 0)
    router.kill('SIGKILL')
    await t.rejects(answer.body.text(), 'the client is cut off')
    await until('the handler hears it', () => (abortedCount === 1 ? true : undefined))
    await until('nothing is open', () => (worker.openRequests === 0 ? true : undefined))
  },
)
