/**
 * Sections: the router's data for the page, each section as one server-sent event. Wire names, bounded lists;
 * entries that do not fit are counted. The console makes them, the browser draws them, and both are checked
 * against these types.
 *
 * Figures are those of the JSON routes, under the same names.
 */

/** Worker keys that are drawn; those that want attention come first. */
export const KEYS_SHOWN = 96
/** Models with prefill and decode apart that are named. */
export const APART_SHOWN = 8
/** Decisions that are listed. */
export const DECISIONS_SHOWN = 40
/** Candidates with a bar in the line of a decision: the winner, the runner-up and the largest overlaps. */
export const CANDIDATES_SHOWN = 12
/** Prefixes that are drawn. */
export const MAP_NODES = 160

/** By the name of the event. */
export interface PageSections {
  readonly beat: BeatSection
  readonly fleet: FleetSection
  readonly decisions: DecisionsSection
  readonly map: MapSection
  readonly pays: PaysSection
  readonly waiting: WaitingSection
  readonly house: HouseSection
  readonly whatIf: WhatIfSection
}

/** A sign of life, with every answer. */
export interface BeatSection {
  /** The router's clock; the page counts ages from it, not from the browser's clock. */
  readonly now: string
  /** Another one: the router, or its console, has started anew. */
  readonly life: string
  readonly tabs: number
  readonly tabs_max: number
  /** What one update costs the router's thread at most, and how long it pauses between two. */
  readonly build_ms: number
  readonly interval_ms: number
  /** Owners that did not answer in time; their sections are old. */
  readonly silent: readonly string[]
}

export interface FleetSection {
  readonly version: number
  readonly workers: number
  readonly workers_up: number
  readonly keys_total: number
  readonly keys_left_out: number
  /** Keys by their trust, all of them. */
  readonly trust: Readonly<Record<string, number>>
  /** Models with workers that take a part of a request only: at most APART_SHOWN. */
  readonly apart: readonly { readonly model: string; readonly state: string }[]
  readonly keys: readonly FleetKey[]
}

/** One worker key, as in `GET /workers`. */
export interface FleetKey {
  readonly worker: string
  readonly id: string
  readonly url: string
  readonly state: string
  readonly state_reason: string
  readonly engine: string | null
  readonly models: readonly string[]
  /** Which part of a request it takes: 'both', 'prefill' or 'decode'. */
  readonly role: string
  readonly handover: string
  readonly trust: string
  readonly trust_reason: string
  readonly trust_since: string
  readonly block_size: number | null
  readonly kv_blocks: number | null
  readonly blocks_held: number
  readonly active_blocks: number
  readonly prefill_tokens: number
  readonly requests: number
  readonly events: number | null
  readonly last_event_age_ms: number | null
  readonly audit: {
    readonly state: string
    readonly requests: number
    readonly predicted_tokens: number
    readonly delivered_tokens: number
    readonly precision: number | null
  }
  readonly learned: {
    readonly prefill_source: string
    readonly ms_per_token: number
    readonly decode_source: string
    readonly ms_per_step: number
  } | null
  /** Why what was learned of it is far from what it should be; empty: it is not. */
  readonly odd: readonly {
    readonly figure: string
    readonly times: number
    readonly against: string
    readonly since: string
  }[]
}

export interface DecisionsSection {
  /** The latest first. */
  readonly decisions: readonly DecisionRow[]
}

/** The short form of a receipt. */
export interface DecisionRow {
  readonly id: string
  readonly at: string
  readonly model: string
  readonly prompt_tokens: number
  readonly block_size: number
  readonly prompt_blocks: number
  readonly worker: string
  readonly runner_up: string | null
  /** How much more the runner-up would have cost, in `cost_unit`; null: there is none. */
  readonly margin: number | null
  readonly cost_unit: string
  readonly rule: string
  readonly trust: string
  readonly overlap_blocks: number
  readonly bars: readonly DecisionBar[]
  readonly candidates: number
  readonly predicted_ms: number | null
  readonly first_byte_ms: number | null
  readonly cached_tokens: number | null
  /** `open` until its answer has ended. */
  readonly outcome: string
  /** An experiment of the guard, by its arm. */
  readonly arm: string | null
  readonly waited_ms: number | null
}

export interface DecisionBar {
  readonly worker: string
  readonly overlap_blocks: number
}

export interface WaitingSection {
  readonly is_on: boolean
  readonly requests: number
  readonly requests_max: number
  readonly prompt_tokens: number
  readonly prompt_tokens_max: number
  readonly models: readonly {
    readonly model: string
    readonly worker_keys: number
    readonly requests: number
    readonly expected_wait_ms: number | null
    readonly classes: readonly PageWaitingRow[]
    readonly tenants: readonly PageWaitingTenant[]
    readonly tenants_left_out: number
  }[]
  readonly models_left_out: number
}

export interface PageWaitingRow {
  readonly name: string
  readonly requests: number
  readonly uncached_tokens: number
  readonly oldest_ms: number | null
  readonly served: number
  readonly share: number | null
  /** By reason. */
  readonly refused: Readonly<Record<string, number>>
}

export interface PageWaitingTenant extends PageWaitingRow {
  readonly weight: number
}

export interface HouseSection {
  readonly threads: readonly HouseThread[]
  readonly actors: readonly HouseActor[]
  readonly left_out: number
  /** Of the main thread, over the last interval; null: not measured here. */
  readonly loop_delay_ms: { readonly p50: number; readonly p99: number; readonly max: number } | null
  readonly rss_bytes: number
}

export interface HouseThread {
  readonly thread: string
  readonly state: string
  readonly lives: number
  readonly answered: boolean
  readonly actors: number
  readonly handled: number
  readonly mailbox_high_water: number
  readonly busy_ms: number
  readonly heap_used_bytes: number
  readonly heap_limit_bytes: number
}

export interface HouseActor {
  readonly name: string
  readonly thread: string
  readonly state: string
  readonly restarts: number
  readonly mailbox_depth: number
  readonly mailbox_high_water: number
  readonly children: readonly HouseActor[]
}

/** What the last hour has brought. */
export interface PaysSection {
  /** An hour, or the time since the router began. */
  readonly span_ms: number
  /** The oldest first; the last one is not over. */
  readonly minutes: readonly {
    readonly requests: number
    readonly prompt_tokens: number
    readonly cached_tokens: number
  }[]
  readonly requests: number
  /** Prompt tokens of answers whose engine reports cached tokens. */
  readonly prompt_tokens: number
  readonly cached_tokens: number
  /** Engine time that cached tokens would have taken; null: no speed is known. */
  readonly saved_seconds: number | null
  /** What first tokens were off from their prediction, as a share. */
  readonly prediction_error: number | null
  readonly first_tokens: number
  readonly first_token_ms: { readonly p50: number; readonly p90: number; readonly p99: number } | null
  /** Decisions that other rules are compared with, and the sums of their regrets. */
  readonly guarded: number
  readonly regret_ms: Readonly<Record<string, number>>
  readonly guard: {
    readonly phase: string
    readonly share: number
    readonly control: GuardArmFigures
    readonly affinity: GuardArmFigures
    /** How much worse affinity is by the rule of the guard, in mean times; below 0, better. */
    readonly worse_by: number
    /** Nothing was found for an hour, so experiments have a budget. */
    readonly is_quiet: boolean
    /** Prompt tokens of all decisions, and those computed only because control decided. */
    readonly prompt_tokens: number
    readonly extra_tokens: number
    /** Workers at which requests of the policy end worse than those of control, or than in the fleet. */
    readonly worse_workers: readonly {
      readonly worker: string
      readonly than_control: boolean
      readonly than_fleet: boolean
      readonly error_share: number
      readonly corrected_ttft: number | null
      readonly corrected_duration: number | null
    }[]
  } | null
}

export interface GuardArmFigures {
  readonly decisions: number
  readonly outcomes: number
  readonly corrected_ttft: number | null
  /** Whole answers, and requests that their workers failed. */
  readonly finished: number
  readonly failed: number
  readonly corrected_duration: number | null
  /** Of the last experiments. */
  readonly error_share: number | null
}

/** The largest cached prefixes, as a tree: the page's picture of the prefix index. */
export interface MapSection {
  /** Tokens of a block, where all workers agree; null: lengths are in blocks. */
  readonly block_size: number | null
  /** Copies of blocks at all workers: those that are drawn add up to less. */
  readonly blocks: number
  /** False: of a large index a part was looked at, and sizes are estimates. */
  readonly is_whole: boolean
  /** Worker keys listed one by one: those with most blocks. */
  readonly workers: readonly string[]
  /** All worker keys of the fleet. */
  readonly workers_total: number
  /** Parents before their children. */
  readonly nodes: readonly MapNode[]
  /** Null: no worker has said anything of experts or of pooled memory. */
  readonly pools: MapPools | null
}

/** Blocks by state in pooled memory; a block counts once for each worker key that has said so. */
export interface PoolStates {
  readonly local_gpu: number
  readonly in_transit: number
  readonly cxl_pooled: number
  readonly evicted: number
}

/** What labels say of all blocks, also of those that are not drawn. */
export interface MapPools {
  readonly states: PoolStates
  /** Of `cxl_pooled`: those of workers that have left. */
  readonly orphans: number
  /** Blocks with an expert. */
  readonly labelled_blocks: number
  /** False: pools and workers are from a part of the blocks, and their figures are estimates. */
  readonly is_whole: boolean
  /** Those with most blocks; `local_gpu` of them is 0. */
  readonly pools: readonly MapPool[]
  readonly pools_total: number
}

/** Workers that reach what is pooled: those that say so, and those that these name. */
export interface Reached {
  readonly reached_by: readonly string[]
  readonly reached_by_total: number
}

export interface MapPool extends Reached {
  /** Null: the blocks name no pool. */
  readonly id: number | null
  readonly states: PoolStates
  readonly orphans: number
}

/** What labels say of the blocks of a node. */
export interface MapNodePools extends Reached {
  readonly states: PoolStates
  /** Pools that they are in, or on their way to. */
  readonly pools: readonly number[]
  readonly pools_total: number
  readonly labelled_blocks: number
  readonly experts: readonly { readonly layer: number; readonly expert: number }[]
  readonly experts_total: number
}

export interface MapNode {
  /** Position in `nodes`; −1: prompts begin with it. */
  readonly parent: number
  /** Hash of its first block: 16 hexadecimal digits, no text. */
  readonly hash: string
  /** Blocks before it, and its own. */
  readonly depth: number
  readonly length: number
  /** Positions in `workers` of those that hold it. */
  readonly holders: readonly number[]
  /** All worker keys that hold it. */
  readonly holders_total: number
  /** Copies of it and all below it; the same for each of `workers`. */
  readonly blocks: number
  readonly by_worker: readonly number[]
  /** Null: labels say nothing of its blocks. */
  readonly pools: MapNodePools | null
}

/** As `GET /what_if` has it. */
export interface WhatIfSection {
  /** False: requests are not kept (--what-if-minutes 0). */
  readonly is_on: boolean
  readonly state: 'idle' | 'running' | 'done' | 'cancelled' | 'failed'
  readonly kept: {
    readonly requests: number
    readonly bytes: number
    readonly bytes_max: number
    readonly minutes_max: number
    readonly dropped_requests: number
    readonly since: string | null
  }
  readonly cpu_share: number
  readonly timeout_s: number
  /** The one that runs, or the last. */
  readonly run: WhatIfRunRow | null
  readonly answer: WhatIfAnswerRow | null
  readonly error: string | null
}

export interface WhatIfRunRow {
  readonly id: string
  readonly started_at: string
  readonly elapsed_s: number
  readonly minutes: number
  readonly profile: string | null
  readonly anyway: boolean
  /** 0: its thread is being started. */
  readonly step: number
  readonly steps: number
  readonly what: string
  readonly requests: number
  readonly cpu_s: number
}

export interface WhatIfAnswerRow {
  readonly model: string
  readonly requests: number
  readonly span_s: number
  readonly fit: {
    readonly is_good: boolean
    readonly text: string
    readonly faults: readonly string[]
    readonly profile: string
    readonly compared_requests: number
    readonly ttft_ms_seen: number
    readonly ttft_ms_simulated: number
    readonly hit_rate_seen: number
    readonly hit_rate_simulated: number
  }
  /** "as it is" first; empty where the fit is poor. */
  readonly rows: readonly WhatIfFleetRow[]
  readonly notes: readonly string[]
}

/** A fleet that was simulated. */
export interface WhatIfFleetRow {
  readonly name: string
  readonly workers: number
  readonly policy: string
  readonly kv_tokens: number
  readonly ttft_ms_mean: number
  readonly ttft_ms_p50: number
  readonly ttft_ms_p90: number
  readonly ttft_ms_p99: number
  /** Ratio of the mean to the mean of "as it is". */
  readonly ttft_ratio: number
  readonly e2e_ms_mean: number
  readonly hit_rate: number
  readonly computed_tokens: number
  readonly unserved_requests: number
}
