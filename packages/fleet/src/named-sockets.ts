/** The sockets that workers name, as given and as found, for the claims of packages/transport. */

import type { NamedSocket, SocketUse } from '@homing/transport'
import type { EventSource } from './probe-outcome.ts'
import type { WorkerSpec } from './worker-spec.ts'
import { eventsHostOf } from './worker-spec.ts'

/** The sockets of a worker as given; those that a probe must find are not among them. */
export function givenSockets(spec: WorkerSpec): readonly NamedSocket[] {
  const { ranks, eventsPort, replayPort } = spec
  const socket = (use: SocketUse, port: number | undefined, dpRank: number): readonly NamedSocket[] =>
    port === undefined ? [] : [{ use, endpoint: `tcp://${eventsHostOf(spec)}:${port + dpRank}` }]
  return Array.from({ length: ranks ?? 1 }, (_, dpRank) => [
    ...socket('events', eventsPort, dpRank),
    ...socket('replay', replayPort, dpRank),
  ]).flat()
}

/** The sockets of a worker key; none where its source is not known. */
export function socketsOf(source: EventSource | undefined): readonly NamedSocket[] {
  if (source === undefined || source.fault !== undefined) return []
  const { endpoint, replayEndpoint } = source
  const events = { use: 'events', endpoint } as const
  return replayEndpoint === undefined ? [events] : [events, { use: 'replay', endpoint: replayEndpoint }]
}
