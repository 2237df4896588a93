/**
 * Request plane, beside the HTTP of a transport: which origins are called over a broker or over a connection
 * of many calls, and which servers of this process take requests so.
 *
 * A caller of an engine names only its origin. The owner of the fleet's data has set once, for that origin,
 * which way its requests go.
 */

import type { Clock } from '@homing/base'
import { isBrokerEndpoint, parseBrokerEndpoint, parseSocketEndpoint } from './endpoint.ts'
import { EndpointError } from './errors.ts'
import { endToEndHeaders, withAccess } from './headers.ts'
import type {
  HttpAccess,
  HttpCall,
  HttpRequest,
  HttpResponseHandler,
  HttpRoute,
  ServedExchange,
  ServeOptions,
  ServingListener,
} from './http-types.ts'
import { REQUEST_WINDOW_BYTES } from './limits.ts'
import type { OpenBroker } from './nats/broker.ts'
import { RequestClient, type RequestTarget } from './nats/request-client.ts'
import { RequestServer } from './nats/request-server.ts'
import { isWindow } from './requests/frames.ts'
import { TcpClient, type TcpTarget } from './tcp/tcp-client.ts'
import { TcpServer } from './tcp/tcp-server.ts'
import { TcpCounts } from './tcp-counts.ts'
import { TCP_LIMITS } from './tcp-limits.ts'

export interface RequestPlaneOptions {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly openBroker: OpenBroker
  readonly newCallId: () => string
}

export class RequestPlane {
  readonly tcp = new TcpCounts()
  readonly #options: RequestPlaneOptions
  readonly #brokerClient: RequestClient
  readonly #tcpClient: TcpClient
  /** By origin. */
  readonly #routes = new Map<string, RequestTarget | TcpTarget>()
  readonly #access = new Map<string, HttpAccess>()
  readonly #servers = new Set<ServingListener>()

  constructor(options: RequestPlaneOptions) {
    this.#options = options
    this.#brokerClient = new RequestClient(options)
    this.#tcpClient = new TcpClient(options.clock, this.tcp)
  }

  setAccess(origin: string, access: HttpAccess | undefined): void {
    if (access === undefined) this.#access.delete(origin)
    else this.#access.set(origin, access)
  }

  /** Throws EndpointError. */
  setRoute(origin: string, route: HttpRoute | undefined): void {
    if (route === undefined) this.#routes.delete(origin)
    else this.#routes.set(origin, targetOf(route))
  }

  /** Undefined: requests to this origin go over sockets of their own. */
  call(given: HttpRequest, handler: HttpResponseHandler): HttpCall | undefined {
    const target = this.#routes.get(given.origin)
    if (target === undefined) return undefined
    const headers = withAccess(endToEndHeaders(given.headers), this.#access.get(given.origin))
    const request = { ...given, headers }
    return 'subject' in target
      ? this.#brokerClient.call(request, target, handler)
      : this.#tcpClient.call(request, target, handler)
  }

  /** Throws EndpointError. */
  serve(options: ServeOptions, onExchange: (exchange: ServedExchange) => void): ServingListener {
    if (options.windowBytes !== undefined) assertWindow(options.windowBytes)
    const server = this.#serverOf(options, onExchange)
    const owned: ServingListener = {
      listening: server.listening,
      get openCount() {
        return server.openCount
      },
      close: graceMs => {
        this.#servers.delete(owned)
        return server.close(graceMs)
      },
    }
    this.#servers.add(owned)
    return owned
  }

  close(): void {
    this.#brokerClient.close()
    this.#tcpClient.close()
    for (const server of this.#servers) void server.close(0)
    this.#servers.clear()
  }

  #serverOf(options: ServeOptions, onExchange: (exchange: ServedExchange) => void): ServingListener {
    const { clock, log, openBroker } = this.#options
    if (isBrokerEndpoint(options.endpoint)) {
      const { servers, subject } = parseBrokerEndpoint(options.endpoint)
      const environment = { clock, log, broker: openBroker(servers), servers, subject }
      return new RequestServer(options, environment, onExchange)
    }
    const { host, port } = tcpEndpoint(options.endpoint, 'bind')
    return new TcpServer(options, { clock, log, counts: this.tcp, host, port }, onExchange)
  }
}

function targetOf({ endpoint, windowBytes, tcp }: HttpRoute): RequestTarget | TcpTarget {
  assertWindow(windowBytes)
  if (isBrokerEndpoint(endpoint)) {
    const { servers, subject } = parseBrokerEndpoint(endpoint)
    return { servers, subject, windowBytes }
  }
  return { ...tcpEndpoint(endpoint, 'connect'), windowBytes, limits: { ...TCP_LIMITS, ...tcp } }
}

function tcpEndpoint(
  text: string,
  purpose: 'bind' | 'connect',
): { readonly host: string; readonly port: number } {
  const endpoint = parseSocketEndpoint(text, purpose)
  if (endpoint.scheme === 'tcp') return endpoint
  throw new EndpointError(text, "requests go over 'tcp://host:port' or 'nats://host:port/subject'")
}

/** Settings are checked before: another value is a bug. With a smaller window a piece would never be sent. */
function assertWindow(bytes: number): void {
  if (!isWindow(bytes))
    throw new RangeError(
      `cannot let ${bytes} bytes be on the way: use a whole number from ${REQUEST_WINDOW_BYTES.min} to ${REQUEST_WINDOW_BYTES.max}`,
    )
}
