/**
 * The transport of the operating system: real sockets.
 *
 * HTTP is spoken on the thread that asks for it, over sockets or, where an origin has such a route, over a
 * broker. ZeroMQ sockets are all on the main thread, for actors of all threads, and loading this module there
 * installs their host (see zmq/host.ts).
 */

import { type Clock, systemRandom } from '@homing/base'
import { reportFaultsTo } from '../callback.ts'
import { brokerStreamStore } from '../nats/broker-stream-store.ts'
import { RequestPlane } from '../nats/request-plane.ts'
import { brokerCounts, systemBrokers } from '../nats/system-broker.ts'
import { collectReply } from '../reply.ts'
import type { HttpListener, HttpTransport, Transport } from '../types.ts'
import type { ZmqEnvironment } from '../zmq/library.ts'
import { threadMessages } from '../zmq/roles.ts'
import { HttpClient } from './http-client.ts'
import { listenHttp } from './http-server.ts'

export interface SystemTransportOptions {
  readonly clock: Clock
  /** Gets a warning per connection to a peer that is not the kind expected; a `Log` will do. */
  readonly log: ZmqEnvironment['log']
  /** How long an HTTP connection may take to be made; default 2000. */
  readonly connectTimeoutMs?: number
}

/** One per thread; several may exist. */
export function systemTransport({ clock, log, connectTimeoutMs = 2000 }: SystemTransportOptions): Transport {
  reportFaultsTo(log, () => clock.nowMs())
  const client = new HttpClient({ connectTimeoutMs })
  const messages = threadMessages({ clock, log })
  const plane = new RequestPlane({
    clock,
    log,
    openBroker: systemBrokers(clock),
    newCallId: () => Buffer.from(systemRandom.bytes(8)).toString('hex'),
  })
  const call: HttpTransport['call'] = (request, handler) =>
    plane.call(request, handler) ?? client.call(request, handler)
  const listeners = new Set<HttpListener>()
  let isClosed = false
  return {
    http: {
      async listen(options, onExchange) {
        const listener = await listenHttp(options, onExchange, clock)
        if (isClosed) await listener.close(0)
        const owned: HttpListener = {
          host: listener.host,
          port: listener.port,
          get connections() {
            return listener.connections
          },
          endConnections: () => listener.endConnections(),
          setIdentity: identity => listener.setIdentity(identity),
          close(graceMs) {
            listeners.delete(owned)
            return listener.close(graceMs)
          },
        }
        listeners.add(owned)
        return owned
      },
      setAccess(origin, access) {
        client.setAccess(origin, access)
        plane.setAccess(origin, access)
      },
      setRoute: (origin, route) => plane.setRoute(origin, route),
      serve: (options, onExchange) => plane.serve(options, onExchange),
      trust: certificates => client.trust(certificates),
      call,
      fetch: (request, options) => collectReply(request, options, handler => call(request, handler), clock),
    },
    messages,
    brokers: brokerCounts,
    streamStore: (servers, stream) => brokerStreamStore(servers, stream, clock, systemBrokers(clock)),
    close() {
      if (isClosed) return
      isClosed = true
      client.close()
      plane.close()
      messages.close()
      for (const listener of [...listeners]) void listener.close(0)
    },
  }
}
