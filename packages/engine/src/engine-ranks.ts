/**
 * Engine ranks: the dp ranks of one life of an engine, and the sockets of their events.
 *
 * Owns   the ranks, and the endpoints that their publishers were given: these outlive the ranks, so that a
 *        restart binds the same ports.
 * Order  between `drop` and the end of `open` there is no rank, and no request can be served.
 */

import type { Clock } from '@homing/base'
import { streamOf } from '@homing/config'
import { brokerServer, type MessageTransport } from '@homing/transport'
import { BlockManager } from './block-manager.ts'
import { RefusedRequest } from './completion-request.ts'
import type { EngineFaults } from './engine-faults.ts'
import { EngineModel } from './engine-model.ts'
import { EngineRank } from './engine-rank.ts'
import { InvalidEngineSettingsError, type ResolvedEngineSettings } from './engine-settings.ts'
import type { EngineRankState, RankEndpoints } from './engine-state.ts'
import { type EventFaults, EventPublisher, NO_EVENT_FAULTS } from './event-publisher.ts'
import { PoolDirectory } from './pool-directory.ts'
import { type BlocksMoved, PooledTier } from './pooled-tier.ts'
import { timingProfile } from './timing-profile.ts'

export interface EngineRanksOptions {
  readonly settings: ResolvedEngineSettings
  readonly messages: MessageTransport
  readonly clock: Clock
  /** Ids that may be emitted. */
  readonly vocabulary: Int32Array
}

export class EngineRanks {
  readonly #options: EngineRanksOptions
  #ranks: readonly EngineRank[] = []
  #endpoints: readonly RankEndpoints[] = []

  constructor(options: EngineRanksOptions) {
    this.#options = options
  }

  /** By dp rank; empty while none is open. */
  get all(): readonly EngineRank[] {
    return this.#ranks
  }

  /** Endpoints of the last life, even while none is open; empty when the engine publishes no events. */
  get endpoints(): readonly RankEndpoints[] {
    return this.#endpoints
  }

  /**
   * New ranks with empty caches; the ones before must be dropped. Rejects when a port stays taken; then none
   * is open.
   */
  async open(hashSeed: number, faults: () => EngineFaults): Promise<void> {
    const ranks: EngineRank[] = []
    const endpoints: RankEndpoints[] = []
    try {
      for (let rank = 0; rank < this.#options.settings.ranks; rank++) {
        const publisher = await this.#openPublisher(rank)
        ranks.push(this.#newRank(rank, hashSeed, publisher))
        if (publisher !== undefined) endpoints.push(endpointsOf(rank, publisher))
      }
    } catch (error) {
      for (const rank of ranks) rank.close()
      throw error
    }
    this.#ranks = ranks
    this.#endpoints = endpoints
    this.applyFaults(faults())
  }

  /**
   * New ranks with empty caches behind the existing sockets: followers of their events see only what
   * `EventPublisher.beginAnew` shows.
   */
  beginAnew(hashSeed: number, firstSequence: number, faults: () => EngineFaults): void {
    this.#ranks = this.#ranks.map(before => {
      before.end()
      before.publisher?.beginAnew(firstSequence)
      return this.#newRank(before.rank, hashSeed, before.publisher)
    })
    this.applyFaults(faults())
  }

  /** Ends all ranks: their requests end without notice. Their last state can still be read. Idempotent. */
  close(): void {
    for (const rank of this.#ranks) rank.close()
  }

  /** Ends all ranks and forgets them: there is none until `open`. */
  drop(): void {
    this.close()
    this.#ranks = []
  }

  applyFaults({ slowFactor, slowMs, hang }: EngineFaults): void {
    for (const rank of this.#ranks) {
      rank.slowFactor = slowFactor
      rank.slowMs = slowMs
      rank.isHung = hang !== 'off'
    }
  }

  /** Changes faults of the events of one rank, or of all. */
  applyEventFaults(faults: Partial<EventFaults>, rank: number | undefined): void {
    for (const candidate of this.#ranks) {
      const { publisher } = candidate
      if (publisher === undefined || (rank !== undefined && rank !== candidate.rank)) continue
      publisher.faults = { ...publisher.faults, ...faults }
    }
  }

  eventFaults(): EventFaults[] {
    return this.#ranks.map(rank => rank.publisher?.faults ?? NO_EVENT_FAULTS)
  }

  /**
   * The rank a request is pinned to, else the one with the fewest requests; undefined while there is none.
   */
  pick(pin: string | undefined): EngineRank | undefined {
    if (pin !== undefined && /^-?\d+$/.test(pin.trim())) {
      const wanted = Number(pin)
      const count = this.#options.settings.ranks
      if (wanted < 0 || wanted >= count) {
        const reason = `data_parallel_rank ${wanted} is out of range [0, ${count}).`
        throw new RefusedRequest(400, 'BadRequestError', reason)
      }
      return this.#ranks[wanted]
    }
    let best: EngineRank | undefined
    for (const rank of this.#ranks) {
      if (best === undefined || rank.requests < best.requests) best = rank
    }
    return best
  }

  /** False: a rank has requests running, and keeps its cache. */
  resetPrefixCache(): boolean {
    let isCleared = true
    for (const rank of this.#ranks) isCleared = rank.resetPrefixCache() && isCleared
    return isCleared
  }

  states(hasBlocks: boolean): EngineRankState[] {
    return this.#ranks.map(rank => ({
      rank: rank.rank,
      ...rank.counts,
      nextSequence: rank.publisher?.nextSequence ?? 0,
      publishedBatches: rank.publisher?.publishedBatches ?? 0,
      cachedBlocks: rank.cachedBlocks,
      faults: rank.publisher?.faults ?? NO_EVENT_FAULTS,
      ...(hasBlocks ? { blocks: rank.cacheSnapshot() } : {}),
      ...(hasBlocks && rank.pooledBlocks !== undefined ? { pooledBlocks: rank.pooledBlocks } : {}),
    }))
  }

  #newRank(rank: number, hashSeed: number, publisher: EventPublisher | undefined): EngineRank {
    const { settings, clock, vocabulary } = this.#options
    const { blockSizeTokens, stepTokensMax, sequencesMax, speed, isClearLate, removals } = settings
    const blocks = new BlockManager({ blockSizeTokens, blockCount: settings.blocks, hashSeed, removals })
    const profile = timingProfile(settings.profile)
    const model = new EngineModel({ blocks, profile, stepTokensMax, sequencesMax, vocabulary })
    const pool = publisher && this.#newPool(publisher)
    return new EngineRank({ rank, model, blocks, publisher, pool, clock, speed, isClearLate })
  }

  #newPool(publisher: EventPublisher): PooledTier | undefined {
    const { settings, clock } = this.#options
    const { poolId, poolWorkers, poolBlocks, poolTransferMs, poolDirectory, speed } = settings
    if (poolId < 0) return undefined
    const directory =
      poolDirectory === undefined ? undefined : openDirectory(poolDirectory, poolId, publisher.endpoint)
    const transferMs = speed === 0 ? 0 : poolTransferMs / speed
    const publish = (events: readonly BlocksMoved[]) => void publisher.publish(events)
    return new PooledTier({ poolId, poolWorkers, poolBlocks, transferMs, clock, directory, publish })
  }

  #atBroker(rank: number): string | undefined {
    const { nats, natsSubject, host, port } = this.#options.settings
    if (nats.length === 0) return undefined
    const subject =
      natsSubject === '' ? `homing.kv.${`${host}:${port}`.replace(/[^A-Za-z0-9-]/g, '_')}` : natsSubject
    return `nats://${nats.map(server => brokerServer(server)).join(',')}/${subject}.${rank}`
  }

  /** Undefined: this engine publishes no events. */
  async #openPublisher(rank: number): Promise<EventPublisher | undefined> {
    const { settings, messages, clock } = this.#options
    if (!settings.publishesEvents) return undefined
    const known = this.#endpoints[rank]
    return EventPublisher.open(messages, clock, {
      rank,
      host: settings.host,
      atBroker: known?.atBroker ?? this.#atBroker(rank),
      stream: streamOf(settings),
      eventsPort: known?.eventsPort ?? (settings.eventsPort > 0 ? settings.eventsPort + rank : 0),
      replayPort: settings.offersReplay
        ? (known?.replayPort ?? (settings.replayPort > 0 ? settings.replayPort + rank : 0))
        : undefined,
      topic: settings.topic,
      form: settings.eventForm,
      hashForm: settings.hashForm,
      replayForm: settings.replayForm,
      replayBatchesMax: settings.replayBatchesMax,
      blockSizeTokens: settings.blockSizeTokens,
    })
  }
}

function endpointsOf(rank: number, publisher: EventPublisher): RankEndpoints {
  const { endpoint, replayEndpoint } = publisher
  return {
    rank,
    events: endpoint,
    atBroker: endpoint.startsWith('nats://') ? endpoint : undefined,
    eventsPort: portOf(endpoint),
    replay: replayEndpoint,
    replayPort: replayEndpoint === undefined ? undefined : portOf(replayEndpoint),
  }
}

/** Throws InvalidEngineSettingsError where the file system does not let it. */
function openDirectory(directory: string, poolId: number, endpoint: string): PoolDirectory {
  try {
    return new PoolDirectory(directory, poolId, endpoint.slice(endpoint.indexOf('://') + 3))
  } catch (thrown) {
    const reason = (thrown as Error).message
    const fault = `--pool-dir ${directory} cannot be used (${reason}): name a directory that this user can write`
    throw new InvalidEngineSettingsError([fault])
  }
}

/** 0: it has none. */
function portOf(endpoint: string): number {
  return endpoint.startsWith('tcp://') ? Number(endpoint.slice(endpoint.lastIndexOf(':') + 1)) : 0
}
