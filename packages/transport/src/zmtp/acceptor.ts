/** The binding side of PUB and ROUTER: accepts connections and keeps those that are ready. */

import { createServer, type Server } from 'node:net'
import { type Endpoint, formatEndpoint, parseEndpoint } from '../endpoint.ts'
import { ListenError } from '../errors.ts'
import { ZmtpConnection } from './connection.ts'
import type { ZmtpEnvironment } from './connector.ts'
import type { SocketType } from './wire.ts'

const PEERS_MAX = 4096

export interface AcceptorHandler {
  ready(peer: ZmtpConnection, identity: Uint8Array): void
  message(peer: ZmtpConnection, frames: Uint8Array[]): void
  /** Only of peers that were ready. */
  closed(peer: ZmtpConnection): void
}

export class ZmtpAcceptor {
  /** Where it is bound, with the real port. */
  readonly endpoint: string
  readonly #server: Server
  readonly #peers: Set<ZmtpConnection>

  private constructor(endpoint: string, server: Server, peers: Set<ZmtpConnection>) {
    this.endpoint = endpoint
    this.#server = server
    this.#peers = peers
  }

  /** Throws EndpointError; rejects with ListenError. */
  static async bind(
    text: string,
    type: SocketType,
    handler: AcceptorHandler,
    environment: ZmtpEnvironment,
  ): Promise<ZmtpAcceptor> {
    const endpoint = parseEndpoint(text, 'bind')
    const peers = new Set<ZmtpConnection>()
    const server = createServer(socket => {
      let isReady = false
      const peer: ZmtpConnection = new ZmtpConnection(
        socket,
        type,
        {
          ready: identity => {
            isReady = true
            handler.ready(peer, identity)
          },
          message: frames => handler.message(peer, frames),
          closed: error => {
            peers.delete(peer)
            if (error !== undefined) {
              environment.log.warn({ endpoint: text, reason: error.message }, 'ZeroMQ connection failed')
            }
            if (isReady) handler.closed(peer)
          },
        },
        environment.clock,
      )
      peers.add(peer)
    })
    server.maxConnections = PEERS_MAX
    await listen(server, endpoint, text)
    return new ZmtpAcceptor(formatEndpoint(boundEndpoint(server, endpoint)), server, peers)
  }

  close(): void {
    this.#server.close()
    for (const peer of this.#peers) peer.close()
    this.#peers.clear()
  }
}

function listen(server: Server, endpoint: Endpoint, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => reject(new ListenError(text, error))
    server.once('error', failed)
    const options =
      endpoint.scheme === 'ipc' ? { path: endpoint.path } : { host: endpoint.host, port: endpoint.port }
    server.listen(options, () => {
      server.off('error', failed)
      // Accepting may fail later, for want of file descriptors; the peer tries again.
      server.on('error', () => {})
      resolve()
    })
  })
}

function boundEndpoint(server: Server, endpoint: Endpoint): Endpoint {
  const address = server.address()
  if (endpoint.scheme === 'ipc' || address === null || typeof address === 'string') return endpoint
  return { ...endpoint, port: address.port }
}
