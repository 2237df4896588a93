/** Messages of the directory. The fleet, which it sends to its subscribers, is a word of packages/fleet. */

import type { ActorRef, Message, Reply } from '@homing/actor'
import type { Churn, ShardResetMessage } from '@homing/actors/indexer'
import type { SaveReport, SourceMessage, SourceStatus, StoredSnapshotMessage } from '@homing/actors/listener'
import type { ErrorRecord } from '@homing/base'
import type { Diagnosis } from '@homing/doctor'
import type {
  Fleet,
  FleetMessage,
  FleetThresholds,
  KeySource,
  ProbeOutcome,
  WorkerKeyRecord,
  WorkerSpec,
  WorkerState,
  WorkersFileLook,
} from '@homing/fleet'
import type { BusyThresholds } from '@homing/load'
import type { AbsenceReason, HttpRoute } from '@homing/transport'
import type { SnapshotCounts } from './snapshot-pass.ts'

/** To the directory, from the router, which compares predictions with answers. */
export interface AuditMessage extends Message {
  readonly type: 'audit'
  readonly workerSlot: number
  /** Epoch of the worker key when the predictions were made. */
  readonly epoch: number
  /**
   * `contradicted`: blocks count as held that are not. `confirmed`: a run of answers agreed with the events.
   */
  readonly verdict: 'contradicted' | 'confirmed'
  /** Predicted blocks that were not found, of all contradicting answers. */
  readonly missingBlocks: number
  /** For people. */
  readonly reason: string
}

/** To the directory: whether an engine makes the tokens of prompts that were counted for it. */
export interface PromptsMessage extends Message {
  readonly type: 'prompts'
  readonly workerId: string
  /** Of its record when they were compared. */
  readonly promptsEpoch: number
  /** The base model. */
  readonly model: string
  readonly route: string
  /** The party whose tokens were compared with those of the engine. */
  readonly by: 'router' | 'engine'
  readonly verdict: 'differs' | 'agrees'
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

/** To the directory, from the tracker, which knows the open requests. */
export interface DrainedMessage {
  readonly type: 'drained'
  readonly workerId: string
}

/** From the directory to its keeper, which keeps run-time settings over the directory's lives. */
export type KeeperMessage =
  /** All that were set, by model; replaces those kept before. */
  | { readonly type: 'keepBusyThresholds'; readonly byModel: FleetThresholds['byModel'] }
  /** The workers that are here after a change at run time. */
  | { readonly type: 'keepFleet'; readonly fleet: KeptFleet }
  | { readonly type: 'kept'; readonly reply: Reply<Kept> }

export interface Kept {
  readonly busyThresholds: FleetThresholds['byModel']
  /** Undefined: the workers given at the start. */
  readonly fleet: KeptFleet | undefined
}

export interface KeptFleet {
  readonly workers: readonly {
    readonly spec: WorkerSpec
    readonly isDraining: boolean
    /** Why it gets no new requests for now; undefined: it gets them. */
    readonly pause?: string | undefined
    /** `joinedMs` of its record; undefined: it joins now. */
    readonly joinedMs?: number
  }[]
  /**
   * The last valid state of the workers file: all its URLs, and the URLs of the workers that came from it, by
   * worker id.
   */
  readonly file:
    | { readonly urls: readonly string[]; readonly urlsById: ReadonlyMap<string, string> }
    | undefined
  /** Workers that registered themselves. */
  readonly registered?: KeptRegistrations | undefined
  /** Workers that a source of workers brought. */
  readonly found?: KeptFound | undefined
}

/** The part of found workers that is kept over the directory's lives. */
export interface KeptFound {
  /** By worker id: with which URL and life they came, and whether they drain because they are gone. */
  readonly here: ReadonlyMap<
    string,
    { readonly url: string; readonly life: string; readonly isDraining: boolean }
  >
  /** Lives that the operator has sent away, by worker id. */
  readonly refused: ReadonlyMap<string, string>
}

/** The part of registrations that is kept over the directory's lives. */
export interface KeptRegistrations {
  /** URLs of the workers that came by a registration, by id. */
  readonly urls: ReadonlyMap<string, string>
  /** Lives that the operator has sent away. */
  readonly refused: readonly string[]
}

/** Where the key of an origin stands, never the key; undefined: it has none any more. */
export interface WorkerDoor {
  readonly origin: string
  readonly key: KeySource | undefined
  /** The way of its requests; undefined: over sockets of their own. */
  readonly route?: HttpRoute | undefined
}

/** From the directory to a gateway on a thread of its own: doors that are new or have changed. */
export interface DoorsMessage {
  readonly type: 'doors'
  readonly doors: readonly WorkerDoor[]
  /** Other origins have no key. */
  readonly isAll: boolean
}

export type DirectoryMessage =
  /** Somebody registers as a worker at the broker. */
  | { readonly type: 'workerPresent'; readonly life: string; readonly card: Uint8Array }
  | { readonly type: 'workerAbsent'; readonly life: string; readonly reason: AbsenceReason }
  | { readonly type: 'brokerConnected' }
  /** Every worker at the broker has had time to register again. */
  | { readonly type: 'registrationsDue'; readonly connection: number }
  /** Sends the fleet now and after every change; a subscriber that ends is forgotten. */
  | { readonly type: 'subscribe'; readonly subscriber: ActorRef<FleetMessage> }
  /** From the guardian, repeated: this gateway is told of all doors, now if it is new, and of all changes. */
  | { readonly type: 'holdsDoors'; readonly holder: ActorRef<DoorsMessage> }
  /** From a gateway that begins: all doors, and it is told of changes. */
  | {
      readonly type: 'doors'
      readonly holder: ActorRef<DoorsMessage>
      readonly reply: Reply<readonly WorkerDoor[]>
    }
  /**
   * From the gateway: a call to the worker broke. `isUnreachable`: there was no connection, so it is down
   * until a probe succeeds. Otherwise it is probed at once, and is down if that fails; that it breaks calls
   * again and again is for the router to judge.
   */
  | {
      readonly type: 'suspect'
      readonly workerId: string
      readonly reason: string
      readonly isUnreachable: boolean
    }
  /** From the gateway: these workers have sent bytes of answers within the last second or so. */
  | { readonly type: 'alive'; readonly workerIds: readonly string[] }
  /**
   * The worker differs from what is known of it: the gateway saw that it does not serve a model that its list
   * had, or engine usage that its process has another start time. It is probed fully at once.
   */
  | { readonly type: 'lookAgain'; readonly workerId: string }
  /** From a listener: the trust of its key changed, or it learned the block size. */
  | SourceMessage
  /** From a listener that begins. */
  | StoredSnapshotMessage
  | AuditMessage
  | ComputedMessage
  | PromptsMessage
  /** From an indexer that restarted with an empty shard: every listener of it resyncs. */
  | ShardResetMessage
  /**
   * Sets what is given of the thresholds of a model that some worker serves, and answers with all of them;
   * undefined: none serves it.
   */
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
  /**
   * Takes a worker out of the fleet at once; requests that it has go on. Answers whether there is one of this
   * id.
   */
  | { readonly type: 'removeWorker'; readonly workerId: string; readonly reply: Reply<boolean> }
  /**
   * Sends it no new requests, and removes it after its last open request, or after the time limit. Answers as
   * `removeWorker`.
   */
  | { readonly type: 'drainWorker'; readonly workerId: string; readonly reply: Reply<boolean> }
  /** Looks anew at a worker. 'unknown': there is none of this id. 'busy': as many as may be are looked at. */
  | {
      readonly type: 'diagnoseWorker'
      readonly workerId: string
      readonly reply: Reply<WorkerDiagnosis | 'unknown' | 'busy'>
    }
  /** From the tracker: a worker that drains has no open request. */
  | DrainedMessage
  /** The fleet, with each listener's report of its source (undefined: no answer in time). */
  | { readonly type: 'describe'; readonly reply: Reply<FleetReport> }
  /** Resolves when every worker given has been probed once, or after `withinMs`, up or down. */
  | { readonly type: 'whenProbed'; readonly withinMs: number; readonly reply: Reply<Fleet> }
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
      /** It was not asked, because this machine lacked a resource. */
      readonly isLocal: boolean
      /** It did not answer in time. */
      readonly isSlow: boolean
      /** It answered, though not as one that takes requests. */
      readonly isAnswered?: boolean | undefined
      /** Names of the models that it lists; undefined: its answer has no list. */
      readonly models: readonly string[] | undefined
      /** Undefined: it does not say. */
      readonly isAsleep?: boolean | undefined
    }
  /** What a source of workers says has changed. */
  | { readonly type: 'foundChanged' }
  | { readonly type: 'snapshotsDue' }
  | { readonly type: 'publish' }
  | { readonly type: 'waitersDue' }
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
  /** What the events say about a contradiction; undefined: the indexer did not answer. */
  | {
      readonly type: 'churnSeen'
      readonly audit: AuditMessage
      readonly churn: Churn | undefined
    }
  | {
      readonly type: 'silenceSeen'
      readonly key: string
      readonly epoch: number
      /** Undefined: the listener did not answer. */
      readonly status: SourceStatus | undefined
    }
  /** The indexer has forgotten the slot of this key (true), or did not answer (false). */
  | { readonly type: 'released'; readonly key: string; readonly isReleased: boolean }

/** The part of a worker's trial time that is over. */
export type TrialTime = 'none' | 'first' | 'all'

/** Findings of a new look at a worker, and the facts known before. */
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
  /** Undefined: there is no stream. */
  readonly snapshots?: SnapshotCounts | undefined
}
