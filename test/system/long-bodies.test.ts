/**
 * Long bodies through a router whose engines are hard on reused memory: they read slowly, answer before they
 * have read, refuse, break off, and close connections that are used again; clients leave while they send and
 * while they wait.
 *
 * A body that an engine reads whole equals, byte for byte, the body that the client sent, and is never empty.
 */

import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { open, RouterClient, startTestRouter, TINY_TOKENIZER, until } from './fleet.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const REQUESTS = 60
const AT_A_TIME = 6
/** The number of a request that no buffers of a connection hold. */
const LONGEST = 1001
const LONGEST_BYTES = 24 * 2 ** 20
const MODEL = 'm'
const HEAD_END = '\r\n\r\n'
const USAGE_ASKED = ',"stream_options":{"include_usage":true}'
const SSE =
  'data: {"id":"c","choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n' +
  'data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
const JSON_BODY = '{"id":"c","choices":[{"index":0,"text":"a"}],"usage":{"prompt_tokens":1}}'

type Habit = 'prompt' | 'slow' | 'early' | 'refuses' | 'breaks off' | 'closes what is used again'
const HABITS: readonly Habit[] = [
  ...(['prompt', 'prompt', 'slow', 'slow', 'early', 'early', 'refuses'] as const),
  ...(['breaks off', 'closes what is used again'] as const),
]

/** The body of a request, from its number alone. */
function bodyOf(number: number): string {
  const random = seededRandom(SEED + number)
  const length =
    number === LONGEST
      ? LONGEST_BYTES
      : [20_000, 60_000, 300_000, 1_500_000][random.below(4)]! + random.below(20_000)
  const line = `${number} ${random.below(2 ** 31).toString(36)} `
  const text = line.repeat(Math.ceil(length / line.length))
  const isStream = number % 2 === 0
  return `{"model":"${MODEL}","prompt":"${text}","stream":${isStream},"number":${number}}`
}

interface Read {
  readonly number: number
  readonly isRight: boolean
}

/** Bodies that engines have read whole, with any answer. */
const reads: Read[] = []

/**
 * `given`: the habit for every request; until `readsOn` the engine reads only the first bytes of such a
 * request.
 */
async function startEngine(
  random: Random,
  given?: { readonly habit: Habit; readonly readsOn: Promise<unknown> },
) {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    let pieces: Buffer[] = []
    let bytes = 0
    let served = 0
    let request: { readonly start: number; readonly end: number; readonly habit: Habit } | undefined
    const answer = (isStream: boolean, status = '200 OK'): void => {
      const body = isStream ? SSE : JSON_BODY
      const type = isStream ? 'text/event-stream' : 'application/json'
      socket.write(
        `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}${HEAD_END}${body}`,
      )
    }
    /** Nothing is read for some turns of the loop, so that the connection's buffers fill. */
    const rest = (turns: number): void => {
      socket.pause()
      const turn = (left: number): void => {
        if (left === 0) socket.resume()
        else setImmediate(turn, left - 1)
      }
      turn(turns)
    }
    /** Reads on; false: more bytes must come first. */
    const step = (): boolean => {
      if (request === undefined) {
        const received = Buffer.concat(pieces)
        pieces = [received]
        const headEnd = received.indexOf(HEAD_END)
        if (headEnd < 0) return false
        const head = received.subarray(0, headEnd).toString()
        const [method, target] = head.split(' ', 2) as [string, string]
        if (method === 'GET' || target !== '/v1/completions') {
          const body = target === '/v1/models' ? JSON.stringify({ data: [{ id: MODEL }] }) : ''
          const status = target === '/health' || body !== '' ? '200 OK' : '404 Not Found'
          socket.end(
            `HTTP/1.1 ${status}\r\ncontent-length: ${body.length}\r\nconnection: close${HEAD_END}${body}`,
          )
          return false
        }
        const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0)
        const habit = given?.habit ?? HABITS[random.below(HABITS.length)]!
        const isUsedAgain = served++ > 0
        request = { end: headEnd + HEAD_END.length + length, start: headEnd + HEAD_END.length, habit }
        if (habit === 'early') answer(false)
        if (habit === 'refuses') answer(false, '503 Service Unavailable')
        if (habit === 'breaks off') socket.resetAndDestroy()
        if (habit === 'closes what is used again' && isUsedAgain) socket.destroy()
        if (socket.destroyed) return false
      }
      const { start, end, habit } = request
      if (given !== undefined && bytes < end) {
        socket.pause()
        void given.readsOn.then(() => socket.resume())
      } else if (habit !== 'prompt') rest(random.below(20))
      if (bytes < end) return false
      const received = Buffer.concat(pieces)
      const text = received.subarray(start, end).toString()
      const number = Number(/"number":(\d+)/.exec(text)?.[1] ?? Number.NaN)
      reads.push({ number, isRight: text.replace(USAGE_ASKED, '') === bodyOf(number) })
      if (habit !== 'early' && habit !== 'refuses') answer(number % 2 === 0)
      request = undefined
      // An early answer lets the next request follow in the same bytes.
      pieces = [received.subarray(end)]
      bytes -= end
      return bytes > 0
    }
    socket.on('data', piece => {
      pieces.push(piece)
      bytes += piece.length
      while (step());
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as { readonly port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

t.test('engines read what clients sent, whatever becomes of answers, connections and clients', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  const random = seededRandom(SEED)
  const engines = await Promise.all([0, 1, 2].map(() => startEngine(random)))
  t.teardown(() => engines.forEach(engine => void engine.close()))
  const router = await startTestRouter(
    engines.map(({ url }) => url),
    ['--tokenizer', `${MODEL}=${TINY_TOKENIZER}`, '--tokenize-check-every', '1'],
  )
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted('approximate')

  const wholes = new Map<number, number>()
  let next = 0
  const worker = async (): Promise<void> => {
    while (next < REQUESTS) {
      const number = next++
      const leaving = new AbortController()
      const leaves = random.below(6) === 0
      if (leaves) {
        const turn = (left: number): void => {
          if (left === 0) leaving.abort()
          else setImmediate(turn, left - 1)
        }
        turn(random.below(200))
      }
      try {
        const reply = await open(client.url, '/v1/completions', {
          body: bodyOf(number),
          ...(leaves ? { signal: leaving.signal } : {}),
        })
        await reply.body.text()
        wholes.set(number, reply.statusCode)
      } catch (thrown) {
        if (!leaves) throw thrown
      }
    }
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, worker))
  await client.drained()

  const answered = [...wholes.values()].filter(status => status === 200).length
  t.comment(`${answered} of ${REQUESTS} answered, ${reads.length} read whole by engines`)
  t.strictSame(
    reads.filter(({ isRight }) => !isRight),
    [],
  )
  t.ok(answered > REQUESTS / 4)
  await until('no memory is lent any more', async () => (await sharedBytes(client)) === 0 || undefined)
})

async function sharedBytes(client: RouterClient): Promise<number> {
  const { text } = await client.send('/metrics')
  return Number(/^homing_gateway_shared_body_bytes (\d+)$/m.exec(text)?.[1])
}

t.test('an engine that answers before it has read a long body still gets all of it', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  const { promise: readsOn, resolve: readOn } = Promise.withResolvers<void>()
  const engine = await startEngine(seededRandom(SEED), { habit: 'early', readsOn })
  t.teardown(() => engine.close())
  const router = await startTestRouter([engine.url], [])
  t.teardown(() => router.stop(0))
  const client = new RouterClient(router.url)
  await client.trusted('approximate')

  reads.length = 0
  const { status } = await client.send('/v1/completions', { body: bodyOf(LONGEST) })
  t.equal(status, 200)
  // The request has ended for all but the connection.
  await client.drained()
  t.strictSame(reads, [])
  readOn()
  await until('the engine has read the body', () => reads[0], { seen: () => reads })
  t.strictSame(reads, [{ number: LONGEST, isRight: true }])
})
