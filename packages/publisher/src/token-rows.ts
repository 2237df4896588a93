/**
 * Token rows: the tokens of many blocks of one size, in few large arrays, because a typed array per block
 * costs more than its tokens.
 *
 *   row   0 … 15   16 … 47   48 … 111  …     segments double up to SEGMENT_ROWS_MAX rows
 *
 * Returned rows are used again; memory is that of the most rows ever held at one time.
 */

const SEGMENT_ROWS_MIN = 16
const LOOP_TOKENS_MAX = 64
const SEGMENT_ROWS_MAX = 1024
const DOUBLINGS = Math.log2(SEGMENT_ROWS_MAX / SEGMENT_ROWS_MIN)
/** Rows of the segments that are smaller than the largest. */
const DOUBLING_ROWS = SEGMENT_ROWS_MAX - SEGMENT_ROWS_MIN

export class TokenRows {
  readonly #rowTokens: number
  readonly #segments: Int32Array[] = []
  /** Where each segment begins. */
  readonly #starts: number[] = []
  #rows = 0
  #capacity = 0
  readonly #free: number[] = []

  /** `rowTokens` ≥ 1 tokens per row. */
  constructor(rowTokens: number) {
    this.#rowTokens = rowTokens
  }

  /** Rows in use. */
  get size(): number {
    return this.#rows - this.#free.length
  }

  /** Keeps `tokens[from …]`; answers the row. */
  add(tokens: Int32Array, from: number): number {
    const row = this.#free.pop() ?? this.#newRow()
    const [segment, at] = this.#place(row)
    segment.set(tokens.subarray(from, from + this.#rowTokens), at)
    return row
  }

  /** Gives the row back. */
  free(row: number): void {
    this.#free.push(row)
  }

  copyTo(row: number, target: Int32Array, at: number): void {
    const [segment, start] = this.#place(row)
    const count = this.#rowTokens
    // A view costs more than a few words.
    if (count > LOOP_TOKENS_MAX) target.set(segment.subarray(start, start + count), at)
    else for (let i = 0; i < count; i++) target[at + i] = segment[start + i]!
  }

  equals(row: number, tokens: Int32Array, from: number): boolean {
    const [segment, start] = this.#place(row)
    for (let i = 0; i < this.#rowTokens; i++) if (segment[start + i] !== tokens[from + i]) return false
    return true
  }

  #newRow(): number {
    if (this.#rows === this.#capacity) {
      const rows = Math.min(SEGMENT_ROWS_MAX, SEGMENT_ROWS_MIN * 2 ** this.#segments.length)
      this.#starts.push(this.#capacity)
      this.#segments.push(new Int32Array(rows * this.#rowTokens))
      this.#capacity += rows
    }
    return this.#rows++
  }

  #place(row: number): readonly [segment: Int32Array, at: number] {
    const index =
      row < DOUBLING_ROWS
        ? 31 - Math.clz32(row / SEGMENT_ROWS_MIN + 1)
        : DOUBLINGS + Math.floor((row - DOUBLING_ROWS) / SEGMENT_ROWS_MAX)
    return [this.#segments[index]!, (row - this.#starts[index]!) * this.#rowTokens]
  }
}
