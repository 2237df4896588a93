/**
 * EventRing: events from the thread that issues them to the one that applies them, their payload copied in.
 *
 *   control  word 0 published: slots that the issuer has filled; only it stores it
 *            word 16 applied: slots that the writer is done with; only it stores it
 *            word 17 failed: 1 once the writer has thrown; the issuer then throws instead of waiting
 *   slot     8 words of head: kind, worker, count, has a parent, parent (2), time (f64);
 *            512 words: a stored run has its engine hashes, and its local hashes from word 256; other kinds
 *            have engine hashes only
 *
 * Slots have one size, so that views into them are made once and neither side makes an object per event. Both
 * counters only grow (up to 2^31 events) and are published by Atomics after the words they cover.
 *
 * Waiting   spins, then sleeps a tenth of a millisecond at a time: on a machine with one free core the other
 *           side needs it.
 */

import { type Corpus, STORED } from './kvc1.ts'

/** In place of the kind of a record: an order to the writer thread. */
export const FRESH = 16
export const CHECK = 17
export const STOP = 18

const PUBLISHED = 0
const APPLIED = 16
const FAILED = 17
const HEAD_WORDS = 8
const STORED_MAX = 128
const PAYLOAD_WORDS = 4 * STORED_MAX
const SLOT_WORDS = HEAD_WORDS + PAYLOAD_WORDS
/** Hashes of a removed event in one slot; a longer one takes several. */
export const REMOVED_MAX = PAYLOAD_WORDS / 2
const SPINS_MAX = 20_000
const SLEEP_MS = 0.1

export interface EventRingMemory {
  readonly control: SharedArrayBuffer
  readonly slots: SharedArrayBuffer
}

export function createEventRing(slots: number): EventRingMemory {
  return {
    control: new SharedArrayBuffer(32 * Int32Array.BYTES_PER_ELEMENT),
    slots: new SharedArrayBuffer(slots * SLOT_WORDS * Int32Array.BYTES_PER_ELEMENT),
  }
}

/** One slot, seen by either side. */
export interface EventSlot {
  /** kind, worker, count, 1 with a parent */
  readonly head: Int32Array
  readonly parent: Int32Array
  /** When the event was accepted, on the clock of the issuer; 0: not wanted. */
  readonly timeMs: Float64Array
  /** Whole payload. */
  readonly engines: Int32Array
  readonly locals: Int32Array
}

function slotsOf({ slots }: EventRingMemory): readonly EventSlot[] {
  const bytes = SLOT_WORDS * Int32Array.BYTES_PER_ELEMENT
  return Array.from({ length: slots.byteLength / bytes }, (_, i) => ({
    head: new Int32Array(slots, i * bytes, 4),
    parent: new Int32Array(slots, i * bytes + 16, 2),
    timeMs: new Float64Array(slots, i * bytes + 24, 1),
    engines: new Int32Array(slots, i * bytes + 4 * HEAD_WORDS, PAYLOAD_WORDS),
    locals: new Int32Array(slots, i * bytes + 4 * (HEAD_WORDS + 2 * STORED_MAX), 2 * STORED_MAX),
  }))
}

/** The side of the issuer. */
export class EventIssuer {
  readonly #control: Int32Array
  readonly #slots: readonly EventSlot[]
  #published = 0
  #applied = 0

  constructor(memory: EventRingMemory) {
    this.#control = new Int32Array(memory.control)
    this.#slots = slotsOf(memory)
  }

  /** Slots filled so far. */
  get published(): number {
    return this.#published
  }

  /** Record i of the corpus, which is an event; waits for room. */
  issue(corpus: Corpus, i: number, timeMs: number): void {
    const kind = corpus.kinds[i]!
    const worker = corpus.workers[i]!
    const count = corpus.counts[i]!
    const hashes = corpus.hashes[i]!
    if (kind === STORED) {
      const slot = this.#next(kind, worker, count, timeMs)
      const parent = corpus.parents[i]
      slot.head[3] = parent === undefined ? 0 : 1
      if (parent !== undefined) {
        slot.parent[0] = parent[0]!
        slot.parent[1] = parent[1]!
      }
      slot.engines.set(hashes)
      slot.locals.set(corpus.locals[i]!)
      this.#publish()
      return
    }
    if (count <= REMOVED_MAX) {
      this.#next(kind, worker, count, timeMs).engines.set(hashes)
      this.#publish()
      return
    }
    for (let from = 0; from < count; from += REMOVED_MAX) {
      const part = Math.min(REMOVED_MAX, count - from)
      this.#next(kind, worker, part, timeMs).engines.set(hashes.subarray(2 * from, 2 * (from + part)))
      this.#publish()
    }
  }

  order(kind: typeof FRESH | typeof CHECK | typeof STOP): void {
    this.#next(kind, 0, 0, 0)
    this.#publish()
  }

  /** Returns when everything was applied. */
  drain(): void {
    for (let spins = 0; this.#loadApplied() !== this.#published; spins++) this.#rest(spins)
  }

  #next(kind: number, worker: number, count: number, timeMs: number): EventSlot {
    for (let spins = 0; this.#published - this.#applied === this.#slots.length; spins++) {
      if (this.#loadApplied() === this.#published - this.#slots.length) this.#rest(spins)
    }
    const slot = this.#slots[this.#published % this.#slots.length]!
    slot.head[0] = kind
    slot.head[1] = worker
    slot.head[2] = count
    slot.timeMs[0] = timeMs
    return slot
  }

  #rest(spins: number): void {
    rest(this.#control, APPLIED, spins)
    if (spins > SPINS_MAX && Atomics.load(this.#control, FAILED) === 1) {
      throw new Error('the writer thread has failed')
    }
  }

  #publish(): void {
    Atomics.store(this.#control, PUBLISHED, ++this.#published)
  }

  #loadApplied(): number {
    this.#applied = Atomics.load(this.#control, APPLIED)
    return this.#applied
  }
}

/** The side of the writer of the index. */
export class EventTaker {
  readonly #control: Int32Array
  readonly #slots: readonly EventSlot[]
  #applied = 0

  constructor(memory: EventRingMemory) {
    this.#control = new Int32Array(memory.control)
    this.#slots = slotsOf(memory)
  }

  /** Slots that are done. */
  get applied(): number {
    return this.#applied
  }

  /** The next slot; waits for it. Call `done` when it is applied. */
  take(): EventSlot {
    for (let spins = 0; Atomics.load(this.#control, PUBLISHED) === this.#applied; spins++) {
      rest(this.#control, PUBLISHED, spins)
    }
    return this.#slots[this.#applied % this.#slots.length]!
  }

  done(): void {
    Atomics.store(this.#control, APPLIED, ++this.#applied)
  }

  fail(): void {
    Atomics.store(this.#control, FAILED, 1)
  }
}

function rest(control: Int32Array, word: number, spins: number): void {
  if (spins > SPINS_MAX) Atomics.wait(control, word, Atomics.load(control, word), SLEEP_MS)
}
