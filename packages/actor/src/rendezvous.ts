/**
 * Rendezvous hashing: every member has a weight for every key, and the one with the highest owns the key. When a
 * member leaves, only its own keys move; when it is back, the same keys return. O(members) for each key.
 */

import type { RouterKey } from './key-router-types.ts'
import { hash } from './placement.ts'

const GOLDEN = 0x9e3779b1

/** The owner of a key among members, by their seeds; the one with the highest weight. */
export function rendezvous<T extends { readonly seed: number }>(
  owners: readonly T[],
  keyHash: number,
): T | undefined {
  let best: T | undefined
  let bestWeight = -1
  for (const owner of owners) {
    let h = Math.imul(keyHash ^ owner.seed, GOLDEN)
    h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
    h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
    const weight = (h ^ (h >>> 16)) >>> 0
    if (weight > bestWeight) {
      best = owner
      bestWeight = weight
    }
  }
  return best
}

/** What spreads the keys of the member with this index. */
export function seedOf(index: number): number {
  return hash(`member ${index}`)
}

/** What `rendezvous` is given for a key; equal for a number and its text. */
export function hashOfKey(key: RouterKey): number {
  return hash(typeof key === 'string' ? key : String(key))
}
