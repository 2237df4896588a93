/**
 * Worker keys: gives every rank of a worker its key, with a worker slot and a shard, and takes them back.
 *
 * Owns `keys` of every worker, `isGone` of every key, and which slots are free.
 *
 * Invariants
 *   I1  A slot has one key at most. It is free again when its key has ended, not when its rank is gone:
 *       until the indexer has forgotten the slot, another key would inherit its blocks.
 *   I2  A name has one key at most: a rank that goes and returns gets a new key after the old one has ended.
 *   I3  A key keeps its shard for life; a new key gets the shard with the fewest keys.
 *   I4  Epochs of a slot only grow, whichever key has it: a message for an earlier key is recognized by its
 *       epoch.
 */

import type { ActorContext } from '@homing/actor'
import { unheard } from '@homing/actors/listener'
import { NoWorkerSlotError } from './errors.ts'
import type { DirectoryMessage } from './messages.ts'
import type { Key, Worker } from './worker.ts'

export interface WorkerKeysOptions {
  readonly shardCount: number
  readonly workerSlotsMax: number
  readonly log: ActorContext<DirectoryMessage>['log']
  /** Unix milliseconds. */
  readonly wallMs: () => number
}

export class WorkerKeys {
  readonly #options: WorkerKeysOptions
  readonly #keys = new Map<string, Key>()
  readonly #keysBySlot = new Map<number, Key>()
  readonly #freeSlots: number[] = []
  /** For slots that had a key before: the epoch with which the next key begins. */
  readonly #nextEpochs = new Map<number, number>()
  /** Slots below were given out before. */
  #slotsUsed = 0
  readonly #keysPerShard: number[]

  constructor(options: WorkerKeysOptions) {
    this.#options = options
    this.#keysPerShard = Array.from({ length: options.shardCount }, () => 0)
  }

  /** By name, also of a rank that is gone. */
  get(name: string): Key | undefined {
    return this.#keys.get(name)
  }

  ofSlot(workerSlot: number): Key | undefined {
    return this.#keysBySlot.get(workerSlot)
  }

  /** All keys, also of ranks that are gone. */
  all(): Iterable<Key> {
    return this.#keys.values()
  }

  /** Gives a worker the keys that its ranks lack, as far as there are slots. */
  grow(worker: Worker, ranks: number): void {
    for (let dpRank = worker.keys.length; dpRank < ranks; dpRank++) {
      const key = this.#tryAdd(worker, dpRank)
      if (key === undefined) break
      worker.keys.push(key)
    }
  }

  /**
   * Takes the last key of a worker that has more keys than ranks; undefined: it has not. It ends with `end`.
   */
  takeSurplus(worker: Worker, ranks: number): Key | undefined {
    if (worker.keys.length <= ranks) return undefined
    const key = worker.keys.pop()!
    key.isGone = true
    return key
  }

  /** Gives slot and name back. The key must be gone and its slot forgotten by the indexer. */
  end(key: Key): void {
    this.#keys.delete(key.name)
    this.#keysBySlot.delete(key.workerSlot)
    this.#keysPerShard[key.shard]!--
    this.#freeSlots.push(key.workerSlot)
    this.#nextEpochs.set(key.workerSlot, key.epoch + 1)
  }

  #tryAdd(worker: Worker, dpRank: number): Key | undefined {
    const { workerSlotsMax, log } = this.#options
    const name = `${worker.spec.id}/${dpRank}`
    if (this.#keys.has(name)) return undefined
    const workerSlot =
      this.#freeSlots.pop() ?? (this.#slotsUsed < workerSlotsMax ? this.#slotsUsed++ : undefined)
    if (workerSlot === undefined) {
      const error = new NoWorkerSlotError(name, workerSlotsMax)
      log.error({ code: error.code, ...error.details }, error.message)
      return undefined
    }
    const shard = this.#keysPerShard.indexOf(Math.min(...this.#keysPerShard))
    this.#keysPerShard[shard]!++
    const key: Key = {
      name,
      worker,
      dpRank,
      workerSlot,
      shard,
      isGone: false,
      phase: 'idle',
      listener: undefined,
      startedFor: '',
      heard: unheard('its events are not followed yet'),
      epoch: this.#nextEpochs.get(workerSlot) ?? 0,
      audit: undefined,
      silence: undefined,
      trust: 'none',
      trustReason: 'not probed yet',
      trustSinceMs: this.#options.wallMs(),
    }
    this.#keys.set(name, key)
    this.#keysBySlot.set(workerSlot, key)
    return key
  }
}
