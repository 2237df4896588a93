import type { ActorRef, Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/fleet'
import type { LearnedSpeed, LoadStats } from '@homing/load'
import type { CandidateLoads, RequestTracking } from '@homing/placement'
import type { OpenBooking, ReplicaBatch, ReplicaOperation, ReplicaSnapshot } from '@homing/replication'

/** Load fell somewhere since the watcher asked to be told. */
export interface LoadFellMessage {
  readonly type: 'loadFell'
}

/** One life of a gateway: what it holds elsewhere ends with it. */
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
  readonly workerSlot: number
  /** Sequence hashes [lo, hi] of the full prompt blocks; empty where the prompt is not known. */
  readonly sequenceHashes: Int32Array
  readonly promptTokens: number
  /** Tokens that the worker must compute, as predicted; 0 … promptTokens. */
  readonly prefillTokens: number
  /** For output blocks. */
  readonly blockSizeTokens?: number | undefined
  /** Tokens that the answer is expected to have; undefined: nobody says. */
  readonly expectedOutputTokens?: number | undefined
  readonly tracking?: RequestTracking | undefined
  /**
   * Its session, as other routers know it, too; undefined: it is of none, or sessions are bound to no worker.
   */
  readonly session?: string | undefined
  /** Its first token will be told by `prefillComplete`. */
  readonly isStream: boolean
  /** How long it waited in the queue before; default 0. */
  readonly waitedMs?: number
  /** Tokens of a step of the worker at most. */
  readonly stepTokens: number
}

/** What an engine itself says of the KV cache of one of its ranks. */
export interface KvUsageReport {
  /** Worker key, and its slot. */
  readonly worker: string
  readonly workerSlot: number
  /** Of its blocks, those that its requests use, 0 … 1; undefined: it does not say. */
  readonly share: number | undefined
  /** Why it does not say; undefined: it does. */
  readonly reason: string | undefined
}

/** From who asks engines: replaces what was told of these worker keys before. */
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
  /** What its engine says of its KV cache; undefined: nothing was told yet. */
  readonly reported: Pick<KvUsageReport, 'share' | 'reason'> | undefined
  /** What a step of prefill and of decoding takes there. */
  readonly learned: LearnedSpeed
}

export interface LoadReport {
  readonly rows: readonly WorkerLoad[]
  readonly stats: LoadStats
  /**
   * Open bookings of other replicas, and operations that could not be booked; undefined: there are no
   * replicas.
   */
  readonly replicas?: { readonly bookings: number; readonly unbooked: number } | undefined
}

/** What a whole answer says of itself, as far as it does. */
export interface TrackerUsage {
  readonly outputTokens?: number | undefined
  /** Share of the prompt that was cached, 0 … 1. */
  readonly cachedShare?: number | undefined
}

/** To the replica bridge. */
export type OwnOperationsMessage = {
  readonly type: 'ownOperations'
  readonly batch: ReplicaBatch
}

/** To the replica bridge: what other replicas have booked is to be told again. */
export interface TellAgainMessage {
  readonly type: 'tellAgain'
}

export type TrackerMessage =
  /** Worker keys that are gone are freed. */
  | FleetMessage
  /** What each candidate would carry with this request; changes nothing. */
  | {
      readonly type: 'project'
      readonly workerSlots: Int32Array
      readonly sequenceHashes: Int32Array
      readonly tracking?: RequestTracking | undefined
      readonly wantsEngines: boolean
      /** Default: it does not want them. */
      readonly wantsReported?: boolean
      readonly reply: Reply<CandidateLoads>
    }
  | {
      readonly type: 'book'
      readonly booking: Booking
      readonly reply: Reply<'booked' | 'duplicate' | 'full'>
    }
  | ReportedUsageMessage
  /** First token seen: its prefill is done. Idempotent. */
  | { readonly type: 'prefillComplete'; readonly decisionId: string }
  /** It still runs, and has sent about so many tokens of its answer; undefined: that cannot be seen. */
  | { readonly type: 'touch'; readonly decisionId: string; readonly outputTokens?: number | undefined }
  /** The request ended, however. Idempotent. */
  | ({ readonly type: 'free'; readonly decisionId: string } & TrackerUsage)
  /**
   * Tells the watcher once, as soon as load falls: a request ended, its prompt was computed, its worker is
   * gone. At once, if `falls` is no longer the count: it fell between the look at it and this. One watcher at
   * a time: the last.
   */
  | { readonly type: 'watchLoad'; readonly watcher: ActorRef<LoadFellMessage>; readonly falls: number }
  /**
   * The replica bridge is there, and is told what is booked here from now on. Idempotent. Answers the life of
   * what it is told; undefined: nothing is.
   */
  | {
      readonly type: 'replicate'
      readonly bridge: ActorRef<OwnOperationsMessage | TellAgainMessage>
      readonly reply: Reply<string | undefined>
    }
  /** All that is booked here and open; undefined: it is not replicated. */
  | { readonly type: 'ownBookings'; readonly reply: Reply<ReplicaSnapshot | undefined> }
  /** Another replica booked and freed. */
  | {
      readonly type: 'replicaOperations'
      readonly replica: string
      readonly operations: readonly ReplicaOperation[]
      /** They happened some time ago: what they took is not known. */
      readonly isLate: boolean
    }
  /** These are open at another replica, and nothing else; none: it is gone. */
  | { readonly type: 'replicaBookings'; readonly replica: string; readonly bookings: readonly OpenBooking[] }
  /** There are no replicas but these: what others had open, in another life of the bridge, is gone. */
  | { readonly type: 'replicasKnown'; readonly replicas: readonly string[] }
  /** What is booked here is to be told. */
  | { readonly type: 'flushOperations' }
  | { readonly type: 'loads'; readonly reply: Reply<LoadReport> }
  /** What this gateway had booked in another life is freed. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** Frees bookings that nobody has touched for the inactivity limit. */
  | { readonly type: 'sweep' }
