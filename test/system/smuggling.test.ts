/**
 * Requests and answers that two programs could read in two ways, over real sockets: each is refused, or goes
 * on with one reading. What comes behind a refused request on its connection is no request.
 */

import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { RouterClient, startTestRouter } from './fleet.ts'
import { type RawEngine, startRawEngine } from './raw-engine.ts'

const MODEL = 'raw'
const ANSWER = '{"id":"cmpl-1","choices":[{"index":0,"text":"a","finish_reason":"stop"}]}'
const BODY = `{"model":"${MODEL}","prompt":"x"}`
const LENGTH = `content-length: ${BODY.length}\r\n`
const SIZE = BODY.length.toString(16)
const CHUNKED = `${SIZE}\r\n${BODY}\r\n0\r\n\r\n`
/** What an attacker wants to be taken for a request of its own. */
const HIDDEN = 'POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}'

let engine: RawEngine
let client: RouterClient
let stop: (() => Promise<unknown>) | undefined
/** Headers of the next answers of the engine. */
let answered = ''

t.before(async () => {
  engine = await startRawEngine(MODEL, socket => {
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${answered}content-length: ${ANSWER.length}\r\n\r\n${ANSWER}`,
      'latin1',
    )
  })
  const router = await startTestRouter([`${engine.url}?block_size=16`], ['--log-level', 'silent'])
  client = new RouterClient(router.url)
  stop = () => router.stop(0)
})
t.teardown(async () => {
  await stop?.()
  engine.close()
})

/** All that the router sends until it closes the connection. */
async function said(text: string): Promise<string> {
  const { hostname, port } = new URL(client.url)
  const socket = connect({ host: hostname, port: Number(port) })
  let received = ''
  socket.setEncoding('latin1')
  socket.on('data', (data: string) => {
    received += data
  })
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.write(text, 'latin1')
  await once(socket, 'close')
  return received
}

const post = (headers: string, body: string, version = '1.1', connection = 'keep-alive'): string =>
  `POST /v1/completions HTTP/${version}\r\nhost: x\r\nconnection: ${connection}\r\ncontent-type: application/json\r\n${headers}\r\n${body}`

t.test('a body with two readings is refused, and nothing behind it is read', async t => {
  const before = engine.requests.length
  for (const [name, request] of [
    ['a length and chunks', post(`${LENGTH}transfer-encoding: chunked\r\n`, CHUNKED)],
    ['chunks and a length', post(`transfer-encoding: chunked\r\n${LENGTH}`, CHUNKED)],
    ['one length twice', post(`${LENGTH}${LENGTH}`, BODY)],
    ['two lengths', post(`${LENGTH}content-length: 5\r\n`, BODY)],
    ['lengths in a list', post(`content-length: ${BODY.length}, ${BODY.length}\r\n`, BODY)],
    ['a length with a sign', post(`content-length: +${BODY.length}\r\n`, BODY)],
    ['a negative length', post('content-length: -1\r\n', BODY)],
    ['a length in another base', post(`content-length: 0x${SIZE}\r\n`, BODY)],
    ['a length past all numbers', post(`content-length: 9${'9'.repeat(30)}\r\n`, BODY)],
    ['a space before the colon', post(`content-length : ${BODY.length}\r\n`, BODY)],
    ['a folded header', post(`x-a: 1\r\n ${LENGTH}\r\n`, BODY)],
    ['a bare line feed', post(`x-a: 1\n${LENGTH}`, BODY)],
    ['a bare carriage return', post(`x-a: 1\r${LENGTH}\r\n`, BODY)],
    ['a zero byte', post(`x-a: 1\0\r\n${LENGTH}`, BODY)],
    ['another coding', post('transfer-encoding: xchunked\r\n', CHUNKED)],
    ['no coding', post('transfer-encoding: identity\r\n', CHUNKED)],
    ['chunks that are not last', post('transfer-encoding: chunked, identity\r\n', CHUNKED)],
    ['chunks twice', post('transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n', CHUNKED)],
    ['chunks behind a control', post('transfer-encoding: \x0bchunked\r\n', CHUNKED)],
    ['chunks in HTTP/1.0', post('transfer-encoding: chunked\r\n', CHUNKED, '1.0')],
    ['chunks of lines that end early', post('transfer-encoding: chunked\r\n', CHUNKED.replaceAll('\r', ''))],
    ['a chunk past all numbers', post('transfer-encoding: chunked\r\n', `${'f'.repeat(17)}\r\n${BODY}`)],
    [
      'a chunk that says too much of itself',
      post('transfer-encoding: chunked\r\n', `${SIZE};${'a'.repeat(20_000)}\r\n`),
    ],
    ['a preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['two hosts', `GET /v1/models HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n`],
  ] as const) {
    const answer = await said(request + HIDDEN)
    t.match(answer, /^HTTP\/1\.1 400 .*"code":"malformed_http"/s, name)
    t.equal(answer.split('HTTP/1.1 ').length, 2, `${name}: one answer`)
  }
  const trailers = `${SIZE}\r\n${BODY}\r\n0\r\n${'a: b\r\n'.repeat(20_000)}\r\n`
  t.match(await said(post('transfer-encoding: chunked\r\n', trailers)), /^HTTP\/1\.1 431 /)
  t.equal(engine.requests.length, before, 'none reached the engine')
})

t.test('the engine gets one length, and nothing of the connection of the client', async t => {
  for (const [headers, body] of [
    [`${LENGTH}upgrade: h2c\r\nhttp2-settings: AAA\r\n`, BODY],
    [
      'transfer-encoding: chunked\r\ntrailer: authorization\r\n',
      CHUNKED.replace(/\r\n$/, 'authorization: Bearer t\r\n\r\n'),
    ],
    ['transfer-encoding: chunked\r\n', CHUNKED.replace('\r\n', ';a=b\r\n')],
    [`${LENGTH}te: trailers\r\nkeep-alive: 9\r\nproxy-authorization: Basic YTpi\r\nx-drop: 1\r\n`, BODY],
    [`${LENGTH}x-homing-tenant: a\r\nx-data-parallel-rank: 0\r\n__proto__: p\r\n`, BODY],
  ] as const) {
    t.match(
      await said(post(headers, body, '1.1', 'close, X-Drop, http2-settings')),
      /^HTTP\/1\.1 200 /,
      headers,
    )
    const { head, body: got } = engine.requests.at(-1)!
    t.equal(got, BODY)
    const names = head
      .split('\r\n')
      .slice(1)
      .map(line => line.split(':')[0]!.toLowerCase())
      .sort()
    t.strictSame(names, ['connection', 'content-length', 'content-type', 'host', 'x-request-id'])
    t.match(head, /\r\nhost: 127\.0\.0\.1:\d+\r\nconnection: keep-alive\r\n/)
  }
})

t.test('an engine cannot add an answer, a header of the connection, or words of the router', async t => {
  const ask = async (headers: string): Promise<string> => {
    answered = headers
    return said(post(LENGTH, BODY, '1.1', 'close'))
  }
  for (const headers of [
    'x-a: a\rset-cookie: b\r\n',
    'x-a: a\r\n set-cookie: b\r\n',
    'x-a: a\0b\r\n',
    'x-a: a\nset-cookie: b\r\n',
    'transfer-encoding: chunked\r\n',
  ]) {
    const answer = await ask(headers)
    t.match(answer, /^HTTP\/1\.1 50[23] .*"error":/s, JSON.stringify(headers))
    t.notMatch(answer, /set-cookie/i)
    t.equal(answer.split(/HTTP\/1\.1 \d/).length, 2)
  }
  const kept = await ask(
    'connection: keep-alive, X-Drop\r\nx-drop: 1\r\nkeep-alive: 9\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\ntrailer: x\r\nx-keep: 2\r\n',
  )
  t.match(kept, /^HTTP\/1\.1 200 .*x-keep: 2/s)
  t.notMatch(kept, /x-drop|keep-alive|proxy-auth|upgrade|trailer/i)
  const lying = await ask(
    'x-homing-worker: other\r\nx-homing-prefill-worker: other\r\nx-homing-trust: exact\r\n',
  )
  t.match(lying, /^HTTP\/1\.1 200 .*x-homing-worker: 127\.0\.0\.1:\d+\/0\r\n/s)
  t.notMatch(lying, /other|x-homing-prefill-worker|exact/)
  answered = ''
})

t.test('a redirect of an engine is not followed', async t => {
  const other = await startRawEngine('elsewhere', socket => void socket.end())
  t.teardown(() => other.close())
  const redirecting = await startRawEngine('moved', socket => {
    socket.end(
      `HTTP/1.1 307 Temporary Redirect\r\nlocation: ${other.url}/v1/completions\r\ncontent-length: 0\r\n\r\n`,
    )
  })
  const router = await startTestRouter([redirecting.url], ['--log-level', 'silent'])
  t.teardown(async () => {
    await router.stop(0)
    redirecting.close()
  })
  const answer = await new RouterClient(router.url).send('/v1/completions', {
    body: { model: 'moved', prompt: 'x' },
  })
  t.not(answer.status, 200)
  t.equal(redirecting.requests.length > 0, true)
  t.equal(other.requests.length, 0)
})
