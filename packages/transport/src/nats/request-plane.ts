/**
 * Request plane over a broker, beside the HTTP of a transport: which origins are called over the broker, and
 * which servers of this process listen there.
 *
 * A caller of an engine names only its origin. The owner of the fleet's data has set once, for that origin,
 * which way its requests go.
 */

import type { Clock } from '@homing/base'
import { parseBrokerEndpoint } from '../endpoint.ts'
import { endToEndHeaders, withAccess } from '../headers.ts'
import { REQUEST_WINDOW_BYTES } from '../limits.ts'
import { isWindow } from '../requests/frames.ts'
import type {
  HttpAccess,
  HttpCall,
  HttpRequest,
  HttpResponseHandler,
  HttpRoute,
  ServedExchange,
  ServeOptions,
  ServingListener,
} from '../types.ts'
import type { OpenBroker } from './broker.ts'
import { RequestClient, type RequestTarget } from './request-client.ts'
import { RequestServer } from './request-server.ts'

export interface RequestPlaneOptions {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly openBroker: OpenBroker
  readonly newCallId: () => string
}

export class RequestPlane {
  readonly #options: RequestPlaneOptions
  readonly #client: RequestClient
  /** By origin. */
  readonly #routes = new Map<string, RequestTarget>()
  readonly #access = new Map<string, HttpAccess>()
  readonly #servers = new Set<ServingListener>()

  constructor(options: RequestPlaneOptions) {
    this.#options = options
    this.#client = new RequestClient(options)
  }

  setAccess(origin: string, access: HttpAccess | undefined): void {
    if (access === undefined) this.#access.delete(origin)
    else this.#access.set(origin, access)
  }

  /** Throws EndpointError. */
  setRoute(origin: string, route: HttpRoute | undefined): void {
    if (route === undefined) this.#routes.delete(origin)
    else {
      const { servers, subject } = parseBrokerEndpoint(route.endpoint)
      assertWindow(route.windowBytes)
      this.#routes.set(origin, { servers, subject, windowBytes: route.windowBytes })
    }
  }

  /** Undefined: requests to this origin do not go over a broker. */
  call(given: HttpRequest, handler: HttpResponseHandler): HttpCall | undefined {
    const target = this.#routes.get(given.origin)
    if (target === undefined) return undefined
    const headers = withAccess(endToEndHeaders(given.headers), this.#access.get(given.origin))
    return this.#client.call({ ...given, headers }, target, handler)
  }

  /** Throws EndpointError. */
  serve(options: ServeOptions, onExchange: (exchange: ServedExchange) => void): ServingListener {
    const { clock, log, openBroker } = this.#options
    const { servers, subject } = parseBrokerEndpoint(options.endpoint)
    if (options.windowBytes !== undefined) assertWindow(options.windowBytes)
    const server = new RequestServer(
      options,
      { clock, log, broker: openBroker(servers), servers, subject },
      onExchange,
    )
    this.#servers.add(server)
    return {
      get openCount() {
        return server.openCount
      },
      close: graceMs => {
        this.#servers.delete(server)
        return server.close(graceMs)
      },
    }
  }

  close(): void {
    this.#client.close()
    for (const server of this.#servers) void server.close(0)
    this.#servers.clear()
  }
}

/** Settings are checked before: another value is a bug. With a smaller window a piece would never be sent. */
function assertWindow(bytes: number): void {
  if (!isWindow(bytes))
    throw new RangeError(
      `cannot let ${bytes} bytes be on the way: use a whole number from ${REQUEST_WINDOW_BYTES.min} to ${REQUEST_WINDOW_BYTES.max}`,
    )
}
