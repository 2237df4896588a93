/**
 * Answers that are cut, in every framing: the client can recognize each cut.
 *
 *   framing   a length, chunks, or neither: then the end of the connection ends the answer
 *   cut       the connection is closed in good order, or reset
 *   where     before the head, after it, inside the answer, after everything but the end of its framing
 *
 * Real sockets on both sides; every case has an engine of its own, told apart by its model, so that no case
 * marks the engine of another as down.
 */

import type { Socket } from 'node:net'
import t from 'tap'
import { type Answer, open, RouterClient, startTestRouter } from './fleet.ts'
import { type RawEngine, startRawEngine } from './raw-engine.ts'

type Framing = 'length' | 'chunks' | 'neither'
type Cut = 'close' | 'reset'

const EVENT = 'data: {"id":"c","choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
const HALF = EVENT.slice(0, 30)
const DONE = 'data: [DONE]\n\n'
const ERROR =
  /^data: \{"error":\{"message":"cannot get an answer from worker .*"code":"upstream_failed"\}\}\n\n$/
/** In the stream of a response, and of a message. */
const ERRORS: Readonly<Record<string, RegExp>> = {
  '/v1/responses':
    /^event: error\ndata: \{"type":"error","code":"upstream_failed","message":"cannot get an answer from worker .*\}\n\n$/,
  '/v1/messages':
    /^event: error\ndata: \{"type":"error","error":\{"type":"api_error","message":"cannot get an answer from worker .*\}\}\n\n$/,
}
const JSON_BODY = '{"id":"c","choices":[{"index":0,"text":"}]"}],"usage":{"prompt_tokens":1}}'

/**
 * What the client sees: a whole answer of this body, one that breaks off behind it, an error with a status,
 * or in the stream.
 */
type Seen =
  | { readonly whole: string }
  | { readonly broken: string }
  | { readonly refused: true }
  | { readonly errorBehind: string }

interface Case {
  readonly title: string
  readonly path: string
  readonly contentType: string
  readonly framing: Framing
  readonly cut: Cut
  /** Undefined: not even a head comes. */
  readonly body: string | undefined
  /** The whole body, for a length; the last chunk is never sent. */
  readonly full: string
  readonly seen: Seen
}

const SSE = 'text/event-stream; charset=utf-8'
const COMPLETIONS = '/v1/completions'

function casesOf(framing: Framing, cut: Cut): Case[] {
  const isEnd = framing === 'neither' && cut === 'close'
  const refused = { refused: true } as const
  const whole = (
    where: string,
    body: string | undefined,
    seen: Seen,
    contentType = 'application/json',
  ): Case => {
    const title = `whole ${contentType}, ${framing}, ${cut} ${where}`
    return { title, path: COMPLETIONS, contentType, framing, cut, body, full: JSON_BODY, seen }
  }
  const stream = (where: string, body: string | undefined, seen: Seen, path = COMPLETIONS): Case => {
    const title = `stream of ${path}, ${framing}, ${cut} ${where}`
    const full = `${EVENT}${EVENT}${DONE}: nothing more to say\n\n`
    return { title, path, contentType: SSE, framing, cut, body, full, seen }
  }
  const half = JSON_BODY.slice(0, 40)
  const created = 'event: response.created\ndata: {"type":"response.created"}\n\n'
  const completed = 'event: response.completed\ndata: {"type":"response.completed"}\n\n'
  const started = 'event: message_start\ndata: {"type":"message_start"}\n\n'
  const stopped = 'event: message_stop\ndata: {"type":"message_stop"}\n\n'
  const failed = 'data: {"error":{"message":"the engine failed"}}\n\n'
  return [
    whole('before its head', undefined, refused),
    whole('behind its head', '', refused),
    whole('inside its body', half, refused),
    whole('behind its body', JSON_BODY, isEnd || framing === 'length' ? { whole: JSON_BODY } : refused),
    whole(
      'inside a text',
      'half a te',
      isEnd ? { whole: 'half a te' } : { broken: 'half a te' },
      'text/plain',
    ),
    stream('before its head', undefined, refused),
    stream('behind its head', '', refused),
    stream('inside its first event', HALF, refused),
    stream('behind an event', EVENT, { errorBehind: EVENT }),
    stream('inside an event', EVENT + HALF, { errorBehind: EVENT }),
    stream('inside an empty line', EVENT + EVENT.slice(0, -1), { errorBehind: EVENT }),
    stream('inside [DONE]', `${EVENT}data: [DON`, { errorBehind: EVENT }),
    stream('behind [DONE]', EVENT + DONE, { whole: EVENT + DONE }),
    stream('behind an error', EVENT + failed, { errorBehind: EVENT + failed }),
    stream('behind an event', created, { errorBehind: created }, '/v1/responses'),
    stream('behind the last event', created + completed, { whole: created + completed }, '/v1/responses'),
    stream('behind an event', started, { errorBehind: started }, '/v1/messages'),
    stream('behind the last event', started + stopped, { whole: started + stopped }, '/v1/messages'),
    stream(
      'behind an event',
      EVENT,
      isEnd ? { whole: EVENT } : { errorBehind: EVENT },
      '/v1/audio/transcriptions',
    ),
    stream('inside an event', EVENT + HALF, { errorBehind: EVENT }, '/v1/audio/transcriptions'),
  ]
}

const cases = (['length', 'chunks', 'neither'] as const).flatMap(framing =>
  (['close', 'reset'] as const).flatMap(cut => casesOf(framing, cut)),
)

const engines: RawEngine[] = []
let router: Awaited<ReturnType<typeof startTestRouter>>
let client: RouterClient

t.before(async () => {
  for (const [number, one] of cases.entries()) {
    engines.push(await startRawEngine(`case-${number}`, socket => answerAndCut(socket, one)))
  }
  router = await startTestRouter(
    engines.map(({ url }) => `${url}?block_size=16`),
    ['--log-level', 'silent'],
  )
  client = new RouterClient(router.url)
})
t.teardown(async () => {
  await router.stop(0)
  for (const engine of engines) engine.close()
})

t.test(`each of ${cases.length} answers that are cut is told as what it is`, async t => {
  for (const [number, { title, path, seen }] of cases.entries()) {
    const prompt =
      path === '/v1/messages' ? { messages: [{ role: 'user', content: 'x' }] } : { prompt: 'x', input: 'x' }
    const answer = await readAll(path, { model: `case-${number}`, ...prompt, stream: true })
    if ('refused' in seen) {
      // Nothing has reached the client: the router places the request again, and no other worker serves the
      // model.
      t.match([answer.status, answer.isWhole], [503, true], title)
      t.equal(JSON.parse(answer.body).error.code, 'no_worker', `${title}: ${answer.body}`)
      continue
    }
    t.equal(answer.status, 200, title)
    if ('whole' in seen) t.strictSame([answer.body, answer.isWhole], [seen.whole, true], title)
    else if ('broken' in seen) t.strictSame([answer.body, answer.isWhole], [seen.broken, false], title)
    else {
      t.equal(answer.body.slice(0, seen.errorBehind.length), seen.errorBehind, title)
      t.match(answer.body.slice(seen.errorBehind.length), ERRORS[path] ?? ERROR, title)
      t.equal(answer.isWhole, true, `${title}: the answer with the error event is whole`)
    }
  }
  await client.drained()
})

interface SeenAnswer extends Pick<Answer, 'status'> {
  readonly body: string
  /** It ended as its framing says. */
  readonly isWhole: boolean
}

async function readAll(path: string, body: object): Promise<SeenAnswer> {
  const reply = await open(router.url, path, { body })
  const pieces: Buffer[] = []
  let isWhole = true
  try {
    for await (const piece of reply.body) pieces.push(piece as Buffer)
  } catch {
    isWhole = false
  }
  return { status: reply.statusCode, body: Buffer.concat(pieces).toString(), isWhole }
}

function answerAndCut(socket: Socket, { contentType, framing, cut, body, full }: Case): void {
  const finish = (): void => void (cut === 'close' ? socket.end() : socket.resetAndDestroy())
  if (body === undefined) {
    finish()
    return
  }
  const framed = framing === 'chunks' && body !== '' ? `${body.length.toString(16)}\r\n${body}\r\n` : body
  const framingHeader = {
    length: `content-length: ${full.length}\r\n`,
    chunks: 'transfer-encoding: chunked\r\n',
    neither: '',
  }[framing]
  const head = `HTTP/1.1 200 OK\r\ncontent-type: ${contentType}\r\n${framingHeader}\r\n`
  // The kernel has the written bytes when this is called, so a reset does not lose them.
  socket.write(head + framed, finish)
}
