/**
 * Block salts: the cache salt of each block of the salted chains of one worker key, by engine hash. vLLM
 * names a salt on the first block of a chain only; the blocks below inherit it.
 *
 * '' is no salt, and takes no entry. null: the chain is credited to no worker key.
 *
 * Bounds  SALTED_BLOCKS_MAX entries: beyond it salted chains lose their children, never their salt.
 */

import type { KeyImage } from './messages.ts'

export type Salt = string | null

const SALTED_BLOCKS_MAX = 1 << 17

export class BlockSalts {
  readonly #salts = new Map<bigint, Salt>()

  /** Of the block with the first of these hashes; '' if unknown. */
  of(hashes: Int32Array): Salt {
    const salt = this.#salts.size === 0 ? undefined : this.#salts.get(keyAt(hashes, 0))
    return salt === undefined ? '' : salt
  }

  /**
   * Stores the salt of these blocks. Without one they need no entries, and old entries of their hashes go.
   */
  keep(hashes: Int32Array, salt: Salt): void {
    const salts = this.#salts
    if (salt === '') {
      if (salts.size === 0) return
      for (let i = 0; i < hashes.length; i += 2) salts.delete(keyAt(hashes, i))
      return
    }
    for (let i = 0; i < hashes.length && salts.size < SALTED_BLOCKS_MAX; i += 2) {
      salts.set(keyAt(hashes, i), salt)
    }
  }

  /** Forgets those of these blocks that are not held any more. */
  removed(hashes: Int32Array, isHeld: (hash: Int32Array) => boolean): void {
    if (this.#salts.size === 0) return
    for (let i = 0; i < hashes.length; i += 2) {
      const key = keyAt(hashes, i)
      if (this.#salts.has(key) && !isHeld(hashes.subarray(i, i + 2))) this.#salts.delete(key)
    }
  }

  clear(): void {
    this.#salts.clear()
  }

  /** For a checkpoint. */
  image(): KeyImage['salts'] {
    return [...this.#salts].map(([key, salt]) => [
      Number(BigInt.asIntN(32, key)),
      Number(key >> 32n) | 0,
      salt,
    ])
  }

  load(image: KeyImage['salts']): void {
    for (const [low, high, salt] of image) this.#salts.set(keyOf(low, high), salt)
  }
}

function keyAt(hashes: Int32Array, word: number): bigint {
  return keyOf(hashes[word]!, hashes[word + 1]!)
}

function keyOf(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
}
