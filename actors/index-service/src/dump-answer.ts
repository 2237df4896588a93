/** The answer of `GET /dump`: everything that the index holds of registered ranks, as events. */

import type { Clock } from '@homing/base'
import { dumpEvents, dumpSlices, pooledEvents } from '@homing/fleet'
import { DumpsBusyError, sendPieces, Turns } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import { dumpHead } from './peer-dump.ts'
import type { Rank } from './rank.ts'
import type { Registry } from './registry.ts'
import type { Shards } from './shards.ts'

export interface DumpOptions {
  readonly clock: Clock
  readonly registry: Registry
  readonly shards: Shards
  readonly askMsMax: number
  readonly dumps: Turns
}

/** Peers that start at about the same time are served one after the other. */
const DUMPS_WAITING_MAX = 4
const DUMP_WAIT_MS_MAX = 20_000
/** A client that reads slowly must not keep the others from their dumps. */
const DUMP_MS_MAX = 600_000
const utf8 = new TextEncoder()

/** One dump at a time, because shards give no memory back meanwhile; peers that start wait in line. */
export function dumpTurns(clock: Clock): Turns {
  return new Turns({
    clock,
    atOnceMax: 1,
    waitingMax: DUMPS_WAITING_MAX,
    waitMsMax: DUMP_WAIT_MS_MAX,
    refusal: () => new DumpsBusyError(),
  })
}

export async function sendDump(options: DumpOptions, exchange: HttpExchange): Promise<number> {
  const over = await options.dumps.take()
  try {
    return await sendPieces(exchange, { 'content-type': 'application/json' }, dumpPieces(options))
  } finally {
    over()
  }
}

/** One piece per slice of a rank: no more than one of them is in memory. */
async function* dumpPieces(options: DumpOptions): AsyncGenerator<Uint8Array, void, undefined> {
  const { registry, clock, askMsMax } = options
  const untilMs = clock.nowMs() + DUMP_MS_MAX
  // What the next piece begins with.
  let text = '{'
  let isFirstPartition = true
  for (const partition of [...registry.partitions]) {
    const ranks = [...partition.ranks]
    text += isFirstPartition ? dumpHead(partition, ranks) : `,${dumpHead(partition, ranks)}`
    isFirstPartition = false
    let eventId = 0
    for (const rank of ranks) {
      for (const ref of holdersOf(options, rank)) {
        for await (const { blocks, apart } of dumpSlices(ref, rank.workerSlot, askMsMax)) {
          if (clock.nowMs() > untilMs) throw new DumpsBusyError()
          // Another rank may have its slot by now.
          if (registry.ofSlot(rank.workerSlot) !== rank) break
          const reachable = blocks.filter(({ isReachable }) => isReachable)
          for (const eventsOf of [
            () => dumpEvents(rank.instanceId, rank.dpRank, reachable, () => eventId++),
            () => pooledEvents(rank.instanceId, rank.dpRank, apart, () => eventId++),
          ]) {
            const before = eventId
            const events = eventsOf()
            if (events === '') continue
            yield utf8.encode(`${text}${before === 0 ? '' : ','}${events}`)
            text = ''
          }
        }
      }
    }
    text += ']}'
  }
  yield utf8.encode(`${text}}\n`)
}

/** Where the blocks of a rank are: those of the engine's events, and inherited ones. */
function holdersOf(
  { shards }: DumpOptions,
  { shard, inheritedFrom, fault }: Rank,
): readonly Parameters<typeof dumpSlices>[0][] {
  if (fault !== undefined) return []
  const own = shards.indexers[shard]!
  return inheritedFrom === undefined ? [own] : [own, shards.inheritors[shard]!]
}
