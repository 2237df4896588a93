/**
 * Namespaced prompts: which worker keys were sent prompts with separators, and whether their indexers know.
 *
 * Blocks of such a prompt may look like others in the events of its worker key. An indexer that has no room
 * for the word is told later that it has missed one: then the key cannot be trusted to the last block.
 */

import type { ActorRef } from '@homing/actor'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import type { WorkerKeyRecord } from '@homing/fleet'
import type { RoutingRequest } from '@homing/placement'

interface Sent {
  readonly key: string
  readonly shard: number
  /** Epoch of the last one. */
  epoch: number
  readonly unnamed: Set<number>
}

export class NamespacedPrompts {
  /** By shard. */
  readonly #indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  /** By worker slot: sets of separators of the prompts that were sent there. */
  readonly #sent = new Map<number, Sent>()
  /**
   * Worker slots with such prompts that their indexer was not told of, or that its former life took with it.
   */
  readonly #missed = new Set<number>()

  constructor(indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]) {
    this.#indexers = indexers
  }

  /** Before it is sent, so before any event that it causes. */
  sent({ separated }: RoutingRequest, { key, workerSlot, shard, epoch }: WorkerKeyRecord): void {
    if (separated === undefined) return
    const before = this.#sent.get(workerSlot)
    // Another key may have had the slot when this one was chosen, and a later one may have it now.
    if (before !== undefined && before.key !== key && before.epoch > epoch) return
    const sent = before?.key === key ? before : { key, shard, epoch, unnamed: new Set<number>() }
    sent.epoch = Math.max(sent.epoch, epoch)
    for (const set of separated.unnamed) sent.unnamed.add(set)
    this.#sent.set(workerSlot, sent)
    const indexer = this.#indexers[shard]
    if (
      indexer === undefined ||
      indexer.tell({ type: 'separated', workerSlot, epoch, prompt: separated }) === 'ok'
    )
      return
    this.#missed.add(workerSlot)
  }

  /** An indexer that lives anew has heard of none. */
  indexerRestarted(shard: number): void {
    for (const [workerSlot, sent] of this.#sent) if (sent.shard === shard) this.#missed.add(workerSlot)
    this.tellMissed()
  }

  keepOnly(keys: readonly WorkerKeyRecord[]): void {
    const keyOfSlot = new Map(keys.map(({ workerSlot, key }) => [workerSlot, key]))
    for (const [workerSlot, { key }] of this.#sent) {
      if (keyOfSlot.get(workerSlot) === key) continue
      this.#sent.delete(workerSlot)
      this.#missed.delete(workerSlot)
    }
  }

  /** Tells again what indexers had no room for. */
  tellMissed(): void {
    for (const workerSlot of this.#missed) {
      const { shard, epoch, unnamed } = this.#sent.get(workerSlot)!
      const prompt = { firstTokens: 0, hashes: new Int32Array(0), unnamed: [...unnamed] }
      const status = this.#indexers[shard]!.tell({ type: 'separated', workerSlot, epoch, prompt })
      if (status === 'ok') this.#missed.delete(workerSlot)
    }
  }
}
