/**
 * Metrics door: the port of `--metrics-port`, for what watches the router: its metrics, and whether it lives.
 * It has a room of its own, so that neither it nor the operator routes take places of the other; it reads no
 * body, and what it does not serve takes no place.
 */

import {
  type EventStreams,
  errorAnswer,
  FrontDoor,
  type HttpAnswer,
  RouteTable,
  sendAnswer,
  sendView,
  type ViewRoom,
} from '@homing/http'
import type { HttpExchange, HttpTransport, TlsIdentity } from '@homing/transport'
import type { ConsoleArgs } from './console-args.ts'
import type { OperatorRequest } from './messages.ts'
import type { CountedMessage } from './own-door.ts'

/** What it answers, as errors and metrics name it. */
export const AT_METRICS_PORT = 'requests at --metrics-port'

const HINT = 'this port serves /metrics, /health and /live alone'

const ROUTES = new RouteTable([
  { name: 'metrics', method: 'GET', path: '/metrics' },
  { name: 'health', method: 'GET', path: '/health' },
  // As other routers have it at such a port.
  { name: 'health', method: 'GET', path: '/live' },
] as const)

export interface MetricsDoorParts {
  /** Never rejects. */
  readonly metrics: (request: OperatorRequest) => Promise<HttpAnswer>
  /** As the router answers it at its own port. Never rejects. */
  readonly health: (request: OperatorRequest) => Promise<HttpAnswer>
  readonly count: (message: CountedMessage) => void
  readonly streams: EventStreams
  readonly room: ViewRoom
}

/** What cannot be listened on is in the `address` of the door. */
export function openMetricsDoor(
  http: HttpTransport,
  {
    host,
    port,
    identity: tls,
    bodySilenceMsMax,
    clientStallMsMax: readerStallMsMax,
    keepAliveMsMax,
  }: ConsoleArgs & { readonly port: number; readonly identity: TlsIdentity | undefined },
  { metrics, health, count, streams, room }: MetricsDoorParts,
): Promise<FrontDoor> {
  const serveView = async (exchange: HttpExchange): Promise<number> => {
    const { method, path, query, headers, peerAddress } = exchange
    const { name } = ROUTES.find(exchange, HINT).route
    const place = room.enter(exchange, name === 'metrics')
    const answer = name === 'metrics' ? metrics : health
    const answered = await answer({ method, path, query, headers, peerAddress, body: undefined })
    return sendView(exchange, place, answered, { streams, pieces: undefined })
  }
  const serve = async (exchange: HttpExchange): Promise<void> => {
    const route = ROUTES.at(exchange.path)?.name ?? 'none'
    exchange.onClientGone(reason => {
      if (reason === 'stalled') count({ type: 'clientStalled', route })
    })
    const status = await serveView(exchange).catch((thrown: unknown) =>
      exchange.isClosed ? 0 : sendAnswer(exchange, errorAnswer(thrown)),
    )
    if (status >= 400) count({ type: 'refused', route, status })
  }
  const options = { host, port, bodySilenceMsMax, readerStallMsMax, keepAliveMsMax, tls }
  const malformed = (status: number): void => count({ type: 'refused', route: 'none', status })
  return FrontDoor.open(http, options, malformed, exchange => void serve(exchange))
}
