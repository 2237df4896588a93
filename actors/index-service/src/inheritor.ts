/**
 * Inheritor: stands between the listeners of a shard and its indexer, and keeps the blocks that a peer's dump
 * named.
 *
 * In     messages of listeners to an indexer, passed on unchanged; `inherit` and `disinherit` from the
 *        service.
 * Out    to the indexer: every message meant for it. To a source: `resync` when the indexer did not take its
 *        events. A clear is retried until the indexer takes it, and nothing of its slot overtakes it: its
 *        sender was told that it was taken. A resync is retried until the source takes it.
 * Owns   a small index of its own, beside the shard: the blocks that a peer named for a worker slot, updated
 *        by the events since. Readers take the longer overlap of the two. Beside it, the labels of these
 *        blocks, and of blocks in pools that the peer named.
 *
 *   waiting ──`inherit`: the dump, then the events kept──▶ inherited ──`disinherit`, clear──▶ none
 *      └──────────`disinherit`, too many events────────────────────────────────────────────▶
 *
 * Invariants
 *   I1  The dump was requested after the source had connected, and the same epoch has lasted since: a clear
 *       drops everything. So the kept events reach back at least to the moment of the dump, and no removal is
 *       missed.
 *   I2  A block counts once here, however often it is stored: one copy too few loses credit early, one too
 *       many would keep it forever.
 *   I3  Events are read as the indexer reads them (CacheReading): a removal of a block that only the dump
 *       named counts, whatever its group.
 *   I4  A store is taken only below a block that is held here, with its own salt. If only the dump had the
 *       salt of a chain, the chain would be stored with wrong hashes, which no prompt finds.
 *
 * Fails  when it restarts, its index is emptied and nothing is inherited any more.
 */

import { type ActorContext, type ActorRef, defineActor, type Reply } from '@homing/actor'
import {
  type DumpMessage,
  EventLabels,
  type EventSourceMessage,
  type IndexerMessage,
  LayerSlots,
} from '@homing/actors/indexer'
import { namespaceSeed, writeStoreLocals } from '@homing/blocks'
import { KeyDumps } from '@homing/fleet'
import { BlockIndex, clearLabelMemory, type IndexMemory, type LabelMemory } from '@homing/index'
import {
  CacheReading,
  isContentKnown,
  type KvEvent,
  type KvLabels,
  type KvStored,
  type RemovableBlocks,
} from '@homing/protocol'

import type { PooledRun } from './dump-labels.ts'

/** A run of blocks of a dump, each the parent of the next; hashes are pairs [lo, hi]. */
export interface InheritedRun {
  /** The engine hash above the first block; undefined: it begins a prompt. */
  readonly parent: Int32Array | undefined
  readonly engineHashes: Int32Array
  readonly localHashes: Int32Array
  readonly labels?: KvLabels
}

/** What the service tells it. */
export type InheritanceMessage =
  /** A peer may have a word on this slot: keep its events until that is known. */
  | { readonly type: 'awaitInheritance'; readonly workerSlot: number; readonly blockSizeTokens: number }
  /**
   * The blocks of this slot, parents first. Answers how many count; 0: it has begun another epoch, or events
   * were too many.
   */
  | {
      readonly type: 'inherit'
      readonly workerSlot: number
      readonly runs: readonly InheritedRun[]
      /** Blocks in pools that it does not hold; default: none. */
      readonly pooled?: readonly PooledRun[]
      readonly reply: Reply<number>
    }
  | { readonly type: 'disinherit'; readonly workerSlot: number }
  | { readonly type: 'inheritedBlocks'; readonly reply: Reply<Readonly<Record<number, number>>> }
  /** Of the blocks that are inherited. */
  | DumpMessage

/** What a listener tells an indexer, and who gives the slot of a listener back. */
type PassedOn = Extract<IndexerMessage, { readonly type: 'apply' | 'clear' | 'release' | 'image' | 'load' }>

export type InheritorMessage =
  | PassedOn
  | InheritanceMessage
  /** Goes on with what its index has to tidy up. Of the inheritor to itself. */
  | { readonly type: 'maintain' }
  /** Tells again what found no room. Of the inheritor to itself. */
  | { readonly type: 'pay' }
  /** Ends a dump that was not asked for its next slice in time. Of the inheritor to itself. */
  | { readonly type: 'dumpIdle'; readonly dump: number }

export interface InheritorArgs {
  /** Made by `createIndexMemory` with the sizes below. */
  readonly memory: IndexMemory
  readonly capacityBytes: number
  readonly workerSlotsMax: number
  /** Of the labels of inherited blocks; undefined: none are inherited. */
  readonly labelMemory?: LabelMemory | undefined
  readonly indexer: ActorRef<IndexerMessage>
}

/** Blocks of the events kept for a slot that waits: more than an engine publishes while a peer answers. */
const KEPT_BLOCKS_MAX = 1 << 18
const INHERITOR_MAINTAIN_DELAY_MS = 5
const PAY_INTERVAL_MS = 5
const RESYNC: EventSourceMessage = {
  type: 'resync',
  cause: 'lost',
  reason: 'the indexer did not take its events',
}

interface Slot {
  readonly blockSizeTokens: number
  readonly reading: CacheReading
  /** Clears since it waits: the first one begins the epoch. */
  clears: number
  /** Undefined: it has inherited. */
  kept: KvEvent[] | undefined
  keptBlocks: number
}

export const inheritor = defineActor(
  import.meta.url,
  'inheritor',
)<InheritorMessage, InheritorArgs>({
  setup(context, args) {
    const state = new Inheritor(context, args)
    return {
      apply: message => state.apply(message),
      image: message => state.image(message),
      load: message => state.passOrResync(message),
      clear: ({ workerSlot }) => state.clear(workerSlot),
      pay: () => state.pay(),
      release: message => state.release(message),
      awaitInheritance: ({ workerSlot, blockSizeTokens }) =>
        state.awaitInheritance(workerSlot, blockSizeTokens),
      inherit: ({ workerSlot, runs, pooled, reply }) => reply(state.inherit(workerSlot, runs, pooled)),
      disinherit: ({ workerSlot }) => state.drop(workerSlot),
      inheritedBlocks: ({ reply }) => reply(state.blocks()),
      dump: ({ workerSlot, dump, isLabelled, reply }) =>
        reply(state.dumps.next(workerSlot, dump, true, isLabelled)),
      endDump: ({ dump }) => state.dumps.end(dump),
      dumpIdle: ({ dump }) => state.dumps.end(dump),
      maintain: () => state.maintain(),
    }
  },
})

type PassedOnAs<T extends PassedOn['type']> = Extract<PassedOn, { readonly type: T }>

class Inheritor {
  readonly dumps: KeyDumps
  readonly #context: ActorContext<InheritorMessage>
  readonly #indexer: ActorRef<IndexerMessage>
  readonly #index: BlockIndex
  readonly #labels: EventLabels
  readonly #slots = new Map<number, Slot>()
  /** Worker slots with a clear that the indexer had no room for. */
  readonly #owedClears = new Set<number>()
  /** Sources with a resync that they had no room for, by worker slot. */
  readonly #owedResyncs = new Map<number, ActorRef<EventSourceMessage>>()
  #paying: { cancel(): void } | undefined
  #isMaintaining = false

  constructor(context: ActorContext<InheritorMessage>, args: InheritorArgs) {
    const { memory, capacityBytes, workerSlotsMax } = args
    this.#context = context
    this.#indexer = args.indexer
    // The memory stays: its readers are not told of another one.
    this.#index = BlockIndex.create({
      memory,
      capacityBytes,
      workerSlotsMax,
      copies: 'set',
      swapBytesMin: capacityBytes + 1,
    })
    if (args.labelMemory !== undefined) clearLabelMemory(args.labelMemory)
    this.#labels = new EventLabels(this.#index, new LayerSlots(workerSlotsMax), args.labelMemory, false)
    this.dumps = new KeyDumps({
      index: this.#index,
      labels: this.#labels,
      ended: () => this.#maintain(),
      idleAfter: (delayMs, dump) => context.schedule(delayMs, { type: 'dumpIdle', dump }),
    })
  }

  apply(message: PassedOnAs<'apply'>): void {
    this.passOrResync(message)
    const { workerSlot, events } = message
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) return
    if (slot.kept === undefined) {
      for (const event of events) this.#bringForward(workerSlot, slot, event)
      return
    }
    for (const event of events) {
      slot.kept.push(event)
      slot.keptBlocks += event.kind === 'cleared' ? 1 : event.hashes.length / 2
    }
    if (slot.keptBlocks > KEPT_BLOCKS_MAX) this.drop(workerSlot)
  }

  image(message: PassedOnAs<'image'>): void {
    if (!this.#passOn(message)) message.reply(undefined)
  }

  passOrResync(message: Extract<PassedOn, { readonly source: unknown }>): void {
    if (this.#passOn(message)) return
    this.#owedResyncs.set(message.workerSlot, message.source)
    this.pay()
  }

  clear(workerSlot: number): void {
    this.#owedClears.add(workerSlot)
    // What it begins is whole again.
    this.#owedResyncs.delete(workerSlot)
    this.pay()
    const slot = this.#slots.get(workerSlot)
    if (slot === undefined) return
    slot.clears++
    if (slot.clears > 1) this.drop(workerSlot)
  }

  pay(): void {
    for (const workerSlot of this.#owedClears) this.#payClear(workerSlot)
    for (const [workerSlot, source] of this.#owedResyncs) {
      if (source.tell(RESYNC) !== 'full') this.#owedResyncs.delete(workerSlot)
    }
    if (this.#owedClears.size + this.#owedResyncs.size > 0) {
      this.#paying ??= this.#context.scheduleEvery(PAY_INTERVAL_MS, { type: 'pay' })
    } else {
      this.#paying?.cancel()
      this.#paying = undefined
    }
  }

  release(message: PassedOnAs<'release'>): void {
    const { workerSlot } = message
    this.drop(workerSlot)
    this.#owedResyncs.delete(workerSlot)
    // The caller asks again if it was not taken.
    if (this.#indexer.tell(message) === 'ok') this.#owedClears.delete(workerSlot)
  }

  awaitInheritance(workerSlot: number, blockSizeTokens: number): void {
    this.drop(workerSlot)
    const reading = new CacheReading()
    this.#slots.set(workerSlot, { blockSizeTokens, reading, clears: 0, kept: [], keptBlocks: 0 })
  }

  /** How many blocks count; 0: none was inherited. */
  inherit(workerSlot: number, runs: readonly InheritedRun[], pooled: readonly PooledRun[] = []): number {
    const slot = this.#slots.get(workerSlot)
    if (slot?.kept === undefined || slot.clears !== 1) {
      this.drop(workerSlot)
      return 0
    }
    const { kept } = slot
    slot.kept = undefined
    for (const { parent, engineHashes, localHashes, labels } of runs) {
      const outcome = this.#index.store(
        workerSlot,
        parent,
        engineHashes,
        localHashes,
        engineHashes.length / 2,
      )
      if (labels !== undefined && outcome === 'stored')
        this.#labels.stored(workerSlot, { hashes: engineHashes, parent, labels }, localHashes, true)
    }
    for (const { engineHashes, sequenceHashes, place, experts } of pooled) {
      for (let i = 0; 2 * i < engineHashes.length; i++) {
        this.#labels.pooled(workerSlot, {
          engineHash: [engineHashes[2 * i]!, engineHashes[2 * i + 1]!],
          sequenceHash: [sequenceHashes[2 * i]!, sequenceHashes[2 * i + 1]!],
          expert: experts[i],
          place,
        })
      }
    }
    for (const event of kept) this.#bringForward(workerSlot, slot, event)
    return this.#blocksOf(workerSlot)
  }

  /** Nothing is inherited for this slot any more. */
  drop(workerSlot: number): void {
    this.#slots.delete(workerSlot)
    this.#index.clear(workerSlot)
    this.#labels.clear(workerSlot)
    this.#maintain()
  }

  /** How many count, by worker slot. */
  blocks(): Record<number, number> {
    const blocks: Record<number, number> = {}
    for (const workerSlot of this.#slots.keys()) blocks[workerSlot] = this.#blocksOf(workerSlot)
    return blocks
  }

  /** Blocks may be in a pool only; those on their way there, or evicted, count for no query. */
  #blocksOf(workerSlot: number): number {
    return Math.max(this.#index.blocksHeld(workerSlot), this.#labels.pooledOf(workerSlot))
  }

  maintain(): void {
    this.#isMaintaining = false
    this.#maintain()
  }

  /**
   * Brings what is inherited forward by one event. Its labels, too: transitions change them, and where the
   * engine itself says something of a block, what the dump has said of it is over.
   */
  #bringForward(workerSlot: number, slot: Slot, event: KvEvent): void {
    if (event.kind === 'transition') this.#labels.transition(workerSlot, event)
    else applyInherited(this.#index, workerSlot, slot, event)
    if (event.kind === 'cleared') this.#labels.clear(workerSlot)
    else if (event.kind === 'removed') this.#labels.removed(workerSlot, event.hashes)
    else if (event.kind === 'stored' && event.labels !== undefined)
      this.#labels.forget(workerSlot, event.hashes)
  }

  #maintain(): void {
    if (this.#isMaintaining || !this.#index.maintain()) return
    this.#isMaintaining = true
    this.#context.schedule(INHERITOR_MAINTAIN_DELAY_MS, { type: 'maintain' })
  }

  /** False: the indexer did not take it. */
  #passOn(message: PassedOn): boolean {
    return this.#payClear(message.workerSlot) && this.#indexer.tell(message) === 'ok'
  }

  /** False: the indexer has no room for the clear of this slot yet. */
  #payClear(workerSlot: number): boolean {
    if (!this.#owedClears.has(workerSlot)) return true
    if (this.#indexer.tell({ type: 'clear', workerSlot }) === 'full') return false
    this.#owedClears.delete(workerSlot)
    return true
  }
}

/** Brings what is inherited forward by one event. What begins a prompt is the indexer's alone. */
function applyInherited(index: BlockIndex, workerSlot: number, slot: Slot, event: KvEvent): void {
  if (event.kind === 'cleared') {
    index.clear(workerSlot)
    slot.reading.cleared(event)
  } else if (event.kind === 'removed') {
    slot.reading.remove(event, deviceBlocks(index, workerSlot))
  } else if (event.kind === 'stored') {
    store(index, workerSlot, slot, event)
  }
}

/** A dump names blocks of the device alone. */
function deviceBlocks(index: BlockIndex, workerSlot: number): RemovableBlocks {
  return {
    remove: (tier, hashes, copies) =>
      tier === 'device' ? index.remove(workerSlot, hashes, hashes.length / 2, copies).removed : 0,
  }
}

function store(index: BlockIndex, workerSlot: number, slot: Slot, event: KvStored): void {
  const { hashes, localHashes, parent, blockSizeTokens, loraName, cacheSalt } = event
  const count = hashes.length / 2
  // Learns from it, so it comes first.
  if (slot.reading.faultOf(event) !== undefined) return
  if (event.tier !== 'device' || !isContentKnown(event) || blockSizeTokens !== slot.blockSizeTokens) return
  if (localHashes !== undefined && (cacheSalt ?? '') !== '') return
  if (parent === undefined || !index.has(workerSlot, parent)) return
  const locals = new Int32Array(hashes.length)
  writeStoreLocals(event, namespaceSeed({ loraName, cacheSalt }), locals)
  index.store(workerSlot, parent, hashes, locals, count)
}
