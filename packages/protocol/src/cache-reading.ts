/**
 * Cache reading: derives the held blocks from the events of one life of a cache. Index, sidecar, publisher
 * and inheritor all read events with this, so that they cannot differ.
 *
 *   store     whether it says something about prefixes, and if not, why (faultOf); whether a held block gets
 *             one more copy (addsCopies)
 *   removal   from which tiers it takes its blocks, and whether it takes a copy or all of them (remove)
 *
 * Rules. If events leave something open, less is held: a missing block costs a computation, one block too
 * many is a broken promise.
 *   R1  Groups as in attention-groups.ts. Blocks in other places say nothing.
 *   R2  Only the device has copies. A store that begins at token 0 adds none: vLLM on request ("full" report
 *       mode) repeats a prefix in this way, unmarked, and never removes it again.
 *   R3  A removal takes the block with all its copies, until the engine has shown that it removes each copy:
 *       by a further removal of a block that had copies left, without a store between. vLLM up to 0.32 does
 *       so; an engine that reports only the last copy's removal (vLLM #55092) never does. From then on a
 *       removal takes one copy.
 *   R4  A removal from a tier that never stored takes the block from all tiers: the tier may be another
 *       spelling of one of them.
 *   R5  A clear may be the end of a life, so what R3 and R4 have learned ends with it; groups belong to the
 *       model and stay. After a withdrawal another engine may be heard, so groups are learned anew.
 *
 * Memory   at most LEFT_MAX hashes that had copies left.
 */

import { type AttentionGroupRecord, AttentionGroups } from './attention-groups.ts'
import type { KvCleared, KvRemoved, KvStored, KvTier } from './kv-event.ts'

/** A tier that blocks can be held on. */
export type HeldTier = Exclude<KvTier, 'unknown'>

/** Why an event says nothing of the prefixes that are held. */
export type EventFault =
  /** On a tier whose name is not known. */
  | 'otherTier'
  /** Held by another worker. */
  | 'remote'
  /** A cache group that does not keep whole prefixes, or does so beside the main one. */
  | 'otherGroup'
  /** A store without hashes, or without tokens: it names no block. */
  | 'noBlocks'
  /** Hashes and tokens do not match: which token belongs to which block is unknown. */
  | 'unevenTokens'

/** Told of a hash that was removed with all its copies, how many there were beside the one removed. */
export type LeftCopies = (low: number, high: number, copies: number) => void

/** Blocks that are held, as far as a removal needs them. */
export interface RemovableBlocks {
  /**
   * Takes one copy of each hash from a tier; with `set`, all copies, and `left` is told of those that had
   * more than one. How many of the hashes were held there.
   */
  remove(tier: HeldTier, hashes: Int32Array, copies: 'count' | 'set', left: LeftCopies): number
}

/** What a reading has learned. */
export interface CacheReadingRecord {
  readonly groups: readonly AttentionGroupRecord[]
  /** Those that something was stored on. */
  readonly tiers: readonly KvTier[]
  /** The engine removes each copy (R3). */
  readonly removesCopies: boolean
  /** Hashes that were removed while they had copies left, as pairs [lo, hi]; the oldest first. */
  readonly left: Int32Array
}

export const HELD_TIERS: readonly HeldTier[] = ['device', 'host', 'disk', 'external']

const LEFT_MAX = 16_384
const LOW = 0xffff_ffffn
const NO_WORDS = new Int32Array(0)
const nobody: LeftCopies = () => {}

export class CacheReading {
  readonly #groups = new AttentionGroups()
  readonly #storedTiers = new Set<KvTier>()
  #removesCopies = false
  /** Hashes that were removed while they had copies left. */
  readonly #left = new Set<bigint>()
  readonly #remember: LeftCopies = (low, high) => this.#leave(keyOf(low, high))

  /** As of AttentionGroups. */
  get revisions(): number {
    return this.#groups.revisions
  }

  /** All that was learned, for `learn` of another instance that goes on with the same life. */
  record(): CacheReadingRecord {
    return {
      groups: this.#groups.records(),
      tiers: [...this.#storedTiers],
      removesCopies: this.#removesCopies,
      left: Int32Array.from([...this.#left].flatMap(key => [Number(key & LOW), Number(key >> 32n)])),
    }
  }

  /**
   * Takes over what another instance has learned; this one knows nothing yet. Groups alone are of the model,
   * and outlive the life.
   */
  learn(record: Pick<CacheReadingRecord, 'groups'> & Partial<CacheReadingRecord>): void {
    const { groups, tiers = [], removesCopies = false, left = NO_WORDS } = record
    this.#groups.learn(groups)
    for (const tier of tiers) this.#storedTiers.add(tier)
    this.#removesCopies = removesCopies
    for (let i = 0; i < left.length; i += 2) this.#leave(keyOf(left[i]!, left[i + 1]!))
  }

  /** Why a store says nothing of prefixes; undefined: it does, or is a placeholder. Learns from it. */
  faultOf(event: KvStored): EventFault | undefined {
    const { hashes, localHashes, tokens, blockSizeTokens, tier } = event
    if (!event.isLocal) return 'remote'
    this.#storedTiers.add(tier)
    if (tier === 'unknown') return 'otherTier'
    // Also learns the groups, so it comes before what looks at the content.
    if (!this.#groups.accepts(event)) return 'otherGroup'
    if (hashes.length === 0) return 'noBlocks'
    if (isPlaceholder(event)) return undefined
    if (localHashes !== undefined)
      return localHashes.length === hashes.length && blockSizeTokens > 0 ? undefined : 'unevenTokens'
    if (tokens.length === 0) return 'noBlocks'
    return tokens.length === (hashes.length / 2) * blockSizeTokens ? undefined : 'unevenTokens'
  }

  /** Removes what a removal says. Why it says nothing of prefixes; undefined: it does. */
  remove(event: KvRemoved, blocks: RemovableBlocks): EventFault | undefined {
    const { hashes, tier } = event
    if (!event.isLocal) return 'remote'
    const taken = this.#groups.taken(event.group)
    if (taken === 'nothing') return 'otherGroup'
    if (tier === 'unknown' || !this.#storedTiers.has(tier)) {
      if (this.#storedTiers.has(tier)) return 'otherTier'
      for (const each of HELD_TIERS) this.#takeAll(each, hashes, blocks)
    } else if (taken === 'block' || tier !== 'device') {
      this.#takeAll(tier, hashes, blocks)
    } else {
      this.#takeCopies(hashes, blocks)
    }
    return undefined
  }

  cleared({ isWithdrawal }: KvCleared): void {
    if (isWithdrawal) this.#groups.forget()
    this.#storedTiers.clear()
    this.#removesCopies = false
    this.#left.clear()
  }

  /** Says nothing of how the engine removes copies. */
  #takeAll(tier: HeldTier, hashes: Int32Array, blocks: RemovableBlocks): void {
    blocks.remove(tier, hashes, 'set', nobody)
    if (this.#left.size === 0 || tier !== 'device') return
    for (let i = 0; i < hashes.length; i += 2) this.#left.delete(keyOf(hashes[i]!, hashes[i + 1]!))
  }

  #takeCopies(hashes: Int32Array, blocks: RemovableBlocks): void {
    let from = 0
    while (!this.#removesCopies && this.#left.size > 0 && from < hashes.length) {
      const isHeld = blocks.remove('device', hashes.subarray(from, from + 2), 'set', this.#remember) > 0
      if (!isHeld && this.#left.has(keyOf(hashes[from]!, hashes[from + 1]!))) {
        this.#removesCopies = true
        this.#left.clear()
      }
      from += 2
    }
    if (from >= hashes.length) return
    const rest = from === 0 ? hashes : hashes.subarray(from)
    if (this.#removesCopies) blocks.remove('device', rest, 'count', nobody)
    else blocks.remove('device', rest, 'set', this.#remember)
  }

  /** The oldest make room: their copies have gone long since. */
  #leave(key: bigint): void {
    this.#left.delete(key)
    this.#left.add(key)
    if (this.#left.size <= LEFT_MAX) return
    for (const oldest of this.#left) {
      this.#left.delete(oldest)
      return
    }
  }
}

/** Whether a store of blocks that are held tells of further copies. */
export function addsCopies({ tier, parent }: KvStored): boolean {
  return tier === 'device' && parent !== undefined
}

/** Names blocks that another tier holds, and not what is in them. */
export function isPlaceholder({ tokens, blockSizeTokens }: KvStored): boolean {
  return tokens.length === 0 && blockSizeTokens === 0
}

function keyOf(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
}
