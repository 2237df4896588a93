/**
 * Spans of requests at a collector, over real sockets: what a trace has, whose context it goes on, and that a
 * collector that is not there, or silent, delays nothing.
 */

import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { freePort } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { chunksOf, RouterClient, send, startTestRouter, until } from './fleet.ts'
import { type RawRequest, startRawEngine } from './raw-engine.ts'

const MODEL = 'raw'
const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
const ANSWER =
  '{"id":"c","choices":[{"index":0,"text":"a","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'
const STREAM = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n'
const event = (text: string, finish: string | null) =>
  `data: {"id":"c","object":"text_completion","created":1,"model":"${MODEL}","choices":[{"index":0,"text":"${text}","finish_reason":${JSON.stringify(finish)}}]}\n\n`
const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'

interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly status: { readonly code?: number }
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[]
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[]
}

/** A collector that keeps what it is sent; `answers` false: it never says anything. */
async function startCollector(t: Test, answers = true) {
  const spans: Span[] = []
  const services = new Set<unknown>()
  const paths = new Set<string>()
  const server: Server = createServer((request, answer) => {
    paths.add(`${request.method} ${request.url}`)
    let text = ''
    request.setEncoding('utf8')
    request.on('data', piece => {
      text += piece
    })
    request.on('end', () => {
      if (!answers) return
      for (const { resource, scopeSpans } of JSON.parse(text).resourceSpans) {
        services.add(
          resource.attributes.find(({ key }: { key: string }) => key === 'service.name').value.stringValue,
        )
        for (const scope of scopeSpans) spans.push(...scope.spans)
      }
      answer.setHeader('content-type', 'application/json')
      answer.end('{}')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, spans, services, paths }
}

async function startRouter(
  t: Test,
  collector: string,
  answers: readonly ((socket: Socket, request: RawRequest) => void)[],
  argv: readonly string[] = [],
) {
  const engines = await Promise.all(answers.map(answer => startRawEngine(MODEL, answer)))
  const workers = engines.map(({ url }) => `${url}?block_size=16`)
  const router = await startTestRouter(workers, [
    '--log-level',
    'silent',
    '--otlp-endpoint',
    collector,
    ...argv,
  ])
  t.teardown(async () => {
    await router.stop(0)
    for (const engine of engines) engine.close()
  })
  return { engines, router, client: new RouterClient(router.url) }
}

const whole = (socket: Socket) =>
  void socket.write(`${JSON_HEAD}content-length: ${ANSWER.length}\r\n\r\n${ANSWER}`)
const stream = (socket: Socket) =>
  void socket.end(`${STREAM}${event('a', null)}${event('', 'stop')}data: [DONE]\n\n`)

const value = ({ attributes }: Span, name: string): unknown =>
  Object.values(attributes.find(({ key }) => key === name)?.value ?? {})[0]

/** 'parent > name', of all spans, in the order of their beginning. */
function tree(spans: readonly Span[]): readonly string[] {
  const nameOf = (id: string | undefined) => spans.find(({ spanId }) => spanId === id)?.name ?? 'outside'
  return [...spans]
    .sort((a, b) => Number(BigInt(a.startTimeUnixNano) - BigInt(b.startTimeUnixNano)))
    .map(({ name, parentSpanId }) => `${nameOf(parentSpanId)} > ${name}`)
    .sort()
}

t.test('a trace has each stage, goes on the context of the client, and the engine goes on it', async t => {
  const collector = await startCollector(t)
  const argv = ['--otlp-context', 'parent']
  const { client, engines, router } = await startRouter(t, `${collector.url}/`, [stream], argv)
  const headers = { traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: 'vendor=1', 'x-request-id': 'mine' }
  const body = { model: MODEL, prompt: 'x', stream: true }
  const answer = await client.send('/v1/completions?secret=1', { body, headers })
  t.equal(chunksOf(answer.text).length, 2)
  const { head } = engines[0]!.requests[0]!
  const sent = new RegExp(`\\r\\ntraceparent: 00-${TRACE}-([0-9a-f]{16})-01\\r\\n`, 'i').exec(head)?.[1]
  t.match(head, /\r\ntracestate: vendor=1\r\n/i)
  t.equal(head.match(/traceparent/gi)?.length, 1)
  // What waits goes out at the end.
  await router.stop(5000)
  const { spans } = collector
  t.strictSame([...collector.paths], ['POST /v1/traces'])
  t.strictSame([...collector.services], ['homing'])
  t.strictSame(tree(spans), [
    'POST completions > call',
    'POST completions > decide',
    'POST completions > queue',
    'POST completions > receive',
    'POST completions > tokenize',
    'call > first byte',
    'call > stream',
    'outside > POST completions',
  ])
  for (const span of spans) {
    t.equal(span.traceId, TRACE)
    t.ok(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano), span.name)
  }
  const named = (name: string) => spans.find(span => span.name === name)!
  const root = named('POST completions')
  t.equal(root.parentSpanId, PARENT)
  t.equal(named('call').spanId, sent, 'the call is the parent of what the engine does')
  t.strictSame([root.kind, named('call').kind], [2, 3])
  t.strictSame(
    ['http.response.status_code', 'http.route', 'gen_ai.request.model', 'homing.request_id'].map(name =>
      value(root, name),
    ),
    [200, 'completions', MODEL, 'mine'],
  )
  t.equal(value(named('decide'), 'homing.worker'), answer.headers['x-homing-worker'])
  const wall = BigInt(Date.now()) * 1_000_000n
  t.ok(wall - BigInt(root.startTimeUnixNano) < 300_000_000_000n, 'in Unix time')
  t.notMatch(JSON.stringify(spans), /secret|"x"/, 'no query and no prompt')
})

t.test('each worker that was asked is a call, also one that goes on with a stream', async t => {
  const collector = await startCollector(t)
  let calls = 0
  const act = (socket: Socket): void => {
    const call = calls++
    if (call === 0) socket.end('HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n')
    else if (call === 1) socket.write(`${STREAM}${event('', null)}`, () => socket.resetAndDestroy())
    else stream(socket)
  }
  const { client, engines, router } = await startRouter(
    t,
    collector.url,
    [act, act, act],
    ['--migration-limit', '3'],
  )
  const answer = await client.send('/v1/completions', { body: { model: MODEL, prompt: 'x', stream: true } })
  t.match(answer.text, /data: \[DONE\]/)
  await router.stop(5000)
  const made = collector.spans.filter(({ name }) => name === 'call')
  t.equal(made.length, 3)
  const heads = engines.flatMap(({ requests }) => requests.map(({ head }) => head)).join('')
  for (const { spanId, traceId } of made) t.ok(heads.includes(`00-${traceId}-${spanId}-01`))
  t.equal(new Set(made.map(span => value(span, 'homing.worker'))).size, 3)
  t.strictSame(made.map(({ status }) => status.code ?? 0).sort(), [0, 2, 2])
  t.equal(new Set(collector.spans.map(({ traceId }) => traceId)).size, 1)
  t.equal(collector.spans.filter(({ name }) => name === 'decide').length, 3)
  const [root] = collector.spans.filter(({ kind }) => kind === 2)
  t.strictSame(
    [value(root!, 'homing.outcome'), value(root!, 'error.type')],
    ['ok', undefined],
    'it was saved',
  )
})

t.test('a request that is not sampled sends its context on, and no span', async t => {
  const collector = await startCollector(t)
  const argv = ['--otlp-sample', '0', '--otlp-context', 'parent']
  const { client, engines, router } = await startRouter(t, collector.url, [whole], argv)
  const body = { model: MODEL, prompt: 'x' }
  await client.send('/v1/completions', { body })
  await client.send('/v1/completions', { body, headers: { traceparent: `00-${TRACE}-${PARENT}-00` } })
  await client.send('/v1/completions', { body, headers: { traceparent: 'nonsense' } })
  const [own, theirs, wrong] = engines[0]!.requests.map(({ head }) => /traceparent: (\S+)/i.exec(head)?.[1])
  t.match(own, /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/)
  t.match(theirs, new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`))
  t.match(wrong, /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/, 'what is no context is replaced')
  await router.stop(5000)
  t.equal(collector.spans.length, 0)
})

t.test('the context of a stranger is a link, and decides nothing', async t => {
  for (const [sample, flag, count] of [
    ['0', '01', 0],
    ['1', '00', 1],
  ] as const) {
    const collector = await startCollector(t)
    const argv = ['--otlp-sample', sample]
    const { client, engines, router } = await startRouter(t, collector.url, [whole], argv)
    const headers = { traceparent: `00-${TRACE}-${PARENT}-${flag}`, tracestate: 'vendor=1' }
    await client.send('/v1/completions', { body: { model: MODEL, prompt: 'x' }, headers })
    const { head } = engines[0]!.requests[0]!
    t.match(
      head,
      new RegExp(`\\r\\ntraceparent: 00-(?!${TRACE})[0-9a-f]{32}-[0-9a-f]{16}-0${sample}\\r\\n`, 'i'),
    )
    t.notMatch(head, /tracestate/i)
    await router.stop(5000)
    const roots = collector.spans.filter(({ kind }) => kind === 2)
    t.equal(roots.length, count, `flag ${flag} at a share of ${sample}`)
    for (const { traceId, parentSpanId, links } of roots) {
      t.not(traceId, TRACE)
      t.notOk(parentSpanId)
      t.match(links, [{ traceId: TRACE, spanId: PARENT }])
    }
  }
})

t.test('what ends without an answer ends its spans, too', async t => {
  const collector = await startCollector(t)
  const { client, router } = await startRouter(t, collector.url, [socket => void socket.destroy()])
  t.equal((await client.send('/v1/completions', { body: '{' })).status, 400)
  t.equal((await client.send('/v1/completions', { body: { model: 'none', prompt: 'x' } })).status, 404)
  t.ok((await client.send('/v1/completions', { body: { model: MODEL, prompt: 'x' } })).status >= 500)
  t.equal((await client.send('/no-such-route')).status, 404)
  for (const path of ['/health', '/ready', '/metrics', '/workers'])
    t.equal((await client.send(path)).status, 200)
  await router.stop(5000)
  const roots = collector.spans.filter(({ kind }) => kind === 2)
  t.strictSame(
    roots
      .map(span => value(span, 'http.response.status_code'))
      .sort()
      .slice(0, 3),
    [400, 404, 404],
  )
  t.match(
    roots.map(({ name }) => name),
    ['POST completions', 'POST completions', 'POST completions', 'GET none'],
  )
  t.equal(value(roots.at(-1)!, 'http.route'), 'none', 'no name that a client chose')
  t.match(
    roots.slice(0, 3).map(span => value(span, 'error.type')),
    ['HOMING_OPENAI_MALFORMED_JSON', 'HOMING_ROUTER_MODEL_NOT_FOUND', 'HOMING_ROUTER_NO_WORKER'],
  )
})

async function spansAt(url: string): Promise<Readonly<Record<string, number>>> {
  const { text } = await send(url, '/metrics')
  const found = [
    ...text.matchAll(/^homing_gateway_trace_(?:spans_total\{outcome="(\w+)"\}|(waiting)_spans) (\d+)$/gm),
  ]
  return Object.fromEntries(found.map(([, outcome, waiting, count]) => [outcome ?? waiting, Number(count)]))
}

t.test('a collector that is silent costs no request, and what waits has a bound', async t => {
  const collector = await startCollector(t, false)
  const { client, router } = await startRouter(t, collector.url, [whole], ['--otlp-queue-spans', '512'])
  const body = { model: MODEL, prompt: 'x' }
  for (let round = 0; round < 12; round++) {
    const answers = await Promise.all(
      Array.from({ length: 16 }, () => client.send('/v1/completions', { body })),
    )
    for (const { status } of answers) if (status !== 200) t.fail(`answered ${status}`)
  }
  const { exported = 0, dropped = 0, waiting = 0, failed = 0 } = await spansAt(router.url)
  t.equal(exported, 0)
  t.ok(dropped > 0, `${dropped} dropped`)
  t.ok(waiting <= 512 && waiting + failed >= 512, `${waiting} wait, ${failed} failed`)
  const began = performance.now()
  await router.stop(5000)
  t.ok(performance.now() - began < 60_000, 'and it does not keep the router from ending')
})

t.test('a collector that is not there is told of once, and counted', async t => {
  const gone = await startCollector(t)
  const { client, router } = await startRouter(t, `http://127.0.0.1:${await freePort()}`, [whole])
  t.equal((await client.send('/v1/completions', { body: { model: MODEL, prompt: 'x' } })).status, 200)
  await until('its spans have failed', async () => {
    const { failed = 0, waiting = 0 } = await spansAt(router.url)
    return failed > 0 && waiting < 20 ? true : undefined
  })
  t.equal(gone.spans.length, 0)
})

t.test('an address that is none is one error, which repeats nothing', async t => {
  for (const url of ['ftp://x', 'http://user:hunter2@x:4318', 'http://x:4318/?key=hunter2', 'no url'])
    await t.rejects(async () => startTestRouter(['http://127.0.0.1:9'], ['--otlp-endpoint', url]), {
      message: /--otlp-endpoint(?!.*hunter2).*must /,
    })
})
