/**
 * KV events, normalised: the reports of vLLM, SGLang and relays about their caches, in one form.
 *
 * A 64-bit engine hash is two int32 words: `hashes[2 * i]` is the low word of hash i and
 * `hashes[2 * i + 1]` its high word. Engine hashes are opaque; they identify a block only within
 * one worker key, epoch, tier and group.
 *
 * Invariants
 *   I1  `hashes.length` is even; every typed array is owned by whoever holds the event, and is not
 *       a view of the message it came from.
 *   I2  Stores are not idempotent facts: two physical copies of one block are stored twice and
 *       removed twice. Code that applies events counts copies per tier and group.
 *   I3  A store may hold more tokens than its hashes cover (sparse groups), or none at all
 *       (a placeholder: blockSizeTokens 0). Only when `tokens.length` is
 *       `hashes.length / 2 * blockSizeTokens` does hash i name tokens [i, i + 1) * blockSizeTokens. With
 *       `localHashes` there are no tokens: it has a hash for each of `hashes`.
 */

import type { KvLabels, KvPoolPlace } from './block-labels.ts'
import { ALL_SEPARATORS } from './separators.ts'

/** Where a block is held. `unknown`: a medium this version has no name for; never count it as device. */
export type KvTier = 'device' | 'host' | 'disk' | 'external' | 'unknown'

/** One media item (an image, …) that overlaps a block. */
export interface KvMedia {
  /** The engine's own id of the item: equal ids mean equal content. */
  readonly id: string
  /** Where the item starts, relative to the start of the block; negative when it began before. */
  readonly offsetTokens: number
}

/** Blocks became cached. */
export interface KvStored {
  readonly kind: 'stored'
  /** Engine hashes, `[lo, hi]` pairs. May be empty (hybrid models publish tokens without hashes). */
  readonly hashes: Int32Array
  /** `[lo, hi]` of the block before the first one; undefined: the first block starts the sequence. */
  readonly parent: Int32Array | undefined
  /** Token ids as uint32 bit patterns; of bigrams the first token. */
  readonly tokens: Int32Array
  /** 0: a placeholder that moves known blocks to another tier without naming their content. */
  readonly blockSizeTokens: number
  readonly tier: KvTier
  /** False: held elsewhere (or the engine used an unknown word); not this worker's residency. */
  readonly isLocal: boolean
  /** The adapter; undefined is the base model, unless `loraId` is given. */
  readonly loraName: string | undefined
  /**
   * vLLM before 0.13 names adapters by number only: with `loraName` undefined the namespace is unknown. Never
   * 0, by which some engines name the base model (`adapterId`).
   */
  readonly loraId: number | undefined
  /**
   * Salt that separates the cache of tenants; named on the first block of a sequence, inherited by its
   * children.
   */
  readonly cacheSalt: string | undefined
  /** Media items per block, or undefined when no block has any. */
  readonly mediaHashes: readonly (readonly KvMedia[])[] | undefined
  /**
   * True: something else (prompt embeddings, …) went into the hashes, so the tokens do not say what the block
   * holds.
   */
  readonly hasUnknownExtraKeys: boolean
  /** Cache group of a hybrid model. All groups publish the same hash values. */
  readonly group: number | undefined
  /** Attention kind of the group: 'full_attention', 'sliding_window', … */
  readonly attention: string | undefined
  /** The session that caused the store; says nothing about who may use it. */
  readonly sessionId: string | undefined
  /**
   * Separators (separators.ts) that the event would name, if the blocks had them; of others it says nothing.
   */
  readonly tells: number
  /** Undefined: none of the blocks has a label. */
  readonly labels: KvLabels | undefined
  /**
   * The hash of each block's content, `[lo, hi]` pairs, in the namespace of its adapter and without a salt;
   * then there are no tokens. Only snapshots of publishers have such stores (snapshot-frames.ts).
   */
  readonly localHashes: Int32Array | undefined
}

/** The state of blocks in pooled memory has changed. */
export interface KvTransition extends KvPoolPlace {
  readonly kind: 'transition'
  /** Engine hashes, `[lo, hi]` pairs. */
  readonly hashes: Int32Array
}

/** One copy of each block is gone. */
export interface KvRemoved {
  readonly kind: 'removed'
  /** Engine hashes, `[lo, hi]` pairs. */
  readonly hashes: Int32Array
  readonly tier: KvTier
  readonly isLocal: boolean
  readonly group: number | undefined
}

/** Everything of the publishing dp rank is gone, all tiers and groups. */
export interface KvCleared {
  readonly kind: 'cleared'
  /**
   * True: not the engine says so, but a publisher beside it. Nothing that was told before is to be believed,
   * and what the cache holds is not known. False: the cache is empty.
   */
  readonly isWithdrawal: boolean
}

export type KvEvent = KvStored | KvRemoved | KvCleared | KvTransition

/** One message of an engine: the events of one scheduler step. */
export interface KvBatch {
  /** Seconds since 1970 by the engine's clock. */
  readonly timestampSeconds: number
  /** The dp rank the payload names; undefined when it names none. The socket it came from knows better. */
  readonly rank: number | undefined
  /** In the order published. */
  readonly events: readonly KvEvent[]
  /** Events of the batch that are not in `events`. */
  readonly skipped: {
    /** Tags of newer protocol versions. */
    readonly unknownTag: number
    /** Known tags whose content cannot be understood: the index of this worker may now be incomplete. */
    readonly malformed: number
  }
}

/**
 * Events that were passed over, because their kind is not known or they cannot be understood. Any of them may
 * have removed blocks: above 0 nobody knows the cache whole, until it is cleared.
 */
export function unreadEvents({ skipped }: Pick<KvBatch, 'skipped'>): number {
  return skipped.unknownTag + skipped.malformed
}

/** The fields of a store that have no default. */
export type KvStoredFields = Pick<KvStored, 'hashes' | 'tokens' | 'blockSizeTokens'> &
  Partial<Omit<KvStored, 'kind'>>

/**
 * A local store on the device, of the base model, which names every separator, unless `fields` say otherwise.
 */
export function kvStored(fields: KvStoredFields): KvStored {
  return {
    kind: 'stored',
    hashes: fields.hashes,
    parent: fields.parent,
    tokens: fields.tokens,
    blockSizeTokens: fields.blockSizeTokens,
    tier: fields.tier ?? 'device',
    isLocal: fields.isLocal ?? true,
    loraName: fields.loraName,
    loraId: fields.loraId,
    cacheSalt: fields.cacheSalt,
    mediaHashes: fields.mediaHashes,
    hasUnknownExtraKeys: fields.hasUnknownExtraKeys ?? false,
    group: fields.group,
    attention: fields.attention,
    sessionId: fields.sessionId,
    tells: fields.tells ?? ALL_SEPARATORS,
    labels: fields.labels,
    localHashes: fields.localHashes,
  }
}

/** A local removal from the device, unless `fields` say otherwise. */
export function kvRemoved(fields: Pick<KvRemoved, 'hashes'> & Partial<Omit<KvRemoved, 'kind'>>): KvRemoved {
  return {
    kind: 'removed',
    hashes: fields.hashes,
    tier: fields.tier ?? 'device',
    isLocal: fields.isLocal ?? true,
    group: fields.group,
  }
}

/** The clear of an engine: its cache is empty. One object serves all. */
export const KV_CLEARED: KvCleared = { kind: 'cleared', isWithdrawal: false }

/** The clear of a publisher beside an engine: what it told is void, and what the cache holds is not known. */
export const KV_WITHDRAWN: KvCleared = { kind: 'cleared', isWithdrawal: true }

/** The number of an adapter as an engine writes it; undefined: of none, which some write as 0. */
export function adapterId(written: number | undefined): number | undefined {
  return written === 0 ? undefined : written
}

/** Whether its names and tokens say what the blocks of a store hold: else no prompt can be found by them. */
export function isContentKnown({ hasUnknownExtraKeys, loraId, loraName }: KvStored): boolean {
  return !hasUnknownExtraKeys && (loraId === undefined || loraName !== undefined)
}
