/**
 * MessagePack reader: walks over the bytes of one message without building objects.
 *
 * Two kinds of surprise. A message whose structure is broken (cut short, reserved byte, counts
 * beyond its size) throws BrokenMessageError: nothing behind that point can be trusted. A value of
 * another type than asked for throws WrongTypeError: the caller may `skip` it and go on.
 *
 * Invariants
 *   I1  `at` never passes the end; no count read from the message is believed beyond the bytes left,
 *       so memory is bounded by the size of the message.
 *   I2  `skip` needs no stack: depth costs nothing.
 *
 * Source: MessagePack specification, github.com/msgpack/msgpack/blob/master/spec.md.
 */

/** The bytes are not a MessagePack message. */
export class BrokenMessageError extends Error {}

/** A value is not of the type that its reader asked for. */
export class WrongTypeError extends Error {}

/** What the next value is. */
export type ValueType =
  | 'nil'
  | 'boolean'
  | 'integer'
  | 'float'
  | 'string'
  | 'binary'
  | 'array'
  | 'map'
  | 'extension'

export class MessagePackReader {
  readonly #bytes: Uint8Array
  /** Position of the next byte. */
  at = 0

  /** Reads `bytes` where they are; they must not change meanwhile. */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  get isAtEnd(): boolean {
    return this.at === this.#bytes.length
  }

  /** Type of the next value; nothing is consumed. */
  peek(): ValueType {
    const head = this.#bytes[this.at]
    if (head === undefined) throw cutShort()
    if (head < 0x80 || head >= 0xe0) return 'integer'
    if (head < 0x90) return 'map'
    if (head < 0xa0) return 'array'
    if (head < 0xc0) return 'string'
    const type = TYPES[head - 0xc0]
    if (type === undefined) throw new BrokenMessageError('reserved byte c1')
    return type
  }

  /** Consumes a nil; false, and nothing is consumed, for anything else. */
  takeNil(): boolean {
    if (this.#bytes[this.at] !== 0xc0) return false
    this.at++
    return true
  }

  /** Consumes a true; false, and nothing is consumed, for anything else. */
  takeTrue(): boolean {
    if (this.#bytes[this.at] !== 0xc3) return false
    this.at++
    return true
  }

  /** Number of elements that follow. */
  arrayCount(): number {
    const head = this.#byte()
    if (head >= 0x90 && head < 0xa0) return this.#believed(head & 0x0f, 1)
    if (head === 0xdc) return this.#believed(this.#uint16(), 1)
    if (head === 0xdd) return this.#believed(this.#uint32(), 1)
    throw this.#wrong('array')
  }

  /** Number of key and value pairs that follow. */
  mapCount(): number {
    const head = this.#byte()
    if (head >= 0x80 && head < 0x90) return this.#believed(head & 0x0f, 2)
    if (head === 0xde) return this.#believed(this.#uint16(), 2)
    if (head === 0xdf) return this.#believed(this.#uint32(), 2)
    throw this.#wrong('map')
  }

  /** A string; words of the protocol are not allocated again. */
  string(): string {
    const size = this.#stringSize()
    const start = this.at
    this.at += size
    return (
      KNOWN_WORDS.at(this.#bytes, start, size) ?? textDecoder.decode(this.#bytes.subarray(start, this.at))
    )
  }

  /** A binary, as a view of the message. */
  binary(): Uint8Array {
    const head = this.#byte()
    if (head < 0xc4 || head > 0xc6) throw this.#wrong('binary')
    const size = head === 0xc4 ? this.#byte() : head === 0xc5 ? this.#uint16() : this.#uint32()
    const start = this.at
    this.#advance(size)
    return this.#bytes.subarray(start, this.at)
  }

  /** An integer or float of any width, as the nearest number. */
  number(): number {
    const head = this.#byte()
    if (head < 0x80) return head
    if (head >= 0xe0) return head - 256
    switch (head) {
      case 0xca:
        return this.#view(4).getFloat32(0)
      case 0xcb:
        return this.#view(8).getFloat64(0)
      default:
        this.at--
        return this.integer()
    }
  }

  /** An integer of any width. Wrong type beyond ±2^53. */
  integer(): number {
    const head = this.#byte()
    if (head < 0x80) return head
    if (head >= 0xe0) return head - 256
    switch (head) {
      case 0xcc:
        return this.#byte()
      case 0xcd:
        return this.#uint16()
      case 0xce:
        return this.#uint32()
      case 0xd0:
        return (this.#byte() << 24) >> 24
      case 0xd1:
        return (this.#uint16() << 16) >> 16
      case 0xd2:
        return this.#uint32() | 0
      case 0xcf:
      case 0xd3: {
        const high = this.#uint32()
        const value = (head === 0xd3 ? high | 0 : high) * 2 ** 32 + this.#uint32()
        if (!Number.isSafeInteger(value)) throw new WrongTypeError('integer beyond 2^53')
        return value
      }
      default:
        throw this.#wrong('integer')
    }
  }

  /** An integer of any width, as a bigint beyond ±2^53. */
  exactInteger(): number | bigint {
    const head = this.#bytes[this.at]
    if (head !== 0xcf && head !== 0xd3) return this.integer()
    this.at++
    const view = this.#view(8)
    const value = head === 0xd3 ? view.getBigInt64(0) : view.getBigUint64(0)
    const number = Number(value)
    return Number.isSafeInteger(number) ? number : value
  }

  /**
   * A 64-bit hash, as its low word at `target[offset]` and its high word behind: an integer of any width
   * (two's complement when negative), or the last 8 bytes of a binary, big-endian.
   */
  hash(target: Int32Array, offset: number): void {
    const head = this.#byte()
    let low: number
    let high = 0
    if (head === 0xcf || head === 0xd3) {
      high = this.#uint32()
      low = this.#uint32()
    } else if (head < 0x80) {
      low = head
    } else if (head >= 0xe0) {
      low = head - 256
      high = -1
    } else if (head >= 0xc4 && head <= 0xc6) {
      const size = this.#bounded(
        head === 0xc4 ? this.#byte() : head === 0xc5 ? this.#uint16() : this.#uint32(),
      )
      if (size < 8) throw new WrongTypeError(`hash of ${size} bytes`)
      this.at += size - 8
      high = this.#uint32()
      low = this.#uint32()
    } else {
      this.at--
      low = this.integer()
      if (low < 0) high = -1
    }
    target[offset] = low
    target[offset + 1] = high
  }

  /** A list of hashes as `[lo, hi]` pairs. */
  hashes(): Int32Array {
    const count = this.arrayCount()
    const target = new Int32Array(count * 2)
    for (let i = 0; i < count; i++) this.hash(target, i * 2)
    return target
  }

  /** A binary of 64-bit numbers, little-endian, as pairs of words. */
  longWords(): Int32Array {
    const bytes = this.binary()
    if (bytes.length % 8 !== 0) throw new WrongTypeError(`${bytes.length} bytes of 64-bit numbers`)
    // Copied, for the words to be aligned.
    return new Int32Array(new Uint8Array(bytes).buffer)
  }

  /** A list of token ids, 0 … 2^32 − 1, or of pairs of them, of which the first counts. */
  tokens(): Int32Array {
    const count = this.arrayCount()
    const target = new Int32Array(count)
    const bytes = this.#bytes
    let at = this.at
    for (let i = 0; i < count; i++) {
      // The widths that token ids have, without a call; the reads may pass the end, which is
      // found below: what is missing counts as 0.
      const head = bytes[at]!
      if (head < 0x80) {
        target[i] = head
        at++
      } else if (head === 0xcd) {
        target[i] = (bytes[at + 1]! << 8) | bytes[at + 2]!
        at += 3
      } else if (head === 0xce) {
        target[i] = (bytes[at + 1]! << 24) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 8) | bytes[at + 4]!
        at += 5
      } else {
        this.at = at
        const isPair = head === 0x92 || head === 0xdc || head === 0xdd
        target[i] = isPair ? this.#firstOfPair() : this.#token()
        at = this.at
      }
    }
    if (at > bytes.length) throw cutShort()
    this.at = at
    return target
  }

  /** Passes over one value, whatever it is. */
  skip(): void {
    // Counts the values still to pass, those inside arrays and maps included.
    for (let pending = 1; pending > 0; pending--) {
      const head = this.#byte()
      if (head < 0x80 || head >= 0xe0) continue
      if (head < 0x90) pending += this.#believed(head & 0x0f, 2) * 2
      else if (head < 0xa0) pending += this.#believed(head & 0x0f, 1)
      else if (head < 0xc0) this.#advance(head & 0x1f)
      else if (head < 0xc4) {
        if (head === 0xc1) throw new BrokenMessageError('reserved byte c1')
      } else if (head === 0xc4 || head === 0xd9) this.#advance(this.#byte())
      else if (head === 0xc5 || head === 0xda) this.#advance(this.#uint16())
      else if (head === 0xc6 || head === 0xdb) this.#advance(this.#uint32())
      else if (head === 0xc7) this.#advance(this.#byte() + 1)
      else if (head === 0xc8) this.#advance(this.#uint16() + 1)
      else if (head === 0xc9) this.#advance(this.#uint32() + 1)
      else if (head < 0xd9) this.#advance(FIXED_SIZES[head - 0xca]!)
      else if (head === 0xdc) pending += this.#believed(this.#uint16(), 1)
      else if (head === 0xdd) pending += this.#believed(this.#uint32(), 1)
      else if (head === 0xde) pending += this.#believed(this.#uint16(), 2) * 2
      else pending += this.#believed(this.#uint32(), 2) * 2
      // Each value has at least one byte; checked here so that the sum stays bounded too.
      if (pending - 1 > this.#bytes.length - this.at) throw cutShort()
    }
  }

  #token(): number {
    const token = this.integer()
    if (token < 0 || token > 0xffff_ffff) throw new WrongTypeError(`token id ${token}`)
    return token
  }

  #firstOfPair(): number {
    if (this.arrayCount() !== 2) throw this.#wrong('pair')
    const first = this.#token()
    this.#token()
    return first
  }

  #stringSize(): number {
    const head = this.#byte()
    if (head >= 0xa0 && head < 0xc0) return this.#bounded(head & 0x1f)
    if (head === 0xd9) return this.#bounded(this.#byte())
    if (head === 0xda) return this.#bounded(this.#uint16())
    if (head === 0xdb) return this.#bounded(this.#uint32())
    throw this.#wrong('string')
  }

  #byte(): number {
    const byte = this.#bytes[this.at]
    if (byte === undefined) throw cutShort()
    this.at++
    return byte
  }

  #uint16(): number {
    return (this.#byte() << 8) | this.#byte()
  }

  #uint32(): number {
    const at = this.at
    const bytes = this.#bytes
    if (at + 4 > bytes.length) throw cutShort()
    this.at = at + 4
    return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0
  }

  #view(size: number): DataView {
    const start = this.at
    this.#advance(size)
    return new DataView(this.#bytes.buffer, this.#bytes.byteOffset + start, size)
  }

  #advance(size: number): void {
    this.at += this.#bounded(size)
  }

  /** `size` when that many bytes are left. */
  #bounded(size: number): number {
    if (size > this.#bytes.length - this.at) throw cutShort()
    return size
  }

  /** `count` when that many elements of at least `elementBytes` can follow. */
  #believed(count: number, elementBytes: number): number {
    if (count * elementBytes > this.#bytes.length - this.at) throw cutShort()
    return count
  }

  /** The value that was begun is not a `wanted`; steps back in front of it. */
  #wrong(wanted: string): Error {
    this.at--
    return new WrongTypeError(`${this.peek()} where ${wanted} is expected`)
  }
}

function cutShort(): BrokenMessageError {
  return new BrokenMessageError('it is cut short')
}

/** Types of the heads c0 … df. */
const TYPES: readonly (ValueType | undefined)[] = [
  'nil',
  undefined,
  'boolean',
  'boolean',
  'binary',
  'binary',
  'binary',
  'extension',
  'extension',
  'extension',
  'float',
  'float',
  ...new Array<ValueType>(8).fill('integer'),
  ...new Array<ValueType>(5).fill('extension'),
  'string',
  'string',
  'string',
  'array',
  'array',
  'map',
  'map',
]

/** Bytes behind the heads ca … d8: floats, integers, fixed extensions with their type. */
const FIXED_SIZES: readonly number[] = [4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17]

const textDecoder = new TextDecoder()

/** Words of the protocol, found by their bytes, so that reading them makes no string. */
class WordTable {
  readonly #buckets: { readonly bytes: Uint8Array; readonly text: string }[][] = Array.from(
    { length: 256 },
    () => [],
  )

  constructor(words: readonly string[]) {
    for (const text of words) {
      const bytes = new TextEncoder().encode(text)
      this.#buckets[this.#bucket(bytes, 0, bytes.length)]!.push({ bytes, text })
    }
  }

  at(bytes: Uint8Array, start: number, size: number): string | undefined {
    if (size === 0) return ''
    for (const word of this.#buckets[this.#bucket(bytes, start, size)]!) {
      if (word.bytes.length !== size) continue
      let i = 0
      while (i < size && bytes[start + i] === word.bytes[i]) i++
      if (i === size) return word.text
    }
    return undefined
  }

  #bucket(bytes: Uint8Array, start: number, size: number): number {
    return (size * 31 + bytes[start]! * 7 + bytes[start + size - 1]!) & 0xff
  }
}

const KNOWN_WORDS = new WordTable([
  'type',
  'block_hashes',
  'parent_block_hash',
  'token_ids',
  'block_size',
  'lora_id',
  'medium',
  'lora_name',
  'extra_keys',
  'group_idx',
  'kv_cache_spec_kind',
  'kv_cache_spec_sliding_window',
  'locality',
  'ownership',
  'session_id',
  'cache_salt',
  'BlockStored',
  'BlockRemoved',
  'AllBlocksCleared',
  'GPU',
  'CPU',
  'CPU_PINNED',
  'DISK',
  'STORAGE',
  'EXTERNAL',
  'LOCAL',
  'REMOTE',
  'full_attention',
  'mla_attention',
  'sink_full_attention',
  'sliding_window',
  'mamba',
])
