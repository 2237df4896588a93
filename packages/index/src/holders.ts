/**
 * Holders: the identity of a worker slot inside the sets. A holder is one life of a worker slot, from its
 * first store to its clear. Then the slot gets another holder. The old one is retired at once: it belongs to
 * no worker slot, even while sets still have its bit. A sweep removes the bits in slices; then the number is
 * free again.
 *
 *   slot 7 ──holders──► holder 3 ──owners──► slot 7        in use
 *                       holder 5 ──owners──► none          retired: its blocks count for no worker slot
 *                       holder 9                           free: its bit is in no set
 *
 * Protocol: H_LIFE is odd while an owner changes, and grows by 2 per change. A reader copies the owners at an
 * even H_LIFE, and uses the result of a walk only if H_LIFE is still the same: then bits and owners match.
 */

import type { Layout } from './layout.ts'
import { save } from './shard-memory.ts'
import { H_ACCESS, H_HOLDER_BASE, H_HOLDER_WORDS, H_LIFE, H_OWNER_BASE } from './words.ts'

const NONE = -1

export class Holders {
  #words: Int32Array
  readonly #isAtomic: boolean
  readonly #ownerBase: number
  readonly #holderBase: number
  readonly #holdersMax: number
  readonly #slotsMax: number
  /** Bit per holder: in use or retired. */
  readonly #taken: Int32Array
  /** Bit per holder: retired, and not yet being swept. */
  readonly #retired: Int32Array
  /** Bit per holder: being swept. */
  readonly sweeping: Int32Array
  #retiredCount = 0
  #sweepingCount = 0

  constructor(layout: Layout, words: Int32Array) {
    this.#words = words
    this.#isAtomic = words[H_ACCESS] === 1
    this.#ownerBase = words[H_OWNER_BASE]!
    this.#holderBase = words[H_HOLDER_BASE]!
    this.#holdersMax = layout.holdersMax
    this.#slotsMax = layout.workerSlotsMax
    this.#taken = new Int32Array(layout.setWords)
    this.#retired = new Int32Array(layout.setWords)
    this.sweeping = new Int32Array(layout.setWords)
  }

  /** Bytes of the masks. */
  get bytes(): number {
    return this.sweeping.length * 12
  }

  /** Retired holders: they have no worker slot and may still be in sets. */
  get retiredCount(): number {
    return this.#retiredCount + this.#sweepingCount
  }

  get isSweeping(): boolean {
    return this.#sweepingCount > 0
  }

  /** The holder of a worker slot; −1: it has none. */
  of(slot: number): number {
    return this.#words[this.#holderBase + slot]! - 1
  }

  /** The worker slot of a holder; −1: none. */
  ownerOf(holder: number): number {
    return this.#words[this.#ownerBase + holder]! - 1
  }

  isSweptNow(holder: number): boolean {
    return ((this.sweeping[holder >>> 5]! >>> (holder & 31)) & 1) !== 0
  }

  /** A free holder for a worker slot that has none; −1: all are taken. */
  assign(slot: number): number {
    for (let i = 0; i < this.#taken.length; i++) {
      const free = ~this.#taken[i]!
      if (free === 0) continue
      const holder = i * 32 + 31 - Math.clz32(free & -free)
      if (holder >= this.#holdersMax) return NONE
      this.#taken[i]! |= 1 << (holder & 31)
      const words = this.#words
      if (i + 1 > words[H_HOLDER_WORDS]!) Atomics.store(words, H_HOLDER_WORDS, i + 1)
      this.#own(holder, slot + 1, slot, holder + 1)
      return holder
    }
    return NONE
  }

  /** Takes the holder from a worker slot. The slot has no holder then, and the holder no slot. */
  retire(slot: number): void {
    const holder = this.of(slot)
    this.#own(holder, 0, slot, 0)
    this.#retired[holder >>> 5]! |= 1 << (holder & 31)
    this.#retiredCount++
  }

  /** Starts the sweep of all holders that are retired now. */
  beginSweep(): void {
    this.sweeping.set(this.#retired)
    this.#retired.fill(0)
    this.#sweepingCount = this.#retiredCount
    this.#retiredCount = 0
  }

  /** Swept holders are in no set any more: they become free. */
  endSweep(): void {
    for (let i = 0; i < this.#taken.length; i++) this.#taken[i]! &= ~this.sweeping[i]!
    this.sweeping.fill(0)
    this.#sweepingCount = 0
  }

  /** Moves to other shared memory, to which owners and holders have been copied. */
  renew(words: Int32Array): void {
    words.set(this.#words.subarray(this.#ownerBase, this.#ownerBase + this.#holdersMax), this.#ownerBase)
    words.set(this.#words.subarray(this.#holderBase, this.#holderBase + this.#slotsMax), this.#holderBase)
    words[H_HOLDER_WORDS] = this.#words[H_HOLDER_WORDS]!
    words[H_LIFE] = this.#words[H_LIFE]!
    this.#words = words
  }

  #own(holder: number, owner: number, slot: number, held: number): void {
    const words = this.#words
    // The first touch of a page takes a fault, which readers should not have to wait for.
    save(words, this.#ownerBase + holder, words[this.#ownerBase + holder]!, this.#isAtomic)
    save(words, this.#holderBase + slot, words[this.#holderBase + slot]!, this.#isAtomic)
    Atomics.store(words, H_LIFE, (words[H_LIFE]! + 1) | 0)
    save(words, this.#ownerBase + holder, owner, this.#isAtomic)
    save(words, this.#holderBase + slot, held, this.#isAtomic)
    Atomics.store(words, H_LIFE, (words[H_LIFE]! + 1) | 0)
  }
}
