/** Metrics of other routers: what is known of them, and what they have open at the workers. */

import type { Metrics } from '@homing/metrics'
import { lookAtReplicas, type ReplicaParts } from '../views/replicas-view.ts'

export function collectReplicas(metrics: Metrics, args: ReplicaParts): void {
  if (args.replicaBridge === undefined) return
  const replicas = metrics.gauge({
    name: 'homing_replica_known_routers',
    help: 'Other routers of the same workers, by what is known of their bookings.',
    labels: ['state'],
  })
  const bookings = metrics.gauge({
    name: 'homing_replica_open_requests',
    help: 'Requests that other routers have open at the workers.',
  })
  const gaps = metrics.counter({
    name: 'homing_replica_gaps_total',
    help: 'Batches of other routers that were missing; then all that is open there is asked for.',
  })
  const unbooked = metrics.counter({
    name: 'homing_replica_unbooked_operations_total',
    help: 'Bookings of other routers that could not be counted: their worker is not known here, or there is no room.',
  })
  metrics.collect(async () => {
    const found = await lookAtReplicas(args)
    if (found === undefined) return
    const { replicas: views } = found.report
    replicas.replace(
      (['live', 'asking', 'unknown'] as const).map(state => ({
        value: views.filter(view => view.state === state).length,
        labels: { state },
      })),
    )
    bookings.set(found.bookings)
    gaps.setTotal(views.reduce((sum, view) => sum + view.gaps, 0))
    unbooked.setTotal(found.unbooked)
  })
}
