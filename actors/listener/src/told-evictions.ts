/**
 * Told evictions: passes the evictions of a batch on to the indexers of the other shards, before the batch is
 * applied, so that blocks of workers that have left, or cannot be heard, end there, too.
 *
 *   tell ─▶ every other indexer: taken │ no room: false, and the batch is repeated
 *            an indexer that has taken it is not told again when the batch is
 *
 * An indexer that is not there does not hold the batch up: its next life begins without such blocks. One with
 * a full mailbox does, until it has room, or its thread is found hung and ended.
 */

import type { ActorRef } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import type { KvEvent, KvTransition } from '@homing/protocol'

export class ToldEvictions {
  readonly #others: readonly ActorRef<IndexerMessage>[]
  /** The evictions that some indexer had no room for, as text, and those that have yet to take them. */
  #owed: { readonly evictions: string; readonly refs: readonly ActorRef<IndexerMessage>[] } | undefined

  constructor(others: readonly ActorRef<IndexerMessage>[]) {
    this.#others = others
  }

  /** The batch that was refused may not be repeated: another one, with the same evictions, is told to all. */
  reset(): void {
    this.#owed = undefined
  }

  /** False: some indexer has no room; to be called again with the same events. */
  tell(events: readonly KvEvent[]): boolean {
    if (this.#others.length === 0) return true
    const evicted = events.filter(isEviction)
    if (evicted.length === 0) return true
    const evictions = this.#owed && textOf(evicted)
    const refs = this.#owed?.evictions === evictions && this.#owed ? this.#owed.refs : this.#others
    const message = { type: 'evictedElsewhere', events: evicted } as const
    const full = refs.filter(ref => ref.tell(message) === 'full')
    this.#owed = full.length === 0 ? undefined : { evictions: evictions ?? textOf(evicted), refs: full }
    return full.length === 0
  }
}

function isEviction(event: KvEvent): event is KvTransition {
  return event.kind === 'transition' && event.state === 'evicted'
}

function textOf(evicted: readonly KvTransition[]): string {
  return evicted.map(({ hashes, poolId }) => `${poolId}:${hashes.join()}`).join(' ')
}
