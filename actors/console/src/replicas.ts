/** `GET /replicas` and the metrics of other routers: who they are, and what they have open at the workers. */

import type { ReplicasReport } from '@homing/actors/replica-bridge'
import type { Metrics } from '@homing/metrics'
import type { ConsoleArgs } from './console-args.ts'

type Args = Pick<ConsoleArgs, 'replicaBridge' | 'tracker' | 'askMsMax'>

/** `sync: false`: it does not tell others, and is told nothing. */
export async function replicasView(args: Args): Promise<unknown> {
  const found = await lookAt(args)
  if (found === undefined) return { sync: false, replicas: [] }
  const { report, bookings, unbooked } = found
  return {
    sync: true,
    endpoint: report.endpoint ?? null,
    booked_elsewhere: bookings,
    unbooked_operations: unbooked,
    malformed_messages: report.malformed,
    replicas: report.replicas.map(({ openBookings, waitingRequests, silentMs, ...replica }) => ({
      ...replica,
      open_bookings: openBookings,
      waiting_requests: waitingRequests,
      silent_ms: silentMs === undefined ? null : Math.round(silentMs),
    })),
  }
}

export function collectReplicas(metrics: Metrics, args: Args): void {
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
    const found = await lookAt(args)
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

async function lookAt({
  replicaBridge,
  tracker,
  askMsMax,
}: Args): Promise<
  { readonly report: ReplicasReport; readonly bookings: number; readonly unbooked: number } | undefined
> {
  if (replicaBridge === undefined) return undefined
  const deadline = { timeout: askMsMax }
  const [report, loads] = await Promise.all([
    replicaBridge.ask({ type: 'report' }, deadline),
    tracker.ask({ type: 'loads' }, deadline),
  ])
  return { report, bookings: loads.replicas?.bookings ?? 0, unbooked: loads.replicas?.unbooked ?? 0 }
}
