/**
 * IndexReader: overlaps of a prompt with every worker slot, read from shared memory that others write.
 *
 * Takes no lock, registers nowhere, writes nothing, allocates nothing per lookup. Every (worker slot, block)
 * that it counts was held at some instant during the call; the answer is not a picture of one instant.
 *
 * Per chunk: its VER, PARENT and first hash as expected; then the VER of the chunk above is still the one it
 * had there (so PARENT meant that block); USED once; hashes, set ids; a bitmap under one even version, with
 * the id still at the block afterwards; the version of the current set again when it is left and at the end
 * of the chunk (ids are given to other sets); last the chunk's VER again. "No such child" counts only if the
 * bucket's unlink counter was even and did not move during the walk of the chain, and the VER of the chunk above
 * is even and the same; that MASK or USED say there is nothing, only if VER is even. What writers do in which order,
 * and why this suffices, is in chunks.ts. Anything else: the lookup of the shard starts again, as it does when
 * H_LIFE changes (a new writer empties the shard in place, a holder gets another owner), ATTEMPTS_MAX times; then
 * the shard is a miss, counted, and `isComplete` is false: a worse choice for one request instead of a wait
 * for all.
 *
 * Memory that its writer has left for other memory (H_LEFT) is read as it was at that moment; memory of a writer
 * that is gone (door.ts) is not. Both are counted, and `isStale` says which shards to ask for anew.
 *
 * Memory order: on x64 loads stay in order, so data words are plain; a memory created with `atomic` access
 * is read with Atomics throughout.
 */

import { isDoor, numberOfDoor } from './door.ts'
import type { LayerScores, Layers } from './layers.ts'
import {
  bucketOf,
  CHUNK_WORDS,
  childHash,
  H_ACCESS,
  H_BUCKET_BASE,
  H_BUCKETS,
  H_CHUNK_BASE,
  H_DOOR_NUMBER,
  H_HOLDER_BASE,
  H_HOLDER_WORDS,
  H_HOLDERS,
  H_LEFT,
  H_LIFE,
  H_MAGIC,
  H_OWNER_BASE,
  H_SET_BITS_BASE,
  H_SET_VERSION_BASE,
  H_SET_WORDS,
  H_SLOTS,
  H_UNLINK_BASE,
  H_UNLINK_MASK,
  HNEXT,
  LOC,
  load,
  MAGIC,
  MASK,
  NEXT,
  PARENT,
  SET,
  USED,
  VER,
} from './layout.ts'
import type { OverlapScores } from './overlap-scores.ts'
import type { ReaderStats } from './types.ts'

/** A walk is begun again this often before the shard counts as a miss. */
const ATTEMPTS_MAX = 64
/** Longer chains do not occur; a reader that strays through freed chunks may meet one. */
const CHAIN_STEPS_MAX = 4096
/** A set id that changes again and again under the reader. */
const SET_READS_MAX = 64

export class IndexReader {
  /** Undefined: a door whose memory has not come yet. */
  readonly #shards: (ShardReader | undefined)[]
  readonly #doors: (Int32Array | undefined)[]
  readonly #isStale: boolean[]
  #lookups = 0
  #retries = 0
  #misses = 0
  #staleLookups = 0

  /**
   * One memory per shard, or its door: then the memory comes with `replaceShard`. The worker slots of the shards
   * are disjoint.
   */
  constructor(memories: readonly SharedArrayBuffer[]) {
    this.#doors = memories.map(memory => (isDoor(memory) ? new Int32Array(memory) : undefined))
    this.#shards = memories.map((memory, i) =>
      this.#doors[i] === undefined ? new ShardReader(memory, undefined) : undefined,
    )
    this.#isStale = memories.map(() => false)
  }

  /** Reads another memory for a shard from now on: its writer has started afresh, or moved. */
  replaceShard(shard: number, memory: SharedArrayBuffer): void {
    if (!(shard >= 0 && shard < this.#shards.length)) throw new RangeError(`no shard ${shard}`)
    this.#shards[shard] = new ShardReader(memory, this.#doors[shard])
    this.#isStale[shard] = false
  }

  /** Whether the last lookup found that the writer of this shard has other memory now: ask for it. */
  isStale(shard: number): boolean {
    return this.#isStale[shard] === true
  }

  /**
   * Leading blocks of the prompt that each worker slot holds, into `into`, whose old content is dropped.
   * Looks at the first `limitBlocks` blocks at most.
   */
  overlap(localHashes: Int32Array, count: number, into: OverlapScores, limitBlocks: number = count): void {
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
      const length = into.length
      let attempts = 1
      while (!shard.walk(localHashes, blocks, into)) {
        into.length = length
        if (attempts++ >= ATTEMPTS_MAX) {
          this.#misses++
          into.isComplete = false
          break
        }
        this.#retries++
      }
    }
  }

  /**
   * What each layer of each key adds to the prefix that the key can use; see layers.ts. Cost: a walk of its own, and
   * per change of the set of holders a look at every layer of every key that goes on; keys of one layer are
   * better asked for with `overlap`.
   */
  extend(
    localHashes: Int32Array,
    count: number,
    layers: Layers,
    into: LayerScores,
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
      let attempts = 1
      while (!shard.walkLayers(localHashes, blocks, layers, into)) {
        if (attempts++ >= ATTEMPTS_MAX) {
          shard.forgetLayers(layers, into)
          this.#misses++
          into.isComplete = false
          break
        }
        this.#retries++
      }
    }
  }

  stats(): ReaderStats {
    return {
      lookups: this.#lookups,
      retries: this.#retries,
      misses: this.#misses,
      staleLookups: this.#staleLookups,
    }
  }

  /** The reader of a shard; undefined: it has no memory, or that of a writer that is gone. */
  #usable(i: number): ShardReader | undefined {
    const shard = this.#shards[i]
    if (shard !== undefined && !shard.isLeft()) return shard
    this.#isStale[i] = true
    this.#staleLookups++
    return shard?.isOrphaned() === false ? shard : undefined
  }
}

/** No worker set has been met yet, or the current one must be read again. */
const NO_SET_YET = -1
const REREAD = -2
/** In the place of a chunk: the walk begins again. */
const AGAIN = -1
/** In the place of the only active holder: several, none. */
const MANY = -1
const NOBODY = -2

class ShardReader {
  /** The most that a walk may list before it is mapped to worker slots. */
  readonly holdersMax: number
  readonly #words: Int32Array
  readonly #door: Int32Array | undefined
  readonly #doorNumber: number
  readonly #isAtomic: boolean
  readonly #workerSlotsMax: number
  readonly #ownerBase: number
  readonly #holderBase: number
  readonly #chunkBase: number
  readonly #bucketBase: number
  readonly #unlinkBase: number
  readonly #unlinkMask: number
  readonly #setVersionBase: number
  readonly #setBitsBase: number
  readonly #setWords: number
  /** Holders that hold everything so far, when they are more than one. */
  readonly #active: Int32Array
  readonly #copy: Int32Array
  /** By holder, as of #ownersLife: its worker slot; a bit that says that it has one. */
  readonly #owners: Int32Array
  readonly #owned: Int32Array
  #ownersLife = 0
  #soughtBase = 0
  #soughtVersion = 0
  /** Of a walk in layers: the holder of each layer of each key, or −1. */
  #layerHolders = new Int32Array(0)
  /** Keys that have gone on so far; and by key the layer that holds the current set's blocks. */
  #alive = new Int32Array(0)
  #layerOf = new Int32Array(0)

  constructor(memory: SharedArrayBuffer, door: Int32Array | undefined) {
    const words = new Int32Array(memory)
    if (Atomics.load(words, H_MAGIC) !== MAGIC) throw new TypeError('this memory is not a shard of the index')
    this.#words = words
    this.#door = door
    this.#doorNumber = words[H_DOOR_NUMBER]!
    this.#isAtomic = words[H_ACCESS] === 1
    this.holdersMax = words[H_HOLDERS]!
    this.#workerSlotsMax = words[H_SLOTS]!
    this.#ownerBase = words[H_OWNER_BASE]!
    this.#holderBase = words[H_HOLDER_BASE]!
    this.#chunkBase = words[H_CHUNK_BASE]!
    this.#bucketBase = words[H_BUCKET_BASE]!
    this.#unlinkBase = words[H_UNLINK_BASE]!
    this.#unlinkMask = words[H_UNLINK_MASK]!
    this.#setVersionBase = words[H_SET_VERSION_BASE]!
    this.#setBitsBase = words[H_SET_BITS_BASE]!
    this.#setWords = words[H_SET_WORDS]!
    this.#active = new Int32Array(this.#setWords)
    this.#copy = new Int32Array(this.#setWords)
    this.#owners = new Int32Array(this.holdersMax)
    this.#owned = new Int32Array(this.#setWords)
  }

  /** Whether the writer has other memory now, or is another. */
  isLeft(): boolean {
    return load(this.#words, H_LEFT, this.#isAtomic) !== 0 || this.isOrphaned()
  }

  /** Whether the writer of this memory is gone. */
  isOrphaned(): boolean {
    return this.#door !== undefined && numberOfDoor(this.#door) !== this.#doorNumber
  }

  /** One attempt. False: memory was used again under it; `into` holds nothing of use then. */
  walk(hashes: Int32Array, count: number, into: OverlapScores): boolean {
    const words = this.#words
    const isAtomic = this.#isAtomic
    const life = Atomics.load(words, H_LIFE)
    if ((life & 1) === 1) return false
    if (life !== this.#ownersLife) this.#readOwners(life)
    const slots = this.holdersMax
    const slotWords = load(words, H_HOLDER_WORDS, isAtomic)
    let above = 0
    let aboveBase = -1
    let aboveVersion = 0
    let hint = 0
    let depth = 0
    let set = NO_SET_YET
    let setVersion = 0
    /** The only active holder, or MANY: see #active. */
    let only = MANY
    let setReads = 0

    for (;;) {
      const low = hashes[2 * depth]!
      const high = hashes[2 * depth + 1]!
      const chunk = this.#seek(above, aboveBase, aboveVersion, hint, low, high)
      if (chunk === AGAIN) return false
      if (chunk === 0) break
      const base = this.#soughtBase
      const version = this.#soughtVersion
      if (aboveBase >= 0 && Atomics.load(words, aboveBase + VER) !== aboveVersion) return false
      const used = load(words, base + USED, isAtomic)
      if (used === 0) {
        if (isMoved(words, base, version)) return false
        break // just emptied
      }
      const matched = isAtomic
        ? matchAtomic(words, base + LOC, Math.min(used, count - depth), hashes, 2 * depth)
        : matchPlain(words, base + LOC, Math.min(used, count - depth), hashes, 2 * depth)

      for (let slot = 0; slot < matched; ) {
        const id = load(words, base + SET + slot, isAtomic)
        if (id === set) {
          slot++
          continue
        }
        if (set > slots && Atomics.load(words, this.#setVersionBase + set - slots - 1) !== setVersion)
          return false
        const isFirst = set === NO_SET_YET
        let isNobodyLeft = false
        if (id === 0) {
          isNobodyLeft = true
        } else if (id <= slots) {
          const worker = id - 1
          if (worker >>> 5 >= slotWords) return false // a holder that is newer than this walk
          if (isFirst) {
            only = worker
            isNobodyLeft = ((this.#owned[worker >>> 5]! >>> (worker & 31)) & 1) === 0
          } else if (only !== MANY) isNobodyLeft = only !== worker
          else if (((this.#active[worker >>> 5]! >>> (worker & 31)) & 1) === 0) isNobodyLeft = true
          else {
            this.#active[worker >>> 5]! &= ~(1 << (worker & 31))
            this.#emitActive(slotWords, depth + slot, into)
            only = worker
          }
        } else {
          const versionAt = this.#setVersionBase + id - slots - 1
          const row = this.#setBitsBase + Math.imul(id - slots - 1, this.#setWords)
          setVersion = Atomics.load(words, versionAt)
          const copy = this.#copy
          for (let i = 0; i < slotWords; i++) copy[i] = load(words, row + i, isAtomic)
          if (
            (setVersion & 1) === 1 ||
            Atomics.load(words, versionAt) !== setVersion ||
            Atomics.load(words, base + SET + slot) !== id
          ) {
            // The block has changed sets: look again. What was read before stays true.
            if (++setReads > SET_READS_MAX) return false
            if (!isFirst) set = REREAD
            continue
          }
          if (isFirst) {
            for (let i = 0; i < slotWords; i++) this.#active[i] = copy[i]! & this.#owned[i]!
          } else if (only !== MANY) {
            isNobodyLeft = ((copy[only >>> 5]! >>> (only & 31)) & 1) === 0
          } else {
            only = this.#intersect(slotWords, depth + slot, into)
            if (only === NOBODY) {
              only = MANY
              isNobodyLeft = true
            }
          }
        }
        if (isNobodyLeft) {
          if (Atomics.load(words, base + VER) !== version) return false
          if (!isFirst) this.#emitRest(only, slotWords, depth + slot, into)
          return Atomics.load(words, H_LIFE) === life
        }
        set = id
        slot++
      }

      const last = matched - 1
      const hasBranch = ((load(words, base + MASK, isAtomic) >>> last) & 1) === 1
      hint = last === 15 ? load(words, base + NEXT, isAtomic) : 0
      if (set > slots && Atomics.load(words, this.#setVersionBase + set - slots - 1) !== setVersion)
        return false
      if (Atomics.load(words, base + VER) !== version) return false
      depth += matched
      if (depth >= count) break
      if (!hasBranch) {
        if ((version & 1) === 1) return false
        break
      }
      above = (chunk << 4) | last
      aboveBase = base
      aboveVersion = version
    }
    if (depth > 0) this.#emitRest(only, slotWords, depth, into)
    return Atomics.load(words, H_LIFE) === life
  }

  /** As `walk`, for keys of several layers: a key goes on as long as one of its layers holds the block. */
  walkLayers(hashes: Int32Array, count: number, layers: Layers, into: LayerScores): boolean {
    const words = this.#words
    const isAtomic = this.#isAtomic
    const life = Atomics.load(words, H_LIFE)
    if ((life & 1) === 1) return false
    const holdersMax = this.holdersMax
    let aliveCount = this.#beginLayers(layers, into)
    if (aliveCount === 0) return Atomics.load(words, H_LIFE) === life
    const holderWords = load(words, H_HOLDER_WORDS, isAtomic)
    let above = 0
    let aboveBase = -1
    let aboveVersion = 0
    let hint = 0
    let depth = 0
    let set = NO_SET_YET
    let setVersion = 0
    let setFrom = 0
    let setReads = 0

    for (;;) {
      const low = hashes[2 * depth]!
      const high = hashes[2 * depth + 1]!
      const chunk = this.#seek(above, aboveBase, aboveVersion, hint, low, high)
      if (chunk === AGAIN) return false
      if (chunk === 0) break
      const base = this.#soughtBase
      const version = this.#soughtVersion
      if (aboveBase >= 0 && Atomics.load(words, aboveBase + VER) !== aboveVersion) return false
      const used = load(words, base + USED, isAtomic)
      if (used === 0) {
        if (isMoved(words, base, version)) return false
        break // just emptied
      }
      const matched = isAtomic
        ? matchAtomic(words, base + LOC, Math.min(used, count - depth), hashes, 2 * depth)
        : matchPlain(words, base + LOC, Math.min(used, count - depth), hashes, 2 * depth)

      for (let slot = 0; slot < matched && aliveCount > 0; ) {
        const id = load(words, base + SET + slot, isAtomic)
        if (id === set) {
          slot++
          continue
        }
        const versionAt = this.#setVersionBase + set - holdersMax - 1
        if (set > holdersMax && Atomics.load(words, versionAt) !== setVersion) return false
        if (id > holdersMax) {
          const row = this.#setBitsBase + Math.imul(id - holdersMax - 1, this.#setWords)
          const idVersionAt = this.#setVersionBase + id - holdersMax - 1
          setVersion = Atomics.load(words, idVersionAt)
          for (let i = 0; i < holderWords; i++) this.#copy[i] = load(words, row + i, isAtomic)
          if (
            (setVersion & 1) === 1 ||
            Atomics.load(words, idVersionAt) !== setVersion ||
            Atomics.load(words, base + SET + slot) !== id
          ) {
            // The block has changed sets: look again. What was read before stays true.
            if (++setReads > SET_READS_MAX) return false
            this.#creditLayers(aliveCount, layers, depth + slot - setFrom, into)
            setFrom = depth + slot
            set = REREAD
            continue
          }
        } else {
          if ((id - 1) >>> 5 >= holderWords && id !== 0) return false // a holder that is newer than this walk
          this.#copy.fill(0, 0, holderWords)
          if (id !== 0) this.#copy[(id - 1) >>> 5] = 1 << ((id - 1) & 31)
        }
        this.#creditLayers(aliveCount, layers, depth + slot - setFrom, into)
        setFrom = depth + slot
        aliveCount = this.#chooseLayers(aliveCount, layers)
        set = id
        slot++
      }

      const last = matched - 1
      const hasBranch = ((load(words, base + MASK, isAtomic) >>> last) & 1) === 1
      hint = last === 15 ? load(words, base + NEXT, isAtomic) : 0
      if (set > holdersMax && Atomics.load(words, this.#setVersionBase + set - holdersMax - 1) !== setVersion)
        return false
      if (Atomics.load(words, base + VER) !== version) return false
      if (aliveCount === 0) return Atomics.load(words, H_LIFE) === life
      depth += matched
      if (depth >= count) break
      if (!hasBranch) {
        if ((version & 1) === 1) return false
        break
      }
      above = (chunk << 4) | last
      aboveBase = base
      aboveVersion = version
    }
    this.#creditLayers(aliveCount, layers, depth - setFrom, into)
    return Atomics.load(words, H_LIFE) === life
  }

  /** Makes what `walkLayers` has written 0 again. */
  forgetLayers(layers: Layers, into: LayerScores): void {
    this.#beginLayers(layers, into)
  }

  /** Keys of this shard: those with a layer that has a holder here. Their number. */
  #beginLayers({ keyCount, layersMax, slots }: Layers, into: LayerScores): number {
    if (this.#layerHolders.length < slots.length) {
      this.#layerHolders = new Int32Array(slots.length)
      this.#alive = new Int32Array(keyCount)
      this.#layerOf = new Int32Array(keyCount)
    }
    let alive = 0
    for (let key = 0; key < keyCount; key++) {
      let isHere = false
      for (let at = key * layersMax; at < (key + 1) * layersMax; at++) {
        const slot = slots[at]!
        const isSlot = slot >= 0 && slot < this.#workerSlotsMax
        const holder = isSlot ? load(this.#words, this.#holderBase + slot, this.#isAtomic) - 1 : -1
        this.#layerHolders[at] = holder
        if (holder >= 0) isHere = true
      }
      if (!isHere) continue
      into.blocks.fill(0, key * layersMax, (key + 1) * layersMax)
      this.#layerOf[key] = 0
      this.#alive[alive++] = key
    }
    return alive
  }

  /** The first layer of each key that is in #copy; keys without one end here. How many go on. */
  #chooseLayers(aliveCount: number, { layersMax }: Layers): number {
    let left = 0
    for (let i = 0; i < aliveCount; i++) {
      const key = this.#alive[i]!
      for (let layer = 0; layer < layersMax; layer++) {
        const holder = this.#layerHolders[key * layersMax + layer]!
        if (holder < 0 || ((this.#copy[holder >>> 5]! >>> (holder & 31)) & 1) === 0) continue
        this.#layerOf[key] = layer
        this.#alive[left++] = key
        break
      }
    }
    return left
  }

  #creditLayers(aliveCount: number, { layersMax }: Layers, blocks: number, into: LayerScores): void {
    if (blocks === 0) return
    for (let i = 0; i < aliveCount; i++) {
      const key = this.#alive[i]!
      into.blocks[key * layersMax + this.#layerOf[key]!]! += blocks
    }
  }

  /**
   * The chunk below `above` that begins with a hash; #soughtBase and #soughtVersion are its. 0: there is none. AGAIN:
   * nobody can say.
   */
  #seek(
    above: number,
    aboveBase: number,
    aboveVersion: number,
    hint: number,
    low: number,
    high: number,
  ): number {
    const words = this.#words
    const isAtomic = this.#isAtomic
    if (hint !== 0) {
      const base = this.#chunkBase + Math.imul(hint, CHUNK_WORDS)
      this.#soughtBase = base
      this.#soughtVersion = load(words, base + VER, isAtomic)
      if (this.#isHead(base, above, low, high)) return hint
    }
    const hash = childHash(above, low, high)
    const unlinksAt = this.#unlinkBase + (hash & this.#unlinkMask)
    const unlinks = Atomics.load(words, unlinksAt)
    const bucket = bucketOf(hash, load(words, H_BUCKETS, isAtomic))
    let chunk = load(words, this.#bucketBase + bucket, isAtomic)
    for (let steps = 0; chunk !== 0; steps++) {
      const base = this.#chunkBase + Math.imul(chunk, CHUNK_WORDS)
      this.#soughtBase = base
      this.#soughtVersion = load(words, base + VER, isAtomic)
      if (this.#isHead(base, above, low, high)) return chunk
      if (steps >= CHAIN_STEPS_MAX) return AGAIN
      chunk = load(words, base + HNEXT, isAtomic)
    }
    if ((unlinks & 1) === 1 || Atomics.load(words, unlinksAt) !== unlinks) return AGAIN
    return aboveBase >= 0 && isMoved(words, aboveBase, aboveVersion) ? AGAIN : 0
  }

  /** Who owns which holder, kept until H_LIFE changes; a walk that saw it change does not count. */
  #readOwners(life: number): void {
    const owned = this.#owned
    owned.fill(0)
    for (let holder = 0; holder < this.holdersMax; holder++) {
      const owner = load(this.#words, this.#ownerBase + holder, this.#isAtomic)
      if (owner === 0) continue
      this.#owners[holder] = owner - 1
      owned[holder >>> 5]! |= 1 << (holder & 31)
    }
    this.#ownersLife = life
  }

  #isHead(base: number, above: number, low: number, high: number): boolean {
    const words = this.#words
    if (this.#isAtomic) {
      return (
        Atomics.load(words, base + PARENT) === above &&
        Atomics.load(words, base + LOC) === low &&
        Atomics.load(words, base + LOC + 1) === high
      )
    }
    return words[base + PARENT] === above && words[base + LOC] === low && words[base + LOC + 1] === high
  }

  /** Keeps in #active what is in #copy, emits what drops out. The one left, MANY, or NOBODY. */
  #intersect(slotWords: number, blocks: number, into: OverlapScores): number {
    const active = this.#active
    const copy = this.#copy
    let left = NOBODY
    for (let i = 0; i < slotWords; i++) {
      const word = active[i]!
      if (word === 0) continue
      const kept = word & copy[i]!
      if (kept !== word) this.#emitWord(word & ~kept, i, blocks, into)
      active[i] = kept
      if (kept === 0) continue
      if (left === NOBODY && (kept & (kept - 1)) === 0) left = i * 32 + 31 - Math.clz32(kept)
      else left = MANY
    }
    return left
  }

  #emitRest(only: number, slotWords: number, blocks: number, into: OverlapScores): void {
    if (only === MANY) {
      this.#emitActive(slotWords, blocks, into)
    } else {
      into.workerSlots[into.length] = this.#owners[only]!
      into.blocks[into.length++] = blocks
    }
  }

  #emitActive(slotWords: number, blocks: number, into: OverlapScores): void {
    for (let i = 0; i < slotWords; i++) {
      const word = this.#active[i]!
      if (word !== 0) this.#emitWord(word, i, blocks, into)
    }
  }

  #emitWord(word: number, i: number, blocks: number, into: OverlapScores): void {
    for (let rest = word; rest !== 0; rest &= rest - 1) {
      into.workerSlots[into.length] = this.#owners[i * 32 + 31 - Math.clz32(rest & -rest)]!
      into.blocks[into.length++] = blocks
    }
  }
}

/** Whether a chunk is, or was since, moved or used again: what is not found in or below it may be elsewhere. */
function isMoved(words: Int32Array, base: number, version: number): boolean {
  return (version & 1) === 1 || Atomics.load(words, base + VER) !== version
}

/** Blocks from 1 on that are equal, and block 0, which is known to be. */
function matchPlain(words: Int32Array, at: number, count: number, hashes: Int32Array, from: number): number {
  let matched = 1
  while (
    matched < count &&
    words[at + 2 * matched] === hashes[from + 2 * matched] &&
    words[at + 2 * matched + 1] === hashes[from + 2 * matched + 1]
  ) {
    matched++
  }
  return matched
}

function matchAtomic(words: Int32Array, at: number, count: number, hashes: Int32Array, from: number): number {
  let matched = 1
  while (
    matched < count &&
    Atomics.load(words, at + 2 * matched) === hashes[from + 2 * matched] &&
    Atomics.load(words, at + 2 * matched + 1) === hashes[from + 2 * matched + 1]
  ) {
    matched++
  }
  return matched
}
