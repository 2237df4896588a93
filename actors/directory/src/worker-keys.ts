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
 *   I4  A worker without a key comes first: while one waits for a slot no other worker gets a further key,
 *       and a worker with several gives one back (`giver`). So none is refused because another has many
 *       ranks. A worker that registered itself gives its place to one that the operator named.
 *   I5  Epochs of a slot only grow, whichever key has it: a message for an earlier key is recognized by its
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
  /** It registered itself at a broker: the operator did not name it. */
  readonly isRegistered: (worker: Worker) => boolean
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
  /** Without any key, for lack of a slot. */
  readonly #waiting = new Set<Worker>()

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
      if (dpRank > 0 && this.#waiting.size > 0) break
      const key = this.#tryAdd(worker, dpRank)
      if (key === undefined) break
      worker.keys.push(key)
    }
    if (worker.keys.length > 0 || ranks === 0) this.#waiting.delete(worker)
    else if (this.#freeSlots.length === 0 && this.#slotsUsed >= this.#options.workerSlotsMax) {
      this.#waiting.add(worker)
    }
  }

  /** Workers that wait for their first key; those that the operator named come first. */
  get waiting(): readonly Worker[] {
    const { isRegistered } = this.#options
    return [...this.#waiting].sort((a, b) => Number(isRegistered(a)) - Number(isRegistered(b)))
  }

  /** A worker that has left waits no more. */
  left(worker: Worker): void {
    this.#waiting.delete(worker)
  }

  /**
   * The worker that gives a key back for those that wait: the one with the most, of those whose ranks the
   * operator did not give if such a worker has several; for one that the operator named also the last key of
   * one that registered itself. Undefined: none has to, or enough are coming back.
   */
  giver(): Worker | undefined {
    if (this.#waiting.size === 0) return undefined
    let coming = 0
    const counts = new Map<Worker, number>()
    for (const { isGone, worker } of this.#keys.values()) {
      if (isGone) coming++
      else counts.set(worker, (counts.get(worker) ?? 0) + 1)
    }
    if (coming >= this.#waiting.size) return undefined
    let giver: Worker | undefined
    const { isRegistered } = this.#options
    const isGiven = (worker: Worker): boolean => worker.spec.ranks !== undefined && !isRegistered(worker)
    for (const [worker, count] of counts) {
      if (count === 1) continue
      const isBetter =
        giver === undefined ||
        (isGiven(giver) && !isGiven(worker)) ||
        (isGiven(giver) === isGiven(worker) && count > counts.get(giver)!)
      if (isBetter) giver = worker
    }
    if (giver !== undefined) return giver
    const named = [...this.#waiting].filter(worker => !isRegistered(worker))
    return coming < named.length ? [...counts.keys()].findLast(isRegistered) : undefined
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
