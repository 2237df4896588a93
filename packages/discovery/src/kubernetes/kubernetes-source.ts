/**
 * Kubernetes source: the pods behind Services, as workers. Two feeds of the API server, endpoint slices and
 * the metadata of pods, and what they make together (slice-workers.ts).
 *
 * While the API server does not answer, the last finding stays: the workers are judged by their probes.
 */

import type { Clock, Random } from '@homing/base'
import type { HttpTransport } from '@homing/transport'
import type { FoundList, SourceHandler, WorkerSource } from '../found-worker.ts'
import { ApiCredentials } from './api-credentials.ts'
import type { ClusterAccess } from './cluster-access.ts'
import { type EndpointSlice, readEndpointSlice } from './endpoint-slice.ts'
import { ObjectFeed, type ObjectFeedOptions } from './object-feed.ts'
import { sliceWorkers } from './slice-workers.ts'
import { readWorkerNotes, type WorkerNotes } from './worker-notes.ts'

/** Slices and pods of a namespace that are followed. */
const OBJECTS_MAX = 16_384

/** Plain data. */
export interface KubernetesPlace {
  readonly access: ClusterAccess
  readonly namespace: string
  /** Names of Services; empty: those that the selector takes. */
  readonly services: readonly string[]
  /** Labels of Services, which Kubernetes copies to their slices. */
  readonly selector: string | undefined
  readonly port: string | undefined
}

export interface SourceOptions {
  readonly http: Pick<HttpTransport, 'fetch' | 'call' | 'setPeer'>
  readonly clock: Clock
  readonly random: Random
  readonly handler: SourceHandler
}

export class KubernetesSource implements WorkerSource {
  readonly absence = 'leaves at once'
  readonly #place: KubernetesPlace
  readonly #credentials: ApiCredentials
  readonly #slices: ObjectFeed<EndpointSlice>
  readonly #pods: ObjectFeed<WorkerNotes>
  /** Feeds that do not get an answer now. */
  readonly #failing = new Set<string>()

  constructor(place: KubernetesPlace, { http, clock, random, handler }: SourceOptions) {
    const { access, namespace } = place
    this.#place = place
    this.#credentials = new ApiCredentials(access, http)
    const shared = (kind: string) => ({
      http,
      clock,
      random,
      server: access.server,
      credentials: this.#credentials,
      kind,
      objectsMax: OBJECTS_MAX,
      changed: () => handler.changed(),
      failed: (reason: string) => {
        this.#failing.add(kind)
        handler.failed(reason)
      },
      recovered: () => {
        this.#failing.delete(kind)
        if (this.#failing.size === 0) handler.recovered()
      },
    })
    const of = encodeURIComponent(namespace)
    this.#slices = new ObjectFeed<EndpointSlice>({
      ...shared('endpointslices'),
      path: `/apis/discovery.k8s.io/v1/namespaces/${of}/endpointslices`,
      labelSelector: sliceSelector(place),
      isMetadataOnly: false,
      read: readEndpointSlice,
    } satisfies ObjectFeedOptions<EndpointSlice>)
    this.#pods = new ObjectFeed<WorkerNotes>({
      ...shared('pods'),
      path: `/api/v1/namespaces/${of}/pods`,
      labelSelector: undefined,
      isMetadataOnly: true,
      read: readWorkerNotes,
    } satisfies ObjectFeedOptions<WorkerNotes>)
  }

  finding(): FoundList | undefined {
    if (!this.#slices.isListed || !this.#pods.isListed) return undefined
    const { workers, faults } = sliceWorkers(this.#slices.objects.values(), this.#pods.objects, this.#place)
    const tooMany = [
      ['endpointslices', this.#slices.leftOut],
      ['pods', this.#pods.leftOut],
    ] as const
    return {
      workers,
      isWhole: true,
      faults: [
        ...faults,
        ...tooMany.flatMap(([what, count]) =>
          count > 0
            ? [{ what, reason: `there are more than ${OBJECTS_MAX} in the namespace; the rest is left out` }]
            : [],
        ),
      ],
    }
  }

  close(): void {
    this.#slices.close()
    this.#pods.close()
    this.#credentials.close()
  }
}

function sliceSelector({ services, selector }: KubernetesPlace): string {
  const ofServices = services.length === 0 ? [] : [`kubernetes.io/service-name in (${services.join(',')})`]
  return [...ofServices, ...(selector === undefined ? [] : [selector])].join(',')
}
