/** `GET /replicas`: the other routers, and what they have open at the workers. */

import type { ReplicasReport } from '@homing/actors/replica-bridge'
import type { ConsoleArgs } from '../console-args.ts'

export type ReplicaParts = Pick<ConsoleArgs, 'replicaBridge' | 'tracker' | 'askMsMax'>

/** `sync: false`: this router does not exchange bookings with other routers. */
export async function replicasView(args: ReplicaParts): Promise<unknown> {
  const found = await lookAtReplicas(args)
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

/** Undefined: this router has no replica exchange. */
export async function lookAtReplicas({
  replicaBridge,
  tracker,
  askMsMax,
}: ReplicaParts): Promise<
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
