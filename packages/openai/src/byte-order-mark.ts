/**
 * Byte order mark: some servers (.NET, Java) write one before the first event of a stream. It is no part of a
 * field's name, and of an answer that two workers have sent it would stand in the middle, so it is left out.
 *
 * Source: the WHATWG event stream format, `stream = [ bom ] *event`.
 */

const MARK = Uint8Array.of(0xef, 0xbb, 0xbf)
const NOTHING = new Uint8Array(0)

/** Leaves the mark out that a stream may begin with. Its first chunks may be cut anywhere. */
export class ByteOrderMark {
  #matched = 0
  #isBehind = false

  /** What of the next bytes is behind it: the same array where nothing is left out. */
  behind(bytes: Uint8Array): Uint8Array {
    if (this.#isBehind) return bytes
    let at = 0
    while (at < bytes.length && bytes[at] === MARK[this.#matched]) {
      at++
      this.#matched++
    }
    if (this.#matched < MARK.length && at === bytes.length) return NOTHING
    this.#isBehind = true
    if (this.#matched === MARK.length) return bytes.subarray(at)
    // It was none, so what was withheld of it passes.
    return this.#matched === at ? bytes : Buffer.concat([MARK.subarray(0, this.#matched), bytes.subarray(at)])
  }
}

/** Where the text of a JSON body begins whose first bytes these are. */
export function textAfterMark(bytes: Uint8Array): Uint8Array {
  return MARK.every((byte, i) => bytes[i] === byte) ? bytes.subarray(MARK.length) : bytes
}
