/**
 * Request way: whether requests to a worker go over sockets or over a broker. The transport is told once, so
 * a caller of a worker only names its origin.
 */

import type { HttpTransport } from '@homing/transport'
import type { WorkerSpec } from './worker-spec.ts'

/** Where workers are called that name a subject for requests. */
export interface RequestBroker {
  /** 'host:port' each. */
  readonly servers: readonly string[]
  /** Most bytes of an answer that are on the way, or wait for a client that reads slowly. */
  readonly windowBytes: number
}

/**
 * 'nats://host:port/subject' where a worker is called over a broker; undefined: it is called over sockets.
 */
export function brokerWayOf(
  { requestSubject }: Pick<WorkerSpec, 'requestSubject'>,
  broker: RequestBroker | undefined,
): string | undefined {
  if (broker === undefined || requestSubject === undefined) return undefined
  return `nats://${broker.servers.join(',')}/${requestSubject}`
}

/** From now on. `broker` undefined: all workers are called over sockets. */
export function chooseWay(
  http: Pick<HttpTransport, 'setRoute'>,
  spec: WorkerSpec,
  broker: RequestBroker | undefined,
): void {
  const endpoint = brokerWayOf(spec, broker)
  http.setRoute(
    spec.origin,
    endpoint === undefined ? undefined : { endpoint, windowBytes: broker!.windowBytes },
  )
}
