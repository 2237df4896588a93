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
 *        by the events since. Readers take the longer overlap of the two.
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

import { type ActorRef, defineActor, type Reply } from '@homing/actor'
import type { EventSourceMessage, IndexedBlock, IndexerMessage } from '@homing/actors/indexer'
import { formatHash, hashLocals, mediaOfBlocks, namespaceSeed } from '@homing/blocks'
import { BlockIndex, type IndexMemory } from '@homing/index'
import {
  CacheReading,
  isContentKnown,
  type KvEvent,
  type KvStored,
  type RemovableBlocks,
} from '@homing/protocol'

/** A run of blocks of a dump, each the parent of the next; hashes are pairs [lo, hi]. */
export interface InheritedRun {
  /** The engine hash above the first block; undefined: it begins a prompt. */
  readonly parent: Int32Array | undefined
  readonly engineHashes: Int32Array
  readonly localHashes: Int32Array
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
      readonly reply: Reply<number>
    }
  | { readonly type: 'disinherit'; readonly workerSlot: number }
  | { readonly type: 'inheritedBlocks'; readonly reply: Reply<Readonly<Record<number, number>>> }
  /** The blocks that count, parents first. */
  | {
      readonly type: 'dumpInherited'
      readonly workerSlot: number
      readonly reply: Reply<readonly IndexedBlock[]>
    }

/** What a listener tells an indexer, and who gives the slot of a listener back. */
type PassedOn = Extract<IndexerMessage, { readonly type: 'apply' | 'clear' | 'release' | 'image' | 'load' }>

export type InheritorMessage =
  | PassedOn
  | InheritanceMessage
  /** Goes on with what its index has to tidy up. Of the inheritor to itself. */
  | { readonly type: 'maintain' }
  /** Tells again what found no room. Of the inheritor to itself. */
  | { readonly type: 'pay' }

export interface InheritorArgs {
  /** Made by `createIndexMemory` with the sizes below. */
  readonly memory: IndexMemory
  readonly capacityBytes: number
  readonly workerSlotsMax: number
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
  setup(context, { memory, capacityBytes, workerSlotsMax, indexer }) {
    // The memory stays: its readers are not told of another one.
    const index = BlockIndex.create({
      memory,
      capacityBytes,
      workerSlotsMax,
      copies: 'set',
      swapBytesMin: capacityBytes + 1,
    })
    const slots = new Map<number, Slot>()
    let isMaintaining = false
    const maintain = (): void => {
      if (isMaintaining || !index.maintain()) return
      isMaintaining = true
      context.schedule(INHERITOR_MAINTAIN_DELAY_MS, { type: 'maintain' })
    }
    const drop = (workerSlot: number): void => {
      slots.delete(workerSlot)
      index.clear(workerSlot)
      maintain()
    }
    /** Worker slots with a clear that the indexer had no room for. */
    const owedClears = new Set<number>()
    /** Sources with a resync that they had no room for, by worker slot. */
    const owedResyncs = new Map<number, ActorRef<EventSourceMessage>>()
    let paying: { cancel(): void } | undefined
    const payClear = (workerSlot: number): boolean => {
      if (!owedClears.has(workerSlot)) return true
      if (indexer.tell({ type: 'clear', workerSlot }) === 'full') return false
      owedClears.delete(workerSlot)
      return true
    }
    const pay = (): void => {
      for (const workerSlot of owedClears) payClear(workerSlot)
      for (const [workerSlot, source] of owedResyncs) {
        if (source.tell(RESYNC) !== 'full') owedResyncs.delete(workerSlot)
      }
      if (owedClears.size + owedResyncs.size > 0) {
        paying ??= context.scheduleEvery(PAY_INTERVAL_MS, { type: 'pay' })
      } else {
        paying?.cancel()
        paying = undefined
      }
    }
    /** False: the indexer did not take it. */
    const passOn = (message: PassedOn): boolean =>
      payClear(message.workerSlot) && indexer.tell(message) === 'ok'
    const passOrResync = (message: Extract<PassedOn, { readonly source: unknown }>): void => {
      if (passOn(message)) return
      owedResyncs.set(message.workerSlot, message.source)
      pay()
    }

    return {
      apply(message) {
        passOrResync(message)
        const { workerSlot, events } = message
        const slot = slots.get(workerSlot)
        if (slot === undefined) return
        if (slot.kept === undefined) {
          for (const event of events) applyInherited(index, workerSlot, slot, event)
          return
        }
        for (const event of events) {
          slot.kept.push(event)
          slot.keptBlocks += event.kind === 'cleared' ? 1 : event.hashes.length / 2
        }
        if (slot.keptBlocks > KEPT_BLOCKS_MAX) drop(workerSlot)
      },
      image(message) {
        if (!passOn(message)) message.reply(undefined)
      },
      load: passOrResync,
      clear({ workerSlot }) {
        owedClears.add(workerSlot)
        // What it begins is whole again.
        owedResyncs.delete(workerSlot)
        pay()
        const slot = slots.get(workerSlot)
        if (slot === undefined) return
        slot.clears++
        if (slot.clears > 1) drop(workerSlot)
      },
      pay,
      release(message) {
        drop(message.workerSlot)
        owedResyncs.delete(message.workerSlot)
        // The caller asks again if it was not taken.
        if (indexer.tell(message) === 'ok') owedClears.delete(message.workerSlot)
      },

      awaitInheritance({ workerSlot, blockSizeTokens }) {
        drop(workerSlot)
        const reading = new CacheReading()
        slots.set(workerSlot, { blockSizeTokens, reading, clears: 0, kept: [], keptBlocks: 0 })
      },
      inherit({ workerSlot, runs, reply }) {
        const slot = slots.get(workerSlot)
        if (slot?.kept === undefined || slot.clears !== 1) {
          drop(workerSlot)
          reply(0)
          return
        }
        const { kept } = slot
        slot.kept = undefined
        for (const { parent, engineHashes, localHashes } of runs) {
          index.store(workerSlot, parent, engineHashes, localHashes, engineHashes.length / 2)
        }
        for (const event of kept) applyInherited(index, workerSlot, slot, event)
        reply(index.blocksHeld(workerSlot))
      },
      disinherit: ({ workerSlot }) => drop(workerSlot),
      inheritedBlocks({ reply }) {
        const blocks: Record<number, number> = {}
        for (const workerSlot of slots.keys()) blocks[workerSlot] = index.blocksHeld(workerSlot)
        reply(blocks)
      },
      dumpInherited({ workerSlot, reply }) {
        const blocks: IndexedBlock[] = []
        for (const { engineHash, parentEngineHash, localHash, isReachable } of index.dump(workerSlot)) {
          if (!isReachable) continue
          blocks.push({
            engineHash: formatHash(...engineHash),
            parentEngineHash: parentEngineHash && formatHash(...parentEngineHash),
            localHash: formatHash(...localHash),
          })
        }
        reply(blocks)
      },

      maintain() {
        isMaintaining = false
        maintain()
      },
    }
  },
})

/** Brings what is inherited forward by one event. What begins a prompt is the indexer's alone. */
function applyInherited(index: BlockIndex, workerSlot: number, slot: Slot, event: KvEvent): void {
  if (event.kind === 'cleared') {
    index.clear(workerSlot)
    slot.reading.cleared(event)
  } else if (event.kind === 'removed') {
    slot.reading.remove(event, deviceBlocks(index, workerSlot))
  } else {
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
  const { hashes, parent, tokens, blockSizeTokens, loraName, cacheSalt, mediaHashes } = event
  const count = hashes.length / 2
  // Learns from it, so it comes first.
  if (slot.reading.faultOf(event) !== undefined) return
  if (event.tier !== 'device' || !isContentKnown(event) || blockSizeTokens !== slot.blockSizeTokens) return
  if (parent === undefined || !index.has(workerSlot, parent)) return
  const locals = new Int32Array(hashes.length)
  const media = mediaOfBlocks(mediaHashes)
  hashLocals(tokens, blockSizeTokens, namespaceSeed({ loraName, cacheSalt }), locals, 0, { media })
  index.store(workerSlot, parent, hashes, locals, count)
}
