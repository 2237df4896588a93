/** Restore: takes in what a dump says. It may be anything until the checksum has been read. */

import type { Capacity } from './capacity.ts'
import type { DumpedChunk, DumpVisitor } from './dump-format.ts'
import { IndexDumpError } from './errors.ts'
import { type IndexState, NOBODY, NONE, ROOT } from './index-state.ts'
import { NO_SET } from './words.ts'

export class Restorer {
  readonly #state: IndexState
  readonly #capacity: Capacity
  readonly #slots: ReadonlyMap<number, number>
  readonly #sets: number[][] = [[]]
  /** By number: the block here; 0: it found no room. */
  readonly #blocks: number[] = [ROOT]
  #hasRefused = false

  /** @param slots Worker slots here by number in the dump. */
  constructor(state: IndexState, capacity: Capacity, slots: ReadonlyMap<number, number>) {
    this.#state = state
    this.#capacity = capacity
    this.#slots = slots
  }

  get visitor(): DumpVisitor {
    return {
      set: numbers => this.#takeSet(numbers),
      chunk: chunk => this.#takeChunk(chunk),
      name: (number, block, low, high, copies) => this.#takeName(number, block, low, high, copies),
      orphan: (number, hashes, copies) => this.#takeOrphan(number, hashes, copies),
    }
  }

  #takeSet(numbers: readonly number[]): void {
    const holders = numbers.map(number => this.#holderOf(number)).filter(holder => holder !== NOBODY)
    if (new Set(holders).size < holders.length) {
      throw new IndexDumpError('altered', 'a set names a slot twice')
    }
    this.#sets.push(holders)
  }

  #takeChunk(chunk: DumpedChunk): void {
    const { chunks, loops } = this.#state
    this.#state.changes++
    let above = this.#blocks[chunk.parent]!
    let isLost = chunk.parent !== 0 && above === NONE
    let lastNumber = 0
    let lastSet = 0
    for (let i = 0; i < chunk.count; i++) {
      const holders = this.#sets[chunk.sets[i]!]!
      let block = NONE
      if (!isLost) {
        if (loops.childOf(above, chunk.locals[2 * i]!, chunk.locals[2 * i + 1]!) !== NONE) {
          throw new IndexDumpError('altered', `block ${this.#blocks.length} is there twice`)
        }
        const set = lastSet !== 0 && chunk.sets[i] === lastNumber ? lastSet : this.#setFor(holders)
        block = this.#takeBlock(above, chunk, i, set, holders)
        if (block !== NONE) {
          lastNumber = chunk.sets[i]!
          lastSet = chunks.setOf(block)
        }
      }
      if (block === NONE) {
        isLost = true
        this.#refuse(holders.length)
      }
      this.#blocks.push(block)
      above = block
    }
  }

  /** A block in a set that may be empty: a hole. 0: no room. */
  #takeBlock(above: number, chunk: DumpedChunk, i: number, set: number, holders: readonly number[]): number {
    const state = this.#state
    const { loops, chunks, sets, names, counters } = state
    this.#capacity.limitChunks()
    const block = loops.create(above, chunk.locals[2 * i]!, chunk.locals[2 * i + 1]!, set)
    if (block === NONE || set === 0) return block
    loops.moveBlocks(0, set, 1)
    state.blocksDistinct++
    for (const holder of holders) {
      if (sets.has(set, holder)) state.gain(holder)
      else counters.refusedBlocks++
    }
    const low = chunk.engines[2 * i]!
    const high = chunk.engines[2 * i + 1]!
    const isNamed = ((chunk.named >>> i) & 1) === 1
    const hasRoom = isNamed && loops.insertName(block, low, high) >= 0
    if (hasRoom) return block
    chunks.mark(block)
    if (!isNamed) return block
    for (const holder of holders) {
      if (names.add(holder, low, high, block, 0, 0, 0) === NONE) counters.refusedBlocks++
    }
    return block
  }

  #takeName(number: number, blockNumber: number, low: number, high: number, copies: number): void {
    const { names, sets, chunks } = this.#state
    const holder = this.#holderOf(number)
    const block = this.#blocks[blockNumber]!
    if (holder === NOBODY) return
    if (block === NONE || !sets.has(chunks.setOf(block), holder)) {
      if (this.#hasRefused) return
      throw new IndexDumpError('altered', `slot ${number} has a name for block ${blockNumber}`)
    }
    const known = names.find(holder, low, high)
    const record = known === NONE ? names.add(holder, low, high, block, 0, 0, 0) : known
    if (record !== NONE) names.setCopies(record, copies)
    else this.#refuse(1)
  }

  #takeOrphan(number: number, hashes: Int32Array, copies: number): void {
    const { orphans } = this.#state
    const holder = this.#holderOf(number)
    if (holder === NOBODY) return
    const [low, high, groupLow, groupHigh, localLow, localHigh] = hashes as unknown as number[]
    if (orphans.find(holder, low!, high!) !== NONE) {
      throw new IndexDumpError('altered', `slot ${number} has an orphan twice`)
    }
    const record = orphans.add(holder, low!, high!, groupLow!, groupHigh!, localLow!, localHigh!)
    if (record !== NONE) orphans.setCopies(record, copies)
    else this.#refuse(1)
  }

  /** The set of some holders; of the first alone where no id is free. */
  #setFor(holders: readonly number[]): number {
    if (holders.length === 0) return 0
    const set = this.#state.sets.of(holders)
    return set === NO_SET ? holders[0]! + 1 : set
  }

  #holderOf(number: number): number {
    const slot = this.#slots.get(number)
    return slot === undefined ? NOBODY : this.#capacity.holderFor(slot)
  }

  #refuse(count: number): void {
    this.#hasRefused = true
    this.#state.counters.refusedBlocks += count
  }
}
