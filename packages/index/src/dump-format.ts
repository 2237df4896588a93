/**
 * Dump format: an index as bytes, and back. Pure: the caller reads and writes files, and renames them when all is
 * written.
 *
 *   header   "HOMINGIX", version u32, count of slots u32; per slot: number u32, length u32, name in UTF-8
 *   records  kind u8, then
 *     1 set      count u32, slot u32 × count              numbered from 1 as they come; 0 is nobody
 *     2 chunk    parent u32, count u8, named u16, (engine hash, local hash) 16 B × count, set u32 × count
 *                blocks are numbered from 1 as they come; a chunk hangs below block `parent`, 0 for none
 *     3 name     slot u32, block u32, engine hash 8 B, copies u32
 *     4 orphan   slot u32, engine, parent and local hash 24 B, copies u32
 *     0 end      blocks u32, memberships u32, CRC-32 of everything before u32
 *
 * Little-endian. Parents come before children. Names of slots are the caller's and opaque here: numbers of worker
 * slots mean nothing to another process. A block that is held implicitly under its chunk's engine hash has no name
 * record. Bytes of a dump: about 20 per distinct block.
 */

import { crc32 } from 'node:zlib'
import { IndexDumpError } from './errors.ts'
import { CHUNK_SLOTS } from './words.ts'

const MAGIC = 'HOMINGIX'
const VERSION = 1
const END = 0
const SET = 1
const CHUNK = 2
const NAME = 3
const ORPHAN = 4
/** Bytes that are handed on at once. */
const PIECE_BYTES = 64 << 10
/** No record but a set is larger; a set has at most 4 bytes per slot. */
const RECORD_BYTES_MAX = 8 + CHUNK_SLOTS * 20
const SLOTS_MAX = 1 << 20
const NAME_BYTES_MAX = 1 << 16

/** One chunk of a dump; the arrays are used again for the next. */
export interface DumpedChunk {
  /** Number of the block above, from 1 in the order of the dump; 0: none. */
  parent: number
  count: number
  /** Bit per block: the engine hash is the name under which its holders hold it, unless they have names. */
  named: number
  readonly engines: Int32Array
  readonly locals: Int32Array
  /** Per block: number of its set; 0: nobody. */
  readonly sets: Int32Array
}

/** Who takes what a dump says, in its order. Each may throw IndexDumpError. */
export interface DumpVisitor {
  set(slots: readonly number[]): void
  chunk(chunk: DumpedChunk): void
  name(slot: number, block: number, engineLow: number, engineHigh: number, copies: number): void
  orphan(slot: number, hashes: Int32Array, copies: number): void
}

export function newDumpedChunk(): DumpedChunk {
  return {
    parent: 0,
    count: 0,
    named: 0,
    engines: new Int32Array(CHUNK_SLOTS * 2),
    locals: new Int32Array(CHUNK_SLOTS * 2),
    sets: new Int32Array(CHUNK_SLOTS),
  }
}

/** Collects records into pieces of bytes. */
export class DumpWriter implements DumpVisitor {
  #bytes = new Uint8Array(PIECE_BYTES)
  #view = new DataView(this.#bytes.buffer)
  #length = 0
  #checksum = 0

  constructor(names: ReadonlyMap<number, string>) {
    const encoder = new TextEncoder()
    this.#raw(encoder.encode(MAGIC))
    this.#word(VERSION)
    this.#word(names.size)
    for (const [slot, name] of names) {
      const bytes = encoder.encode(name)
      this.#word(slot)
      this.#word(bytes.length)
      this.#raw(bytes)
    }
  }

  set(slots: readonly number[]): void {
    this.#byte(SET)
    this.#word(slots.length)
    for (const slot of slots) this.#word(slot)
  }

  chunk({ parent, count, named, engines, locals, sets }: DumpedChunk): void {
    this.#byte(CHUNK)
    this.#word(parent)
    this.#byte(count)
    this.#byte(named & 0xff)
    this.#byte(named >>> 8)
    for (let i = 0; i < count; i++) {
      this.#word(engines[2 * i]!)
      this.#word(engines[2 * i + 1]!)
      this.#word(locals[2 * i]!)
      this.#word(locals[2 * i + 1]!)
    }
    for (let i = 0; i < count; i++) this.#word(sets[i]!)
  }

  name(slot: number, block: number, engineLow: number, engineHigh: number, copies: number): void {
    this.#byte(NAME)
    for (const word of [slot, block, engineLow, engineHigh, copies]) this.#word(word)
  }

  orphan(slot: number, hashes: Int32Array, copies: number): void {
    this.#byte(ORPHAN)
    this.#word(slot)
    for (const word of hashes) this.#word(word)
    this.#word(copies)
  }

  end(blocks: number, memberships: number): void {
    this.#byte(END)
    this.#word(blocks)
    this.#word(memberships)
    this.#checksum = crc32(this.#bytes.subarray(0, this.#length), this.#checksum)
    this.#word(this.#checksum)
  }

  /** Whether there is a piece to hand on. */
  get isFull(): boolean {
    return this.#length >= PIECE_BYTES / 2
  }

  /** What was collected since; the caller owns it. */
  take(isEnd = false): Uint8Array {
    const piece = this.#bytes.slice(0, this.#length)
    if (!isEnd) this.#checksum = crc32(piece, this.#checksum)
    this.#length = 0
    return piece
  }

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return
    const enlarged = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + bytes))
    enlarged.set(this.#bytes.subarray(0, this.#length))
    this.#bytes = enlarged
    this.#view = new DataView(enlarged.buffer)
  }

  #raw(bytes: Uint8Array): void {
    this.#room(bytes.length)
    this.#bytes.set(bytes, this.#length)
    this.#length += bytes.length
  }

  #byte(value: number): void {
    this.#room(1)
    this.#bytes[this.#length++] = value
  }

  #word(value: number): void {
    this.#room(4)
    this.#view.setInt32(this.#length, value, true)
    this.#length += 4
  }
}

/** What the end of a dump says about it. */
export interface DumpEnd {
  readonly blocks: number
  readonly memberships: number
}

/**
 * Reads a dump from pieces of any length. `begin` is given the names by number of slot, before any record. Throws
 * IndexDumpError at the first thing that is wrong; what was visited before may be wrong too, since the checksum comes last.
 */
export async function readDump(
  source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  begin: (names: ReadonlyMap<number, string>) => DumpVisitor,
): Promise<DumpEnd> {
  const input = new Input(source)
  const { names } = await readHeader(input)
  const visitor = begin(names)
  const chunk = newDumpedChunk()
  let sets = 0
  let blocks = 0
  const requireSlot = (slot: number) => {
    if (!names.has(slot)) throw new IndexDumpError('altered', `slot ${slot} has no name`)
    return slot
  }
  for (;;) {
    await input.need(RECORD_BYTES_MAX, 1)
    const kind = input.byte()
    if (kind === SET) {
      await input.need(4)
      const count = input.word()
      if (count < 1 || count > names.size) throw new IndexDumpError('altered', `a set of ${count} slots`)
      await input.need(count * 4)
      const slots: number[] = []
      for (let i = 0; i < count; i++) slots.push(requireSlot(input.word()))
      sets++
      visitor.set(slots)
    } else if (kind === CHUNK) {
      await input.need(7)
      chunk.parent = input.word()
      chunk.count = input.byte()
      chunk.named = input.byte() | (input.byte() << 8)
      if (chunk.count < 1 || chunk.count > CHUNK_SLOTS || chunk.parent < 0 || chunk.parent > blocks) {
        throw new IndexDumpError('altered', `a chunk of ${chunk.count} blocks below block ${chunk.parent}`)
      }
      await input.need(chunk.count * 20)
      for (let i = 0; i < chunk.count; i++) {
        chunk.engines[2 * i] = input.word()
        chunk.engines[2 * i + 1] = input.word()
        chunk.locals[2 * i] = input.word()
        chunk.locals[2 * i + 1] = input.word()
      }
      for (let i = 0; i < chunk.count; i++) {
        const set = input.word()
        if (set < 0 || set > sets) throw new IndexDumpError('altered', `there is no set ${set}`)
        chunk.sets[i] = set
      }
      blocks += chunk.count
      visitor.chunk(chunk)
    } else if (kind === NAME) {
      await input.need(20)
      const slot = requireSlot(input.word())
      const block = input.word()
      if (block < 1 || block > blocks) throw new IndexDumpError('altered', `there is no block ${block}`)
      visitor.name(slot, block, input.word(), input.word(), input.copies())
    } else if (kind === ORPHAN) {
      await input.need(32)
      const slot = requireSlot(input.word())
      const hashes = new Int32Array(6)
      for (let i = 0; i < 6; i++) hashes[i] = input.word()
      visitor.orphan(slot, hashes, input.copies())
    } else if (kind === END) {
      await input.need(12)
      const end = { blocks: input.word(), memberships: input.word() }
      const computed = input.checksum()
      const stated = input.word() >>> 0
      if (stated !== computed)
        throw new IndexDumpError('altered', `the checksum is ${computed}, not ${stated}`)
      if (end.blocks !== blocks) throw new IndexDumpError('altered', `${blocks} blocks, not ${end.blocks}`)
      if (!(await input.isAtEnd())) throw new IndexDumpError('altered', 'something follows its end')
      return end
    } else {
      throw new IndexDumpError('altered', `there are no records of kind ${kind}`)
    }
  }
}

async function readHeader(input: Input): Promise<{ names: Map<number, string> }> {
  await input.need(16)
  const magic = new TextDecoder('latin1').decode(input.raw(8))
  if (magic !== MAGIC) throw new IndexDumpError('version', 'it does not begin as a dump does')
  const version = input.word()
  if (version !== VERSION) throw new IndexDumpError('version', `it has version ${version}, not ${VERSION}`)
  const count = input.word()
  if (count < 0 || count > SLOTS_MAX) throw new IndexDumpError('altered', `${count} slots`)
  const names = new Map<number, string>()
  for (let i = 0; i < count; i++) {
    await input.need(8)
    const slot = input.word()
    const length = input.word()
    if (length < 0 || length > NAME_BYTES_MAX)
      throw new IndexDumpError('altered', `a name of ${length} bytes`)
    await input.need(length)
    names.set(slot, new TextDecoder().decode(input.raw(length)))
  }
  return { names }
}

/** Bytes that have come and are not yet read. */
class Input {
  readonly #source: AsyncIterator<Uint8Array> | Iterator<Uint8Array>
  #bytes = new Uint8Array(0)
  #view = new DataView(this.#bytes.buffer)
  #at = 0
  /** Up to here the checksum is computed. */
  #summed = 0
  #checksum = 0

  constructor(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>) {
    this.#source = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]()
  }

  /** Waits until so many bytes are there, at least `least`. Throws IndexDumpError at the end of the input. */
  async need(bytes: number, least: number = bytes): Promise<void> {
    while (this.#bytes.length - this.#at < bytes) {
      const { done, value } = await this.#source.next()
      if (done === true) {
        if (this.#bytes.length - this.#at >= least) return
        throw new IndexDumpError('truncated', 'it ends in the middle')
      }
      this.#sum()
      const rest = this.#bytes.subarray(this.#at)
      const joined = new Uint8Array(rest.length + value.length)
      joined.set(rest)
      joined.set(value, rest.length)
      this.#bytes = joined
      this.#view = new DataView(joined.buffer)
      this.#at = 0
      this.#summed = 0
    }
  }

  async isAtEnd(): Promise<boolean> {
    if (this.#at < this.#bytes.length) return false
    for (;;) {
      const { done, value } = await this.#source.next()
      if (done === true) return true
      if (value.length > 0) return false
    }
  }

  /** CRC-32 of all that was read. */
  checksum(): number {
    this.#sum()
    return this.#checksum
  }

  raw(length: number): Uint8Array {
    this.#at += length
    return this.#bytes.subarray(this.#at - length, this.#at)
  }

  byte(): number {
    return this.#bytes[this.#at++]!
  }

  word(): number {
    this.#at += 4
    return this.#view.getInt32(this.#at - 4, true)
  }

  copies(): number {
    const copies = this.word()
    if (copies < 1) throw new IndexDumpError('altered', `${copies} copies of a block`)
    return copies
  }

  #sum(): void {
    this.#checksum = crc32(this.#bytes.subarray(this.#summed, this.#at), this.#checksum)
    this.#summed = this.#at
  }
}
