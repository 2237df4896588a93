/**
 * A source of KV events for tests: the cache of one worker key as a naive model, its published batches, and
 * what it keeps for replay. Batches are encoded as an engine would. Copies of a block are stored again, and
 * only the last one is removed: then what is held can be told exactly (CacheReading of packages/protocol).
 */

import type { Random } from '@homing/base'
import {
  encodeKvBatch,
  KV_CLEARED,
  KV_WITHDRAWN,
  type KvBatchForm,
  type KvEvent,
  kvRemoved,
  kvStored,
} from '@homing/protocol'

export interface PublishedBatch {
  readonly sequence: number
  readonly payload: Uint8Array
}

interface Block {
  readonly hash: Int32Array
  readonly parent: string | undefined
  copies: number
}

export const SOURCE_BLOCK_TOKENS = 2

/** What tells a source from another one. */
export interface SourceIdentity {
  /** Of its first life: sources of other lives have other hashes. */
  readonly life?: number
  /** The dp rank that its batches name. */
  readonly rank?: number
}

export class SimulatedSource {
  readonly #random: Random
  readonly #form: KvBatchForm
  readonly #keptMax: number
  readonly #rank: number
  #life: number
  /** The life that its hashes are of. */
  #hashLife: number
  #nextSequence = 0
  #timestampSeconds: number
  #kept: PublishedBatch[] = []
  readonly #cache = new Map<string, Block>()
  /** Per life and sequence: the hashes that were cached after it. */
  readonly #snapshots: ReadonlySet<string>[][] = []

  /** Keeps the last `keptMax` batches for replay. */
  constructor(
    random: Random,
    keptMax: number,
    form: KvBatchForm = 'vllm-map',
    { life = 0, rank = 0 }: SourceIdentity = {},
  ) {
    this.#random = random
    this.#keptMax = keptMax
    this.#form = form
    this.#life = life
    this.#hashLife = life
    // No two engines publish at the same times.
    this.#timestampSeconds = 1000 + life / 64
    this.#rank = rank
  }

  /** What is cached now, as hex words. */
  get cached(): ReadonlySet<string> {
    return new Set(this.#cache.keys())
  }

  get lastSequence(): number {
    return this.#nextSequence - 1
  }

  /** What was cached after a sequence, in each life of the source that reached it. */
  cachedAfter(sequence: number): readonly ReadonlySet<string>[] {
    return this.#snapshots.flatMap(life => (life?.[sequence] === undefined ? [] : [life[sequence]]))
  }

  /** Everything kept from a sequence on. */
  replay(fromSequence: number): readonly PublishedBatch[] {
    return this.#kept.filter(batch => batch.sequence >= fromSequence)
  }

  /** A batch with a few random events. */
  publish(): PublishedBatch {
    const events: KvEvent[] = []
    const count = 1 + this.#random.below(3)
    for (let i = 0; i < count; i++) events.push(this.#randomEvent())
    return this.#emit(events)
  }

  /** A batch that says that everything is gone. */
  publishClear(): PublishedBatch {
    this.#cache.clear()
    return this.#emit([KV_CLEARED])
  }

  /** A batch of a publisher that has lost track: what it told counts no more, and the cache is as it was. */
  publishWithdrawal(): PublishedBatch {
    return this.#emit([KV_WITHDRAWN])
  }

  /** A batch with an event of this kind only. */
  publishStore(): PublishedBatch {
    return this.#emit([this.#store(undefined)])
  }

  /** A batch of these events, which say nothing of the cache. */
  publishEvents(events: readonly KvEvent[]): PublishedBatch {
    return this.#emit(events)
  }

  /** A batch that nobody can decode; nothing changes. */
  publishGarbage(): PublishedBatch {
    return this.#keep(new Uint8Array([0xc1, ...this.#random.bytes(20)]))
  }

  /** What is cached as batches of stores, one block each, parents first; at least one batch. */
  snapshot(): readonly Uint8Array[] {
    const stores: KvEvent[] = []
    const told = new Set<string>()
    const tell = (key: string): void => {
      const block = this.#cache.get(key)
      if (block === undefined || told.has(key)) return
      told.add(key)
      const { hash, parent, copies } = block
      if (parent !== undefined) tell(parent)
      const token = tokenOf(hash)
      const store = kvStored({
        hashes: hash,
        parent: parent === undefined ? undefined : this.#cache.get(parent)?.hash,
        tokens: Int32Array.of(token, token),
        blockSizeTokens: SOURCE_BLOCK_TOKENS,
      })
      for (let copy = 0; copy < copies; copy++) stores.push(store)
    }
    for (const key of this.#cache.keys()) tell(key)
    const events = stores.length === 0 ? [[]] : stores.map(store => [store])
    return events.map(some =>
      encodeKvBatch({ timestampSeconds: this.#timestampSeconds, rank: this.#rank, events: some }, this.#form),
    )
  }

  /** Its clock is set: what it publishes next may be older than what it published last. */
  moveClock(seconds: number): void {
    this.#timestampSeconds += seconds
  }

  /** Another process takes over, and nothing is cached. */
  restart({ nextSequence = 0, hasNewHashes = true } = {}): void {
    this.#life++
    if (hasNewHashes) this.#hashLife = this.#life
    this.#nextSequence = nextSequence
    this.#kept = []
    this.#cache.clear()
  }

  #randomEvent(): KvEvent {
    const leaves = [...this.#cache].filter(([key]) => !this.#hasChild(key))
    const choice = this.#random.below(20)
    if (choice < 6 && leaves.length > 0) return this.#remove(leaves[this.#random.below(leaves.length)]!)
    if (choice < 9 && leaves.length > 0) return this.#storeAgain(leaves[this.#random.below(leaves.length)]!)
    if (choice === 9) {
      this.#cache.clear()
      return KV_CLEARED
    }
    const keys = [...this.#cache.keys()]
    const parent =
      this.#random.below(3) === 0 || keys.length === 0 ? undefined : keys[this.#random.below(keys.length)]
    return this.#store(parent)
  }

  #store(parent: string | undefined): KvEvent {
    const hashes: number[] = []
    const tokens: number[] = []
    let above = parent
    const count = 1 + this.#random.below(3)
    for (let i = 0; i < count; i++) {
      const token = this.#random.below(3)
      const hash = hashOf(this.#hashLife, above, token)
      const key = hexOf(hash)
      // A run that begins a prompt and is known already would be a report, not a copy.
      if (this.#cache.has(key) && (i > 0 || count > 1)) break
      this.#addCopy(key, hash, above)
      hashes.push(...hash)
      tokens.push(token, token)
      above = key
    }
    if (hashes.length === 0) return kvRemoved({ hashes: Int32Array.of(1, 1) })
    return kvStored({
      hashes: Int32Array.from(hashes),
      parent: parent === undefined ? undefined : this.#cache.get(parent)!.hash,
      tokens: Int32Array.from(tokens),
      blockSizeTokens: SOURCE_BLOCK_TOKENS,
    })
  }

  /** Another physical copy of a block. */
  #storeAgain([key, block]: readonly [string, Block]): KvEvent {
    block.copies++
    const token = tokenOf(block.hash)
    return kvStored({
      hashes: this.#cache.get(key)!.hash,
      parent: block.parent === undefined ? undefined : this.#cache.get(block.parent)!.hash,
      tokens: Int32Array.of(token, token),
      blockSizeTokens: SOURCE_BLOCK_TOKENS,
    })
  }

  #remove([key, block]: readonly [string, Block]): KvEvent {
    this.#cache.delete(key)
    return kvRemoved({ hashes: block.hash })
  }

  #addCopy(key: string, hash: Int32Array, parent: string | undefined): void {
    const block = this.#cache.get(key)
    if (block === undefined) this.#cache.set(key, { hash, parent, copies: 1 })
    else block.copies++
  }

  #hasChild(key: string): boolean {
    for (const block of this.#cache.values()) if (block.parent === key) return true
    return false
  }

  #emit(events: readonly KvEvent[]): PublishedBatch {
    this.#timestampSeconds += 0.25
    const batch = { timestampSeconds: this.#timestampSeconds, rank: this.#rank, events }
    return this.#keep(encodeKvBatch(batch, this.#form))
  }

  #keep(payload: Uint8Array): PublishedBatch {
    const batch = { sequence: this.#nextSequence++, payload }
    this.#kept.push(batch)
    if (this.#kept.length > this.#keptMax) this.#kept.shift()
    this.#snapshots[this.#life] ??= []
    this.#snapshots[this.#life]!.push(this.cached)
    return batch
  }
}

export function hexOf(hash: ArrayLike<number>): string {
  const hex = (word: number) => (word >>> 0).toString(16).padStart(8, '0')
  return hex(hash[1]!) + hex(hash[0]!)
}

/** Equal prefixes have equal hashes within a life; the low two bits of the high word are the token. */
function hashOf(life: number, parent: string | undefined, token: number): Int32Array {
  const text = `${life} ${parent} ${token}`
  let low = 0x811c9dc5
  let high = 0x1234567
  for (let i = 0; i < text.length; i++) {
    low = Math.imul(low ^ text.charCodeAt(i), 0x01000193)
    high = Math.imul(high ^ text.charCodeAt(i), 0x85ebca6b) + low
  }
  return Int32Array.of(low, (high & ~3) | token)
}

function tokenOf(hash: Int32Array): number {
  return hash[1]! & 3
}
