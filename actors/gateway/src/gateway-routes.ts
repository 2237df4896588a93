/**
 * Gateway routes: which route of the gateway takes a request, what its metrics call it, and by whose rules it
 * is served.
 *
 * Owns   tables that are made once, from the arguments, and never change.
 */

import type { CompletionRoute } from '@homing/actors/tokenizer'
import { RouteTable, sendAnswer } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { Cors } from './cors.ts'
import type { ReadStep } from './exchange-parts.ts'
import type { FleetViews } from './fleet-views.ts'
import type { GatewayArgs } from './gateway-args.ts'
import type { OperatorRoute } from './operator-routes.ts'
import { OWN_ROUTES, type OwnPath, type OwnRoute } from './own-routes.ts'
import { RelayRoutes } from './relay-routes.ts'
import type { RequestReader } from './request-reader.ts'

/** Answers one request at once; an exception becomes an error answer. */
export type ViewHandler = (exchange: HttpExchange, parameter: string) => Promise<void> | void

/** `read`: needs the work of other actors and counts against `openRequestsMax`. */
type Served = { readonly view: ViewHandler } | { readonly read: ReadStep }
type ServedRoute = OwnRoute & Served

const OPEN_PATHS: ReadonlySet<string> = new Set<OwnPath>(['/health', '/ready'])

export class GatewayRoutes {
  /** Undefined: nothing is relayed. */
  readonly #relayed: RelayRoutes | undefined
  /** Undefined: pages of other sites may not use the API. */
  readonly #cors: Cors | undefined
  readonly #operatorRoutes: RouteTable<OperatorRoute>
  readonly #routes: RouteTable<ServedRoute>
  /** What the answer to an unknown route says besides. */
  readonly hint: string

  constructor(
    args: GatewayArgs,
    reader: RequestReader,
    views: FleetViews,
    ofOperators: readonly OperatorRoute[],
  ) {
    const { hasFrontend = true, corsOrigins = [] } = args
    this.#relayed = hasFrontend ? new RelayRoutes(args.relayRoutes ?? []) : undefined
    this.#cors = corsOrigins.length > 0 ? new Cors(corsOrigins, args.affinityHeaders) : undefined
    this.#operatorRoutes = new RouteTable(ofOperators)
    const own = ownRoutes(reader, views).filter(({ path }) => hasFrontend || !path.startsWith('/v1/'))
    this.#routes = new RouteTable([...own, ...ofOperators])
    const where =
      args.operators === undefined ? 'the operator routes are on --admin-port' : 'GET / lists them'
    this.hint = hasFrontend
      ? `${where}, and --relay-route adds a route of the engines`
      : `${where}, and --no-frontend leaves the API out`
  }

  /** The route that the gateway serves, or the methods that it serves the path with. */
  lookUp(exchange: HttpExchange): ReturnType<RouteTable<ServedRoute>['lookUp']> {
    return this.#routes.lookUp(exchange)
  }

  /** Its path is one of the operator routes, which are on this port. */
  isOfOperators({ path }: HttpExchange): boolean {
    return this.#operatorRoutes.at(path) !== undefined
  }

  /** Undefined: pages of other sites may not use this route. Those of operators they never may. */
  corsOf(exchange: HttpExchange): Cors | undefined {
    return this.isOfOperators(exchange) ? undefined : this.#cors
  }

  /** True: it is relayed; else the methods that are, on this path. */
  passed({ method, path }: Pick<HttpExchange, 'method' | 'path'>): true | readonly string[] {
    return this.#relayed?.find(method, path) ?? []
  }

  /** Neither for operators, whose routes have rules of their own, nor a probe, which has no key. */
  isForClients(exchange: HttpExchange): boolean {
    return !OPEN_PATHS.has(exchange.path) && !this.isOfOperators(exchange)
  }

  /** Its label in metrics, even if no route takes the method. */
  nameOf({ method, path }: HttpExchange): string {
    const own = this.#routes.at(path)
    if (own !== undefined) return own.name
    const found = this.passed({ method, path })
    return found === true || found.length > 0 ? 'other' : 'none'
  }
}

function ownRoutes(reader: RequestReader, views: FleetViews): readonly ServedRoute[] {
  const completion = (route: CompletionRoute): Served => {
    return { read: (exchange, hold, note) => reader.completion(exchange, route, hold, note) }
  }
  const served: Readonly<Record<OwnPath, Served>> = {
    '/v1/chat/completions': completion('chat'),
    '/v1/completions': completion('completions'),
    '/v1/messages': completion('messages'),
    '/v1/responses': completion('responses'),
    '/v1/models': { view: exchange => views.models(exchange) },
    '/v1/models/*': { view: (exchange, name) => views.model(exchange, name) },
    '/health': { view: exchange => void sendAnswer(exchange, views.health) },
    '/ready': { view: exchange => views.ready(exchange) },
  }
  return OWN_ROUTES.map(route => ({ ...route, ...served[route.path] }))
}
