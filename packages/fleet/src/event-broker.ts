/** Event broker: under which subjects workers publish their KV events at a broker. */

import { EndpointError, parseBrokerEndpoint } from '@homing/transport'
import type { WorkerSpec } from './worker-spec.ts'

/** Where workers publish that name no ports of their own. */
export interface EventBroker {
  /** 'host:port' each. */
  readonly servers: readonly string[]
  /** Workers that name neither ports nor a subject also publish there: `subjectOf` their id, by default. */
  readonly isPlane: boolean
}

/** The subject of a worker that names none: 'homing.kv.10_0_0_1_8001' for 10.0.0.1:8001. */
export function subjectOf(workerId: string): string {
  return `homing.kv.${workerId.replace(/[^A-Za-z0-9-]/g, '_')}`
}

/**
 * The endpoint of a rank at the broker; undefined: its events are elsewhere. `named`: where the engine itself
 * says that they are. Of that only a subject counts: the address may be that of another network, and a
 * sidecar may publish what comes from a port.
 */
export function brokerEndpointOf(
  { id, natsSubject, eventsPort }: WorkerSpec,
  dpRank: number,
  broker: EventBroker | undefined,
  named?: string,
): string | undefined {
  if (broker === undefined) return undefined
  const at = (subject: string): string => `nats://${broker.servers.join(',')}/${subject}`
  if (natsSubject !== undefined) return at(`${natsSubject}.${dpRank}`)
  if (!broker.isPlane || eventsPort !== undefined) return undefined
  return at(subjectIn(named) ?? `${subjectOf(id)}.${dpRank}`)
}

/** Undefined: it is no endpoint at a broker, or no valid one. */
function subjectIn(endpoint: string | undefined): string | undefined {
  if (endpoint === undefined || !endpoint.startsWith('nats://')) return undefined
  try {
    return parseBrokerEndpoint(endpoint).subject
  } catch (error) {
    if (!(error instanceof EndpointError)) throw error
    return undefined
  }
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
