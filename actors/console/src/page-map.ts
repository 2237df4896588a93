/**
 * The section `map` of the page: the largest prefixes of all shards, as one tree.
 *
 *   samples of shards ─▶ a tree of blocks, equal prefixes put together ─▶ blocks in a row with the same holders are one node
 *
 * Each shard knows its own workers only, so copies of a prefix at workers of two shards add up.
 */

import type { WorkerRecord } from '@homing/directory'
import type { HashPair, TreeSample, TreeSampleOptions } from '@homing/index'
import { MAP_NODES, type MapNode, type MapSection } from '@homing/page'

export const MAP_SAMPLE: Omit<TreeSampleOptions, 'turn'> = {
  chunksMax: 1024,
  stepsMax: 200_000,
  segmentsMax: 200,
  slotsMax: 16,
}
/** Workers that are told apart. */
const WORKERS_MAX = 16

interface Block {
  readonly hash: string
  readonly parent: Block | undefined
  readonly children: Map<string, Block>
  readonly holders: Set<number>
  blocks: number
  readonly byWorker: Map<number, number>
}

export function mapSection(
  workers: readonly WorkerRecord[],
  shards: readonly { readonly sample: TreeSample; readonly keysMax: number }[],
): MapSection {
  const keys = workers.flatMap(({ keys }) => keys)
  const names = keys.slice(0, WORKERS_MAX).map(({ key }) => key)
  const positions = new Map(keys.slice(0, WORKERS_MAX).map(({ workerSlot }, at) => [workerSlot, at]))
  const tree = new Tree()
  for (const { sample, keysMax } of shards) merge(tree, sample, slot => positions.get(slot % keysMax))
  tree.sumUp()
  const sizes = new Set(workers.map(({ blockSizeTokens }) => blockSizeTokens?.value))
  const [size] = sizes
  return {
    block_size: sizes.size === 1 && size !== undefined ? size : null,
    blocks: tree.root.blocks,
    is_whole: shards.every(({ sample }) => sample.stride === 1),
    workers: names,
    nodes: nodesOf(tree.root),
  }
}

/** Adds the segments of a shard: the copies of each block, and what is below it and was not answered to the last block of its row. */
function merge(tree: Tree, { segments }: TreeSample, workerOf: (slot: number) => number | undefined): void {
  /** Of each segment, the blocks of the tree that it became. */
  const rows: (readonly Block[])[] = []
  const rest = segments.map(({ weight }) => weight)
  const restBy = segments.map(({ weights }) => sumBy(weights, workerOf))
  for (const [position, { parent, parentBlocks, hashes, holders, weight }] of segments.entries()) {
    let at = parent < 0 ? tree.root : rows[parent]![parentBlocks - 1]!
    const row: Block[] = []
    for (const [slot, hash] of hashes.entries()) {
      at = tree.child(at, textOf(hash))
      const slots = holders[slot]!
      at.blocks += slots.length
      rest[position]! -= slots.length
      for (const worker of new Set(slots.map(workerOf).filter(worker => worker !== undefined))) {
        at.holders.add(worker)
        add(at.byWorker, worker, 1)
        add(restBy[position]!, worker, -1)
      }
      row.push(at)
    }
    rows.push(row)
    if (parent < 0) continue
    rest[parent]! -= weight
    for (const [worker, part] of sumBy(segments[position]!.weights, workerOf))
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
  readonly root: Block = blockOf('', undefined)
  /** Parents before their children. */
  readonly #blocks: Block[] = []

  /** Makes it if there is none. */
  child(parent: Block, hash: string): Block {
    let block = parent.children.get(hash)
    if (block === undefined) {
      block = blockOf(hash, parent)
      parent.children.set(hash, block)
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
function nodesOf(root: Block): readonly MapNode[] {
  const nodes: MapNode[] = []
  let waiting = [...root.children.values()].map(block => ({ block, parent: -1, depth: 0 }))
  while (waiting.length > 0 && nodes.length < MAP_NODES) {
    waiting.sort((one, other) => other.block.blocks - one.block.blocks)
    const { block, parent, depth } = waiting.shift()!
    let last = block
    let length = 1
    for (;;) {
      const [only] = last.children.values()
      if (last.children.size !== 1 || only === undefined || !isSame(only.holders, block.holders)) break
      last = only
      length++
    }
    nodes.push({
      parent,
      hash: block.hash,
      depth,
      length,
      holders: [...block.holders].sort((one, other) => one - other),
      blocks: block.blocks,
      by_worker: denseOf(block.byWorker),
    })
    const position = nodes.length - 1
    waiting = waiting.concat(
      [...last.children.values()].map(child => ({ block: child, parent: position, depth: depth + length })),
    )
  }
  return nodes
}

function blockOf(hash: string, parent: Block | undefined): Block {
  return { hash, parent, children: new Map(), holders: new Set(), blocks: 0, byWorker: new Map() }
}

function sumBy(
  weights: ReadonlyMap<number, number>,
  workerOf: (slot: number) => number | undefined,
): Map<number, number> {
  const sums = new Map<number, number>()
  for (const [slot, weight] of weights) {
    const worker = workerOf(slot)
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

function isSame(one: ReadonlySet<number>, other: ReadonlySet<number>): boolean {
  return one.size === other.size && [...one].every(each => other.has(each))
}

function textOf([low, high]: HashPair): string {
  const hex = (word: number): string => (word >>> 0).toString(16).padStart(8, '0')
  return hex(high) + hex(low)
}
