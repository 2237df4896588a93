/** Request way: whether requests to a worker go over sockets or over a broker. Tells the transport once; whoever calls a worker names its origin. */

import type { HttpTransport } from '@homing/transport'
import type { WorkerSpec } from './messages.ts'

/** Where workers are called that name a subject for requests. */
export interface RequestBroker {
  /** 'host:port' each. */
  readonly servers: readonly string[]
  /** Most bytes of an answer that are on the way, or wait for a client that reads slowly. */
  readonly windowBytes: number
}

/** From now on. `broker` undefined: all workers are called over sockets. */
export function chooseWay(
  http: Pick<HttpTransport, 'setRoute'>,
  { origin, requestSubject }: WorkerSpec,
  broker: RequestBroker | undefined,
): void {
  http.setRoute(
    origin,
    broker === undefined || requestSubject === undefined
      ? undefined
      : {
          endpoint: `nats://${broker.servers.join(',')}/${requestSubject}`,
          windowBytes: broker.windowBytes,
        },
  )
}
