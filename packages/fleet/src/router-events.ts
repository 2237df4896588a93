/**
 * Router events: the blocks of a worker key as the `stored` events that other routers and indexes read, in
 * JSON. Played into an empty index, parents first, they give the same overlaps.
 */

import { wideJson } from '@homing/base'
import type { IndexedBlock } from './key-dumps.ts'

/** Runs of blocks share an event, up to this many. */
const EVENT_BLOCKS_MAX = 128

/**
 * The events of one rank as the items of a JSON list, without brackets; '' where there are none.
 * `nextEventId` numbers them.
 */
export function dumpEvents(
  instanceId: bigint,
  dpRank: number,
  blocks: Iterable<IndexedBlock>,
  nextEventId: () => number,
): string {
  const events: string[] = []
  let run: IndexedBlock[] = []
  const flush = (): void => {
    if (run.length === 0) return
    const parent = run[0]!.parentEngineHash
    const stored = {
      parent_hash: parent === undefined ? null : numberOf(parent),
      blocks: run.map(block => ({
        block_hash: numberOf(block.engineHash),
        tokens_hash: numberOf(block.localHash),
      })),
    }
    const event = { event_id: nextEventId(), data: { stored }, dp_rank: dpRank }
    events.push(wideJson({ worker_id: instanceId, storage_tier: 'device', event }))
    run = []
  }
  for (const block of blocks) {
    const last = run.at(-1)
    if (last === undefined || last.engineHash !== block.parentEngineHash || run.length >= EVENT_BLOCKS_MAX) {
      flush()
    }
    run.push(block)
  }
  flush()
  return events.join(',')
}

function numberOf(hexadecimal: string): bigint {
  return BigInt(`0x${hexadecimal}`)
}
