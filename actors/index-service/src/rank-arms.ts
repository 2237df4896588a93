/** The arms of a service that follows ranks of its own: what shards and listeners tell it. */

import type { Log } from '@homing/base'
import type { RankListenersMessage, ShardsMessage } from './messages.ts'
import type { RankListeners } from './rank-listeners.ts'
import type { Registry } from './registry.ts'
import type { Shards } from './shards.ts'

type MessageOf<T extends (ShardsMessage | RankListenersMessage)['type']> = Extract<
  ShardsMessage | RankListenersMessage,
  { readonly type: T }
>

export interface RankArmsParts {
  readonly registry: Registry
  readonly shards: Shards
  readonly listeners: RankListeners
  readonly log: Log
}

export function rankArms({ registry, shards, listeners, log }: RankArmsParts) {
  return {
    shardReset(message: MessageOf<'shardReset'>): void {
      if (!shards.isReset(message)) return
      const { shard, openSlots } = message
      log.warn({ shard }, 'index shard was reset; its sources are rebuilt')
      for (const rank of registry.all()) {
        // A listener that has opened its slot since then is rebuilding already.
        if (rank.shard !== shard || openSlots.includes(rank.workerSlot)) continue
        rank.listener?.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
      }
    },
    shardMemory: (message: MessageOf<'shardMemory'>) => shards.moved(message),
    watchAgain: ({ shard }: MessageOf<'watchAgain'>) => shards.watchAgain(shard),
    listenerDue({ workerSlot }: MessageOf<'listenerDue'>): void {
      const rank = registry.ofSlot(workerSlot)
      if (rank !== undefined) listeners.due(rank)
    },
    released({ workerSlot, isReleased }: MessageOf<'released'>): void {
      const rank = registry.ofSlot(workerSlot)
      if (rank !== undefined) listeners.released(rank, isReleased)
    },
  }
}
