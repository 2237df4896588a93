/**
 * Tree sample: the largest prefixes of a shard, found from a part of its chunks.
 *
 *   every s-th chunk ─▶ the weight of its blocks is added to it and to all chunks above it
 *                    ─▶ the heaviest, parents first
 *
 * The weight of a block is its copies: the number of worker slots that hold it. A small shard is read whole;
 * of a larger one `chunksMax` chunks, each of which stands for s: then weights are estimates, and small
 * prefixes are missing. A call with another `turn` reads other chunks.
 *
 * Worker keys with most copies are listed one by one, the others are counted: `segmentsMax` and
 * `keysApartMax` bound the answer for a fleet of any size.
 *
 * Cost  at most `chunksMax` chunks and `stepsMax` steps towards the root, with up to `keysApartMax` keys for
 *       each block and step. The members of a set of holders are read once, even if many blocks have that
 *       set. Nothing is written.
 */

import { type IndexState, ROOT } from './index-state.ts'
import type { HashPair } from './types.ts'
import { LOC, PARENT, SET, USED } from './words.ts'

export interface TreeSampleOptions {
  readonly chunksMax: number
  readonly stepsMax: number
  /** Heaviest chunks that are answered. */
  readonly segmentsMax: number
  /** Worker keys listed one by one: those with most copies in the sample. The others are counted. */
  readonly keysApartMax: number
  /** Worker slots that are equal modulo this are layers of one worker key. */
  readonly keysMax: number
  /** Another one looks at other chunks. */
  readonly turn: number
}

export interface TreeSample {
  /** Each chunk that was looked at stands for so many; 1: all were. */
  readonly stride: number
  /** Worker slots of the keys listed one by one, and the copies that each holds; most copies first. */
  readonly keys: ReadonlyMap<number, number>
  /** Parents before their children. */
  readonly segments: readonly TreeSegment[]
}

/** Blocks in a row, up to 16. */
export interface TreeSegment {
  /** Position in `segments`; −1: it begins a prompt. */
  readonly parent: number
  /** Blocks of the parent that are above it. */
  readonly parentBlocks: number
  /** Local hashes. */
  readonly hashes: readonly HashPair[]
  /** Of each block the keys of `keys` that hold it, once for each layer. */
  readonly holders: readonly (readonly number[])[]
  /** Of each block all worker keys that hold it, and its copies in all their layers: two counts. */
  readonly holdersTotal: readonly number[]
  readonly copies: readonly number[]
  /** Copies of it and all below it. */
  readonly weight: number
  /** The same for each of `keys`. */
  readonly weights: ReadonlyMap<number, number>
}

/** The holders of a block. */
interface Held {
  /** Worker slots of the keys, once for each layer. */
  readonly keys: readonly number[]
  readonly keysTotal: number
  /** The listed keys among `keys`, once the sample has decided which keys are listed. */
  apart: readonly number[] | undefined
}

interface Weighed {
  weight: number
  readonly weights: Map<number, number>
  readonly depth: number
}

export function sampleTree(state: IndexState, options: TreeSampleOptions): TreeSample {
  const { words, chunks, sets, holders } = state
  const { chunksMax, stepsMax, segmentsMax, keysApartMax, keysMax, turn } = options
  const stride = Math.max(1, Math.ceil(chunks.top / chunksMax))
  const heldBySet = new Map<number, Held>()
  const heldOf = (set: number): Held => {
    let held = heldBySet.get(set)
    if (held === undefined) {
      const keys = sets.members(set).flatMap(holder => {
        const slot = holders.ownerOf(holder)
        return slot < 0 ? [] : [slot % keysMax]
      })
      held = { keys, keysTotal: new Set(keys).size, apart: undefined }
      heldBySet.set(set, held)
    }
    return held
  }
  const setsOf = (chunk: number): readonly number[] => {
    const base = chunks.base(chunk)
    return Array.from({ length: words[base + USED]! }, (_, slot) => words[base + SET + slot]!)
  }
  const looked = new Map<number, readonly number[]>()
  const blocksBySet = new Map<number, number>()
  for (let chunk = 1 + (turn % stride); chunk <= chunks.top; chunk += stride) {
    const own = setsOf(chunk)
    looked.set(chunk, own)
    for (const set of own) blocksBySet.set(set, (blocksBySet.get(set) ?? 0) + 1)
  }
  const keys = heaviestKeys(blocksBySet, heldOf, stride, keysApartMax)
  const apartOf = (held: Held): readonly number[] => {
    held.apart ??= held.keys.filter(key => keys.has(key))
    return held.apart
  }
  const weighed = new Map<number, Weighed>()
  let stepsLeft = stepsMax
  for (const [chunk, own] of looked) {
    if (stepsLeft <= 0) break
    let weight = 0
    const weights = new Map<number, number>()
    for (const set of own) {
      const held = heldOf(set)
      weight += held.keys.length * stride
      for (const key of apartOf(held)) weights.set(key, (weights.get(key) ?? 0) + stride)
    }
    if (weight === 0) continue
    const path = [chunk]
    let above = words[chunks.base(chunk) + PARENT]!
    for (; above !== ROOT && stepsLeft > 0; stepsLeft--) {
      path.push(above >>> 4)
      above = words[chunks.base(above >>> 4) + PARENT]!
    }
    // Half a path would have no beginning.
    if (above !== ROOT) break
    for (const [up, each] of path.entries()) {
      const one = weighed.get(each) ?? { weight: 0, weights: new Map(), depth: path.length - up }
      one.weight += weight
      for (const [key, part] of weights) one.weights.set(key, (one.weights.get(key) ?? 0) + part)
      weighed.set(each, one)
    }
  }
  // A parent weighs at least as much as its children, so it comes first.
  const heaviest = [...weighed]
    .sort(([, one], [, other]) => other.weight - one.weight || one.depth - other.depth)
    .slice(0, segmentsMax)
  const positions = new Map(heaviest.map(([chunk], position) => [chunk, position]))
  const segments = heaviest.map(([chunk, { weight, weights }]): TreeSegment => {
    const base = chunks.base(chunk)
    const above = words[base + PARENT]!
    const parent = above === ROOT ? -1 : positions.get(above >>> 4)!
    const held = setsOf(chunk).map(heldOf)
    return {
      parent,
      parentBlocks: above === ROOT ? 0 : (above & 15) + 1,
      hashes: held.map((_, slot) => [words[base + LOC + 2 * slot]!, words[base + LOC + 2 * slot + 1]!]),
      holders: held.map(apartOf),
      holdersTotal: held.map(({ keysTotal }) => keysTotal),
      copies: held.map(one => one.keys.length),
      weight,
      weights,
    }
  })
  return { stride, keys, segments }
}

/** The worker keys with most copies, and how many. */
function heaviestKeys(
  blocksBySet: ReadonlyMap<number, number>,
  heldOf: (set: number) => Held,
  stride: number,
  keysApartMax: number,
): ReadonlyMap<number, number> {
  const copies = new Map<number, number>()
  for (const [set, blocks] of blocksBySet)
    for (const key of heldOf(set).keys) copies.set(key, (copies.get(key) ?? 0) + blocks * stride)
  const heaviest = [...copies].sort(([one, held], [other, more]) => more - held || one - other)
  return new Map(heaviest.slice(0, keysApartMax))
}
