/**
 * Dump: the blocks of a worker slot, parents first, in slices of a bounded size, between which the index may
 * change.
 *
 *   scan     every chunk: which ones have a block of the slot, and how deep they begin
 *   order    those chunks by depth
 *   entries  the blocks of the chunks, in this order
 *
 * What holds although the index changes between two slices
 *   D1  Events never move a block (index-state.ts), and while a dump is open maintenance moves none. So a
 *       block that is held from the first slice to the last is named once, with its own parent.
 *   D2  A block that was stored or removed meanwhile may be named or not, and, if both happened, twice. Its
 *       parent may be missing, or come later.
 *   D3  `isReachable` is true only for a block that is at the root, or whose parent was named as reachable
 *       and is held still.
 *   D4  If the slot is cleared meanwhile, or everything is, nothing more is named: chunks and holders may be
 *       others then.
 *
 * Memory: 6 bytes per chunk of the shard and 12 per chunk with a block of the slot, where the chunk itself
 * takes CHUNK_BYTES: about a tenth of the shard's own, at most.
 */

import { type IndexState, NOBODY, ROOT } from './index-state.ts'
import type { DumpEntry, HashPair, OrphanEntry } from './types.ts'
import { LOC, PARENT, SET, USED } from './words.ts'

/** Chunks that a step of the generator looks at. */
const GENERATOR_BUDGET = 4096

/** Throws when the index has changed since `changes` was read. */
function requireUnchanged(state: IndexState, changes: number): void {
  if (state.changes !== changes) throw new Error('cannot go on with the dump: the index has changed')
}

export class SlicedDump {
  readonly #state: IndexState
  readonly #workerSlot: number
  readonly #holder: number
  /** Chunks from the beginning; higher ones are newer. */
  readonly #top: number
  /** By chunk: the position of its first block, and 1; 0: not known. */
  readonly #depths: Int32Array
  /** By chunk, a bit per block that was named as reachable. */
  readonly #reachable: Uint16Array
  /** Chunks with a block of the slot, ascending. */
  readonly #found: number[] = []
  /** By depth: how many of `found` begin there; then, where the next of them goes. */
  #places: Int32Array = new Int32Array(256)
  #depthMax = 0
  #ordered: Uint32Array | undefined
  #isEnded = false
  #scanAt = 1
  #orderAt = 0
  #entriesAt = 0

  constructor(state: IndexState, workerSlot: number) {
    this.#state = state
    this.#workerSlot = workerSlot
    this.#holder = state.holderOf(workerSlot)
    this.#top = this.#holder === NOBODY ? 0 : state.chunks.top
    this.#depths = new Int32Array(this.#top + 1)
    this.#reachable = new Uint16Array(this.#top + 1)
  }

  /**
   * The entries of the next slice, for which about `budget` chunks are looked at; there may be none in it.
   * Undefined: there are no more.
   */
  next(budget: number): DumpEntry[] | undefined {
    if (this.#isEnded || this.#holder === NOBODY) return undefined
    if (this.#scanAt <= this.#top) this.#scan(budget)
    else if (this.#ordered === undefined || this.#orderAt < this.#found.length) this.#order(budget)
    else if (this.#entriesAt >= this.#found.length) return undefined
    else return this.#entries(budget)
    return []
  }

  /** This slot is cleared; undefined: all slots are. */
  cleared(workerSlot?: number): void {
    this.#isEnded ||= workerSlot === undefined || workerSlot === this.#workerSlot
  }

  #scan(budget: number): void {
    const { words, chunks, sets } = this.#state
    for (let cost = 0; cost < budget && this.#scanAt <= this.#top; this.#scanAt++, cost++) {
      const chunk = this.#scanAt
      const base = chunks.base(chunk)
      const used = words[base + USED]!
      for (let slot = 0; slot < used; slot++) {
        if (!sets.has(words[base + SET + slot]!, this.#holder)) continue
        const depth = this.#depthOf(chunk)
        if (depth < 0) break
        this.#found.push(chunk)
        this.#countAt(depth)
        break
      }
    }
  }

  #countAt(depth: number): void {
    if (depth >= this.#places.length) {
      const enlarged = new Int32Array(2 * depth)
      enlarged.set(this.#places)
      this.#places = enlarged
    }
    this.#places[depth]!++
    this.#depthMax = Math.max(this.#depthMax, depth)
  }

  #order(budget: number): void {
    if (this.#ordered === undefined) {
      this.#ordered = new Uint32Array(this.#found.length)
      let place = 0
      for (let depth = 0; depth <= this.#depthMax; depth++) {
        const count = this.#places[depth]!
        this.#places[depth] = place
        place += count
      }
    }
    const end = Math.min(this.#found.length, this.#orderAt + budget)
    for (; this.#orderAt < end; this.#orderAt++) {
      const chunk = this.#found[this.#orderAt]!
      this.#ordered[this.#places[this.#depths[chunk]! - 1]!++] = chunk
    }
  }

  #entries(budget: number): DumpEntry[] {
    const entries: DumpEntry[] = []
    const end = Math.min(this.#found.length, this.#entriesAt + budget)
    for (; this.#entriesAt < end; this.#entriesAt++) this.#addChunk(this.#ordered![this.#entriesAt]!, entries)
    return entries
  }

  #addChunk(chunk: number, entries: DumpEntry[]): void {
    const state = this.#state
    const { words, chunks, sets } = state
    const holder = this.#holder
    const base = chunks.base(chunk)
    const used = words[base + USED]!
    const depth = this.#depths[chunk]! - 1
    let above = words[base + PARENT]!
    let isReachable = above === ROOT || (this.#wasReachable(above) && sets.has(chunks.setOf(above), holder))
    for (let slot = 0; slot < used; slot++) {
      const block = (chunk << 4) | slot
      if (!sets.has(words[base + SET + slot]!, holder)) {
        isReachable = false
      } else {
        if (isReachable) this.#reachable[chunk]! |= 1 << slot
        const parentEngineHash = above === ROOT ? undefined : someName(state, holder, above)
        const localHash = [words[base + LOC + 2 * slot]!, words[base + LOC + 2 * slot + 1]!] as const
        for (const [engineHash, copies] of state.namesOf(holder, block)) {
          entries.push({
            block,
            parentBlock: above,
            engineHash,
            parentEngineHash,
            localHash,
            position: depth + slot,
            isReachable,
            copies,
          })
        }
      }
      above = block
    }
  }

  #wasReachable(block: number): boolean {
    const chunk = block >>> 4
    return chunk <= this.#top && ((this.#reachable[chunk]! >>> (block & 15)) & 1) === 1
  }

  /** The position of the first block of a chunk; −1: it lies below a chunk that is newer than the dump. */
  #depthOf(chunk: number): number {
    const { words, chunks } = this.#state
    const depths = this.#depths
    const path: number[] = []
    let each = chunk
    for (;;) {
      if (each > this.#top) return -1
      if (depths[each]! > 0) break
      const above = words[chunks.base(each) + PARENT]!
      if (above === ROOT) {
        depths[each] = 1
        break
      }
      path.push(each)
      each = above >>> 4
    }
    while (path.length > 0) {
      each = path.pop()!
      const above = words[chunks.base(each) + PARENT]!
      depths[each] = depths[above >>> 4]! + (above & 15) + 1
    }
    return depths[chunk]! - 1
  }
}

/**
 * Every engine hash that a worker slot holds. The index must not change meanwhile; every entry checks this.
 */
export function* dumpSlot(state: IndexState, workerSlot: number): Generator<DumpEntry, void, undefined> {
  const { changes } = state
  const dump = new SlicedDump(state, workerSlot)
  for (let slice = dump.next(GENERATOR_BUDGET); slice !== undefined; slice = dump.next(GENERATOR_BUDGET)) {
    for (const entry of slice) {
      yield entry
      requireUnchanged(state, changes)
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
