/**
 * The transport of the operating system: real sockets.
 *
 * HTTP is spoken on the thread that asks for it, over sockets or, where an origin has such a route, over a
 * broker. ZeroMQ sockets are all on the main thread, for actors of all threads, and loading this module there
 * installs their host (see zmq/host.ts).
 */

import { type Clock, systemRandom } from '@homing/base'
import { reportFaultsTo } from '../callback.ts'
import { isEtcdEndpoint, parseEtcdEndpoint } from '../endpoint.ts'
import { EtcdClient } from '../etcd/etcd-client.ts'
import { EtcdLocks } from '../etcd/etcd-lock.ts'
import { EtcdPresence } from '../etcd/etcd-presence.ts'
import type { ExtProcListener } from '../ext-proc-types.ts'
import type { HttpListener, HttpTransport } from '../http-types.ts'
import { brokerStreamStore } from '../nats/broker-stream-store.ts'
import { brokerCounts, systemBrokers } from '../nats/system-broker.ts'
import { collectReply } from '../reply.ts'
import { RequestPlane } from '../request-plane.ts'
import type { Transport } from '../transport.ts'
import type { ZmqEnvironment } from '../zmq/library.ts'
import { threadMessages } from '../zmq/roles.ts'
import { HttpClient } from './http-client.ts'
import { listenHttp } from './http-server.ts'
import { systemNameResolver } from './name-resolver.ts'

export interface SystemTransportOptions {
  readonly clock: Clock
  /** Gets a warning per connection to a peer that is not the kind expected; a `Log` will do. */
  readonly log: ZmqEnvironment['log']
  /** How long an HTTP connection may take to be made; default 2000. */
  readonly connectTimeoutMs?: number
}

/** Where etcd does not answer, the process ends without: what is registered there goes with its lease. */
const GOOD_BYE_MS_MAX = 1000

/** One per thread; several may exist. */
export function systemTransport({ clock, log, connectTimeoutMs = 2000 }: SystemTransportOptions): Transport {
  reportFaultsTo(log, () => clock.nowMs())
  const client = new HttpClient({ connectTimeoutMs })
  const messages = threadMessages({ clock, log })
  const plane = new RequestPlane({
    clock,
    log,
    openBroker: systemBrokers(clock),
    newCallId: newName,
  })
  const call: HttpTransport['call'] = (request, handler) =>
    plane.call(request, handler) ?? client.call(request, handler)
  const listeners = new Set<HttpListener>()
  const pickers = new Set<ExtProcListener>()
  const presences = new Set<EtcdPresence>()
  const goodByes = new Set<Promise<void>>()
  let isClosed = false
  const fetch: HttpTransport['fetch'] = (request, options) =>
    collectReply(request, options, handler => call(request, handler), clock)
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
      setPeer: (origin, tls) => client.setPeer(origin, tls),
      setRoute: (origin, route) => plane.setRoute(origin, route),
      serve: (options, onExchange) => plane.serve(options, onExchange),
      trust: certificates => client.trust(certificates),
      call,
      fetch,
    },
    messages: {
      subscribe: (options, handler) => messages.subscribe(options, handler),
      publish: options => messages.publish(options),
      dial: (options, onMessage) => messages.dial(options, onMessage),
      serve: (options, onMessage) => messages.serve(options, onMessage),
      present(options, handler) {
        if (!isEtcdEndpoint(options.endpoint)) return messages.present(options, handler)
        const { servers, subject } = parseEtcdEndpoint(options.endpoint)
        const presence = new EtcdPresence({
          client: new EtcdClient({ servers, http: { fetch, call } }),
          subject,
          card: options.card,
          life: newName(),
          clock,
          handler,
          failed: reason => log.warn({ servers, reason }, 'etcd does not answer'),
          released: one => void presences.delete(one),
          saying(goodBye) {
            goodByes.add(goodBye)
            void goodBye.then(() => goodByes.delete(goodBye))
          },
        })
        presences.add(presence)
        return presence
      },
    },
    nameResolver: servers => systemNameResolver(servers),
    async extProc(options, onExchange) {
      // Loaded here: few processes take requests in this way.
      const { listenExtProc } = await import('../ext-proc/listen.ts')
      const listener = await listenExtProc(options, clock, onExchange)
      pickers.add(listener)
      if (isClosed) await listener.close(0)
      return listener
    },
    brokers: brokerCounts,
    tcp: plane.tcp,
    streamStore(servers, stream, etcdServers) {
      const locks = etcdServers && etcdLocks(etcdServers, stream.namespace, { fetch, call })
      return brokerStreamStore(servers, stream, clock, systemBrokers(clock), locks)
    },
    async goodByesSaid() {
      if (goodByes.size === 0) return
      const { promise: isOver, resolve } = Promise.withResolvers<void>()
      const timer = clock.after(GOOD_BYE_MS_MAX, resolve)
      await Promise.race([isOver, Promise.all(goodByes)])
      timer.cancel()
    },
    close() {
      if (isClosed) return
      isClosed = true
      for (const presence of [...presences]) presence.leave()
      client.close()
      plane.close()
      messages.close()
      for (const listener of [...listeners, ...pickers]) void listener.close(0)
    },
  }
}

function etcdLocks(
  servers: readonly string[],
  namespace: string,
  http: Pick<HttpTransport, 'fetch' | 'call'>,
): EtcdLocks {
  return new EtcdLocks({ client: new EtcdClient({ servers, http }), namespace, newName })
}

function newName(): string {
  return Buffer.from(systemRandom.bytes(8)).toString('hex')
}
