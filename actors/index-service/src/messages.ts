import type { ShardMemoryMessage, ShardResetMessage } from '@homing/actors/indexer'
import type { SourceMessage } from '@homing/actors/listener'
import type { ServiceMessage } from '@homing/http'

/** The service answers: where, and what it began with. */
export interface ServiceReady {
  readonly host: string
  readonly port: number
  /** Ranks that were given at the start. */
  readonly ranks: number
  /** What came of the peers, for people; undefined: none was given. */
  readonly recovery: string | undefined
}

/** Inherited blocks of one shard, by worker slot. */
export type InheritedCounts = Readonly<Record<number, number>> | undefined

/** What the indexers of a service tell it, and what it tells itself of them: see shards.ts. */
export type ShardsMessage =
  | ShardResetMessage
  | ShardMemoryMessage
  // From itself.
  | { readonly type: 'lookAfterShards' }
  /** The thread of this indexer died; its end must be noticed again. */
  | { readonly type: 'watchAgain'; readonly shard: number }

/** What the listeners of a service tell it, and what it tells itself of them: see rank-listeners.ts. */
export type RankListenersMessage =
  | SourceMessage
  // From itself.
  | { readonly type: 'listenerDue'; readonly workerSlot: number }
  | { readonly type: 'released'; readonly workerSlot: number; readonly isReleased: boolean }

export type IndexServiceMessage =
  | ServiceMessage<ServiceReady>
  | ShardsMessage
  | RankListenersMessage
  /** From itself. */
  | { readonly type: 'inheritedCounted'; readonly counts: readonly InheritedCounts[] }
