/**
 * Metrics of the service: counted here as requests pass, or fetched from the owner at scrape time. A figure
 * whose owner does not answer in time keeps its last value, and the scrape still succeeds.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import { type ReplicaBridgeMessage, replicaMetrics } from '@homing/actors/replica-bridge'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { JsonService } from '@homing/http'
import { type Metrics, ServiceMetrics, serviceProcessMetrics } from '@homing/metrics'
import type { SlotCatalog } from './catalog.ts'
import type { SlotServiceMessage } from './messages.ts'
import type { SlotServiceArgs } from './service-args.ts'

export interface SlotFigures {
  readonly context: ActorContext<SlotServiceMessage>
  readonly args: SlotServiceArgs
  readonly catalog: SlotCatalog
  readonly tracker: ActorRef<TrackerMessage>
  readonly bridge: ActorRef<ReplicaBridgeMessage> | undefined
  readonly service: JsonService
  readonly askMsMax: number
}

export class SlotMetrics extends ServiceMetrics {
  constructor(figures: SlotFigures) {
    const { service, context } = figures
    super('homing_slots', context.use(serviceProcessMetrics), {
      openRequests: () => service.open.count,
      bodyBytes: () => service.open.bodyBytes,
      views: service.open.views,
      accessLinesDropped: () => service.accessLog?.dropped ?? 0,
    })
    collectLoad(this.metrics, figures)
    replicaMetrics(this.metrics, 'homing_slots', 'Slot trackers', figures)
  }
}

function collectLoad(metrics: Metrics, { catalog, tracker, args, askMsMax }: SlotFigures): void {
  const workers = metrics.gauge({
    name: 'homing_slots_registered_workers',
    help: 'Workers registered, by model and routing group.',
    labels: ['model', 'routing_group'],
  })
  const slots = metrics.gauge({ name: 'homing_slots_taken_keys', help: 'Ranks of registered workers.' })
  const slotsMax = metrics.gauge({
    name: 'homing_slots_limit_keys',
    help: 'Ranks of workers in total (--worker-slots-max).',
  })
  const requests = metrics.gauge({
    name: 'homing_slots_active_requests',
    help: 'Requests held: added and not freed, here and at the replicas that are followed.',
  })
  const requestsMax = metrics.gauge({
    name: 'homing_slots_active_limit_requests',
    help: 'Requests that may be held (--max-active-requests).',
  })
  const blocks = metrics.gauge({
    name: 'homing_slots_active_blocks',
    help: 'Blocks of requests that were added here, each once for every rank that has it.',
  })
  const blocksMax = metrics.gauge({
    name: 'homing_slots_active_limit_blocks',
    help: 'Blocks that may be held (--max-active-blocks).',
  })
  const ends = metrics.counter({
    name: 'homing_slots_bookings_total',
    help: 'Requests by what came of them: booked, duplicate, refused for want of room, freed, expired.',
    labels: ['outcome'],
  })
  metrics.collect(async () => {
    slots.set(catalog.slotsTaken)
    slotsMax.set(args.workerSlotsMax)
    requestsMax.set(args.activeRequestsMax)
    blocksMax.set(args.activeBlocksMax)
    workers.replace(
      [...catalog.partitions].map(partition => ({
        value: partition.workers.size,
        labels: { model: partition.model, routing_group: partition.group },
      })),
    )
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
