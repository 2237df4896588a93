/**
 * Messages to and from a listener: the trust in its source, and the state of the source.
 *
 * The listener owns the trust in its source; the directory passes it on.
 */

import type { Message, Reply } from '@homing/actor'
import type { EventSourceMessage, KeyImage } from '@homing/actors/indexer'
import type { Trust } from '@homing/index'
import type { EventPath, Frames, StoredSnapshot } from '@homing/transport'
import type { Checkpoint } from './checkpoint.ts'

/** The trust in a source, as its events alone give it. */
export interface SourceTrust {
  readonly trust: Trust
  /** For people: the reason of the trust, and what can be done. */
  readonly reason: string
  /** Grows by one per clear: predictions of an earlier epoch do not hold for this one. */
  readonly epoch: number
  /**
   * `partial` only because the history has no beginning: since then nothing is missing, and all could be
   * read.
   */
  readonly isSuffix: boolean
  /** More may be known soon: the history is being replayed, or is compared with the live socket. */
  readonly isCatchingUp?: boolean
}

/** Told to the directory: the trust of a key changed, or its engine named its block size. */
export interface SourceMessage extends SourceTrust, Message {
  readonly type: 'source'
  readonly workerSlot: number
  /** The block size of the events; undefined before the first store. */
  readonly blockSizeTokens: number | undefined
}

/** A listener's report on its source: counters since it started, and where the source stands. */
export interface SourceStatus {
  readonly state: 'connecting' | 'recovering' | 'live' | 'disconnected'
  /** The last sequence applied in this epoch; undefined before the first. */
  readonly lastSequence: number | undefined
  /** Grows by one per life of the engine's cache seen by this listener. */
  readonly epoch: number
  readonly batches: number
  readonly events: number
  /** Times that a sequence number was missing on the live socket. */
  readonly gaps: number
  /** Replay requests sent. */
  readonly replays: number
  /** Restarts of the engine that were noticed, by sequence or by its process. */
  readonly restarts: number
  /** Times that events contradicted each other, or their replay. A single one means a restart. */
  readonly contradictions: number
  /** Batches that came again; dropped. */
  readonly duplicates: number
  /** Messages that are no event message, and batches that cannot be decoded. */
  readonly malformedFrames: number
  /** Events inside readable batches that this version cannot read. */
  readonly skippedEvents: number
  /** How live batches come: from their publisher, or from the stream at the broker. */
  readonly path: EventPath
  /** Live batches given up because too many waited for a replay; each became a gap. */
  readonly droppedBatches: number
  /** Messages of the event socket that found no room in the listener's mailbox; each run of them is a gap. */
  readonly lostFrames: number
  /** Batches whose payload names another dp rank than the one this socket belongs to. */
  readonly foreignRanks: number
  /** Messages under another topic than the one asked for; ignored. */
  readonly foreignTopics: number
  /** Milliseconds since the last batch; undefined before the first. */
  readonly lastEventAgeMs: number | undefined
  readonly checkpoint: CheckpointStatus
}

/** State of the checkpoints. */
export interface CheckpointStatus {
  /** The last batch of the one taken over at the start; undefined: none was. */
  readonly resumedSequence: number | undefined
  /** Why the one that was there is not used; undefined: there was none, or it was taken over. */
  readonly refusal: string | undefined
  /** The last batch of the one last written; undefined: none yet. */
  readonly savedSequence: number | undefined
  readonly savedAgeMs: number | undefined
  readonly saves: number
  readonly failedSaves: number
}

/**
 * The outcome of an attempt to write a checkpoint. `unsettled`: the source is not at a point that could be
 * proven.
 */
export type SaveOutcome = 'saved' | 'unchanged' | 'unsettled' | 'failed' | 'off'

/** A snapshot of a worker key, for the store beside the stream of its events. */
export type KeySnapshot = StoredSnapshot

/**
 * `unchanged`: it would say no more than the stored one. `ofPublisher`: its publisher gives snapshots itself,
 * and is followed live. Undefined: it could not be proven later.
 */
export type SnapshotAnswer = KeySnapshot | 'unchanged' | 'ofPublisher' | undefined

/** Asked of the directory at the start: the snapshot that is stored; undefined: there is none to be had. */
export interface StoredSnapshotMessage extends Message {
  readonly type: 'storedSnapshot'
  readonly workerSlot: number
  readonly reply: Reply<Uint8Array | undefined>
}

/** Messages to a listener. The first four lines come from others, the rest from itself. */
export type ListenerMessage =
  /**
   * `resync`: forget what was applied and rebuild from the engine's replay; from the indexer or the
   * directory.
   */
  | EventSourceMessage
  | { readonly type: 'status'; readonly reply: Reply<SourceStatus> }
  /** Answers of the engine contradict its events, or no longer do: meanwhile there are no checkpoints. */
  | { readonly type: 'audited'; readonly isContradicted: boolean }
  /** A snapshot as of now, unless it says no more than the `stored` one. */
  | {
      readonly type: 'snapshot'
      readonly stored?: Omit<KeySnapshot, 'bytes'> | undefined
      readonly reply: Reply<SnapshotAnswer>
    }
  /** Write a checkpoint now, if one is wanted and has changed. Answers when it is on the disk. */
  | { readonly type: 'save'; readonly reply: Reply<SaveOutcome> }
  /**
   * The engine's process is another one than before: its start or its block size changed. `startSeconds`: in
   * Unix seconds, if the engine says so.
   */
  | { readonly type: 'engineRestarted'; readonly startSeconds?: number | undefined }
  /** When the engine's process began, as the engine says: sent with every probe. */
  | { readonly type: 'process'; readonly startSeconds: number }
  /** `connection` counts the connections of the socket: a message of an earlier one is stale. */
  | {
      readonly type: 'live'
      readonly connection: number
      readonly frames: Frames
      /** Of a message from a consumer at the broker; 0: it is not acknowledged. */
      readonly number?: number
    }
  /** The socket went up or down. */
  | { readonly type: 'moved' }
  /** What the indexer was sent before a fence is applied; false: that is not known. */
  | { readonly type: 'fenced'; readonly isPassed: boolean }
  /** Something of the socket found no room in the mailbox. */
  | { readonly type: 'look' }
  /** Time to repeat the last report to the directory. */
  | { readonly type: 'report' }
  | { readonly type: 'replayed'; readonly attempt: number; readonly frames: Frames }
  /** What is stored beside the stream, and the indexer's answer for a snapshot. */
  | { readonly type: 'storedRead'; readonly bytes: Uint8Array | undefined }
  | { readonly type: 'snapshotImaged'; readonly image: KeyImage | undefined }
  /** The time for the next checkpoint has come. */
  | { readonly type: 'saveDue' }
  /** What the directory of checkpoints has for this source. */
  | {
      readonly type: 'checkpointRead'
      readonly checkpoint: Checkpoint | undefined
      readonly problem: string | undefined
    }
  /** The indexer's answer for a checkpoint; undefined: it has nothing to give. */
  | { readonly type: 'imaged'; readonly image: KeyImage | undefined }
  /** `problem`: why it could not be written. */
  | { readonly type: 'saved'; readonly problem: string | undefined }
  /** The wait that was set with this number is over. */
  | { readonly type: 'wake'; readonly wait: number }
