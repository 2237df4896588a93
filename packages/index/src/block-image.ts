/**
 * Block image: everything that some worker slots hold together, as plain arrays that another index can take
 * over.
 *
 *   blocks    those held and the holes above them, parents before children; numbered from 1 in this order
 *   held      which of the layers holds which block, under which engine hash, ascending by block
 *   orphans   blocks that wait for a parent
 *
 * Holes are included because a block below one counts again when the hole is filled. A layer is a number for
 * which the caller knows a worker slot.
 *
 * It is taken in one go, because an index in use changes all the time: about 0.3 ms per thousand blocks, and
 * 36 to 96 bytes per block, of which 32 are the image. So there is no image of layers with more than
 * IMAGE_BLOCKS_MAX blocks.
 */

import type { BlockIndex } from './block-index.ts'
import type { HashPair } from './types.ts'

export interface BlockImage {
  /** Two words per block. */
  readonly localHashes: Int32Array
  /** Per block: the number of the block above; 0: none. */
  readonly parents: Int32Array
  /** HELD_WORDS per holding: block, layer, copies, engine hash. */
  readonly held: Int32Array
  /** ORPHAN_WORDS per orphan: layer, copies, engine hash, parent's engine hash, local hash. */
  readonly orphans: Int32Array
}

export const HELD_WORDS = 5
export const ORPHAN_WORDS = 8
const PAGE_BITS = 4
const PAGE_BLOCKS = 1 << PAGE_BITS

/** A layer and its worker slot in the index. */
export interface LayerSlot {
  readonly layer: number
  readonly slot: number
}

/**
 * The most blocks of an image, one per layer and engine hash; taking so many holds the index up for about two
 * seconds.
 */
export const IMAGE_BLOCKS_MAX = 1 << 22

/**
 * Image of the blocks that these layers hold; undefined: they are more than `blocksMax`. The index must not
 * change meanwhile.
 */
export function imageOf(
  index: BlockIndex,
  layers: readonly LayerSlot[],
  blocksMax = IMAGE_BLOCKS_MAX,
): BlockImage | undefined {
  const blocks = layers.reduce((sum, { slot }) => sum + index.blocksHeld(slot), 0)
  if (blocks > blocksMax) return undefined
  const localHashes = new Words(2 * blocks)
  const parents = new Words(blocks)
  const held = new Words(HELD_WORDS * blocks)
  const orphans = new Words(0)
  const numbers = new BlockNumbers()
  const add = (block: number, parent: number, [low, high]: HashPair): number => {
    const number = parents.extend(1) + 1
    parents.words[number - 1] = parent
    const at = localHashes.extend(2)
    localHashes.words[at] = low
    localHashes.words[at + 1] = high
    numbers.set(block, number)
    return number
  }
  /** With the holes above it that are not known yet. */
  const addPath = (block: number): number => {
    const path: number[] = []
    let each = block
    while (each !== 0 && numbers.get(each) === 0) {
      path.push(each)
      each = index.placeOf(each).parentBlock
    }
    let number = numbers.get(each)
    for (const hole of path.reverse()) number = add(hole, number, index.placeOf(hole).localHash)
    return number
  }
  for (const { layer, slot } of layers) {
    for (const { block, parentBlock, localHash, engineHash, copies } of index.dump(slot)) {
      let number = numbers.get(block)
      if (number === 0) number = add(block, numbers.get(parentBlock) || addPath(parentBlock), localHash)
      const at = held.extend(HELD_WORDS)
      const { words } = held
      words[at] = number
      words[at + 1] = layer
      words[at + 2] = copies
      words[at + 3] = engineHash[0]
      words[at + 4] = engineHash[1]
    }
    for (const { copies, engineHash, parentEngineHash, localHash } of index.orphans(slot)) {
      const at = orphans.extend(ORPHAN_WORDS)
      if (blocks + orphans.length / ORPHAN_WORDS > blocksMax) return undefined
      orphans.words.set([layer, copies], at)
      orphans.words.set(engineHash, at + 2)
      orphans.words.set(parentEngineHash, at + 4)
      orphans.words.set(localHash, at + 6)
    }
  }
  return {
    localHashes: localHashes.take(),
    parents: parents.take(),
    // Layer by layer they ascend; together they do not.
    held: layers.length > 1 ? sortedByBlock(held.take(), parents.length) : held.take(),
    orphans: orphans.take(),
  }
}

/** `held` sorted by block; the entries of one block keep their order. */
function sortedByBlock(held: Int32Array, blocks: number): Int32Array {
  /** By block: where its next holding goes. */
  const next = new Int32Array(blocks + 2)
  for (let at = 0; at < held.length; at += HELD_WORDS) next[held[at]! + 1]! += HELD_WORDS
  for (let block = 1; block <= blocks; block++) next[block + 1]! += next[block]!
  const sorted = new Int32Array(held.length)
  for (let at = 0; at < held.length; at += HELD_WORDS) {
    const block = held[at]!
    const to = next[block]!
    next[block] = to + HELD_WORDS
    for (let word = 0; word < HELD_WORDS; word++) sorted[to + word] = held[at + word]!
  }
  return sorted
}

/**
 * Stores what an image holds, into layers that hold nothing. `othersOf` gives the slots of the other layers,
 * where the parent of a block may be. False: not everything found room.
 */
export function storeImage(
  index: BlockIndex,
  image: BlockImage,
  slotOf: (layer: number) => number,
  othersOf: (layer: number) => readonly number[],
): boolean {
  const { localHashes, parents, held, orphans } = image
  const blocks = parents.length
  /** Per block, from 1: a name of it, of any layer. */
  const names = new Int32Array(2 * (blocks + 1))
  const holeNames = new Words(0)
  let hasRoom = true
  const store = (layer: number, parent: number, engines: Int32Array, locals: Int32Array, copies: number) => {
    const above = parent === 0 ? undefined : names.slice(2 * parent, 2 * parent + 2)
    const count = engines.length / 2
    for (let copy = 0; copy < copies; copy++) {
      const outcome = index.store(slotOf(layer), above, engines, locals, count, 'count', othersOf(layer))
      if (outcome !== 'stored') hasRoom = false
    }
  }
  const localsOf = (first: number, count: number) =>
    localHashes.subarray(2 * (first - 1), 2 * (first - 1 + count))
  let at = 0
  for (let block = 1; block <= blocks; ) {
    const parent = parents[block - 1]!
    if (at >= held.length || held[at] !== block) {
      // No engine knows a hole's hash: it is stored under a name made up here, which is removed at the end.
      const name = nameOfHole(block)
      names.set(name, 2 * block)
      const nameAt = holeNames.extend(2)
      holeNames.words.set(name, nameAt)
      store(0, parent, name, localsOf(block, 1), 1)
      block++
      continue
    }
    const run = runAt(image, at)
    const layer = held[at + 1]!
    if (run > 1) {
      const engines = new Int32Array(2 * run)
      for (let i = 0; i < run; i++, at += HELD_WORDS) engines.set(held.subarray(at + 3, at + 5), 2 * i)
      names.set(engines, 2 * block)
      store(layer, parent, engines, localsOf(block, run), 1)
      block += run
      continue
    }
    names.set(held.subarray(at + 3, at + 5), 2 * block)
    for (; at < held.length && held[at] === block; at += HELD_WORDS) {
      store(held[at + 1]!, parent, held.slice(at + 3, at + 5), localsOf(block, 1), held[at + 2]!)
    }
    block++
  }
  const unnamed = holeNames.take()
  if (unnamed.length > 0) index.remove(slotOf(0), unnamed, unnamed.length / 2)
  for (let i = 0; i < orphans.length; i += ORPHAN_WORDS) {
    const [layer, copies] = [orphans[i]!, orphans[i + 1]!]
    const parent = orphans.slice(i + 4, i + 6)
    for (let copy = 0; copy < copies; copy++) {
      const engine = orphans.slice(i + 2, i + 4)
      const local = orphans.slice(i + 6, i + 8)
      // It waits for its parent on its own layer, even if another layer holds the parent by now.
      const outcome = index.store(slotOf(layer), parent, engine, local, 1, 'count')
      if (outcome === 'full' || outcome === 'overflow') hasRoom = false
    }
  }
  return hasRoom
}

/**
 * How many blocks from this holding on lie below each other, with one holding each, of one layer and one
 * copy.
 */
function runAt({ held, parents }: BlockImage, at: number): number {
  const first = held[at]!
  const layer = held[at + 1]!
  let count = 0
  for (let each = at; each < held.length; each += HELD_WORDS) {
    const block = first + count
    const isOwn = held[each] === block && held[each + 1] === layer && held[each + 2] === 1
    if (!isOwn || held[each + HELD_WORDS] === block) break
    if (count > 0 && parents[block - 1] !== block - 1) break
    count++
  }
  return count
}

/** Engine hashes are practically random, so none equals such a name. */
function nameOfHole(block: number): Int32Array {
  const low = Math.imul(block ^ 0x5bd1e995, 0x85ebca6b)
  return Int32Array.of(low, Math.imul(low ^ (low >>> 13) ^ 0x3c6ef372, 0xc2b2ae35))
}

/** A growing array of words. */
class Words {
  words: Int32Array
  length = 0

  constructor(capacity: number) {
    this.words = new Int32Array(capacity)
  }

  /** Makes so many more words, and says where they begin. `words` may be another array then. */
  extend(count: number): number {
    const start = this.length
    this.length += count
    if (this.length > this.words.length) {
      const enlarged = new Int32Array(Math.max(256, 2 * this.length))
      enlarged.set(this.words)
      this.words = enlarged
    }
    return start
  }

  take(): Int32Array {
    return this.length === this.words.length ? this.words : this.words.slice(0, this.length)
  }
}

/** Numbers by block of the index, in pages: blocks of one chunk have neighboring ids. */
class BlockNumbers {
  /** By page: where its numbers begin; 0: it has none. */
  #pages = new Int32Array(1024)
  readonly #numbers = new Words(0)

  constructor() {
    // So no page begins at 0.
    this.#numbers.extend(PAGE_BLOCKS)
  }

  /** 0: it has none. */
  get(block: number): number {
    const page = block >>> PAGE_BITS
    const start = page < this.#pages.length ? this.#pages[page]! : 0
    return start === 0 ? 0 : this.#numbers.words[start + (block & (PAGE_BLOCKS - 1))]!
  }

  set(block: number, number: number): void {
    const page = block >>> PAGE_BITS
    if (page >= this.#pages.length) {
      const enlarged = new Int32Array(2 * page)
      enlarged.set(this.#pages)
      this.#pages = enlarged
    }
    let start = this.#pages[page]!
    if (start === 0) {
      start = this.#numbers.extend(PAGE_BLOCKS)
      this.#pages[page] = start
    }
    this.#numbers.words[start + (block & (PAGE_BLOCKS - 1))] = number
  }
}
