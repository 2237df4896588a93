/**
 * Engine hashes in the engines' own forms: unsigned or signed 64-bit integers, or digests of 32 bytes.
 *
 * A digest stands for its last 8 bytes, big-endian, as vLLM itself shortens digests to integers.
 */

import { BadBlockError } from './errors.ts'

/** A bigint from −2^63 to 2^64 − 1, or 32 bytes. */
export type EngineHash = bigint | Uint8Array

const DIGEST_BYTES = 32
const MIN = -(2n ** 63n)
const MAX = 2n ** 64n - 1n

/** The unsigned 64-bit value. Throws BadBlockError; `what` begins its message: 'block 3 of 8'. */
export function hashKey(hash: EngineHash, what: string): bigint {
  if (typeof hash === 'bigint') {
    if (hash < MIN || hash > MAX) {
      throw new BadBlockError(what, `hash ${hash} does not fit into 64 bits; use a bigint below 2^64`)
    }
    return BigInt.asUintN(64, hash)
  }
  if (!(hash instanceof Uint8Array)) {
    throw new BadBlockError(what, `its hash is a ${typeof hash}; use a bigint, or the 32 bytes of a digest`)
  }
  if (hash.length !== DIGEST_BYTES) {
    throw new BadBlockError(what, `its hash has ${hash.length} bytes; a digest has ${DIGEST_BYTES}`)
  }
  return new DataView(hash.buffer, hash.byteOffset, hash.length).getBigUint64(DIGEST_BYTES - 8)
}

/** The key of hash i of a list of `[lo, hi]` pairs. */
export function keyAt(words: Int32Array, index: number): bigint {
  return (BigInt(words[index * 2 + 1]! >>> 0) << 32n) | BigInt(words[index * 2]! >>> 0)
}

/**
 * Keys as `[lo, hi]` pairs, the form of KV events. As they lie in memory: Node's machines are little-endian.
 */
export function wordsOf(keys: readonly bigint[]): Int32Array {
  const longs = new BigUint64Array(keys.length)
  for (let i = 0; i < keys.length; i++) longs[i] = keys[i]!
  return new Int32Array(longs.buffer)
}
