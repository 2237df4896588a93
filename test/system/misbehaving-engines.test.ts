/**
 * Engines that do not keep to HTTP, to event streams or to JSON, on raw sockets: the table in docs/errors.md,
 * row by row. Each request ends, the router lives, and nothing stays booked.
 */

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import t from 'tap'
import { RouterClient, startTestRouter, until } from './fleet.ts'

const MODEL = 'odd'
const STREAM = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n'
const CHUNKED = `${STREAM}transfer-encoding: chunked\r\n\r\n`
const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
const SAME = `"id":"c","object":"text_completion","created":1,"model":"${MODEL}"`
const EVENT = `data: {${SAME},"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n`
const BODY = `{${SAME},"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}`
const PIECE = 'a'.repeat(100_000)
const PIECES = 400

type Act = (socket: Socket) => void
/** `whole`: as the engine sent it; `event`: what came, then an error event; `cut`: broken off. */
type Outcome = '502' | 'whole' | 'event' | 'cut'

const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const says =
  (...pieces: readonly (string | Uint8Array)[]): Act =>
  socket =>
    void socket.end(Buffer.concat(pieces.map(piece => Buffer.from(piece as string))))
const withLength = (body: string): string => `content-length: ${body.length}\r\n\r\n${body}`

/** Sends for as long as it may. */
function endless(head: string, piece = PIECE): Act {
  return socket => {
    socket.write(head)
    let left = PIECES
    const more = (): void => {
      if (socket.destroyed || left-- === 0) socket.end()
      else socket.write(piece, more)
    }
    more()
  }
}

/** By the first column of the table. */
const CASES: Readonly<
  Record<string, readonly [isStream: boolean, outcome: Outcome, act: Act, isEarly?: boolean]>
> = {
  'answers before it has read the request': [
    false,
    'whole',
    socket => void socket.write(`${JSON_HEAD}${withLength(BODY)}`),
    true,
  ],
  'closes inside an event': [true, 'event', says(CHUNKED, chunk(EVENT), chunk('data: {"cho'))],
  'ends inside an event': [true, 'event', says(CHUNKED, chunk(EVENT), chunk('data: {"cho'), '0\r\n\r\n')],
  'ends a stream without its last event': [true, 'event', says(CHUNKED, chunk(EVENT), '0\r\n\r\n')],
  'gives up a stream (`finish_reason` `abort` or `error`)': [
    true,
    'event',
    says(
      CHUNKED,
      chunk(EVENT),
      chunk(EVENT.replace('null', '"abort"')),
      chunk('data: [DONE]\n\n'),
      '0\r\n\r\n',
    ),
  ],
  'gives up a whole answer': [false, '502', says(JSON_HEAD, withLength(BODY.replace('stop', 'abort')))],
  'sends bytes that are no UTF-8': [
    true,
    'whole',
    says(
      ...[STREAM, 'connection: close\r\n\r\n', EVENT, 'data: {"choices":[{"index":0,"text":"'],
      Uint8Array.of(0xff, 0xc3, 0x28),
      '"}]}\n\ndata: [DONE]\n\n',
    ),
  ],
  'sends an event that is no JSON': [
    true,
    'whole',
    says(STREAM, 'connection: close\r\n\r\n', EVENT, 'data: {nonsense\n\ndata: [DONE]\n\n'),
  ],
  'sends another head in its answer': [
    true,
    'event',
    says(CHUNKED, chunk(EVENT), 'HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n'),
  ],
  'sends less than it announced': [false, '502', says(JSON_HEAD, 'content-length: 2000\r\n\r\n', BODY)],
  'sends more than it announced': [false, '502', says(JSON_HEAD, 'content-length: 20\r\n\r\n', BODY)],
  'announces two lengths': [false, '502', says(JSON_HEAD, 'content-length: 3\r\n', withLength(BODY))],
  'sends no HTTP': [false, '502', says('\u0000\u0001\u0002 hello\r\n\r\n')],
  'sends nothing and closes': [false, '502', says('')],
  'sends a chunk without a size': [true, '502', says(CHUNKED, 'zz\r\n', EVENT)],
  'sends 2,000 early heads (1xx)': [
    false,
    'whole',
    says('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(2000), JSON_HEAD, withLength(BODY)),
  ],
  'sends early heads without an end': [
    false,
    '502',
    endless('', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(2500)),
  ],
  'sends 100 KB of headers': [
    false,
    '502',
    says('HTTP/1.1 200 OK\r\n', 'x-a: bbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n'.repeat(3000), withLength(BODY)),
  ],
  'switches protocols': [
    false,
    '502',
    says('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n'),
  ],
  'sends an event without an end': [
    true,
    'event',
    endless(`${STREAM}connection: close\r\n\r\ndata: {"choices":[{"index":0,"text":"`),
  ],
  'sends a body without an end': [false, 'cut', endless(`${JSON_HEAD}connection: close\r\n\r\n{"a":"`)],
}

/** An engine of one case. */
interface OddEngine {
  readonly url: string
  /** Bytes of the body that had come when it acted, and in the end. */
  readBefore: number
  readInAll: number
}

/** An engine of the model that does so when it is asked. `isEarly`: as soon as the head has come. */
async function startOdd(model: string, act: Act, isEarly: boolean): Promise<OddEngine> {
  const server = createServer(socket => {
    socket.on('error', () => {})
    let [got, hasActed] = ['', false]
    socket.on('data', bytes => {
      got += bytes.toString('latin1')
      const [head, body] = got.split('\r\n\r\n')
      if (body === undefined) return
      const isAsked = head!.startsWith('POST /v1/completions')
      const isWhole = body.length >= Number(/content-length: (\d+)/i.exec(head!)?.[1] ?? 0)
      if (isAsked && !hasActed && (isEarly || isWhole)) {
        engine.readBefore = body.length
        hasActed = true
        act(socket)
      }
      if (!isWhole) return
      if (isAsked) engine.readInAll = body.length
      got = ''
      hasActed = false
      if (isAsked) return
      const models = JSON.stringify({ object: 'list', data: [{ id: model, object: 'model' }] })
      if (head!.startsWith('GET /v1/models')) socket.write(`${JSON_HEAD}${withLength(models)}`)
      else if (head!.startsWith('GET /health')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
      else socket.write('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => void server.close())
  const { port } = server.address() as AddressInfo
  const engine: OddEngine = { url: `http://127.0.0.1:${port}`, readBefore: 0, readInAll: 0 }
  return engine
}

/** Each has an engine, told apart by its model, so that no case marks the engine of another as down. */
const cases = Object.entries(CASES)
let odd: OddEngine[] = []
let client: RouterClient
let stop: () => Promise<unknown> = async () => undefined

t.before(async () => {
  odd = await Promise.all(
    cases.map(([, [, , act, isEarly = false]], i) => startOdd(`${MODEL}-${i}`, act, isEarly)),
  )
  const urls = odd.map(({ url }) => url)
  const router = await startTestRouter(urls, ['--retries', '0'])
  stop = () => router.stop(0)
  client = new RouterClient(router.url)
  await until('all models are listed', async () => {
    const { json } = await client.send('/v1/models')
    return json.data.length === cases.length ? true : undefined
  })
})
t.teardown(() => stop())

for (const [i, [name, [isStream, outcome, , actsEarly = false]]] of cases.entries())
  t.test(`an engine that ${name}: ${outcome}`, async t => {
    const prompt = actsEarly ? 'word '.repeat(400_000) : [1, 2, 3, 4]
    const body = { model: `${MODEL}-${i}`, prompt, max_tokens: 5, stream: isStream }
    const answer = await client
      .send('/v1/completions', { body })
      .catch((error: { code: string }) => error.code)
    if (typeof answer === 'string') t.equal('cut', outcome, answer)
    else {
      t.equal(answer.status, outcome === '502' ? 502 : 200, answer.text.slice(-300))
      const isError = /"code":"upstream_failed"\}\}(\n\n)?$/.test(answer.text)
      t.equal(isError, outcome === '502' || outcome === 'event', answer.text.slice(-300))
      if (outcome === 'event') t.match(answer.text, /\n\ndata: \{"error":[^\n]*\n\n$/, 'an event of its own')
    }
    await client.drained()
    if (actsEarly) {
      const { length } = JSON.stringify(body)
      t.ok(odd[i]!.readBefore < length)
      await until('it has read all of it', async () => (odd[i]!.readInAll === length ? true : undefined))
    }
    t.equal((await client.send('/health')).status < 600, true)
  })

t.test('the table in docs/errors.md has these rows', async t => {
  const text = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8')
  const table = text.split('## Engines that do not keep to the rules')[1]!.split('\n## ')[0]!
  const rows = [...table.matchAll(/^\| ([^|]+) \| ([^|]+) \|/gm)].slice(1)
  const words: Readonly<Record<Outcome, string>> = {
    '502': '502',
    whole: 'what the engine sent',
    event: 'what came, then an error event',
    cut: 'a connection that is cut',
  }
  t.strictSame(
    rows.map(([, name, said]) => [name, said]),
    Object.entries(CASES).map(([name, [, outcome]]) => [name, words[outcome]]),
  )
})
