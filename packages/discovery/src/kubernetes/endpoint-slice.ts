/**
 * Endpoint slice: a part of the addresses of a Service, as Kubernetes writes it (discovery.k8s.io/v1). The
 * conditions of an endpoint say what may be sent there:
 *
 *   ready                     takes requests (missing: yes)
 *   serving                   answers, also while it ends (missing: as ready)
 *   terminating               its pod has been told to end
 */

import { type ApiMap, mapIn, mapsIn, textIn } from './api-answers.ts'

/** Kubernetes writes 100 at most; an operator may write more. */
const ENDPOINTS_MAX = 1000

export interface SlicePort {
  /** '' where the Service has a single port without a name. */
  readonly name: string
  readonly port: number
}

export interface SliceEndpoint {
  readonly address: string
  readonly isReady: boolean
  readonly isTerminating: boolean
  /** Undefined: no pod is behind it, as in a slice that an operator wrote. */
  readonly pod: { readonly name: string; readonly uid: string } | undefined
}

export interface EndpointSlice {
  readonly service: string
  /** 'IPv4', 'IPv6' or 'FQDN'. */
  readonly addressType: string
  readonly ports: readonly SlicePort[]
  readonly endpoints: readonly SliceEndpoint[]
}

/** Undefined: it is none that we can use. */
export function readEndpointSlice(object: ApiMap): EndpointSlice | undefined {
  const addressType = textIn(object, 'addressType')
  const labels = mapIn(mapIn(object, 'metadata'), 'labels')
  if (addressType === undefined) return undefined
  return {
    service: textIn(labels, 'kubernetes.io/service-name') ?? '',
    addressType,
    ports: mapsIn(object, 'ports').flatMap(port => {
      const number = port['port']
      const protocol = port['protocol'] ?? 'TCP'
      return protocol === 'TCP' && typeof number === 'number' && Number.isInteger(number)
        ? [{ name: textIn(port, 'name') ?? '', port: number }]
        : []
    }),
    endpoints: mapsIn(object, 'endpoints').slice(0, ENDPOINTS_MAX).flatMap(readEndpoint),
  }
}

function readEndpoint(endpoint: ApiMap): readonly SliceEndpoint[] {
  const addresses = endpoint['addresses']
  // Kubernetes says that only the first one counts.
  const address: unknown = Array.isArray(addresses) ? addresses[0] : undefined
  if (typeof address !== 'string' || address === '') return []
  const conditions = mapIn(endpoint, 'conditions')
  const target = mapIn(endpoint, 'targetRef')
  const [name, uid] = [textIn(target, 'name'), textIn(target, 'uid')]
  const isPod = target?.['kind'] === 'Pod' && name !== undefined && uid !== undefined
  return [
    {
      address,
      isReady: conditions?.['ready'] !== false,
      isTerminating: conditions?.['terminating'] === true,
      pod: isPod ? { name, uid } : undefined,
    },
  ]
}
