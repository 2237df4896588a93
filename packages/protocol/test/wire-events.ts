/** Wire events: events as engines send them, for the tests of what is read of them. */

import assert from 'node:assert/strict'
import { encode } from '@msgpack/msgpack'
import { decodeKvBatch, type KvBatch } from '../src/index.ts'
import { ENGINE_VECTORS, type VectorName } from './engine-vectors.ts'
import { naiveDecode } from './naive-decoder.ts'

export const NAMES = Object.keys(ENGINE_VECTORS) as VectorName[]

/** `[lo, hi]` pairs of 64-bit values. */
export function words(...hashes: bigint[]): Int32Array {
  return Int32Array.from(
    hashes.flatMap(hash => [Number(BigInt.asIntN(32, hash)), Number(BigInt.asIntN(32, hash >> 32n))]),
  )
}

export function tokens(...ids: number[]): Int32Array {
  return Int32Array.from(ids)
}

/** A store as a map, with changes. */
export function wireStore(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    type: 'BlockStored',
    block_hashes: [1, 2],
    parent_block_hash: null,
    token_ids: [1, 2, 3, 4],
    block_size: 2,
    lora_id: null,
    medium: 'GPU',
    lora_name: null,
    ...changes,
  }
}

export function decodeEvents(...events: unknown[]): KvBatch {
  const payload = encode([1_700_000_000.5, events, 0], { useBigInt64: true })
  const batch = decodeKvBatch(payload)
  assert.deepEqual(naiveDecode(payload), batch)
  return batch
}
