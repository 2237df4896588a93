/**
 * Long text: a text in pieces that is read by parts and never put together as a whole. A prompt of which all
 * but the end was seen before is compared window by window with what is known; joining it first would copy
 * all of it for each request.
 *
 *   pieces   | <|im_start|> | user | \n | a long message … | <|im_end|> |
 *   starts   0              12     16   17                 …            length
 */

/** The operations on a text that readers use; a string has them all. */
export interface ReadableText {
  readonly length: number
  slice(start: number, end?: number): string
}

/** A text in pieces. */
export class LongText implements ReadableText {
  readonly length: number
  readonly #pieces: readonly string[]
  readonly #starts: Float64Array
  /** A piece near the last part: parts that are read one after the other are mostly beside each other. */
  #last = 0

  /** `length`: of the text, where it is less than the pieces have. */
  private constructor(pieces: readonly string[], starts: Float64Array, length: number) {
    this.#pieces = pieces
    this.#starts = starts
    this.length = length
  }

  /** Of these pieces in a row. */
  static of(pieces: readonly string[]): LongText {
    const starts = new Float64Array(pieces.length + 1)
    for (const [i, piece] of pieces.entries()) starts[i + 1] = starts[i]! + piece.length
    return new LongText(pieces, starts, starts[pieces.length]!)
  }

  /** Its first `length` units. */
  first(length: number): LongText {
    const beginning = new LongText(this.#pieces, this.#starts, Math.min(length, this.length))
    beginning.#last = this.#last
    return beginning
  }

  /** As of a string; 0 ≤ start ≤ end. */
  slice(start: number, end = this.length): string {
    const stop = Math.min(end, this.length)
    if (start >= stop) return ''
    const starts = this.#starts
    let at = this.#last
    while (starts[at]! > start) at--
    while (starts[at + 1]! <= start) at++
    this.#last = at
    let text = ''
    for (let from = start; from < stop; at++) {
      const pieceStart = starts[at]!
      text += this.#pieces[at]!.slice(from - pieceStart, stop - pieceStart)
      from = starts[at + 1]!
    }
    return text
  }

  /** No half of a character stands alone. */
  isWellFormed(): boolean {
    // A piece may end with the one half and the next begin with the other.
    return this.#pieces.every(piece => piece.isWellFormed()) || this.slice(0).isWellFormed()
  }
}

/** The first `length` units of a text, without copying. */
export function beginningOf(text: string | LongText, length: number): string | LongText {
  return typeof text === 'string' ? text.slice(0, length) : text.first(length)
}
