/** The index of a whole fleet as router events: see router-events.ts. */

import type { Fleet } from './fleet.ts'
import { dumpSlices } from './key-dumps.ts'
import { dumpEvents, pooledEvents } from './router-events.ts'

/**
 * The text of a JSON list, in pieces of one slice of a worker key: blocks that it holds, or blocks in pools.
 * `indexers`: by shard. Blocks on the device only, and labels of blocks in pools. Rejects as `dumpSlices`
 * does.
 */
export async function* fleetEvents(
  fleet: Fleet,
  indexers: readonly Parameters<typeof dumpSlices>[0][],
  askMsMax: number,
): AsyncGenerator<string, void, undefined> {
  let separator = '['
  let eventId = 0
  for (const { instanceId, keys } of fleet.workers) {
    for (const { dpRank, shard, workerSlot } of keys) {
      const indexer = indexers[shard]
      if (indexer === undefined) continue
      for await (const { blocks, apart } of dumpSlices(indexer, workerSlot, askMsMax)) {
        const reachable = blocks.filter(({ isReachable }) => isReachable)
        for (const events of [
          dumpEvents(BigInt(instanceId), dpRank, reachable, () => eventId++),
          pooledEvents(BigInt(instanceId), dpRank, apart, () => eventId++),
        ]) {
          if (events === '') continue
          yield `${separator}${events}`
          separator = ','
        }
      }
    }
  }
  yield separator === '[' ? '[]' : ']'
}
