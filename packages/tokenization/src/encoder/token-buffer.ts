/**
 * TokenBuffer: token ids in one Int32Array that grows, so that encoding makes no list and no copy.
 *
 * Growing doubles; `ids` is then another array, so a holder of `ids` asks again after each write.
 */

const CAPACITY_MIN = 1024
/** So few ids are copied faster without a view on them. */
const COPIED_ONE_BY_ONE = 64

/** Token ids in a row; to be used by one thread. */
export class TokenBuffer {
  /** The ids are the first `length`; what follows is of no meaning. Replaced when the buffer grows. */
  ids: Int32Array<ArrayBuffer>
  length = 0

  constructor(capacity = CAPACITY_MIN) {
    this.ids = new Int32Array(Math.max(capacity, 1))
  }

  /** Makes room for `count` further ids; cost is amortized. */
  reserve(count: number): void {
    const need = this.length + count
    if (need <= this.ids.length) return
    const grown = new Int32Array(Math.max(need, this.ids.length * 2))
    grown.set(this.ids.subarray(0, this.length))
    this.ids = grown
  }

  push(id: number): void {
    if (this.length === this.ids.length) this.reserve(1)
    this.ids[this.length++] = id
  }

  pushAll(ids: readonly number[] | Int32Array): void {
    this.reserve(ids.length)
    this.ids.set(ids, this.length)
    this.length += ids.length
  }

  /** `ids` from index `start` up to `end`. */
  pushPart(ids: Int32Array, start: number, end: number): void {
    const count = end - start
    this.reserve(count)
    if (count > COPIED_ONE_BY_ONE) this.ids.set(ids.subarray(start, end), this.length)
    else for (let i = 0; i < count; i++) this.ids[this.length + i] = ids[start + i]!
    this.length += count
  }

  /** Forgets all but the first `length` ids. */
  truncate(length: number): void {
    if (length < this.length) this.length = length
  }

  /** A copy of the ids; it belongs to the caller. */
  toArray(): Int32Array<ArrayBuffer> {
    return this.ids.slice(0, this.length)
  }
}
