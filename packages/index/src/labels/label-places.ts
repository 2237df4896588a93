/**
 * Label places: the blocks and records of a label memory, for its writer: where each one lies, how it is
 * found by its hash, and which places are free. What a record says is the label table's.
 *
 *   sequence hash ─bucket─▶ block ─▶ record ─▶ record …        (of one block)
 *   worker slot, engine hash ─bucket─▶ record ─▶ record …      (of one bucket)
 *
 * Invariants
 *   I1  A record is of one worker slot and engine hash; a block is here while it has a record.
 *   I2  The block of a free record is 0.
 *
 * Protocol  label-words.ts. Whatever changes is changed within `write`, one section for a block or record.
 */

import {
  B_FLAGS,
  B_NEXT,
  B_RECORD,
  B_SEQUENCE,
  BLOCK_WORDS,
  bucketOf,
  IS_LABELLED,
  L_BLOCK_BASE,
  L_BLOCKS_MAX,
  L_BUCKETS,
  L_ENGINE_BASE,
  L_LABELLED,
  L_RECORD_BASE,
  L_RECORDS_MAX,
  L_VERSION,
  LABEL_HEADER_WORDS,
  R_BLOCK,
  R_ENGINE,
  R_ENGINE_NEXT,
  R_NEXT,
  R_SLOT,
  RECORD_WORDS,
} from './label-words.ts'

type Hash = readonly [low: number, high: number]

export class LabelPlaces {
  readonly words: Int32Array
  readonly buckets: number
  readonly blocksMax: number
  readonly recordsMax: number
  readonly #engineBase: number
  readonly #blockBase: number
  readonly #recordBase: number
  #freeBlock = 0
  #touchedBlocks = 0
  #usedBlocks = 0
  #freeRecord = 0
  #touchedRecords = 0

  /** `words`: of a memory that was made by `createLabelMemory`, never written before. */
  constructor(words: Int32Array) {
    this.words = words
    this.buckets = words[L_BUCKETS]!
    this.blocksMax = words[L_BLOCKS_MAX]!
    this.recordsMax = words[L_RECORDS_MAX]!
    this.#engineBase = words[L_ENGINE_BASE]!
    this.#blockBase = words[L_BLOCK_BASE]!
    this.#recordBase = words[L_RECORD_BASE]!
  }

  get usedBlocks(): number {
    return this.#usedBlocks
  }

  /** Records are 1 … that many; those that are free have no block. */
  get touchedRecords(): number {
    return this.#touchedRecords
  }

  /** The sequence hash of a record's block, into `target`. */
  sequenceOf(record: number, target: Int32Array): void {
    const at = this.#blockAt(this.record(record, R_BLOCK)) + B_SEQUENCE
    target[0] = this.words[at]!
    target[1] = this.words[at + 1]!
  }

  isAt(record: number, [low, high]: Hash): boolean {
    const block = this.record(record, R_BLOCK)
    return this.block(block, B_SEQUENCE) === low && this.block(block, B_SEQUENCE + 1) === high
  }

  /** The first record of a worker slot with an engine hash; 0: there is none. */
  find(workerSlot: number, low: number, high: number): number {
    return this.#findFrom(this.words[this.#engineBucket(workerSlot, low, high)]!, workerSlot, low, high)
  }

  /** The next such record behind one; 0: there is none. */
  findNext(record: number, workerSlot: number, low: number, high: number): number {
    return this.#findFrom(this.record(record, R_ENGINE_NEXT), workerSlot, low, high)
  }

  /** 0: there is none. */
  findBlock(low: number, high: number): number {
    let at = this.words[this.#blockBucket(low, high)]!
    while (at !== 0 && (this.block(at, B_SEQUENCE) !== low || this.block(at, B_SEQUENCE + 1) !== high)) {
      at = this.block(at, B_NEXT)
    }
    return at
  }

  hasRoom(needsBlock: boolean): boolean {
    const hasRecord = this.#freeRecord !== 0 || this.#touchedRecords < this.recordsMax
    const hasBlock = !needsBlock || this.#freeBlock !== 0 || this.#touchedBlocks < this.blocksMax
    return hasRecord && hasBlock
  }

  /** A record for which there is room, and its block, if that is new. The caller writes what it says. */
  add(workerSlot: number, engineHash: Hash, sequenceHash: Hash): number {
    let block = this.findBlock(sequenceHash[0], sequenceHash[1])
    if (block === 0) block = this.#newBlock(sequenceHash[0], sequenceHash[1])
    let record = this.#freeRecord
    if (record === 0) record = ++this.#touchedRecords
    else this.#freeRecord = this.record(record, R_NEXT)
    this.setRecord(record, R_ENGINE, engineHash[0])
    this.setRecord(record, R_ENGINE + 1, engineHash[1])
    this.setRecord(record, R_BLOCK, block)
    this.setRecord(record, R_NEXT, this.block(block, B_RECORD))
    this.setBlock(block, B_RECORD, record)
    this.setRecord(record, R_SLOT, workerSlot)
    this.#hash(record)
    return record
  }

  /** Frees a record, and its block, if it was the last record of it. */
  drop(record: number): void {
    this.#unhash(record)
    const block = this.record(record, R_BLOCK)
    const next = this.record(record, R_NEXT)
    if (this.block(block, B_RECORD) === record) this.setBlock(block, B_RECORD, next)
    else {
      let at = this.block(block, B_RECORD)
      while (this.record(at, R_NEXT) !== record) at = this.record(at, R_NEXT)
      this.setRecord(at, R_NEXT, next)
    }
    this.setRecord(record, R_BLOCK, 0)
    this.setRecord(record, R_NEXT, this.#freeRecord)
    this.#freeRecord = record
    if (this.block(block, B_RECORD) === 0) this.#dropBlock(block)
  }

  /** The record is of another worker slot from now on. */
  setSlot(record: number, workerSlot: number): void {
    this.#unhash(record)
    this.setRecord(record, R_SLOT, workerSlot)
    this.#hash(record)
  }

  block(block: number, word: number): number {
    return this.words[this.#blockAt(block) + word]!
  }

  setBlock(block: number, word: number, value: number): void {
    this.#set(this.#blockAt(block) + word, value)
  }

  record(record: number, word: number): number {
    return this.words[this.#recordBase + (record - 1) * RECORD_WORDS + word]!
  }

  setRecord(record: number, word: number, value: number): void {
    this.#set(this.#recordBase + (record - 1) * RECORD_WORDS + word, value)
  }

  /** A count in the header. */
  count(word: number, by: number): void {
    this.#set(word, this.words[word]! + by)
  }

  /** A write section: readers that look meanwhile look again. */
  write(change: () => void): void {
    Atomics.add(this.words, L_VERSION, 1)
    change()
    Atomics.add(this.words, L_VERSION, 1)
  }

  #findFrom(first: number, workerSlot: number, low: number, high: number): number {
    let at = first
    while (at !== 0) {
      const isIt = this.record(at, R_ENGINE) === low && this.record(at, R_ENGINE + 1) === high
      if (isIt && this.record(at, R_SLOT) === workerSlot) return at
      at = this.record(at, R_ENGINE_NEXT)
    }
    return 0
  }

  #newBlock(low: number, high: number): number {
    let block = this.#freeBlock
    if (block === 0) block = ++this.#touchedBlocks
    else this.#freeBlock = this.block(block, B_NEXT)
    this.#usedBlocks++
    this.setBlock(block, B_SEQUENCE, low)
    this.setBlock(block, B_SEQUENCE + 1, high)
    this.setBlock(block, B_FLAGS, 0)
    this.setBlock(block, B_RECORD, 0)
    const bucket = this.#blockBucket(low, high)
    this.setBlock(block, B_NEXT, this.words[bucket]!)
    this.#set(bucket, block)
    return block
  }

  #dropBlock(block: number): void {
    if ((this.block(block, B_FLAGS) & IS_LABELLED) !== 0) this.count(L_LABELLED, -1)
    const bucket = this.#blockBucket(this.block(block, B_SEQUENCE), this.block(block, B_SEQUENCE + 1))
    const next = this.block(block, B_NEXT)
    if (this.words[bucket] === block) this.#set(bucket, next)
    else {
      let at = this.words[bucket]!
      while (this.block(at, B_NEXT) !== block) at = this.block(at, B_NEXT)
      this.setBlock(at, B_NEXT, next)
    }
    this.setBlock(block, B_NEXT, this.#freeBlock)
    this.#freeBlock = block
    this.#usedBlocks--
  }

  #hash(record: number): void {
    const bucket = this.#bucketOfRecord(record)
    this.setRecord(record, R_ENGINE_NEXT, this.words[bucket]!)
    this.#set(bucket, record)
  }

  #unhash(record: number): void {
    const bucket = this.#bucketOfRecord(record)
    const next = this.record(record, R_ENGINE_NEXT)
    if (this.words[bucket] === record) {
      this.#set(bucket, next)
      return
    }
    let at = this.words[bucket]!
    while (this.record(at, R_ENGINE_NEXT) !== record) at = this.record(at, R_ENGINE_NEXT)
    this.setRecord(at, R_ENGINE_NEXT, next)
  }

  #bucketOfRecord(record: number): number {
    const low = this.record(record, R_ENGINE)
    return this.#engineBucket(this.record(record, R_SLOT), low, this.record(record, R_ENGINE + 1))
  }

  #blockBucket(low: number, high: number): number {
    return LABEL_HEADER_WORDS + bucketOf(low, high, this.buckets)
  }

  #engineBucket(workerSlot: number, low: number, high: number): number {
    return this.#engineBase + bucketOf(low ^ Math.imul(workerSlot, 0x85ebca6b), high, this.buckets)
  }

  #blockAt(block: number): number {
    return this.#blockBase + (block - 1) * BLOCK_WORDS
  }

  #set(at: number, value: number): void {
    Atomics.store(this.words, at, value)
  }
}
