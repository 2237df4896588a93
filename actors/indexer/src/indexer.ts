/**
 * Indexer: the only writer of one shard of the prefix index.
 *
 * In     KV events of the worker keys of this shard, from their listeners; clears. From the router: blocks of
 *        requests that it sent to them; from the directory: when these are to be forgotten.
 * Out    nothing while serving: readers look at the shared memory directly. To a source: `resync` when its
 *        events cannot be applied, `learned` when its blocks have another size than assumed, `incomplete`
 *        when some of its blocks may have been dropped. To observers: `shardReset` when this indexer has
 *        restarted. To attached readers: `shardMemory` when the shard has moved to other memory, or other
 *        worker keys hold blocks in lower tiers.
 * Owns   the shard, the labels of its blocks, and per worker slot the state of `EventApplier` and `Guesses`.
 * Order  events of one worker key arrive as published; between worker keys there is no order,
 *        and none is needed. Cleared blocks stop counting at once; their memory is swept in slices of about
 *        a fifth of a millisecond, after batches and in pauses.
 *        A prompt with separators is announced before it is sent, and so before its events.
 * Fails  orphans beyond their bound: the source is resynced. Anything else stops the actor; it restarts with
 *        an empty shard and without guesses. A source that goes on sending must resync at once, because
 *        its slot is not open; the directory, which observes, resyncs a silent one.
 * Full   the mailbox refuses: the listener keeps the batch and tries again.
 */

import { type ActorContext, type ActorRef, defineActor, signal } from '@homing/actor'
import { KeyDumps } from '@homing/fleet/key-dumps'
import {
  BlockIndex,
  IMAGE_BLOCKS_MAX,
  type IndexMemory,
  type LabelMemory,
  layeredOptions,
  type TreeSample,
} from '@homing/index'
import { EventApplier } from './event-applier.ts'
import { Guesses } from './guesses.ts'
import type { IndexerArgs } from './indexer-args.ts'
import { LayerSlots } from './layer-slots.ts'
import type { EventSourceMessage, KeyImage, ShardMemoryMessage, ShardMessage } from './messages.ts'

/** Bytes of the shard per block that may be guessed. */
const GUESS_BYTES = 128
const PRUNE_TARGET_RATIO = 0.8

const UNCLEAR =
  'prompts are sent with a cache salt, an adapter or an extra key to an engine that does not name it in its events: blocks that may be theirs are credited to nobody'

/** Pause between two slices of what the index has to tidy up. */
const MAINTAIN_DELAY_MS = 1
const RETELL_MS = 100
/** Delay from dropped blocks until the sources are notified. */
const ROOM_LOOK_MS = 50

export const indexer = defineActor(
  import.meta.url,
  'indexer',
)<ShardMessage, IndexerArgs>({
  setup(context, args) {
    const state = new Indexer(context, args)
    return {
      apply: message => state.apply(message),
      lookAtRoom: () => state.lookAtRoom(),
      retell: ({ source, message }) => state.tellSource(source, message),
      image: ({ workerSlot, reply }) => reply(state.image(workerSlot)),
      load: message => state.load(message),
      clear: ({ workerSlot, isParted }) => state.clear(workerSlot, isParted),
      evictedElsewhere: ({ events }) => state.evictedElsewhere(events),
      fence: ({ reply }) => reply('passed'),
      release: ({ workerSlot, reply }) => state.release(workerSlot, reply),
      routed: blocks => state.routed(blocks),
      unrouted: blocks => state.unrouted(blocks),
      separated: message => state.separated(message),
      forgetSeparated: ({ workerSlot, epoch }) => state.applier.forgetSeparated(workerSlot, epoch),
      forgetRouted: ({ workerSlot, epoch }) => state.forgetRouted(workerSlot, epoch),
      tidyGuesses: () => state.tidyGuesses(),
      maintain: () => state.maintain(),
      attach: ({ reader, memoryNumber }) => state.attach(reader, memoryNumber),
      observe: ({ incarnation, observer }) => state.observe(incarnation, observer),
      takeChurn: ({ workerSlot, reply }) => reply(state.applier.takeChurn(workerSlot)),
      status: ({ reply }) => reply({ ...state.applier.status(), guesses: state.guesses.status() }),
      sampleTree: ({ options, reply }) => reply(state.sampleTree(options)),
      sampleLabels: ({ options, reply }) => reply(state.applier.labels.sample(options)),
      dump: ({ workerSlot, dump, isLabelled, reply }) =>
        reply(state.dumps.next(workerSlot, dump, state.applier.isOpen(workerSlot), isLabelled)),
      endDump: ({ dump }) => state.dumps.end(dump),
      dumpIdle: ({ dump }) => state.dumps.end(dump),
      [signal](event) {
        if (event.type === 'terminated') state.readers.detach(event.ref)
      },
    }
  },
})

type MessageOf<T extends ShardMessage['type']> = Extract<ShardMessage, { readonly type: T }>

class Indexer {
  readonly readers: Readers
  readonly applier: EventApplier
  readonly guesses: Guesses
  readonly dumps: KeyDumps
  readonly #context: ActorContext<ShardMessage>
  readonly #shard: number
  readonly #incarnation: number
  readonly #slots: LayerSlots
  readonly #index: BlockIndex
  /** By worker slot that is open. */
  readonly #sources = new Map<number, ActorRef<EventSourceMessage>>()
  /** Worker slots whose sources know that blocks were dropped. */
  readonly #lacking = new Set<number>()
  #droppedBlocks = 0
  #isRoomLooked = false
  #isMaintaining = false
  #tidyDueMs = Number.POSITIVE_INFINITY
  #tidyTimer: { cancel: () => void } | undefined

  constructor(context: ActorContext<ShardMessage>, args: IndexerArgs) {
    const { shard, memory, capacityBytes, workerSlotsMax, pruneTargetRatio, guesses } = args
    const { random, log } = context
    this.#context = context
    this.#shard = shard
    this.#slots = new LayerSlots(workerSlotsMax)
    this.#incarnation = random.below(2 ** 32)
    this.readers = new Readers(
      shard,
      this.#incarnation,
      this.#slots,
      random.below(2 ** 31),
      () => this.applier.labels.memory,
    )
    this.#index = BlockIndex.create({
      ...layeredOptions(capacityBytes, workerSlotsMax),
      memory,
      onMemory: moved => this.readers.announce(moved),
    })
    this.applier = new EventApplier(
      this.#index,
      this.#slots,
      args.labelBytes,
      args.keepsOrphans,
      args.labelShape,
    )
    this.guesses = new Guesses(this.#index, this.#slots, {
      blocksMax: Math.floor(capacityBytes / GUESS_BYTES),
      pruneTargetRatio: pruneTargetRatio ?? PRUNE_TARGET_RATIO,
      tree: guesses && { blocksMax: guesses.blocksMax, counts: new Int32Array(guesses.counts), shard },
    })
    this.dumps = new KeyDumps({
      index: this.#index,
      labels: this.applier.labels,
      ended: () => this.#maintain(),
      idleAfter: (delayMs, dump) => context.schedule(delayMs, { type: 'dumpIdle', dump }),
    })
    const { capacityHalvings, bytesLimit } = this.#index.stats()
    if (capacityHalvings > 0)
      log.warn({ shard, capacityBytes, bytesLimit }, 'not enough memory for the whole shard')
  }

  apply({ workerSlot, blockSizeTokens, events, source }: MessageOf<'apply'>): void {
    const { log } = this.#context
    const shard = this.#shard
    const report = this.applier.apply(workerSlot, blockSizeTokens, events)
    const { resync, learnedBlockSizeTokens, lacks, isUnclear } = report
    if (report.wasCleared) this.#forget(workerSlot)
    this.#applied(workerSlot, source)
    if (resync !== undefined) {
      log.warn({ shard, workerSlot, reason: resync.reason }, 'events cannot be applied')
      this.tellSource(source, { type: 'resync', ...resync })
    }
    if (learnedBlockSizeTokens !== undefined) {
      this.tellSource(source, { type: 'learned', blockSizeTokens: learnedBlockSizeTokens })
    }
    if (lacks !== undefined) this.#incomplete(workerSlot, lacks)
    if (isUnclear) log.warn({ shard, workerSlot }, UNCLEAR)
  }

  /** It is unknown whose blocks were dropped to make room, so every worker key of the shard may lack some. */
  lookAtRoom(): void {
    this.#isRoomLooked = false
    const { evictedForSpace, refusedBlocks } = this.#index.stats()
    if (evictedForSpace + refusedBlocks === this.#droppedBlocks) return
    this.#droppedBlocks = evictedForSpace + refusedBlocks
    for (const workerSlot of this.#sources.keys()) {
      if (this.#lacking.has(workerSlot)) continue
      this.#lacking.add(workerSlot)
      this.#incomplete(workerSlot, 'the index is full and has dropped blocks (--index-bytes)')
    }
  }

  /** Each word is said once, so one that finds no room is said again. */
  tellSource(source: ActorRef<EventSourceMessage>, message: EventSourceMessage): void {
    if (source.tell(message) === 'full')
      this.#context.schedule(RETELL_MS, { type: 'retell', source, message })
  }

  image(workerSlot: number): KeyImage | undefined {
    const image = this.applier.image(workerSlot)
    if (image === undefined && this.applier.isOpen(workerSlot)) {
      const fields = { shard: this.#shard, workerSlot, blocksMax: IMAGE_BLOCKS_MAX }
      this.#context.log.warn(fields, 'too many blocks for a checkpoint')
    }
    return image
  }

  load({ workerSlot, image, source }: MessageOf<'load'>): void {
    if (!this.applier.isOpen(workerSlot)) {
      this.tellSource(source, { type: 'resync', cause: 'lost', reason: 'the index was reset' })
      return
    }
    const isWhole = this.applier.load(workerSlot, image)
    this.#applied(workerSlot, source)
    if (isWhole) return
    this.#context.log.warn({ shard: this.#shard, workerSlot }, 'no room for the whole checkpoint')
    this.#incomplete(workerSlot, 'there was no room for its whole checkpoint')
  }

  evictedElsewhere(events: MessageOf<'evictedElsewhere'>['events']): void {
    for (const event of events) this.applier.labels.evictedElsewhere(event)
  }

  clear(workerSlot: number, isParted?: boolean): void {
    this.#forget(workerSlot)
    this.applier.open(workerSlot, isParted)
    this.readers.announceLayers(this.#index.memory)
    this.#maintain()
  }

  release(workerSlot: number, reply: MessageOf<'release'>['reply']): void {
    this.#forget(workerSlot)
    this.#sources.delete(workerSlot)
    this.applier.release(workerSlot)
    reply('released')
    this.readers.announceLayers(this.#index.memory)
    this.#maintain()
  }

  routed(blocks: MessageOf<'routed'>): void {
    this.#tidyAt(this.guesses.routed(blocks, this.#context.clock.nowMs()))
    this.#maintain()
  }

  unrouted(blocks: MessageOf<'unrouted'>): void {
    this.guesses.unrouted(blocks)
    this.#maintain()
  }

  separated({ workerSlot, prompt, epoch }: MessageOf<'separated'>): void {
    const lacks = this.applier.separated(workerSlot, prompt, epoch)
    if (lacks !== undefined) this.#incomplete(workerSlot, lacks)
  }

  forgetRouted(workerSlot: number, epoch: number): void {
    this.guesses.forget(workerSlot, epoch)
    this.#maintain()
  }

  tidyGuesses(): void {
    this.#tidyDueMs = Number.POSITIVE_INFINITY
    this.#tidyAt(this.guesses.tidy(this.#context.clock.nowMs()))
    this.#maintain()
  }

  maintain(): void {
    this.#isMaintaining = false
    this.#maintain()
  }

  attach(reader: MessageOf<'attach'>['reader'], memoryNumber: number | undefined): void {
    this.#context.watch(reader)
    this.readers.attach(reader, memoryNumber, this.#index.memory)
  }

  observe(known: number | undefined, observer: MessageOf<'observe'>['observer']): void {
    const incarnation = this.#incarnation
    if (known === incarnation) return
    const openSlots = this.applier.openSlots()
    observer.tell({ type: 'shardReset', shard: this.#shard, incarnation, openSlots })
  }

  sampleTree(options: MessageOf<'sampleTree'>['options']): TreeSample & { readonly hasLabels: boolean } {
    const sample = this.#index.sampleTree({ ...options, keysMax: this.#slots.keysMax })
    return { ...sample, hasLabels: this.applier.labels.hasRecords }
  }

  #applied(workerSlot: number, source: ActorRef<EventSourceMessage>): void {
    this.#sources.set(workerSlot, source)
    this.readers.announceLayers(this.#index.memory)
    this.#maintain()
    if (this.#isRoomLooked) return
    this.#isRoomLooked = true
    this.#context.schedule(ROOM_LOOK_MS, { type: 'lookAtRoom' })
  }

  #incomplete(workerSlot: number, reason: string): void {
    const source = this.#sources.get(workerSlot)
    if (source !== undefined) this.tellSource(source, { type: 'incomplete', reason })
  }

  /** Forgets the guesses and notices about the blocks of this slot, which are gone. */
  #forget(workerSlot: number): void {
    this.guesses.forget(workerSlot)
    this.#lacking.delete(workerSlot)
  }

  /** One message at a time: between two, events are applied. */
  #maintain(): void {
    if (this.#isMaintaining || !this.applier.maintain()) return
    this.#isMaintaining = true
    this.#context.schedule(MAINTAIN_DELAY_MS, { type: 'maintain' })
  }

  #tidyAt(dueMs: number): void {
    if (dueMs >= this.#tidyDueMs) return
    this.#tidyTimer?.cancel()
    this.#tidyDueMs = dueMs
    const delayMs = Math.max(0, dueMs - this.#context.clock.nowMs())
    this.#tidyTimer = this.#context.schedule(delayMs, { type: 'tidyGuesses' })
  }
}

/** The readers that get the shard's memory, and the lower tiers in use. */
class Readers {
  readonly #shard: number
  readonly #incarnation: number
  readonly #refs = new Map<string, ActorRef<ShardMemoryMessage>>()
  readonly #slots: LayerSlots
  readonly #labels: () => LabelMemory | undefined
  #memoryNumber: number
  /** Version of the layers that were announced last. */
  #lowerRevision = 0

  /** @param memoryNumber Differs from those of other lives of this indexer. */
  constructor(
    shard: number,
    incarnation: number,
    slots: LayerSlots,
    memoryNumber: number,
    labels: () => LabelMemory | undefined,
  ) {
    this.#shard = shard
    this.#labels = labels
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

  /** Sends the memory again when other worker keys, or other tiers of theirs, hold blocks in lower tiers. */
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
      labels: this.#labels(),
    })
  }
}
