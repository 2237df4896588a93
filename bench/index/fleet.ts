/**
 * Fleet: makes a corpus of a trace. Every request goes to a worker drawn at random (the heaviest stream that
 * a fleet could produce, whatever the policy), whose LRU cache then stores what it lacks and removes the
 * oldest.
 *
 * Blocks    block j of trace id h has the local hash mix(256 h + j); sequence hashes are chained by
 *           packages/blocks. Ids are prefix ids, so (id, j) names a path, and stands for the sequence hash
 *           here.
 * Request   lookup of all its blocks; then it pins the longest prefix that its worker holds, removes as many
 *           of the oldest blocks as needed (one removed event), stores the rest (at most 128 blocks an
 *           event), and releases its blocks tail first, so that leaves go before roots.
 * Order     by deadline; at one deadline lookups first, then events by worker, then as they came.
 *
 * Two files: the schedule, and the memberships alive at its end as stored events in the order in which they
 * were stored. Both are written as they come; in memory are the caches and one hash per block of the trace.
 */

import { chainSequence } from '@homing/blocks'
import { type CorpusTotals, CorpusWriter } from './kvc1.ts'
import { mixInto, SplitMix } from './splitmix.ts'
import { copiesOf, idsIn, TRACE_BLOCK_TOKENS, type Trace } from './traces.ts'

/** Blocks of a stored event at most. */
export const STORED_BLOCKS_MAX = 128

const SEED = 42
const PARTS_MAX = 256
const NONE = -1

export interface FleetOptions {
  readonly workers: number
  readonly blockTokens: number
  /** Blocks of every worker's cache. */
  readonly cacheBlocks: number
  /** Copies of the trace with trees of their own. */
  readonly copies: number
  /** Blocks per id of the trace, the partial last one too; 0: as blockTokens and the length say. */
  readonly stretch: number
}

/** A request that shares its deadline with others: written when all of them are known. */
interface Pending {
  readonly worker: number
  readonly locals: Int32Array
  readonly sequences: Int32Array
  readonly count: number
  readonly reused: number
  /** Sequence hashes of what had to go. */
  readonly removed: Int32Array
}

/** Writes the schedule to `path` and the live memberships to `livePath`. */
export function writeFleet(
  trace: Trace,
  options: FleetOptions,
  path: string,
  livePath: string,
): { readonly totals: CorpusTotals; readonly live: CorpusTotals } {
  const { workers, blockTokens, cacheBlocks, copies, stretch } = options
  const parts = stretch > 0 ? stretch : TRACE_BLOCK_TOKENS / blockTokens
  const blocks = idsIn(trace.requests) * copies * parts
  // By block: its sequence hash, once it was stored.
  const sequenceOf = new Int32Array(2 * blocks)
  const localOf = new Int32Array(2 * blocks)
  const caches = Array.from({ length: workers }, () => new Cache(cacheBlocks))
  const random = new SplitMix(SEED)
  const writer = new CorpusWriter(path, blockTokens, workers)
  let storedNo = 0
  let pending: Pending[] = []
  let deadline = 0
  for (const { timeS, request, idOffset } of copiesOf(trace, copies)) {
    if (timeS !== deadline) {
      writePending(writer, deadline, pending)
      pending = []
      deadline = timeS
    }
    const worker = random.below(workers)
    const count = stretch > 0 ? request.ids.length * stretch : Math.floor(request.inputTokens / blockTokens)
    const names = new Int32Array(count)
    const locals = new Int32Array(2 * count)
    for (let i = 0; i < count; i++) {
      const id = request.ids[Math.floor(i / parts)]! + idOffset
      names[i] = id * parts + (i % parts)
      mixInto(id * PARTS_MAX + (i % parts), locals, 2 * i)
    }
    const sequences = chainSequence(locals, count)
    const { reused, removed } = caches[worker]!.admit(names, storedNo)
    storedNo += count - reused
    for (let i = reused; i < count; i++) {
      for (const word of [0, 1]) {
        sequenceOf[2 * names[i]! + word] = sequences[2 * i + word]!
        localOf[2 * names[i]! + word] = locals[2 * i + word]!
      }
    }
    const removedHashes = new Int32Array(2 * removed.length)
    for (let i = 0; i < removed.length; i++) {
      removedHashes[2 * i] = sequenceOf[2 * removed[i]!]!
      removedHashes[2 * i + 1] = sequenceOf[2 * removed[i]! + 1]!
    }
    pending.push({ worker, locals, sequences, count, reused, removed: removedHashes })
  }
  writePending(writer, deadline, pending)
  return {
    totals: writer.close(),
    live: writeLive(caches, blockTokens, localOf, sequenceOf, livePath),
  }
}

function writePending(writer: CorpusWriter, deadline: number, pending: readonly Pending[]): void {
  const byWorker = [...pending].sort((a, b) => a.worker - b.worker)
  for (const { worker, locals, count } of byWorker) writer.lookup(deadline, worker, locals, count)
  for (const { worker, locals, sequences, count, reused, removed } of byWorker) {
    if (removed.length > 0) writer.removed(deadline, worker, removed, removed.length / 2)
    for (let from = reused; from < count; from += STORED_BLOCKS_MAX) {
      writer.stored(deadline, worker, locals, sequences, from, Math.min(count, from + STORED_BLOCKS_MAX))
    }
  }
}

function writeLive(
  caches: readonly Cache[],
  blockTokens: number,
  localOf: Int32Array,
  sequenceOf: Int32Array,
  path: string,
): CorpusTotals {
  const writer = new CorpusWriter(path, blockTokens, caches.length)
  const live = caches.flatMap((cache, worker) => cache.live(worker)).sort((a, b) => a.storedNo - b.storedNo)
  const pairs = new Int32Array(4 * STORED_BLOCKS_MAX)
  const hashOf = (name: number) => sequenceOf.subarray(2 * name, 2 * name + 2)
  for (let start = 0; start < live.length; ) {
    const first = live[start]!
    let count = 0
    for (let i = start; i < live.length && count < STORED_BLOCKS_MAX; i++, count++) {
      const { worker, storedNo, name, parent } = live[i]!
      const last = live[i - 1]
      if (
        i > start &&
        (worker !== first.worker || storedNo !== last!.storedNo + 1 || parent !== last!.name)
      ) {
        break
      }
      for (const word of [0, 1]) {
        pairs[4 * count + word] = localOf[2 * name + word]!
        pairs[4 * count + 2 + word] = sequenceOf[2 * name + word]!
      }
    }
    writer.storedPairs(first.worker, first.parent === NONE ? undefined : hashOf(first.parent), pairs, count)
    start += count
  }
  return writer.close()
}

interface LiveBlock {
  readonly worker: number
  readonly storedNo: number
  readonly name: number
  readonly parent: number
}

/** LRU cache of one worker: a doubly linked list through slots, its head goes first. */
class Cache {
  readonly #slotOf = new Map<number, number>()
  readonly #name: Int32Array
  readonly #parent: Int32Array
  readonly #storedNo: Int32Array
  readonly #previous: Int32Array
  readonly #next: Int32Array
  readonly #free: number[] = []
  #used = 0
  #head = NONE
  #tail = NONE

  constructor(capacity: number) {
    this.#name = new Int32Array(capacity)
    this.#parent = new Int32Array(capacity)
    this.#storedNo = new Int32Array(capacity)
    this.#previous = new Int32Array(capacity)
    this.#next = new Int32Array(capacity)
  }

  /** How many leading blocks were held, and which blocks had to go, in order. The rest is stored now. */
  admit(
    names: Int32Array,
    storedNo: number,
  ): { readonly reused: number; readonly removed: readonly number[] } {
    const count = names.length
    if (count > this.#name.length) {
      throw new RangeError(`a prompt of ${count} blocks does not fit into a cache of ${this.#name.length}`)
    }
    const slots = new Int32Array(count)
    let reused = 0
    for (; reused < count; reused++) {
      const slot = this.#slotOf.get(names[reused]!)
      if (slot === undefined) break
      slots[reused] = slot
      this.#unlink(slot)
    }
    const removed: number[] = []
    while (this.#slotOf.size + count - reused > this.#name.length) {
      const slot = this.#head
      this.#unlink(slot)
      removed.push(this.#name[slot]!)
      this.#slotOf.delete(this.#name[slot]!)
      this.#free.push(slot)
    }
    for (let i = reused; i < count; i++) {
      const slot = this.#free.pop() ?? this.#used++
      this.#name[slot] = names[i]!
      this.#parent[slot] = i === 0 ? NONE : names[i - 1]!
      this.#storedNo[slot] = storedNo++
      this.#slotOf.set(names[i]!, slot)
      slots[i] = slot
    }
    for (let i = count - 1; i >= 0; i--) this.#append(slots[i]!)
    return { reused, removed }
  }

  live(worker: number): LiveBlock[] {
    return [...this.#slotOf.values()].map(slot => ({
      worker,
      storedNo: this.#storedNo[slot]!,
      name: this.#name[slot]!,
      parent: this.#parent[slot]!,
    }))
  }

  #unlink(slot: number): void {
    const previous = this.#previous[slot]!
    const next = this.#next[slot]!
    if (previous === NONE) this.#head = next
    else this.#next[previous] = next
    if (next === NONE) this.#tail = previous
    else this.#previous[next] = previous
  }

  #append(slot: number): void {
    this.#previous[slot] = this.#tail
    this.#next[slot] = NONE
    if (this.#tail === NONE) this.#head = slot
    else this.#next[this.#tail] = slot
    this.#tail = slot
  }
}
