/**
 * Catalog: which workers are registered, and which worker slot each of their ranks has.
 *
 * Invariants
 *   I1  A partition (model and routing group) has one block size, and exists while it has a worker.
 *   I2  A worker is in a partition once; the same number may be in several, as another worker.
 *   I3  A slot has one rank at most.
 *
 * A worker key is `<worker id>@<partition>/<rank>`, where the partition is a digest of model, group and block
 * size: the same text at every replica, and another one where any of these differs.
 */

import { createHash } from 'node:crypto'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { ServiceConflictError, ServiceFullError, ServiceNotFoundError } from '@homing/http'
import type { Partition, Registration, WorkerName } from './requests.ts'

export interface SlotRank {
  /** Worker key. */
  readonly key: string
  readonly dpRank: number
  readonly workerSlot: number
}

export interface SlotWorker extends Registration {
  readonly ranks: readonly SlotRank[]
  /** When it was registered, in Unix milliseconds. */
  readonly joinedMs: number
}

export interface SlotPartition extends Partition {
  readonly blockSizeTokens: number
  /** Begins worker keys and the ids of requests. */
  readonly digest: string
  /** By id, in decimal. */
  readonly workers: ReadonlyMap<string, SlotWorker>
}

interface MutablePartition extends SlotPartition {
  readonly workers: Map<string, SlotWorker>
}

const PARTITION_CHARACTERS = 32

export class SlotCatalog {
  readonly #workerSlotsMax: number
  readonly #partitions = new Map<string, MutablePartition>()
  readonly #freeSlots: number[] = []
  /** Slots below were given out before. */
  #slotsUsed = 0
  #version = 0

  constructor(workerSlotsMax: number) {
    this.#workerSlotsMax = workerSlotsMax
  }

  get slotsTaken(): number {
    return this.#slotsUsed - this.#freeSlots.length
  }

  /** In the order of their first worker. */
  get partitions(): Iterable<SlotPartition> {
    return this.#partitions.values()
  }

  /** Throws ServiceConflictError and ServiceFullError; then nothing has changed. */
  register(registration: Registration, wallMs: number): SlotWorker {
    const { workerId, model, group, blockSizeTokens, rankFirst, rankCount } = registration
    const action = `register worker ${workerId}`
    const known = this.#partitions.get(nameOf(registration))
    if (known?.workers.has(String(workerId)) === true)
      throw new ServiceConflictError(action, `it is registered already for ${textOf(registration)}`)
    if (known !== undefined && known.blockSizeTokens !== blockSizeTokens)
      throw new ServiceConflictError(
        action,
        `${textOf(registration)} has blocks of ${known.blockSizeTokens} tokens, not ${blockSizeTokens}`,
      )
    const slotsLeft = this.#workerSlotsMax - this.slotsTaken
    if (rankCount > slotsLeft)
      throw new ServiceFullError(
        action,
        `it has ${rankCount} ranks, and there is room for ${slotsLeft} of ${this.#workerSlotsMax} (--worker-slots-max)`,
      )
    const id = `${workerId}@${digestOf(registration)}`
    const ranks = Array.from({ length: rankCount }, (_, i) => ({
      key: `${id}/${rankFirst + i}`,
      dpRank: rankFirst + i,
      workerSlot: this.#freeSlots.pop() ?? this.#slotsUsed++,
    }))
    const worker = { ...registration, ranks, joinedMs: wallMs }
    const partition = known ?? {
      model,
      group,
      blockSizeTokens,
      digest: digestOf(registration),
      workers: new Map(),
    }
    partition.workers.set(String(workerId), worker)
    this.#partitions.set(nameOf(registration), partition)
    this.#version++
    return worker
  }

  /** Throws ServiceNotFoundError. */
  unregister(name: WorkerName): SlotWorker {
    const partition = this.partition('unregister', name)
    const worker = this.#workerOf('unregister', partition, name.workerId)
    partition.workers.delete(String(name.workerId))
    if (partition.workers.size === 0) this.#partitions.delete(nameOf(name))
    for (const { workerSlot } of worker.ranks) this.#freeSlots.push(workerSlot)
    this.#version++
    return worker
  }

  /** Throws ServiceNotFoundError. `action`: 'add request a'. */
  partition(action: string, name: Partition): MutablePartition {
    const partition = this.#partitions.get(nameOf(name))
    if (partition !== undefined) return partition
    throw new ServiceNotFoundError(
      action,
      `no worker is registered for ${textOf(name)}; GET /workers lists those that are`,
    )
  }

  /** Throws ServiceNotFoundError. */
  rank(action: string, name: WorkerName, dpRank: number): SlotRank & { readonly partition: SlotPartition } {
    const partition = this.partition(action, name)
    const worker = this.#workerOf(action, partition, name.workerId)
    const rank = worker.ranks[dpRank - worker.rankFirst]
    if (rank !== undefined) return { ...rank, partition }
    const last = worker.rankFirst + worker.rankCount - 1
    throw new ServiceNotFoundError(
      action,
      `worker ${name.workerId} has no rank ${dpRank}; it has ${worker.rankFirst} to ${last}`,
    )
  }

  /** As the tracker is told it. */
  fleet(): Fleet {
    const workers: WorkerRecord[] = []
    for (const partition of this.#partitions.values())
      for (const worker of partition.workers.values()) workers.push(recordOf(worker, partition))
    return { version: this.#version, workers }
  }

  #workerOf(action: string, partition: SlotPartition, workerId: bigint): SlotWorker {
    const worker = partition.workers.get(String(workerId))
    if (worker !== undefined) return worker
    throw new ServiceNotFoundError(
      action,
      `worker ${workerId} is not registered for ${textOf(partition)}; GET /workers lists those that are`,
    )
  }
}

/** The id of a request, unlike those of other models and groups. */
export function bookingId({ digest }: SlotPartition, requestId: string): string {
  return `${digest}:${requestId}`
}

function recordOf({ workerId, ranks, joinedMs }: SlotWorker, partition: SlotPartition): WorkerRecord {
  const id = `${workerId}@${partition.digest}`
  return {
    id,
    instanceId: 0,
    joinedMs,
    origin: id,
    state: 'up',
    stateReason: 'registered',
    engine: 'unknown',
    engineVersion: '',
    models: [{ name: partition.model, base: undefined, root: undefined, maxModelTokens: undefined }],
    blockSizeTokens: { value: partition.blockSizeTokens, source: 'given' },
    maxBatchedTokens: { value: 1, source: 'default' },
    kvBlocks: undefined,
    ranks: { value: ranks.length, source: 'given' },
    taints: [],
    canTokenize: false,
    keys: ranks.map(({ key, dpRank, workerSlot }) => ({
      key,
      workerSlot,
      dpRank,
      eventsEndpoint: undefined,
      replayEndpoint: undefined,
      topic: '',
      shard: 0,
      trust: 'none',
      trustReason: 'no events are followed',
      trustSinceMs: joinedMs,
      epoch: 0,
    })),
  }
}

/** Names may hold any character, so a separator alone would not part them. */
function nameOf({ model, group }: Partition): string {
  return JSON.stringify([model, group])
}

function digestOf({ model, group, blockSizeTokens }: Registration): string {
  const text = JSON.stringify([model, group, blockSizeTokens])
  return createHash('sha256').update(text).digest('hex').slice(0, PARTITION_CHARACTERS)
}

function textOf({ model, group }: Partition): string {
  return `model ${JSON.stringify(model)} in routing group ${JSON.stringify(group)}`
}
