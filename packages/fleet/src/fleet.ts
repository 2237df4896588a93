/**
 * Fleet: all workers, and what is known of them.
 *
 * The directory owns every `WorkerRecord`. Others hold the last `Fleet` that they received: a copy that
 * may be late by one message, never torn. `version` grows by one per change.
 */

import type { Trust } from '@homing/index'
import type { BusyThresholds } from '@homing/load'
import type { Handover, WorkerRole } from './leg-names.ts'

/** Source of a value: read from the worker, given by the operator, learned from traffic, or assumed. */
export type ValueSource = 'probed' | 'given' | 'learned' | 'default'

export interface Sourced<T> {
  readonly value: T
  readonly source: ValueSource
}

export type EngineFamily = 'vllm' | 'sglang' | 'trtllm' | 'homing' | 'unknown'

/**
 * A worker with no settled answer yet is `probing`; `down` is not routed to and is probed again; `draining`
 * answers, gets no new requests, and leaves the fleet with its last open one; `paused` answers, keeps the
 * requests that it has and gets no new ones until its pod is ready again, or its engine wakes.
 */
export type WorkerState = 'probing' | 'up' | 'down' | 'draining' | 'paused'

export interface WorkerModel {
  /** The name that requests use. */
  readonly name: string
  /** For a LoRA adapter: the model it adapts. */
  readonly base: string | undefined
  /** Where the engine loaded it from; may be a directory on this machine. */
  readonly root: string | undefined
  /** Prompt plus output, in tokens. */
  readonly maxModelTokens: number | undefined
  /** The worker gets the token ids of prompts, and answers with token ids; default: it reads text. */
  readonly takesTokens?: boolean
}

/** Where the decode leg finds a prefill worker of SGLang. */
export interface Bootstrap {
  readonly host: string
  readonly port: Sourced<number>
}

/** One data-parallel rank of a worker: what holds blocks and load. */
export interface WorkerKeyRecord {
  /** `<worker id>/<dp rank>`, the text in headers, receipts and `/workers`. */
  readonly key: string
  /** Dense number of this key in the index and the load tables; reused only after it was cleared. */
  readonly workerSlot: number
  readonly dpRank: number
  readonly eventsEndpoint: string | undefined
  readonly replayEndpoint: string | undefined
  readonly topic: string
  /** The shard of the index, and so the event thread, that this key sticks to. */
  readonly shard: number
  readonly trust: Trust
  readonly trustReason: string
  /** Time of the last change of the trust, in Unix milliseconds. */
  readonly trustSinceMs: number
  /** Grows by one whenever all that was known of its cache was forgotten. */
  readonly epoch: number
}

export interface WorkerRecord {
  /** `host:port` of its URL. */
  readonly id: string
  /**
   * For `nvext.backend_instance_id`: the number given with `?id=`; else, of workers that the start names, the
   * position, from 0; else a number below 2^53 that follows from host, port and path.
   */
  readonly instanceId: number
  /** Id by which KV events of other workers name it; undefined: `instanceId`. */
  readonly eventsId?: bigint | undefined
  /**
   * Unix milliseconds at which it joined the fleet; no two are the same, so one that has left and came back
   * has another.
   */
  readonly joinedMs: number
  readonly origin: string
  /** 'nats://host:port/subject' where it is called over a broker; undefined: at its origin. */
  readonly calledAt?: string | undefined
  readonly state: WorkerState
  readonly stateReason: string
  /**
   * Since when it does not answer: since it joined, or went down; Unix milliseconds. Undefined: it answers.
   */
  readonly unansweredSinceMs?: number | undefined
  /** It is down by its own word: it answers probes, and may go on with what it has. Default false. */
  readonly isDownByAnswer?: boolean
  /**
   * It leaves with its last open request, whatever its state: one that drains may be down, or was never
   * reached.
   */
  readonly isDraining?: boolean
  /**
   * It joined at run time and its cache is not known yet, but may be: it gets a small share of the requests
   * until then.
   */
  readonly isOnTrial?: boolean
  readonly engine: EngineFamily
  readonly engineVersion: string
  readonly models: readonly WorkerModel[]
  readonly blockSizeTokens: Sourced<number> | undefined
  readonly maxBatchedTokens: Sourced<number>
  /** Capacity of its KV cache per rank, in blocks. */
  readonly kvBlocks: Sourced<number> | undefined
  readonly ranks: Sourced<number>
  /** Ranks that it claims and that are not believed, because they are too many; default: none. */
  readonly refusedRanks?: number | undefined
  readonly taints: readonly string[]
  /** Which part of a request it takes; default: both. */
  readonly role?: Sourced<WorkerRole>
  /** How its engine hands a computed prompt over; default: as vLLM does. */
  readonly handover?: Sourced<Handover>
  readonly bootstrap?: Bootstrap | undefined
  readonly canTokenize: boolean
  /** The router has an API key for it. */
  readonly usesKey?: boolean
  /** Grows when it is found to run as another process, which may make other tokens of prompts; default 0. */
  readonly promptsEpoch?: number
  /** When its process began, in Unix seconds; undefined: it does not say. */
  readonly processStartSeconds?: number | undefined
  readonly keys: readonly WorkerKeyRecord[]
}

export interface Fleet {
  readonly version: number
  readonly workers: readonly WorkerRecord[]
  /** Undefined: no model has any. */
  readonly busyThresholds?: FleetThresholds | undefined
  /** Prompts that most engines of their model make other tokens of than the router; default: none. */
  readonly engineTokenized?: readonly EngineTokenized[]
}

/** Prompts of a model on a route, whose tokens engines are asked for. */
export interface EngineTokenized {
  /** The base model. */
  readonly model: string
  /** 'chat', 'completions', 'messages' or 'responses'. */
  readonly route: string
  /** For people. */
  readonly reason: string
  /** Those that can be asked; empty: none can. */
  readonly workerIds: readonly string[]
}

/** When workers take no more requests. */
export interface FleetThresholds {
  /** Thresholds of models that are not in `byModel`. */
  readonly others: BusyThresholds
  readonly byModel: ReadonlyMap<string, BusyThresholds>
}

/** The message that subscribers of the fleet get. */
export interface FleetMessage {
  readonly type: 'fleet'
  readonly fleet: Fleet
  /**
   * Ids of workers that have left it because their drain took too long: what they still have is to go on
   * elsewhere, where it can. Each subscriber is told once; default: none.
   */
  readonly overdue?: readonly string[]
}
