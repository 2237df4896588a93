/**
 * Dump: what an index holds, told in order, parents first: of one holder as entries, of all in the form of
 * dump-format.ts. The index must stay the same meanwhile, and every piece looks whether it has.
 */

import { type DumpWriter, newDumpedChunk } from './dump-format.ts'
import { type IndexState, NOBODY, NONE, ROOT } from './index-state.ts'
import type { DumpEntry, HashPair, OrphanEntry } from './types.ts'
import { LOC, PARENT, SET, USED } from './words.ts'

/** Throws when the index has changed since `changes` was what it says. */
export function requireUnchanged(state: IndexState, changes: number): void {
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

/** Tells a writer everything of the worker slots of `names`; yields after each chunk. */
export function* dumpAll(
  state: IndexState,
  names: ReadonlyMap<number, string>,
  writer: DumpWriter,
): Generator<void, void, undefined> {
  const { words, chunks, sets, engines, holders } = state
  const chunk = newDumpedChunk()
  const setNumbers = new Map<number, number>([[0, 0]])
  let setCount = 0
  let blocks = 0
  let memberships = 0
  const membersOf = new Map<number, number>()
  /** By chunk: number of its first block. */
  const numbers = new Int32Array(chunks.top + 1)
  const stack: number[] = []
  const numberOf = (set: number): number => {
    const known = setNumbers.get(set)
    if (known !== undefined) return known
    const owners = sets.members(set).map(member => holders.ownerOf(member))
    const slots = owners.filter(owner => names.has(owner))
    const number = slots.length === 0 ? 0 : ++setCount
    if (number > 0) writer.set(slots)
    setNumbers.set(set, number)
    membersOf.set(number, slots.length)
    return number
  }
  for (let root = 1; root <= chunks.top; root++) {
    const rootBase = chunks.base(root)
    if (words[rootBase + USED] === 0 || words[rootBase + PARENT] !== ROOT) continue
    stack.push(root)
    for (let each = stack.pop(); each !== undefined; each = stack.pop()) {
      const base = chunks.base(each)
      const above = words[base + PARENT]!
      chunk.parent = above === ROOT ? 0 : numbers[above >>> 4]! + (above & 15)
      chunk.count = words[base + USED]!
      chunk.named = 0
      for (let slot = 0; slot < chunk.count; slot++) {
        const block = (each << 4) | slot
        const number = numberOf(words[base + SET + slot]!)
        chunk.sets[slot] = number
        memberships += membersOf.get(number) ?? 0
        if (number !== 0 && !chunks.isMarked(block)) chunk.named |= 1 << slot
        chunk.engines[2 * slot] = engines.low(block)
        chunk.engines[2 * slot + 1] = engines.high(block)
        chunk.locals[2 * slot] = words[base + LOC + 2 * slot]!
        chunk.locals[2 * slot + 1] = words[base + LOC + 2 * slot + 1]!
      }
      writer.chunk(chunk)
      numbers[each] = blocks + 1
      blocks += chunk.count
      for (let below = chunks.firstBelow(each); below !== NONE; below = chunks.nextBelow(below)) {
        stack.push(below)
      }
      yield
    }
  }
  yield* dumpRecords(state, names, writer, block => numbers[block >>> 4]! + (block & 15))
  writer.end(blocks, memberships)
}

/** Further names, and orphans. */
function* dumpRecords(
  state: IndexState,
  names: ReadonlyMap<number, string>,
  writer: DumpWriter,
  numberOf: (block: number) => number,
): Generator<void, void, undefined> {
  for (const table of [state.names, state.orphans]) {
    for (let record = 1; record < table.recordsEnd; record++) {
      const holder = table.holderOf(record)
      const slot = holder < 0 ? NOBODY : state.holders.ownerOf(holder)
      if (!names.has(slot)) continue
      const low = table.engineLow(record)
      const high = table.engineHigh(record)
      const group = table.groupLow(record)
      if (table === state.orphans) {
        const rest = [group, table.groupHigh(record), table.localLow(record), table.localHigh(record)]
        writer.orphan(slot, Int32Array.of(low, high, ...rest), table.copies(record))
      } else {
        writer.name(slot, numberOf(group), low, high, table.copies(record))
      }
      yield
    }
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
