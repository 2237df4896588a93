/**
 * SideTable: the rare holdings that need a record of their own. Private to the writer.
 *
 * A record belongs to one worker slot and one engine hash, and is in a group of that worker slot:
 *
 *   names    group = (block, 0)          an engine hash beside or instead of the block's name, and copies
 *   orphans  group = parent engine hash  a parked block, with its local hash and copies
 *
 *   record  SLOT, E low, E high, G low, G high, L low, L high, COPIES, next by hash, next by group
 *
 * Two chained hash tables over the records: (slot, engine hash) → at most one record, (slot, group) → some.
 * Record 0 is none. The arrays double, as far as `mayGrow` allows; freed records are used again.
 */

import { powerOfTwo } from './layout.ts'

const RECORD_WORDS = 10
const SLOT = 0
const ENGINE = 1
const GROUP = 3
const LOCAL = 5
const COPIES = 7
const NEXT_BY_HASH = 8
const NEXT_BY_GROUP = 9
const RECORDS_MIN = 15
const FREE = -1

export class SideTable {
  #records = new Int32Array(0)
  #byHash = new Int32Array(0)
  #byGroup = new Int32Array(0)
  #capacity = 0
  #fresh = 1
  #free = 0
  #count = 0
  readonly #perSlot: Int32Array
  readonly #mayGrow: (bytes: number) => boolean

  /** @param mayGrow Asked before growth to so many bytes in all; false refuses. */
  constructor(workerSlotsMax: number, mayGrow: (bytes: number) => boolean) {
    this.#perSlot = new Int32Array(workerSlotsMax)
    this.#mayGrow = mayGrow
  }

  get count(): number {
    return this.#count
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return (this.#records.length + this.#byHash.length + this.#byGroup.length) * 4
  }

  /** Records of one worker slot. */
  countOf(slot: number): number {
    return this.#perSlot[slot]!
  }

  /** The record of (slot, engine hash); 0: none. */
  find(slot: number, low: number, high: number): number {
    if (this.#perSlot[slot] === 0) return 0
    const records = this.#records
    let record = this.#byHash[this.#bucket(slot, low, high)]!
    while (record !== 0) {
      const at = record * RECORD_WORDS
      if (records[at] === slot && records[at + ENGINE] === low && records[at + ENGINE + 1] === high)
        return record
      record = records[at + NEXT_BY_HASH]!
    }
    return 0
  }

  /** Some record of (slot, group), or the next one after record `after`; 0: none. */
  inGroup(slot: number, low: number, high: number, after = 0): number {
    if (this.#perSlot[slot] === 0) return 0
    const records = this.#records
    let record =
      after === 0
        ? this.#byGroup[this.#bucket(slot, low, high)]!
        : records[after * RECORD_WORDS + NEXT_BY_GROUP]!
    while (record !== 0) {
      const at = record * RECORD_WORDS
      if (records[at] === slot && records[at + GROUP] === low && records[at + GROUP + 1] === high)
        return record
      record = records[at + NEXT_BY_GROUP]!
    }
    return 0
  }

  engineLow(record: number): number {
    return this.#records[record * RECORD_WORDS + ENGINE]!
  }

  engineHigh(record: number): number {
    return this.#records[record * RECORD_WORDS + ENGINE + 1]!
  }

  groupLow(record: number): number {
    return this.#records[record * RECORD_WORDS + GROUP]!
  }

  groupHigh(record: number): number {
    return this.#records[record * RECORD_WORDS + GROUP + 1]!
  }

  localLow(record: number): number {
    return this.#records[record * RECORD_WORDS + LOCAL]!
  }

  localHigh(record: number): number {
    return this.#records[record * RECORD_WORDS + LOCAL + 1]!
  }

  copies(record: number): number {
    return this.#records[record * RECORD_WORDS + COPIES]!
  }

  setCopies(record: number, copies: number): void {
    this.#records[record * RECORD_WORDS + COPIES] = copies
  }

  /** Adds a record with one copy; (slot, engine hash) must have none. 0: no space. */
  add(
    slot: number,
    low: number,
    high: number,
    groupLow: number,
    groupHigh: number,
    localLow: number,
    localHigh: number,
  ): number {
    let record = this.#free
    if (record !== 0) {
      this.#free = this.#records[record * RECORD_WORDS + NEXT_BY_HASH]!
    } else {
      if (this.#fresh > this.#capacity && !this.#grow()) return 0
      record = this.#fresh++
    }
    const records = this.#records
    const at = record * RECORD_WORDS
    records[at + SLOT] = slot
    records[at + ENGINE] = low
    records[at + ENGINE + 1] = high
    records[at + GROUP] = groupLow
    records[at + GROUP + 1] = groupHigh
    records[at + LOCAL] = localLow
    records[at + LOCAL + 1] = localHigh
    records[at + COPIES] = 1
    this.#link(record)
    this.#count++
    this.#perSlot[slot]!++
    return record
  }

  delete(record: number): void {
    const records = this.#records
    const at = record * RECORD_WORDS
    const slot = records[at]!
    unlink(
      records,
      this.#byHash,
      this.#bucket(slot, records[at + 1]!, records[at + 2]!),
      record,
      NEXT_BY_HASH,
    )
    unlink(
      records,
      this.#byGroup,
      this.#bucket(slot, records[at + 3]!, records[at + 4]!),
      record,
      NEXT_BY_GROUP,
    )
    records[at + SLOT] = FREE
    records[at + NEXT_BY_HASH] = this.#free
    this.#free = record
    this.#count--
    this.#perSlot[slot]!--
  }

  /** Deletes all records of a worker slot: a scan of the table. */
  clear(slot: number): void {
    for (let record = 1; record < this.#fresh && this.#perSlot[slot]! > 0; record++) {
      if (this.#records[record * RECORD_WORDS] === slot) this.delete(record)
    }
  }

  /** Calls back with every record of a worker slot; the table must not change meanwhile. */
  forEach(slot: number, visit: (record: number) => void): void {
    if (this.#perSlot[slot] === 0) return
    for (let record = 1; record < this.#fresh; record++) {
      if (this.#records[record * RECORD_WORDS] === slot) visit(record)
    }
  }

  #grow(): boolean {
    const capacity = this.#capacity === 0 ? RECORDS_MIN : this.#capacity * 2 + 1
    const buckets = powerOfTwo(capacity)
    if (!this.#mayGrow(((capacity + 1) * RECORD_WORDS + buckets * 2) * 4)) return false
    const records = new Int32Array((capacity + 1) * RECORD_WORDS)
    records.set(this.#records)
    this.#records = records
    this.#byHash = new Int32Array(buckets)
    this.#byGroup = new Int32Array(buckets)
    this.#capacity = capacity
    for (let record = 1; record < this.#fresh; record++) this.#link(record)
    return true
  }

  #link(record: number): void {
    const records = this.#records
    const at = record * RECORD_WORDS
    const slot = records[at]!
    const byHash = this.#bucket(slot, records[at + ENGINE]!, records[at + ENGINE + 1]!)
    records[at + NEXT_BY_HASH] = this.#byHash[byHash]!
    this.#byHash[byHash] = record
    const byGroup = this.#bucket(slot, records[at + GROUP]!, records[at + GROUP + 1]!)
    records[at + NEXT_BY_GROUP] = this.#byGroup[byGroup]!
    this.#byGroup[byGroup] = record
  }

  #bucket(slot: number, low: number, high: number): number {
    let h = Math.imul(low ^ Math.imul(slot + 1, 0x9e3779b1), 0x85ebca6b) ^ Math.imul(high, 0xc2b2ae35)
    h ^= h >>> 15
    h = Math.imul(h, 0x27d4eb2f)
    return (h ^ (h >>> 14)) & (this.#byHash.length - 1)
  }
}

function unlink(records: Int32Array, heads: Int32Array, bucket: number, record: number, link: number): void {
  const after = records[record * RECORD_WORDS + link]!
  let each = heads[bucket]!
  if (each === record) {
    heads[bucket] = after
    return
  }
  while (records[each * RECORD_WORDS + link] !== record) each = records[each * RECORD_WORDS + link]!
  records[each * RECORD_WORDS + link] = after
}
