/**
 * SideTable: the rare holdings that need a record of their own. Private to the writer.
 *
 * A record belongs to one holder and one engine hash, and is in a group of that holder:
 *
 *   names    group = (block, 0)          an engine hash beside or instead of the block's name, and copies
 *   orphans  group = parent engine hash  a parked block, with its local hash and copies
 *
 *   record  HOLDER, E low, E high, G low, G high, L low, L high, COPIES, next by hash, next by group
 *
 * Two chained hash tables over the records: (holder, engine hash) → at most one record, (holder, group) →
 * some. Record 0 is none. The arrays double, as far as `mayGrow` allows; freed records are used again, and
 * `shrink` gives the arrays back when few are left.
 */

import { powerOfTwo } from './layout.ts'

const RECORD_WORDS = 10
const HOLDER = 0
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
  readonly #perHolder: Int32Array
  readonly #mayGrow: (bytes: number) => boolean

  /** @param mayGrow Asked before growth to so many bytes in all; false refuses. */
  constructor(holdersMax: number, mayGrow: (bytes: number) => boolean) {
    this.#perHolder = new Int32Array(holdersMax)
    this.#mayGrow = mayGrow
  }

  get count(): number {
    return this.#count
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    return (this.#records.length + this.#byHash.length + this.#byGroup.length) * 4
  }

  /** Records of one holder. */
  countOf(holder: number): number {
    return this.#perHolder[holder]!
  }

  /** The record of (holder, engine hash); 0: none. */
  find(holder: number, low: number, high: number): number {
    if (this.#perHolder[holder] === 0) return 0
    const records = this.#records
    let record = this.#byHash[this.#bucket(holder, low, high)]!
    while (record !== 0) {
      const at = record * RECORD_WORDS
      if (records[at] === holder && records[at + ENGINE] === low && records[at + ENGINE + 1] === high)
        return record
      record = records[at + NEXT_BY_HASH]!
    }
    return 0
  }

  /** Some record of (holder, group), or the next one after record `after`; 0: none. */
  inGroup(holder: number, low: number, high: number, after = 0): number {
    if (this.#perHolder[holder] === 0) return 0
    const records = this.#records
    let record =
      after === 0
        ? this.#byGroup[this.#bucket(holder, low, high)]!
        : records[after * RECORD_WORDS + NEXT_BY_GROUP]!
    while (record !== 0) {
      const at = record * RECORD_WORDS
      if (records[at] === holder && records[at + GROUP] === low && records[at + GROUP + 1] === high)
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

  /** Adds a record with one copy; (holder, engine hash) must have none. 0: no space. */
  add(
    holder: number,
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
    records[at + HOLDER] = holder
    records[at + ENGINE] = low
    records[at + ENGINE + 1] = high
    records[at + GROUP] = groupLow
    records[at + GROUP + 1] = groupHigh
    records[at + LOCAL] = localLow
    records[at + LOCAL + 1] = localHigh
    records[at + COPIES] = 1
    this.#link(record)
    this.#count++
    this.#perHolder[holder]!++
    return record
  }

  delete(record: number): void {
    const records = this.#records
    const at = record * RECORD_WORDS
    const holder = records[at]!
    unlink(
      records,
      this.#byHash,
      this.#bucket(holder, records[at + 1]!, records[at + 2]!),
      record,
      NEXT_BY_HASH,
    )
    this.#unlinkFromGroup(record)
    records[at + HOLDER] = FREE
    records[at + NEXT_BY_HASH] = this.#free
    this.#free = record
    this.#count--
    this.#perHolder[holder]!--
  }

  /** Puts a record into another group of its holder. */
  regroup(record: number, groupLow: number, groupHigh: number): void {
    const records = this.#records
    const at = record * RECORD_WORDS
    this.#unlinkFromGroup(record)
    records[at + GROUP] = groupLow
    records[at + GROUP + 1] = groupHigh
    const bucket = this.#bucket(records[at]!, groupLow, groupHigh)
    records[at + NEXT_BY_GROUP] = this.#byGroup[bucket]!
    this.#byGroup[bucket] = record
  }

  /** The end of `sweep` and of a loop over all records. */
  get recordsEnd(): number {
    return this.#fresh
  }

  /** The holder of a record; −1: it is free. */
  holderOf(record: number): number {
    return this.#records[record * RECORD_WORDS]!
  }

  /** Shrinks arrays of which at most an eighth is used. Cost: a pass over the old records. */
  shrink(): void {
    if (this.#capacity <= RECORDS_MIN || this.#count * 8 > this.#capacity) return
    const old = this.#records
    const end = this.#fresh
    this.#capacity = 0
    this.#fresh = 1
    this.#free = 0
    this.#records = new Int32Array(0)
    this.#byHash = new Int32Array(0)
    this.#byGroup = new Int32Array(0)
    if (this.#count === 0) return
    this.#resize(Math.max(RECORDS_MIN, this.#count * 2))
    for (let record = 1; record < end; record++) {
      const at = record * RECORD_WORDS
      if (old[at] === FREE) continue
      const to = this.#fresh++
      this.#records.set(old.subarray(at, at + RECORD_WORDS), to * RECORD_WORDS)
      this.#link(to)
    }
  }

  #grow(): boolean {
    const capacity = this.#capacity === 0 ? RECORDS_MIN : this.#capacity * 2 + 1
    if (!this.#mayGrow(((capacity + 1) * RECORD_WORDS + powerOfTwo(capacity) * 2) * 4)) return false
    this.#resize(capacity)
    for (let record = 1; record < this.#fresh; record++) this.#link(record)
    return true
  }

  #resize(capacity: number): void {
    const buckets = powerOfTwo(capacity)
    const records = new Int32Array((capacity + 1) * RECORD_WORDS)
    records.set(this.#records)
    this.#records = records
    this.#byHash = new Int32Array(buckets)
    this.#byGroup = new Int32Array(buckets)
    this.#capacity = capacity
  }

  #unlinkFromGroup(record: number): void {
    const records = this.#records
    const at = record * RECORD_WORDS
    const bucket = this.#bucket(records[at]!, records[at + GROUP]!, records[at + GROUP + 1]!)
    unlink(records, this.#byGroup, bucket, record, NEXT_BY_GROUP)
  }

  #link(record: number): void {
    const records = this.#records
    const at = record * RECORD_WORDS
    const holder = records[at]!
    const byHash = this.#bucket(holder, records[at + ENGINE]!, records[at + ENGINE + 1]!)
    records[at + NEXT_BY_HASH] = this.#byHash[byHash]!
    this.#byHash[byHash] = record
    const byGroup = this.#bucket(holder, records[at + GROUP]!, records[at + GROUP + 1]!)
    records[at + NEXT_BY_GROUP] = this.#byGroup[byGroup]!
    this.#byGroup[byGroup] = record
  }

  #bucket(holder: number, low: number, high: number): number {
    let h = Math.imul(low ^ Math.imul(holder + 1, 0x9e3779b1), 0x85ebca6b) ^ Math.imul(high, 0xc2b2ae35)
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
