/**
 * Token state: how far the answer of a worker that gives token ids has come: its ids, its text up to the last
 * whole character, what may begin a stop string, and whether it is over.
 *
 *   ids ─▶ the end of the model, or an id that stops ─▶ over
 *      └─▶ text ─▶ stop strings ─▶ what the client gets
 *                              └─▶ over
 *      `maxTokens` of them ─▶ over
 *
 * Invariants
 *   I1  Text and end depend on the ids alone, not on how they were cut into pieces, nor on the worker. An
 *       answer that another worker goes on with is the one that the first would have given.
 *   I2  No id and no end of the model before `minTokens` ends the answer, nor does a string that is complete
 *       before that.
 */

import { StopStrings, type TokenEnd, type TokenWishes } from '@homing/openai'
import { TokenDecoder, type TokenTexts } from '@homing/tokenization'

export interface TokenStateParts {
  readonly wishes: TokenWishes
  readonly texts: TokenTexts
  /** Tokens that the answer may have; undefined: what the model takes is not known. */
  readonly maxTokens: number | undefined
  /** Takes memory for ids of the answer; false: there is no room. */
  readonly take: (bytes: number) => boolean
}

export interface TokenStep {
  readonly text: string
  /** Those that were taken: none behind the end. */
  readonly tokenIds: readonly number[]
  /** Undefined: the answer goes on. */
  readonly end: TokenEnd | undefined
}

/** What ended an answer, for metrics. */
export type TokenEnding = 'model' | 'stop_id' | 'stop_string' | 'limit' | 'worker'

const IDS_FIRST = 64
const KEPT_ID_BYTES = 4

export class TokenState {
  /** Of the answer, in OpenAI's form. */
  readonly id: string
  readonly createdSeconds: number
  readonly #prompt: TokenStateParts
  readonly #decoder: TokenDecoder
  readonly #stops: StopStrings
  /** Undefined: there was no room for them. */
  #ids: Uint32Array | undefined = new Uint32Array(0)
  #count = 0
  #unknownCount = 0
  #cachedTokens: number | undefined
  #ending: TokenEnding | undefined

  constructor(prompt: TokenStateParts, id: string, createdSeconds: number) {
    const { wishes, texts } = prompt
    this.id = id
    this.createdSeconds = createdSeconds
    this.#prompt = prompt
    this.#decoder = new TokenDecoder(texts, { skipsSpecial: wishes.skipsSpecial })
    this.#stops = new StopStrings(wishes.stop, { isIncluded: wishes.includesStop })
  }

  /** Tokens of the answer. */
  get count(): number {
    return this.#count
  }

  /** Those that the tokenizer does not have. */
  get unknownCount(): number {
    return this.#unknownCount
  }

  /** Undefined: the answer goes on. */
  get ending(): TokenEnding | undefined {
    return this.#ending
  }

  /** Of the answer; undefined: there was no room to keep them. */
  get ids(): readonly number[] | undefined {
    return this.#ids && [...this.#ids.subarray(0, this.#count)]
  }

  /** Tokens that may still come; undefined: no limit is known. */
  get left(): number | undefined {
    const { maxTokens } = this.#prompt
    return maxTokens === undefined ? undefined : Math.max(0, maxTokens - this.#count)
  }

  /** `finishReason`: the worker ends the answer behind these. Only while it goes on. */
  take(
    ids: readonly number[],
    finishReason: string | undefined,
    cachedTokens: number | undefined,
  ): TokenStep {
    this.#cachedTokens = cachedTokens ?? this.#cachedTokens
    let text = ''
    for (const [i, id] of ids.entries()) {
      this.#keep(id)
      const { text: piece, end } = this.#token(id)
      text += piece
      if (end !== undefined) return { text, tokenIds: ids.slice(0, i + 1), end }
    }
    if (finishReason === undefined) return { text, tokenIds: ids, end: undefined }
    const end = this.#end('worker', finishReason)
    return { text: text + this.#stops.rest(), tokenIds: ids, end }
  }

  #token(id: number): { readonly text: string; readonly end: TokenEnd | undefined } {
    const { wishes, texts } = this.#prompt
    const mayEnd = this.#count >= wishes.minTokens
    if (id >= texts.tokenCount) this.#unknownCount++
    if (mayEnd && !wishes.ignoresEos && texts.endIds.has(id))
      return { text: this.#stops.rest(), end: this.#end('model', 'stop') }
    if (mayEnd && wishes.stopTokenIds.includes(id))
      return { text: this.#stops.rest(), end: this.#end('stop_id', 'stop', id) }
    const { text, stop } = this.#stops.push(this.#decoder.push(id), mayEnd)
    if (stop !== undefined) return { text, end: this.#end('stop_string', 'stop', stop) }
    if (this.left !== 0) return { text, end: undefined }
    return { text: text + this.#stops.rest(), end: this.#end('limit', 'length') }
  }

  #end(ending: TokenEnding, finishReason: string, stopReason?: string | number): TokenEnd {
    this.#ending = ending
    return {
      finishReason,
      stopReason,
      completionTokens: this.#count,
      cachedTokens: this.#cachedTokens,
    }
  }

  #keep(id: number): void {
    const ids = this.#ids
    if (ids !== undefined && this.#count === ids.length) {
      const length = Math.max(IDS_FIRST, 2 * ids.length)
      if (this.#prompt.take((length - ids.length) * KEPT_ID_BYTES)) {
        this.#ids = new Uint32Array(length)
        this.#ids.set(ids)
      } else this.#ids = undefined
    }
    if (this.#ids !== undefined) this.#ids[this.#count] = id
    this.#count++
  }
}
