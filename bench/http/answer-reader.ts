/**
 * Reads the answer of a mock engine to one request, and throws where it is not what that engine says: "answer
 * N" and, of a stream, as many contents as tokens.
 */

import { monotonicMs } from './pacer.ts'
import type { OpenWorkload } from './prompts.ts'

export class AnswerReader {
  readonly #number: number
  readonly #isChecked: boolean
  readonly #isStream: boolean
  readonly #tokens: number
  /** Between contents that follow each other. */
  readonly gapsMs: number[] = []
  /** When the first content came. */
  firstMs: number | undefined
  #lastMs = 0
  #contents = 0
  #text = ''

  /** `isChecked`: false where another engine answers; then only times are of interest. */
  constructor(
    number: number,
    { isStream, outputTokens }: Pick<OpenWorkload, 'isStream' | 'outputTokens'>,
    isChecked = true,
  ) {
    this.#number = number
    this.#isChecked = isChecked
    this.#isStream = isStream
    this.#tokens = outputTokens
  }

  /** A piece of the body. */
  piece(text: string): void {
    this.#text += text
    if (!this.#isStream) return
    for (let end = this.#text.indexOf('\n\n'); end >= 0; end = this.#text.indexOf('\n\n')) {
      this.#event(this.#text.slice(0, end))
      this.#text = this.#text.slice(end + 2)
    }
  }

  #event(event: string): void {
    if (!event.includes('"content":"')) {
      if (event.includes('[DONE]')) this.#text = 'done'
      return
    }
    const nowMs = monotonicMs()
    if (this.#contents++ === 0) {
      this.firstMs = nowMs
      this.#check(event)
    } else this.gapsMs.push(nowMs - this.#lastMs)
    this.#lastMs = nowMs
  }

  /** The body is whole. */
  end(): void {
    const isWholeStream = this.#contents === this.#tokens
    if (this.#contents > 0 ? !isWholeStream : !this.#text.includes('"choices"')) this.#refuse(this.#text)
    if (this.#contents === 0) this.#check(this.#text)
  }

  #check(text: string): void {
    if (this.#isChecked && !new RegExp(`"content":"answer ${this.#number}[ "]`).test(text)) this.#refuse(text)
  }

  #refuse(text: string): void {
    throw new Error(
      `a wrong answer to request ${this.#number}, ${this.#contents} chunks: ${text.slice(0, 400)}`,
    )
  }
}
