/**
 * Registry: which ranks of which instances are registered, and which worker slot and shard each has.
 *
 * Invariants
 *   I1  An instance is in one partition (model and routing group); a partition has one block size, and exists
 *       while it has a rank.
 *   I2  A slot has one rank at most. It is free again when `end` is called, not when its rank is taken out:
 *       until the indexer has forgotten the slot, another rank would inherit its blocks.
 *   I3  A rank keeps its shard for life; a new one goes to the shard with the fewest.
 *   I4  No two ranks name one socket: events there do not say whose they are.
 *
 * A rank that was taken out is in no partition and counts for no query, but keeps its slot until it has
 * ended; the same rank may be registered again meanwhile, with another slot.
 */

import { clashText, type NamedSocket, SocketClaims } from '@homing/transport'
import { NotRegisteredError, RegistrationConflictError, RegistrationsFullError } from './errors.ts'
import { newRank, type Rank } from './rank.ts'
import type { Partition, RankRegistration, Unregistration } from './requests.ts'

export interface RegistryOptions {
  readonly shardCount: number
  readonly workerSlotsMax: number
}

/** What is registered for a model and a routing group. */
export interface PartitionEntry extends Partition {
  readonly blockSizeTokens: number
  readonly ranks: ReadonlySet<Rank>
  /** Another number: the ranks may be others. */
  readonly revision: number
}

interface MutablePartition extends PartitionEntry {
  readonly ranks: Set<Rank>
  revision: number
}

export class Registry {
  readonly #options: RegistryOptions
  readonly #partitions = new Map<string, MutablePartition>()
  /** Ranks of each instance, by its id in decimal. */
  readonly #instances = new Map<string, Map<number, Rank>>()
  readonly #bySlot = new Map<number, Rank>()
  readonly #freeSlots: number[] = []
  /** Slots below were given out before. */
  #slotsUsed = 0
  readonly #ranksPerShard: number[]
  readonly #claims = new SocketClaims()

  constructor(options: RegistryOptions) {
    this.#options = options
    this.#ranksPerShard = Array.from({ length: options.shardCount }, () => 0)
  }

  /** Slots that serve a rank, or one that has not ended yet. */
  get slotsTaken(): number {
    return this.#bySlot.size
  }

  get partitions(): Iterable<PartitionEntry> {
    return this.#partitions.values()
  }

  /** Also the rank that is taken out and has not ended. */
  ofSlot(workerSlot: number): Rank | undefined {
    return this.#bySlot.get(workerSlot)
  }

  /** Also those that are taken out and have not ended. */
  all(): Iterable<Rank> {
    return this.#bySlot.values()
  }

  /** Throws NotRegisteredError. */
  partition({ model, group }: Partition): PartitionEntry {
    const entry = this.#partitions.get(partitionKey(model, group))
    if (entry !== undefined) return entry
    throw new NotRegisteredError(
      'query',
      `model ${JSON.stringify(model)} in routing group ${JSON.stringify(group)}`,
      'GET /workers lists those that are',
    )
  }

  /** Throws RegistrationConflictError and RegistrationsFullError; then nothing has changed. */
  register(registration: RankRegistration): Rank {
    const { instanceId, dpRank, model, group, blockSizeTokens } = registration
    const name = instanceId.toString()
    const instance = this.#instances.get(name)
    const conflict = (why: string): never => {
      throw new RegistrationConflictError(instanceId, dpRank, why)
    }
    for (const other of instance?.values() ?? []) {
      if (other.model !== model || other.group !== group) {
        conflict(`the instance is registered for model ${other.model} in routing group ${other.group}`)
      }
    }
    const existing = instance?.get(dpRank)
    if (existing !== undefined) conflict(`it is registered already, ${withEndpoint(existing)}`)
    const key = partitionKey(model, group)
    let entry = this.#partitions.get(key)
    if (entry !== undefined && entry.blockSizeTokens !== blockSizeTokens) {
      conflict(
        `model ${model} in routing group ${group} has blocks of ${entry.blockSizeTokens} tokens, not ${blockSizeTokens}`,
      )
    }
    const owner = ownerOf(registration)
    this.#claims.claim(owner, socketsOf(registration))
    const clash = this.#claims.clashOf(owner)
    if (clash !== undefined) {
      this.#claims.claim(owner, [])
      conflict(`it names ${clashText(clash)}; every rank needs a socket of its own`)
    }
    const { workerSlotsMax } = this.#options
    const workerSlot =
      this.#freeSlots.pop() ?? (this.#slotsUsed < workerSlotsMax ? this.#slotsUsed++ : undefined)
    if (workerSlot === undefined) {
      this.#claims.claim(owner, [])
      throw new RegistrationsFullError('rank', workerSlotsMax, '--worker-slots-max')
    }

    const shard = this.#ranksPerShard.indexOf(Math.min(...this.#ranksPerShard))
    this.#ranksPerShard[shard]!++
    const rank = newRank(registration, workerSlot, shard)
    entry ??= { model, group, blockSizeTokens, ranks: new Set(), revision: 0 }
    entry.ranks.add(rank)
    entry.revision++
    this.#partitions.set(key, entry)
    if (instance === undefined) this.#instances.set(name, new Map([[dpRank, rank]]))
    else instance.set(dpRank, rank)
    this.#bySlot.set(workerSlot, rank)
    return rank
  }

  /** Takes ranks out; each ends with `end`. Throws NotRegisteredError when there is none. */
  unregister({ instanceId, model, group, dpRank }: Unregistration): readonly Rank[] {
    const name = instanceId.toString()
    const instance = this.#instances.get(name)
    const taken = [...(instance?.values() ?? [])].filter(
      rank =>
        rank.model === model &&
        (group === undefined || rank.group === group) &&
        (dpRank === undefined || rank.dpRank === dpRank),
    )
    if (taken.length === 0) {
      const ofRank = dpRank === undefined ? '' : ` rank ${dpRank}`
      const inGroup = group === undefined ? '' : ` in routing group ${group}`
      throw new NotRegisteredError(
        'unregister',
        `instance ${name}${ofRank} of model ${model}${inGroup}`,
        'GET /workers lists those that are',
      )
    }
    for (const rank of taken) {
      rank.isGone = true
      this.#claims.claim(ownerOf(rank), [])
      instance!.delete(rank.dpRank)
      const key = partitionKey(rank.model, rank.group)
      const entry = this.#partitions.get(key)!
      entry.ranks.delete(rank)
      entry.revision++
      if (entry.ranks.size === 0) this.#partitions.delete(key)
    }
    if (instance!.size === 0) this.#instances.delete(name)
    return taken
  }

  /** Gives the slot back. The rank must be taken out and its slot forgotten by the indexer. */
  end(rank: Rank): void {
    this.#bySlot.delete(rank.workerSlot)
    this.#ranksPerShard[rank.shard]!--
    this.#freeSlots.push(rank.workerSlot)
  }
}

function ownerOf({ instanceId, dpRank }: RankRegistration): string {
  return `instance ${instanceId} rank ${dpRank}`
}

function socketsOf({ endpoint, replayEndpoint }: RankRegistration): readonly NamedSocket[] {
  if (endpoint === undefined) return []
  const events = { use: 'events', endpoint } as const
  return replayEndpoint === undefined ? [events] : [events, { use: 'replay', endpoint: replayEndpoint }]
}

function withEndpoint({ endpoint }: RankRegistration): string {
  return endpoint === undefined ? 'without an endpoint' : `with endpoint ${endpoint}`
}

/** Names may hold any character, so a separator alone would not part them. */
function partitionKey(model: string, group: string): string {
  return JSON.stringify([model, group])
}
