/**
 * The plan of the stress test, made alike on both threads: paths that share trunks and repeat local hashes
 * under different parents, and for every path and worker slot the least and the most that it ever holds.
 */

import {
  type BlockIndex,
  type LayerOverlaps,
  Layers,
  type OverlapCounts,
  type WordAccess,
} from '../src/index.ts'

/** Word of the control memory that ends the writer. */
export const ENGINE_STOP = 0
export const PLAN_SLOTS = 70
const GROUPS = 6
const PATHS_PER_GROUP = 8
const HOLDERS_PER_PATH = 4

export interface PlanOptions {
  readonly seed: number
  readonly access: WordAccess
}

export interface Holding {
  readonly slot: number
  readonly min: number
  readonly max: number
  now: number
}

export interface PlanPath {
  readonly locals: Int32Array
  readonly engines: Int32Array
  readonly count: number
  readonly holdings: readonly Holding[]
  /** Per worker slot: bounds of the overlap of this path that hold at every instant. */
  readonly lower: Int32Array
  readonly upper: Int32Array
}

/**
 * A worker slot holds blocks of at most one path of a group, so its bounds on the other paths of the group
 * end at their common trunk; on other groups it holds nothing but its own path there.
 */
export function makePlan({ seed }: PlanOptions): PlanPath[] {
  const random = seededRandom(seed)
  const paths: PlanPath[] = []
  let engine = 1
  for (let group = 0; group < GROUPS; group++) {
    const trunk = 1 + random.below(40)
    const slots = Array.from({ length: PLAN_SLOTS }, (_, i) => i)
    const own: { holding: Holding; path: number }[] = []
    const made: { locals: number[]; engines: number[]; holdings: Holding[] }[] = []
    const trunkEngines = Array.from({ length: trunk }, () => engine++)
    for (let p = 0; p < PATHS_PER_GROUP; p++) {
      const count = trunk + 1 + random.below(60)
      // The first block names the group, the first after the trunk names the path; all other blocks are the
      // same everywhere.
      const locals = Array.from({ length: count }, (_, i) =>
        i === 0 ? 1000 + group : i === trunk ? 2000 + p : i,
      )
      const engines = locals.map((_, i) => (i < trunk ? trunkEngines[i]! : engine++))
      const holdings: Holding[] = []
      for (let h = 0; h < HOLDERS_PER_PATH; h++) {
        const slot = slots.splice(random.below(slots.length), 1)[0]!
        const min = random.below(3) === 0 ? random.below(count) : 0
        const holding = { slot, min, max: min + random.below(count - min + 1), now: 0 }
        holdings.push(holding)
        own.push({ holding, path: p })
      }
      made.push({ locals, engines, holdings })
    }
    made.forEach(({ locals, engines, holdings }, p) => {
      const lower = new Int32Array(PLAN_SLOTS)
      const upper = new Int32Array(PLAN_SLOTS)
      for (const { holding, path } of own) {
        lower[holding.slot] = path === p ? holding.min : Math.min(trunk, holding.min)
        upper[holding.slot] = path === p ? holding.max : Math.min(trunk, holding.max)
      }
      paths.push({
        locals: words(locals),
        engines: words(engines),
        count: locals.length,
        holdings,
        lower,
        upper,
      })
    })
  }
  return paths
}

function words(values: readonly number[]): Int32Array {
  const result = new Int32Array(values.length * 2)
  values.forEach((value, i) => {
    result[2 * i] = value
    result[2 * i + 1] = Math.imul(value, 0x9e3779b1)
  })
  return result
}

/**
 * A function that applies the next random event of the plan. Blocks that are held throughout are stored at
 * once. It throws when the arena is too small: the bounds would not hold.
 */
export function planWriter(index: BlockIndex, plan: readonly PlanPath[], random: SeededRandom): () => void {
  const store = ({ engines, locals }: PlanPath, holding: Holding, to: number) => {
    const from = holding.now
    const parent = from === 0 ? undefined : engines.subarray(2 * from - 2, 2 * from)
    const outcome = index.store(
      holding.slot,
      parent,
      engines.subarray(2 * from),
      locals.subarray(2 * from),
      to - from,
    )
    if (outcome !== 'stored') throw new Error(`the arena is too small: ${outcome}`)
    holding.now = to
  }
  for (const path of plan) for (const holding of path.holdings) store(path, holding, holding.min)
  return () => {
    const path = plan[random.below(plan.length)]!
    const holding = path.holdings[random.below(path.holdings.length)]!
    const to = random.below(3) === 0 ? holding.min : holding.min + random.below(holding.max - holding.min + 1)
    if (to >= holding.now) {
      store(path, holding, to)
      return
    }
    const engines = path.engines.slice(2 * to, 2 * holding.now)
    if (random.below(4) > 0) reverse(engines) // the tail first, as engines do; else holes for a while
    index.remove(holding.slot, engines, holding.now - to)
    holding.now = to
  }
}

/** What is wrong about an answer for this path; '' when it is within the bounds. */
export function faultOf(path: PlanPath, scores: OverlapCounts): string {
  const found = scores.toMap()
  if (found.size !== scores.length) return 'a worker slot is listed twice'
  for (let slot = 0; slot < PLAN_SLOTS; slot++) {
    const blocks = found.get(slot) ?? 0
    if (blocks >= path.lower[slot]! && blocks <= path.upper[slot]!) continue
    return `worker slot ${slot}: ${blocks} is not of ${path.lower[slot]} … ${path.upper[slot]}`
  }
  return ''
}

/** Two worker slots each: what the first holds counts before the second's. */
export const PLAN_LAYERS = new Layers(
  Array.from({ length: PLAN_SLOTS / 2 }, (_, key) => [2 * key, 2 * key + 1]),
)

/** What is wrong about an answer in PLAN_LAYERS for this path; '' when it is within the bounds. */
export function faultOfLayers(path: PlanPath, scores: LayerOverlaps): string {
  for (let key = 0; key < PLAN_LAYERS.keyCount; key++) {
    const first = scores.blocksOf(key, 0)
    const total = first + scores.blocksOf(key, 1)
    const lower = Math.max(path.lower[2 * key]!, path.lower[2 * key + 1]!)
    const upper = Math.max(path.upper[2 * key]!, path.upper[2 * key + 1]!)
    const isWithin = first >= path.lower[2 * key]! && first <= path.upper[2 * key]!
    if (isWithin && total >= lower && total <= upper) continue
    return `key ${key}: ${first} of ${total} is not of ${lower} … ${upper}`
  }
  return ''
}

function reverse(hashes: Int32Array): void {
  hashes.reverse() // swaps low and high, too
  for (let i = 0; i < hashes.length; i += 2) {
    const low = hashes[i + 1]!
    hashes[i + 1] = hashes[i]!
    hashes[i] = low
  }
}

export interface SeededRandom {
  /** Uniform integer in [0, bound). */
  below(bound: number): number
}

/** A seeded sequence (splitmix32); this package depends on nothing, its tests neither. */
export function seededRandom(seed: number): SeededRandom {
  let state = seed | 0
  return {
    below(bound) {
      state = (state + 0x9e3779b9) | 0
      let z = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
      return Math.floor((((z ^ (z >>> 15)) >>> 0) / 2 ** 32) * bound)
    },
  }
}
