/**
 * Shard memories: which memory is read for each shard of the index, and the questions to indexers where that
 * memory is now.
 *
 * An indexer with nothing new does not answer. If a shard is asked for twice, it may be answered twice.
 */

import type { ActorRef } from '@homing/actor'
import type { IndexerMessage, RoutedMessage, ShardMemoryMessage } from '@homing/actors/indexer'
import type { OverlapLookup } from '@homing/placement'
import type { RouterMessage } from './messages.ts'

export interface ShardMemoriesOptions {
  /** By shard. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  /** Receives the answers of the indexers. */
  readonly reader: ActorRef<RouterMessage>
  readonly lookup: OverlapLookup
  /** Called when the indexer of a shard has restarted. */
  readonly restarted: (shard: number) => void
}

export class ShardMemories {
  readonly #options: ShardMemoriesOptions
  /** By shard: the number of the memory that is read; undefined before the first came. */
  readonly #memoryNumbers: (number | undefined)[]
  /** By shard: the life of the indexer that the memory came from. */
  readonly #incarnations: (number | undefined)[] = []

  constructor(options: ShardMemoriesOptions) {
    this.#options = options
    this.#memoryNumbers = options.indexers.map(() => undefined)
  }

  /** Asks every indexer. */
  ask(): void {
    for (const shard of this.#options.indexers.keys()) this.#ask(shard)
  }

  /** Asks those whose shards have moved. */
  askForStale(): void {
    const { indexers, lookup } = this.#options
    for (const shard of indexers.keys()) if (lookup.isStale(shard)) this.#ask(shard)
  }

  take(message: ShardMemoryMessage): void {
    const { lookup, restarted } = this.#options
    const { shard, incarnation, memoryNumber } = message
    this.#memoryNumbers[shard] = memoryNumber
    lookup.takeShard(message)
    const before = this.#incarnations[shard]
    this.#incarnations[shard] = incarnation
    if (before !== undefined && before !== incarnation) restarted(shard)
  }

  #ask(shard: number): void {
    const { indexers, reader } = this.#options
    indexers[shard]!.tell({ type: 'attach', memoryNumber: this.#memoryNumbers[shard], reader })
  }
}
