/**
 * Pools of the cache map: what labels say of the blocks that are drawn, and of all pools.
 *
 *   blocks of the nodes ─▶ their records in every shard ─▶ states, pools and workers of each node
 *
 * A block may be told of in another shard than the one that holds it, or by a worker that has left. So every
 * shard is asked for every block that is drawn.
 */

import type { WorkerRecord } from '@homing/fleet'
import { type LabelSample, type LabelSampleOptions, POOL_STATE } from '@homing/index'
import type { MapNodePools, MapPools, MapSection, PoolStates } from '@homing/page'
import type { DrawnMap } from './page-map.ts'

/** Names of workers, pools and experts that are sent of each node and each pool; the page writes as many. */
const NODE_NAMES_MAX = 4
const POOLS_MAX = 16
export const LABEL_SAMPLE: Omit<LabelSampleOptions, 'turn' | 'hashes'> = {
  recordsMax: 4096,
  poolsMax: POOLS_MAX,
  idsMax: 16_384,
}

/** Undefined in the place of a shard of which nothing is known. */
export function withPools(
  { section, sequenceHashes }: DrawnMap,
  workers: readonly WorkerRecord[],
  shards: readonly (LabelSample | undefined)[],
): MapSection {
  const samples = shards.filter(sample => sample !== undefined)
  if (samples.length === 0) return section
  const names = new Names(workers)
  const nodes: NodeSums[] = section.nodes.map(() => new NodeSums(names))
  const nodeOf = sequenceHashes.flatMap((hashes, node) =>
    Array.from({ length: hashes.length / 2 }, () => node),
  )
  for (const { blocks } of samples) {
    for (const { position, moe, records } of blocks) {
      const node = nodes[nodeOf[position] ?? -1]
      if (moe !== undefined) node?.expert(position, moe.layerId, moe.expertId)
      for (const record of records) node?.record(record)
    }
  }
  return {
    ...section,
    nodes: section.nodes.map((node, at) => ({ ...node, pools: nodes[at]!.view() })),
    pools: poolsOf(samples, names),
  }
}

function poolsOf(samples: readonly LabelSample[], names: Names): MapPools {
  const sum = (of: (sample: LabelSample) => number): number =>
    samples.reduce((total, sample) => total + of(sample), 0)
  const pools = new Map<number | null, { readonly states: number[]; orphans: number; reachers: Reachers }>()
  for (const { poolId, byState, orphans, owners, workerIds } of samples.flatMap(sample => sample.pools)) {
    const id = poolId ?? null
    const pool = pools.get(id) ?? { states: [0, 0, 0, 0, 0], orphans: 0, reachers: new Reachers(names) }
    pools.set(id, pool)
    for (const [state, records] of byState.entries()) pool.states[state]! += records
    pool.orphans += orphans
    for (const owner of owners) pool.reachers.owner(owner)
    for (const ids of workerIds) pool.reachers.ids(ids)
  }
  const rows = [...pools].map(([id, { states, orphans, reachers }]) => ({
    id,
    states: statesOf(states),
    orphans,
    ...reachers.view(),
  }))
  const weightOf = ({ in_transit, cxl_pooled, evicted }: PoolStates): number =>
    in_transit + cxl_pooled + evicted
  rows.sort((one, other) => weightOf(other.states) - weightOf(one.states))
  return {
    states: statesOf([0, 1, 2, 3, 4].map(state => sum(({ byState }) => byState[state] ?? 0))),
    orphans: sum(({ orphans }) => orphans),
    labelled_blocks: sum(({ labelledBlocks }) => labelledBlocks),
    is_whole: samples.every(({ isWhole }) => isWhole),
    pools: rows.slice(0, POOLS_MAX),
    // A pool of several shards is counted in each of them.
    pools_total: Math.max(rows.length, ...samples.map(({ poolsTotal }) => poolsTotal)),
  }
}

/** By state code. */
function statesOf(counts: readonly number[]): PoolStates {
  const [, local_gpu = 0, in_transit = 0, cxl_pooled = 0, evicted = 0] = counts
  return { local_gpu, in_transit, cxl_pooled, evicted }
}

/** What the blocks of a node are said to be. */
class NodeSums {
  readonly #states = [0, 0, 0, 0, 0]
  readonly #pools = new Set<number>()
  readonly #reachers: Reachers
  readonly #labelled = new Set<number>()
  readonly #experts = new Map<string, { readonly layer: number; readonly expert: number }>()

  constructor(names: Names) {
    this.#reachers = new Reachers(names)
  }

  expert(position: number, layer: number, expert: number): void {
    // Each shard that knows the block says so.
    this.#labelled.add(position)
    this.#experts.set(`${layer}/${expert}`, { layer, expert })
  }

  record({ workerSlot, state, poolId, workerIds }: LabelSample['blocks'][number]['records'][number]): void {
    this.#states[state]!++
    const isPooled = state === POOL_STATE.cxlPooled
    if (poolId !== undefined && (isPooled || state === POOL_STATE.inTransit)) this.#pools.add(poolId)
    if (!isPooled) return
    this.#reachers.owner(workerSlot)
    this.#reachers.ids(workerIds)
  }

  /** Null: nothing is said of them. */
  view(): MapNodePools | null {
    const states = statesOf(this.#states)
    if (this.#labelled.size === 0 && Object.values(states).every(records => records === 0)) return null
    const experts = [...this.#experts.values()].sort(
      (one, other) => one.layer - other.layer || one.expert - other.expert,
    )
    const pools = [...this.#pools].sort((one, other) => one - other)
    return {
      states,
      pools: pools.slice(0, NODE_NAMES_MAX),
      pools_total: pools.length,
      ...this.#reachers.view(),
      labelled_blocks: this.#labelled.size,
      experts: experts.slice(0, NODE_NAMES_MAX),
      experts_total: experts.length,
    }
  }
}

/** Workers that reach something. */
class Reachers {
  readonly #names: Names
  readonly #found = new Set<string>()
  readonly #seen = new Set<Int32Array>()

  constructor(names: Names) {
    this.#names = names
  }

  owner(workerSlot: number): void {
    const name = this.#names.bySlot.get(workerSlot)
    if (name !== undefined) this.#found.add(name)
  }

  ids(ids: Int32Array): void {
    if (this.#seen.has(ids)) return
    this.#seen.add(ids)
    for (let at = 0; at < ids.length; at += 2) this.#found.add(this.#names.ofId(ids[at]!, ids[at + 1]!))
  }

  view(): { readonly reached_by: readonly string[]; readonly reached_by_total: number } {
    return {
      reached_by: [...this.#found].sort().slice(0, NODE_NAMES_MAX),
      reached_by_total: this.#found.size,
    }
  }
}

/** Names of workers, by worker slot and by the id that events name. */
class Names {
  readonly bySlot: ReadonlyMap<number, string>
  readonly #byId: ReadonlyMap<bigint, string>

  constructor(workers: readonly WorkerRecord[]) {
    this.bySlot = new Map(
      workers.flatMap(({ id, keys }) => keys.map(({ workerSlot }) => [workerSlot, id] as const)),
    )
    this.#byId = new Map(
      workers.map(({ id, eventsId, instanceId }) => [eventsId ?? BigInt(instanceId), id] as const),
    )
  }

  ofId(low: number, high: number): string {
    const id = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
    return this.#byId.get(id) ?? `id ${id}`
  }
}
