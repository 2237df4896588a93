/**
 * Told evictions: passes the evictions of a batch on to the indexers of the other shards, before the batch is
 * applied, so that blocks of workers that have left, or cannot be heard, end there, too.
 *
 *   tell ─▶ every other indexer: taken │ no room: false, and the batch is repeated
 *            an indexer that has taken it is not told again when the batch is, also where it is repeated
 *            because the batch's own indexer has no room, until `reset`
 *
 * An indexer that is not there does not hold the batch up: its next life begins without such blocks. One with
 * a full mailbox does, until it has room, or its thread is found hung and ended.
 */

import type { ActorRef } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import type { KvEvent, KvTransition } from '@homing/protocol'

export class ToldEvictions {
  readonly #others: readonly ActorRef<IndexerMessage>[]
  /** The evictions of a batch that is not applied yet, and the indexers that have yet to take them. */
  #told:
    | { readonly evicted: readonly KvTransition[]; readonly refs: readonly ActorRef<IndexerMessage>[] }
    | undefined

  constructor(others: readonly ActorRef<IndexerMessage>[]) {
    this.#others = others
  }

  /**
   * The batch was applied, or it may not be repeated after a refusal: the next one is told to all, also if it
   * has the same evictions.
   */
  reset(): void {
    this.#told = undefined
  }

  /** False: some indexer has no room; to be called again with the same events. */
  tell(events: readonly KvEvent[]): boolean {
    if (this.#others.length === 0) return true
    const evicted = events.filter(isEviction)
    if (evicted.length === 0) return true
    const told = this.#told
    const isRepeated = told !== undefined && textOf(told.evicted) === textOf(evicted)
    const refs = isRepeated ? told.refs : this.#others
    const message = { type: 'evictedElsewhere', events: evicted } as const
    const full = refs.filter(ref => ref.tell(message) === 'full')
    this.#told = { evicted, refs: full }
    return full.length === 0
  }
}

function isEviction(event: KvEvent): event is KvTransition {
  return event.kind === 'transition' && event.state === 'evicted'
}

function textOf(evicted: readonly KvTransition[]): string {
  return evicted.map(({ hashes, poolId }) => `${poolId}:${hashes.join()}`).join(' ')
}
