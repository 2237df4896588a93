/** Messages to an indexer, and its messages to the sources of its events. */

import type { ActorRef, Message, Reply } from '@homing/actor'
import type { BlockImage, IndexMemory, KeyLayer, TreeSample, TreeSampleOptions } from '@homing/index'
import type { CacheReadingRecord, EventFault, KvEvent, SeparatedPrompt } from '@homing/protocol'
import type { GuessStatus, RoutedBlocks, UnroutedBlocks } from './guesses.ts'

/**
 * `lost`: what was applied is gone or wrong. `orphans`: too many blocks wait for a parent that is unknown,
 * which is normal where the history does not begin at its beginning.
 */
export type ResyncCause = 'lost' | 'orphans'

/** Told to whoever sent events that could not be applied: its source must be rebuilt. */
export interface ResyncMessage extends Message {
  readonly type: 'resync'
  readonly cause: ResyncCause
  readonly reason: string
}

/** Told to a source: the size of the blocks that its engine stores, when it is another than assumed. */
export interface LearnedMessage extends Message {
  readonly type: 'learned'
  readonly blockSizeTokens: number
}

/** Told to a source: not all that its engine holds is in the index, until its next clear. */
export interface IncompleteMessage extends Message {
  readonly type: 'incomplete'
  readonly reason: string
}

/** What a sender of events accepts. */
export type EventSourceMessage = ResyncMessage | LearnedMessage | IncompleteMessage

/**
 * Told to an observer that knew another life of this indexer: its shard began empty, so every source
 * of the shard that has not opened its slot since must be rebuilt.
 */
export interface ShardResetMessage extends Message {
  readonly type: 'shardReset'
  readonly shard: number
  readonly incarnation: number
  /** Worker slots that were opened since: their sources have noticed. */
  readonly openSlots: readonly number[]
}

/** Told to a reader that has attached itself: where the shard is now. */
export interface ShardMemoryMessage extends Message {
  readonly type: 'shardMemory'
  readonly shard: number
  /** Another number is another life of the indexer, which was told nothing yet. */
  readonly incarnation: number
  /** Another number is another memory. */
  readonly memoryNumber: number
  readonly memory: IndexMemory
  /**
   * By worker slot: lower tiers that hold something, bit i for layer i of KEY_LAYERS; worker keys with none
   * are left out. When this changes, the number does too.
   */
  readonly lowerLayers: Readonly<Record<number, number>>
}

/** All that an indexer knows of one worker key, what was guessed of it left out. */
export interface KeyImage extends BlockImage {
  /** Undefined: nothing was stored on the device yet. */
  readonly blockSizeTokens: number | undefined
  /**
   * Engine hashes, two words each, of the blocks of salted chains, with the salt; null: credited to nobody.
   */
  readonly salts: readonly (readonly [low: number, high: number, salt: string | null])[]
  readonly reading: CacheReadingRecord
}

/** One block that a worker key holds, as hex words; enough to compare with an engine's cache. */
export interface IndexedBlock {
  readonly engineHash: string
  readonly parentEngineHash: string | undefined
  readonly localHash: string
}

/** Why an event, or a part of it, was not applied. */
export type SkipReason =
  | EventFault
  /** A placeholder for blocks that no tier of the worker key holds. */
  | 'unplaced'
  /** A tier of a worker key for which the shard has no room: too many tiers of others are in use. */
  | 'noLayer'
  /** Another block size than the worker's. */
  | 'blockSize'
  /** An adapter known by number only, or something in the hash that is not in the tokens. */
  | 'unknownContent'
  /** A worker slot that was not opened with a clear since this indexer began. */
  | 'unopened'

export interface ShardStatus {
  readonly bytesUsed: number
  readonly bytesLimit: number
  readonly blocksDistinct: number
  readonly memberships: number
  readonly orphanBlocks: number
  readonly eventsApplied: { readonly stored: number; readonly removed: number; readonly cleared: number }
  readonly eventsSkipped: Readonly<Record<SkipReason, number>>
  /**
   * Blocks of stores that found no room, and blocks dropped to make room: the index knows less than it could.
   */
  readonly blocksRefused: number
  readonly blocksEvicted: number
  /**
   * Counter: stores that are credited to nobody, since they may be of a prompt with a separator that they do
   * not name.
   */
  readonly unclearStores: number
  /** Removed blocks that were not held. */
  readonly unknownRemoves: number
  /** By worker slot: of the device. */
  readonly blocksHeld: Readonly<Record<number, number>>
  /** By worker slot: of other layers, those of worker keys that have any. */
  readonly layersHeld: Readonly<Record<number, Readonly<Partial<Record<KeyLayer, number>>>>>
  readonly guesses: GuessStatus
}

/** What is told of requests rather than of events. */
export type RoutedMessage =
  /** A request was sent to a worker key: its blocks are taken to be held there for a while. */
  | ({ readonly type: 'routed' } & RoutedBlocks)
  /** It was not sent there after all. */
  | ({ readonly type: 'unrouted' } & UnroutedBlocks)
  /**
   * A prompt with separators is being sent to a worker key: blocks that may be of it are credited to nobody.
   */
  | {
      readonly type: 'separated'
      readonly workerSlot: number
      readonly prompt: SeparatedPrompt
      /** Epoch of the worker key when it was chosen; undefined: that of the key that has the slot. */
      readonly epoch?: number
    }
  /** A worker key is gone: what was sent to its slot before this epoch was not sent to the next one. */
  | { readonly type: 'forgetSeparated'; readonly workerSlot: number; readonly epoch: number }
  /** Requests sent to a worker key before this epoch no longer count as held. */
  | { readonly type: 'forgetRouted'; readonly workerSlot: number; readonly epoch: number }

/** All that an indexer understands. */
export type ShardMessage =
  | IndexerMessage
  | RoutedMessage
  /** Guesses have expired, or are too many. Of the indexer to itself. */
  | { readonly type: 'tidyGuesses' }
  /** Blocks may have been dropped since. Of the indexer to itself. */
  | { readonly type: 'lookAtRoom' }
  /** What a source had no room for. Of the indexer to itself. */
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
      /** What the worker is assumed to use; undefined: the first block stored decides. */
      readonly blockSizeTokens: number | undefined
      readonly events: readonly KvEvent[]
      readonly source: ActorRef<EventSourceMessage>
    }
  /**
   * Answers all that is known of a worker key, as of the events told before; undefined: its slot is not open,
   * or it holds more blocks than IMAGE_BLOCKS_MAX. Events of the shard wait meanwhile, about 0.3 ms per
   * thousand blocks.
   */
  | {
      readonly type: 'image'
      readonly workerSlot: number
      readonly reply: Reply<KeyImage | undefined>
    }
  /**
   * Take over an image, behind a clear and before the first `apply`. What finds no room is as any other
   * block.
   */
  | {
      readonly type: 'load'
      readonly workerSlot: number
      readonly image: KeyImage
      readonly source: ActorRef<EventSourceMessage>
    }
  /** Forget all blocks of a worker key. Must precede its first `apply`. */
  | { readonly type: 'clear'; readonly workerSlot: number }
  /** Forget all of a worker key and take nothing from it until the next clear: its slot may serve another. */
  | { readonly type: 'release'; readonly workerSlot: number; readonly reply: Reply<'released'> }
  /** Answers `shardReset` when the observer knows another incarnation of this indexer, or none. */
  | {
      readonly type: 'observe'
      readonly incarnation: number | undefined
      readonly observer: ActorRef<ShardResetMessage>
    }
  /**
   * Answers `shardMemory` when the reader has another memory than the shard, now and whenever the shard
   * moves. To be repeated: an indexer that began anew does not know its readers.
   */
  | {
      readonly type: 'attach'
      readonly memoryNumber: number | undefined
      readonly reader: ActorRef<ShardMemoryMessage>
    }
  /** Goes on with what the index has to tidy up. Of the indexer to itself. */
  | { readonly type: 'maintain' }
  | { readonly type: 'status'; readonly reply: Reply<ShardStatus> }
  /** The largest prefixes. */
  | {
      readonly type: 'sampleTree'
      readonly options: Omit<TreeSampleOptions, 'keysMax'>
      readonly reply: Reply<TreeSample>
    }
  | { readonly type: 'dump'; readonly workerSlot: number; readonly reply: Reply<readonly IndexedBlock[]> }
