/** A scripted engine: its answers, and how its connection ends, are written down byte by byte. */

import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'

export interface RawRequest {
  readonly method: string
  /** As it came, query included. */
  readonly target: string
  /** Request line and headers. */
  readonly head: string
  readonly body: string
}

export interface RawEngine {
  readonly url: string
  /** Those that were no questions of the router about the engine itself. */
  readonly requests: readonly RawRequest[]
  close(): void
}

const HEAD_END = '\r\n\r\n'

/** `answer` gets the connection of each request of a client. It says no more of itself than its model. */
export async function startRawEngine(
  model: string,
  answer: (socket: Socket, request: RawRequest) => void,
): Promise<RawEngine> {
  const sockets = new Set<Socket>()
  const requests: RawRequest[] = []
  const server: Server = createServer(socket => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    let received = ''
    socket.on('data', data => {
      received += data.toString('latin1')
      const headEnd = received.indexOf(HEAD_END)
      if (headEnd < 0) return
      const head = received.slice(0, headEnd)
      const body = received.slice(headEnd + HEAD_END.length)
      const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0)
      if (body.length < length) return
      received = ''
      const [method, target] = head.split(' ', 2) as [string, string]
      if (isProbe(method, target)) return void socket.end(probeAnswer(target, model))
      const request = { method, target, head, body }
      requests.push(request)
      answer(socket, request)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { readonly port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

function isProbe(method: string, target: string): boolean {
  return (method === 'GET' && !target.startsWith('/v1/responses/')) || target === '/tokenize'
}

function probeAnswer(target: string, model: string): string {
  const isKnown = target === '/health' || target === '/v1/models'
  const body = target === '/v1/models' ? JSON.stringify({ data: [{ id: model }] }) : ''
  const status = isKnown ? '200 OK' : '404 Not Found'
  return `HTTP/1.1 ${status}\r\ncontent-length: ${body.length}\r\nconnection: close${HEAD_END}${body}`
}
