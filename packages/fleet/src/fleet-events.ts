/** The index of a whole fleet as router events: see router-events.ts. */

import type { Fleet } from './fleet.ts'
import { dumpKey } from './key-dumps.ts'
import { dumpEvents } from './router-events.ts'

/**
 * The text of a JSON list, in pieces of one slice of a worker key. `indexers`: by shard. Blocks on the device
 * only. Rejects as `dumpKey` does.
 */
export async function* fleetEvents(
  fleet: Fleet,
  indexers: readonly Parameters<typeof dumpKey>[0][],
  askMsMax: number,
): AsyncGenerator<string, void, undefined> {
  let separator = '['
  let eventId = 0
  for (const { instanceId, keys } of fleet.workers) {
    for (const { dpRank, shard, workerSlot } of keys) {
      const indexer = indexers[shard]
      if (indexer === undefined) continue
      for await (const blocks of dumpKey(indexer, workerSlot, askMsMax)) {
        const reachable = blocks.filter(({ isReachable }) => isReachable)
        const events = dumpEvents(BigInt(instanceId), dpRank, reachable, () => eventId++)
        if (events === '') continue
        yield `${separator}${events}`
        separator = ','
      }
    }
  }
  yield separator === '[' ? '[]' : ']'
}
