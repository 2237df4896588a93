/**
 * Indexer: the only writer of one shard of the prefix index.
 *
 * In     KV events of the worker keys of this shard, from their listeners; clears. From the router: blocks of
 *        requests that it sent to them; from the directory: when these are to be forgotten.
 * Out    nothing while serving: readers look at the shared memory directly. To a source: `resync` when its
 *        events cannot be applied, `learned` when its blocks have another size than assumed, `incomplete`
 *        when some of its blocks may have been dropped. To observers: `shardReset` when this indexer has
 *        restarted. To attached readers: `shardMemory` when the shard is in other memory than theirs, or
 *        other worker keys hold blocks in lower tiers.
 * Owns   the shard, and per worker slot the state of `EventApplier` and `Guesses`.
 * Order  events of one worker key arrive as published; between worker keys there is no order,
 *        and none is needed. Cleared blocks stop counting at once; their memory is swept in slices of about
 *        a fifth of a millisecond, after batches and in pauses.
 *        A prompt with separators is announced before it is sent, and so before its events.
 * Fails  orphans beyond their bound: the source is resynced. Anything else stops the actor; it restarts with
 *        an empty shard and without guesses. A source that goes on sending is told to resync at once, because
 *        its slot is not open; the directory, which observes, resyncs a silent one.
 * Full   the mailbox refuses: the listener keeps the batch and tries again.
 */

import { type ActorRef, defineActor, signal } from '@homing/actor'
import { BlockIndex, IMAGE_BLOCKS_MAX, type IndexMemory, layeredOptions } from '@homing/index'
import { EventApplier } from './event-applier.ts'
import { Guesses } from './guesses.ts'
import type { IndexerArgs } from './indexer-args.ts'
import { LayerSlots } from './layer-slots.ts'
import type { EventSourceMessage, ShardMemoryMessage, ShardMessage } from './messages.ts'

/** Bytes of the shard per block that may be guessed. */
const GUESS_BYTES = 128
const PRUNE_TARGET_RATIO = 0.8

const UNCLEAR =
  'prompts are sent with a cache salt, an adapter or an extra key to an engine that does not name it in its events: blocks that may be theirs are credited to nobody'

/** Pause between two slices of what the index has to tidy up. */
const MAINTAIN_DELAY_MS = 1
const RETELL_MS = 100
/** How long blocks may have been dropped before the sources are told. */
const ROOM_LOOK_MS = 50

export const indexer = defineActor(
  import.meta.url,
  'indexer',
)<ShardMessage, IndexerArgs>({
  setup(context, { shard, memory, capacityBytes, workerSlotsMax, pruneTargetRatio }) {
    const { log, random, clock } = context
    const slots = new LayerSlots(workerSlotsMax)
    const incarnation = random.below(2 ** 32)
    const readers = new Readers(shard, incarnation, slots, random.below(2 ** 31))
    const index = BlockIndex.create({
      ...layeredOptions(capacityBytes, workerSlotsMax),
      memory,
      onMemory: moved => readers.announce(moved),
    })
    const applier = new EventApplier(index, slots)
    const guesses = new Guesses(index, slots, {
      blocksMax: Math.floor(capacityBytes / GUESS_BYTES),
      pruneTargetRatio: pruneTargetRatio ?? PRUNE_TARGET_RATIO,
    })
    let isMaintaining = false
    /** One message at a time: between two, events are applied. */
    const maintain = () => {
      if (isMaintaining || !applier.maintain()) return
      isMaintaining = true
      context.schedule(MAINTAIN_DELAY_MS, { type: 'maintain' })
    }
    /** By worker slot that is open. */
    const sources = new Map<number, ActorRef<EventSourceMessage>>()
    /** Each word is said once, so one that finds no room is said again. */
    const tellSource = (source: ActorRef<EventSourceMessage>, message: EventSourceMessage) => {
      if (source.tell(message) === 'full') context.schedule(RETELL_MS, { type: 'retell', source, message })
    }
    const incomplete = (workerSlot: number, reason: string) => {
      const source = sources.get(workerSlot)
      if (source !== undefined) tellSource(source, { type: 'incomplete', reason })
    }
    /** Worker slots that were told that blocks were dropped. */
    const lacking = new Set<number>()
    let droppedBlocks = 0
    let isRoomLooked = false
    /** Whose blocks were dropped to make room is not known: none of the shard is whole any more. */
    const lookForDropped = () => {
      const { evictedForSpace, refusedBlocks } = index.stats()
      if (evictedForSpace + refusedBlocks === droppedBlocks) return
      droppedBlocks = evictedForSpace + refusedBlocks
      for (const workerSlot of sources.keys()) {
        if (lacking.has(workerSlot)) continue
        lacking.add(workerSlot)
        incomplete(workerSlot, 'the index is full and has dropped blocks (--index-bytes)')
      }
    }
    const applied = (workerSlot: number, source: ActorRef<EventSourceMessage>) => {
      sources.set(workerSlot, source)
      readers.announceLayers(index.memory)
      maintain()
      if (isRoomLooked) return
      isRoomLooked = true
      context.schedule(ROOM_LOOK_MS, { type: 'lookAtRoom' })
    }
    let tidyDueMs = Number.POSITIVE_INFINITY
    let tidyTimer: { cancel: () => void } | undefined
    const tidyAt = (dueMs: number) => {
      if (dueMs >= tidyDueMs) return
      tidyTimer?.cancel()
      tidyDueMs = dueMs
      tidyTimer = context.schedule(Math.max(0, dueMs - clock.nowMs()), { type: 'tidyGuesses' })
    }
    const stats = index.stats()
    if (stats.capacityHalvings > 0) {
      log.warn(
        { shard, capacityBytes, bytesLimit: stats.bytesLimit },
        'not enough memory for the whole shard',
      )
    }

    return {
      apply({ workerSlot, blockSizeTokens, events, source }) {
        const report = applier.apply(workerSlot, blockSizeTokens, events)
        const { resync, learnedBlockSizeTokens, lacks, isUnclear } = report
        if (report.wasCleared) {
          guesses.forget(workerSlot)
          lacking.delete(workerSlot)
        }
        applied(workerSlot, source)
        if (resync !== undefined) {
          log.warn({ shard, workerSlot, reason: resync.reason }, 'events cannot be applied')
          tellSource(source, { type: 'resync', ...resync })
        }
        if (learnedBlockSizeTokens !== undefined) {
          tellSource(source, { type: 'learned', blockSizeTokens: learnedBlockSizeTokens })
        }
        if (lacks !== undefined) incomplete(workerSlot, lacks)
        if (isUnclear) log.warn({ shard, workerSlot }, UNCLEAR)
      },
      lookAtRoom() {
        isRoomLooked = false
        lookForDropped()
      },
      retell({ source, message }) {
        tellSource(source, message)
      },
      image({ workerSlot, reply }) {
        const image = applier.image(workerSlot)
        if (image === undefined && applier.isOpen(workerSlot)) {
          log.warn({ shard, workerSlot, blocksMax: IMAGE_BLOCKS_MAX }, 'too many blocks for a checkpoint')
        }
        reply(image)
      },
      load({ workerSlot, image, source }) {
        if (!applier.isOpen(workerSlot)) {
          tellSource(source, { type: 'resync', cause: 'lost', reason: 'the index was reset' })
          return
        }
        const isWhole = applier.load(workerSlot, image)
        applied(workerSlot, source)
        if (isWhole) return
        log.warn({ shard, workerSlot }, 'no room for the whole checkpoint')
        incomplete(workerSlot, 'there was no room for its whole checkpoint')
      },
      clear({ workerSlot }) {
        guesses.forget(workerSlot)
        lacking.delete(workerSlot)
        applier.open(workerSlot)
        readers.announceLayers(index.memory)
        maintain()
      },
      release({ workerSlot, reply }) {
        guesses.forget(workerSlot)
        lacking.delete(workerSlot)
        sources.delete(workerSlot)
        applier.release(workerSlot)
        reply('released')
        readers.announceLayers(index.memory)
        maintain()
      },
      routed(blocks) {
        tidyAt(guesses.routed(blocks, clock.nowMs()))
        maintain()
      },
      unrouted(blocks) {
        guesses.unrouted(blocks)
        maintain()
      },
      separated({ workerSlot, prompt, epoch }) {
        const lacks = applier.separated(workerSlot, prompt, epoch)
        if (lacks !== undefined) incomplete(workerSlot, lacks)
      },
      forgetSeparated({ workerSlot, epoch }) {
        applier.forgetSeparated(workerSlot, epoch)
      },
      forgetRouted({ workerSlot, epoch }) {
        guesses.forget(workerSlot, epoch)
        maintain()
      },
      tidyGuesses() {
        tidyDueMs = Number.POSITIVE_INFINITY
        tidyAt(guesses.tidy(clock.nowMs()))
        maintain()
      },
      maintain() {
        isMaintaining = false
        maintain()
      },
      attach({ reader, memoryNumber }) {
        context.watch(reader)
        readers.attach(reader, memoryNumber, index.memory)
      },
      observe({ incarnation: known, observer }) {
        if (known === incarnation) return
        observer.tell({ type: 'shardReset', shard, incarnation, openSlots: applier.openSlots() })
      },
      status({ reply }) {
        reply({ ...applier.status(), guesses: guesses.status() })
      },
      sampleTree({ options, reply }) {
        reply(index.sampleTree({ ...options, keysMax: slots.keysMax }))
      },
      dump({ workerSlot, reply }) {
        reply(applier.dump(workerSlot))
      },
      [signal](event) {
        if (event.type === 'terminated') readers.detach(event.ref)
      },
    }
  },
})

/** The readers that are told where the shard is, and which lower tiers it has. */
class Readers {
  readonly #shard: number
  readonly #incarnation: number
  readonly #refs = new Map<string, ActorRef<ShardMemoryMessage>>()
  readonly #slots: LayerSlots
  #memoryNumber: number
  /** Version of the layers that were announced last. */
  #lowerRevision = 0

  /** @param memoryNumber Differs from those of other lives of this indexer. */
  constructor(shard: number, incarnation: number, slots: LayerSlots, memoryNumber: number) {
    this.#shard = shard
    this.#incarnation = incarnation
    this.#slots = slots
    this.#memoryNumber = memoryNumber
  }

  attach(reader: ActorRef<ShardMemoryMessage>, memoryNumber: number | undefined, memory: IndexMemory): void {
    this.#refs.set(reader.key, reader)
    if (memoryNumber !== this.#memoryNumber) this.#tell(reader, memory)
  }

  detach(reader: { readonly key: string }): void {
    this.#refs.delete(reader.key)
  }

  /** The shard has moved. */
  announce(memory: IndexMemory): void {
    this.#memoryNumber++
    for (const reader of this.#refs.values()) this.#tell(reader, memory)
  }

  /** Tells it again where other worker keys, or other tiers of them, hold something in lower tiers. */
  announceLayers(memory: IndexMemory): void {
    if (this.#lowerRevision === this.#slots.lowerRevision) return
    this.#lowerRevision = this.#slots.lowerRevision
    this.announce(memory)
  }

  #tell(reader: ActorRef<ShardMemoryMessage>, memory: IndexMemory): void {
    reader.tell({
      type: 'shardMemory',
      shard: this.#shard,
      incarnation: this.#incarnation,
      memoryNumber: this.#memoryNumber,
      memory,
      lowerLayers: this.#slots.lowerLayers(),
    })
  }
}
