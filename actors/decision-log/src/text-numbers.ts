/**
 * Text numbers: 0, 1, 2 … for the session ids of clients. The ids may identify a person, so they are not in
 * the log.
 *
 * As with blocks (block-numbers.ts), at least the last `rememberedMin` different ids are remembered, and at
 * most twice as many. They are kept as digests, because a client may send a long id.
 */

import { createHash } from 'node:crypto'

export class TextNumbers {
  readonly #rememberedMin: number
  #young = new Map<string, number>()
  #old = new Map<string, number>()
  #next = 0

  /** `rememberedMin` ≥ 1. */
  constructor(rememberedMin: number) {
    this.#rememberedMin = rememberedMin
  }

  of(text: string): number {
    const digest = createHash('sha256').update(text).digest('base64')
    const known = this.#young.get(digest)
    if (known !== undefined) return known
    const number = this.#old.get(digest) ?? this.#next++
    if (this.#young.size >= this.#rememberedMin) {
      this.#old = this.#young
      this.#young = new Map()
    }
    this.#young.set(digest, number)
    return number
  }
}
