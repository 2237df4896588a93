/**
 * Messages of the directory: the fleet, as everybody else sees it.
 *
 * The directory owns every `WorkerRecord`. Others hold the last `Fleet` that they received: a copy that
 * may be late by one message, never torn. `version` grows by one per change.
 */

import type { ActorRef, Message, Reply } from '@homing/actor'
import type { ShardResetMessage } from '@homing/actors/indexer'
import type { SaveReport, SourceMessage, SourceStatus } from '@homing/actors/listener'
import type { ErrorRecord } from '@homing/base'
import type { Trust } from '@homing/index'
import type { BusyThresholds } from '@homing/load'
import type { AbsenceReason } from '@homing/transport'
import type { Diagnosis } from './diagnosis/diagnosis.ts'
import type { KeptRegistrations } from './registered-workers.ts'
import type { WorkersFileLook } from './workers-file.ts'

/** Where a value comes from: read from the worker, given by the operator, learned from traffic, assumed. */
export type ValueSource = 'probed' | 'given' | 'learned' | 'default'

export interface Sourced<T> {
  readonly value: T
  readonly source: ValueSource
}

export type EngineFamily = 'vllm' | 'sglang' | 'trtllm' | 'homing' | 'unknown'

/**
 * A worker with no settled answer yet is `probing`; `down` is not routed to and is probed again; `draining` answers, gets no new
 * requests, and leaves the fleet with its last open one.
 */
export type WorkerState = 'probing' | 'up' | 'down' | 'draining'

export interface WorkerModel {
  /** The name that requests use. */
  readonly name: string
  /** For a LoRA adapter: the model it adapts. */
  readonly base: string | undefined
  /** Where the engine loaded it from; may be a directory on this machine. */
  readonly root: string | undefined
  /** Prompt plus output, in tokens. */
  readonly maxModelTokens: number | undefined
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
  /** Unix milliseconds since when the trust is what it is. */
  readonly trustSinceMs: number
  /** Grows by one whenever all that was known of its cache was forgotten. */
  readonly epoch: number
}

/** Told to the directory by who compares predictions with answers. */
export interface AuditMessage extends Message {
  readonly type: 'audit'
  readonly workerSlot: number
  /** Epoch of the worker key when the predictions were made. */
  readonly epoch: number
  /** `contradicted`: blocks count as held that are not. `confirmed`: a run of answers agreed with the events. */
  readonly verdict: 'contradicted' | 'confirmed'
  /** For people. */
  readonly reason: string
}

/** From the router to the directory: blocks were computed for an answer, and its source must publish them. */
export interface ComputedMessage extends Message {
  readonly type: 'computed'
  readonly workerSlot: number
  /** Epoch of the worker key when the request was sent there. */
  readonly epoch: number
  /** Duration of the request. */
  readonly durationMs: number
}

/** Told to the directory by who knows the open requests. */
export interface DrainedMessage {
  readonly type: 'drained'
  readonly workerId: string
}

export interface WorkerRecord {
  /** `host:port` of its URL. */
  readonly id: string
  /** For `nvext.backend_instance_id`: its position among the workers given, from 0, unless `?id=` says otherwise. */
  readonly instanceId: number
  /** Unix milliseconds at which it joined the fleet; no two are the same, so one that has left and came back has another. */
  readonly joinedMs: number
  readonly origin: string
  /** 'nats://host:port/subject' where it is called over a broker; undefined: at its origin. */
  readonly calledAt?: string | undefined
  readonly state: WorkerState
  readonly stateReason: string
  /** It leaves with its last open request, whatever its state: one that drains may be down, or was never reached. */
  readonly isDraining?: boolean
  /** It joined at run time and its cache is not known yet, but may be: it gets a small share of the requests until then. */
  readonly isOnTrial?: boolean
  readonly engine: EngineFamily
  readonly engineVersion: string
  readonly models: readonly WorkerModel[]
  readonly blockSizeTokens: Sourced<number> | undefined
  readonly maxBatchedTokens: Sourced<number>
  /** Capacity of its KV cache per rank, in blocks. */
  readonly kvBlocks: Sourced<number> | undefined
  readonly ranks: Sourced<number>
  readonly taints: readonly string[]
  readonly canTokenize: boolean
  /** The router has an API key for it. */
  readonly usesKey?: boolean
  readonly keys: readonly WorkerKeyRecord[]
}

export interface Fleet {
  readonly version: number
  readonly workers: readonly WorkerRecord[]
  /** Undefined: no model has any. */
  readonly busyThresholds?: FleetThresholds | undefined
}

/** When workers take no more requests. */
export interface FleetThresholds {
  /** Of models that are not in `byModel`. */
  readonly others: BusyThresholds
  readonly byModel: ReadonlyMap<string, BusyThresholds>
}

/** What the directory tells and asks whoever keeps over its lives what was set at run time. */
export type KeeperMessage =
  /** All that were set, by model; replaces those kept before. */
  | { readonly type: 'keepBusyThresholds'; readonly byModel: FleetThresholds['byModel'] }
  /** The workers that are here after a change at run time. */
  | { readonly type: 'keepFleet'; readonly fleet: KeptFleet }
  | { readonly type: 'kept'; readonly reply: Reply<Kept> }

export interface Kept {
  readonly busyThresholds: FleetThresholds['byModel']
  /** Undefined: the workers are those of the start. */
  readonly fleet: KeptFleet | undefined
}

export interface KeptFleet {
  readonly workers: readonly {
    readonly spec: WorkerSpec
    readonly isDraining: boolean
    /** As in its record; undefined: it joins now. */
    readonly joinedMs?: number
  }[]
  /** Of the workers file, as it counted last: all its URLs, and those of the workers that came from it, by worker id. */
  readonly file:
    | { readonly urls: readonly string[]; readonly urlsById: ReadonlyMap<string, string> }
    | undefined
  /** Of the workers that registered themselves. */
  readonly registered?: KeptRegistrations | undefined
}

/** What a subscriber of the fleet accepts. */
export interface FleetMessage {
  readonly type: 'fleet'
  readonly fleet: Fleet
}

/** One worker as given on the command line: URL and the parameters of its query. */
export interface WorkerSpec {
  readonly id: string
  readonly instanceId: number
  readonly origin: string
  readonly model: string | undefined
  readonly blockSizeTokens: number | undefined
  readonly ranks: number | undefined
  /** Host of its event and replay sockets, as it stands in an endpoint; undefined: that of the origin. */
  readonly eventsHost?: string | undefined
  readonly eventsPort: number | undefined
  readonly replayPort: number | undefined
  readonly topic: string | undefined
  /** Subject under which its events are published at the broker; rank r publishes under this and .r. Undefined: none was named. */
  readonly natsSubject?: string | undefined
  /** Subject under which it takes requests at the broker; undefined: nowhere. */
  readonly requestSubject?: string | undefined
  readonly maxBatchedTokens: number | undefined
  readonly kvBlocks: number | undefined
  readonly taints: readonly string[]
  /** Where the API key of the engine stands; undefined: where that of all engines does, if there is one. */
  readonly key?: KeySource | undefined
}

/** Never the key itself. */
export type KeySource = { readonly env: string } | { readonly file: string }

export type DirectoryMessage =
  /** Somebody registers as a worker at the broker. */
  | { readonly type: 'workerPresent'; readonly life: string; readonly card: Uint8Array }
  | { readonly type: 'workerAbsent'; readonly life: string; readonly reason: AbsenceReason }
  | { readonly type: 'brokerConnected' }
  /** Who is at the broker has registered by now. */
  | { readonly type: 'registrationsDue'; readonly connection: number }
  /** Sends the fleet now and after every change; a subscriber that ends is forgotten. */
  | { readonly type: 'subscribe'; readonly subscriber: ActorRef<FleetMessage> }
  /**
   * From the gateway: a call to the worker broke. `isUnreachable`: there was no connection, so it is down until a
   * probe succeeds. Otherwise it is probed at once, and is down if that fails or if it breaks calls again and again.
   */
  | {
      readonly type: 'suspect'
      readonly workerId: string
      readonly reason: string
      readonly isUnreachable: boolean
    }
  /** From a listener: the trust of its key changed, or it learned the block size. */
  | SourceMessage
  | AuditMessage
  | ComputedMessage
  /** From an indexer that restarted with an empty shard: every listener of it resyncs. */
  | ShardResetMessage
  /** Sets what is given of the thresholds of a model that some worker serves, and answers with all of them; undefined: none serves it. */
  | {
      readonly type: 'setBusyThresholds'
      readonly model: string
      readonly change: Partial<BusyThresholds>
      readonly reply: Reply<BusyThresholds | undefined>
    }
  /** Adds a worker, as written for `--worker`; answers with its id, or why it cannot be added. */
  | {
      readonly type: 'addWorker'
      readonly url: string
      readonly reply: Reply<{ readonly id: string } | ErrorRecord>
    }
  /** Takes a worker out of the fleet at once; requests that it has go on. Answers whether there is one of this id. */
  | { readonly type: 'removeWorker'; readonly workerId: string; readonly reply: Reply<boolean> }
  /** Sends it nothing new, and removes it with its last open request, or after the limit. Answers as `removeWorker`. */
  | { readonly type: 'drainWorker'; readonly workerId: string; readonly reply: Reply<boolean> }
  /** Looks anew at a worker. 'unknown': there is none of this id. 'busy': as many as may be are looked at. */
  | {
      readonly type: 'diagnoseWorker'
      readonly workerId: string
      readonly reply: Reply<WorkerDiagnosis | 'unknown' | 'busy'>
    }
  /** From the tracker: a worker that drains has no open request. */
  | DrainedMessage
  /** The fleet, with what each listener says of its source (undefined: it did not answer in time). */
  | { readonly type: 'describe'; readonly reply: Reply<FleetReport> }
  /** Resolves when every worker given has been probed once, up or down. */
  | { readonly type: 'whenProbed'; readonly reply: Reply<Fleet> }
  /** Has every listener write its checkpoint, and answers when they have, or after `timeoutMs`. */
  | {
      readonly type: 'saveCheckpoints'
      readonly timeoutMs: number
      readonly reply: Reply<SaveReport>
    }
  // From itself.
  | { readonly type: 'observeIndexers' }
  | { readonly type: 'probeDue'; readonly workerId: string; readonly turn: number }
  | {
      readonly type: 'probed'
      readonly workerId: string
      readonly turn: number
      readonly outcome: ProbeOutcome
    }
  | {
      readonly type: 'healthChecked'
      readonly workerId: string
      readonly turn: number
      /** Undefined: it is healthy. */
      readonly fault: string | undefined
      /** It was not asked, for want of something of this machine. */
      readonly isLocal: boolean
    }
  | { readonly type: 'publish' }
  | { readonly type: 'resend' }
  | { readonly type: 'announce'; readonly workerId: string; readonly joinedMs: number }
  | {
      readonly type: 'trialDue'
      readonly workerId: string
      readonly joinedMs: number
      readonly over: TrialTime
    }
  | { readonly type: 'workersFileLook' }
  | { readonly type: 'workersFileRead'; readonly found: WorkersFileLook }
  | { readonly type: 'drainDue'; readonly workerId: string; readonly turn: number }
  | { readonly type: 'listenerDue'; readonly key: string }
  | { readonly type: 'silenceDue'; readonly key: string; readonly epoch: number }
  | {
      readonly type: 'silenceSeen'
      readonly key: string
      readonly epoch: number
      /** Undefined: the listener did not answer. */
      readonly status: SourceStatus | undefined
    }
  /** The indexer has forgotten the slot of this key (true), or did not answer (false). */
  | { readonly type: 'released'; readonly key: string; readonly isReleased: boolean }

/** What of the time is over that a worker may be on trial. */
export type TrialTime = 'none' | 'first' | 'all'

/** What a fresh look finds, and what was known already. */
export interface WorkerDiagnosis extends Diagnosis {
  readonly known: {
    readonly state: WorkerState
    readonly stateReason: string
    readonly keys: readonly Pick<WorkerKeyRecord, 'key' | 'trust' | 'trustReason' | 'trustSinceMs'>[]
  }
}

export interface FleetReport {
  readonly fleet: Fleet
  /** By worker slot. */
  readonly sources: Readonly<Record<number, SourceStatus | undefined>>
}

/** Result of one probe of a worker's base URL; `reached` false carries the reason. */
export type ProbeOutcome =
  /** `isLocal`: it was not asked, for want of something of this machine. */
  | { readonly reached: false; readonly reason: string; readonly isLocal?: boolean }
  | {
      readonly reached: true
      readonly engine: EngineFamily
      readonly engineVersion: string
      readonly models: readonly WorkerModel[]
      readonly blockSizeTokens: number | undefined
      readonly maxBatchedTokens: number | undefined
      readonly kvBlocks: number | undefined
      readonly ranks: number | undefined
      readonly canTokenize: boolean
      /** By rank; endpoints with a host that can be dialled. */
      readonly eventSources: readonly EventSource[]
      /** Unix seconds at which the engine process started, where it says so. */
      readonly processStartSeconds: number | undefined
      /** Facts that a question would have told which got no answer: empty here means not known, not none. */
      readonly unanswered: readonly ProbedFact[]
    }

export type ProbedFact =
  | 'engine'
  | 'engineVersion'
  | 'blockSizeTokens'
  | 'maxBatchedTokens'
  | 'kvBlocks'
  | 'ranks'
  | 'canTokenize'
  | 'eventSources'
  | 'processStartSeconds'

export interface EventSource {
  readonly dpRank: number
  readonly endpoint: string
  readonly replayEndpoint: string | undefined
  readonly topic: string
}
