/**
 * Metrics of the service: counted here as requests pass, or fetched from the owner at scrape time. A figure
 * whose owner does not answer in time keeps its last value, and the scrape still succeeds.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { Shards } from '@homing/actors/index-service'
import { type ReplicaBridgeMessage, replicaMetrics } from '@homing/actors/replica-bridge'
import { bookingMetrics, type TrackerMessage } from '@homing/actors/tracker'
import type { JsonService } from '@homing/http'
import { SHARD_COLUMNS, TRUSTS } from '@homing/index'
import { type Metrics, ServiceMetrics, serviceProcessMetrics } from '@homing/metrics'
import { lifecycleOf, type SelectCatalog } from './catalog.ts'
import type { SelectServiceMessage } from './messages.ts'
import type { PendingSelections } from './pending-selections.ts'
import type { SelectServiceArgs } from './service-args.ts'

export interface SelectFigures {
  readonly context: ActorContext<SelectServiceMessage>
  readonly args: SelectServiceArgs
  readonly catalog: SelectCatalog
  readonly shards: Shards
  readonly pending: PendingSelections
  readonly tracker: ActorRef<TrackerMessage>
  readonly bridge: ActorRef<ReplicaBridgeMessage> | undefined
  readonly service: JsonService
  readonly dumps: { readonly refused: number }
  readonly askMsMax: number
}

export class SelectMetrics extends ServiceMetrics {
  constructor(figures: SelectFigures) {
    const { service, context } = figures
    super('homing_select', context.use(serviceProcessMetrics), {
      openRequests: () => service.open.count,
      bodyBytes: () => service.open.bodyBytes,
      views: service.open.views,
      accessLinesDropped: () => service.accessLog?.dropped ?? 0,
    })
    collectWorkers(this.metrics, figures)
    collectPending(this.metrics, figures)
    const { activeRequestsMax, activeBlocksMax } = figures.args.settings
    const bookings = {
      prefix: 'homing_select',
      verb: 'reserved',
      nouns: 'Reservations',
      activeRequestsMax,
      activeBlocksMax,
    }
    bookingMetrics(this.metrics, { ...figures, ...bookings })
    replicaMetrics(this.metrics, 'homing_select', 'Selection services', figures)
    collectIndex(this.metrics, figures)
  }
}

function collectWorkers(metrics: Metrics, { catalog, args }: SelectFigures): void {
  const workers = metrics.gauge({
    name: 'homing_select_known_workers',
    help: 'Workers by model, routing group and lifecycle.',
    labels: ['model', 'routing_group', 'lifecycle'],
  })
  const slots = metrics.gauge({
    name: 'homing_select_taken_keys',
    help: 'Ranks of workers, also of those that are incomplete.',
  })
  const slotsMax = metrics.gauge({
    name: 'homing_select_limit_keys',
    help: 'Ranks of workers in total (--worker-slots-max).',
  })
  const trusts = metrics.gauge({
    name: 'homing_select_trust_keys',
    help: 'Ranks of workers by the trust in what is known of their caches.',
    labels: ['trust'],
  })
  metrics.collect(() => {
    slots.set(catalog.rankCount)
    slotsMax.set(args.settings.workerSlotsMax)
    const rows = [...catalog.workers].map(worker => ({
      model: worker.model,
      routing_group: worker.group,
      lifecycle: lifecycleOf(worker),
    }))
    const alike = Map.groupBy(rows, labels => JSON.stringify(Object.values(labels)))
    workers.replace([...alike.values()].map(same => ({ value: same.length, labels: same[0]! })))
    const keys = [...catalog.workers].flatMap(({ ranks }) => ranks).map(rank => catalog.trustOf(rank).trust)
    trusts.replace(
      TRUSTS.map(trust => ({ value: keys.filter(each => each === trust).length, labels: { trust } })),
    )
  })
}

function collectPending(metrics: Metrics, { pending, args }: SelectFigures): void {
  const entries = metrics.gauge({
    name: 'homing_select_pending_requests',
    help: 'Answers of /select that can be reserved by their id.',
  })
  const entriesMax = metrics.gauge({
    name: 'homing_select_pending_limit_requests',
    help: 'Most such answers that are kept (--selections-max).',
  })
  const bytes = metrics.gauge({
    name: 'homing_select_pending_bytes',
    help: 'Memory of such answers.',
  })
  const bytesMax = metrics.gauge({
    name: 'homing_select_pending_limit_bytes',
    help: 'Most memory of such answers (--selection-bytes).',
  })
  const lost = metrics.counter({
    name: 'homing_select_pending_lost_total',
    help: 'Such answers that were forgotten before they were reserved: expired, or evicted by newer ones.',
    labels: ['reason'],
  })
  metrics.collect(() => {
    pending.expire()
    entries.set(pending.count)
    bytes.set(pending.bytes)
    entriesMax.set(args.settings.selectionsMax)
    bytesMax.set(args.settings.selectionBytesMax)
    for (const reason of ['expired', 'evicted'] as const) lost.setTotal(pending.lost[reason], { reason })
  })
}

function collectIndex(metrics: Metrics, { shards, dumps, askMsMax }: SelectFigures): void {
  const refused = metrics.counter({
    name: 'homing_select_dumps_refused_total',
    help: 'Requests for a dump refused because one is made at a time and the line for it was full.',
  })
  const table = metrics.table(['shard'], SHARD_COLUMNS)
  metrics.collect(async () => {
    refused.setTotal(dumps.refused)
    const answers = await shards.status(askMsMax)
    table.update(answers.flatMap((row, shard) => (row === undefined ? [] : [{ row, labels: { shard } }])))
  })
}
