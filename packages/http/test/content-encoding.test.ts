/** Bodies that clients have compressed, on a network in memory. */

import { createHash } from 'node:crypto'
import {
  brotliCompressSync,
  constants,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib'
import { SimulatedClock, shownText } from '@homing/base'
import { type HttpExchange, MemoryNetwork } from '@homing/transport'
import t, { type Test } from 'tap'
import { BodyDecoders } from '../src/content-encoding.ts'
import { Bodies, errorAnswer, sendAnswer } from '../src/index.ts'

const HOST = '10.0.0.1'
const ROOM_BYTES = 1_000_000
const BODY_BYTES_MAX = 100_000
const words = (i: number): Buffer => createHash('sha512').update(String(i)).digest()
const TEXT = '{"prompt":"what was compressed"}'

async function start(t: Test) {
  const bodies = new Bodies(ROOM_BYTES, (bytes, bytesMax) => new Error(`${bytes} of ${bytesMax}`))
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const held: number[] = []
  const serve = async (exchange: HttpExchange): Promise<void> => {
    const hold = bodies.hold()
    const answer = await hold.readDecoded(exchange, BODY_BYTES_MAX).then(
      body => ({ status: 200, headers: {}, body }),
      (thrown: unknown) => errorAnswer(thrown),
    )
    held.push(bodies.bytes)
    hold.release()
    sendAnswer(exchange, answer)
  }
  const listener = await network
    .transport()
    .http.listen({ host: HOST, port: 0 }, exchange => void serve(exchange))
  t.teardown(() => listener.close(0))
  const { http } = network.transport()
  const send = async (encoding: string | undefined, body: Uint8Array) => {
    const headers = encoding === undefined ? {} : { 'content-encoding': encoding }
    const request = { origin: `http://${HOST}:${listener.port}`, method: 'POST', path: '/', headers, body }
    const reply = await http.fetch(request, { timeoutMs: 60_000 })
    return { status: reply.status, headers: reply.headers, text: Buffer.from(reply.body).toString() }
  }
  return { send, bodies, held }
}

t.test('every known encoding is decoded, and only the decoded bytes are held', async t => {
  const { send, held, bodies } = await start(t)
  const plain = Buffer.from(TEXT)
  for (const [encoding, body] of [
    [undefined, plain],
    ['identity', plain],
    ['', plain],
    ['gzip', gzipSync(plain)],
    ['GZIP', gzipSync(plain)],
    ['x-gzip', gzipSync(plain)],
    ['deflate', deflateSync(plain)],
    ['deflate', deflateRawSync(plain)],
    ['br', brotliCompressSync(plain)],
    ['zstd', zstdCompressSync(plain)],
  ] as const)
    t.match(await send(encoding, body), { status: 200, text: TEXT }, encoding ?? 'none')
  t.strictSame([...new Set(held)], [plain.length])
  t.equal(bodies.bytes, 0)
})

t.test('an encoding that is not known is named, with those that are', async t => {
  const { send } = await start(t)
  for (const encoding of ['compress', 'gzip, br', 'constructor', 'x'.repeat(5000)]) {
    const answer = await send(encoding, gzipSync(TEXT))
    t.equal(answer.status, 415)
    t.equal(answer.headers['accept-encoding'], 'gzip, deflate, br, zstd')
    t.match(JSON.parse(answer.text).error, {
      code: 'unsupported_encoding',
      message: `content-encoding ${shownText(encoding)}: use one of gzip, deflate, br, zstd, or none`,
    })
  }
})

t.test('bytes that are not in the encoding, or end too early, are 400', async t => {
  const { send, bodies } = await start(t)
  for (const [encoding, body] of [
    ['gzip', Buffer.from(TEXT)],
    ['deflate', Buffer.from(TEXT)],
    ['br', Buffer.from(TEXT)],
    ['zstd', Buffer.from(TEXT)],
    ['gzip', gzipSync(TEXT).subarray(0, 20)],
    ['br', brotliCompressSync(TEXT).subarray(0, 10)],
    ['zstd', zstdCompressSync(TEXT).subarray(0, 20)],
    // Its window is 16 MiB: a few bytes must not take that much.
    ['zstd', Buffer.from('28b52ffd00700900007b', 'hex')],
  ] as const) {
    const { status, text } = await send(encoding, body)
    t.equal(status, 400, `${encoding} ${text}`)
    t.match(JSON.parse(text).error, { code: 'malformed_encoding', message: `not valid ${encoding}` })
  }
  t.equal(bodies.bytes, 0)
})

t.test('a body that grows past the bound is stopped there', async t => {
  const { send, held, bodies } = await start(t)
  const bomb = Buffer.alloc(50_000_000)
  for (const [encoding, body] of [
    ['gzip', gzipSync(bomb)],
    ['deflate', deflateSync(bomb)],
    ['br', brotliCompressSync(bomb, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
    ['zstd', zstdCompressSync(bomb)],
  ] as const) {
    t.ok(body.length < BODY_BYTES_MAX, `${encoding} ${body.length}`)
    const { status, text } = await send(encoding, body)
    t.equal(status, 413, text)
    t.match(JSON.parse(text).error, { code: 'body_too_large' })
  }
  t.ok(Math.max(...held) < 2 * BODY_BYTES_MAX, String(held))
  t.equal(bodies.bytes, 0)
})

t.test('a body that grows as no text does is stopped early, and text that repeats itself is not', async t => {
  const decoders = new BodyDecoders()
  const decode = decoders.decode.bind(decoders)
  const sentences = Buffer.from('the same sentence over and over. '.repeat(100_000))
  const hundredfold = Buffer.concat(Array.from({ length: 600 }, (_, i) => Buffer.alloc(10_000, words(i))))
  for (const [encoding, encode] of [
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', (bytes: Buffer) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
    ['zstd', zstdCompressSync],
  ] as const) {
    let taken = 0
    const take = (bytes: number): void => {
      taken += bytes
    }
    const bomb = encode(Buffer.alloc(100_000_000))
    await t.rejects(decode(encoding, bomb, 2 ** 30, take), { code: 'HOMING_HTTP_ENCODING_RATIO' }, encoding)
    t.ok(taken <= 5 * 2 ** 20, `${encoding}: ${taken} bytes were decoded`)
    for (const plain of [sentences, hundredfold]) {
      const { length } = await decode(encoding, encode(plain), 2 ** 30, () => {})
      t.equal(length, plain.length, encoding)
    }
  }
})

t.test('decoded pieces find room among all bodies, or the request is refused', async t => {
  const { send, bodies } = await start(t)
  const giveBack = bodies.keep(ROOM_BYTES - 10_000)
  const { status, text } = await send('gzip', gzipSync(Buffer.alloc(90_000)))
  t.equal(status, 500, 'the refusal of this test has no code')
  t.match(text, / of 1000000/)
  giveBack()
  t.equal(bodies.bytes, 0)
})

t.test('many at a time are decoded, some after others', async t => {
  const { send } = await start(t)
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, at) =>
      send('gzip', gzipSync(`${at % 2 === 0 ? '' : 'x'.repeat(9)}${at}`)),
    ),
  )
  t.strictSame(
    answers.map(({ text }) => Number(text.replaceAll('x', ''))),
    Array.from({ length: 50 }, (_, at) => at),
  )
})
