/** The state that an engine reports, to tests and under /admin/state: plain data, a copy at some instant. */

import type { CachedBlock } from './block-manager.ts'
import type { EngineFaults } from './engine-faults.ts'
import type { ModelCounts } from './engine-model.ts'
import type { EventFaults } from './event-publisher.ts'

/** Where an engine can be reached; plain data. */
export interface EngineDescription {
  /** 'http://127.0.0.1:8001'. */
  readonly url: string
  readonly host: string
  readonly port: number
  readonly model: string
  readonly blockSizeTokens: number
  readonly blocks: number
  readonly contextTokensMax: number
  /** Where it takes requests over connections of many, 'tcp://127.0.0.1:9001'; undefined: nowhere. */
  readonly requests: string | undefined
  /** Empty when the engine publishes no events. */
  readonly ranks: readonly RankEndpoints[]
}

export interface RankEndpoints {
  readonly rank: number
  /** 'tcp://127.0.0.1:5557'. */
  readonly events: string
  /** Where it publishes and answers, 'nats://…'; undefined: on the ports. */
  readonly atBroker?: string | undefined
  readonly eventsPort: number
  /** Undefined, as its port: the engine repeats nothing. */
  readonly replay: string | undefined
  readonly replayPort: number | undefined
}

/** One request, for tests. */
export interface EngineRequestRecord {
  /** The id of the answer. */
  readonly id: string
  /** Header x-request-id of the request. */
  readonly requestId: string | null
  readonly model: string
  readonly rank: number
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  readonly outcome: 'running' | 'finished' | 'aborted' | 'died'
  /** Epoch it was served in. */
  readonly epoch: number
}

export interface EngineRankState extends ModelCounts {
  readonly rank: number
  /** Sequence of the next batch; equals the batches so far. */
  readonly nextSequence: number
  readonly publishedBatches: number
  readonly cachedBlocks: number
  readonly faults: EventFaults
  /** Every cached block, when asked for. */
  readonly blocks?: readonly CachedBlock[]
  /** Hashes of its blocks in the pool, likewise; not of a rank without one. */
  readonly pooledBlocks?: readonly string[] | undefined
}

export interface EngineState {
  /** Lives so far, from 1. */
  readonly epoch: number
  readonly faults: EngineFaults
  readonly ranks: readonly EngineRankState[]
  /** The last requests, oldest first. */
  readonly requests: readonly EngineRequestRecord[]
  /** Requests ever taken. */
  readonly requestsTaken: number
  /** Computed prompts that are held for other engines. */
  readonly handovers: number
}
