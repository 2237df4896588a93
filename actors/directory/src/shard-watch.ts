/**
 * Shard watch: notices that an indexer restarted with an empty shard.
 *
 * Owns the last known incarnation of each shard. Every OBSERVE_INTERVAL_MS each indexer is told the known
 * incarnation; it answers only if its own differs. Its first answer names its incarnation.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { IndexerMessage, ShardResetMessage } from '@homing/actors/indexer'
import type { DirectoryMessage } from './messages.ts'

const OBSERVE_INTERVAL_MS = 1000

export class ShardWatch {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #indexers: readonly ActorRef<IndexerMessage>[]
  /** By shard; undefined before the indexer answered. */
  readonly #incarnations: (number | undefined)[]

  constructor(context: ActorContext<DirectoryMessage>, indexers: readonly ActorRef<IndexerMessage>[]) {
    this.#context = context
    this.#indexers = indexers
    this.#incarnations = indexers.map(() => undefined)
  }

  /** Asks all indexers, now and again. */
  observe(): void {
    for (const [shard, indexer] of this.#indexers.entries()) {
      const incarnation = this.#incarnations[shard]
      indexer.tell({ type: 'observe', incarnation, observer: this.#context.self })
    }
    this.#context.schedule(OBSERVE_INTERVAL_MS, { type: 'observeIndexers' })
  }

  /** True: the shard has lost what it held. */
  isReset({ shard, incarnation }: ShardResetMessage): boolean {
    const known = this.#incarnations[shard]
    this.#incarnations[shard] = incarnation
    return known !== undefined && known !== incarnation
  }
}
