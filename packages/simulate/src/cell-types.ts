/**
 * Cell: one simulated run, a fleet under a workload with a policy. Its spec in, its figures out; both are
 * plain data.
 *
 * Equal specs and requests give results that are equal byte for byte; what depends on the machine is kept
 * apart, in `CellCost`.
 */

import type { Clock } from '@homing/base'
import type { ProfileName } from '@homing/engine'
import type { QueueOrder, UnnamedTenants } from '@homing/queue'
import type { SelectionSettings } from '@homing/selection'
import type { TraceRequest, TraceSource } from '@homing/trace'
import type { ReplicaGather } from './replica-sync.ts'

/** What a step of an engine costs, as data: see `TimingProfile` of @homing/engine for the formula. */
export interface InlineProfile {
  readonly name: string
  readonly overheadMs: number
  readonly weightsMs: number
  readonly msPerToken: number
  readonly msPerTokenContext: number
  readonly msPerDecodeContext: number
  readonly kvCapacityTokens: number
  /** Tokens in one step at most. */
  readonly stepTokensMax: number
  /** Requests running at once at most. */
  readonly sequencesMax: number
}

/**
 * What the routers know of the engines' caches.
 *
 *   exact     KV events, at once
 *   late      KV events, `eventDelayMs` after they happened
 *   guessed   no events: prompts count as held where they were sent, for a time, up to what an engine holds
 *   text      as guessed, from texts: no engine tokenizes
 *   none      nothing
 */
export type ViewKind = 'exact' | 'late' | 'guessed' | 'text' | 'none'

export interface ViewSpec {
  readonly kind: ViewKind
  /** For `late`; 0 elsewhere. */
  readonly eventDelayMs: number
  /** First-token and completion signals arrive so much later. */
  readonly signalDelayMs: number
  /** Share of the batches of KV events that are lost, 0 … 1; default 0. For `exact` and `late`. */
  readonly lossShare?: number
  /** For `guessed` and `text`: how long a prompt counts as held; default 120,000. */
  readonly guessTtlMs?: number
  /** For `text`: what a token really has, while the router reckons with 4; default 4.5. */
  readonly textBytesPerToken?: number
  /**
   * What an overlap counts for: by default 'measured', as the product does (trust, then delivered ÷ predicted
   * of the last requests). 'full': all of it.
   */
  readonly credit?: 'measured' | 'full'
}

/**
 * Rules of the simulator's own, beside those of @homing/selection.
 *
 *   session              the session id, or else the second block id, names the worker, whatever its load
 *   overlap              fewest new tokens, then fewest requests: shows why load matters
 *   threshold-received   as the policy threshold; but if load and overlap do not decide, the worker that
 *                        received the fewest new tokens so far; equal overlaps go to the fewest requests
 *   logged               the worker that the trace names
 */
export const CUSTOM_RULES = ['session', 'overlap', 'threshold-received', 'logged'] as const
export type CustomRule = (typeof CUSTOM_RULES)[number]

/** Settings of @homing/selection, its defaults where nothing is given; or a rule of the simulator's own. */
export interface CellSelection extends Partial<SelectionSettings> {
  /** Takes the place of mode and policy. */
  readonly rule?: CustomRule
  /**
   * A cost term to leave out, by its name in receipts, which shows what the term is worth. For policies whose
   * cost is a sum.
   */
  readonly withoutTerm?: string
  /**
   * The routers read the true state of the engines instead of their own books and views: the price of not
   * knowing.
   */
  readonly oracleView?: boolean
  /** Share of the decisions of `auto` that its guard sends by least-loaded; undefined: it has no guard. */
  readonly guardShare?: number
  /**
   * For comparison: two workers are drawn from those whose costs are within this many milliseconds of the
   * best, and the one with fewer requests wins. Undefined: the best worker wins.
   */
  readonly nearTieMs?: number
  /** For comparison: prompts longer than an engine step are kept from the last so many workers. */
  readonly workersWithoutLongPrompts?: number
  /** What waits at the router; undefined: every request is placed at once. */
  readonly queue?: QueueSpec
}

/** The queue of each router; see docs/queue.md. */
export interface QueueSpec {
  /** As the option --router-queue-threshold of the router. */
  readonly threshold: 'auto' | number
  /** Default 'auto'. */
  readonly order?: QueueOrder | 'auto'
  /** Default 60,000. */
  readonly agingMs?: number
  /** Longest wait; default 300,000. */
  readonly waitMsMax?: number
  /** Shares of tenants; 1 for those that are not named. */
  readonly tenantWeights?: Readonly<Record<string, number>>
  /** What tenants have that are not in `tenantWeights`, where that names any; default 'shared'. */
  readonly unnamedTenants?: UnnamedTenants
}

/** What the queue of a router did. */
export interface QueueFigures {
  /** Requests that did not go at once ÷ requests that were placed. */
  readonly waitedShare: number
  /** Over all placed requests, including those that did not wait. */
  readonly waitMs: { readonly mean: number; readonly p99: number; readonly max: number }
  /** Requests that waited at one time. */
  readonly waitingMost: number
  readonly refused: number
}

/**
 * False information for a router.
 *
 *   flipped-root     overlaps of the last earlier prompt with another root
 *   at-once          first tokens are reported 1 ms after the request: a proxy answers before its engine
 *   some-at-once     the same for every fourth worker
 *   crossed-book     requests of a worker are booked, and learned from, at the next worker
 *   random           half of the first tokens are reported at once, the others up to eight times later than
 *                    they came, at the end of the request at the latest
 */
export const TROUBLES = ['flipped-root', 'at-once', 'some-at-once', 'random', 'crossed-book'] as const
export type Trouble = (typeof TROUBLES)[number]

/** What the guards of all routers did. */
export interface GuardFigures {
  /** Decisions before one of them first shrank the affinity; undefined: none did. */
  readonly shrunkAfter?: number
  readonly shrinks: number
  readonly tests: number
  /** Shares of all decisions. */
  readonly controlShare: number
  readonly shrunkShare: number
  /** Mean over all decisions, against round-robin, least-loaded and product. */
  readonly regretMs: readonly number[]
  /** First token seen ÷ predicted at the end. */
  readonly calibration: number
}

/**
 * Prefill and decode apart: the first `prefill` workers compute prompts only, the others answer. Placed by
 * the legs of @homing/placement, handed over as vLLM does: the decode leg is decided when the router hears
 * that the prompt is computed, and its engine gets it when the transfer has ended.
 *
 * The blocks of a prompt can be evicted at its prefill worker while they move, and all of them move, whatever
 * the decode worker holds.
 */
export interface PoolsSpec {
  readonly prefill: number
  /** A transfer takes this, and as much more for each token. */
  readonly transferMs: number
  readonly transferMsPerToken: number
  /**
   * A prompt stays at a decode worker if fewer of its tokens than this, and a smaller share of it, are new
   * there; `auto`: if it costs less there, as @homing/placement expects. Undefined: none does.
   */
  readonly stay?: { readonly tokens: number; readonly share: number } | 'auto'
}

/** What becomes of a request whose worker died after its first token: see recovery.ts. */
export type RecoveryKind = 'restart' | 'migration' | 'pool'

export interface RecoverySpec {
  readonly kind: RecoveryKind
  /** For `pool`: a read takes this, and as much more for each token; and what a pooled block weighs. */
  readonly readMs?: number
  readonly readMsPerToken?: number
  readonly weight?: number
}

export interface RecoveryFigures {
  /** Times that a request was taken up. */
  readonly requests: number
  /** From the death to the next token. */
  readonly waitMs: LatencyFigures
  /** From arrival to the last token, of these requests. */
  readonly e2eMs: LatencyFigures
  /** Tokens computed for them before their next token, each. */
  readonly computedTokens: number
}

/** A worker joins or dies. A worker that joins is absent before. */
export interface FleetChange {
  readonly atMs: number
  /** 0 … workers − 1. */
  readonly worker: number
}

/** As --hedge-after, --hedge-rule and --retry-budget. */
export interface HedgeSpec {
  readonly afterMs: number
  readonly rule: 'auto' | 'fixed'
  readonly budgetShare: number
}

/** What became of requests without a first token in time. */
export interface HedgeFigures {
  readonly won: number
  readonly lost: number
  readonly notPlaced: number
  readonly overBudget: number
  /** Prompt tokens that a worker was to compute in vain. */
  readonly twiceTokens: number
}

export interface CellSpec {
  readonly workers: number
  /** Undefined: every worker takes whole requests. */
  readonly pools?: PoolsSpec
  readonly profile: ProfileName | InlineProfile
  /** Tokens of an engine's block; divides `traceBlockTokens`. */
  readonly blockTokens: number
  /** Tokens that an id of the trace stands for; default 512. */
  readonly traceBlockTokens?: number
  /** KV tokens of each worker; default: the profile's. */
  readonly kvCapacityTokens?: number
  /**
   * When blocks of a prompt can be reused: default 'prompt-end'. vLLM registers a chunk as it is scheduled.
   */
  readonly storeAt?: 'prompt-end' | 'chunk-end' | 'chunk-start'
  /** Added to every TTFT and E2E: the time of router and network; default 0. */
  readonly baseLatencyMs?: number
  /** So many workers take `factor` times as long for each step. */
  readonly slow?: {
    readonly share: number
    readonly factor: number
    /** Which one, instead of a share that the seed draws. */
    readonly worker?: number
  }
  /** A worker does nothing from `atMs` on, for `forMs`: a step that begins before takes so much longer. */
  readonly stalls?: readonly { readonly worker: number; readonly atMs: number; readonly forMs: number }[]
  /** A second worker is asked for what has no first token in time; default: never. */
  readonly hedge?: HedgeSpec
  readonly joins?: readonly FleetChange[]
  readonly deaths?: readonly FleetChange[]
  /** What becomes of requests whose worker died after their first token; undefined: they are lost. */
  readonly recovery?: RecoverySpec
  readonly trouble?: Trouble
  /** 1 … 64; each request goes to one of them at random. */
  readonly routers: number
  /** Other routers learn so much later what a router books and hears; undefined: never. */
  readonly replicaSyncMs?: number
  /** How it gathers that, before; undefined: not at all. */
  readonly replicaGather?: ReplicaGather
  /** Counts the company of each request: those that were sent within so many milliseconds before it. */
  readonly companyMs?: number
  readonly view: ViewSpec
  readonly selection: CellSelection
  /**
   * What the policies count as decode load: default 'blocks', as the product does (shared blocks once, no
   * output).
   */
  readonly loadCounts?: 'tokens' | 'blocks'
  /** Policies that count output know its length; else they take the mean so far. */
  readonly knowsOutput: boolean
  /** All times are divided by it. */
  readonly speed: number
  readonly copies: number
  readonly stretch: number
  /** Requests of one timestamp are spread over `binMs`; each offset may shrink or grow by `jitterShare`. */
  readonly spread?: { readonly binMs: number; readonly jitterShare: number }
  readonly seed: number
  /** The first requests, as a share, that count only in `withWarmup`. */
  readonly warmupShare: number
}

export interface LatencyFigures {
  readonly mean: number
  readonly p50: number
  readonly p90: number
  readonly p99: number
}

/** Requests inside both limits of a tier ÷ requests. */
export interface Goodput {
  /** TTFT ≤ 2 s and ITL ≤ 50 ms. */
  readonly interactive: number
  /** TTFT ≤ 5 s and ITL ≤ 100 ms. */
  readonly standard: number
  /** TTFT ≤ 30 s and ITL ≤ 200 ms. */
  readonly longContext: number
}

/** Figures over a set of requests. */
export interface RequestFigures {
  readonly requests: number
  readonly ttftMs: LatencyFigures
  readonly itlMs: LatencyFigures
  readonly e2eMs: LatencyFigures
  readonly goodput: Goodput
  /** Reused prompt tokens ÷ prompt tokens. */
  readonly hitRate: number
}

/** Figures of the requests of one tenant, the first ones too. */
export interface TenantFigures extends RequestFigures {
  readonly tenant: string
  /** Prompt tokens computed for it ÷ those for all. */
  readonly prefillShare: number
  /** From arrival to a worker. */
  readonly waitMs: LatencyFigures & { readonly max: number }
}

export interface Imbalance {
  /** Of prefilled tokens per worker: standard deviation ÷ mean, and largest ÷ mean. */
  readonly newTokensCv: number
  readonly newTokensMaxOverMean: number
  /** Of the time that workers were busy. */
  readonly busyCv: number
  /** Mean over time of largest ÷ mean outstanding tokens. */
  readonly outstandingMaxOverMean: number
}

/** Requests that were sent shortly before another one, over all requests. */
export interface CompanyFigures {
  /** Mean number. */
  readonly requests: number
  /** Share of them that went to its worker; 0 without any. */
  readonly sameWorkerShare: number
}

export interface CellResult extends RequestFigures {
  readonly spec: CellSpec
  /** All requests, the first ones too. */
  readonly withWarmup: RequestFigures
  /** From here on over all requests. */
  /** Single gaps between tokens. */
  readonly gapMs: { readonly p99: number }
  readonly outputTokensPerS: number
  /** Hit rate of one cache without bound. Undefined if the ids of the trace are too many to remember. */
  readonly infiniteHitRate?: number
  /** Hit rate ÷ `infiniteHitRate`. */
  readonly hitEfficiency?: number
  /** Prompt tokens computed. */
  readonly prefillTokens: number
  readonly imbalance: Imbalance
  /** Blocks evicted. */
  readonly evictions: number
  /** Blocks computed that another worker held. */
  readonly missedReuseBlocks: number
  /** Each leg of a request is one. */
  readonly decisions: number
  /** Where the spec asks for it. */
  readonly hedges?: HedgeFigures
  /** Where there is a guard. */
  readonly guard?: GuardFigures
  /** Where the spec asks for it. */
  readonly company?: CompanyFigures
  /** Where the spec has a recovery: of the requests that were taken up. */
  readonly recovery?: RecoveryFigures
  /** Where there is a queue: of the first router; the others have the same traffic. */
  readonly queue?: QueueFigures
  /** By name, if the trace names tenants: those with most requests, and the others as one. */
  readonly tenants?: readonly TenantFigures[]
  /**
   * Requests that were never served, outside every tier: no worker can hold them, none is left, or the queue
   * refused them.
   */
  readonly refused: number
  /** Requests that ended with their worker. */
  readonly lost: number
  readonly spanMs: number
  readonly makespanMs: number
  /** makespan ÷ span of the arrivals. */
  readonly drain: number
}

/** What depends on the machine. */
export interface CellCost {
  readonly elapsedMs: number
  readonly cpuUsPerDecision: number
  readonly engineSteps: number
}

export interface CellRun {
  readonly result: CellResult
  readonly cost: CellCost
}

export interface CellProgress {
  readonly requestsDone: number
  /** Undefined if the source does not say. */
  readonly requestsExpected: number | undefined
  readonly simulatedMs: number
}

export interface ServedRequest {
  readonly trace: TraceRequest
  readonly worker: number
  readonly arrivalMs: number
  /** When it was sent to its worker. */
  readonly placedMs: number
  readonly firstTokenMs: number
  readonly endMs: number
  /** Prompt tokens that were cached. */
  readonly reusedTokens: number
}

export interface SimulateOptions {
  /** Called now and then, at most about ten times a second. */
  readonly onProgress?: (progress: CellProgress) => void
  /** Called at the end of every request that was served, in order of time; times are simulated. */
  readonly onServed?: (served: ServedRequest) => void
  /** Ends the run with its reason. */
  readonly signal?: AbortSignal
  /** Measures `CellCost`; the figures do not depend on it. Default: the real clock. */
  readonly clock?: Clock
}

/**
 * The form of `simulateCell`. A trace is given as it was recorded; the transformations of the spec are
 * applied here. It is read twice (an array, or a file of `openTrace`) if `copies` or `warmupShare` need its
 * size.
 */
export type SimulateCell = (
  spec: CellSpec,
  requests: TraceSource | ClosedLoop,
  options?: SimulateOptions,
) => Promise<CellRun>

/**
 * Requests that depend on answers: the next turn comes after the answer to the one before. It begins with
 * `first`, in order of arrival; what `onComplete` returns arrives at its `timestampMs`, which is not before
 * `atMs`. `timestampMs` is simulated time: speed, copies and spread of the spec do not apply.
 */
export interface ClosedLoop {
  readonly requestsExpected: number
  first(): Iterable<TraceRequest>
  /** The answer to `request` (the very object) ended. */
  onComplete(request: TraceRequest, atMs: number): TraceRequest | undefined
}
