/** What a service tells of its replicas. */

import type { ActorRef } from '@homing/actor'
import type { Metrics } from '@homing/metrics'
import type { ReplicaBridgeMessage } from './messages.ts'

const MIRROR_STATES = ['live', 'asking', 'unknown'] as const

/** `prefix`: 'homing_slots'. `nouns`: what the replicas are called: 'Slot trackers'. */
export function replicaMetrics(
  metrics: Metrics,
  prefix: string,
  nouns: string,
  {
    bridge,
    askMsMax,
  }: {
    readonly bridge: ActorRef<ReplicaBridgeMessage> | undefined
    readonly askMsMax: number
  },
): void {
  const states = metrics.gauge({
    name: `${prefix}_known_replicas`,
    help: `${nouns} that are followed, by what is known of them.`,
    labels: ['state'],
  })
  const open = metrics.gauge({
    name: `${prefix}_replica_requests`,
    help: 'Requests that replicas hold, as they said last.',
  })
  const gaps = metrics.counter({
    name: `${prefix}_replica_gaps_total`,
    help: 'Batches of the present replicas that were missing; then all that is open there is asked for.',
  })
  const malformed = metrics.counter({
    name: `${prefix}_replica_malformed_total`,
    help: 'Messages of the present replicas that could not be read.',
  })
  metrics.collect(async () => {
    const report = await bridge?.ask({ type: 'report' }, { timeout: askMsMax }).catch(() => undefined)
    const replicas = report?.replicas ?? []
    if (bridge !== undefined && report === undefined) return
    states.replace(
      MIRROR_STATES.map(state => ({
        value: replicas.filter(replica => replica.state === state).length,
        labels: { state },
      })),
    )
    open.set(replicas.reduce((sum, { openBookings }) => sum + openBookings, 0))
    gaps.setTotal(replicas.reduce((sum, replica) => sum + replica.gaps, 0))
    malformed.setTotal(report?.malformed ?? 0)
  })
}
