/**
 * The evil engine: it lies about its event sources, models and ranks, floods its event sockets, and fails
 * whatever it is asked. Of the honest model it refuses everything at once; its own model it answers in the
 * worst ways.
 */

import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer as createTcpServer, type Server as TcpServer } from 'node:net'
import type { Random } from '@homing/base'
import * as zmq from 'zeromq'
import { CLAIMS, type Hearsay, pick, randomBytes, type Stranger } from './stranger.ts'

const HOST = '127.0.0.1'
/** Answers that are written and never ended, at one time. */
const HELD_MAX = 8

const ENDPOINTS = (broker: string, events: string): readonly string[] => [
  'tcp://_:5557',
  'tcp://gpu?node:1',
  `ipc://${'a'.repeat(110)}`,
  'tcp://[::1%lo]:99',
  'tcp://a;b:1',
  'tcp://127.0.0.1:0',
  `nats://${broker}/homing.kv.evil`,
  `tcp://${'x'.repeat(5000)}:1`,
  'ipc://\u0000',
  events,
]

export interface EvilEngine extends Stranger {
  readonly url: string
  readonly port: number
}

export async function startEvilEngine(
  random: Random,
  hearsay: Hearsay,
  honestModel: string,
  evilModel: string,
): Promise<EvilEngine> {
  // A "broker" of its own, which keeps whatever login is sent to it.
  const broker = createTcpServer(socket => {
    socket.on('error', () => {})
    socket.on('data', bytes => hearsay.add(bytes))
    socket.write(
      'INFO {"server_id":"evil","version":"2.10.0","auth_required":true,"max_payload":1048576}\r\n',
    )
  })
  broker.listen(0, HOST)
  await once(broker, 'listening')
  const publisher = new zmq.Publisher({ linger: 0, sendHighWaterMark: 100 })
  await publisher.bind(`tcp://${HOST}:*`)
  const brokerAddress = `${HOST}:${(broker.address() as AddressInfo).port}`
  const engine = new Engine(
    random,
    hearsay,
    [honestModel, evilModel],
    ENDPOINTS(brokerAddress, publisher.lastEndpoint!),
  )
  const port = await engine.listen()
  let sequence = 0n
  return {
    name: 'engine',
    url: `http://${HOST}:${port}`,
    port,
    deeds: {
      async events(draw) {
        for (let i = 0; i < 50; i++) {
          const at = Buffer.alloc(8)
          at.writeBigUInt64BE(sequence++)
          await publisher.send([
            pick(draw, ['', 'kv-events', 'kv@evil@0@evil']),
            pick(draw, [at, randomBytes(draw, draw.below(12))]),
            pick(draw, [...CLAIMS, randomBytes(draw, draw.below(400))]),
          ])
        }
      },
    },
    stop() {
      publisher.close()
      stopServer(broker)
      engine.stop()
    },
  }
}

class Engine {
  readonly #random: Random
  readonly #hearsay: Hearsay
  readonly #models: readonly [honest: string, evil: string]
  readonly #endpoints: readonly string[]
  readonly #server: Server
  #held: ServerResponse[] = []

  constructor(
    random: Random,
    hearsay: Hearsay,
    models: readonly [string, string],
    endpoints: readonly string[],
  ) {
    this.#random = random
    this.#hearsay = hearsay
    this.#models = models
    this.#endpoints = endpoints
    this.#server = createServer((message, response) => {
      response.on('error', () => {})
      const parts: Buffer[] = []
      message.on('error', () => {})
      message.on('data', (part: Buffer) => parts.push(part))
      message.on('end', () => this.#answer(message, Buffer.concat(parts).toString(), response))
    })
  }

  async listen(): Promise<number> {
    this.#server.listen(0, HOST)
    await once(this.#server, 'listening')
    return (this.#server.address() as AddressInfo).port
  }

  stop(): void {
    stopServer(this.#server)
  }

  #answer(message: IncomingMessage, body: string, response: ServerResponse): void {
    this.#hearsay.add(JSON.stringify(message.headers))
    const [honest, evil] = this.#models
    const path = message.url?.split('?')[0]
    if (path === '/v1/models') json(response, 200, { data: this.#modelList(honest, evil) })
    else if (path === '/health') json(response, 200, {})
    else if (path === '/kv_event_sources') json(response, 200, this.#sources())
    else if (path === '/metrics') {
      const labels = Array.from({ length: 1500 }, (_, i) => `vllm:num_requests_running{engine="${i}"} 1e308`)
      response.writeHead(200, { 'content-type': 'text/plain' })
      response.end(`${labels.join('\n')}\n`)
    } else if (message.method !== 'POST') json(response, 404, {})
    // Of the honest model it only fails at once: what is taken back costs a client nothing.
    else if (body.includes(`"${evil}"`)) this.#worst(message, response, evil)
    else this.#refuse(message, response)
  }

  #sources(): object[] {
    const random = this.#random
    return this.#endpoints.map((_, i) => ({
      data_parallel_rank: random.below(4) === 0 ? 2 ** 31 : i,
      endpoint: pick(random, this.#endpoints),
      replay_endpoint: pick(random, this.#endpoints),
      block_size: pick(random, [16, 0, -1, 1e9]),
    }))
  }

  #modelList(honest: string, evil: string): object[] {
    const random = this.#random
    const made = Array.from({ length: random.below(2) * 2000 }, (_, i) => ({
      id: `made-${i}-${'x'.repeat(random.below(200))}`,
      parent: evil,
    }))
    return [{ id: honest }, { id: evil, max_model_len: pick(random, [1e308, -1, 4096]) }, ...made]
  }

  #refuse(message: IncomingMessage, response: ServerResponse): void {
    const kind = this.#random.below(5)
    if (kind === 0) json(response, 500, { error: 'x'.repeat(1000) })
    else if (kind === 1) json(response, 429, { error: { message: 'later' } })
    else if (kind === 2) message.socket.destroy()
    else if (kind === 3) message.socket.end(randomBytes(this.#random, 200))
    else {
      response.writeHead(200, { 'content-type': 'text/html' })
      response.end('<html>not an engine</html>')
    }
  }

  #worst(message: IncomingMessage, response: ServerResponse, evil: string): void {
    const usage = { prompt_tokens: 1e15, completion_tokens: 4_294_967_296, total_tokens: -1 }
    const kind = this.#random.below(5)
    if (kind === 0) {
      const choices = [{ index: 0, text: 'x', finish_reason: 'stop' }]
      json(response, 200, { object: 'text_completion', model: evil, choices, usage })
    } else if (kind === 1) {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const event = { model: evil, choices: [{ index: 0, text: 'x'.repeat(5000) }], usage }
      for (let i = 0; i < 20; i++) response.write(`data: ${JSON.stringify(event)}\n\n`)
      response.end(randomBytes(this.#random, 300))
    } else if (kind === 2) {
      this.#held.push(response)
      if (this.#held.length > HELD_MAX) this.#held.shift()!.destroy()
      response.writeHead(200, { 'content-type': 'application/json' })
      response.write('{')
    } else if (kind === 3) message.socket.end(`HTTP/1.1 200 OK\r\n${'x-a: b\r\n'.repeat(3000)}\r\n`)
    else this.#refuse(message, response)
  }
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

function stopServer(server: Server | TcpServer): void {
  server.close()
  if ('closeAllConnections' in server) server.closeAllConnections()
}
