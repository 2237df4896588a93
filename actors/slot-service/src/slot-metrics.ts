/**
 * Metrics of the service: counted here as requests pass, or fetched from the owner at scrape time. A figure
 * whose owner does not answer in time keeps its last value, and the scrape still succeeds.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import { type ReplicaBridgeMessage, replicaMetrics } from '@homing/actors/replica-bridge'
import { bookingMetrics, type TrackerMessage } from '@homing/actors/tracker'
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
    collectWorkers(this.metrics, figures)
    const { activeRequestsMax, activeBlocksMax } = figures.args
    const bookings = {
      prefix: 'homing_slots',
      verb: 'added',
      nouns: 'Requests',
      activeRequestsMax,
      activeBlocksMax,
    }
    bookingMetrics(this.metrics, { ...figures, ...bookings })
    replicaMetrics(this.metrics, 'homing_slots', 'Slot trackers', figures)
  }
}

function collectWorkers(metrics: Metrics, { catalog, args }: SlotFigures): void {
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
  metrics.collect(() => {
    slots.set(catalog.slotsTaken)
    slotsMax.set(args.workerSlotsMax)
    workers.replace(
      [...catalog.partitions].map(partition => ({
        value: partition.workers.size,
        labels: { model: partition.model, routing_group: partition.group },
      })),
    )
  })
}
