/**
 * Catalog: which workers there are, what is known of each, and the fleet that tracker and router are told.
 *
 *   incomplete ──endpoint and block size are known, and it has slots──▶ schedulable, draining or
 *                                                                        unschedulable, as it is wanted
 *
 * Invariants
 *   I1  A worker id is there once. Its ranks are in the registry (actors/index-service) exactly while it is
 *       not incomplete, and the registry has no others.
 *   I2  A rank keeps its slot, and so cache and reservations, while model, group, block size, ranks and event
 *       sources of its worker stay. When one of these changes, all ranks of the worker begin anew.
 *   I3  Epochs of a slot only grow, whichever rank has it: what was sent to an earlier rank does not count
 *       for the next.
 *   I4  Ranks of all workers, also of incomplete ones, are at most `workerSlotsMax`. A slot is free again
 *       only when its last rank has ended, so a worker may have to wait for slots: the first to wait is the
 *       first to get them.
 *
 * Owns   the registry, the workers, the epochs. What changes `put` and `remove` answer, so that their caller
 *        stops and starts listeners.
 */

import { type Rank, Registry, trustOf } from '@homing/actors/index-service'
import type { Fleet, FleetThresholds, WorkerKeyRecord, WorkerRecord } from '@homing/fleet'
import { ServiceConflictError, ServiceFullError, ServiceNotFoundError } from '@homing/http'
import { STEP_TOKENS_DEFAULT } from '@homing/load'
import { clashText, type NamedSocket, SocketClaims } from '@homing/transport'
import type { Partition, WorkerSpec } from './requests.ts'

export type Lifecycle = WorkerSpec['wanted'] | 'incomplete'

export interface SelectWorker extends WorkerSpec {
  /** Its number in the fleet: ids of workers have 64 bits, numbers of instances 53. */
  readonly instanceId: number
  /** When its ranks began, in Unix milliseconds; no two workers have the same. */
  readonly joinedMs: number
  /** Empty while it is incomplete, or waits for slots. */
  readonly ranks: readonly Rank[]
}

/** Ranks that are new, also of workers that waited, and those that are gone but have not ended. */
export interface CatalogChange {
  readonly worker: SelectWorker
  readonly begun: readonly Rank[]
  readonly gone: readonly Rank[]
}

export interface CatalogOptions {
  readonly shardCount: number
  readonly workerSlotsMax: number
  /** No cache counts, whatever is known of it. */
  readonly ignoresCaches: boolean
  readonly busyThresholds: FleetThresholds['others']
}

export class SelectCatalog {
  readonly registry: Registry
  readonly #options: CatalogOptions
  /** By id, in decimal. */
  readonly #workers = new Map<string, SelectWorker>()
  readonly #claims = new SocketClaims()
  /** By worker slot. */
  readonly #epochs = new Map<number, number>()
  /** Ids of the workers that wait for slots. */
  readonly #waiting = new Set<string>()
  #rankCount = 0
  /** Undefined: something has changed since it was made. */
  #fleet: Fleet | undefined
  #instances = 0
  #version = 0
  #lastJoinedMs = 0

  constructor(options: CatalogOptions) {
    this.#options = options
    this.registry = new Registry(options)
  }

  get workers(): Iterable<SelectWorker> {
    return this.#workers.values()
  }

  /** Ranks of all workers, also of incomplete ones. */
  get rankCount(): number {
    return this.#rankCount
  }

  get(workerId: bigint): SelectWorker | undefined {
    return this.#workers.get(String(workerId))
  }

  /** Throws ServiceNotFoundError. */
  worker(action: string, workerId: bigint): SelectWorker {
    const found = this.get(workerId)
    if (found !== undefined) return found
    throw new ServiceNotFoundError(
      action,
      `there is no worker ${workerId}; GET /workers lists those there are`,
    )
  }

  /** Adds a worker, or replaces it. Throws ServiceConflictError and ServiceFullError: nothing has changed. */
  put(spec: WorkerSpec, wallMs: number): CatalogChange {
    const name = String(spec.workerId)
    const before = this.#workers.get(name)
    if (before !== undefined && placeText(before) === placeText(spec)) {
      const worker = { ...before, ...spec }
      this.#workers.set(name, worker)
      this.touch()
      return { worker, begun: [], gone: [] }
    }
    this.#check(spec, before)
    const gone = this.#takeOut(before)
    this.#rankCount += spec.rankCount
    const instanceId = before?.instanceId ?? this.#instances++
    this.#workers.set(name, { ...spec, instanceId, joinedMs: wallMs, ranks: [] })
    if (isWhole(spec)) this.#waiting.add(name)
    const begun = this.#admit(wallMs)
    return { worker: this.#workers.get(name)!, begun, gone }
  }

  /** Throws ServiceNotFoundError. */
  remove(action: string, workerId: bigint): CatalogChange {
    const worker = this.worker(action, workerId)
    this.#workers.delete(String(workerId))
    this.#claims.claim(ownerOf(worker), [])
    this.touch()
    return { worker, begun: [], gone: this.#takeOut(worker) }
  }

  /** Nothing is left of this rank, which is gone. Answers the ranks of workers that waited for its slot. */
  end(rank: Rank, wallMs: number): readonly Rank[] {
    this.registry.end(rank)
    return this.#admit(wallMs)
  }

  /** All that was known of the cache of this slot is forgotten. Answers its new epoch. */
  begin(workerSlot: number): number {
    const epoch = (this.#epochs.get(workerSlot) ?? 0) + 1
    this.#epochs.set(workerSlot, epoch)
    this.touch()
    return epoch
  }

  /** As tracker and router are told it. */
  fleet(): Fleet {
    if (this.#fleet !== undefined) return this.#fleet
    const workers = [...this.#workers.values()]
      .filter(({ ranks }) => ranks.length > 0)
      .map(worker => this.#recordOf(worker))
    const { busyThresholds: others } = this.#options
    this.#fleet = { version: this.#version, workers, busyThresholds: { others, byModel: new Map() } }
    return this.#fleet
  }

  /** Something in the fleet has changed: call it for the trust in a rank, too. */
  touch(): void {
    this.#version++
    this.#fleet = undefined
  }

  trustOf(rank: Rank): Pick<WorkerKeyRecord, 'trust' | 'trustReason'> {
    if (this.#options.ignoresCaches)
      return { trust: 'none', trustReason: 'caches are ignored (--kv-overlap-score-weight 0)' }
    const { trust, reason } =
      rank.endpoint === undefined && rank.fault === undefined ? WITHOUT_EVENTS : trustOf(rank)
    if (trust !== 'none') return { trust, trustReason: reason }
    return { trust: 'approximate', trustReason: `${reason}; guesses from reservations count` }
  }

  #check(spec: WorkerSpec, before: SelectWorker | undefined): void {
    const { workerId, blockSizeTokens, rankCount } = spec
    const action = `add worker ${workerId}`
    const { workerSlotsMax } = this.#options
    const ranksLeft = workerSlotsMax - this.#rankCount + (before?.rankCount ?? 0)
    if (rankCount > ranksLeft)
      throw new ServiceFullError(
        action,
        `it has ${rankCount} ranks, and there is room for ${ranksLeft} of ${workerSlotsMax} (--worker-slots-max)`,
      )
    if (!isWhole(spec)) {
      this.#claims.claim(ownerOf(spec), [])
      return
    }
    for (const other of this.#workers.values()) {
      const isBeside = other.workerId !== workerId && isSame(other, spec) && isWhole(other)
      if (isBeside && other.blockSizeTokens !== blockSizeTokens)
        throw new ServiceConflictError(
          action,
          `${partitionText(spec)} has blocks of ${other.blockSizeTokens} tokens, not ${blockSizeTokens}`,
        )
    }
    this.#claims.claim(ownerOf(spec), socketsOf(spec))
    const clash = this.#claims.clashOf(ownerOf(spec))
    if (clash === undefined) return
    this.#claims.claim(ownerOf(spec), before === undefined || !isWhole(before) ? [] : socketsOf(before))
    throw new ServiceConflictError(
      action,
      `it names ${clashText(clash)}; every rank needs a socket of its own`,
    )
  }

  #takeOut(worker: SelectWorker | undefined): readonly Rank[] {
    if (worker === undefined) return []
    this.#rankCount -= worker.rankCount
    this.#waiting.delete(String(worker.workerId))
    if (worker.ranks.length === 0) return []
    const { workerId: instanceId, model } = worker
    return this.registry.unregister({ instanceId, model, group: undefined, dpRank: undefined })
  }

  /** Registers the workers that wait, while there are slots for all ranks of the next. */
  #admit(wallMs: number): readonly Rank[] {
    const begun: Rank[] = []
    for (const name of this.#waiting) {
      const worker = this.#workers.get(name)!
      if (worker.rankCount > this.#options.workerSlotsMax - this.registry.slotsTaken) break
      this.#waiting.delete(name)
      this.#lastJoinedMs = Math.max(wallMs, this.#lastJoinedMs + 1)
      const ranks = this.#register(worker)
      this.#workers.set(name, { ...worker, joinedMs: this.#lastJoinedMs, ranks })
      begun.push(...ranks)
    }
    this.touch()
    return begun
  }

  #register(spec: WorkerSpec): readonly Rank[] {
    return Array.from({ length: spec.rankCount }, (_, i) => {
      const dpRank = spec.rankFirst + i
      return this.registry.register({
        instanceId: spec.workerId,
        dpRank,
        model: spec.model,
        group: spec.group,
        blockSizeTokens: spec.blockSizeTokens!,
        endpoint: spec.eventsEndpoints[dpRank],
        replayEndpoint: spec.replayEndpoints[dpRank],
      })
    })
  }

  #recordOf(worker: SelectWorker): WorkerRecord {
    const { maxModelTokens, blockSizeTokens, maxBatchedTokens, kvBlocks, ranks, wanted } = worker
    return {
      id: String(worker.workerId),
      instanceId: worker.instanceId,
      eventsId: worker.workerId,
      joinedMs: worker.joinedMs,
      origin: worker.endpoint!,
      state: STATES[wanted],
      stateReason: `lifecycle is ${wanted}`,
      isDraining: wanted === 'draining',
      engine: 'unknown',
      engineVersion: '',
      models: [{ name: fleetName(worker), base: undefined, root: undefined, maxModelTokens }],
      blockSizeTokens: { value: blockSizeTokens!, source: 'given' },
      maxBatchedTokens:
        maxBatchedTokens === undefined
          ? { value: STEP_TOKENS_DEFAULT, source: 'default' }
          : { value: maxBatchedTokens, source: 'given' },
      kvBlocks: kvBlocks === undefined ? undefined : { value: kvBlocks, source: 'given' },
      ranks: { value: ranks.length, source: 'given' },
      taints: worker.taints,
      canTokenize: false,
      keys: ranks.map(rank => ({
        key: keyOf(rank),
        workerSlot: rank.workerSlot,
        dpRank: rank.dpRank,
        eventsEndpoint: rank.endpoint,
        replayEndpoint: rank.replayEndpoint,
        topic: '',
        shard: rank.shard,
        ...this.trustOf(rank),
        trustSinceMs: worker.joinedMs,
        epoch: this.#epochs.get(rank.workerSlot) ?? 0,
      })),
    }
  }
}

const STATES = { schedulable: 'up', draining: 'draining', unschedulable: 'down' } as const
const WITHOUT_EVENTS = { trust: 'none', reason: 'no kv_events_endpoints were given' } as const

export function lifecycleOf({ ranks, wanted }: SelectWorker): Lifecycle {
  return ranks.length === 0 ? 'incomplete' : wanted
}

/** Enough is known of it that it can be chosen. */
export function isWhole({ endpoint, blockSizeTokens }: WorkerSpec): boolean {
  return endpoint !== undefined && blockSizeTokens !== undefined
}

/** Worker key: '7/0'. */
export function keyOf({ instanceId, dpRank }: Pick<Rank, 'instanceId' | 'dpRank'>): string {
  return `${instanceId}/${dpRank}`
}

/** The name of the model in the fleet: groups are apart as models are. A group has no colon. */
export function fleetName({ model, group }: Partition): string {
  return `${model}:${group}`
}

/** For sentences. */
export function partitionText({ model, group }: Partition): string {
  return `model ${JSON.stringify(model)} in routing group ${JSON.stringify(group)}`
}

export function isSame(a: Partition, b: Partition): boolean {
  return a.model === b.model && a.group === b.group
}

/** What a rank keeps its slot for. */
function placeText(spec: WorkerSpec): string {
  const { model, group, blockSizeTokens, rankFirst, rankCount } = spec
  return JSON.stringify([isWhole(spec), model, group, blockSizeTokens, rankFirst, rankCount, socketsOf(spec)])
}

function ownerOf({ workerId }: WorkerSpec): string {
  return `worker ${workerId}`
}

/** Ordered by rank: keys of an object that are numbers are. */
function socketsOf({ eventsEndpoints, replayEndpoints }: WorkerSpec): readonly NamedSocket[] {
  return Object.entries(eventsEndpoints).flatMap(([rank, endpoint]) => {
    const replay = replayEndpoints[rank]
    const events = { use: 'events', endpoint } as const
    return replay === undefined ? [events] : [events, { use: 'replay', endpoint: replay } as const]
  })
}
