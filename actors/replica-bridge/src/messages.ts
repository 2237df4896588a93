import type { Reply } from '@homing/actor'
import type { OwnOperationsMessage, TellAgainMessage } from '@homing/actors/tracker'
import type { MirrorState, ReplicaBatch, WaitingRow } from '@homing/replication'
import type { AbsenceReason, Frames } from '@homing/transport'

/** Another replica as this one sees it. */
export interface ReplicaView {
  /** Where it publishes its bookings. */
  readonly endpoint: string
  /**
   * `live`: its open bookings are known here. `asking`: they were requested. `unknown`: it cannot be heard.
   */
  readonly state: MirrorState
  readonly openBookings: number
  /** In its queue. */
  readonly waitingRequests: number
  /** Since its last message; undefined: there was none yet. */
  readonly silentMs: number | undefined
  readonly batches: number
  readonly operations: number
  readonly gaps: number
  readonly snapshots: number
}

export interface ReplicasReport {
  /** Where this replica publishes its bookings; undefined: it could not begin to. */
  readonly endpoint: string | undefined
  readonly replicas: readonly ReplicaView[]
  /** Messages that could not be read. */
  readonly malformed: number
}

/** 'full': as many replicas are followed as may be. 'itself': the endpoint is that of this replica. */
export type FollowOutcome = 'followed' | 'full' | 'itself'

export type ReplicaBridgeMessage =
  | OwnOperationsMessage
  | TellAgainMessage
  | { readonly type: 'bound'; readonly endpoint: string }
  | { readonly type: 'notBound'; readonly reason: string }
  /** Binding failed, and is tried again. */
  | { readonly type: 'bind' }
  /** Another replica asks what is open here. */
  | { readonly type: 'asked'; readonly identity: Uint8Array }
  /** A replica is there; `card`: its name at a broker, or its endpoint. */
  | { readonly type: 'present'; readonly life: string; readonly card: string }
  | { readonly type: 'absent'; readonly life: string; readonly reason: AbsenceReason }
  | { readonly type: 'heard'; readonly endpoint: string; readonly frames: Frames }
  | { readonly type: 'moved'; readonly endpoint: string; readonly isUp: boolean }
  | {
      readonly type: 'answered'
      readonly endpoint: string
      readonly attempt: number
      readonly frames: Frames
    }
  /** Time to tell the other replicas what waits here. */
  | { readonly type: 'tellWaiting' }
  /** What waits in the own queue now. */
  | { readonly type: 'waitingHere'; readonly rows: readonly WaitingRow[] }
  /** Follows another replica from now on. */
  | { readonly type: 'follow'; readonly endpoint: string; readonly reply: Reply<FollowOutcome> }
  /** Forgets a replica, with what it has booked; answers whether it was followed. */
  | { readonly type: 'unfollow'; readonly endpoint: string; readonly reply: Reply<boolean> }
  /** These named replicas and no others: what was told before may be lost, as a restart loses it. */
  | { readonly type: 'followOnly'; readonly endpoints: readonly string[] }
  /** A second is over. */
  | { readonly type: 'tick' }
  /**
   * Answers true once the open bookings of the other replicas are booked here; false if that takes too long,
   * as it does without a broker.
   */
  | { readonly type: 'whenKnown'; readonly reply: Reply<boolean> }
  /** There is a connection to the broker. */
  | { readonly type: 'connected' }
  /** A router waits until the other replicas are known. */
  | { readonly type: 'lookIfKnown' }
  /** The tracker has booked what it was told of the other replicas; false: it could not be asked. */
  | { readonly type: 'booked'; readonly isSo: boolean }
  | { readonly type: 'report'; readonly reply: Reply<ReplicasReport> }

export type { ReplicaBatch }
