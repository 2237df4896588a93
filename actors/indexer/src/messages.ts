import type { ActorRef, Message, Reply } from '@homing/actor'
import type { KvEvent } from '@homing/protocol'

/** Told to whoever sent a batch that could not be applied: its source must be rebuilt. */
export interface ResyncMessage extends Message {
  readonly type: 'resync'
  readonly reason: string
}

/** One block that a worker key holds, as hex words; enough to compare with an engine's cache. */
export interface IndexedBlock {
  readonly engineHash: string
  readonly parentEngineHash: string | undefined
  readonly localHash: string
}

export interface ShardStatus {
  readonly bytesUsed: number
  readonly bytesLimit: number
  readonly blocksDistinct: number
  readonly memberships: number
  readonly orphanBlocks: number
  readonly eventsApplied: { readonly stored: number; readonly removed: number; readonly cleared: number }
  readonly eventsSkipped: Readonly<Record<string, number>>
  /** By worker slot. */
  readonly blocksHeld: Readonly<Record<number, number>>
}

export type IndexerMessage =
  /** Events of one worker key, in the order published. The indexer owns the arrays afterwards. */
  | {
      readonly type: 'apply'
      readonly workerSlot: number
      readonly blockSizeTokens: number
      readonly events: readonly KvEvent[]
      readonly source: ActorRef<ResyncMessage>
    }
  /** Forget all blocks of a worker key. */
  | { readonly type: 'clear'; readonly workerSlot: number }
  | { readonly type: 'status'; readonly reply: Reply<ShardStatus> }
  | { readonly type: 'dump'; readonly workerSlot: number; readonly reply: Reply<readonly IndexedBlock[]> }
