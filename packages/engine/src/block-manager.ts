/**
 * Block manager: the paged KV cache of one dp rank of the simulated engine, block for block as vLLM keeps it.
 *
 *   free list   blank blocks  <->  cached, oldest … newest      blocks that no sequence uses
 *   cached      engine hash -> physical blocks                  used or free; the first stored serves hits
 *   sequence    physical blocks in token order                  each counted once per sequence that holds it
 *
 * Invariants
 *   I1  A block is in the free list exactly when no sequence holds it.
 *   I2  Only full blocks carry an engine hash; a hash covers all tokens from 0, the adapter and the salt.
 *   I3  A hit covers at most floor((tokens − 1) / block size) blocks: one token is always computed.
 *   I4  The parent of a cached block is cached, because sequences are released tail first.
 *   I5  Per hash, stored − removed events equal the physical copies (until a clear, which ends the epoch); if
 *       only the last removal is reported, a hash is cached from a store to the next removal.
 *
 * Duplicates are kept, as vLLM does: a prompt of exactly n blocks recomputes its last block each time, stores
 * it anew and removes it later, so one hash may be stored three times and removed three times.
 *
 * Cost       O(1) per block for allocate, release and evict; match is one table look-up per leading block.
 * Source     vLLM 0.32 (v1 block pool and KV-cache manager) as captured on the wire:
 *            test/vllm-capture.test.ts plays a recorded session back and finds the same batches.
 */

import { type HashWords, hashBlock, hashNamespace, hexOfHash } from './engine-hash.ts'

/** What separates equal tokens: the adapter and the cache salt of a request. */
export interface CacheNamespace {
  readonly loraName?: string | undefined
  readonly cacheSalt?: string | undefined
}

/**
 * Blocks became cached. `hashes` holds pairs of words [lo, hi]; `tokenIds` has blockSizeTokens ids per hash.
 */
export interface BlocksStored {
  readonly type: 'stored'
  readonly hashes: Int32Array
  /** Hash of the block before the first one; undefined at token 0. */
  readonly parentHash: HashWords | undefined
  /** Index of the first stored block in its sequence; 0 exactly when there is no parent. */
  readonly firstBlockIndex: number
  readonly tokenIds: Int32Array
  readonly namespace: CacheNamespace
  /** The session that caused it, if the request named one. */
  readonly sessionId: string | undefined
}

/** One physical copy of one block was given up. */
export interface BlockRemoved {
  readonly type: 'removed'
  readonly hash: HashWords
}

/** The whole cache is empty. */
export interface BlocksCleared {
  readonly type: 'cleared'
}

export type CacheEvent = BlocksStored | BlockRemoved | BlocksCleared

/** One cached hash, for comparison with an index. */
export interface CachedBlock {
  /** Engine hash, 16 hexadecimal digits. */
  readonly hash: string
  /** Engine hash of the block before, or null at token 0. */
  readonly parentHash: string | null
  /** The tokens of this block alone. */
  readonly tokenIds: readonly number[]
  /** Physical copies, ≥ 1. */
  readonly copies: number
  /**
   * A removal of a copy was reported after the last store: the events do not tell whether the block is still
   * held.
   */
  readonly hasLostCopy: boolean
  readonly loraName: string | null
  readonly cacheSalt: string | null
}

export interface BlockManagerOptions {
  readonly blockSizeTokens: number
  /** Physical blocks; one of them is vLLM's null block, so `blockCount − 1` can hold tokens. */
  readonly blockCount: number
  /** Seed of the engine hashes: another seed gives other hashes for equal tokens. */
  readonly hashSeed: number
  /**
   * Which removals of a block's copies are reported: each, as vLLM does, or only the last (vLLM #55092).
   * Default: each.
   */
  readonly removals?: 'each' | 'last'
}

/** The token and block state of one request; made by `openSequence`, changed only by its manager. */
export interface BlockSequence {
  readonly namespace: CacheNamespace
  readonly sessionId: string | undefined
  /** Prompt, then generated ids; `length` of them count. */
  tokenIds: Int32Array
  length: number
  /** Physical blocks held, in token order. */
  readonly blockIds: number[]
  /** Engine hashes of the leading full blocks, as far as computed; words [lo, hi]. */
  hashWords: Int32Array
  hashedBlocks: number
  /** Leading blocks that are cached (by hit or by store). */
  cachedBlocks: number
}

const NONE = -1

export class BlockManager {
  readonly blockSizeTokens: number
  readonly blockCount: number

  readonly #tellsEachRemoval: boolean
  readonly #seed: HashWords
  /** Tokens of every physical block that carries a hash. */
  readonly #tokens: Int32Array
  readonly #hashes: Int32Array
  readonly #parents: Int32Array
  readonly #hasHash: Uint8Array
  readonly #hasParent: Uint8Array
  readonly #references: Int32Array
  /** Equal for all copies of a hash. */
  readonly #hasLostCopy: Uint8Array
  readonly #namespaces: (CacheNamespace | undefined)[]

  // Free list: a ring through the sentinel `blockCount`.
  readonly #freeNext: Int32Array
  readonly #freePrevious: Int32Array
  #freeCount: number

  // Cached blocks: 53 bits of the hash -> first block of a ring of blocks with that key, in order of storing.
  readonly #cached = new Map<number, number>()
  readonly #ringNext: Int32Array
  readonly #ringPrevious: Int32Array
  #cachedCount = 0

  #events: CacheEvent[] = []

  constructor(options: BlockManagerOptions) {
    const { blockSizeTokens, blockCount } = options
    if (!Number.isInteger(blockSizeTokens) || blockSizeTokens < 1) {
      throw new RangeError(
        `cannot make a block manager: blockSizeTokens is ${blockSizeTokens}, use 1 or more`,
      )
    }
    if (!Number.isInteger(blockCount) || blockCount < 2) {
      throw new RangeError(`cannot make a block manager: blockCount is ${blockCount}, use 2 or more`)
    }
    this.blockSizeTokens = blockSizeTokens
    this.blockCount = blockCount
    this.#tellsEachRemoval = options.removals !== 'last'
    this.#seed = hashNamespace(options.hashSeed, undefined, undefined)
    this.#tokens = new Int32Array(blockCount * blockSizeTokens)
    this.#hashes = new Int32Array(blockCount * 2)
    this.#parents = new Int32Array(blockCount * 2)
    this.#hasHash = new Uint8Array(blockCount)
    this.#hasParent = new Uint8Array(blockCount)
    this.#references = new Int32Array(blockCount)
    this.#hasLostCopy = new Uint8Array(blockCount)
    this.#namespaces = new Array(blockCount).fill(undefined)
    this.#freeNext = new Int32Array(blockCount + 1).fill(NONE)
    this.#freePrevious = new Int32Array(blockCount + 1).fill(NONE)
    this.#ringNext = new Int32Array(blockCount).fill(NONE)
    this.#ringPrevious = new Int32Array(blockCount).fill(NONE)
    this.#freeNext[blockCount] = blockCount
    this.#freePrevious[blockCount] = blockCount
    this.#freeCount = 0
    // Block 0 is the null block and never free.
    for (let block = 1; block < blockCount; block++) this.#insertFree(block, block - 1 || blockCount)
  }

  /** Blocks that can hold tokens at the same time. */
  get usableBlocks(): number {
    return this.blockCount - 1
  }

  /** Blocks that no sequence holds, cached or not. */
  get freeBlocks(): number {
    return this.#freeCount
  }

  /** Physical blocks that carry a hash. */
  get cachedBlocks(): number {
    return this.#cachedCount
  }

  /** Share of the blocks that sequences hold, 0 … 1. */
  get usage(): number {
    return 1 - this.#freeCount / this.usableBlocks
  }

  /** A sequence that holds no block yet. `promptIds` is copied. */
  openSequence(
    promptIds: ArrayLike<number>,
    namespace: CacheNamespace = {},
    sessionId?: string,
  ): BlockSequence {
    const tokenIds = new Int32Array(promptIds.length + 64)
    tokenIds.set(promptIds)
    return {
      namespace,
      sessionId,
      tokenIds,
      length: promptIds.length,
      blockIds: [],
      hashWords: new Int32Array(2 * Math.floor(promptIds.length / this.blockSizeTokens) + 8),
      hashedBlocks: 0,
      cachedBlocks: 0,
    }
  }

  /** Appends one generated id. Takes no block: `allocate` does. */
  append(sequence: BlockSequence, tokenId: number): void {
    if (sequence.length === sequence.tokenIds.length) {
      const larger = new Int32Array(sequence.length * 2)
      larger.set(sequence.tokenIds)
      sequence.tokenIds = larger
    }
    sequence.tokenIds[sequence.length++] = tokenId
  }

  /** Leading full blocks of the sequence that are cached now, at most floor((length − 1) / block size). */
  match(sequence: BlockSequence): number {
    const blocksMax = Math.floor((sequence.length - 1) / this.blockSizeTokens)
    this.#hashUpTo(sequence, blocksMax)
    for (let index = 0; index < blocksMax; index++) {
      if (this.#findCached(sequence, index) === NONE) return index
    }
    return Math.max(0, blocksMax)
  }

  /**
   * The blocks of a prompt that could be of use to it and are not cached: how many leading ones are, and the
   * hashes of those behind them, as pairs of words.
   */
  missingOf(
    promptIds: ArrayLike<number>,
    namespace: CacheNamespace,
  ): { readonly hitBlocks: number; readonly hashes: Int32Array } {
    const sequence = this.openSequence(promptIds, namespace)
    const hitBlocks = this.match(sequence)
    return { hitBlocks, hashes: sequence.hashWords.subarray(2 * hitBlocks, 2 * sequence.hashedBlocks) }
  }

  /**
   * True when `tokens` tokens fit after reusing `hitBlocks` leading blocks, which are not evicted for it, and
   * with `promisedBlocks` left over for others.
   */
  fits(sequence: BlockSequence, hitBlocks: number, tokens: number, promisedBlocks = 0): boolean {
    const blocksNew = Math.ceil(tokens / this.blockSizeTokens) - hitBlocks
    let hitsFree = 0
    for (let index = 0; index < hitBlocks; index++) {
      if (this.#references[this.#findCached(sequence, index)] === 0) hitsFree++
    }
    return blocksNew <= this.#freeCount - hitsFree - promisedBlocks
  }

  /** Takes the leading `hitBlocks` cached blocks (as `match` found them) into a sequence that holds none. */
  reuse(sequence: BlockSequence, hitBlocks: number): void {
    for (let index = 0; index < hitBlocks; index++) {
      const block = this.#findCached(sequence, index)
      if (this.#references[block]!++ === 0) this.#unlinkFree(block)
      sequence.blockIds.push(block)
    }
    sequence.cachedBlocks = hitBlocks
  }

  /**
   * Grows the sequence to room for `tokens` tokens, evicting the oldest free blocks. False, with nothing
   * changed, when they do not suffice.
   */
  allocate(sequence: BlockSequence, tokens: number): boolean {
    const blocksNew = Math.ceil(tokens / this.blockSizeTokens) - sequence.blockIds.length
    if (blocksNew > this.#freeCount) return false
    for (let taken = 0; taken < blocksNew; taken++) {
      const block = this.#freeNext[this.blockCount]!
      this.#unlinkFree(block)
      if (this.#hasHash[block] === 1) this.#evict(block)
      this.#references[block] = 1
      sequence.blockIds.push(block)
    }
    return true
  }

  /** Caches the full blocks among the first `tokens` tokens of the sequence; they can be hit from now on. */
  store(sequence: BlockSequence, tokens: number): void {
    const first = sequence.cachedBlocks
    const end = Math.floor(tokens / this.blockSizeTokens)
    if (end <= first) return
    this.#hashUpTo(sequence, end)
    for (let index = first; index < end; index++) this.#cache(sequence, index)
    sequence.cachedBlocks = end
    this.#events.push(this.#storedEvent(sequence, first, end))
  }

  /** Reports the first `blocks` cached blocks of the sequence again, as one stored event from token 0. */
  reportAgain(sequence: BlockSequence, blocks: number): void {
    if (blocks > 0) this.#events.push(this.#storedEvent(sequence, 0, blocks))
  }

  /**
   * Gives all blocks of the sequence back, tail first. The sequence may be allocated again (after
   * preemption).
   */
  release(sequence: BlockSequence): void {
    for (let index = sequence.blockIds.length - 1; index >= 0; index--) {
      const block = sequence.blockIds[index]!
      if (--this.#references[block]! > 0) continue
      // Blocks that no request can hit are evicted first.
      if (this.#hasHash[block] === 1) this.#insertFree(block, this.#freePrevious[this.blockCount]!)
      else this.#insertFree(block, this.blockCount)
    }
    sequence.blockIds.length = 0
    sequence.cachedBlocks = 0
  }

  /**
   * Empties the cache and notes one cleared event. False, with nothing changed, while sequences hold blocks.
   */
  clear(): boolean {
    if (this.#freeCount !== this.usableBlocks) return false
    this.#cached.clear()
    this.#hasHash.fill(0)
    this.#ringNext.fill(NONE)
    this.#ringPrevious.fill(NONE)
    this.#namespaces.fill(undefined)
    this.#cachedCount = 0
    this.#events.push({ type: 'cleared' })
    return true
  }

  /** The events since the last call, in the order in which they happened. The caller owns them. */
  takeEvents(): CacheEvent[] {
    const events = this.#events
    this.#events = []
    return events
  }

  /** Every cached hash once, in the order of storing its oldest copy's key; O(cached blocks). */
  cacheSnapshot(): CachedBlock[] {
    const copies = new Map<string, number>()
    const firsts: number[] = []
    for (const head of this.#cached.values()) {
      let block = head
      do {
        const hash = this.#hexOf(this.#hashes, block)
        const known = copies.get(hash)
        if (known === undefined) firsts.push(block)
        copies.set(hash, (known ?? 0) + 1)
        block = this.#ringNext[block]!
      } while (block !== head)
    }
    return firsts.map(block => {
      const hash = this.#hexOf(this.#hashes, block)
      const start = block * this.blockSizeTokens
      return {
        hash,
        parentHash: this.#hasParent[block] === 1 ? this.#hexOf(this.#parents, block) : null,
        tokenIds: Array.from(this.#tokens.subarray(start, start + this.blockSizeTokens)),
        copies: copies.get(hash)!,
        hasLostCopy: this.#hasLostCopy[block] === 1,
        loraName: this.#namespaces[block]?.loraName ?? null,
        cacheSalt: this.#namespaces[block]?.cacheSalt ?? null,
      }
    })
  }

  #hashUpTo(sequence: BlockSequence, blocks: number): void {
    if (sequence.hashedBlocks >= blocks) return
    if (sequence.hashWords.length < 2 * blocks) {
      const larger = new Int32Array(Math.max(2 * blocks, 2 * sequence.hashWords.length))
      larger.set(sequence.hashWords)
      sequence.hashWords = larger
    }
    const words = sequence.hashWords
    const { loraName, cacheSalt } = sequence.namespace
    const root =
      loraName === undefined && cacheSalt === undefined
        ? this.#seed
        : hashNamespace(this.#seed[0], loraName, cacheSalt)
    const size = this.blockSizeTokens
    for (let index = sequence.hashedBlocks; index < blocks; index++) {
      const low = index === 0 ? root[0] : words[2 * index - 2]!
      const high = index === 0 ? root[1] : words[2 * index - 1]!
      hashBlock(low, high, sequence.tokenIds, index * size, size, words, 2 * index)
    }
    sequence.hashedBlocks = blocks
  }

  /** The oldest physical block cached under the hash of block `index`, or NONE. */
  #findCached(sequence: BlockSequence, index: number): number {
    const low = sequence.hashWords[2 * index]!
    const high = sequence.hashWords[2 * index + 1]!
    const head = this.#cached.get(keyOf(low, high))
    if (head === undefined) return NONE
    let block = head
    do {
      if (this.#hashes[2 * block] === low && this.#hashes[2 * block + 1] === high) return block
      block = this.#ringNext[block]!
    } while (block !== head)
    return NONE
  }

  #cache(sequence: BlockSequence, index: number): void {
    const block = sequence.blockIds[index]!
    const words = sequence.hashWords
    const low = words[2 * index]!
    const high = words[2 * index + 1]!
    this.#hashes[2 * block] = low
    this.#hashes[2 * block + 1] = high
    this.#hasHash[block] = 1
    this.#hasParent[block] = index > 0 ? 1 : 0
    if (index > 0) {
      this.#parents[2 * block] = words[2 * index - 2]!
      this.#parents[2 * block + 1] = words[2 * index - 1]!
    }
    const size = this.blockSizeTokens
    this.#tokens.set(sequence.tokenIds.subarray(index * size, (index + 1) * size), block * size)
    this.#namespaces[block] = sequence.namespace
    this.#hasLostCopy[block] = 0
    this.#cachedCount++

    const key = keyOf(low, high)
    const head = this.#cached.get(key)
    if (head === undefined) {
      this.#cached.set(key, block)
      this.#ringNext[block] = block
      this.#ringPrevious[block] = block
      return
    }
    const tail = this.#ringPrevious[head]!
    this.#ringNext[tail] = block
    this.#ringPrevious[block] = tail
    this.#ringNext[block] = head
    this.#ringPrevious[head] = block
    this.#markCopies(block, 0)
  }

  /** Marks all cached copies of this block, which is one of them. */
  #markCopies(block: number, hasLostCopy: 0 | 1): void {
    const low = this.#hashes[2 * block]
    const high = this.#hashes[2 * block + 1]
    for (let copy = this.#ringNext[block]!; copy !== block; copy = this.#ringNext[copy]!) {
      if (this.#hashes[2 * copy] === low && this.#hashes[2 * copy + 1] === high)
        this.#hasLostCopy[copy] = hasLostCopy
    }
  }

  #evict(block: number): void {
    const low = this.#hashes[2 * block]!
    const high = this.#hashes[2 * block + 1]!
    const key = keyOf(low, high)
    const next = this.#ringNext[block]!
    if (next === block) {
      this.#cached.delete(key)
    } else {
      if (this.#tellsEachRemoval) this.#markCopies(block, 1)
      const previous = this.#ringPrevious[block]!
      this.#ringNext[previous] = next
      this.#ringPrevious[next] = previous
      if (this.#cached.get(key) === block) this.#cached.set(key, next)
    }
    this.#hasHash[block] = 0
    this.#namespaces[block] = undefined
    this.#cachedCount--
    if (this.#tellsEachRemoval || next === block) this.#events.push({ type: 'removed', hash: [low, high] })
  }

  #storedEvent(sequence: BlockSequence, first: number, end: number): BlocksStored {
    const words = sequence.hashWords
    const size = this.blockSizeTokens
    return {
      type: 'stored',
      hashes: words.slice(2 * first, 2 * end),
      parentHash: first === 0 ? undefined : [words[2 * first - 2]!, words[2 * first - 1]!],
      firstBlockIndex: first,
      tokenIds: sequence.tokenIds.slice(first * size, end * size),
      namespace: sequence.namespace,
      sessionId: sequence.sessionId,
    }
  }

  /** Puts a block behind another one of the free list; `blockCount` is before the oldest. */
  #insertFree(block: number, previous: number): void {
    const next = this.#freeNext[previous]!
    this.#freeNext[previous] = block
    this.#freePrevious[block] = previous
    this.#freeNext[block] = next
    this.#freePrevious[next] = block
    this.#freeCount++
  }

  #unlinkFree(block: number): void {
    const previous = this.#freePrevious[block]!
    const next = this.#freeNext[block]!
    this.#freeNext[previous] = next
    this.#freePrevious[next] = previous
    this.#freeCount--
  }

  #hexOf(words: Int32Array, block: number): string {
    return hexOfHash(words[2 * block]!, words[2 * block + 1]!)
  }
}

/** 53 bits of a hash as a number, which Map keys fastest; the other 11 bits are compared in the ring. */
function keyOf(low: number, high: number): number {
  return (high >>> 11) * 4_294_967_296 + (low >>> 0)
}
