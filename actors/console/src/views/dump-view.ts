/** `GET /dump`: the whole index by worker key, as JSON in pieces, each from one slice of one worker key. */

import type { Clock } from '@homing/base'
import { dumpKey, type Fleet, type IndexedBlock } from '@homing/fleet'
import type { ConsoleArgs } from '../console-args.ts'

const utf8 = new TextEncoder()

/** How old what is known of the fleet may be: a worker key that has left gives its slot to another one. */
const FLEET_AGE_MS_MAX = 1000

/**
 * The worker keys of the fleet as it is at the beginning; those that have left meanwhile have no blocks.
 * Rejects when an indexer does not answer, or has ended its part.
 */
export async function* dumpPieces(
  { directory, indexers, askMsMax }: Pick<ConsoleArgs, 'directory' | 'indexers' | 'askMsMax'>,
  clock: Pick<Clock, 'nowMs'>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const describe = async (): Promise<Fleet> =>
    (await directory.ask({ type: 'describe' }, { timeout: askMsMax })).fleet
  const fleet = await describe()
  let places = placesOf(fleet)
  let describedMs = clock.nowMs()
  // What the next piece begins with: text, of which a small dump consists, is not sent by itself.
  let text = '{'
  let isFirstKey = true
  for (const { keys, blockSizeTokens } of fleet.workers) {
    for (const { key, shard, workerSlot } of keys) {
      const indexer = indexers[shard]
      if (indexer === undefined) continue
      const blockSize = blockSizeTokens?.value ?? null
      text += `${isFirstKey ? '' : ','}\n  ${JSON.stringify(key)}: {\n    "block_size": ${blockSize},\n    "blocks": [`
      isFirstKey = false
      let isFirstSlice = true
      if (clock.nowMs() - describedMs > FLEET_AGE_MS_MAX) {
        places = placesOf(await describe())
        describedMs = clock.nowMs()
      }
      const isHere = places.get(key) === placeOf(shard, workerSlot)
      for await (const blocks of isHere ? dumpKey(indexer, workerSlot, askMsMax) : []) {
        text += `${isFirstSlice ? '' : ','}\n${blocks.map(blockText).join(',\n')}`
        isFirstSlice = false
        yield utf8.encode(text)
        text = ''
      }
      text += isFirstSlice ? ']\n  }' : '\n    ]\n  }'
    }
  }
  text += isFirstKey ? '}\n' : '\n}\n'
  yield utf8.encode(text)
}

/** By worker key, where its blocks are. */
function placesOf({ workers }: Fleet): ReadonlyMap<string, string> {
  const keys = workers.flatMap(worker => worker.keys)
  return new Map(keys.map(({ key, shard, workerSlot }) => [key, placeOf(shard, workerSlot)]))
}

function placeOf(shard: number, workerSlot: number): string {
  return `${shard}/${workerSlot}`
}

/** Hashes are hexadecimal, so nothing needs to be escaped. */
function blockText({ engineHash, parentEngineHash, localHash }: IndexedBlock): string {
  const parent = parentEngineHash === undefined ? 'null' : `"${parentEngineHash}"`
  return `      {
        "block_hash": "${engineHash}",
        "parent_block_hash": ${parent},
        "tokens_hash": "${localHash}"
      }`
}
