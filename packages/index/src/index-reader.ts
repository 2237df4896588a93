/**
 * IndexReader: overlaps of a prompt with every worker slot, read from shared memory that others write.
 *
 * Takes no lock, registers nowhere, writes nothing that others read, allocates nothing per lookup. Every
 * (worker slot, block) that it counts was held at some instant during the call; the answer is not a picture
 * of one instant.
 *
 * Per chunk: its VER, PARENT and first hash as expected; then the VER of the chunk above is still the one it
 * had there (so PARENT meant that block); USED once; hashes, set ids; a bitmap under one even version, with
 * the id still at the block afterwards; the version of the current set again when it is left and at the end
 * of the chunk (ids are given to other sets); last the chunk's VER again. "No such child" counts only if the
 * bucket's unlink counter was even and did not move during the walk of the chain, and the VER of the chunk
 * above is even and the same; that MASK or USED say there is nothing, only if VER is even. What writers do in
 * which order, and why this suffices, is in ../wasm/loops/chunks.ts. Anything else: the lookup of the shard
 * starts again, as it does when H_LIFE changes (a new writer empties the shard in place, a holder gets
 * another owner), 64 times in all with pauses between; then the shard is a miss, counted, and `isComplete` is
 * false: a worse choice for one request instead of a wait for all.
 *
 * Memory that its writer has left for other memory (H_LEFT) is read as it was at that moment; memory of a
 * writer that is gone (door.ts) is not. Both are counted, and `isStale` says which shards to ask for anew.
 *
 * The walk is WebAssembly (../wasm/loops/reader.ts). It works in a scratch behind the shard that is this
 * reader's alone, to which the hashes of the prompt are copied: the first ones, further ones when the walk
 * asks for them.
 *
 * Memory order: on x64 loads stay in order, so data words are plain; a memory created with `atomic` access
 * is read atomically throughout.
 */

import { numberOfDoor } from './door.ts'
import type { LayerOverlaps, Layers } from './layers.ts'
import { type Loops, loopsOver } from './loops.ts'
import type { OverlapCounts } from './overlap-counts.ts'
import { giveScratch, isMemory, isShard, load, takeScratch } from './shard-memory.ts'
import type { IndexMemory, ReaderStats, ShardMemory } from './types.ts'
import {
  H_ACCESS,
  H_DOOR_NUMBER,
  H_HELD_BASE,
  H_HOLDER_BASE,
  H_HOLDERS,
  H_LEFT,
  H_SLOTS,
  HEADER_WORDS,
  R_LIFE,
  R_RETRIES,
  R_WORDS,
} from './words.ts'

/** Hashes of a prompt that are copied before a walk begins, and how many times more when it goes on. */
const FIRST_BLOCKS = 32
const MORE_FACTOR = 4
/** No life of a shard, which is even while a walk may count. */
const NO_LIFE = 1
/** Prompts for which there is room at least. */
const BLOCKS_MIN = 1024

export class IndexReader {
  /** Undefined: the memory behind a door is not known yet. */
  readonly #shards: (ShardReader | undefined)[]
  readonly #doors: (Int32Array | undefined)[]
  readonly #isStale: boolean[]
  #lookups = 0
  /** Counts of readers whose memory was replaced. */
  #retries = 0
  #misses = 0
  #staleLookups = 0

  /**
   * One memory per shard, or its door: then the memory comes with `replaceShard`. The worker slots of the
   * shards are disjoint.
   */
  constructor(memories: readonly ShardMemory[]) {
    this.#doors = memories.map(memory => (isMemory(memory) ? undefined : new Int32Array(memory)))
    this.#shards = memories.map(memory => (isMemory(memory) ? new ShardReader(memory, undefined) : undefined))
    this.#isStale = memories.map(() => false)
  }

  /** Reads another memory for a shard from now on: its writer has started afresh, or moved. */
  replaceShard(shard: number, memory: IndexMemory): void {
    if (!(shard >= 0 && shard < this.#shards.length)) throw new RangeError(`no shard ${shard}`)
    this.#retries += this.#shards[shard]?.retries ?? 0
    this.#shards[shard]?.close()
    this.#shards[shard] = new ShardReader(memory, this.#doors[shard])
    this.#isStale[shard] = false
  }

  /** Whether the last lookup found that the writer of this shard has other memory now: ask for it. */
  isStale(shard: number): boolean {
    return this.#isStale[shard] === true
  }

  /**
   * Writes to `into`, whose old content is dropped, how many leading blocks of the prompt each worker slot
   * holds. Looks at the first `limitBlocks` blocks at most.
   */
  overlap(localHashes: Int32Array, count: number, into: OverlapCounts, limitBlocks: number = count): void {
    this.#lookups++
    let capacity = 0
    for (const shard of this.#shards) if (shard !== undefined) capacity += shard.holdersMax
    into.reserve(capacity)
    into.length = 0
    into.isComplete = true
    const blocks = Math.min(count, limitBlocks)
    if (blocks <= 0) return
    for (let i = 0; i < this.#shards.length; i++) {
      const shard = this.#usable(i)
      if (shard === undefined) {
        into.isComplete = false
        continue
      }
      if (shard.overlap(localHashes, blocks, into)) continue
      this.#misses++
      into.isComplete = false
    }
  }

  /**
   * What each layer of each key adds to the prefix that the key can use; see layers.ts. Cost: a walk of its
   * own, and per change of the set of holders a look at every layer of every key that goes on; keys of one
   * layer are better asked for with `overlap`.
   */
  extend(
    localHashes: Int32Array,
    count: number,
    layers: Layers,
    into: LayerOverlaps,
    limitBlocks: number = count,
  ): void {
    this.#lookups++
    into.reset(layers)
    const blocks = Math.min(count, limitBlocks)
    if (blocks <= 0) return
    for (let i = 0; i < this.#shards.length; i++) {
      const shard = this.#usable(i)
      if (shard === undefined) {
        into.isComplete = false
        continue
      }
      if (shard.extend(localHashes, blocks, layers, into)) continue
      this.#misses++
      into.isComplete = false
    }
  }

  /**
   * Blocks that a worker slot of this shard holds, give or take an event that is being written; of a shard
   * that has moved, as of the move. −1: its memory has not come yet.
   */
  blocksHeld(shard: number, workerSlot: number): number {
    const reader = this.#shards[shard]
    return reader === undefined ? -1 : reader.blocksHeld(workerSlot)
  }

  stats(): ReaderStats {
    let retries = this.#retries
    for (const shard of this.#shards) retries += shard?.retries ?? 0
    return {
      lookups: this.#lookups,
      retries,
      misses: this.#misses,
      staleLookups: this.#staleLookups,
    }
  }

  /** The reader of a shard; undefined: it has no memory, or only the memory of an earlier writer. */
  #usable(i: number): ShardReader | undefined {
    const shard = this.#shards[i]
    if (shard !== undefined && !shard.isLeft()) return shard
    this.#isStale[i] = true
    this.#staleLookups++
    return shard?.isOrphaned() === false ? shard : undefined
  }
}

class ShardReader {
  /** The most that a walk may list. */
  readonly holdersMax: number
  readonly #slots: number
  readonly #holderBase: number
  readonly #heldBase: number
  readonly #memory: IndexMemory
  readonly #loops: Loops
  readonly #door: Int32Array | undefined
  readonly #doorNumber: number
  readonly #isAtomic: boolean
  /** All of the memory that this reader looks at: the shard and the scratch. */
  #words: Int32Array
  #scratchBase = 0
  #scratchWords = 0
  /** For what the scratch is laid out. */
  #keyCount = -1
  #layersMax = -1
  #blocksMax = 0
  /** Where hashes go, and answers and layers are: word indexes. */
  #hashesAt = 0
  #answersAt = 0
  #layersAt = 0
  /** The prompt of the current lookup, and how much of it has been copied. */
  #hashes: Int32Array
  #count = 0
  #copied = 0

  constructor(memory: IndexMemory, door: Int32Array | undefined) {
    const isOne = !(memory instanceof SharedArrayBuffer) && memory.buffer.byteLength >= HEADER_WORDS * 4
    if (!isOne || !isShard(new Int32Array(memory.buffer))) {
      throw new TypeError('this memory is not a shard of the index')
    }
    this.#memory = memory
    this.#words = new Int32Array(memory.buffer)
    this.#hashes = this.#words
    this.#door = door
    this.#doorNumber = this.#words[H_DOOR_NUMBER]!
    this.#isAtomic = this.#words[H_ACCESS] === 1
    this.holdersMax = this.#words[H_HOLDERS]!
    this.#slots = this.#words[H_SLOTS]!
    this.#holderBase = this.#words[H_HOLDER_BASE]!
    this.#heldBase = this.#words[H_HELD_BASE]!
    this.#loops = loopsOver(memory, need => this.#more(need))
    this.#reserve(BLOCKS_MIN, 0, 1)
  }

  /** Walks begun again. */
  get retries(): number {
    return this.#words[this.#scratchBase + R_RETRIES]!
  }

  /** Another reader may use the scratch from now on. */
  close(): void {
    giveScratch(this.#memory, this.#scratchBase)
  }

  /** Blocks that this worker slot holds; 0 for one that this shard does not know. */
  blocksHeld(workerSlot: number): number {
    if (!(workerSlot >= 0 && workerSlot < this.#slots)) return 0
    const holder = this.#words[this.#holderBase + workerSlot]! - 1
    return holder < 0 ? 0 : this.#words[this.#heldBase + holder]!
  }

  /** Whether the writer has other memory now, or is another. */
  isLeft(): boolean {
    return load(this.#words, H_LEFT, this.#isAtomic) !== 0 || this.isOrphaned()
  }

  /** Whether the writer of this memory is gone. */
  isOrphaned(): boolean {
    return this.#door !== undefined && numberOfDoor(this.#door) !== this.#doorNumber
  }

  /** Appends its answers to `into`. False: no shard could answer, and `into` has nothing new. */
  overlap(hashes: Int32Array, count: number, into: OverlapCounts): boolean {
    if (count > this.#blocksMax) this.#reserve(count, this.#keyCount, this.#layersMax)
    this.#begin(hashes, count)
    const length = this.#loops.overlap(count, this.#copied)
    if (length < 0) return false
    const words = this.#words
    const { workerSlots, blocks } = into
    let to = into.length
    for (let i = 0, at = this.#answersAt; i < length; i++, at += 2) {
      workerSlots[to] = words[at]!
      blocks[to++] = words[at + 1]!
    }
    into.length = to
    return true
  }

  /** Adds its overlap of each key to `into`. False: no shard could answer, and `into` is unchanged. */
  extend(hashes: Int32Array, count: number, layers: Layers, into: LayerOverlaps): boolean {
    const { keyCount, layersMax, slots } = layers
    if (count > this.#blocksMax || keyCount !== this.#keyCount || layersMax !== this.#layersMax) {
      this.#reserve(count, keyCount, layersMax)
    }
    const at = this.#layersAt
    this.#words.set(slots, at)
    this.#begin(hashes, count)
    if (this.#loops.extend(count, this.#copied) === 0) return false
    const credited = at + slots.length
    for (let i = 0; i < slots.length; i++) into.blocks[i]! += this.#words[credited + i]!
    return true
  }

  #begin(hashes: Int32Array, count: number): void {
    this.#hashes = hashes
    this.#count = count
    const first = Math.min(count, FIRST_BLOCKS)
    const words = this.#words
    for (let i = 0, at = this.#hashesAt; i < 2 * first; i++) words[at + i] = hashes[i]!
    this.#copied = first
  }

  #more(need: number): number {
    const end = Math.min(this.#count, Math.max(need, this.#copied * MORE_FACTOR))
    const from = 2 * this.#copied
    this.#words.set(this.#hashes.subarray(from, 2 * end), this.#hashesAt + from)
    this.#copied = end
    return end
  }

  /** Lays the scratch out for prompts of so many blocks and so many layers of so many keys. */
  #reserve(blocks: number, keyCount: number, layersMax: number): void {
    const fixed = this.#loops.scratchWords(keyCount, layersMax)
    if (fixed + 2 * blocks > this.#scratchWords) {
      const isFirst = this.#scratchWords === 0
      const retries = isFirst ? 0 : this.retries
      if (!isFirst) this.close()
      const { base, wordCount } = takeScratch(this.#memory, fixed + 4 * blocks)
      this.#words = new Int32Array(this.#memory.buffer)
      this.#scratchBase = base
      this.#scratchWords = wordCount
      this.#words[base + R_WORDS] = wordCount
      this.#words[base + R_RETRIES] = retries
      this.#words[base + R_LIFE] = NO_LIFE
    }
    this.#keyCount = keyCount
    this.#layersMax = layersMax
    this.#blocksMax = (this.#scratchWords - fixed) >> 1
    this.#hashesAt = this.#loops.useScratch(this.#scratchBase * 4, keyCount, layersMax) >>> 2
    this.#answersAt = this.#loops.answersAt() >>> 2
    this.#layersAt = this.#loops.layersAt() >>> 2
  }
}
