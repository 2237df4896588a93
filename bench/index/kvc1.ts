/**
 * KVC1: the corpus file of the index bench: lookups and KV events of a fleet in the order of a replay.
 *
 * Little endian; every field of 8 bytes lies at a multiple of 8 from the start, so hashes are read in place.
 *
 *   header   0 'KVC1' | 4 block size in tokens, u32 | 8 workers, u32 | 12 zero, u32 | 16 records, u64
 *   record   0 deadline in seconds, f64 | 8 kind, u32: 0 lookup, 1 stored, 2 removed, 3 cleared
 *            12 worker, u32 | 16 n, u32 | 20 has a parent, u32: 0 or 1 | 24 …
 *            lookup    n × u64 local hash
 *            stored    u64 sequence hash of the parent (0 without one), n × (u64 local, u64 sequence hash)
 *            removed   n × u64 sequence hash
 *            cleared   nothing, n = 0
 *
 * The digest of a file is the exclusive or of the first hash of every record (of a stored one the local
 * hash). A peer in another language reads the same file.
 */

import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs'
import { formatHash } from '@homing/blocks'

export const LOOKUP = 0
export const STORED = 1
export const REMOVED = 2

const MAGIC = 0x3143564b // 'KVC1'
const HEADER_BYTES = 24
const HEAD_BYTES = 24
const HEAD_WORDS = HEAD_BYTES / 4
const BUFFER_BYTES = 4 << 20
const NONE = new Int32Array(0)

/** What a file holds. */
export interface CorpusTotals {
  readonly blockTokens: number
  readonly workers: number
  readonly records: number
  readonly lookups: number
  readonly lookupBlocks: number
  readonly storedEvents: number
  readonly storedBlocks: number
  readonly removedEvents: number
  readonly removedBlocks: number
  readonly digest: string
}

/** Counts records as they pass. */
class Tally {
  readonly #events = [0, 0, 0]
  readonly #blocks = [0, 0, 0]
  #low = 0
  #high = 0

  add(kind: number, count: number, low: number, high: number): void {
    this.#events[kind]!++
    this.#blocks[kind]! += count
    if (count === 0) return
    this.#low ^= low
    this.#high ^= high
  }

  totals(blockTokens: number, workers: number): CorpusTotals {
    const [lookups, storedEvents, removedEvents] = this.#events as [number, number, number]
    const [lookupBlocks, storedBlocks, removedBlocks] = this.#blocks as [number, number, number]
    return {
      blockTokens,
      workers,
      records: lookups + storedEvents + removedEvents,
      lookups,
      lookupBlocks,
      storedEvents,
      storedBlocks,
      removedEvents,
      removedBlocks,
      digest: formatHash(this.#low, this.#high),
    }
  }
}

/** Writes records one after the other; holds a few megabytes whatever the size of the file. */
export class CorpusWriter {
  readonly #file: number
  readonly #blockTokens: number
  readonly #workers: number
  readonly #tally = new Tally()
  #bytes = Buffer.alloc(BUFFER_BYTES)
  #words = wordsOf(this.#bytes)
  #length = HEADER_BYTES
  #at = 0

  constructor(path: string, blockTokens: number, workers: number) {
    this.#file = openSync(path, 'w')
    this.#blockTokens = blockTokens
    this.#workers = workers
  }

  lookup(deadline: number, worker: number, locals: Int32Array, count: number): void {
    const at = this.#head(deadline, LOOKUP, worker, count, false, 2 * count)
    for (let i = 0; i < 2 * count; i++) this.#words[at + i] = locals[i]!
    this.#tally.add(LOOKUP, count, locals[0]!, locals[1]!)
  }

  /** Blocks `from` … `to` − 1 of a chain; block `from` − 1 is their parent. */
  stored(
    deadline: number,
    worker: number,
    locals: Int32Array,
    sequences: Int32Array,
    from: number,
    to: number,
  ): void {
    const hasParent = from > 0
    const at = this.#head(deadline, STORED, worker, to - from, hasParent, 2 + 4 * (to - from))
    this.#words[at] = hasParent ? sequences[2 * from - 2]! : 0
    this.#words[at + 1] = hasParent ? sequences[2 * from - 1]! : 0
    for (let i = from, word = at + 2; i < to; i++, word += 4) {
      this.#words[word] = locals[2 * i]!
      this.#words[word + 1] = locals[2 * i + 1]!
      this.#words[word + 2] = sequences[2 * i]!
      this.#words[word + 3] = sequences[2 * i + 1]!
    }
    this.#tally.add(STORED, to - from, locals[2 * from]!, locals[2 * from + 1]!)
  }

  /** A stored run that is given block by block: `pairs` are (local, sequence) as in the file. */
  storedPairs(worker: number, parent: Int32Array | undefined, pairs: Int32Array, count: number): void {
    const at = this.#head(0, STORED, worker, count, parent !== undefined, 2 + 4 * count)
    this.#words[at] = parent?.[0] ?? 0
    this.#words[at + 1] = parent?.[1] ?? 0
    for (let i = 0; i < 4 * count; i++) this.#words[at + 2 + i] = pairs[i]!
    this.#tally.add(STORED, count, pairs[0]!, pairs[1]!)
  }

  removed(deadline: number, worker: number, sequences: Int32Array, count: number): void {
    const at = this.#head(deadline, REMOVED, worker, count, false, 2 * count)
    for (let i = 0; i < 2 * count; i++) this.#words[at + i] = sequences[i]!
    this.#tally.add(REMOVED, count, sequences[0]!, sequences[1]!)
  }

  /** Completes the file. */
  close(): CorpusTotals {
    this.#flush()
    const totals = this.#tally.totals(this.#blockTokens, this.#workers)
    const header = Buffer.alloc(HEADER_BYTES)
    header.writeUInt32LE(MAGIC, 0)
    header.writeUInt32LE(this.#blockTokens, 4)
    header.writeUInt32LE(this.#workers, 8)
    header.writeBigUInt64LE(BigInt(totals.records), 16)
    writeSync(this.#file, header, 0, HEADER_BYTES, 0)
    closeSync(this.#file)
    return totals
  }

  /** Index in `#words` of what follows the head. */
  #head(
    deadline: number,
    kind: number,
    worker: number,
    count: number,
    hasParent: boolean,
    words: number,
  ): number {
    const size = HEAD_BYTES + 4 * words
    if (this.#length + size > this.#bytes.length) {
      this.#flush()
      if (size > this.#bytes.length) {
        this.#bytes = Buffer.alloc(size)
        this.#words = wordsOf(this.#bytes)
      }
    }
    const at = this.#length
    this.#bytes.writeDoubleLE(deadline, at)
    this.#words[at / 4 + 2] = kind
    this.#words[at / 4 + 3] = worker
    this.#words[at / 4 + 4] = count
    this.#words[at / 4 + 5] = hasParent ? 1 : 0
    this.#length += size
    return at / 4 + HEAD_WORDS
  }

  #flush(): void {
    writeSync(this.#file, this.#bytes, 0, this.#length, this.#at)
    this.#at += this.#length
    this.#length = 0
  }
}

/** The records of a whole file in memory, as flat arrays; record i is at i in each of them. */
export interface Corpus {
  readonly totals: CorpusTotals
  readonly kinds: Uint8Array
  readonly workers: Int32Array
  readonly counts: Int32Array
  /** Seconds. */
  readonly deadlines: Float64Array
  /** Of a lookup its local hashes, of an event its engine hashes. */
  readonly hashes: readonly Int32Array[]
  /** Local hashes of a stored run. */
  readonly locals: readonly Int32Array[]
  readonly parents: readonly (Int32Array | undefined)[]
}

/** Reads a file into one piece of memory; everything is a view into that. */
export function loadCorpus(path: string): Corpus {
  const file = openSync(path, 'r')
  const memory = new ArrayBuffer(fstatSync(file).size)
  const bytes = new Uint8Array(memory)
  for (let at = 0; at < bytes.length; )
    at += readSync(file, bytes, at, Math.min(1 << 30, bytes.length - at), at)
  closeSync(file)
  const view = new DataView(memory)
  const records = requireHeader(path, view)
  const words = new Int32Array(memory)

  const kinds = new Uint8Array(records)
  const workers = new Int32Array(records)
  const counts = new Int32Array(records)
  const deadlines = new Float64Array(records)
  const hashes: Int32Array[] = new Array(records)
  const locals: Int32Array[] = new Array(records)
  const parents: (Int32Array | undefined)[] = new Array(records)
  const tally = new Tally()
  let pairs = new Int32Array(512)
  let at = HEADER_BYTES / 4
  for (let i = 0; i < records; i++) {
    const kind = words[at + 2]!
    const count = words[at + 4]!
    const hasParent = words[at + 5] === 1
    deadlines[i] = view.getFloat64(4 * at, true)
    kinds[i] = kind
    workers[i] = words[at + 3]!
    counts[i] = count
    at += HEAD_WORDS
    if (kind === STORED) {
      parents[i] = hasParent ? words.subarray(at, at + 2) : undefined
      at += 2
      tally.add(kind, count, words[at]!, words[at + 1]!)
      if (pairs.length < 4 * count) pairs = new Int32Array(4 * count)
      apart(words, at, count, pairs)
      locals[i] = words.subarray(at, at + 2 * count)
      hashes[i] = words.subarray(at + 2 * count, at + 4 * count)
      at += 4 * count
    } else {
      tally.add(kind, count, words[at]!, words[at + 1]!)
      parents[i] = undefined
      locals[i] = NONE
      hashes[i] = words.subarray(at, at + 2 * count)
      at += 2 * count
    }
  }
  if (4 * at !== memory.byteLength)
    throw new Error(`${path}: its records end at ${4 * at}, not where it ends`)
  const totals = tally.totals(view.getUint32(4, true), view.getUint32(8, true))
  return { totals, kinds, workers, counts, deadlines, hashes, locals, parents }
}

/** Which records are of this kind. */
export function recordsOf({ kinds }: Corpus, kind: number): Int32Array {
  const found = kinds.reduce((count, each) => count + (each === kind ? 1 : 0), 0)
  const records = new Int32Array(found)
  for (let i = 0, at = 0; i < kinds.length; i++) if (kinds[i] === kind) records[at++] = i
  return records
}

/** One record of a file that is read piece by piece; its arrays are used again for the next. */
export interface StreamedRecord {
  kind: number
  worker: number
  count: number
  hasParent: boolean
  readonly parent: Int32Array
  /** As in `Corpus`; the first 2 × count words count. */
  hashes: Int32Array
  locals: Int32Array
}

/** Reads records one after the other, or at a place, without holding the file. */
export class CorpusReader {
  readonly workers: number
  readonly records: number
  readonly #file: number
  readonly #size: number
  readonly #bytes = Buffer.alloc(BUFFER_BYTES)
  readonly #words = wordsOf(this.#bytes)
  /** Of the buffer in the file, and how much of it is read. */
  #from = 0
  #filled = 0
  #at = HEADER_BYTES
  readonly record: StreamedRecord = {
    kind: 0,
    worker: 0,
    count: 0,
    hasParent: false,
    parent: new Int32Array(2),
    hashes: new Int32Array(512),
    locals: new Int32Array(512),
  }

  constructor(path: string) {
    this.#file = openSync(path, 'r')
    this.#size = fstatSync(this.#file).size
    const header = Buffer.alloc(HEADER_BYTES)
    readSync(this.#file, header, 0, HEADER_BYTES, 0)
    this.records = requireHeader(path, new DataView(header.buffer, header.byteOffset, HEADER_BYTES))
    this.workers = header.readUInt32LE(8)
  }

  /** Place in the file of the record that `next` reads. */
  get offset(): number {
    return this.#at
  }

  set offset(offset: number) {
    this.#at = offset
  }

  /** Fills `record`; false at the end of the file. */
  next(): boolean {
    if (this.#at >= this.#size) return false
    let at = this.#need(HEAD_BYTES)
    const words = this.#words
    const { record } = this
    record.kind = words[at + 2]!
    record.worker = words[at + 3]!
    record.count = words[at + 4]!
    record.hasParent = words[at + 5] === 1
    const { kind, count } = record
    const size = HEAD_BYTES + (kind === STORED ? 8 + 16 * count : 8 * count)
    at = this.#need(size) + HEAD_WORDS
    if (record.hashes.length < 2 * count) record.hashes = new Int32Array(2 * count)
    if (kind === STORED) {
      if (record.locals.length < 2 * count) record.locals = new Int32Array(2 * count)
      record.parent[0] = words[at]!
      record.parent[1] = words[at + 1]!
      at += 2
      for (let i = 0; i < count; i++) {
        record.locals[2 * i] = words[at + 4 * i]!
        record.locals[2 * i + 1] = words[at + 4 * i + 1]!
        record.hashes[2 * i] = words[at + 4 * i + 2]!
        record.hashes[2 * i + 1] = words[at + 4 * i + 3]!
      }
    } else for (let i = 0; i < 2 * count; i++) record.hashes[i] = words[at + i]!
    this.#at += size
    return true
  }

  close(): void {
    closeSync(this.#file)
  }

  /** Index in `#words` of the next `size` bytes of the file. */
  #need(size: number): number {
    if (this.#at < this.#from || this.#at + size > this.#from + this.#filled) {
      this.#from = this.#at
      this.#filled = readSync(this.#file, this.#bytes, 0, this.#bytes.length, this.#at)
      if (this.#filled < size) throw new Error(`a record of ${size} bytes at ${this.#at} is not whole`)
    }
    return (this.#at - this.#from) / 4
  }
}

/** Makes (local, sequence) pairs at `at` into all locals, then all sequences. */
function apart(words: Int32Array, at: number, count: number, pairs: Int32Array): void {
  for (let i = 0; i < 4 * count; i++) pairs[i] = words[at + i]!
  const sequences = at + 2 * count
  for (let i = 0; i < count; i++) {
    words[at + 2 * i] = pairs[4 * i]!
    words[at + 2 * i + 1] = pairs[4 * i + 1]!
    words[sequences + 2 * i] = pairs[4 * i + 2]!
    words[sequences + 2 * i + 1] = pairs[4 * i + 3]!
  }
}

function requireHeader(path: string, view: DataView): number {
  if (view.getUint32(0, true) !== MAGIC) throw new Error(`${path} is not a KVC1 file`)
  return Number(view.getBigUint64(16, true))
}

function wordsOf(bytes: Buffer): Int32Array {
  return new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)
}
