/**
 * The section `map` of the page: the largest prefixes of all shards, as one tree.
 *
 *   samples of shards ─▶ a tree of blocks, equal prefixes merged ─▶ runs with the same holders as one node
 *
 * Each shard knows its own workers only, so copies and holders of a prefix at workers of two shards add up.
 * All holders are counted; the WORKERS_APART workers with most blocks are told apart.
 */

import { chainSequence } from '@homing/blocks'
import type { WorkerRecord } from '@homing/fleet'
import type { HashPair, TreeSample, TreeSampleOptions } from '@homing/index'
import { MAP_NODES, type MapNode, type MapSection } from '@homing/page'

/** Workers that are told apart. */
const WORKERS_APART = 16
export const MAP_SAMPLE: Omit<TreeSampleOptions, 'turn' | 'keysMax'> = {
  chunksMax: 1024,
  stepsMax: 200_000,
  segmentsMax: 200,
  keysApartMax: WORKERS_APART,
}

/** The map, and the sequence hashes of the blocks of each of its nodes, pairs [lo, hi]. */
export interface DrawnMap {
  readonly section: MapSection
  readonly sequenceHashes: readonly Int32Array[]
}

interface Block {
  /** Local hash. */
  readonly hash: HashPair
  readonly parent: Block | undefined
  readonly children: Map<string, Block>
  /** Positions of those that are told apart. */
  readonly holders: Set<number>
  holdersTotal: number
  blocks: number
  readonly byWorker: Map<number, number>
}

/** Position of a worker slot among the workers that are told apart; undefined: it is not. */
type PositionOf = (slot: number) => number | undefined

/** Without anything of pools: see `withPools`. */
export function drawMap(workers: readonly WorkerRecord[], shards: readonly TreeSample[]): DrawnMap {
  const keys = workers.flatMap(({ keys }) => keys)
  const apart = workersApart(keys, shards)
  const positions = new Map(apart.map(({ workerSlot }, at) => [workerSlot, at]))
  const tree = new Tree()
  for (const sample of shards) merge(tree, sample, slot => positions.get(slot))
  tree.sumUp()
  // A worker that was never reached has told none.
  const sizes = new Set(workers.flatMap(({ blockSizeTokens }) => blockSizeTokens?.value ?? []))
  const [size] = sizes
  const { nodes, sequenceHashes } = nodesOf(tree.root)
  const section: MapSection = {
    block_size: sizes.size === 1 && size !== undefined ? size : null,
    blocks: tree.root.blocks,
    is_whole: shards.every(({ stride }) => stride === 1),
    workers: apart.map(({ key }) => key),
    workers_total: keys.length,
    nodes,
    pools: null,
  }
  return { section, sequenceHashes }
}

type Key = WorkerRecord['keys'][number]

/** Those with most blocks, in the order of the fleet, so that they do not change places. */
function workersApart(keys: readonly Key[], shards: readonly TreeSample[]): readonly Key[] {
  const blocks = new Map(shards.flatMap(({ keys }) => [...keys]))
  return keys
    .map((key, at) => ({ key, at, held: blocks.get(key.workerSlot) ?? 0 }))
    .sort((one, other) => other.held - one.held || one.at - other.at)
    .slice(0, WORKERS_APART)
    .sort((one, other) => one.at - other.at)
    .map(({ key }) => key)
}

/**
 * Adds the segments of a shard: the copies of each block, and what is below it and was not answered to the
 * last block of its row.
 */
function merge(tree: Tree, { segments }: TreeSample, positionOf: PositionOf): void {
  /** The tree blocks of each segment. */
  const rows: (readonly Block[])[] = []
  const rest = segments.map(({ weight }) => weight)
  const restBy = segments.map(({ weights }) => sumBy(weights, positionOf))
  for (const [position, segment] of segments.entries()) {
    const { parent, parentBlocks, hashes, holders, holdersTotal, copies, weight } = segment
    let at = parent < 0 ? tree.root : rows[parent]![parentBlocks - 1]!
    const row: Block[] = []
    for (const [slot, hash] of hashes.entries()) {
      at = tree.child(at, hash)
      at.blocks += copies[slot]!
      at.holdersTotal += holdersTotal[slot]!
      rest[position]! -= copies[slot]!
      for (const worker of holders[slot]!.map(positionOf)) {
        if (worker === undefined) continue
        at.holders.add(worker)
        add(at.byWorker, worker, 1)
        add(restBy[position]!, worker, -1)
      }
      row.push(at)
    }
    rows.push(row)
    if (parent < 0) continue
    rest[parent]! -= weight
    for (const [worker, part] of sumBy(segments[position]!.weights, positionOf))
      add(restBy[parent]!, worker, -part)
  }
  for (const [position, row] of rows.entries()) {
    const last = row.at(-1)!
    // Of a sample it may be below 0.
    last.blocks += Math.max(0, rest[position]!)
    for (const [worker, part] of restBy[position]!) add(last.byWorker, worker, Math.max(0, part))
  }
}

/** Blocks by what is before them. */
class Tree {
  readonly root: Block = blockOf([0, 0], undefined)
  /** Parents before their children. */
  readonly #blocks: Block[] = []

  /** Makes it if there is none. */
  child(parent: Block, hash: HashPair): Block {
    const name = textOf(hash)
    let block = parent.children.get(name)
    if (block === undefined) {
      block = blockOf(hash, parent)
      parent.children.set(name, block)
      this.#blocks.push(block)
    }
    return block
  }

  /** From now on a block counts what is below it, too. */
  sumUp(): void {
    for (const { parent, blocks, byWorker } of this.#blocks.toReversed()) {
      if (parent === undefined) continue
      parent.blocks += blocks
      for (const [worker, part] of byWorker) add(parent.byWorker, worker, part)
    }
  }
}

/** The heaviest, parents first; blocks in a row with the same holders are one node. */
function nodesOf(root: Block): { readonly nodes: readonly MapNode[]; readonly sequenceHashes: Int32Array[] } {
  const nodes: MapNode[] = []
  const sequenceHashes: Int32Array[] = []
  let waiting = [...root.children.values()].map(block => ({ block, parent: -1, depth: 0 }))
  while (waiting.length > 0 && nodes.length < MAP_NODES) {
    waiting.sort((one, other) => other.block.blocks - one.block.blocks)
    const { block, parent, depth } = waiting.shift()!
    let last = block
    const locals = [...block.hash]
    for (;;) {
      const [only] = last.children.values()
      if (last.children.size !== 1 || only === undefined || !isSame(only, block)) break
      last = only
      locals.push(...only.hash)
    }
    const length = locals.length / 2
    const above = sequenceHashes[parent]?.subarray(-2)
    sequenceHashes.push(
      chainSequence(Int32Array.from(locals), length, above && { lo: above[0]!, hi: above[1]! }),
    )
    nodes.push({
      parent,
      hash: textOf(block.hash),
      depth,
      length,
      holders: [...block.holders].sort((one, other) => one - other),
      holders_total: block.holdersTotal,
      blocks: block.blocks,
      by_worker: denseOf(block.byWorker),
      pools: null,
    })
    const position = nodes.length - 1
    waiting = waiting.concat(
      [...last.children.values()].map(child => ({ block: child, parent: position, depth: depth + length })),
    )
  }
  return { nodes, sequenceHashes }
}

function blockOf(hash: HashPair, parent: Block | undefined): Block {
  return {
    hash,
    parent,
    children: new Map(),
    holders: new Set(),
    holdersTotal: 0,
    blocks: 0,
    byWorker: new Map(),
  }
}

function sumBy(weights: ReadonlyMap<number, number>, positionOf: PositionOf): Map<number, number> {
  const sums = new Map<number, number>()
  for (const [slot, weight] of weights) {
    const worker = positionOf(slot)
    if (worker !== undefined) add(sums, worker, weight)
  }
  return sums
}

function add(sums: Map<number, number>, worker: number, more: number): void {
  sums.set(worker, (sums.get(worker) ?? 0) + more)
}

function denseOf(sums: ReadonlyMap<number, number>): readonly number[] {
  const dense = Array.from({ length: Math.max(-1, ...sums.keys()) + 1 }, () => 0)
  for (const [worker, sum] of sums) dense[worker] = sum
  return dense
}

/** Whether both have the same holders: the same named workers, and equally many unnamed ones. */
function isSame(one: Block, other: Block): boolean {
  return (
    one.holdersTotal === other.holdersTotal &&
    one.holders.size === other.holders.size &&
    [...one.holders].every(each => other.holders.has(each))
  )
}

function textOf([low, high]: HashPair): string {
  const hex = (word: number): string => (word >>> 0).toString(16).padStart(8, '0')
  return hex(high) + hex(low)
}
