/**
 * Token decoder: token ids to text, as they come. A character that several tokens make is given with the last
 * of them, so no piece ends inside a character.
 *
 * Bytes that are no UTF-8 become U+FFFD, as every decoder has it. Bytes at the very end that only begin a
 * character give no text.
 */

import { type DecoderTables, viewsOf } from './decoder-tables.ts'

/** The tables, attached to on one thread. */
export class TokenTexts {
  readonly tokenCount: number
  readonly endIds: ReadonlySet<number>
  readonly #starts: Int32Array
  readonly #isSpecial: Uint8Array
  readonly #bytes: Uint8Array

  constructor(tables: DecoderTables) {
    const { starts, isSpecial, bytes } = viewsOf(tables)
    this.tokenCount = tables.tokenCount
    this.endIds = new Set(tables.endIds)
    this.#starts = starts
    this.#isSpecial = isSpecial
    this.#bytes = bytes
  }

  isSpecial(id: number): boolean {
    return this.#isSpecial[id] === 1
  }

  /** A copy; empty for an id that the tokenizer does not have. */
  bytesOf(id: number): Uint8Array {
    if (id >= this.tokenCount) return new Uint8Array(0)
    // What is shared cannot be decoded.
    return this.#bytes.slice(this.#starts[id], this.#starts[id + 1])
  }
}

/** The text of one answer. */
export class TokenDecoder {
  readonly #texts: TokenTexts
  readonly #skipsSpecial: boolean
  readonly #utf8 = new TextDecoder('utf-8', { ignoreBOM: true })

  constructor(texts: TokenTexts, { skipsSpecial = true }: { readonly skipsSpecial?: boolean } = {}) {
    this.#texts = texts
    this.#skipsSpecial = skipsSpecial
  }

  /** The text that this token completes; '' where it completes no character. */
  push(id: number): string {
    if (this.#skipsSpecial && this.#texts.isSpecial(id)) return ''
    return this.#utf8.decode(this.#texts.bytesOf(id), { stream: true })
  }
}
