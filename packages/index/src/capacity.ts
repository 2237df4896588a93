/**
 * Capacity: makes room for stores when there is none. Cleared blocks are swept first. Then blocks are dropped
 * from chunks without children whose blocks are all held by one worker slot each, in the order of the memory
 * (a clock hand), counted in `evictedForSpace`. A dropped block means lost credit, never wrong credit.
 */

import { type IndexState, NOBODY, NONE } from './index-state.ts'
import { CHUNK_BYTES } from './layout.ts'
import type { Sweep } from './sweep.ts'
import { FIRST, S_CHUNKS_ALLOWED, SET, USED } from './words.ts'

/** Chunks that eviction looks at before a store is refused. */
const EVICTION_SCAN_MAX = 1 << 14
/** Chunks or records that a step of a sweep looks at. */
const SWEEP_BUDGET = 1024

export class Capacity {
  readonly #state: IndexState
  readonly #sweep: Sweep
  #hand = 0

  constructor(state: IndexState, sweep: Sweep) {
    this.#state = state
    this.#sweep = sweep
  }

  /**
   * Says how many chunks may be touched beside what side names take. To be called before blocks are created.
   */
  limitChunks(): void {
    const { words, layout, names } = this.#state
    words[S_CHUNKS_ALLOWED] = Math.max(0, Math.floor((layout.chunkBytesMax - names.bytes) / CHUNK_BYTES))
  }

  /**
   * The holder of a worker slot; a new one if it has none. When all holders are in use, the sweep is finished
   * at once.
   */
  holderFor(workerSlot: number): number {
    const { holders } = this.#state
    const known = holders.of(workerSlot)
    if (known !== NOBODY) return known
    for (;;) {
      const holder = holders.assign(workerSlot)
      if (holder !== NOBODY) return holder
      this.#sweep.step(SWEEP_BUDGET)
    }
  }

  /** A new block below `above`, in a set that it counts for, without a name yet. 0: no room. */
  create(above: number, low: number, high: number, set: number): number {
    const { loops, chunks, holders } = this.#state
    this.limitChunks()
    const block = loops.create(above, low, high, set)
    if (block !== NONE) return block
    while (!chunks.hasFree && holders.retiredCount > 0) this.#sweep.step(SWEEP_BUDGET)
    if (!chunks.hasFree) this.#evict(above >>> 4)
    return chunks.hasFree ? loops.create(above, low, high, set) : NONE
  }

  /** Memory was left for another: the hand begins again. */
  restart(): void {
    this.#hand = 0
  }

  /** Frees one chunk without children whose blocks are held by one worker slot each; never `pinned`. */
  #evict(pinned: number): void {
    const state = this.#state
    const { words, chunks, layout, holders } = state
    const scanMax = Math.min(EVICTION_SCAN_MAX, chunks.top)
    for (let scanned = 0; scanned < scanMax && !chunks.hasFree; scanned++) {
      this.#hand = this.#hand >= chunks.top ? 1 : this.#hand + 1
      const chunk = this.#hand
      const base = chunks.base(chunk)
      const used = words[base + USED]!
      if (chunk === pinned || used === 0 || words[base + FIRST] !== 0) continue
      let isLone = true
      for (let slot = 0; slot < used && isLone; slot++)
        isLone = words[base + SET + slot]! <= layout.holdersMax
      if (!isLone) continue
      for (let slot = used - 1; slot >= 0; slot--) {
        const set = words[base + SET + slot]!
        if (set === 0) continue
        const block = (chunk << 4) | slot
        state.deleteNames(set - 1, block)
        if (holders.ownerOf(set - 1) >= 0) state.counters.evictedForSpace++
        state.leave(set - 1, block, NONE)
      }
    }
  }
}
