/**
 * Local indexer: the blocks of a worker key and its last batches, kept where they are published, so that a
 * router that missed some can ask.
 *
 *   record(events)  ->  held blocks: the whole cache        ->  dump
 *                   ->  ring: the last batches, numbered    ->  range
 *
 * Answers of `getEventsInIdRange(start?, end?)`; ids are the batches' sequences, both ends included:
 *
 *   end < start                          invalidRange
 *   start absent                         treeDump
 *   nothing buffered                     treeDump, last event id 0
 *   start > newest                       tooNew
 *   start < oldest buffered              treeDump
 *   otherwise                            events: start … min(end, newest)
 *
 * Invariant  a dump is exactly the state after the batch `lastEventId`: a reader that applies it goes on with
 *            `nextEventId`.
 * Memory     at most `bufferBytesMax` for the ring and `heldBytesMax` for the blocks; see their headers.
 *
 * Source     the local indexer of dynamo-kv-router, which numbers events where this numbers batches.
 */

import type { KvEvent, KvStored } from '@homing/protocol'
import { BatchRing, type BufferedBatch } from './batch-ring.ts'
import type { FrozenBlocks } from './frozen-blocks.ts'
import { HeldBlocks, type HeldStats } from './held-blocks.ts'

/** Blocks in one store of a dump. */
export const DUMP_EVENT_BLOCKS_MAX = 512

export interface LocalIndexerOptions {
  /** Batches kept for replays; default 1024. */
  readonly bufferBatchesMax?: number
  /** Bytes of their payloads; default 64 MiB. */
  readonly bufferBytesMax?: number
  /** Bytes that held blocks may take, about 160 and four per token for each; default 256 MiB. */
  readonly heldBytesMax?: number
}

export const LOCAL_INDEXER_DEFAULTS = {
  bufferBatchesMax: 1024,
  bufferBytesMax: 64 * 2 ** 20,
  heldBytesMax: 256 * 2 ** 20,
} as const satisfies LocalIndexerOptions

/** Everything held, as stores that rebuild it: parents first, a block of n copies n times. */
export interface TreeDump {
  readonly events: readonly KvStored[]
  /** The newest batch that is in the dump; 0 when there is none, too: `nextEventId` tells the two apart. */
  readonly lastEventId: number
  readonly nextEventId: number
  /** True: the cache holds nothing else. */
  readonly isWhole: boolean
}

export type EventRange =
  | { readonly kind: 'events'; readonly batches: readonly BufferedBatch[] }
  | ({ readonly kind: 'treeDump' } & TreeDump)
  | {
      readonly kind: 'tooNew'
      readonly requestedStart: number
      readonly requestedEnd: number | undefined
      readonly newestAvailable: number
    }
  | { readonly kind: 'invalidRange'; readonly start: number; readonly end: number }

export interface LocalIndexerStats extends HeldStats {
  readonly bufferedBatches: number
  readonly bufferedBytes: number
}

export class LocalIndexer {
  readonly #ring: BatchRing
  readonly #held: HeldBlocks

  constructor(options: LocalIndexerOptions = {}) {
    const { bufferBatchesMax, bufferBytesMax, heldBytesMax } = { ...LOCAL_INDEXER_DEFAULTS, ...options }
    this.#ring = new BatchRing({ batchesMax: bufferBatchesMax, bytesMax: bufferBytesMax })
    this.#held = new HeldBlocks({ bytesMax: heldBytesMax })
  }

  /** The id that the next batch gets. */
  get nextEventId(): number {
    return this.#ring.nextSequence
  }

  get isWhole(): boolean {
    return this.#held.isWhole
  }

  get stats(): LocalIndexerStats {
    return { ...this.#held.stats, bufferedBatches: this.#ring.size, bufferedBytes: this.#ring.bytes }
  }

  /**
   * Takes over a batch before it is published; answers its id. `payload` must say what `events` say, and not
   * change; it may hold further events, which could not be read.
   */
  record(events: readonly KvEvent[], payload: Uint8Array, isReadWhole = true): number {
    for (const event of events) this.#held.apply(event)
    if (!isReadWhole) this.#held.doubt()
    return this.#ring.add(payload)
  }

  /**
   * Forgets the blocks, not the batches. `isWhole`: the cache is known to be empty; false: its content is
   * unknown.
   */
  restart(state: { readonly isWhole: boolean }): void {
    this.#held.restart(state)
  }

  /** Batches from `start` on that are still kept. */
  batchesFrom(start: number): readonly BufferedBatch[] {
    return this.#ring.range(start)
  }

  /** The payload of a batch that is still kept. */
  payloadOf(eventId: number): Uint8Array | undefined {
    return this.#ring.get(eventId)
  }

  /** See the table above. Throws RangeError when an argument is not a whole number ≥ 0. */
  getEventsInIdRange(start?: number, end?: number): EventRange {
    checkId('start', start)
    checkId('end', end)
    if (start !== undefined && end !== undefined && end < start) return { kind: 'invalidRange', start, end }
    const { oldest } = this.#ring
    if (start === undefined || oldest === undefined) return { kind: 'treeDump', ...this.dump() }
    const newest = this.#ring.nextSequence - 1
    if (start > newest) {
      return { kind: 'tooNew', requestedStart: start, requestedEnd: end, newestAvailable: newest }
    }
    if (start < oldest) return { kind: 'treeDump', ...this.dump() }
    return { kind: 'events', batches: this.#ring.range(start, end) }
  }

  /** Everything held now. Linear in the blocks: a microsecond or two for each. */
  dump(): TreeDump {
    const nextEventId = this.#ring.nextSequence
    const frozen = this.#held.freeze()
    const events = [...frozen.runs(0, frozen.size, DUMP_EVENT_BLOCKS_MAX)]
    frozen.release()
    return {
      events,
      lastEventId: this.#ring.size === 0 ? 0 : nextEventId - 1,
      nextEventId,
      isWhole: frozen.isWhole,
    }
  }

  /** Everything held now, to be sent bit by bit while further batches arrive. */
  freeze(): FrozenBlocks {
    return this.#held.freeze()
  }
}

function checkId(name: string, id: number | undefined): void {
  if (id === undefined || (Number.isSafeInteger(id) && id >= 0)) return
  throw new RangeError(`cannot look up events: ${name} is ${id}, use a whole number from 0`)
}
