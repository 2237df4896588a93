/**
 * Tree sample: the largest prefixes of a shard, found without looking at all of it.
 *
 *   every s-th chunk ─▶ what its blocks weigh is added to it and to all chunks above it ─▶ the heaviest, parents first
 *
 * The weight of a block is the number of worker slots that hold it. A small shard is looked at whole; of a larger one `chunksMax` chunks, each of
 * which stands for s: then weights are estimates, and small prefixes are missing. The next call with another `turn` looks at others.
 *
 * Cost  at most `chunksMax` chunks and `stepsMax` steps towards the root; nothing is written.
 */

import { type IndexState, ROOT } from './index-state.ts'
import type { HashPair } from './types.ts'
import { LOC, PARENT, SET, USED } from './words.ts'

export interface TreeSampleOptions {
  readonly chunksMax: number
  readonly stepsMax: number
  /** Heaviest chunks that are answered. */
  readonly segmentsMax: number
  /** Worker slots of a block that are told apart; further ones count for its weight only. */
  readonly slotsMax: number
  /** Another one looks at other chunks. */
  readonly turn: number
}

export interface TreeSample {
  /** Each chunk that was looked at stands for so many; 1: all were. */
  readonly stride: number
  /** Parents before their children. */
  readonly segments: readonly TreeSegment[]
}

/** Blocks in a row, up to 16. */
export interface TreeSegment {
  /** Position in `segments`; −1: it begins a prompt. */
  readonly parent: number
  /** Blocks of the parent that are above it. */
  readonly parentBlocks: number
  /** Local hashes, and worker slots that hold each. */
  readonly hashes: readonly HashPair[]
  readonly holders: readonly (readonly number[])[]
  /** Of it and all below it. */
  readonly weight: number
  /** The same by worker slot. */
  readonly weights: ReadonlyMap<number, number>
}

interface Weighed {
  weight: number
  readonly weights: Map<number, number>
  readonly depth: number
}

export function sampleTree(state: IndexState, options: TreeSampleOptions): TreeSample {
  const { words, chunks, sets, holders } = state
  const { chunksMax, stepsMax, segmentsMax, slotsMax, turn } = options
  const stride = Math.max(1, Math.ceil(chunks.top / chunksMax))
  const slotsBySet = new Map<number, readonly number[]>()
  const slotsOf = (set: number): readonly number[] => {
    let slots = slotsBySet.get(set)
    if (slots === undefined) {
      slots = sets.members(set).flatMap(holder => {
        const slot = holders.ownerOf(holder)
        return slot < 0 ? [] : [slot]
      })
      slotsBySet.set(set, slots)
    }
    return slots
  }
  const setsOf = (chunk: number): readonly number[] => {
    const base = chunks.base(chunk)
    return Array.from({ length: words[base + USED]! }, (_, slot) => words[base + SET + slot]!)
  }
  const weighed = new Map<number, Weighed>()
  let stepsLeft = stepsMax
  for (let chunk = 1 + (turn % stride); chunk <= chunks.top && stepsLeft > 0; chunk += stride) {
    let weight = 0
    const weights = new Map<number, number>()
    for (const set of setsOf(chunk)) {
      const slots = slotsOf(set)
      weight += slots.length * stride
      for (const slot of slots.slice(0, slotsMax)) weights.set(slot, (weights.get(slot) ?? 0) + stride)
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
      for (const [slot, part] of weights) one.weights.set(slot, (one.weights.get(slot) ?? 0) + part)
      weighed.set(each, one)
    }
  }
  // What is above weighs at least as much, so it comes before.
  const heaviest = [...weighed]
    .sort(([, one], [, other]) => other.weight - one.weight || one.depth - other.depth)
    .slice(0, segmentsMax)
  const positions = new Map(heaviest.map(([chunk], position) => [chunk, position]))
  const segments = heaviest.map(([chunk, { weight, weights }]): TreeSegment => {
    const base = chunks.base(chunk)
    const above = words[base + PARENT]!
    const parent = above === ROOT ? -1 : positions.get(above >>> 4)!
    const blocks = setsOf(chunk)
    return {
      parent,
      parentBlocks: above === ROOT ? 0 : (above & 15) + 1,
      hashes: blocks.map((_, slot) => [words[base + LOC + 2 * slot]!, words[base + LOC + 2 * slot + 1]!]),
      holders: blocks.map(set => slotsOf(set).slice(0, slotsMax)),
      weight,
      weights,
    }
  })
  return { stride, segments }
}
