import { type ActorRef, defineActor } from '@homing/actor'
import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import type { DirectoryMessage } from '@homing/directory'
import type { Decision, RouterMessage, RoutingRequest } from '@homing/router'
import type { TrackerMessage } from '@homing/tracker'
import { type HttpExchange, MemoryNetwork, transportCapability } from '@homing/transport'
import t, { type Test } from 'tap'
import {
  type AnswerMessage,
  type DispatcherArgs,
  dispatcher,
  type UpstreamRequest,
  upstreamHeaders,
} from '../src/index.ts'

const HOST = '10.0.0.1'
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const text = (data: Uint8Array): string => new TextDecoder().decode(data)

function decisionFor(port: number, id = `decision-${port}`): Decision {
  return {
    id,
    workerId: `${HOST}:${port}`,
    worker: `${HOST}:${port}/0`,
    workerSlot: port,
    origin: `http://${HOST}:${port}`,
    dpRank: 0,
    pinRank: false,
    takesUsageOption: true,
    overlapBlocks: 0,
    blockSizeTokens: 16,
    predictedTokens: 0,
    guessedTokens: 0,
    trust: 'exact',
    epoch: 1,
  }
}

const ROUTING: RoutingRequest = {
  requestId: 'request-1',
  model: 'm',
  promptTokens: 10,
  blockSizeTokens: 16,
  localHashes: new Int32Array(0),
  sequenceHashes: new Int32Array(0),
  unknownPrompt: undefined,
  textBlocks: undefined,
  override: {},
  pinnedInstanceId: undefined,
  pinnedRank: undefined,
  excludedWorkers: [],
}

/** Decides by the list of ports it is given, one after the other; then refuses. Keeps what it is told. */
interface RouterLog {
  readonly ports: number[]
  readonly asked: RoutingRequest[]
  readonly delivered: Extract<RouterMessage, { type: 'delivered' }>[]
  /** Decisions wait for this. */
  gate: Promise<void>
}

const logs = new Map<string, RouterLog>()

export const scriptedRouter = defineActor(
  import.meta.url,
  'scriptedRouter',
)<RouterMessage, { log: string }>({
  setup(_context, args) {
    const log = logs.get(args.log)!
    return {
      fleet() {},
      attachToShards() {},
      shardMemory() {},
      async decide({ request, reply }) {
        log.asked.push(request)
        await log.gate
        const port = log.ports.shift()
        if (port !== undefined) reply({ kind: 'decided', decision: decisionFor(port) })
        else {
          const error = { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot place it', details: {} }
          reply({ kind: 'refused', error })
        }
      },
      explain() {},
      delivered(message) {
        log.delivered.push(message)
      },
      audits({ reply }) {
        reply([])
      },
      receipt({ reply }) {
        reply(undefined)
      },
      receipts({ reply }) {
        reply([])
      },
    }
  },
})

async function start(t: Test, ports: readonly number[], settings: Partial<DispatcherArgs> = {}) {
  const log: RouterLog = { ports: [...ports], asked: [], delivered: [], gate: Promise.resolve() }
  logs.set(t.name, log)
  // The network must live on the system's clock, which the system makes.
  const holder: { network?: MemoryNetwork } = {}
  const { SimulatedClock } = await import('@homing/clock')
  const clock = new SimulatedClock()
  holder.network = new MemoryNetwork({ clock })
  const network = holder.network
  const system = await createTestSystem({ clock, provide: [[transportCapability, network.transport()]] })
  t.teardown(() => system.shutdown())
  const sink = system.probe<AnswerMessage>('sink')
  const tracker = system.probe<TrackerMessage>('tracker')
  const directory = system.probe<DirectoryMessage>('directory')
  const router: ActorRef<RouterMessage> = system.spawn(scriptedRouter, {
    name: 'router',
    args: { log: t.name },
  })
  const ref = system.spawn(dispatcher, {
    name: 'dispatcher',
    args: {
      router,
      tracker: tracker.ref,
      directory: directory.ref,
      retriesMax: 2,
      silenceMsMax: 60_000,
      requestMsMax: 0,
      decideMsMax: 1000,
      audit: true,
      ...settings,
    },
  })
  const serve = (port: number, onExchange: (exchange: HttpExchange) => void) =>
    network.transport().http.listen({ host: HOST, port }, onExchange)
  const dispatch = (
    port: number,
    upstream: Pick<UpstreamRequest, 'body' | 'usageEdit'> = { body: bytes('{}'), usageEdit: undefined },
    decision: Partial<Decision> = {},
  ): void => {
    ref.tell({
      type: 'dispatch',
      exchange: 1,
      request: {
        method: 'POST',
        path: '/v1/completions',
        headers: { 'x-a': '1', host: 'client' },
        ...upstream,
      },
      routing: ROUTING,
      decision: { ...decisionFor(port), ...decision },
      sink: sink.ref,
    })
  }
  return { system, network, sink, tracker, directory, log, ref, serve, dispatch }
}

/** The answer as the client would see it: status, text, how it ended. */
async function answerOf(system: TestSystem, sink: { readonly waiting: readonly AnswerMessage[] }) {
  await system.settle()
  let status: number | undefined
  let body = ''
  let end = 'open'
  for (const message of sink.waiting) {
    if (message.type === 'answerHead') status = message.status
    if (message.type === 'answerData') body += text(message.bytes)
    if (message.type === 'answerEnd') end = 'complete'
    if (message.type === 'answerFailed')
      end = `${message.error.code}${status === undefined ? '' : ' after the head'}`
  }
  return { status, body, end }
}

const freed = (tracker: { readonly waiting: readonly TrackerMessage[] }): string[] =>
  tracker.waiting.flatMap(message => (message.type === 'free' ? [message.requestId] : []))

t.test('an answer is relayed as it comes, its booking freed, its usage reported', async t => {
  const { system, sink, tracker, log, serve, dispatch } = await start(t, [])
  const seen: Record<string, unknown> = {}
  await serve(1, async exchange => {
    seen['body'] = text(await exchange.readBody(1000))
    seen['headers'] = exchange.headers
    exchange.writeHead(200, { 'content-type': 'application/json' })
    exchange.write(bytes('{"usage":{"prompt_tokens":10,"completion_tokens":2,'))
    exchange.end(bytes('"prompt_tokens_details":{"cached_tokens":7}}}'))
  })
  dispatch(1)
  const answer = await answerOf(system, sink)
  t.equal(answer.status, 200)
  t.equal(answer.end, 'complete')
  t.match(answer.body, /^\{"usage".*\}\}\}$/)
  t.equal(seen['body'], '{}')
  t.match(seen['headers'], { 'x-a': '1', 'x-request-id': 'request-1' })
  t.not((seen['headers'] as { host?: string }).host, 'client')
  t.strictSame(
    tracker.waiting.map(({ type }) => type),
    ['prefillComplete', 'free'],
  )
  t.match(log.delivered[0]?.delivery, { outcome: 'ok', status: 200, promptTokens: 10, cachedTokens: 7 })
})

const PLAIN = bytes('{"stream":true}')
const USAGE_EDIT = { start: 14, end: 14, text: ',"stream_options":{"include_usage":true}' }
const TOKEN = 'data: {"choices":[{"text":"a"}],"usage":null}\n\n'
const EXTRA =
  'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":7}}}\n\n'

t.test('a stream is asked for usage in the place of its client, who sees nothing of it', async t => {
  const { system, sink, log, serve, dispatch } = await start(t, [])
  const seen: string[] = []
  await serve(1, async exchange => {
    seen.push(text(await exchange.readBody(1000)))
    const answer = `${TOKEN}${EXTRA}data: [DONE]\n\n`
    exchange.writeHead(200, {
      'content-type': 'text/event-stream',
      'content-length': String(answer.length),
    })
    for (const byte of bytes(answer)) exchange.write(Uint8Array.of(byte))
    exchange.end()
  })
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  const answer = await answerOf(system, sink)
  t.strictSame(seen, ['{"stream":true,"stream_options":{"include_usage":true}}'])
  t.strictSame([answer.body, answer.end], [`${TOKEN}data: [DONE]\n\n`, 'complete'])
  const head = sink.waiting.find(message => message.type === 'answerHead')
  t.notOk('content-length' in (head?.headers ?? {}), "the length that the engine gave is not the client's")
  t.match(log.delivered[0]?.delivery, { outcome: 'ok', promptTokens: 10, cachedTokens: 7 })
})

t.test('where nothing is predicted, known or wanted, a stream passes both ways as it is', async t => {
  const cases = [
    { audit: false, usageEdit: USAGE_EDIT, decision: {} },
    { audit: true, usageEdit: USAGE_EDIT, decision: { takesUsageOption: false } },
    { audit: true, usageEdit: USAGE_EDIT, decision: { trust: 'none' as const } },
    { audit: true, usageEdit: undefined, decision: {} },
  ]
  for (const { audit, usageEdit, decision } of cases) {
    const { system, sink, serve, dispatch } = await start(t, [], { audit })
    const seen: string[] = []
    await serve(1, async exchange => {
      seen.push(text(await exchange.readBody(1000)))
      exchange.writeHead(200, { 'content-type': 'text/event-stream' })
      exchange.end(bytes(`${TOKEN}${EXTRA}`))
    })
    dispatch(1, { body: PLAIN, usageEdit }, decision)
    t.equal((await answerOf(system, sink)).body, `${TOKEN}${EXTRA}`)
    t.strictSame(seen, ['{"stream":true}'])
    await system.shutdown()
  }
})

t.test('a stream that breaks off inside an event ends with all bytes that came', async t => {
  const { system, sink, serve, dispatch } = await start(t, [])
  let breakOff = (): void => {}
  await serve(1, exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes(`${TOKEN}data: {"choi`))
    breakOff = () => exchange.destroy()
  })
  dispatch(1, { body: PLAIN, usageEdit: USAGE_EDIT })
  t.equal((await answerOf(system, sink)).body, TOKEN)
  breakOff()
  const answer = await answerOf(system, sink)
  t.equal(answer.body, `${TOKEN}data: {"choi`)
  t.match(answer.end, /after the head$/)
})

t.test('a worker that refuses the connection costs a new place, not the request', async t => {
  const { system, sink, tracker, directory, log, serve, dispatch } = await start(t, [2])
  await serve(2, exchange => {
    exchange.writeHead(200, {})
    exchange.end(bytes('from 2'))
  })
  dispatch(1)
  t.match(await answerOf(system, sink), { status: 200, body: 'from 2', end: 'complete' })
  t.strictSame(log.asked[0]?.excludedWorkers, [`${HOST}:1`])
  t.match(directory.waiting, [{ type: 'suspect', workerId: `${HOST}:1`, isUnreachable: true }])
  t.strictSame(freed(tracker), ['decision-1', 'decision-2'])
  t.strictSame(
    log.delivered.map(({ decision, delivery }) => [decision.id, delivery.outcome]),
    [
      ['decision-1', 'error'],
      ['decision-2', 'ok'],
    ],
  )
})

t.test('a worker that answers 503 costs a new place; the last 503 reaches the client', async t => {
  const { system, sink, log, serve, dispatch } = await start(t, [2, 3], { retriesMax: 2 })
  for (const port of [1, 2, 3]) {
    await serve(port, exchange => {
      exchange.writeHead(503, {})
      exchange.end(bytes(`busy ${port}`))
    })
  }
  dispatch(1)
  t.match(await answerOf(system, sink), { status: 503, body: 'busy 3', end: 'complete' })
  t.equal(log.asked.length, 2)
})

t.test('a worker that dies before its first byte costs a new place', async t => {
  const { system, sink, serve, dispatch } = await start(t, [2])
  await serve(1, exchange => exchange.destroy())
  await serve(2, exchange => {
    exchange.writeHead(200, {})
    exchange.end(bytes('from 2'))
  })
  dispatch(1)
  t.match(await answerOf(system, sink), { status: 200, body: 'from 2' })
})

t.test('after the first byte a request is never sent again', async t => {
  const { system, sink, tracker, log, serve, dispatch } = await start(t, [2])
  await serve(1, exchange => {
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes('data: {"a":1}\n\n'))
    system.clock.after(1, () => exchange.destroy())
  })
  dispatch(1)
  await system.advance(10)
  t.match(await answerOf(system, sink), {
    status: 200,
    body: 'data: {"a":1}\n\n',
    end: 'HOMING_DISPATCH_UPSTREAM_FAILED after the head',
  })
  t.equal(log.asked.length, 0)
  t.strictSame(freed(tracker), ['decision-1'])
})

t.test('when nobody is left the client is told why, and nothing stays booked', async t => {
  const { system, sink, tracker, dispatch } = await start(t, [])
  dispatch(1)
  t.match(await answerOf(system, sink), { status: undefined, end: 'HOMING_ROUTER_NO_WORKER' })
  t.strictSame(freed(tracker), ['decision-1'])
})

t.test('a client that leaves ends the call at once', async t => {
  const { system, sink, tracker, log, ref, serve, dispatch } = await start(t, [])
  let isGone = false
  await serve(1, exchange => {
    exchange.onClientGone(() => {
      isGone = true
    })
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes('data: 1\n\n'))
  })
  dispatch(1)
  t.match(await answerOf(system, sink), { end: 'open' })
  ref.tell({ type: 'abort', exchange: 1 })
  await system.settle()
  t.ok(isGone)
  t.strictSame(freed(tracker), ['decision-1'])
  t.equal(log.delivered[0]?.delivery.outcome, 'aborted')
  t.equal((await answerOf(system, sink)).end, 'open', 'a sink that left is told nothing more')
})

t.test('a client that leaves while the router looks for another worker leaves no booking', async t => {
  const { system, tracker, ref, dispatch } = await start(t, [2, 3])
  dispatch(1)
  ref.tell({ type: 'abort', exchange: 1 })
  await system.settle()
  const booked = new Set(['decision-1', 'decision-2'])
  for (const id of freed(tracker)) booked.delete(id)
  t.notOk(booked.has('decision-1'))
})

t.test('a worker that hangs is given up after the silence allowed', async t => {
  const { system, sink, tracker, serve, dispatch } = await start(t, [], { silenceMsMax: 5000 })
  await serve(1, () => {})
  dispatch(1)
  await system.advance(4000)
  t.match(await answerOf(system, sink), { end: 'open' })
  await system.advance(3000)
  t.match(await answerOf(system, sink), { end: 'HOMING_DISPATCH_NO_ANSWER' })
  t.strictSame(freed(tracker), ['decision-1'])
})

t.test('an answer that drips without end is given up after the time allowed', async t => {
  const { system, sink, serve, dispatch } = await start(t, [], { requestMsMax: 10_000 })
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
  t.match(await answerOf(system, sink), { end: 'HOMING_DISPATCH_NO_ANSWER after the head' })
})

t.test('a request that still runs keeps its booking alive', async t => {
  const { system, tracker, serve, dispatch } = await start(t, [])
  await serve(1, () => {})
  dispatch(1)
  await system.advance(3500)
  t.equal(tracker.waiting.filter(({ type }) => type === 'touch').length, 3)
})

t.test('a dispatcher that stops fails what is open, frees it, and ends its calls', async t => {
  const { system, sink, tracker, ref, serve, dispatch } = await start(t, [])
  let isGone = false
  await serve(1, exchange => {
    exchange.onClientGone(() => {
      isGone = true
    })
    exchange.writeHead(200, { 'content-type': 'text/event-stream' })
    exchange.write(bytes('data: 1\n\n'))
  })
  dispatch(1)
  await system.settle()
  await system.stop(ref)
  t.match(await answerOf(system, sink), { status: 200, end: 'HOMING_DISPATCH_RESTARTED after the head' })
  t.strictSame(freed(tracker), ['decision-1'])
  t.ok(isGone)
})

t.test('a client that leaves while another worker is looked for completes both receipts', async t => {
  const { system, log, tracker, ref, serve, dispatch } = await start(t, [2])
  await serve(1, exchange => exchange.destroy())
  const gate = Promise.withResolvers<void>()
  log.gate = gate.promise
  dispatch(1)
  await system.settle()
  t.equal(log.asked.length, 1)
  ref.tell({ type: 'abort', exchange: 1 })
  await system.settle()
  gate.resolve()
  await system.settle()
  t.strictSame(freed(tracker), ['decision-1', 'decision-2'])
  t.strictSame(
    log.delivered.map(({ decision, delivery }) => [decision.id, delivery.outcome]),
    [
      ['decision-1', 'error'],
      ['decision-2', 'aborted'],
    ],
  )
})

t.test('headers that the client names in Connection stay with its connection', async t => {
  const headers = { connection: 'close, X-Secret', 'x-secret': '1', 'x-kept': '2' }
  t.match(upstreamHeaders(headers, decisionFor(1), 'r', 1), { 'x-kept': '2', 'x-request-id': 'r' })
  t.notOk('x-secret' in upstreamHeaders(headers, decisionFor(1), 'r', 1))
})
