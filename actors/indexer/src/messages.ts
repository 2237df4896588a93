/** Messages to an indexer, and its messages to the sources of its events. */

import type { ActorRef, Message, Reply } from '@homing/actor'
import type { DumpSlice } from '@homing/fleet'
import type {
  BlockImage,
  IndexMemory,
  KeyLayer,
  LabelMemory,
  LabelSample,
  LabelSampleOptions,
  TreeSample,
  TreeSampleOptions,
} from '@homing/index'
import type { CacheReadingRecord, EventFault, KvEvent, KvTransition, SeparatedPrompt } from '@homing/protocol'
import type { LabelStatus } from './event-labels.ts'
import type { GuessStatus, RoutedBlocks, UnroutedBlocks } from './guesses.ts'

/**
 * `lost`: applied events are gone or wrong. `orphans`: too many blocks wait for an unknown parent, which is
 * normal when the events do not start with the engine's first.
 */
export type ResyncCause = 'lost' | 'orphans'

/** To the source of events that could not be applied: the source must be rebuilt. */
export interface ResyncMessage extends Message {
  readonly type: 'resync'
  readonly cause: ResyncCause
  readonly reason: string
}

/** To a source: the block size that its engine stores, when it differs from the assumed size. */
export interface LearnedMessage extends Message {
  readonly type: 'learned'
  readonly blockSizeTokens: number
}

/** To a source: until its next clear, the index lacks some blocks that the engine holds. */
export interface IncompleteMessage extends Message {
  readonly type: 'incomplete'
  readonly reason: string
}

/** Messages that a sender of events accepts. */
export type EventSourceMessage = ResyncMessage | LearnedMessage | IncompleteMessage

/**
 * To an observer that knew an earlier incarnation of this indexer: the shard began empty, so every source of
 * the shard must be rebuilt, unless it has opened its slot since.
 */
export interface ShardResetMessage extends Message {
  readonly type: 'shardReset'
  readonly shard: number
  readonly incarnation: number
  /** Worker slots opened since: their sources have noticed already. */
  readonly openSlots: readonly number[]
}

/** To an attached reader: where the shard is now. */
export interface ShardMemoryMessage extends Message {
  readonly type: 'shardMemory'
  readonly shard: number
  /** Changes when the indexer restarts; a new incarnation knows none of the earlier messages. */
  readonly incarnation: number
  /** Changes when the shard moves to other memory. */
  readonly memoryNumber: number
  readonly memory: IndexMemory
  /**
   * By worker slot: the lower tiers that hold blocks, bit i for layer i of KEY_LAYERS. Worker keys with none
   * are left out. When this changes, `memoryNumber` changes too.
   */
  readonly lowerLayers: Readonly<Record<number, number>>
  /** Labels of its blocks; undefined: none are kept. The same for all of a life of the indexer. */
  readonly labels: LabelMemory | undefined
}

/** What the events of a worker key say of its device, since an earlier time. */
export interface Churn {
  /** Blocks that were held, and are gone. */
  readonly removedBlocks: number
  /** Blocks that were stored although they were held: the engine computed them again. */
  readonly repeatedBlocks: number
}

/** Everything that an indexer knows of one worker key, without its guesses. */
export interface KeyImage extends BlockImage {
  /** Undefined: nothing was stored on the device yet. */
  readonly blockSizeTokens: number | undefined
  /**
   * Engine hashes, two words each, of the blocks of salted chains, with the salt; null: credited to no worker
   * key.
   */
  readonly salts: readonly (readonly [low: number, high: number, salt: string | null])[]
  readonly reading: CacheReadingRecord
  /** Records of the label table, as `labelImageOf` has them. */
  readonly labels: Int32Array
}

export type DumpMessage =
  /** Replies with the next slice of a dump, or with the first of a new one if `dump` is undefined. */
  | {
      readonly type: 'dump'
      readonly workerSlot: number
      readonly dump: number | undefined
      /** With labels; default: true. Of the first slice, for all. */
      readonly isLabelled?: boolean
      readonly reply: Reply<DumpSlice | 'ended'>
    }
  /** No more slices are wanted. */
  | { readonly type: 'endDump'; readonly dump: number }

/** Why an event, or a part of it, was not applied. */
export type SkipReason =
  | EventFault
  /** A placeholder for blocks that no tier of the worker key holds. */
  | 'unplaced'
  /** A tier of a worker key for which the shard has no room: other keys use too many tiers. */
  | 'noLayer'
  /** Not the block size of the worker. */
  | 'blockSize'
  /** A lower tier whose blocks are not of the size of those on the device. */
  | 'tierBlockSize'
  /** The engine's hash includes something besides the tokens. */
  | 'unknownContent'
  /** The adapter is known by number only. */
  | 'unnamedAdapter'
  /** The worker slot was not opened with a clear since this indexer started. */
  | 'unopened'

export interface ShardStatus {
  readonly bytesUsed: number
  readonly bytesLimit: number
  readonly blocksDistinct: number
  readonly memberships: number
  readonly orphanBlocks: number
  readonly eventsApplied: Readonly<Record<KvEvent['kind'], number>>
  readonly eventsSkipped: Readonly<Record<SkipReason, number>>
  /** Blocks of stores that found no room, and blocks dropped to make room. The index lacks these blocks. */
  readonly blocksRefused: number
  readonly blocksEvicted: number
  /**
   * Counter: stores credited to no worker key, because they may belong to a prompt with a separator that they
   * do not name.
   */
  readonly unclearStores: number
  /** Removed blocks that were not held. */
  readonly unknownRemoves: number
  /** By worker slot: blocks on the device. */
  readonly blocksHeld: Readonly<Record<number, number>>
  /** By worker slot: blocks on other layers, for worker keys that have any. */
  readonly layersHeld: Readonly<Record<number, Readonly<Partial<Record<KeyLayer, number>>>>>
  /** Undefined: none are kept. */
  readonly labels: LabelStatus | undefined
  readonly guesses: GuessStatus
}

/** Messages about requests rather than about events. */
export type RoutedMessage =
  /** A request was sent to a worker key: the indexer assumes for a while that the key holds its blocks. */
  | ({ readonly type: 'routed' } & RoutedBlocks)
  /** The request was not sent to the worker key after all. */
  | ({ readonly type: 'unrouted' } & UnroutedBlocks)
  /**
   * A prompt with separators is being sent to a worker key: blocks that may belong to it are credited to no
   * worker key.
   */
  | {
      readonly type: 'separated'
      readonly workerSlot: number
      readonly prompt: SeparatedPrompt
      /** Epoch of the worker key when it was chosen; undefined: the epoch of the key that has the slot. */
      readonly epoch?: number
    }
  /** A worker key is gone: prompts sent to its slot before this epoch do not concern the slot's next key. */
  | { readonly type: 'forgetSeparated'; readonly workerSlot: number; readonly epoch: number }
  /** Requests sent to a worker key before this epoch no longer count as held. */
  | { readonly type: 'forgetRouted'; readonly workerSlot: number; readonly epoch: number }

/** All messages of an indexer. */
export type ShardMessage =
  | IndexerMessage
  | RoutedMessage
  /** To itself: a dump was not asked for its next slice in time. */
  | { readonly type: 'dumpIdle'; readonly dump: number }
  /** To itself: guesses have expired, or there are too many. */
  | { readonly type: 'tidyGuesses' }
  /** To itself: blocks may have been dropped since the last look. */
  | { readonly type: 'lookAtRoom' }
  /** To itself: repeat a message that the source's mailbox refused. */
  | {
      readonly type: 'retell'
      readonly source: ActorRef<EventSourceMessage>
      readonly message: EventSourceMessage
    }

export type IndexerMessage =
  /** Events of one worker key, in the order published. The indexer owns the arrays afterwards. */
  | {
      readonly type: 'apply'
      readonly workerSlot: number
      /** The block size assumed for the worker; undefined: the first stored block decides. */
      readonly blockSizeTokens: number | undefined
      readonly events: readonly KvEvent[]
      readonly source: ActorRef<EventSourceMessage>
    }
  /**
   * Replies with everything known of a worker key, as of the events sent before. Undefined: its slot is not
   * open, or it holds more blocks than IMAGE_BLOCKS_MAX. Events of the shard wait meanwhile, about 0.3 ms per
   * thousand blocks.
   */
  | {
      readonly type: 'image'
      readonly workerSlot: number
      readonly reply: Reply<KeyImage | undefined>
    }
  /**
   * Take over an image, after a clear and before the first `apply`. Blocks that find no room are treated as
   * in a store.
   */
  | {
      readonly type: 'load'
      readonly workerSlot: number
      readonly image: KeyImage
      readonly source: ActorRef<EventSourceMessage>
    }
  /** Replies when everything that was sent before is applied. */
  | { readonly type: 'fence'; readonly reply: Reply<'passed'> }
  /**
   * Forget all blocks of a worker key. Must precede its first `apply`. `isParted`: because its worker cannot
   * be heard; what it has pooled for others stays.
   */
  | { readonly type: 'clear'; readonly workerSlot: number; readonly isParted?: boolean }
  /** Blocks are evicted from pools, says a worker whose events another indexer applies. */
  | { readonly type: 'evictedElsewhere'; readonly events: readonly KvTransition[] }
  /**
   * Forget everything about a worker key and refuse its events until the next clear: another key may get its
   * slot.
   */
  | { readonly type: 'release'; readonly workerSlot: number; readonly reply: Reply<'released'> }
  /** Replies with the churn since this was asked last, or since the slot was opened. */
  | { readonly type: 'takeChurn'; readonly workerSlot: number; readonly reply: Reply<Churn> }
  /** Replies `shardReset` when the observer knows another incarnation of this indexer, or none. */
  | {
      readonly type: 'observe'
      readonly incarnation: number | undefined
      readonly observer: ActorRef<ShardResetMessage>
    }
  /**
   * Replies `shardMemory` when the reader does not have the current memory of the shard, now and whenever the
   * shard moves. Readers must repeat it: a restarted indexer does not know its readers.
   */
  | {
      readonly type: 'attach'
      readonly memoryNumber: number | undefined
      readonly reader: ActorRef<ShardMemoryMessage>
    }
  /** To itself: continue the maintenance of the index. */
  | { readonly type: 'maintain' }
  | { readonly type: 'status'; readonly reply: Reply<ShardStatus> }
  /** The largest prefixes. */
  | {
      readonly type: 'sampleTree'
      readonly options: Omit<TreeSampleOptions, 'keysMax'>
      /** `hasLabels`: `sampleLabels` has something to say. */
      readonly reply: Reply<TreeSample & { readonly hasLabels: boolean }>
    }
  /** What labels say of some blocks, and of pools. Undefined: nothing. */
  | {
      readonly type: 'sampleLabels'
      readonly options: LabelSampleOptions
      readonly reply: Reply<LabelSample | undefined>
    }
  | DumpMessage
