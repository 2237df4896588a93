/**
 * Request way: whether requests to a worker go over sockets of their own, over a broker, or over a connection
 * of many. The transport is told once, so a caller of a worker only names its origin.
 */

import type { HttpRoute, HttpTransport, TcpLimits } from '@homing/transport'
import type { WorkerSpec } from './worker-spec.ts'

/** How workers are called that take requests so; all others are called over sockets of their own. */
export type RequestPlane = {
  /** Most bytes of an answer that are on the way, or wait for a client that reads slowly. */
  readonly windowBytes: number
} & (
  | {
      readonly kind: 'nats'
      /** 'host:port' each. */
      readonly servers: readonly string[]
    }
  | { readonly kind: 'tcp'; readonly limits: Partial<TcpLimits> }
)

/** Undefined: it is called over sockets of its own. `plane` undefined: all workers are. */
export function routeTo(
  { requestSubject, requestEndpoint }: Pick<WorkerSpec, 'requestSubject' | 'requestEndpoint'>,
  plane: RequestPlane | undefined,
): HttpRoute | undefined {
  if (plane === undefined) return undefined
  const { windowBytes } = plane
  if (plane.kind === 'tcp')
    return requestEndpoint === undefined
      ? undefined
      : { endpoint: requestEndpoint, windowBytes, tcp: plane.limits }
  return requestSubject === undefined
    ? undefined
    : { endpoint: `nats://${plane.servers.join(',')}/${requestSubject}`, windowBytes }
}

/** From now on. */
export function chooseWay(
  http: Pick<HttpTransport, 'setRoute'>,
  spec: WorkerSpec,
  plane: RequestPlane | undefined,
): void {
  http.setRoute(spec.origin, routeTo(spec, plane))
}
