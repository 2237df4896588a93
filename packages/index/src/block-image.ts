/**
 * Block image: all that some worker slots hold together, as plain arrays that another index can take over.
 *
 *   blocks    those held and the holes above them, parents before children; numbered from 1 in this order
 *   held      which of the layers holds which block, under which engine hash, ascending by block
 *   orphans   what waits for a parent
 *
 * Holes are in it because a block below one counts again when the hole is filled. A layer is a number that the caller
 * knows a worker slot for.
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

/** A layer and its worker slot in the index. */
export interface LayerSlot {
  readonly layer: number
  readonly slot: number
}

/** Of the blocks that these layers hold. The index must not change meanwhile. */
export function imageOf(index: BlockIndex, layers: readonly LayerSlot[]): BlockImage {
  const localHashes = new Words()
  const parents = new Words()
  /** By block of the index: its number here. */
  const numbers = new Map<number, number>()
  const holdings: (readonly [block: number, layer: number, copies: number, low: number, high: number])[] = []
  const orphans = new Words()
  const add = (block: number, parent: number, localHash: HashPair): number => {
    const known = numbers.get(block)
    if (known !== undefined) return known
    const number = numbers.size + 1
    numbers.set(block, number)
    parents.push(parent)
    localHashes.push(...localHash)
    return number
  }
  const numberOf = (block: number): number => {
    const path: number[] = []
    let each = block
    while (each !== 0 && !numbers.has(each)) {
      path.push(each)
      each = index.placeOf(each).parentBlock
    }
    let number = each === 0 ? 0 : numbers.get(each)!
    for (const hole of path.reverse()) number = add(hole, number, index.placeOf(hole).localHash)
    return number
  }
  for (const { layer, slot } of layers) {
    for (const { block, parentBlock, localHash, engineHash, copies } of index.dump(slot)) {
      const number = add(block, numberOf(parentBlock), localHash)
      holdings.push([number, layer, copies, ...engineHash])
    }
    for (const { copies, engineHash, parentEngineHash, localHash } of index.orphans(slot)) {
      orphans.push(layer, copies, ...engineHash, ...parentEngineHash, ...localHash)
    }
  }
  // Layer by layer they ascend; together they do not.
  if (layers.length > 1) holdings.sort(([a], [b]) => a - b)
  const held = new Words()
  for (const holding of holdings) held.push(...holding)
  return {
    localHashes: localHashes.take(),
    parents: parents.take(),
    held: held.take(),
    orphans: orphans.take(),
  }
}

/**
 * Stores what an image holds, into layers that hold nothing. `othersOf` gives the slots of the other layers, where the
 * parent of a block may be. False: not everything found room.
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
  const holeNames = new Words()
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
      // Known to nobody: it is stored under a name of its own, which is taken back at the end.
      const name = nameOfHole(block)
      names.set(name, 2 * block)
      holeNames.push(...name)
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
      // It waits for its parent on its own layer, wherever else that may be by now.
      const outcome = index.store(slotOf(layer), parent, engine, local, 1, 'count')
      if (outcome === 'full' || outcome === 'overflow') hasRoom = false
    }
  }
  return hasRoom
}

/** How many blocks from this holding on lie below each other, with one holding each, of one layer and one copy. */
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

/** Engine hashes are as good as random, so one like this does not come up. */
function nameOfHole(block: number): Int32Array {
  const low = Math.imul(block ^ 0x5bd1e995, 0x85ebca6b)
  return Int32Array.of(low, Math.imul(low ^ (low >>> 13) ^ 0x3c6ef372, 0xc2b2ae35))
}

/** A growing array of words. */
class Words {
  #words = new Int32Array(256)
  #length = 0

  push(...words: readonly number[]): void {
    if (this.#length + words.length > this.#words.length) {
      const enlarged = new Int32Array(this.#words.length * 2)
      enlarged.set(this.#words)
      this.#words = enlarged
    }
    for (const word of words) this.#words[this.#length++] = word
  }

  take(): Int32Array {
    return this.#words.slice(0, this.#length)
  }
}
