import type { ActorRef, Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/fleet'
import type { LearnedSpeed, LoadStats, OddMark, SaidUsage } from '@homing/load'
import type { CandidateLoads, RequestTracking } from '@homing/placement'
import type { OpenBooking, ReplicaBatch, ReplicaOperation, ReplicaSnapshot } from '@homing/replication'
import type { LearnedFileStatus } from './learned-file.ts'
import type { LearnedImage } from './learned-image.ts'

/** To the watcher: the load of some worker fell since it sent `watchLoad`. */
export interface LoadFellMessage {
  readonly type: 'loadFell'
}

/** One life of a gateway process. When it ends, its bookings and waiting requests end, too. */
export interface GatewayLife {
  /** Name of the gateway; the same in every life. */
  readonly name: string
  readonly life: string
}

export interface Booking {
  /** The decision's id: every attempt of a request has its own. */
  readonly decisionId: string
  /** The gateway that relays the request. */
  readonly gateway: GatewayLife
  /** Worker key that has the slot, as its caller knows the fleet. */
  readonly worker: string
  readonly workerSlot: number
  /** Sequence hashes [lo, hi] of the full prompt blocks; empty if the prompt is not known. */
  readonly sequenceHashes: Int32Array
  readonly promptTokens: number
  /** The prompt is not known: its tokens are an estimate, and teach nothing. Default false. */
  readonly isUnknown?: boolean
  /** Tokens whose blocks another worker hands over to it; undefined: none. */
  readonly handedTokens?: number | undefined
  /** Tokens that the worker must compute, as predicted; 0 … promptTokens. */
  readonly prefillTokens: number
  /** Used to count output blocks; undefined: they are not counted. */
  readonly blockSizeTokens?: number | undefined
  /** Expected tokens of the answer; undefined: not known. */
  readonly expectedOutputTokens?: number | undefined
  /** The most tokens that the answer can have; undefined: not known. */
  readonly outputTokensMax?: number | undefined
  readonly tracking?: RequestTracking | undefined
  /** Session id, the same at all routers; undefined: no session, or sessions are not bound to workers. */
  readonly session?: string | undefined
  /** The gateway will report the first token with `prefillComplete`. */
  readonly isStream: boolean
  /** Time in the queue before it was sent; default 0. */
  readonly waitedMs?: number
  /** Most tokens in one step of the worker. */
  readonly stepTokens: number
}

/** KV cache use of one rank, as its engine reports it. */
export interface KvUsageReport {
  /** Worker key. */
  readonly worker: string
  readonly workerSlot: number
  /** Share of its blocks that requests use, 0 … 1; undefined: the engine does not report it. */
  readonly share: number | undefined
  /** Why there is no `share`; undefined: there is one. */
  readonly reason: string | undefined
}

/** From the actor that polls the engines: replaces earlier reports of these worker keys. */
export interface ReportedUsageMessage {
  readonly type: 'reportedUsage'
  readonly reports: readonly KvUsageReport[]
}

export interface WorkerLoad {
  /** Worker key. */
  readonly worker: string
  readonly workerSlot: number
  readonly activeBlocks: number
  readonly activePrefillTokens: number
  readonly activeRequests: number
  /** The engine's last report of its KV cache; undefined: none came yet. */
  readonly reported: Pick<KvUsageReport, 'share' | 'reason'> | undefined
  /** Learned times of a prefill step and a decode step. */
  readonly learned: LearnedSpeed
  /** Figures in answers of the worker that could not be true, since it is known; default 0. */
  readonly disbelieved?: number
  /** Why what was learned of it is far from what it should be; default: it is not. */
  readonly odd?: readonly WorkerOddMark[]
}

/** `sinceMs` in Unix milliseconds. */
export type WorkerOddMark = OddMark

export interface LoadReport {
  readonly rows: readonly WorkerLoad[]
  readonly stats: LoadStats
  /** Undefined: there is no file of learned values. */
  readonly learnedFile?: LearnedFileStatus | undefined
  /** Open bookings of other replicas, and operations that could not be booked; undefined: no replicas. */
  readonly replicas?: { readonly bookings: number; readonly unbooked: number } | undefined
}

/** Usage figures of a complete answer, as its engine says them; undefined where the answer has none. */
export type TrackerUsage = SaidUsage

/** To the keeper, which outlives the tracker: what was learned. */
export type LearnedKeeperMessage =
  /** Replaces what was kept before. */
  | { readonly type: 'keepLearned'; readonly image: LearnedImage }
  | { readonly type: 'keptLearned'; readonly reply: Reply<LearnedImage | undefined> }

/** To the replica bridge: bookings of this router for the other replicas. */
export type OwnOperationsMessage = {
  readonly type: 'ownOperations'
  readonly batch: ReplicaBatch
}

/** To the replica bridge: send all bookings of the other replicas again. */
export interface TellAgainMessage {
  readonly type: 'tellAgain'
}

/** 'elsewhere': at another replica. Undefined: it is not booked. */
export type BookedPlace = 'here' | 'elsewhere' | undefined

/**
 * `full`: there is no room. `gone`: its worker key has left the slot, and what is booked there would count
 * for no worker, or for the next one of that slot.
 */
export type BookingOutcome = 'booked' | 'duplicate' | 'full' | 'gone'

export type TrackerMessage =
  /** Frees the bookings of worker keys that are gone. */
  | FleetMessage
  /** Asks for the load that each candidate would have with this request. Read-only. */
  | {
      readonly type: 'project'
      readonly workerSlots: Int32Array
      readonly sequenceHashes: Int32Array
      readonly tracking?: RequestTracking | undefined
      readonly wantsEngines: boolean
      /** Default false. */
      readonly wantsReported?: boolean
      readonly reply: Reply<CandidateLoads>
    }
  | {
      readonly type: 'book'
      readonly booking: Booking
      readonly reply: Reply<BookingOutcome>
    }
  /** Whether a request with this id is booked, here or at another replica. */
  | { readonly type: 'isBooked'; readonly decisionId: string; readonly reply: Reply<boolean> }
  /** Where each of these requests is booked; undefined: nowhere. */
  | {
      readonly type: 'whereBooked'
      readonly decisionIds: readonly string[]
      readonly reply: Reply<readonly BookedPlace[]>
    }
  | ReportedUsageMessage
  /**
   * The prefill is over. `teaches`: by an answer that shows how fast the worker is, a success of the kind
   * that was asked for; default true. Idempotent.
   */
  | { readonly type: 'prefillComplete'; readonly decisionId: string; readonly teaches?: boolean }
  /** The request still runs. `outputTokens`: about how many it has sent; undefined: not known. */
  | { readonly type: 'touch'; readonly decisionId: string; readonly outputTokens?: number | undefined }
  /**
   * The request still runs, and its answer has this number of blocks, each of which counts `weight`, 0 … 1.
   * For those whose callers count them.
   */
  | {
      readonly type: 'outputBlocks'
      readonly decisionId: string
      readonly blocks: number
      readonly weight: number
    }
  /**
   * The request ended, with success or not. Idempotent. `isOwn`: only what was booked here is freed, never
   * what another replica booked under the same id. `session`: its worker, asked second, has served the
   * request and taken the session over; other replicas are told.
   */
  | ({
      readonly type: 'free'
      readonly decisionId: string
      readonly isOwn?: boolean
      readonly session?: string
    } & TrackerUsage)
  /**
   * Sends `loadFell` to the watcher once, when load falls: a request ended, a prompt was computed or a worker
   * is gone. Sends it at once if `falls` is not the current count: then load fell after the watcher read it.
   * Only the last watcher is kept.
   */
  | { readonly type: 'watchLoad'; readonly watcher: ActorRef<LoadFellMessage>; readonly falls: number }
  /**
   * The replica bridge has started: from now on it gets `ownOperations`. Idempotent. Answers the life of this
   * outbox; undefined: there is no replication.
   */
  | {
      readonly type: 'replicate'
      readonly bridge: ActorRef<OwnOperationsMessage | TellAgainMessage>
      readonly reply: Reply<string | undefined>
    }
  /** Asks for all open bookings of this router; undefined: there is no replication. */
  | { readonly type: 'ownBookings'; readonly reply: Reply<ReplicaSnapshot | undefined> }
  /** Operations of another replica. */
  | {
      readonly type: 'replicaOperations'
      readonly replica: string
      readonly operations: readonly ReplicaOperation[]
      /** They happened some time ago, so their durations are not known. */
      readonly isLate: boolean
    }
  /** The complete list of open bookings of another replica; empty: the replica is gone. */
  | { readonly type: 'replicaBookings'; readonly replica: string; readonly bookings: readonly OpenBooking[] }
  /** The complete list of replicas. Drops bookings of any other, known from an earlier life of the bridge. */
  | { readonly type: 'replicasKnown'; readonly replicas: readonly string[] }
  /** From the tracker to itself: send pending operations to the bridge. */
  | { readonly type: 'flushOperations' }
  | { readonly type: 'loads'; readonly reply: Reply<LoadReport> }
  /** Frees what this gateway booked in its earlier lives. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** Writes what was learned to its file; true: it is written. */
  | { readonly type: 'saveLearned'; readonly reply: Reply<boolean> }
  /** From the tracker to itself: the next save is due. */
  | { readonly type: 'saveLearnedDue' }
  /** Frees bookings without a sign of life for `idleMsMax`. */
  | { readonly type: 'sweep' }
