/**
 * Indexer: the only writer of one shard of the prefix index.
 *
 * In     KV events of the worker keys of this shard, from their listeners; clears.
 * Out    nothing while serving: readers look at the shared memory directly. To a source: `resync` when
 *        its events cannot be applied, `learned` when its blocks have another size than assumed. To who
 *        observes: `shardReset` when this indexer began anew. To readers that attached themselves: `shardMemory`
 *        when the shard is in other memory than theirs.
 * Owns   the shard, and per worker slot what `EventApplier` keeps.
 * Order  events of one worker key arrive as published; between worker keys there is no order,
 *        and none is needed. What was cleared counts for nobody at once; its memory is swept in slices of about
 *        a fifth of a millisecond, after batches and in pauses.
 * Fails  orphans beyond their bound: the source is resynced. Anything else stops the actor; it
 *        restarts with an empty shard. A source that goes on sending is told to resync at once,
 *        because its slot is not open; a silent one is resynced by the directory, which observes.
 * Full   the mailbox refuses: the listener keeps the batch and tries again.
 */

import { type ActorRef, defineActor, signal } from '@homing/actor'
import { BlockIndex } from '@homing/index'
import { EventApplier } from './event-applier.ts'
import type { IndexerMessage, ShardMemoryMessage } from './messages.ts'

export interface IndexerArgs {
  readonly shard: number
  /**
   * Made by `createIndexDoor`: readers hold it, and attach themselves here for the memory. Or by `createIndexMemory`
   * with the same options: readers hold that, and keep it when this actor restarts.
   */
  readonly memory: SharedArrayBuffer
  /** Bytes of the shard, tables private to the writer included. */
  readonly capacityBytes: number
  readonly workerSlotsMax: number
}

/** Pause between two slices of what the index has to tidy up. */
const MAINTAIN_DELAY_MS = 1

export const indexer = defineActor(
  import.meta.url,
  'indexer',
)<IndexerMessage, IndexerArgs>({
  setup(context, { shard, memory, capacityBytes, workerSlotsMax }) {
    const { log, random } = context
    const readers = new Readers(shard, random.below(2 ** 31))
    const index = BlockIndex.create({
      capacityBytes,
      workerSlotsMax,
      memory,
      onMemory: moved => readers.announce(moved),
    })
    const applier = new EventApplier(index)
    const incarnation = random.below(2 ** 32)
    let isMaintaining = false
    /** One message at a time: between two, events are applied. */
    const maintain = () => {
      if (isMaintaining || !applier.maintain()) return
      isMaintaining = true
      context.schedule(MAINTAIN_DELAY_MS, { type: 'maintain' })
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
        const { resync, learnedBlockSizeTokens } = applier.apply(workerSlot, blockSizeTokens, events)
        if (resync !== undefined) {
          log.warn({ shard, workerSlot, reason: resync.reason }, 'events cannot be applied')
          source.tell({ type: 'resync', ...resync })
        }
        if (learnedBlockSizeTokens !== undefined) {
          source.tell({ type: 'learned', blockSizeTokens: learnedBlockSizeTokens })
        }
        maintain()
      },
      clear({ workerSlot }) {
        applier.open(workerSlot)
        maintain()
      },
      release({ workerSlot, reply }) {
        applier.release(workerSlot)
        reply('released')
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
        reply(applier.status())
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

/** Who is told where the shard is. */
class Readers {
  readonly #shard: number
  readonly #refs = new Map<string, ActorRef<ShardMemoryMessage>>()
  #memoryNumber: number

  /** @param memoryNumber Differs from those of other lives of this indexer. */
  constructor(shard: number, memoryNumber: number) {
    this.#shard = shard
    this.#memoryNumber = memoryNumber
  }

  attach(
    reader: ActorRef<ShardMemoryMessage>,
    memoryNumber: number | undefined,
    memory: SharedArrayBuffer,
  ): void {
    this.#refs.set(reader.key, reader)
    if (memoryNumber !== this.#memoryNumber) this.#tell(reader, memory)
  }

  detach(reader: { readonly key: string }): void {
    this.#refs.delete(reader.key)
  }

  /** The shard has moved. */
  announce(memory: SharedArrayBuffer): void {
    this.#memoryNumber++
    for (const reader of this.#refs.values()) this.#tell(reader, memory)
  }

  #tell(reader: ActorRef<ShardMemoryMessage>, memory: SharedArrayBuffer): void {
    reader.tell({ type: 'shardMemory', shard: this.#shard, memoryNumber: this.#memoryNumber, memory })
  }
}
