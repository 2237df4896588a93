/**
 * JSON snapshot: the blocks of one worker key as a list of router events in JSON, which Dynamo's routers keep
 * as their snapshot:
 *
 *   [{"worker_id": u64, "event": {"event_id": n, "dp_rank": n, "data": {"stored": {
 *     "parent_hash": u64 or null, "blocks": [{"block_hash": u64, "tokens_hash": u64} …]}}}} …]
 *
 * Parents come before their children.
 *
 * It names no batch that the engine could repeat, so nothing proves it, and a history that begins with it is
 * never whole. Blocks whose parent is not in it are left out, and those of other tiers than the device.
 *
 * Bounds   JSON_BYTES_MAX bytes, and the blocks of any image.
 */

import type { KeyImage } from '@homing/actors/indexer'
import { parseWideJson } from '@homing/base'
import { readRouterEvent } from '@homing/fleet/read-router-event'
import { DEVICE_LAYER, IMAGE_BLOCKS_MAX } from '@homing/index'
import { UnusableCheckpointError } from './errors.ts'

/** Some three million blocks. */
const JSON_BYTES_MAX = 2 ** 28
const OPENING_BRACKET = 0x5b

/** Whether a stored snapshot is in this form. */
export function isJsonSnapshot(bytes: Uint8Array): boolean {
  return bytes[0] === OPENING_BRACKET
}

/** Throws UnusableCheckpointError. */
export function readJsonSnapshot(bytes: Uint8Array, dpRank: number): KeyImage {
  const fail = (reason: string): never => {
    throw new UnusableCheckpointError('altered', reason)
  }
  if (bytes.length > JSON_BYTES_MAX) fail(`it has ${bytes.length} bytes of JSON, more than ${JSON_BYTES_MAX}`)
  let events: unknown
  try {
    events = parseWideJson(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    return fail(`it is not JSON: ${(error as Error).message}`)
  }
  if (!Array.isArray(events)) return fail('it is no list of events')
  /** By engine hash: the number of its block. */
  const numbers = new Map<bigint, number>()
  const [localHashes, parents, held]: number[][] = [[], [], []]
  let worker: bigint | undefined
  for (const [i, event] of (events as readonly unknown[]).entries()) {
    const read = readRouterEvent(event, () => fail(`event ${i} cannot be read`))
    if (read === undefined || read.dpRank !== dpRank) continue
    worker ??= read.instanceId
    if (worker !== read.instanceId) {
      fail(
        `it has events of the workers ${worker} and ${read.instanceId}: store those of each under its own name`,
      )
    }
    const { parent, engineHashes, localHashes: locals } = read.run
    let above = parent === undefined ? 0 : numbers.get(keyAt(parent, 0))
    for (let block = 0; block < engineHashes.length / 2 && above !== undefined; block++) {
      const key = keyAt(engineHashes, block)
      let number = numbers.get(key)
      if (number === undefined) {
        number = parents!.push(above)
        if (number > IMAGE_BLOCKS_MAX) fail(`it has more than ${IMAGE_BLOCKS_MAX} blocks`)
        numbers.set(key, number)
        localHashes!.push(locals[2 * block]!, locals[2 * block + 1]!)
        held!.push(number, DEVICE_LAYER, 1, engineHashes[2 * block]!, engineHashes[2 * block + 1]!)
      }
      above = number
    }
  }
  return {
    blockSizeTokens: undefined,
    salts: [],
    reading: { groups: [], tiers: ['device'], removesCopies: false, left: new Int32Array(0) },
    localHashes: Int32Array.from(localHashes!),
    parents: Int32Array.from(parents!),
    held: Int32Array.from(held!),
    orphans: new Int32Array(0),
    labels: new Int32Array(0),
  }
}

function keyAt(words: Int32Array, index: number): bigint {
  return (BigInt(words[2 * index + 1]! >>> 0) << 32n) | BigInt(words[2 * index]! >>> 0)
}
