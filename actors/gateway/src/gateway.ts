/**
 * Gateway: HTTP in, token stream out.
 *
 * In     HTTP exchanges from the transport; answers from the dispatcher; the fleet.
 * Out    each completion: tokenizer, router, dispatcher, in this order. Answers of the dispatcher go to
 *        the client as they arrive.
 * Owns   the HTTP listener and the open exchanges. A client that leaves ends its exchange at once.
 * Order  bytes reach the client in the order of the dispatcher's answers.
 * Fails  every exchange ends with exactly one answer: the engine's, or an error in OpenAI's form. What
 *        fails inside one exchange never touches another.
 */

import { type ActorContext, defineActor, signal, systemView } from '@homing/actor'
import type { Fleet } from '@homing/directory'
import { type ErrorRecord, toErrorRecord } from '@homing/errors'
import { errorBody } from '@homing/openai'
import { type HttpExchange, transportCapability } from '@homing/transport'
import { customRandom, urlAlphabet } from 'nanoid'
import { Bodies, type BodyHold } from './bodies.ts'
import { Completions } from './completions.ts'
import { apiErrorOf } from './error-kinds.ts'
import {
  MethodNotAllowedError,
  NoSuchRouteError,
  ShuttingDownError,
  TooManyExchangesError,
} from './errors.ts'
import type { GatewayArgs } from './gateway-args.ts'
import { GatewayMetrics } from './gateway-metrics.ts'
import type { GatewayMessage } from './messages.ts'
import { OpenExchanges } from './open-exchanges.ts'
import { Operations } from './operations.ts'

/** Serves one exchange; what it throws becomes an error answer. */
export type RouteHandler = (exchange: HttpExchange, parameter: string, hold: BodyHold) => Promise<void> | void

interface Route {
  /** Its label in metrics. */
  readonly name: string
  /** It counts against `openRequestsMax`: it takes the work of other actors. */
  readonly isCostly: boolean
  readonly method: string
  /** A trailing '*' takes the rest of the path as the parameter. */
  readonly path: string
  readonly handle: RouteHandler
}

const REQUEST_ID_LENGTH = 21

export const gateway = defineActor(
  import.meta.url,
  'gateway',
)<GatewayMessage, GatewayArgs>({
  reentrant: true,
  async setup(context, args) {
    const bodies = new Bodies(args.bodiesBytesMax)
    const system = context.use(systemView)
    const metrics: GatewayMetrics = new GatewayMetrics(args, system, {
      openRequests: () => exchanges.size,
      bodyBytes: () => bodies.bytes,
    })
    const exchanges: OpenExchanges = new OpenExchanges(args.dispatcher, context.clock, metrics)
    const newId = customRandom(urlAlphabet, REQUEST_ID_LENGTH, count => context.random.bytes(count))
    let fleet: Fleet = { version: 0, workers: [] }
    let isDraining = false
    const shared = { context, args, bodies, exchanges, metrics, newId, fleet: () => fleet, system }
    const completions = new Completions(shared)
    const operations = new Operations(shared)
    const routes = routeTable(completions, operations)

    let inHand = 0
    const serve = async (exchange: HttpExchange): Promise<void> => {
      if (isDraining) throw new ShuttingDownError()
      const { isCostly, handle, parameter } = findRoute(routes, exchange)
      const hold = bodies.hold()
      if (!isCostly) return handle(exchange, parameter, hold)
      if (exchanges.size + inHand >= args.openRequestsMax)
        throw new TooManyExchangesError(args.openRequestsMax)
      inHand++
      try {
        await handle(exchange, parameter, hold)
      } finally {
        inHand--
        if (!hold.isPassedOn) hold.release()
      }
    }

    const { http } = context.use(transportCapability)
    const listening = {
      host: args.host,
      port: args.port,
      bodySilenceMsMax: args.bodySilenceMsMax,
      readerStallMsMax: args.clientStallMsMax,
    }
    const listener = await http.listen(listening, exchange => {
      exchange.onClientGone(reason => {
        if (reason === 'stalled') metrics.clientStalled(routeName(routes, exchange))
      })
      serve(exchange).catch((thrown: unknown) => {
        answerError(context, exchange, routeName(routes, exchange), thrown, metrics)
      })
    })

    return {
      fleet(message) {
        fleet = message.fleet
      },
      answerHead: message => exchanges.answer(message),
      answerData: message => exchanges.answer(message),
      answerEnd: message => exchanges.answer(message),
      answerFailed: message => exchanges.answer(message),
      address({ reply }) {
        reply({ host: listener.host, port: listener.port })
      },
      async drain({ graceMs, reply }) {
        isDraining = true
        let cutRequests = 0
        // Set before the listener's own timer, which is due with it and cuts what is still open then.
        const timer = context.clock.after(graceMs, () => {
          cutRequests = exchanges.size + inHand
          exchanges.endAll(toErrorRecord(new ShuttingDownError()))
        })
        await listener.close(graceMs)
        timer.cancel()
        reply(cutRequests)
      },
      [signal](event) {
        // Also before a restart: the next instance listens on the same port.
        if (event.type !== 'terminated') return listener.close(0)
      },
    }
  },
})

/** Its label in metrics, also where no route takes the method. */
function routeName(routes: readonly Route[], exchange: HttpExchange): string {
  return routes.find(({ path }) => isOnPath(path, exchange.path))?.name ?? 'none'
}

/** `route`: a name of the table, so that clients cannot make up series of metrics. */
function answerError(
  context: ActorContext<GatewayMessage>,
  exchange: HttpExchange,
  route: string,
  thrown: unknown,
  metrics: GatewayMetrics,
): void {
  const record: ErrorRecord = toErrorRecord(thrown)
  if (record.code === 'HOMING_TRANSPORT_CLIENT_GONE' || exchange.isClosed) return
  const param = (thrown as { readonly param?: unknown } | undefined)?.param
  const error = apiErrorOf(record, typeof param === 'string' ? param : undefined)
  if (error.status >= 500) context.log.warn({ path: exchange.path, error: record }, 'request failed')
  metrics.refused(route, error.status)
  const body = errorBody(error)
  const headers: Record<string, string> = { ...error.headers, 'content-length': String(body.length) }
  // RFC 9110 §15.5.6: who may not use a method is told which ones there are.
  if (thrown instanceof MethodNotAllowedError) headers['allow'] = thrown.allowed.join(', ')
  exchange.writeHead(error.status, headers)
  exchange.end(body)
}

function routeTable(completions: Completions, operations: Operations): readonly Route[] {
  const costly = (name: string, method: string, path: string, handle: RouteHandler): Route => {
    return { name, isCostly: true, method, path, handle }
  }
  const view = (name: string, path: string, handle: RouteHandler): Route => {
    return { name, isCostly: false, method: 'GET', path, handle }
  }
  return [
    costly('chat', 'POST', '/v1/chat/completions', (exchange, _, hold) =>
      completions.serve(exchange, 'chat', hold),
    ),
    costly('completions', 'POST', '/v1/completions', (exchange, _, hold) =>
      completions.serve(exchange, 'completions', hold),
    ),
    view('models', '/v1/models', exchange => operations.models(exchange)),
    view('models', '/v1/models/*', (exchange, name) => operations.model(exchange, name)),
    costly('other', '*', '/v1/*', (exchange, _, hold) => completions.relay(exchange, hold)),
    costly('route', 'POST', '/route', (exchange, _, hold) => completions.explain(exchange, hold)),
    view('decisions', '/decisions', exchange => operations.receipts(exchange)),
    view('decisions', '/decisions/*', (exchange, id) => operations.receipt(exchange, id)),
    view('workers', '/workers', exchange => operations.workers(exchange)),
    view('actors', '/actors', exchange => operations.actors(exchange)),
    view('flight', '/actors/flight', exchange => operations.flight(exchange)),
    view('dump', '/dump', exchange => operations.dump(exchange)),
    view('health', '/health', exchange => operations.health(exchange)),
    view('ready', '/ready', exchange => operations.ready(exchange)),
    view('metrics', '/metrics', exchange => operations.metrics(exchange)),
    view('overview', '/', exchange => operations.overview(exchange)),
  ]
}

/** A pattern that ends in '*' wants at least one character there. */
function isOnPath(pattern: string, path: string): boolean {
  if (!pattern.endsWith('*')) return path === pattern
  return path.startsWith(pattern.slice(0, -1)) && path.length >= pattern.length
}

function findRoute(routes: readonly Route[], exchange: HttpExchange): Route & { readonly parameter: string } {
  const { path, method } = exchange
  // '/v1/../admin' is under /v1 only to who does not resolve it, and a worker may.
  if (decodePath(path).split('/').includes('..')) throw new NoSuchRouteError(path)
  const allowed: string[] = []
  for (const route of routes) {
    if (!isOnPath(route.path, path)) continue
    // HEAD is GET without the body, which the HTTP server leaves out itself.
    if (route.method === '*' || route.method === method || (route.method === 'GET' && method === 'HEAD')) {
      // The catch-all must not hide that a route exists for another method.
      if (route.method === '*' && allowed.length > 0) break
      const prefix = route.path.endsWith('*') ? route.path.slice(0, -1) : route.path
      return { ...route, parameter: decodePath(path.slice(prefix.length)) }
    }
    allowed.push(route.method)
  }
  if (allowed.length > 0) throw new MethodNotAllowedError(method, path, allowed)
  throw new NoSuchRouteError(path)
}

function decodePath(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // A stray '%' is part of the name as it stands; it will simply not be found.
    return text
  }
}
