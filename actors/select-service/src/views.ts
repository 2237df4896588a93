/** What callers are told of workers and of their load. */

import { type Rank, type RankView, type Shards, viewRanks } from '@homing/actors/index-service'
import type { LoadReport } from '@homing/actors/tracker'
import type { HttpExchange } from '@homing/transport'
import { isSame, lifecycleOf, type SelectCatalog, type SelectWorker } from './catalog.ts'

export interface WorkersViewOptions {
  readonly catalog: SelectCatalog
  readonly shards: Shards
}

type Filter = (worker: SelectWorker) => boolean

const SHARD_ASK_MS_MAX = 5000

/** By the query of a route: `?model_name=&routing_group=`. */
export function filteredBy({ query: text }: HttpExchange): Filter {
  const query = new URLSearchParams(text)
  const model = query.get('model_name')
  const group = query.get('routing_group')
  return worker => (model ?? worker.model) === worker.model && (group ?? worker.group) === worker.group
}

export function isReady({ workers }: SelectCatalog): boolean {
  for (const worker of workers) if (lifecycleOf(worker) === 'schedulable') return true
  return false
}

export async function workersView(
  { catalog, shards }: WorkersViewOptions,
  filter: Filter,
): Promise<readonly object[]> {
  const workers = [...catalog.workers].filter(filter)
  const [views, status] = await Promise.all([
    viewRanks(workers.flatMap(({ ranks }) => ranks)),
    shards.status(SHARD_ASK_MS_MAX),
  ])
  const byRank = new Map(views.map(view => [view.rank, view]))
  const blocksOf = ({ shard, workerSlot }: Rank): number | null => {
    const figures = status[shard]
    return figures === undefined ? null : (figures.blocksHeld[workerSlot] ?? 0)
  }
  return workers.map(worker => ({
    worker_id: worker.workerId,
    model_name: worker.model,
    routing_group: worker.group,
    endpoint: worker.endpoint ?? null,
    block_size: worker.blockSizeTokens ?? null,
    data_parallel_start_rank: worker.rankFirst,
    data_parallel_size: worker.rankCount,
    kv_events_endpoints: worker.eventsEndpoints,
    replay_endpoint: worker.replayEndpoints,
    max_num_batched_tokens: worker.maxBatchedTokens ?? null,
    total_kv_blocks: worker.kvBlocks ?? null,
    max_model_len: worker.maxModelTokens ?? null,
    taints: worker.taints,
    lifecycle: lifecycleOf(worker),
    listeners: Object.fromEntries(
      worker.ranks.map(rank => [rank.dpRank, rankView(catalog, rank, byRank.get(rank)!, blocksOf(rank))]),
    ),
  }))
}

function rankView(catalog: SelectCatalog, rank: Rank, { state }: RankView, blocks: number | null): object {
  const { trust, trustReason } = catalog.trustOf(rank)
  return {
    status: rank.endpoint === undefined ? 'none' : state,
    trust,
    trust_reason: trustReason,
    blocks,
  }
}

/** One row for each model and group, in the order of their first worker. */
export function loadsView(catalog: SelectCatalog, filter: Filter, { rows }: LoadReport): readonly object[] {
  const bySlot = new Map(rows.map(row => [row.workerSlot, row]))
  const views: { readonly first: SelectWorker; readonly loads: object[] }[] = []
  for (const worker of catalog.workers) {
    if (!filter(worker) || worker.ranks.length === 0) continue
    let view = views.find(({ first }) => isSame(first, worker))
    if (view === undefined) {
      view = { first: worker, loads: [] }
      views.push(view)
    }
    for (const { dpRank, workerSlot } of worker.ranks) {
      const row = bySlot.get(workerSlot)
      view.loads.push({
        worker_id: worker.workerId,
        dp_rank: dpRank,
        active_prefill_tokens: row?.activePrefillTokens ?? 0,
        active_decode_blocks: row?.activeBlocks ?? 0,
        active_requests: row?.activeRequests ?? 0,
      })
    }
  }
  return views.map(({ first, loads }) => ({
    model_name: first.model,
    routing_group: first.group,
    loads,
    // A request never waits here: its caller is told at once.
    pending_count: 0,
    pending_isl_tokens: 0,
  }))
}
