/**
 * An engine's cache with its events, in the ways of different engines: the truth, for tests of readers.
 *
 *   each     every copy is stored and removed (vLLM up to 0.32)
 *   last     every copy is stored, only the last one is removed (vLLM #55092)
 *   blocks   only the first copy is stored, only the last one removed (a radix tree)
 */

import { type KvEvent, type KvStored, kvRemoved, kvStored } from '../src/index.ts'

export type CopyManner = 'each' | 'last' | 'blocks'

export const BLOCK_TOKENS = 2

/** Prompts are words, every letter a block. */
export class EngineCache {
  readonly #manner: CopyManner
  readonly #fields: { readonly group?: number; readonly attention?: string }
  readonly #copies = new Map<string, number>()

  constructor(manner: CopyManner, fields: { readonly group?: number; readonly attention?: string } = {}) {
    this.#manner = manner
    this.#fields = fields
  }

  /** Computes the last blocks of a prompt anew, from `from` on, whether they are cached or not. */
  compute(prompt: string, from: number): KvEvent[] {
    if (from > 0 && !this.isHeld(prompt.slice(0, from))) return []
    const events: KvEvent[] = []
    let first = from
    for (let end = from + 1; end <= prompt.length; end++) {
      const name = prompt.slice(0, end)
      const copies = this.#copies.get(name) ?? 0
      if (this.#manner !== 'blocks' || copies === 0) {
        this.#copies.set(name, copies + 1)
        continue
      }
      // A tree keeps what it has.
      if (first < end - 1) events.push(this.store(prompt.slice(0, end - 1), first))
      first = end
    }
    if (first < prompt.length) events.push(this.store(prompt, first))
    return events
  }

  /** One copy is evicted. */
  evict(prompt: string, group = this.#fields.group): KvEvent[] {
    const copies = this.#copies.get(prompt) ?? 0
    if (copies === 0) return []
    if (copies === 1) this.#copies.delete(prompt)
    else this.#copies.set(prompt, copies - 1)
    if (copies > 1 && this.#manner === 'last') return []
    return [kvRemoved({ hashes: hashOf(prompt), ...(group === undefined ? {} : { group }) })]
  }

  /** What a "full" report says: the cached prefix of a prompt, as a store. */
  report(prompt: string): KvEvent[] {
    let end = 0
    while (end < prompt.length && this.isHeld(prompt.slice(0, end + 1))) end++
    return end === 0 ? [] : [this.store(prompt.slice(0, end), 0)]
  }

  isHeld(prompt: string): boolean {
    return (this.#copies.get(prompt) ?? 0) > 0
  }

  store(prompt: string, from: number): KvStored {
    const ends = Array.from({ length: prompt.length - from }, (_, i) => prompt.slice(0, from + i + 1))
    return kvStored({
      hashes: Int32Array.from(ends.flatMap(end => [...hashOf(end)])),
      parent: from === 0 ? undefined : hashOf(prompt.slice(0, from)),
      tokens: Int32Array.from([...prompt.slice(from)].flatMap(letter => [letter.charCodeAt(0), 0])),
      blockSizeTokens: BLOCK_TOKENS,
      ...this.#fields,
    })
  }
}

export function hashOf(prompt: string): Int32Array {
  let low = 17
  for (const letter of prompt) low = (Math.imul(low, 31) + letter.charCodeAt(0)) | 0
  return Int32Array.of(low, prompt.length)
}
