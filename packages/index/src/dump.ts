/**
 * Dump: the blocks of a holder in order, parents first. The index must not change meanwhile; every entry
 * checks this.
 */

import { type IndexState, ROOT } from './index-state.ts'
import type { DumpEntry, HashPair, OrphanEntry } from './types.ts'
import { LOC, PARENT, SET, USED } from './words.ts'

/** Throws when the index has changed since `changes` was read. */
function requireUnchanged(state: IndexState, changes: number): void {
  if (state.changes !== changes) throw new Error('cannot go on with the dump: the index has changed')
}

/** Every engine hash that a holder holds. */
export function* dumpHolder(state: IndexState, holder: number): Generator<DumpEntry, void, undefined> {
  const { words, chunks, sets, changes } = state
  const reachable = new Uint16Array(chunks.top + 1)
  for (const [chunk, depth] of chunksByDepth(state, holder)) {
    const base = chunks.base(chunk)
    const used = words[base + USED]!
    let above = words[base + PARENT]!
    let isReachable = above === ROOT || ((reachable[above >>> 4]! >>> (above & 15)) & 1) === 1
    for (let slot = 0; slot < used; slot++) {
      const block = (chunk << 4) | slot
      if (!sets.has(words[base + SET + slot]!, holder)) {
        isReachable = false
      } else {
        if (isReachable) reachable[chunk]! |= 1 << slot
        const parentEngineHash = above === ROOT ? undefined : someName(state, holder, above)
        const localHash = [words[base + LOC + 2 * slot]!, words[base + LOC + 2 * slot + 1]!] as const
        for (const [engineHash, copies] of state.namesOf(holder, block)) {
          yield {
            block,
            parentBlock: above,
            engineHash,
            parentEngineHash,
            localHash,
            position: depth + slot,
            isReachable,
            copies,
          }
          requireUnchanged(state, changes)
        }
      }
      above = block
    }
  }
}

/** Every block that a holder has parked. */
export function* dumpOrphans(state: IndexState, holder: number): Generator<OrphanEntry, void, undefined> {
  const { orphans, changes } = state
  for (let record = 1; record < orphans.recordsEnd; record++) {
    if (orphans.holderOf(record) !== holder) continue
    yield {
      engineHash: [orphans.engineLow(record), orphans.engineHigh(record)],
      parentEngineHash: [orphans.groupLow(record), orphans.groupHigh(record)],
      localHash: [orphans.localLow(record), orphans.localHigh(record)],
      copies: orphans.copies(record),
    }
    requireUnchanged(state, changes)
  }
}

function someName(state: IndexState, holder: number, block: number): HashPair | undefined {
  const isHeld = state.sets.has(state.chunks.setOf(block), holder)
  return isHeld ? state.namesOf(holder, block)[0]![0] : undefined
}

/** Chunks with a block of this holder, and the position of their first block, parents first. */
function chunksByDepth(
  { words, chunks, sets }: IndexState,
  holder: number,
): [chunk: number, depth: number][] {
  const depths = new Int32Array(chunks.top + 1).fill(-1)
  const depthOf = (chunk: number): number => {
    const path: number[] = []
    let each = chunk
    let depth = -1
    for (;;) {
      depth = depths[each]!
      if (depth >= 0) break
      const above = words[chunks.base(each) + PARENT]!
      path.push(each)
      if (above === ROOT) {
        depth = 0
        depths[each] = 0
        path.pop()
        break
      }
      each = above >>> 4
    }
    while (path.length > 0) {
      each = path.pop()!
      const above = words[chunks.base(each) + PARENT]!
      depth = depths[above >>> 4]! + (above & 15) + 1
      depths[each] = depth
    }
    return depth
  }
  const result: [number, number][] = []
  for (let chunk = 1; chunk <= chunks.top; chunk++) {
    const base = chunks.base(chunk)
    const used = words[base + USED]!
    for (let slot = 0; slot < used; slot++) {
      if (!sets.has(words[base + SET + slot]!, holder)) continue
      result.push([chunk, depthOf(chunk)])
      break
    }
  }
  return result.sort((a, b) => a[1] - b[1])
}
