/**
 * Predictions: what was sent to worker keys, as blocks of their predicted layer, for as long as it is believed.
 *
 *   a request was sent to a key ─▶ its blocks are held, until their expiry ─▶ removed, in slices
 *   sent again                  ─▶ the expiry of the whole prefix moves
 *
 * Owns   a PredictionTable per key, and the predicted layer of every key in the index.
 * Bounds per key what the caller says, usually what its engine can hold; all keys of the shard together
 *        `blocksMax`. A key that goes beyond either is pruned to `pruneTargetRatio` of its bound, or of
 *        what it has: earliest expiry first, the deepest first. A table that holds more than it may, because
 *        slices of its pruning are still to come, gives up as many blocks as it takes in.
 * Fences a key is forgotten with an epoch; what was sent there in an earlier one says nothing, and is dropped.
 * Names  the blocks go by their sequence hashes: nothing else names them before an engine does.
 */

import { chainSequence } from '@homing/blocks'
import { type BlockIndex, PREDICTED_LAYER } from '@homing/index'
import type { LayerSlots } from './layer-slots.ts'
import { PredictionTable } from './prediction-table.ts'

export interface PredictionOptions {
  /** Most blocks of all keys of the shard. */
  readonly blocksMax: number
  /** 0 … 1. */
  readonly pruneTargetRatio: number
}

/** What was sent where. */
export interface RoutedBlocks {
  readonly workerSlot: number
  /** Of the worker key. */
  readonly epoch: number
  /** Pairs [lo, hi] of the full blocks of the prompt. */
  readonly localHashes: Int32Array
  /** How long it is believed. */
  readonly ttlMs: number
  /** Most blocks of this key. */
  readonly blocksMax: number
}

/** Counters since the indexer began, and the present. */
export interface PredictionStatus {
  /** Worker keys with predictions. */
  readonly keys: number
  readonly blocks: number
  /** Of the tables, besides what the blocks take in the index. */
  readonly bytes: number
  readonly routed: number
  readonly expired: number
  readonly pruned: number
}

/** What one message takes out: about half a millisecond. */
const SLICE_BLOCKS = 2048

export class Predictions {
  readonly #index: BlockIndex
  readonly #slots: LayerSlots
  readonly #options: PredictionOptions
  readonly #tables = new Map<number, PredictionTable>()
  /** By key: what was sent in an earlier epoch is dropped. */
  readonly #epochs = new Map<number, number>()
  readonly #slice = new Int32Array(2 * SLICE_BLOCKS)
  #blocks = 0
  #routed = 0
  #expired = 0
  #pruned = 0

  constructor(index: BlockIndex, slots: LayerSlots, options: PredictionOptions) {
    this.#index = index
    this.#slots = slots
    this.#options = options
  }

  /** Takes a request in. Milliseconds of the clock at which `tidy` is due. */
  routed({ workerSlot, epoch, localHashes, ttlMs, blocksMax }: RoutedBlocks, nowMs: number): number {
    if (epoch < (this.#epochs.get(workerSlot) ?? epoch)) return Number.POSITIVE_INFINITY
    const count = Math.min(localHashes.length / 2, blocksMax)
    if (count === 0 || !this.#slots.take(workerSlot, PREDICTED_LAYER)) return Number.POSITIVE_INFINITY
    const table = this.#tables.get(workerSlot) ?? new PredictionTable()
    this.#tables.set(workerSlot, table)
    for (let room = count; room > 0 && table.isPruning; room -= SLICE_BLOCKS) this.#prune(workerSlot, table)
    this.#routed++
    const sequenceHashes = chainSequence(localHashes, count)
    const sizeBefore = table.size
    const known = table.add(sequenceHashes, count, nowMs + ttlMs)
    this.#blocks += table.size - sizeBefore
    this.#hold(workerSlot, sequenceHashes, localHashes, known, count)
    const { pruneTargetRatio, blocksMax: allMax } = this.#options
    if (table.size > blocksMax) table.pruneTo(Math.floor(blocksMax * pruneTargetRatio))
    else if (this.#blocks > allMax) table.pruneTo(Math.floor(table.size * pruneTargetRatio))
    return this.#dueMs(table, nowMs)
  }

  /** Takes out a slice of what has expired or is too much. When it is due again; Infinity: with the next request. */
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
    return dueMs
  }

  /** Forgets a key. What is said to have been sent there before this epoch is dropped from now on. */
  forget(workerSlot: number, epoch = 0): void {
    if (epoch > (this.#epochs.get(workerSlot) ?? 0)) this.#epochs.set(workerSlot, epoch)
    const table = this.#tables.get(workerSlot)
    if (table === undefined) return
    this.#blocks -= table.size
    this.#index.clear(this.#slots.slotOf(workerSlot, PREDICTED_LAYER))
    this.#drop(workerSlot)
  }

  status(): PredictionStatus {
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

  /** Blocks predicted for a key. */
  blocksOf(workerSlot: number): number {
    return this.#tables.get(workerSlot)?.size ?? 0
  }

  #hold(workerSlot: number, sequence: Int32Array, locals: Int32Array, known: number, count: number): void {
    const slot = this.#slots.slotOf(workerSlot, PREDICTED_LAYER)
    if (known === count) return
    const above = known === 0 ? undefined : sequence.subarray(2 * known - 2, 2 * known)
    // A full index drops leaves first: while the last known block is held, so are those above it.
    const from = above === undefined || this.#index.has(slot, above) ? known : 0
    const parent = from === 0 ? undefined : above
    const rest = [sequence.subarray(2 * from), locals.subarray(2 * from)] as const
    this.#index.store(slot, parent, ...rest, count - from, 'set')
  }

  #prune(workerSlot: number, table: PredictionTable): number {
    const taken = table.takePruned(this.#slice)
    this.#release(workerSlot, table, taken)
    this.#pruned += taken
    return taken
  }

  #release(workerSlot: number, table: PredictionTable, count: number): void {
    if (count === 0) return
    this.#blocks -= count
    const slot = this.#slots.slotOf(workerSlot, PREDICTED_LAYER)
    // Nothing is left: at once, whatever the index may still hold of it.
    if (table.size === 0) this.#index.clear(slot)
    else this.#index.remove(slot, this.#slice, count)
  }

  #drop(workerSlot: number): void {
    this.#tables.delete(workerSlot)
    this.#slots.giveBack(workerSlot, PREDICTED_LAYER)
  }

  #dueMs(table: PredictionTable, nowMs: number): number {
    return table.isPruning ? nowMs : (table.nextExpiryMs ?? Number.POSITIVE_INFINITY)
  }
}
