/**
 * Pod workers: which workers the endpoint slices and pods of a namespace make. Pure.
 *
 *   conditions of its endpoint        the worker
 *   ready                             ready
 *   not ready, not terminating        unready: no new requests, what it has goes on
 *   terminating                       leaving: the same, and it leaves with its last request
 *   in no slice any more              gone
 *
 * A pod is one worker, however many slices name it: Kubernetes may write an endpoint twice while it moves
 * between slices (the one that takes requests counts), and writes one for each address family (IPv4 counts
 * where there is one). A pod whose annotations are not known yet is no worker yet.
 */

import type { FoundFault, FoundList, FoundState, FoundWorker } from '../found-worker.ts'
import type { EndpointSlice, SliceEndpoint, SlicePort } from './endpoint-slice.ts'
import type { WorkerNotes } from './worker-notes.ts'

export interface SliceWorkersOptions {
  /** Name or number of the port that takes requests; undefined: the port named http, or the only one. */
  readonly port: string | undefined
}

interface Place {
  readonly slice: EndpointSlice
  readonly endpoint: SliceEndpoint
  readonly state: FoundState
}

const ORDER: readonly FoundState[] = ['ready', 'unready', 'leaving']

/** `pods`: by name. */
export function sliceWorkers(
  slices: Iterable<EndpointSlice>,
  pods: ReadonlyMap<string, WorkerNotes>,
  { port }: SliceWorkersOptions,
): FoundList {
  const places = new Map<string, Place>()
  for (const slice of slices) {
    if (slice.addressType === 'FQDN') continue
    for (const endpoint of slice.endpoints) {
      const key = endpoint.pod === undefined ? `address ${endpoint.address}` : `pod ${endpoint.pod.uid}`
      const place = { slice, endpoint, state: stateOf(endpoint) }
      const other = places.get(key)
      if (other === undefined || isBetter(place, other)) places.set(key, place)
    }
  }
  const workers: FoundWorker[] = []
  const faults: FoundFault[] = []
  for (const place of places.values()) {
    const made = workerAt(place, pods, port)
    if (made === undefined) continue
    if ('url' in made) workers.push(made)
    else faults.push(made)
  }
  return { workers, isWhole: true, faults }
}

function stateOf({ isReady, isTerminating }: SliceEndpoint): FoundState {
  // A Service that publishes addresses that are not ready says ready of a pod that ends.
  if (isTerminating) return 'leaving'
  return isReady ? 'ready' : 'unready'
}

function isBetter(one: Place, other: Place): boolean {
  const family = Number(other.slice.addressType === 'IPv6') - Number(one.slice.addressType === 'IPv6')
  if (family !== 0) return family > 0
  return ORDER.indexOf(one.state) < ORDER.indexOf(other.state)
}

/** Undefined: it is none, or not yet. */
function workerAt(
  { slice, endpoint, state }: Place,
  pods: ReadonlyMap<string, WorkerNotes>,
  wantedPort: string | undefined,
): FoundWorker | FoundFault | undefined {
  const { address, pod } = endpoint
  const notes = pod === undefined ? undefined : pods.get(pod.name)
  if (pod !== undefined && notes?.uid !== pod.uid) return undefined
  if (notes?.isIgnored === true) return undefined
  const what = pod === undefined ? `address ${address}` : `pod ${pod.name}`
  if (notes?.fault !== undefined) return { what, reason: notes.fault }
  const port = portOf(slice, notes?.port ?? wantedPort)
  if (typeof port === 'string') return { what, reason: port }
  const host = address.includes(':') ? `[${address}]` : address
  const query = new URLSearchParams([...(notes?.parameters ?? [])]).toString()
  const path = notes?.path ?? ''
  return {
    url: `${notes?.scheme ?? 'http'}://${host}:${port}${path}${query === '' ? '' : `?${query}`}`,
    state,
    life: pod?.uid ?? '',
    reason: `${what} is ${SAYS[state]}`,
  }
}

const SAYS: Readonly<Record<FoundState, string>> = {
  ready: 'ready',
  unready: 'not ready',
  leaving: 'terminating',
  doubtful: 'not known any more',
}

/** Its number, or why there is none. */
function portOf({ service, ports }: EndpointSlice, wanted: string | undefined): number | string {
  if (wanted !== undefined && /^\d{1,5}$/.test(wanted)) return Number(wanted)
  const named = (name: string): SlicePort | undefined => ports.find(port => port.name === name)
  const found =
    wanted === undefined ? (named('http') ?? (ports.length === 1 ? ports[0] : undefined)) : named(wanted)
  if (found !== undefined) return found.port
  const has = ports.map(({ name, port }) => (name === '' ? String(port) : `${name} (${port})`)).join(', ')
  return wanted === undefined
    ? `Service ${service} has the ports ${has || 'none'}: name one with --kubernetes-port, or call it http`
    : `Service ${service} has no port ${wanted}; it has ${has || 'none'}`
}
