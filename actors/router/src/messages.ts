import type { Reply } from '@homing/actor'
import type { ShardMemoryMessage } from '@homing/actors/indexer'
import type { GatewayLife } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type {
  AffinityBinding,
  ChosenBefore,
  DecideResult,
  Delivery,
  GuardStatus,
  HealthStatus,
  LegCosts,
  Measured,
  PotentialKeyLoad,
  QueueReceipt,
  Receipt,
  RoutingGuardState,
  RoutingRequest,
  WorkerFault,
} from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import type { KeyAudit } from '@homing/selection'
import type { HourReport } from './last-hour.ts'

/** From the router to its keeper, which keeps what the guard knows over restarts of the router. */
export type RouterKeeperMessage =
  /** Replaces what was kept before. */
  | { readonly type: 'keepGuard'; readonly guard: RoutingGuardState }
  /** Undefined: nothing was kept yet. */
  | { readonly type: 'keptGuard'; readonly reply: Reply<RoutingGuardState | undefined> }

export type RouterMessage =
  | FleetMessage
  | ShardMemoryMessage
  /** Other routers of the same workers have bound sessions. */
  | { readonly type: 'boundElsewhere'; readonly bindings: readonly AffinityBinding[] }
  /** From the router to itself: ask the indexers where their shards are. */
  | { readonly type: 'attachToShards' }
  /** From the router to itself: tell the keeper what the guard knows. */
  | { readonly type: 'keepGuard' }
  /**
   * Choose and book; the booking exists before the reply. `settled` with the same id always follows, whatever
   * the reply is, and even if none came.
   */
  | {
      readonly type: 'decide'
      /** Id of the decision. */
      readonly id: string
      readonly gateway: GatewayLife
      readonly request: RoutingRequest
      /**
       * By ascending `uncachedTokensMin`; the last rule that applies counts. Undefined: the request is placed
       * even if all workers are busy.
       */
      readonly roomRules?: readonly RoomRule[] | undefined
      /** Undefined: the request did not wait. */
      readonly queue?: QueueReceipt | undefined
      /**
       * The gateway sends the prompt in slices: book the first, if possible not at these worker keys.
       * Undefined: it is sent whole.
       */
      readonly slicedBeside?: readonly string[] | undefined
      /** It is booked there, and nothing is chosen. Undefined: the router chooses. */
      readonly chosen?: ChosenBefore | undefined
      readonly reply: Reply<DecideResult>
    }
  /** How much of the prompt the best eligible worker holds. Changes nothing. */
  | {
      readonly type: 'measure'
      readonly request: RoutingRequest
      readonly reply: Reply<Measured | ErrorRecord>
    }
  /**
   * What the request is expected to cost whole and in two legs. Undefined: one of both is not possible, or
   * nothing is known of the engines' times. Changes nothing.
   */
  | {
      readonly type: 'weighLegs'
      readonly request: RoutingRequest
      readonly reply: Reply<LegCosts | undefined>
    }
  /**
   * A decision has ended: free its booking, complete its receipt. If the worker never worked on the request
   * (`wasTaken` is false), take back the guess that the worker holds its prompt.
   */
  | {
      readonly type: 'settled'
      readonly id: string
      readonly delivery: Delivery
      readonly wasTaken: boolean
      /** Another placement of the same request follows; default false. */
      readonly isPlacedAgain?: boolean
    }
  /**
   * A worker failed a request, and the request is not to blame for it. `ageMs`: time since the worker was
   * called with it. A decision that is settled may still be blamed: whether the worker or the request failed
   * is known when another worker has answered it.
   */
  | {
      readonly type: 'workerFailed'
      readonly workerId: string
      readonly workerJoinedMs: number
      readonly model: string
      readonly fault: WorkerFault
      readonly ageMs: number
    }
  /** Workers that have failed a request since they joined. */
  | { readonly type: 'health'; readonly reply: Reply<readonly HealthStatus[]> }
  /** The first token of a decision came `firstTokenMs` after its first call. */
  | { readonly type: 'firstToken'; readonly id: string; readonly firstTokenMs: number }
  /** Requests refused because all workers were busy, by model. */
  | { readonly type: 'busyRefused'; readonly reply: Reply<readonly (readonly [string, number])[]> }
  | { readonly type: 'lastHour'; readonly reply: Reply<HourReport> }
  /** What the guard has seen and does; undefined if it applies to no decision. */
  | { readonly type: 'guard'; readonly reply: Reply<GuardStatus | undefined> }
  /** Answers true when everything settled before is in the decision log, false if it cannot be written. */
  | {
      readonly type: 'flushDecisionLog'
      readonly timeoutMs: number
      readonly reply: Reply<boolean>
    }
  /** A gateway has restarted: settle the decisions that its earlier lives left open. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** The receipt that `decide` would write; changes nothing. */
  | {
      readonly type: 'explain'
      readonly request: RoutingRequest
      readonly reply: Reply<Receipt | ErrorRecord>
    }
  /** What each worker key that may take the request would have to do with it. Changes nothing. */
  | {
      readonly type: 'potentialLoads'
      readonly request: RoutingRequest
      readonly reply: Reply<readonly PotentialKeyLoad[] | ErrorRecord>
    }
  /** Predicted against delivered cached tokens, per worker key. */
  | { readonly type: 'audits'; readonly reply: Reply<readonly KeyAudit[]> }
  | { readonly type: 'receipt'; readonly id: string; readonly reply: Reply<Receipt | undefined> }
  | { readonly type: 'receipts'; readonly limit: number; readonly reply: Reply<readonly Receipt[]> }
