/**
 * Metrics of the service: counted here as requests pass, or fetched from the owner at scrape time. A figure
 * whose owner does not answer in time keeps its last value, and the scrape still succeeds.
 */

import { SHARD_COLUMNS, TRUSTS } from '@homing/index'
import { type Counter, type Histogram, Metrics, type ViewFigures, viewMetrics } from '@homing/metrics'
import type { Peers } from './peers.ts'
import { trustOf } from './rank.ts'
import type { Registry } from './registry.ts'
import type { Shards } from './shards.ts'
import { LISTENER_STATES, viewRanks } from './workers-view.ts'

const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export interface ServiceFigures {
  readonly process: Metrics
  readonly registry: Registry
  readonly shards: Shards
  readonly peers: Peers
  readonly askMsMax: number
  readonly workerSlotsMax: number
  readonly openRequests: () => number
  readonly views: ViewFigures
  readonly dumps: { readonly refused: number }
  readonly bodyBytes: () => number
  readonly accessLinesDropped: () => number
}

export class ServiceMetrics {
  readonly #metrics = new Metrics()
  readonly #requests: Counter<'route' | 'status'>
  readonly #duration: Histogram<'route'>
  readonly #queryTokens: Counter
  readonly #overlapTokens: Counter
  readonly #incomplete: Counter

  constructor(figures: ServiceFigures) {
    const metrics = this.#metrics
    metrics.include(() => figures.process.render())
    this.#requests = metrics.counter({
      name: 'homing_indexer_requests_total',
      help: 'Requests answered, by route and HTTP status.',
      labels: ['route', 'status'],
    })
    this.#duration = metrics.histogram({
      name: 'homing_indexer_request_seconds',
      help: 'Time from the arrival of a request to its answer.',
      labels: ['route'],
      buckets: SECONDS,
    })
    this.#queryTokens = metrics.counter({
      name: 'homing_indexer_query_tokens_total',
      help: 'Tokens in the full blocks of all queries.',
    })
    this.#overlapTokens = metrics.counter({
      name: 'homing_indexer_overlap_tokens_total',
      help: 'Tokens that the best rank of each query holds.',
    })
    this.#incomplete = metrics.counter({
      name: 'homing_indexer_incomplete_queries_total',
      help: 'Queries for which a shard gave no consistent view: their answers list less than is held.',
    })
    collectRequests(metrics, figures)
    metrics.collect(viewMetrics(metrics, 'homing_indexer_operator', figures.views))
    collectRanks(metrics, figures)
    collectShards(metrics, figures)
  }

  answered(route: string, status: number, elapsedMs: number): void {
    this.#requests.add(1, { route, status })
    this.#duration.observe(elapsedMs / 1000, { route })
  }

  queried(queryTokens: number, overlapTokens: number, isComplete: boolean): void {
    this.#queryTokens.add(queryTokens)
    this.#overlapTokens.add(overlapTokens)
    if (!isComplete) this.#incomplete.add(1)
  }

  render(): Promise<string> {
    return this.#metrics.render()
  }

  get contentType(): string {
    return this.#metrics.contentType
  }
}

function collectRequests(metrics: Metrics, figures: ServiceFigures): void {
  const open = metrics.gauge({ name: 'homing_indexer_open_requests', help: 'Requests being answered.' })
  const bodies = metrics.gauge({ name: 'homing_indexer_body_bytes', help: 'Request bodies in memory.' })
  const dropped = metrics.counter({
    name: 'homing_indexer_access_lines_dropped_total',
    help: 'Lines that the access log could not take.',
  })
  const dumps = metrics.counter({
    name: 'homing_indexer_peer_dumps_total',
    help: 'Dumps requested from peers, by outcome.',
    labels: ['outcome'],
  })
  const dumpsRefused = metrics.counter({
    name: 'homing_indexer_dumps_refused_total',
    help: 'Requests for a dump refused because one is made at a time and the line for it was full.',
  })
  metrics.collect(() => {
    dumpsRefused.setTotal(figures.dumps.refused)
    open.set(figures.openRequests())
    bodies.set(figures.bodyBytes())
    dropped.setTotal(figures.accessLinesDropped())
    for (const outcome of ['used', 'failed'] as const) {
      dumps.setTotal(figures.peers.dumps[outcome], { outcome })
    }
  })
}

function collectRanks(
  metrics: Metrics,
  { registry, workerSlotsMax, shards, askMsMax }: ServiceFigures,
): void {
  const workers = metrics.gauge({
    name: 'homing_indexer_registered_workers',
    help: 'Instances registered, by model and routing group.',
    labels: ['model', 'routing_group'],
  })
  const slots = metrics.gauge({
    name: 'homing_indexer_slots_taken_keys',
    help: 'Worker slots in use, by registered ranks and those that are ending.',
  })
  const slotsMax = metrics.gauge({
    name: 'homing_indexer_slots_limit_keys',
    help: 'Worker slots in total (--worker-slots-max).',
  })
  const states = metrics.gauge({
    name: 'homing_indexer_listener_keys',
    help: 'Registered ranks by the state of their listener.',
    labels: ['status'],
  })
  const trusts = metrics.gauge({
    name: 'homing_indexer_trust_keys',
    help: 'Registered ranks by the trust in them.',
    labels: ['trust'],
  })
  const inherited = metrics.gauge({
    name: 'homing_indexer_inherited_blocks',
    help: 'Blocks that are known only from a peer.',
  })
  metrics.collect(async () => {
    slots.set(registry.slotsTaken)
    slotsMax.set(workerSlotsMax)
    const partitions = [...registry.partitions]
    workers.replace(
      partitions.map(({ model, group, ranks }) => ({
        value: new Set([...ranks].map(({ instanceId }) => instanceId)).size,
        labels: { model, routing_group: group },
      })),
    )
    const ranks = partitions.flatMap(partition => [...partition.ranks])
    trusts.replace(
      TRUSTS.map(trust => ({
        value: ranks.filter(rank => trustOf(rank).trust === trust).length,
        labels: { trust },
      })),
    )
    const [views, blocks] = await Promise.all([viewRanks(ranks), shards.inheritedBlocks(askMsMax)])
    states.replace(
      LISTENER_STATES.map(status => ({
        value: views.filter(({ state }) => state === status).length,
        labels: { status },
      })),
    )
    const counts = blocks.flatMap(ofShard => Object.values(ofShard ?? {}))
    inherited.set(counts.reduce((sum, count) => sum + count, 0))
  })
}

function collectShards(metrics: Metrics, { shards, askMsMax }: ServiceFigures): void {
  const table = metrics.table(['shard'], SHARD_COLUMNS)
  metrics.collect(async () => {
    const answers = await shards.status(askMsMax)
    table.update(answers.flatMap((row, shard) => (row === undefined ? [] : [{ row, labels: { shard } }])))
  })
}
