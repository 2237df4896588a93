/**
 * Indexer: the only writer of one shard of the prefix index.
 *
 * In     KV events of the worker keys of this shard, from their listeners; clears.
 * Out    nothing while serving: readers look at the shared memory directly. To a source: `resync` when
 *        its events cannot be applied, `learned` when its blocks have another size than assumed. To who
 *        observes: `shardReset` when this indexer began anew.
 * Owns   the shard, and per worker slot what `EventApplier` keeps.
 * Order  events of one worker key arrive as published; between worker keys there is no order,
 *        and none is needed.
 * Fails  orphans beyond their bound: the source is resynced. Anything else stops the actor; it
 *        restarts with an empty shard. A source that goes on sending is told to resync at once,
 *        because its slot is not open; a silent one is resynced by the directory, which observes.
 * Full   the mailbox refuses: the listener keeps the batch and tries again.
 */

import { defineActor } from '@homing/actor'
import { BlockIndex } from '@homing/index'
import { EventApplier } from './event-applier.ts'
import type { IndexerMessage } from './messages.ts'

export interface IndexerArgs {
  readonly shard: number
  /** Made by `createIndexMemory` with the same options; readers hold it, and keep it when this actor restarts. */
  readonly memory: SharedArrayBuffer
  /** Bytes of the shard, tables private to the writer included. */
  readonly capacityBytes: number
  readonly workerSlotsMax: number
}

export const indexer = defineActor(
  import.meta.url,
  'indexer',
)<IndexerMessage, IndexerArgs>({
  setup({ log, random }, { shard, memory, capacityBytes, workerSlotsMax }) {
    const applier = new EventApplier(BlockIndex.create({ capacityBytes, workerSlotsMax, memory }))
    const incarnation = random.below(2 ** 32)

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
      },
      clear({ workerSlot }) {
        applier.open(workerSlot)
      },
      release({ workerSlot, reply }) {
        applier.release(workerSlot)
        reply('released')
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
    }
  },
})
