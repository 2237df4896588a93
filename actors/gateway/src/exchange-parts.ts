/** Exchange parts: what exchanges are given, and the request as its reader hands it over. */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { WaitingHints } from '@homing/actors/queue'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { BodyHold, LentBodies } from '@homing/http'
import type { FirstTokenTimes } from '@homing/load'
import type { Decision, RetryBudget, RoutingRequest } from '@homing/placement'
import type { HttpExchange, HttpTransport } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import type { BadAnswers } from './bad-answers.ts'
import type { DeadlyPrompts } from './deadly-prompts.ts'
import type { LegWishes } from './exchange-legs.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { HedgeLimits } from './hedge-limits.ts'
import type { GatewayMessage } from './messages.ts'
import type { Placements } from './placement.ts'
import type { PrefillPools } from './prefill-pools.ts'
import type { ResponseHolders } from './response-holders.ts'
import type { SliceTrust } from './slice-trust.ts'
import type { SlicedPrompt } from './sliced-prompt.ts'
import type { ContinuationLimits, ContinuationParts } from './stream-continuation.ts'
import type { StreamForms } from './stream-forms.ts'
import type { TokenWorkers } from './tokens/token-workers.ts'
import type { UpstreamRequest } from './worker-call.ts'
import type { WorkerProgress } from './worker-progress.ts'

/** What every exchange works with. */
export interface CommonParts {
  readonly context: ActorContext<GatewayMessage>
  readonly http: HttpTransport
  readonly metrics: GatewayMetrics
  readonly placements: Placements
  readonly retryBudget: RetryBudget
  readonly deadlyPrompts: DeadlyPrompts
  readonly badAnswers: BadAnswers
  readonly progress: WorkerProgress
  readonly firstTokens: FirstTokenTimes
  /** Bodies in shared memory that connections still have. */
  readonly lentBodies: LentBodies
  readonly streamForms: StreamForms
  /** Remembers which worker has which response. */
  readonly responses: ResponseHolders
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<DirectoryMessage>
  readonly limits: ExchangeLimits
  /** Asks workers for the usage of streams, so that predictions can be audited. */
  readonly audit: boolean
  readonly slices: SliceTrust
  readonly pools: PrefillPools
  readonly tokens: TokenWorkers
  readonly continuations: ContinuationParts
  /** An Envoy calls the worker of this request; undefined: the gateway does, through `http`. */
  readonly picked?: PickedWay
}

/** The way of a request whose worker an Envoy calls. */
export interface PickedWay {
  /** Tells Envoy of this decision, once it is called. */
  way(decision: Decision): Pick<HttpTransport, 'call'>
  /** Which worker has this origin; undefined: none has it any more. */
  instanceAt(origin: string): number | undefined
}

export interface ExchangeLimits extends ContinuationLimits, HedgeLimits {
  /** How many other workers a request may be tried on before its first byte; ≥ 0. */
  readonly retriesMax: number
  /** Requests that may be placed again, as a share of all requests; 0 … 1. */
  readonly retryShare: number
  /** The least age of a stalled call, in milliseconds; 0: no call is ever stalled. */
  readonly stallMsMin: number
  /**
   * Longest wait for the next byte of an answer, including the first, in milliseconds. Comments before the
   * first event of a stream are none.
   */
  readonly silenceMsMax: number
  /** Longest time from the call to the end of its answer, in milliseconds; 0: no limit. */
  readonly requestMsMax: number
  /** Silence after which a client that waits for a stream gets a comment, in milliseconds; 0: never. */
  readonly streamKeepAliveMs?: number
}

/** A request that has been read: what the router must know to place it, and what the worker is sent. */
export interface ReadyRequest {
  readonly routing: RoutingRequest
  /** How it wants to wait for room; undefined: it never waits. */
  readonly waiting?: WaitingHints | undefined
  readonly upstream: UpstreamRequest
  /** Undefined: its prompt is not sent in slices. */
  readonly prompt?: SlicedPrompt | undefined
  /** Undefined: prefill and decode of it are never apart. */
  readonly legs?: LegWishes | undefined
}

/** Reads a request. Undefined: it has been answered already and needs no worker. */
export type ReadStep = (
  http: HttpExchange,
  hold: BodyHold,
  note?: AccessNote,
) => Promise<ReadyRequest | undefined>
