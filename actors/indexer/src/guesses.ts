/**
 * Guesses: blocks that were sent to worker keys, kept in their guessed layer for as long as they are
 * believed.
 *
 *   a request was sent to a key ─▶ its blocks are held, until their expiry ─▶ removed, in slices
 *   sent again                  ─▶ the expiry of the whole prefix moves
 *   it was not sent after all   ─▶ the blocks that it added are removed, unless another request with them
 *                                  was sent since
 *
 * Owns   a GuessTable per key, and the guessed layer of every key in the index.
 * Bounds the caller gives the bound of each key, usually the size of its engine's cache; all keys of the
 *        shard together have `blocksMax`, for which there is memory. A key that exceeds either is pruned to
 *        `pruneTargetRatio` of its bound, or of its size: earliest expiry first, the deepest first. All keys
 *        of all shards together have the bound of `tree`: past it, each shard that is sent more prunes its
 *        part, the earliest expiry of all its keys first. A shard that holds too much, because slices of its
 *        pruning are still to come, gives up as many blocks as it takes in.
 * Fences a key is forgotten with an epoch; requests sent in an earlier epoch say nothing, and are dropped.
 * Names  blocks are named by their sequence hashes: nothing else names them before an engine does.
 */

import { chainSequence } from '@homing/blocks'
import { type BlockIndex, GUESSED_LAYER } from '@homing/index'
import { GuessTable, tickOf } from './guess-table.ts'
import type { LayerSlots } from './layer-slots.ts'

export interface GuessOptions {
  /** Most blocks of all keys of the shard. */
  readonly blocksMax: number
  /** 0 … 1. */
  readonly pruneTargetRatio: number
  /** Undefined: all shards together have no bound. */
  readonly tree?: TreeBound | undefined
}

/** The bound of the guesses of all shards together. */
export interface TreeBound {
  readonly blocksMax: number
  /** Blocks of each shard; each writes its own, and reads those of all. */
  readonly counts: Int32Array
  readonly shard: number
}

/** Blocks that were sent to a worker key. */
export interface RoutedBlocks {
  /** Id of the decision. */
  readonly id: string
  readonly workerSlot: number
  /** Epoch of the worker key. */
  readonly epoch: number
  /** Pairs [lo, hi] of the full blocks of the prompt. */
  readonly localHashes: Int32Array
  /** How long it is believed. */
  readonly ttlMs: number
  /** Most blocks of this key. */
  readonly blocksMax: number
}

/** Blocks that were not sent after all; fields as in `RoutedBlocks`. */
export type UnroutedBlocks = Pick<RoutedBlocks, 'id' | 'workerSlot' | 'epoch' | 'localHashes'>

/** What one request has added. */
interface Routed {
  readonly workerSlot: number
  /** Number of its first blocks that were guessed already; `count` is the number of all its blocks. */
  readonly known: number
  readonly count: number
  readonly tick: number
}

/** Counters since the indexer began, and the present. */
export interface GuessStatus {
  /** Worker keys with guesses. */
  readonly keys: number
  readonly blocks: number
  /** Memory of the tables, without the blocks in the index. */
  readonly bytes: number
  readonly routed: number
  readonly expired: number
  readonly pruned: number
}

/** Requests that can be taken back: of more, the oldest are forgotten, and expire like others. */
const RECENT_GUESSES_MAX = 8192
/** What one message takes out: about half a millisecond. */
const SLICE_BLOCKS = 2048

export class Guesses {
  readonly #index: BlockIndex
  readonly #slots: LayerSlots
  readonly #options: GuessOptions
  readonly #tables = new Map<number, GuessTable>()
  /** By key: requests sent in an earlier epoch are dropped. */
  readonly #epochs = new Map<number, number>()
  readonly #slice = new Int32Array(2 * SLICE_BLOCKS)
  /** By id, in their order. */
  readonly #recent = new Map<string, Routed>()
  #blocks = 0
  #isTreePruned = false
  #routed = 0
  #expired = 0
  #pruned = 0

  constructor(index: BlockIndex, slots: LayerSlots, options: GuessOptions) {
    this.#index = index
    this.#slots = slots
    this.#options = options
    this.#changed(0)
  }

  /** Takes a request in. Milliseconds of the clock at which `tidy` is due. */
  routed({ id, workerSlot, epoch, localHashes, ttlMs, blocksMax }: RoutedBlocks, nowMs: number): number {
    if (epoch < (this.#epochs.get(workerSlot) ?? epoch)) return Number.POSITIVE_INFINITY
    const count = Math.min(localHashes.length / 2, blocksMax)
    if (this.#isTreePruned) this.#pruneOthers(count)
    if (count === 0 || !this.#slots.take(workerSlot, GUESSED_LAYER)) return Number.POSITIVE_INFINITY
    const table = this.#tables.get(workerSlot) ?? new GuessTable()
    this.#tables.set(workerSlot, table)
    for (let room = count; room > 0 && table.isPruning; room -= SLICE_BLOCKS) this.#prune(workerSlot, table)
    this.#routed++
    const sequenceHashes = chainSequence(localHashes, count)
    const sizeBefore = table.size
    const known = table.add(sequenceHashes, count, nowMs + ttlMs)
    this.#remember(id, { workerSlot, known, count, tick: tickOf(nowMs + ttlMs) })
    this.#changed(table.size - sizeBefore)
    this.#hold(workerSlot, sequenceHashes, localHashes, known, count)
    const { pruneTargetRatio, blocksMax: allMax } = this.#options
    if (table.size > blocksMax) table.pruneTo(Math.floor(blocksMax * pruneTargetRatio))
    else if (this.#blocks > allMax) table.pruneTo(Math.floor(table.size * pruneTargetRatio))
    this.#pruneTree()
    return this.#isTreePruned ? nowMs : this.#dueMs(table, nowMs)
  }

  /** It was not sent there after all. */
  unrouted({ id, workerSlot, epoch, localHashes }: UnroutedBlocks): void {
    const routed = this.#recent.get(id)
    const table = this.#tables.get(workerSlot)
    this.#recent.delete(id)
    if (routed === undefined || table === undefined) return
    if (epoch < (this.#epochs.get(workerSlot) ?? epoch)) return
    const { known, count, tick } = routed
    // What has the same expiry, and came later, may go on from there.
    for (const other of this.#recent.values())
      if (other.workerSlot === workerSlot && other.tick === tick) return
    const sequenceHashes = chainSequence(localHashes, count)
    for (let from = count; from > known; ) {
      const to = from
      from = Math.max(known, from - SLICE_BLOCKS)
      const taken = table.takeBack(sequenceHashes, from, to, tick, this.#slice)
      this.#release(workerSlot, table, taken)
    }
    if (table.size === 0) this.#drop(workerSlot)
  }

  /**
   * Takes out a slice of what has expired or is too much. When it is due again; Infinity: with the next
   * request.
   */
  tidy(nowMs: number): number {
    let dueMs = Number.POSITIVE_INFINITY
    let left = SLICE_BLOCKS
    for (const [workerSlot, table] of this.#tables) {
      if (left > 0) {
        const expired = table.takeExpired(nowMs, this.#slice)
        this.#release(workerSlot, table, expired)
        this.#expired += expired
        left -= expired
        if (left > 0 && table.isPruning) left -= this.#prune(workerSlot, table)
      }
      if (table.size === 0) this.#drop(workerSlot)
      else dueMs = Math.min(dueMs, this.#dueMs(table, nowMs))
    }
    this.#isTreePruned = this.#isTreePruned && dueMs <= nowMs
    return dueMs
  }

  /** Forgets a key. Reports of requests sent to it before this epoch are dropped from now on. */
  forget(workerSlot: number, epoch = 0): void {
    if (epoch > (this.#epochs.get(workerSlot) ?? 0)) this.#epochs.set(workerSlot, epoch)
    const table = this.#tables.get(workerSlot)
    if (table === undefined) return
    this.#changed(-table.size)
    this.#index.clear(this.#slots.slotOf(workerSlot, GUESSED_LAYER))
    this.#drop(workerSlot)
  }

  status(): GuessStatus {
    let bytes = 0
    for (const table of this.#tables.values()) bytes += table.bytes
    return {
      keys: this.#tables.size,
      blocks: this.#blocks,
      bytes,
      routed: this.#routed,
      expired: this.#expired,
      pruned: this.#pruned,
    }
  }

  /** Blocks guessed for a key. */
  blocksOf(workerSlot: number): number {
    return this.#tables.get(workerSlot)?.size ?? 0
  }

  #remember(id: string, routed: Routed): void {
    this.#recent.set(id, routed)
    if (this.#recent.size <= RECENT_GUESSES_MAX) return
    for (const oldest of this.#recent.keys()) {
      this.#recent.delete(oldest)
      return
    }
  }

  #hold(workerSlot: number, sequence: Int32Array, locals: Int32Array, known: number, count: number): void {
    const slot = this.#slots.slotOf(workerSlot, GUESSED_LAYER)
    if (known === count) return
    const above = known === 0 ? undefined : sequence.subarray(2 * known - 2, 2 * known)
    // A full index drops leaves first: while the last known block is held, so are those above it.
    const from = above === undefined || this.#index.has(slot, above) ? known : 0
    const parent = from === 0 ? undefined : above
    const rest = [sequence.subarray(2 * from), locals.subarray(2 * from)] as const
    this.#index.store(slot, parent, ...rest, count - from, 'set')
  }

  #prune(workerSlot: number, table: GuessTable): number {
    const taken = table.takePruned(this.#slice)
    this.#release(workerSlot, table, taken)
    this.#pruned += taken
    return taken
  }

  #changed(blocks: number): void {
    this.#blocks += blocks
    const { tree } = this.#options
    if (tree !== undefined) Atomics.store(tree.counts, tree.shard, this.#blocks)
  }

  /** If all shards together have too much, this one gives up its part of what is too much. */
  #pruneTree(): void {
    const { tree, pruneTargetRatio } = this.#options
    if (tree === undefined || this.#isTreePruned) return
    let total = 0
    for (let shard = 0; shard < tree.counts.length; shard++) total += Atomics.load(tree.counts, shard)
    if (total <= tree.blocksMax) return
    const surplus = total - Math.floor(tree.blocksMax * pruneTargetRatio)
    let left = Math.ceil((this.#blocks * surplus) / total)
    const byTick = new Map<number, [table: GuessTable, blocks: number][]>()
    for (const table of this.#tables.values())
      for (const [tick, blocks] of table.counts()) {
        const there = byTick.get(tick)
        if (there === undefined) byTick.set(tick, [[table, blocks]])
        else there.push([table, blocks])
      }
    const shares = new Map<GuessTable, number>()
    for (const tick of [...byTick.keys()].sort((a, b) => a - b)) {
      for (const [table, blocks] of byTick.get(tick)!) {
        const taken = Math.min(blocks, left)
        left -= taken
        shares.set(table, (shares.get(table) ?? 0) + taken)
      }
      if (left === 0) break
    }
    for (const [table, share] of shares) table.pruneTo(table.size - share)
    this.#isTreePruned = true
  }

  /** Makes room for `count` blocks among those that the tree gives up. */
  #pruneOthers(count: number): void {
    let room = count
    for (const [workerSlot, table] of this.#tables) {
      while (room > 0 && table.isPruning) {
        this.#prune(workerSlot, table)
        room -= SLICE_BLOCKS
      }
      if (table.size === 0) this.#drop(workerSlot)
      if (room <= 0) return
    }
  }

  #release(workerSlot: number, table: GuessTable, count: number): void {
    if (count === 0) return
    this.#changed(-count)
    const slot = this.#slots.slotOf(workerSlot, GUESSED_LAYER)
    // The table is empty: clear the whole slot, whatever the index still holds there.
    if (table.size === 0) this.#index.clear(slot)
    else this.#index.remove(slot, this.#slice, count)
  }

  #drop(workerSlot: number): void {
    this.#tables.delete(workerSlot)
    this.#slots.giveBack(workerSlot, GUESSED_LAYER)
  }

  #dueMs(table: GuessTable, nowMs: number): number {
    return table.isPruning ? nowMs : (table.nextExpiryMs ?? Number.POSITIVE_INFINITY)
  }
}
