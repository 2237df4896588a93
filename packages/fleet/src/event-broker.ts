/** Event broker: under which subjects workers publish their KV events at a broker. */

import { EndpointError, parseBrokerEndpoint } from '@homing/transport'
import type { WorkerSpec } from './worker-spec.ts'

/** Where workers publish that name no ports of their own. */
export interface EventBroker {
  /** 'host:port' each. */
  readonly servers: readonly string[]
  /** Workers that name neither ports nor a subject also publish there, under `subjectOf` their id. */
  readonly isPlane: boolean
}

/** The subject of a worker that names none: 'homing.kv.10_0_0_1_8001' for 10.0.0.1:8001. */
export function subjectOf(workerId: string): string {
  return `homing.kv.${workerId.replace(/[^A-Za-z0-9-]/g, '_')}`
}

/** The endpoint of a rank at the broker; undefined: its events are elsewhere. */
export function brokerEndpointOf(
  { id, natsSubject, eventsPort }: WorkerSpec,
  dpRank: number,
  broker: EventBroker | undefined,
): string | undefined {
  if (broker === undefined) return undefined
  const subject = natsSubject ?? (broker.isPlane && eventsPort === undefined ? subjectOf(id) : undefined)
  return subject === undefined ? undefined : `nats://${broker.servers.join(',')}/${subject}.${dpRank}`
}

/** Why a subject is not valid; undefined: it is valid. */
export function faultOfSubject(subject: string): string | undefined {
  try {
    parseBrokerEndpoint(`nats://localhost/${subject}.0`)
    return undefined
  } catch (error) {
    if (!(error instanceof EndpointError)) throw error
    return "is no subject: use words of letters, digits, '-' and '_' with dots between them"
  }
}
