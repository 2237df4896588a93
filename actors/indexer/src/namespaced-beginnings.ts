/**
 * Namespaced beginnings: the beginnings of prompts that were sent to a worker key with a separator (a cache
 * salt, an adapter, an extra key) which the events of its engine may not name.
 *
 *   the router sends a prompt with a separator ─▶ `add`
 *   an event stores blocks that begin a prompt, and names no separator ─▶ `mayBegin`: they may be of such a
 *   prompt
 *
 * Such a block looks like one of a prompt without separators, so no worker key is credited with it. Blocks
 * below it follow it by their parent. Blocks stored before the first such prompt was sent stay: an engine
 * that hashes separators gives different hashes to them, and one that does not reports the beginning again.
 *
 * Kept     as long as the worker key is, also while its slot is released and opened again: a replay brings
 *          their blocks once more.
 * Bounds   MARKS_MAX beginnings of a key, and SHARD_MARKS_MAX of all keys of a shard (about 25 MB);
 *          LENGTHS_MAX lengths of them. A prompt that finds no place counts as one with unknown tokens: it
 *          may have begun with any, and the key is not fully trusted.
 * Cost     per store that begins a prompt: a hash for each length, which is one as long as prompts have a
 *          whole block.
 */

import { hashLocals, type Seed } from '@homing/blocks'
import { ALL_SEPARATORS, type SeparatedPrompt } from '@homing/protocol'

const MARKS_MAX = 16_384
const SHARD_MARKS_MAX = 16 * MARKS_MAX
const LENGTHS_MAX = 64

/** By set of separators that an event does not name: the sets within it, none empty, bit s for set s. */
const SETS_WITHIN = Array.from({ length: ALL_SEPARATORS + 1 }, (_, untold) => {
  let sets = 0
  for (let set = 1; set <= ALL_SEPARATORS; set++) if ((set & ~untold) === 0) sets |= 1 << set
  return sets
})

/** How many beginnings the keys of a shard may still have together. */
export class MarkRoom {
  left = SHARD_MARKS_MAX
}

export class NamespacedBeginnings {
  /** Number of leading tokens -> their hash -> sets of separators that go unnamed, bit s for set s. */
  readonly #marks = new Map<number, Map<bigint, number>>()
  readonly #room: MarkRoom
  #count = 0
  /** Separators of prompts whose tokens are not known. */
  #unknownSets = 0
  readonly #hash = new Int32Array(2)

  constructor(room = new MarkRoom()) {
    this.#room = room
  }

  /** Gives back the room that it has taken; it is not to be used afterwards. */
  end(): void {
    this.#room.left += this.#count
  }

  add({ firstTokens, hashes, unnamed }: SeparatedPrompt): void {
    const marks = firstTokens === 0 ? undefined : this.#ofLength(firstTokens)
    if (marks === undefined) {
      for (const set of unnamed) this.#unknownSets |= 1 << set
      return
    }
    for (const [i, set] of unnamed.entries()) {
      const key = keyOf(hashes[2 * i]!, hashes[2 * i + 1]!)
      const known = marks.get(key)
      if (known === undefined && (this.#count >= MARKS_MAX || this.#room.left === 0)) {
        this.#unknownSets |= 1 << set
        continue
      }
      if (known === undefined) {
        this.#count++
        this.#room.left--
      }
      marks.set(key, (known ?? 0) | (1 << set))
    }
  }

  /**
   * Whether a store that begins a prompt with `tokens`, hashed with `seed`, may be of a prompt with
   * separators that it does not name. `untold`: those it would not name.
   */
  mayBegin(tokens: Int32Array, seed: Seed, untold: number): boolean {
    const sets = SETS_WITHIN[untold]!
    for (const [length, marks] of this.#marks) {
      if (tokens.length < length) {
        for (const found of marks.values()) if ((found & sets) !== 0) return true
        continue
      }
      hashLocals(tokens.subarray(0, length), length, seed, this.#hash)
      if (((marks.get(keyOf(this.#hash[0]!, this.#hash[1]!)) ?? 0) & sets) !== 0) return true
    }
    return false
  }

  /** Separators of prompts whose tokens are not known, as far as an event does not name them; 0: none. */
  unknownOf(untold: number): number {
    let separators = 0
    const sets = this.#unknownSets & SETS_WITHIN[untold]!
    for (let set = 1; set <= ALL_SEPARATORS; set++) if ((sets & (1 << set)) !== 0) separators |= set
    return separators
  }

  #ofLength(length: number): Map<bigint, number> | undefined {
    const marks = this.#marks.get(length)
    if (marks !== undefined || this.#marks.size >= LENGTHS_MAX) return marks
    const fresh = new Map<bigint, number>()
    this.#marks.set(length, fresh)
    return fresh
  }
}

function keyOf(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
}
