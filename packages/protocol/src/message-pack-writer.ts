/**
 * MessagePack writer: values to bytes, in the shortest form of each, as @msgpack/msgpack writes them; and
 * lists that lie in typed arrays, without an object for each member.
 *
 *   null, undefined     nil               string          str
 *   boolean             bool              Uint8Array      bin
 *   whole number        int, uint up to 32 bits; larger ones and fractions are float 64
 *   bigint              int 64 below 0, else uint 64
 *   array, object       array, map        Packed          what it writes
 *
 * Memory is one buffer for all messages of a thread, of KEPT_BYTES_MAX at most between them; a message gets a
 * copy. Source: MessagePack specification, github.com/msgpack/msgpack/blob/master/spec.md.
 */

/** A value that writes itself, as one MessagePack value. */
export interface Packed {
  writeTo(writer: MessagePackWriter): void
}

const KEPT_BYTES_MAX = 2 ** 20
const FIRST_BYTES = 2 ** 12
/** Head and longest number. */
const NUMBER_BYTES = 9
/** A UTF-16 unit takes no more bytes than this in UTF-8. */
const UNIT_BYTES_MAX = 3
const UTF8 = new TextEncoder()

export class MessagePackWriter {
  #bytes = new Uint8Array(FIRST_BYTES)
  #view = new DataView(this.#bytes.buffer)
  #at = 0

  /** The bytes of one value, in memory of their own. */
  encode(value: unknown): Uint8Array {
    this.#at = 0
    try {
      this.write(value)
      return this.#bytes.slice(0, this.#at)
    } finally {
      if (this.#bytes.length > KEPT_BYTES_MAX) this.#resize(FIRST_BYTES)
    }
  }

  /** Throws TypeError for a function or a symbol. */
  write(value: unknown): void {
    if (value === null || value === undefined) this.#byte(0xc0)
    else if (typeof value === 'number') this.number(value)
    else if (typeof value === 'string') this.#string(value)
    else if (typeof value === 'bigint') this.#bigint(value)
    else if (typeof value === 'boolean') this.#byte(value ? 0xc3 : 0xc2)
    else if (typeof value !== 'object') throw new TypeError(`cannot write a ${typeof value} as MessagePack`)
    else if (Array.isArray(value)) {
      this.arrayHead(value.length)
      for (const member of value) this.write(member)
    } else if (value instanceof Uint8Array) this.binary(value)
    else if (isPacked(value)) value.writeTo(this)
    else this.#map(value)
  }

  arrayHead(length: number): void {
    this.#room(NUMBER_BYTES)
    if (length < 16) this.#bytes[this.#at++] = 0x90 | length
    else this.#head16or32(0xdc, length)
  }

  number(value: number): void {
    this.#room(NUMBER_BYTES)
    if (!Number.isSafeInteger(value) || value >= 2 ** 32 || value < -(2 ** 31)) {
      this.#bytes[this.#at] = 0xcb
      this.#view.setFloat64(this.#at + 1, value)
      this.#at += 9
    } else if (value >= 0) this.#unsigned(value)
    else this.#negative(value)
  }

  /** Every word as the unsigned number of its 32 bits. */
  unsignedWords(words: Int32Array): void {
    this.arrayHead(words.length)
    this.#room(5 * words.length)
    for (let i = 0; i < words.length; i++) this.#unsigned(words[i]! >>> 0)
  }

  /** 64 bits; `isSigned`: as a negative number where the highest bit is set. */
  longWord(low: number, high: number, isSigned: boolean): void {
    this.#room(NUMBER_BYTES)
    this.#bytes[this.#at] = isSigned && high < 0 ? 0xd3 : 0xcf
    this.#view.setInt32(this.#at + 1, high)
    this.#view.setInt32(this.#at + 5, low)
    this.#at += 9
  }

  binary(bytes: Uint8Array): void {
    this.#room(NUMBER_BYTES + bytes.length)
    if (bytes.length < 0x100) {
      this.#bytes[this.#at++] = 0xc4
      this.#bytes[this.#at++] = bytes.length
    } else this.#head16or32(0xc5, bytes.length)
    this.#bytes.set(bytes, this.#at)
    this.#at += bytes.length
  }

  #map(value: object): void {
    const entries = Object.entries(value)
    this.#room(NUMBER_BYTES)
    if (entries.length < 16) this.#bytes[this.#at++] = 0x80 | entries.length
    else this.#head16or32(0xde, entries.length)
    for (const [name, member] of entries) {
      this.#string(name)
      this.write(member)
    }
  }

  #string(text: string): void {
    this.#room(NUMBER_BYTES + UNIT_BYTES_MAX * text.length)
    if (text.length < 32 && this.#shortString(text)) return
    const encoded = UTF8.encode(text)
    const { length } = encoded
    if (length < 32) this.#bytes[this.#at++] = 0xa0 | length
    else if (length < 0x100) {
      this.#bytes[this.#at++] = 0xd9
      this.#bytes[this.#at++] = length
    } else this.#head16or32(0xda, length)
    this.#bytes.set(encoded, this.#at)
    this.#at += length
  }

  /** False, and nothing is written: it is not all ASCII. */
  #shortString(text: string): boolean {
    const from = this.#at + 1
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i)
      if (unit > 0x7f) return false
      this.#bytes[from + i] = unit
    }
    this.#bytes[this.#at] = 0xa0 | text.length
    this.#at = from + text.length
    return true
  }

  #bigint(value: bigint): void {
    this.#room(NUMBER_BYTES)
    this.#bytes[this.#at] = value < 0n ? 0xd3 : 0xcf
    this.#view.setBigUint64(this.#at + 1, BigInt.asUintN(64, value))
    this.#at += 9
  }

  /** There is room. */
  #unsigned(value: number): void {
    const bytes = this.#bytes
    if (value < 0x80) bytes[this.#at++] = value
    else if (value < 0x100) {
      bytes[this.#at++] = 0xcc
      bytes[this.#at++] = value
    } else if (value < 0x1_0000) {
      bytes[this.#at++] = 0xcd
      bytes[this.#at++] = value >>> 8
      bytes[this.#at++] = value
    } else {
      bytes[this.#at++] = 0xce
      bytes[this.#at++] = value >>> 24
      bytes[this.#at++] = value >>> 16
      bytes[this.#at++] = value >>> 8
      bytes[this.#at++] = value
    }
  }

  #negative(value: number): void {
    if (value >= -0x20) this.#bytes[this.#at++] = value
    else if (value >= -0x80) {
      this.#bytes[this.#at++] = 0xd0
      this.#bytes[this.#at++] = value
    } else if (value >= -0x8000) {
      this.#bytes[this.#at] = 0xd1
      this.#view.setInt16(this.#at + 1, value)
      this.#at += 3
    } else {
      this.#bytes[this.#at] = 0xd2
      this.#view.setInt32(this.#at + 1, value)
      this.#at += 5
    }
  }

  /** `head`: for 16 bits; the next one is for 32. */
  #head16or32(head: number, length: number): void {
    if (length < 0x1_0000) {
      this.#bytes[this.#at] = head
      this.#view.setUint16(this.#at + 1, length)
      this.#at += 3
    } else {
      this.#bytes[this.#at] = head + 1
      this.#view.setUint32(this.#at + 1, length)
      this.#at += 5
    }
  }

  #byte(byte: number): void {
    this.#room(1)
    this.#bytes[this.#at++] = byte
  }

  #room(bytes: number): void {
    if (this.#at + bytes > this.#bytes.length) this.#resize(2 * (this.#at + bytes))
  }

  #resize(size: number): void {
    const bytes = new Uint8Array(size)
    if (size > this.#at) bytes.set(this.#bytes.subarray(0, this.#at))
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer)
  }
}

function isPacked(value: object): value is Packed {
  return typeof (value as Partial<Packed>).writeTo === 'function'
}
