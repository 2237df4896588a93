/**
 * Joins: pieces of models that split nothing (SentencePiece converted to BPE), cut where no merge can reach
 * across.
 *
 * A merge joins two symbols to a token, so the token holds the last unit of the one beside the first unit of
 * the other. Where no token that a merge makes has these two units beside each other, no merge crosses, and
 * both sides may be merged by themselves. The table of such pairs is made of the vocabulary at load: that is
 * the proof. Where a vocabulary joins everything, a piece is the whole text.
 *
 *   ascii   128 x 128 bytes: 1 where the pair is joined
 *   pairs   the others, a set of pairs
 */

import { buildPairSet, hasPair, pairOf } from './pair-set.ts'

const ASCII = 128

/** The arrays of joined pairs, ready to be packed into shared memory. */
export interface JoinArrays {
  readonly ascii: Uint8Array
  readonly pairs: Int32Array
}

/** Builds the table of the pairs in these tokens. */
export function buildJoins(tokens: Iterable<string>): JoinArrays {
  const ascii = new Uint8Array(ASCII * ASCII)
  const others = new Set<number>()
  for (const token of tokens) {
    for (let i = 1; i < token.length; i++) {
      const first = token.charCodeAt(i - 1)
      const second = token.charCodeAt(i)
      if ((first | second) < ASCII) ascii[first * ASCII + second] = 1
      else others.add(pairOf(first, second))
    }
  }
  return { ascii, pairs: buildPairSet(others) }
}

/** Finds pieces from left to right. */
export class JoinScanner {
  readonly #ascii: Uint8Array
  readonly #pairs: Int32Array

  constructor({ ascii, pairs }: JoinArrays) {
    this.#ascii = ascii
    this.#pairs = pairs
  }

  /** Fills `ends` with the ends of the pieces from `from` on; returns how many. */
  fill(units: Uint16Array, from: number, end: number, ends: Int32Array): number {
    const ascii = this.#ascii
    let count = 0
    let at = from
    while (at < end && count < ends.length) {
      let last = units[at]!
      at++
      while (at < end) {
        const unit = units[at]!
        if ((last | unit) < ASCII) {
          if (ascii[last * ASCII + unit] === 0) break
        } else if ((unit & 0xfc00) !== 0xdc00 && !hasPair(this.#pairs, last, unit)) break
        last = unit
        at++
      }
      ends[count++] = at
    }
    return count
  }
}
