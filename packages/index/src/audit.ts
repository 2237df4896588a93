/** Audit: checks the invariants and every count. For tests: it makes several passes over everything. */

import type { IndexState } from './index-state.ts'
import { SET, USED } from './words.ts'

/** Throws an Error that says what does not hold. */
export function auditIndex(state: IndexState): void {
  const { chunks, engines, sets, holders, names, layout } = state
  chunks.audit()
  engines.audit()
  const held = new Int32Array(layout.holdersMax)
  const blocksOf = new Map<number, number>()
  let named = 0
  let distinct = 0
  for (let chunk = 1; chunk <= chunks.top; chunk++) {
    const base = chunks.base(chunk)
    for (let slot = 0; slot < state.words[base + USED]!; slot++) {
      const block = (chunk << 4) | slot
      const set = state.words[base + SET + slot]!
      require(set !== 0 || !chunks.isMarked(block), `the hole ${block} is marked as held`)
      if (set === 0) continue
      distinct++
      if (!chunks.isMarked(block)) named++
      blocksOf.set(set, (blocksOf.get(set) ?? 0) + 1)
      const members = sets.members(set)
      require(members.length > 0, `block ${block} has an empty set`)
      for (const member of members) held[member]!++
    }
  }
  for (const [set, blocks] of blocksOf) {
    require(sets.blocksOf(set) === blocks, `set ${set} has ${blocks} blocks, not ${sets.blocksOf(set)}`)
  }
  let memberships = 0
  for (const [holder, blocks] of held.entries()) {
    require(state.heldBy(holder) ===
      blocks, `holder ${holder} holds ${blocks} blocks, not ${state.heldBy(holder)}`)
    if (holders.ownerOf(holder) >= 0) memberships += blocks
  }
  require(memberships === state.memberships, `${memberships} memberships, not ${state.memberships}`)
  require(distinct === state.blocksDistinct, `${distinct} blocks, not ${state.blocksDistinct}`)
  require(named === engines.count, `${named} names, not ${engines.count}`)
  for (let record = 1; record < names.recordsEnd; record++) {
    const holder = names.holderOf(record)
    if (holder < 0) continue
    const block = names.groupLow(record)
    require(sets.has(chunks.setOf(block), holder), `a record of holder ${holder} is about ${block}`)
  }
}

function require(condition: boolean, what: string): void {
  if (!condition) throw new Error(what)
}
