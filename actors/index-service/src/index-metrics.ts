/**
 * Metrics of the service: counted here as requests pass, or fetched from the owner at scrape time. A figure
 * whose owner does not answer in time keeps its last value, and the scrape still succeeds.
 */

import { SHARD_COLUMNS, TRUSTS } from '@homing/index'
import { type Counter, type Metrics, type RequestFigures, ServiceMetrics } from '@homing/metrics'
import type { Peers } from './peers.ts'
import { trustOf } from './rank.ts'
import type { Registry } from './registry.ts'
import type { Shards } from './shards.ts'
import { LISTENER_STATES, viewRanks } from './workers-view.ts'

export interface ServiceFigures extends RequestFigures {
  readonly process: Metrics
  readonly registry: Registry
  readonly shards: Shards
  readonly peers: Peers
  readonly askMsMax: number
  readonly workerSlotsMax: number
  readonly dumps: { readonly refused: number }
}

export class IndexMetrics extends ServiceMetrics {
  readonly #queryTokens: Counter
  readonly #overlapTokens: Counter
  readonly #incomplete: Counter

  constructor(figures: ServiceFigures) {
    super('homing_indexer', figures.process, figures)
    const { metrics } = this
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
    collectDumps(metrics, figures)
    collectRanks(metrics, figures)
    collectShards(metrics, figures)
  }

  queried(queryTokens: number, overlapTokens: number, isComplete: boolean): void {
    this.#queryTokens.add(queryTokens)
    this.#overlapTokens.add(overlapTokens)
    if (!isComplete) this.#incomplete.add(1)
  }
}

function collectDumps(metrics: Metrics, figures: ServiceFigures): void {
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
