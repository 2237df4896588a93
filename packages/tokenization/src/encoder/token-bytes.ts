/**
 * Token bytes: the bytes of text that a token of tokenizer.json stands for.
 *
 * Byte-level models write a byte as one character (GPT-2's table); a token with other characters, such as
 * `<｜User｜>`, stands for no bytes. Other models write the text itself; its bytes are UTF-8.
 */

/** Turns tokens into bytes, one way or the other. */
export class TokenBytes {
  readonly isByteLevel: boolean
  readonly #byteOf: Int16Array

  constructor(isByteLevel: boolean) {
    this.isByteLevel = isByteLevel
    this.#byteOf = byteOfUnit()
  }

  /**
   * Writes the bytes of a token into `target`, which has room for three a unit; where they end, or -1 when
   * there are none.
   */
  write(token: string, from: number, to: number, target: Uint8Array, at: number): number {
    return this.isByteLevel
      ? this.#writeBytes(token, from, to, target, at)
      : writeUtf8(token, from, to, target, at)
  }

  /** The bytes of a token, or undefined. */
  of(token: string): Uint8Array | undefined {
    const target = new Uint8Array(token.length * 3)
    const end = this.write(token, 0, token.length, target, 0)
    return end < 0 ? undefined : target.subarray(0, end)
  }

  #writeBytes(token: string, from: number, to: number, target: Uint8Array, at: number): number {
    const byteOf = this.#byteOf
    let end = at
    for (let i = from; i < to; i++) {
      const unit = token.charCodeAt(i)
      const byte = unit < byteOf.length ? byteOf[unit]! : -1
      if (byte < 0) return -1
      target[end++] = byte
    }
    return end
  }
}

/** By character of GPT-2's table: its byte, or -1. */
export function byteOfUnit(): Int16Array {
  const table = new Int16Array(0x200).fill(-1)
  let other = 0x100
  for (let byte = 0; byte < 256; byte++) {
    const isPrinted =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff)
    table[isPrinted ? byte : other++] = byte
  }
  return table
}

function writeUtf8(token: string, from: number, to: number, target: Uint8Array, at: number): number {
  let end = at
  for (let i = from; i < to; i++) {
    const point = token.codePointAt(i)!
    if (point < 0x80) target[end++] = point
    else if (point < 0x800) {
      target[end++] = 0xc0 | (point >> 6)
      target[end++] = 0x80 | (point & 0x3f)
    } else {
      if (point < 0x1_0000) target[end++] = 0xe0 | (point >> 12)
      else {
        target[end++] = 0xf0 | (point >> 18)
        target[end++] = 0x80 | ((point >> 12) & 0x3f)
        i++
      }
      target[end++] = 0x80 | ((point >> 6) & 0x3f)
      target[end++] = 0x80 | (point & 0x3f)
    }
  }
  return end
}
