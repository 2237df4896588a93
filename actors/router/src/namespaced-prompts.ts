/**
 * Namespaced prompts: which worker keys were sent prompts with separators, and whether their indexers know.
 *
 * In the KV events of a worker key, blocks of such a prompt may look like blocks of other prompts. If the
 * indexer's mailbox is full, the indexer is told later that it missed such a prompt; then not every block of
 * the key can be trusted.
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
  /** By worker slot: the separators of the prompts that were sent there. */
  readonly #sent = new Map<number, Sent>()
  /**
   * Worker slots with such prompts of which the indexer was not told, or which it forgot when it restarted.
   */
  readonly #missed = new Set<number>()

  constructor(indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]) {
    this.#indexers = indexers
  }

  /** Call before the request is sent, so before any KV event that it causes. */
  sent({ separated }: RoutingRequest, { key, workerSlot, shard, epoch }: WorkerKeyRecord): void {
    if (separated === undefined) return
    const before = this.#sent.get(workerSlot)
    // The slot may have changed its key since the choice.
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

  /** An indexer that has restarted knows of no such prompt. */
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

  /** Repeats what found the mailbox of an indexer full. */
  tellMissed(): void {
    for (const workerSlot of this.#missed) {
      const { shard, epoch, unnamed } = this.#sent.get(workerSlot)!
      const prompt = { firstTokens: 0, hashes: new Int32Array(0), unnamed: [...unnamed] }
      const status = this.#indexers[shard]!.tell({ type: 'separated', workerSlot, epoch, prompt })
      if (status === 'ok') this.#missed.delete(workerSlot)
    }
  }
}
