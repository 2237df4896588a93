/** `GET /dump`: the whole index by worker key, as JSON in pieces, each from one slice of one worker key. */

import { dumpKey, type IndexedBlock } from '@homing/fleet'
import type { ConsoleArgs } from '../console-args.ts'

const utf8 = new TextEncoder()

/** Rejects when an indexer does not answer, or has ended its part. */
export async function* dumpPieces({
  directory,
  indexers,
  askMsMax,
}: Pick<ConsoleArgs, 'directory' | 'indexers' | 'askMsMax'>): AsyncGenerator<Uint8Array, void, undefined> {
  const { fleet } = await directory.ask({ type: 'describe' }, { timeout: askMsMax })
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
      for await (const blocks of dumpKey(indexer, workerSlot, askMsMax)) {
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

/** Hashes are hexadecimal, so nothing needs to be escaped. */
function blockText({ engineHash, parentEngineHash, localHash }: IndexedBlock): string {
  const parent = parentEngineHash === undefined ? 'null' : `"${parentEngineHash}"`
  return `      {
        "block_hash": "${engineHash}",
        "parent_block_hash": ${parent},
        "tokens_hash": "${localHash}"
      }`
}
