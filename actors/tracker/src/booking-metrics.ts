/** What a service tells of the bookings that its tracker holds. */

import type { ActorRef } from '@homing/actor'
import type { Metrics } from '@homing/metrics'
import type { TrackerMessage } from './messages.ts'

export interface BookingMetricsOptions {
  /** 'homing_slots'. */
  readonly prefix: string
  /** What its callers do with requests: 'added'. */
  readonly verb: string
  /** What it holds: 'Requests'. */
  readonly nouns: string
  readonly tracker: ActorRef<TrackerMessage>
  readonly activeRequestsMax: number
  readonly activeBlocksMax: number
  readonly askMsMax: number
}

export function bookingMetrics(
  metrics: Metrics,
  { prefix, verb, nouns, tracker, activeRequestsMax, activeBlocksMax, askMsMax }: BookingMetricsOptions,
): void {
  const requests = metrics.gauge({
    name: `${prefix}_active_requests`,
    help: `Requests held: ${verb} and not freed, here and at the replicas that are followed.`,
  })
  const requestsMax = metrics.gauge({
    name: `${prefix}_active_limit_requests`,
    help: 'Requests that may be held (--max-active-requests).',
  })
  const blocks = metrics.gauge({
    name: `${prefix}_active_blocks`,
    help: `Blocks of requests that were ${verb} here, each once for every rank that has it.`,
  })
  const blocksMax = metrics.gauge({
    name: `${prefix}_active_limit_blocks`,
    help: 'Blocks that may be held (--max-active-blocks).',
  })
  const ends = metrics.counter({
    name: `${prefix}_bookings_total`,
    help: `${nouns} by what came of them: booked, duplicate, refused for want of room, freed, expired.`,
    labels: ['outcome'],
  })
  metrics.collect(async () => {
    requestsMax.set(activeRequestsMax)
    blocksMax.set(activeBlocksMax)
    const report = await tracker.ask({ type: 'loads' }, { timeout: askMsMax }).catch(() => undefined)
    if (report === undefined) return
    const { stats } = report
    requests.set(stats.requests)
    blocks.set(stats.activeBlocks)
    ends.setTotal(stats.bookedTotal, { outcome: 'booked' })
    ends.setTotal(stats.duplicatesTotal, { outcome: 'duplicate' })
    ends.setTotal(stats.refusedTotal, { outcome: 'refused' })
    ends.setTotal(stats.freedTotal, { outcome: 'freed' })
    ends.setTotal(stats.expiredTotal, { outcome: 'expired' })
  })
}
