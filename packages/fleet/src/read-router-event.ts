/**
 * One router event in JSON, as other routers and indexes write them in dumps and snapshots (router-events.ts
 * writes ours). Unknown fields are ignored.
 */

import { tryBits64, tryUnsigned64 } from '@homing/base'
import { bigintToHash } from '@homing/blocks'

/** Blocks that follow each other, of one rank's device. */
export interface RouterEvent {
  readonly instanceId: bigint
  readonly dpRank: number
  readonly run: {
    /** The engine hash above the first block; undefined: it begins a prompt. */
    readonly parent: Int32Array | undefined
    readonly engineHashes: Int32Array
    readonly localHashes: Int32Array
  }
}

/** Undefined: not of the device, or no store. `value`: as `parseWideJson` gives it. `fail` throws. */
export function readRouterEvent(value: unknown, fail: () => never): RouterEvent | undefined {
  const { worker_id: workerId, storage_tier: tier, event: inner } = objectOr(value, fail)
  const { data, dp_rank: dpRank = 0 } = objectOr(inner, fail)
  if (data === 'cleared') return undefined
  const { stored } = objectOr(data, fail)
  if ((tier !== undefined && tier !== 'device') || stored === undefined) return undefined
  const { parent_hash: parentHash = null, blocks } = objectOr(stored, fail)
  if (!Array.isArray(blocks) || typeof dpRank !== 'number' || !Number.isInteger(dpRank)) return fail()
  const engineHashes = new Int32Array(blocks.length * 2)
  const localHashes = new Int32Array(blocks.length * 2)
  for (const [i, block] of (blocks as readonly unknown[]).entries()) {
    const { block_hash: engineHash, tokens_hash: localHash } = objectOr(block, fail)
    writeHash(engineHashes, i, engineHash, fail)
    writeHash(localHashes, i, localHash, fail)
  }
  let parent: Int32Array | undefined
  if (parentHash !== null) {
    parent = new Int32Array(2)
    writeHash(parent, 0, parentHash, fail)
  }
  const instanceId = tryUnsigned64(workerId) ?? fail()
  return { instanceId, dpRank, run: { parent, engineHashes, localHashes } }
}

function writeHash(target: Int32Array, at: number, value: unknown, fail: () => never): void {
  const { lo, hi } = bigintToHash(tryBits64(value) ?? fail())
  target[2 * at] = lo
  target[2 * at + 1] = hi
}

function objectOr(value: unknown, fail: () => never): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return fail()
  return value as Readonly<Record<string, unknown>>
}
