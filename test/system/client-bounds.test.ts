/**
 * Clients that stop in the middle, over real sockets: nothing of theirs stays at the router or the engine.
 */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import t from 'tap'
import { RouterClient, startTestRouter, until } from './fleet.ts'

const BODY_BYTES_MAX = 1024 * 1024

let worker: EndlessWorker
let router: Awaited<ReturnType<typeof startTestRouter>>
let client: RouterClient

t.before(async () => {
  worker = await startEndlessWorker()
  router = await startTestRouter(
    [`${worker.url}?block_size=16`],
    [...['--body-timeout', '300ms', '--client-stall-timeout', '400ms', '--log-level', 'silent']],
  )
  client = new RouterClient(router.url)
})
t.teardown(async () => {
  await router.stop(0)
  worker.server.closeAllConnections()
  worker.server.close()
})

t.test('a body that stops arriving is 408 in the form of OpenAI, and the connection is closed', async t => {
  const { socket, received } = await speak(
    'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"model":',
  )
  await once(socket, 'close')
  const answer = received()
  t.match(answer, /^HTTP\/1\.1 408 /)
  t.match(answer, /connection: close/i)
  t.match(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))), {
    error: { type: 'RequestTimeoutError', code: 'body_timeout', param: null },
  })
  t.equal(await metric('homing_gateway_requests_total{route="chat",status="408"}'), 1)
  t.equal(await metric('homing_gateway_body_bytes'), 0)
})

t.test('a client that does not read its answer is cut, and its engine and its booking are free', async t => {
  const body = JSON.stringify({ model: 'endless', prompt: [1, 2, 3], stream: true })
  const { socket } = await speak(
    `POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    true,
  )
  await until('the engine has streamed', () => (worker.begun() === 1 ? true : undefined))
  await until('the call to the engine is aborted', () => (worker.open() === 0 ? true : undefined))
  await client.drained()
  t.equal(await metric('homing_gateway_clients_stalled_total{route="completions"}'), 1)
  t.equal(await metric('homing_gateway_open_requests'), 0)
  const { decisions } = (await client.send('/decisions?limit=1')).json
  t.equal(decisions[0].delivered.outcome, 'aborted')
  socket.destroy()
})

t.test('bodies that find no room are 503, and the router goes on', async t => {
  // Of its own: here no body may be taken for one that stopped, however slow the machine.
  const roomy = await startTestRouter(
    [`${worker.url}?block_size=16`],
    [
      ...['--max-body-bytes', String(BODY_BYTES_MAX), '--max-bodies-bytes', String(2 * BODY_BYTES_MAX)],
      ...['--body-timeout', '10m', '--client-stall-timeout', '10m', '--log-level', 'silent'],
    ],
  )
  t.teardown(() => roomy.stop(0))
  const client = new RouterClient(roomy.url)
  const bodyBytes = () => metric('homing_gateway_body_bytes', client)
  const body = JSON.stringify({ model: 'endless', input: 'x'.repeat(BODY_BYTES_MAX - 100) })
  const abort = new AbortController()
  const held = [1, 2].map(() =>
    client.open('/v1/score', { body, signal: abort.signal }).catch((error: unknown) => error),
  )
  await until('two bodies are held', async () => ((await bodyBytes()) === 2 * body.length ? true : undefined))
  const refused = await client.send('/v1/score', { body })
  t.equal(refused.status, 503, refused.text)
  t.equal(refused.json.error.code, 'overloaded')
  t.match(refused.json.error.message, /--max-bodies-bytes/)
  t.ok(Number(refused.headers['retry-after']) >= 1)
  t.equal((await client.send('/v1/models')).status, 200)
  abort.abort()
  await Promise.all(held)
  await until('they are given back', async () => ((await bodyBytes()) === 0 ? true : undefined))
  const taken = await client.send('/v1/embeddings', { body })
  t.equal(taken.status, 200, 'what found no room finds it now')
})

async function metric(name: string, asked = client): Promise<number> {
  const { text } = await asked.send('/metrics')
  const line = text.split('\n').find(one => one.startsWith(`${name} `))
  assert.ok(line, `/metrics has ${name}`)
  return Number(line.slice(name.length + 1))
}

/** A connection of its own that has sent `text`. */
async function speak(text: string, isDeaf = false): Promise<{ readonly socket: Socket; received(): string }> {
  const { hostname, port } = new URL(router.url)
  const socket = connect(Number(port), hostname)
  t.teardown(() => socket.destroy())
  await once(socket, 'connect')
  socket.on('error', () => {})
  let received = ''
  if (isDeaf) socket.pause()
  else {
    socket.on('data', data => {
      received += data.toString('latin1')
    })
  }
  socket.write(text)
  return { socket, received: () => received }
}

interface EndlessWorker {
  readonly server: Server
  readonly url: string
  /** Streams that are open. */
  open(): number
  /** Streams that were ever open. */
  begun(): number
}

/** Streams without an end to `/v1/completions`, says nothing to `/v1/score`, and yes to the rest. */
async function startEndlessWorker(): Promise<EndlessWorker> {
  let open = 0
  let begun = 0
  const event = `data: ${JSON.stringify({ text: 'x'.repeat(60_000) })}\n\n`
  const server = createServer((request, response) => {
    if (request.url === '/v1/models') return void response.end('{"data":[{"id":"endless"}]}')
    if (request.method !== 'POST' || !request.url?.startsWith('/v1/'))
      return void response.writeHead(404).end()
    request.resume()
    if (request.url === '/v1/score') return
    if (request.url !== '/v1/completions') {
      response.writeHead(200, { 'content-type': 'application/json' })
      return void response.end('{}')
    }
    open++
    begun++
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const writeOn = (): void => {
      while (!response.destroyed && response.write(event));
      response.once('drain', writeOn)
    }
    writeOn()
    response.on('close', () => open--)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    server,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open: () => open,
    begun: () => begun,
  }
}
