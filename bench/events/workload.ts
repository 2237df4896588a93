/**
 * Workload: what engines say about their caches, on the wire. Batch n of an engine stores runs of blocks
 * at the root and removes those of `kept` batches before, so an index holds as much at the end as after the
 * first round. Everything follows from the number of the engine and of the batch.
 */

import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import { encodeEventFrames, encodeKvBatch, type KvEvent, kvRemoved, kvStored } from '@homing/protocol'
import type { StoredBlock } from '@homing/publisher'
import { mixInto } from '../index/splitmix.ts'

export const BLOCK_TOKENS = 16
/** As the engine names itself; the listener compares. */
export const TOPIC = 'kv-events'
/** Engine hashes of one engine lie together. */
const BATCHES_MAX = 2 ** 22
const BLOCKS_MAX = 2 ** 8

export interface Batch {
  readonly frames: readonly Uint8Array[]
  /** Of the last run that it stores: a lookup finds it once the batch is applied. */
  readonly locals: Int32Array
  readonly events: number
  readonly blocks: number
}

/** Batch n of `runs` runs, which removes those of batch n − kept where there was one. */
export function batchOf(engine: number, n: number, runBlocks: number, kept: number, runs = 1): Batch {
  const numbers = (batch: number) => Array.from({ length: runs }, (_, i) => batch * runs + i)
  const stored = numbers(n).map(run => ({ run, tokens: tokensOf(engine, run, runBlocks) }))
  const events: KvEvent[] = stored.map(({ run, tokens }) =>
    kvStored({ hashes: hashesOf(engine, run, runBlocks), tokens, blockSizeTokens: BLOCK_TOKENS }),
  )
  if (n >= kept)
    for (const run of numbers(n - kept)) events.push(kvRemoved({ hashes: hashesOf(engine, run, runBlocks) }))
  return {
    frames: encodeEventFrames(TOPIC, n, payloadOf(n, events)),
    locals: hashBlocks(stored.at(-1)!.tokens, BLOCK_TOKENS, DEFAULT_SEED).local,
    events: events.length,
    blocks: events.length * runBlocks,
  }
}

/** The payload of a batch that stores one run, or removes it. */
export function onePayload(kind: 'stored' | 'removed', n: number, runBlocks: number): Uint8Array {
  const hashes = hashesOf(0, n, runBlocks)
  const tokens = tokensOf(0, n, runBlocks)
  return payloadOf(n, [
    kind === 'stored' ? kvStored({ hashes, tokens, blockSizeTokens: BLOCK_TOKENS }) : kvRemoved({ hashes }),
  ])
}

/** The blocks of one run, for a publisher. */
export function runOf(n: number, runBlocks: number): readonly StoredBlock[] {
  const hashes = new BigUint64Array(hashesOf(0, n, runBlocks).buffer)
  const tokens = tokensOf(0, n, runBlocks)
  return Array.from(hashes, (hash, i) => ({
    hash,
    tokens: tokens.subarray(i * BLOCK_TOKENS, (i + 1) * BLOCK_TOKENS),
  }))
}

/** As vLLM sends it today. */
function payloadOf(n: number, events: readonly KvEvent[]): Uint8Array {
  return encodeKvBatch({ timestampSeconds: 1_700_000_000 + n / 100, rank: 0, events }, 'vllm-map')
}

function hashesOf(engine: number, n: number, runBlocks: number): Int32Array {
  const hashes = new Int32Array(2 * runBlocks)
  for (let i = 0; i < runBlocks; i++)
    mixInto(((engine + 1) * BATCHES_MAX + n) * BLOCKS_MAX + i, hashes, 2 * i)
  return hashes
}

/** Token ids below 2^17, as those of a vocabulary. */
function tokensOf(engine: number, n: number, runBlocks: number): Int32Array {
  const words = new Int32Array(2 * Math.ceil((runBlocks * BLOCK_TOKENS) / 2))
  for (let i = 0; i < words.length; i += 2) mixInto((engine * BATCHES_MAX + n) * 2 ** 11 + i, words, i)
  return words.subarray(0, runBlocks * BLOCK_TOKENS).map(word => word & 0x1ffff)
}
