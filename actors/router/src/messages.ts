import type { Reply } from '@homing/actor'
import type { ShardMemoryMessage } from '@homing/actors/indexer'
import type { GatewayLife } from '@homing/actors/tracker'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type {
  AffinityBinding,
  DecideResult,
  Delivery,
  GuardStatus,
  Measured,
  QueueReceipt,
  Receipt,
  RoutingRequest,
} from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import type { KeyAudit } from '@homing/selection'
import type { HourReport } from './last-hour.ts'

export type RouterMessage =
  | FleetMessage
  | ShardMemoryMessage
  /** Other routers of the same workers have bound sessions. */
  | { readonly type: 'boundElsewhere'; readonly bindings: readonly AffinityBinding[] }
  /** Asks the indexers where their shards are. Of the router to itself. */
  | { readonly type: 'attachToShards' }
  /**
   * Chooses and books; the booking exists before the reply. Whatever the reply is, and also where none came,
   * `settled` with the same id follows.
   */
  | {
      readonly type: 'decide'
      /** Id of the decision. */
      readonly id: string
      readonly gateway: GatewayLife
      readonly request: RoutingRequest
      /**
       * By ascending `uncachedTokensMin`, the last that applies counts; undefined: it is placed, however busy
       * all are.
       */
      readonly roomRules?: readonly RoomRule[] | undefined
      /** Undefined: it did not wait. */
      readonly queue?: QueueReceipt | undefined
      readonly reply: Reply<DecideResult>
    }
  /** What the best of the workers that could take it holds of its prompt; changes nothing. */
  | {
      readonly type: 'measure'
      readonly request: RoutingRequest
      readonly reply: Reply<Measured | ErrorRecord>
    }
  /**
   * What was decided is over: its booking is freed, its receipt completed. Where the worker never worked on
   * it (`wasTaken`), what it was guessed to hold is taken back.
   */
  | {
      readonly type: 'settled'
      readonly id: string
      readonly delivery: Delivery
      readonly wasTaken: boolean
      /** Another placement of the same request follows; default false. */
      readonly isPlacedAgain?: boolean
    }
  /** The first token of a decision came, so many milliseconds after its first call. */
  | { readonly type: 'firstToken'; readonly id: string; readonly firstTokenMs: number }
  /** Requests refused because all workers were busy, by model. */
  | { readonly type: 'busyRefused'; readonly reply: Reply<readonly (readonly [string, number])[]> }
  | { readonly type: 'lastHour'; readonly reply: Reply<HourReport> }
  /** What the guard has seen and does; undefined where no decision is its business. */
  | { readonly type: 'guard'; readonly reply: Reply<GuardStatus | undefined> }
  /** Answers when all that was settled before is in the decision log (true), or cannot be written. */
  | {
      readonly type: 'flushDecisionLog'
      readonly timeoutMs: number
      readonly reply: Reply<boolean>
    }
  /** What this gateway had decided in another life, and not settled, is over. */
  | { readonly type: 'gatewayStarted'; readonly gateway: GatewayLife }
  /** The receipt that `decide` would write; changes nothing. */
  | {
      readonly type: 'explain'
      readonly request: RoutingRequest
      readonly reply: Reply<Receipt | ErrorRecord>
    }
  /** What was predicted against what was delivered, per worker key. */
  | { readonly type: 'audits'; readonly reply: Reply<readonly KeyAudit[]> }
  | { readonly type: 'receipt'; readonly id: string; readonly reply: Reply<Receipt | undefined> }
  | { readonly type: 'receipts'; readonly limit: number; readonly reply: Reply<readonly Receipt[]> }
