/**
 * Sweep: takes retired holders out of everything, in steps of a bounded size; then their numbers may be given
 * out again. Out of the side tables first, so that their blocks go by the blocks' own names.
 */

import { type IndexState, NONE } from './index-state.ts'
import { NO_SET, S_LEFT_SINCE_MERGE, SET, USED } from './words.ts'

/** Cost of deleting a block's name, in chunks that are only looked at. */
const UNNAME_COST = 2

export class Sweep {
  readonly #state: IndexState
  #phase: 'names' | 'orphans' | 'chunks' = 'names'
  #at = 0

  constructor(state: IndexState) {
    this.#state = state
  }

  /** One step; returns its cost, in chunks or records that it looked at. */
  step(budget: number): number {
    const { holders, sets, names, orphans } = this.#state
    if (!holders.isSweeping) {
      holders.beginSweep()
      sets.beginPurge()
      this.#phase = 'names'
      this.#at = 1
    }
    if (this.#phase === 'chunks') return this.#sweepChunks(budget)
    const table = this.#phase === 'names' ? names : orphans
    const last = table.count === 0 ? 0 : table.recordsEnd
    let at = this.#at
    for (; at < Math.min(this.#at + budget, last); at++) {
      const holder = table.holderOf(at)
      if (holder < 0 || !holders.isSweptNow(holder)) continue
      table.delete(at)
      if (table === orphans) this.#state.retiredOrphans--
    }
    const cost = 1 + at - this.#at
    this.#at = at
    if (at >= last) {
      this.#phase = this.#phase === 'names' ? 'orphans' : 'chunks'
      this.#at = 1
    }
    return cost
  }

  #sweepChunks(budget: number): number {
    const { chunks, holders, layout } = this.#state
    let cost = 1
    for (; cost < budget && this.#at <= chunks.top; this.#at++)
      cost += 1 + this.#sweepChunk(this.#at) * UNNAME_COST
    if (this.#at > chunks.top) {
      for (let holder = 0; holder < layout.holdersMax; holder++) {
        const held = this.#state.heldBy(holder)
        if (holders.isSweptNow(holder) && held !== 0)
          throw new Error(`a sweep has left ${held} blocks of holder ${holder}`)
      }
      holders.endSweep()
    }
    return cost
  }

  /** Returns how many blocks lost their last holder. */
  #sweepChunk(chunk: number): number {
    const state = this.#state
    const { words, chunks, sets, holders } = state
    const base = chunks.base(chunk)
    let unnamed = 0
    // A free chunk has no slots in use: USED is 0.
    for (let slot = words[base + USED]! - 1; slot >= 0; slot--) {
      const set = words[base + SET + slot]!
      if (set === 0) continue
      const block = (chunk << 4) | slot
      let next = sets.purge(set, holders.sweeping)
      if (next === set) continue
      if (next === NO_SET) {
        const kept = sets.members(set).find(member => !holders.isSweptNow(member))!
        state.keepOnly(block, set, kept, -1)
        next = kept + 1
      } else {
        this.#loseSwept(set)
      }
      state.setSet(block, set, next)
      words[S_LEFT_SINCE_MERGE]!++
      if (next !== 0) continue
      if (unnamed++ === 0) state.loops.touchNames(chunk << 4, slot + 1)
      state.unname(block, NONE)
    }
    if (unnamed > 0) state.loops.trim(chunk)
    return unnamed
  }

  #loseSwept(set: number): void {
    const state = this.#state
    if (set <= state.layout.holdersMax) {
      state.lose(set - 1)
      return
    }
    const { sweeping } = state.holders
    for (let i = 0; i < sweeping.length; i++) {
      for (let word = sweeping[i]!; word !== 0; word &= word - 1) {
        const holder = i * 32 + 31 - Math.clz32(word & -word)
        if (state.sets.has(set, holder)) state.lose(holder)
      }
    }
  }
}
