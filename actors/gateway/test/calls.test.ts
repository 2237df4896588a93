/** The calls of exchanges to workers: what is sent, when another worker is tried, and what is settled. */

import t from 'tap'
import { upstreamHeaders } from '../src/upstream-headers.ts'
import { answerOf, decisionFor, start } from './call-world.ts'
import { start as startWorld } from './gateway-world.ts'
import { WORKER_HOST } from './sample-records.ts'
import { utf8 as bytes, textOf as text } from './utf8.ts'
import { data, die, finish, head } from './worker-exchange.ts'

t.test('an answer is relayed as it comes, its place settled, its usage reported', async t => {
  const world = await start(t, [])
  const { log, serve, dispatch, settled, tracker } = world
  const seen: Record<string, unknown> = {}
  await serve(1, async exchange => {
    seen['body'] = text(await exchange.readBody(1000))
    seen['headers'] = exchange.headers
    exchange.writeHead(200, { 'content-type': 'application/json' })
    exchange.write(bytes('{"usage":{"prompt_tokens":10,"completion_tokens":2,'))
    exchange.end(bytes('"prompt_tokens_details":{"cached_tokens":7}}}'))
  })
  dispatch(1)
  const answer = await answerOf(world)
  t.equal(answer.status, 200)
  t.equal(answer.end, 'complete')
  t.match(answer.body, /^\{"usage".*\}\}\}$/)
  t.equal(seen['body'], '{}')
  t.match(seen['headers'], { 'x-a': '1', 'x-request-id': 'request-1' })
  t.not((seen['headers'] as { host?: string }).host, 'client')
  t.strictSame(
    tracker.waiting.map(({ type }) => type),
    ['prefillComplete'],
  )
  t.strictSame(settled(), ['decision-1'])
  t.match(log.settled[0]?.delivery, { outcome: 'ok', status: 200, promptTokens: 10, cachedTokens: 7 })
})

t.test(
  'where this machine has no socket left no worker is blamed or tried, and the client is told',
  async t => {
    const world = await start(t, [2])
    const { directory, log, network, dispatch, settled, last } = world
    network.faults.http = ({ origin }) => (origin.endsWith(':8000') ? 'deliver' : 'no-socket')
    dispatch(1)
    t.match(await answerOf(world), { end: 'overloaded' })
    t.match(last().body, /cannot send the request: .*EMFILE/)
    t.strictSame(directory.waiting, [], 'nothing is said of the worker')
    t.equal(log.asked.length, 1, 'another worker would need a socket as well')
    t.strictSame(settled(), ['decision-1'])
  },
)

t.test('a worker that refuses the connection costs a new place, not the request', async t => {
  const world = await start(t, [2])
  const { directory, log, serve, dispatch, settled } = world
  await serve(2, head(), finish('from 2'))
  dispatch(1)
  t.match(await answerOf(world), { status: 200, body: 'from 2', end: 'complete' })
  t.strictSame(log.asked[1]?.excludedWorkers, [`${WORKER_HOST}:1`])
  t.match(directory.waiting, [{ type: 'suspect', workerId: `${WORKER_HOST}:1`, isUnreachable: true }])
  t.strictSame(settled(), ['decision-1', 'decision-2'])
  t.strictSame(
    log.settled.map(({ id, delivery }) => [log.names.get(id), delivery.outcome]),
    [
      ['decision-1', 'error'],
      ['decision-2', 'ok'],
    ],
  )
})

t.test('a worker whose connection is full of calls is left for another, and not suspected', async t => {
  const world = await start(t, [2])
  const { directory, log, network, serve, dispatch, settled } = world
  network.faults.http = ({ origin }) => (origin.endsWith(':1') ? 'full' : 'deliver')
  await serve(2, head(), finish('from 2'))
  dispatch(1)
  t.match(await answerOf(world), { status: 200, body: 'from 2', end: 'complete' })
  t.strictSame(log.asked[1]?.excludedWorkers, [`${WORKER_HOST}:1`])
  t.strictSame(directory.waiting, [], 'nothing is said of the worker')
  t.strictSame(settled(), ['decision-1', 'decision-2'])
})

t.test('500 costs one more place; the last answer reaches the client, and no worker is blamed', async t => {
  const world = await start(t, [2, 3], { retriesMax: 2 })
  const { log, serve, dispatch } = world
  for (const port of [1, 2, 3]) {
    await serve(port, head(500), finish(`mine ${port}`))
  }
  dispatch(1)
  t.match(await answerOf(world), { status: 500, body: 'mine 2', end: 'complete' })
  t.equal(log.asked.length, 2)
  t.strictSame(log.workerFailed, [])
})

t.test('500 is the fault of the worker when another one serves the request', async t => {
  const world = await start(t, [2], { retriesMax: 2 })
  const { log, serve, dispatch } = world
  await serve(1, head(500), finish('mine'))
  await serve(2, head(200), finish('served'))
  dispatch(1)
  t.match(await answerOf(world), { status: 200, body: 'served', end: 'complete' })
  t.match(log.workerFailed, [
    { workerId: `${WORKER_HOST}:1`, fault: { kind: 'failed', reason: 'answered 500' } },
  ])
})

t.test('404 is tried elsewhere if it is about the model, and passed on if not', async t => {
  const cases = [
    ['{"error":{"message":"The model `m` does not exist."}}', 200],
    ['{"error":{"code":404,"message":"Response id resp_1 not found, of model m"}}', 404],
    ['{"detail":"Not Found"}', 404],
  ] as const
  for (const [body, status] of cases) {
    const world = await start(t, [2], { retriesMax: 2 })
    const { log, serve, dispatch, directory } = world
    await serve(1, head(404), finish(body))
    await serve(2, head(200), finish('served'))
    dispatch(1)
    t.match(await answerOf(world), { status, body: status === 200 ? 'served' : body }, body)
    t.strictSame(
      log.workerFailed.map(({ fault }) => fault.kind),
      status === 200 ? ['lacksModel'] : [],
    )
    t.equal(directory.waiting.filter(({ type }) => type === 'lookAgain').length, status === 200 ? 1 : 0)
  }
})

t.test('a worker that answers 503 costs a new place; the last 503 reaches the client', async t => {
  const world = await start(t, [2, 3], { retriesMax: 2 })
  const { log, serve, dispatch } = world
  for (const port of [1, 2, 3]) {
    await serve(port, head(503), finish(`busy ${port}`))
  }
  dispatch(1)
  t.match(await answerOf(world), { status: 503, body: 'busy 3', end: 'complete' })
  t.equal(log.asked.length, 3)
})

const REFUSAL_HEADERS = { 'retry-after': '7', 'content-type': 'application/json', 'x-engine': 'a' }

t.test(
  'where nobody takes a request that a worker refused, the client gets the words of that worker',
  async t => {
    const world = await start(t, [])
    const { log, serve, dispatch, settled, last } = world
    await serve(1, head(503, REFUSAL_HEADERS), data('{"error":'), finish('"busy 1"}'))
    dispatch(1)
    const answer = await answerOf(world)
    t.match(answer, { status: 503, body: '{"error":"busy 1"}', end: 'complete' })
    t.match(last().headers, { ...REFUSAL_HEADERS, 'x-homing-decision': 'decision-1' })
    t.equal(log.asked.length, 2, 'others were asked for first')
    t.strictSame(settled(), ['decision-1', 'decision-2'], 'what was refused, too')
  },
)

t.test('a refusal is kept while others fail, and given up where one of them may have begun', async t => {
  for (const [second, expected] of [
    ['unreachable', { status: 503, body: 'busy 1', end: 'complete' }],
    ['dies', { status: 503, body: 'busy 1', end: 'complete' }],
    ['hangs', { status: undefined, end: 'timeout' }],
    ['breaks off', { status: 200, body: 'half', end: 'cut after the head' }],
    ['answers', { status: 200, body: 'whole', end: 'complete' }],
  ] as const) {
    const world = await start(t, [2])
    const { system, serve, dispatch } = world
    await serve(1, head(503), finish('busy 1'))
    if (second !== 'unreachable') {
      await serve(2, exchange => {
        if (second === 'dies') exchange.destroy()
        else if (second === 'answers') exchange.end(bytes('whole'))
        else if (second === 'breaks off') {
          exchange.write(bytes('half'))
          system.clock.after(1, () => exchange.destroy())
        }
      })
    }
    dispatch(1)
    await system.advance(65_000)
    t.match(await answerOf(world), expected, second)
    await system.shutdown()
  }
})

t.test('a refusal that goes on and on is not waited for', async t => {
  for (const isLong of [true, false]) {
    const world = await start(t, [2])
    const { system, log, serve, dispatch } = world
    let isGone = false
    await serve(1, exchange => {
      exchange.onClientGone(() => {
        isGone = true
      })
      exchange.writeHead(503, {})
      exchange.write(new Uint8Array(isLong ? 70_000 : 1))
    })
    await serve(2, finish('from 2'))
    dispatch(1)
    if (!isLong) await system.advance(2000)
    t.match(await answerOf(world), { status: 200, body: 'from 2', end: 'complete' })
    t.ok(isGone)
    t.strictSame(log.asked[1]?.excludedWorkers, [`${WORKER_HOST}:1`])
    await system.shutdown()
  }
})

t.test(
  'of several refusals the client gets the last one that has come whole, and each is settled',
  async t => {
    const first = { status: 503, body: 'busy 1', end: 'complete' }
    for (const [second, expected] of [
      ['whole', { status: 503, body: 'busy 2', end: 'complete' }],
      ['breaks off', first],
      ['is too long', first],
      ['does not end', first],
    ] as const) {
      const world = await start(t, [2])
      const { system, log, serve, dispatch, settled } = world
      await serve(1, head(503), finish('busy 1'))
      await serve(2, exchange => {
        exchange.writeHead(503, {})
        if (second === 'whole') exchange.end(bytes('busy 2'))
        else exchange.write(second === 'is too long' ? new Uint8Array(70_000) : bytes('bu'))
        if (second === 'breaks off') system.clock.after(1, () => exchange.destroy())
      })
      dispatch(1)
      await system.advance(2000)
      t.match(await answerOf(world), expected, second)
      t.match(settled(), ['decision-1', 'decision-2'], second)
      t.strictSame(
        log.settled.slice(0, 2).map(({ id, delivery }) => [log.names.get(id), delivery.error?.message]),
        [1, 2].map(port => [
          `decision-${port}`,
          `cannot get an answer from worker ${WORKER_HOST}:${port}/0: worker ${WORKER_HOST}:${port}/0 answered 503`,
        ]),
        second,
      )
      await system.shutdown()
    }
  },
)

t.test('a worker that dies before its first byte costs a new place', async t => {
  const world = await start(t, [2])
  const { serve, dispatch } = world
  await serve(1, die)
  await serve(2, head(), finish('from 2'))
  dispatch(1)
  t.match(await answerOf(world), { status: 200, body: 'from 2' })
})

t.test('after the first byte a request is never sent again', async t => {
  const world = await start(t, [2])
  const { system, log, serve, dispatch, settled } = world
  await serve(
    1,
    head(200, { 'content-type': 'text/event-stream' }),
    data('data: {"a":1}\n\n'),
    exchange => void system.clock.after(1, () => exchange.destroy()),
  )
  dispatch(1)
  await system.advance(10)
  t.match(await answerOf(world), {
    status: 200,
    body: 'data: {"a":1}\n\n',
    end: 'upstream_failed after the head',
  })
  t.equal(log.asked.length, 1)
  t.strictSame(settled(), ['decision-1'])
})

t.test('when nobody is left the client is told why, and nothing stays booked', async t => {
  const world = await start(t, [])
  const { dispatch, settled } = world
  dispatch(1)
  t.match(await answerOf(world), { status: undefined, end: 'no_worker' })
  t.strictSame(settled(), ['decision-1', 'decision-2'])
})

t.test('a client that leaves ends the call at once', async t => {
  const world = await start(t, [])
  const { system, log, serve, dispatch, settled, last } = world
  let isGone = false
  await serve(1, exchange => {
    exchange.onClientGone(() => {
      isGone = true
    })
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes('data: 1\n\n'))
  })
  dispatch(1)
  t.match(await answerOf(world), { end: 'open' })
  last().call.abort()
  await system.settle()
  t.ok(isGone)
  t.strictSame(settled(), ['decision-1'])
  t.equal(log.settled[0]?.delivery.outcome, 'aborted')
})

t.test('a worker that hangs is given up after the silence allowed', async t => {
  const world = await start(t, [], { silenceMsMax: 5000 })
  const { system, serve, dispatch, settled } = world
  await serve(1, () => {})
  dispatch(1)
  await system.advance(4000)
  t.match(await answerOf(world), { end: 'open' })
  await system.advance(3000)
  t.match(await answerOf(world), { end: 'timeout' })
  t.strictSame(settled(), ['decision-1'])
})

t.test('an answer that drips without end is given up after the time allowed', async t => {
  const world = await start(t, [], { requestMsMax: 10_000 })
  const { system, serve, dispatch } = world
  await serve(1, exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    const drip = (): void => {
      exchange.write(bytes('data: {}\n\n'))
      system.clock.after(500, drip)
    }
    drip()
  })
  dispatch(1)
  await system.advance(12_000)
  t.match(await answerOf(world), { end: 'timeout after the head' })
})

t.test('comments before the first event are no answer: a worker that sends nothing else is hung', async t => {
  const world = await start(t, [], { silenceMsMax: 10_000 })
  const { system, serve, dispatch } = world
  await serve(1, exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    const drip = (): void => {
      exchange.write(bytes(': drip\n\n'))
      system.clock.after(500, drip)
    }
    drip()
  })
  dispatch(1)
  await system.advance(12_000)
  t.match(await answerOf(world), { end: 'timeout' })
})

t.test('a request that still runs keeps its booking alive', async t => {
  const world = await start(t, [])
  const { system, serve, dispatch, tracker } = world
  await serve(1, () => {})
  dispatch(1)
  await system.advance(3500)
  t.equal(tracker.waiting.filter(({ type }) => type === 'touch').length, 3)
})

t.test('a gateway that stops fails what is open, settles it, and ends its calls', async t => {
  const world = await start(t, [])
  const { system, serve, dispatch, settled } = world
  let isGone = false
  await serve(1, exchange => {
    exchange.onClientGone(() => {
      isGone = true
    })
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes('data: {}\n\n'))
  })
  dispatch(1)
  await system.settle()
  await system.stop(world.ref)
  t.match(await answerOf(world), { status: 200, end: 'upstream_failed after the head' })
  t.strictSame(settled(), ['decision-1'])
  t.ok(isGone)
})

t.test('a client that leaves while another worker is looked for completes both receipts', async t => {
  const world = await start(t, [2])
  const { system, log, serve, dispatch, settled, last } = world
  const gate = Promise.withResolvers<void>()
  await serve(1, exchange => {
    world.gate.open = gate.promise
    exchange.destroy()
  })
  dispatch(1)
  await system.settle()
  t.equal(log.asked.length, 2)
  last().call.abort()
  await system.settle()
  gate.resolve()
  await system.settle()
  t.strictSame(settled(), ['decision-1', 'decision-2'])
  t.strictSame(
    log.settled.map(({ id, delivery }) => [log.names.get(id), delivery.outcome]),
    [
      ['decision-1', 'error'],
      ['decision-2', 'aborted'],
    ],
  )
})

t.test('all that a worker had before a first byte goes elsewhere when it dies, and once only', async t => {
  const REQUESTS = 100
  const limits = { retriesMax: 2, retryShare: 0.2, stallMsMin: 0, silenceMsMax: 60_000, requestMsMax: 0 }
  let [asked, dead] = [0, 1]
  const world = await startWorld(
    t,
    { openRequestsMax: 2 * REQUESTS, bodiesBytesMax: 1_000_000, audit: false, exchangeLimits: limits },
    {
      decide: ({ excludedWorkers }, id) => {
        asked++
        const port = excludedWorkers.length + 1
        return { kind: 'decided', decision: { ...decisionFor(port), id } }
      },
    },
    { hasWorker: false },
  )
  const under: (() => void)[] = []
  for (const port of [1, 2, 3])
    await world.serve(port, exchange => {
      if (port <= dead) under.push(() => exchange.destroy())
      else {
        exchange.writeHead(200, { 'content-type': 'application/json' })
        exchange.end(bytes('{"text":"whole"}'))
      }
    })
  const send = (name: string) =>
    Array.from({ length: REQUESTS }, (_, i) =>
      world.send('POST', '/v1/completions', { body: JSON.stringify({ model: 'm', prompt: `${name} ${i}` }) }),
    )
  const statuses = (clients: readonly { readonly status?: number | undefined }[]) =>
    [...new Set(clients.map(({ status }) => status))].sort()
  const clients = send('first')
  await world.system.settle()
  t.equal(under.length, REQUESTS, 'all are in prefill')
  for (const dies of under.splice(0)) dies()
  await world.system.settle()
  t.strictSame(statuses(clients), [200])
  t.equal(asked, 2 * REQUESTS)
  // The next one dies, too.
  dead = 2
  const others = send('second')
  await world.system.settle()
  while (under.length > 0) {
    for (const dies of under.splice(0)) dies()
    await world.system.settle()
  }
  t.strictSame(statuses(others), [502])
  t.equal(asked, 4 * REQUESTS, 'each has been tried at two')
})

t.test('headers that the client names in Connection stay with its connection', async t => {
  const headers = { connection: 'close, X-Secret', 'x-secret': '1', 'x-kept': '2' }
  t.match(upstreamHeaders(headers, decisionFor(1), 'r', 1), { 'x-kept': '2', 'x-request-id': 'r' })
  t.notOk('x-secret' in upstreamHeaders(headers, decisionFor(1), 'r', 1))
})

t.test('a prompt that breaks workers behind their first token is deadly, too', async t => {
  const world = await start(t, [])
  const { system, serve, dispatch } = world
  for (const port of [1, 2]) {
    await serve(
      port,
      head(200, { 'content-type': 'text/event-stream' }),
      data('data: {}\n\n'),
      exchange => void system.clock.after(1, () => exchange.destroy()),
    )
    dispatch(port)
    await system.advance(10)
    t.match(await answerOf(world), { end: 'upstream_failed after the head' })
  }
  dispatch(3)
  t.match((await answerOf(world)).body, /broke while they worked on this very request/)
})

t.test('copies of one body that break with their workers at once are no proof against it', async t => {
  const world = await start(t, [])
  const { system, serve, dispatch } = world
  const open: (() => void)[] = []
  for (const port of [1, 2])
    await serve(
      port,
      head(200, { 'content-type': 'text/event-stream' }),
      data('data: {}\n\n'),
      exchange => void open.push(() => exchange.destroy()),
    )
  await serve(3, head(200, { 'content-type': 'application/json' }), finish('{"text":"whole"}'))
  for (const port of [1, 2]) {
    dispatch(port)
    await system.advance(10)
  }
  for (const breaks of open) {
    breaks()
    await system.advance(10)
  }
  dispatch(3)
  t.match(await answerOf(world), { status: 200, end: 'complete' })
})

t.test('a whole answer that breaks off is asked of another worker, whatever had come of it', async t => {
  const json = { 'content-type': 'application/json' }
  for (const came of ['{', '{"choices":[{"text":"a', `{"text":"${'a'.repeat(60_000)}`]) {
    const world = await start(t, [2])
    const { log, serve, dispatch, settled, system } = world
    await serve(
      1,
      head(200, json),
      data(came),
      exchange => void system.clock.after(1, () => exchange.destroy()),
    )
    await serve(2, head(200, json), data('{"text":'), finish('"whole"}'))
    dispatch(1)
    await system.settle()
    await system.advance(1)
    t.match(await answerOf(world), { status: 200, body: '{"text":"whole"}', end: 'complete' })
    t.strictSame(settled(), ['decision-1', 'decision-2'])
    t.match(log.workerFailed, [{ workerId: `${WORKER_HOST}:1` }])
  }
})

t.test('a whole answer that its engine gave up is asked of another worker', async t => {
  const json = { 'content-type': 'application/json' }
  const world = await start(t, [2])
  const { log, serve, dispatch } = world
  const [begin, rest] = ['{"choices":[{"text":"a","finish_reason":"ab', 'ort"}]}']
  await serve(1, head(200, json), data(begin), finish(rest))
  await serve(2, head(200, json), finish('{"text":"whole"}'))
  dispatch(1)
  t.match(await answerOf(world), { status: 200, body: '{"text":"whole"}', end: 'complete' })
  t.match(log.workerFailed, [{ workerId: `${WORKER_HOST}:1`, fault: { kind: 'failed' } }])
})

t.test('no more of a whole answer is held back than its first 64 KiB', async t => {
  const json = { 'content-type': 'application/json' }
  const world = await start(t, [2])
  const { serve, dispatch, system, last } = world
  await serve(
    1,
    head(200, json),
    data(`{"text":"${'a'.repeat(70_000)}`),
    exchange => void system.clock.after(1, () => exchange.destroy()),
  )
  dispatch(1)
  await system.settle()
  t.equal(last().body.length, 70_009)
  await system.advance(1)
  t.equal((await answerOf(world)).end, 'cut after the head')
})
