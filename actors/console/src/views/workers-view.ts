/** The JSON of `/workers`, in wire names: one function per object. */

import type { FleetReport } from '@homing/actors/directory'
import type { ShardStatus } from '@homing/actors/indexer'
import type { CheckpointStatus } from '@homing/actors/listener'
import type { TokenizerPath } from '@homing/actors/tokenizer'
import type { WorkerLoad, WorkerOddMark } from '@homing/actors/tracker'
import { iso, milliseconds, significant } from '@homing/base'
import {
  type PrefillState,
  prefillStates,
  type Sourced,
  type WorkerKeyRecord,
  type WorkerRecord,
} from '@homing/fleet'
import type { LearnedSpeed } from '@homing/load'
import type { HealthStatus } from '@homing/placement'
import type { KeyAudit } from '@homing/selection'

const sourced = <T>(value: Sourced<T> | undefined) =>
  value === undefined ? null : { value: value.value, source: value.source }

/** What a worker is whose record does not say. */
const ROLE_DEFAULT = { value: 'both', source: 'default' } as const
const HANDOVER_DEFAULT = { value: 'kv_transfer', source: 'default' } as const

/** The answer of `/workers`. */
export interface WorkersView {
  readonly version: number
  readonly workers: readonly WorkerView[]
}

export type WorkerView = ReturnType<typeof workerView>

/** What the views of workers are made from. */
export interface WorkersState {
  readonly report: FleetReport
  /** By shard; undefined: it does not answer. */
  readonly shards: readonly (ShardStatus | undefined)[]
  readonly loads: readonly WorkerLoad[]
  readonly audits: readonly KeyAudit[]
  readonly tokenizers: readonly TokenizerPath[]
  readonly healths: readonly HealthStatus[]
}

/** One row per worker; its worker keys inside, each with trust, event age, blocks held and load. */
export function* workerViews(state: WorkersState): Generator<WorkerView> {
  const known: Known = {
    report: state.report,
    shards: state.shards,
    healthById: new Map(state.healths.map(health => [health.worker, health])),
    loadBySlot: new Map(state.loads.map(load => [load.workerSlot, load])),
    prefillStates: prefillStates(state.report.fleet),
    auditByKey: new Map(state.audits.map(audit => [audit.worker, audit])),
    // The first one that reads a model, as the last entry of a map.
    tokenizerByModel: new Map(
      state.tokenizers.toReversed().flatMap(path => path.models.map(model => [model, path] as const)),
    ),
  }
  for (const worker of state.report.fleet.workers) yield workerView(worker, known)
}

interface Known {
  readonly report: FleetReport
  readonly shards: readonly (ShardStatus | undefined)[]
  readonly healthById: ReadonlyMap<string, HealthStatus>
  readonly loadBySlot: ReadonlyMap<number, WorkerLoad>
  readonly auditByKey: ReadonlyMap<string, KeyAudit>
  readonly tokenizerByModel: ReadonlyMap<string, TokenizerPath>
  readonly prefillStates: ReadonlyMap<string, PrefillState>
}

function workerView(worker: WorkerRecord, known: Known) {
  return {
    id: worker.id,
    instance_id: worker.instanceId,
    url: worker.origin,
    called_at: worker.calledAt ?? null,
    state: worker.state,
    state_reason: worker.stateReason,
    health: healthView(worker, known.healthById.get(worker.id)),
    engine: worker.engine,
    engine_version: worker.engineVersion,
    engine_started_at:
      worker.processStartSeconds === undefined ? null : iso(1000 * worker.processStartSeconds),
    models: worker.models.map(card => ({
      id: card.name,
      parent: card.base ?? null,
      root: card.root ?? null,
      max_model_len: card.maxModelTokens ?? null,
      tokenizer: tokenizerView(known.tokenizerByModel.get(card.name)),
    })),
    block_size: sourced(worker.blockSizeTokens),
    max_num_batched_tokens: sourced(worker.maxBatchedTokens),
    kv_blocks: sourced(worker.kvBlocks),
    data_parallel_size: sourced(worker.ranks),
    tokenize: worker.canTokenize,
    taints: worker.taints,
    role: sourced(worker.role ?? ROLE_DEFAULT),
    handover: sourced(worker.handover ?? HANDOVER_DEFAULT),
    bootstrap: bootstrapView(worker),
    prefill_state: prefillStateOf(worker, known.prefillStates),
    worker_keys: worker.keys.map(key => keyView(worker, key, known)),
  }
}

/** Where a decode leg meets its prefill leg at this worker, if its engine is found so. */
function bootstrapView({ bootstrap }: WorkerRecord) {
  return bootstrap === undefined ? null : { host: bootstrap.host, port: sourced(bootstrap.port) }
}

/** By model; empty: none of its models has prefill and decode workers. */
function prefillStateOf({ models }: WorkerRecord, states: ReadonlyMap<string, PrefillState>) {
  if (states.size === 0) return {}
  const own = models.flatMap(({ name }) => {
    const state = states.get(name)
    return state === undefined ? [] : [[name, state] as const]
  })
  return Object.fromEntries(own)
}

/** How it serves the requests that it gets: undefined, it has not failed any. One that is down gets none. */
function healthView({ state, stateReason }: WorkerRecord, health: HealthStatus | undefined) {
  const isDown = state === 'down' || state === 'probing'
  return {
    state: isDown ? 'down' : (health?.state ?? 'up'),
    reason: isDown ? stateReason : (health?.reason ?? null),
    trial_in_ms: milliseconds(health?.trialInMs ?? 0),
    ejections: health?.ejections ?? 0,
    failed: health?.failed ?? 0,
    of_last: health?.outcomes ?? 0,
  }
}

/** Undefined: engines are asked, or it is not loaded yet. */
function tokenizerView(tokenizer: TokenizerPath | undefined): object | null {
  if (tokenizer === undefined) return null
  const { directory, path, reason } = tokenizer
  return { directory, path, reason: reason ?? null }
}

function keyView(worker: WorkerRecord, key: WorkerKeyRecord, known: Known) {
  const { report, shards } = known
  const load = known.loadBySlot.get(key.workerSlot)
  const audit = known.auditByKey.get(key.key)
  const source = report.sources[key.workerSlot]
  return {
    worker: key.key,
    dp_rank: key.dpRank,
    trust: key.trust,
    trust_reason: key.trustReason,
    trust_since: iso(key.trustSinceMs),
    audit: auditView(audit),
    last_event_age_ms: milliseconds(source?.lastEventAgeMs),
    blocks_held: worker.state === 'up' ? (shards[key.shard]?.blocksHeld[key.workerSlot] ?? 0) : 0,
    other_blocks: (worker.state === 'up' && shards[key.shard]?.layersHeld[key.workerSlot]) || {},
    load: {
      active_blocks: load?.activeBlocks ?? 0,
      prefill_tokens: load?.activePrefillTokens ?? 0,
      requests: load?.activeRequests ?? 0,
      engine_kv_usage: load?.reported?.share ?? null,
      engine_kv_usage_reason: load?.reported?.reason ?? null,
    },
    learned: learnedView(load?.learned),
    odd: (load?.odd ?? []).map(oddView),
    disbelieved_figures: load?.disbelieved ?? 0,
    events:
      key.eventsEndpoint === undefined
        ? null
        : {
            endpoint: key.eventsEndpoint,
            replay_endpoint: key.replayEndpoint ?? null,
            topic: key.topic,
            shard: key.shard,
            state: source?.state ?? null,
            path: source?.path ?? null,
            last_sequence: source?.lastSequence ?? null,
            epoch: source?.epoch ?? null,
            batches: source?.batches ?? null,
            events: source?.events ?? null,
            gaps: source?.gaps ?? null,
            replays: source?.replays ?? null,
            restarts: source?.restarts ?? null,
            contradictions: source?.contradictions ?? null,
            duplicates: source?.duplicates ?? null,
            malformed_frames: source?.malformedFrames ?? null,
            skipped_events: source?.skippedEvents ?? null,
            checkpoint: checkpointView(source?.checkpoint),
          },
  }
}

/**
 * What policy auto takes a step for: `source` tells a worker's own figures from those of the fleet and from
 * assumptions.
 */
function learnedView(learned: LearnedSpeed | undefined) {
  if (learned === undefined) return null
  const { prefill, decode } = learned
  const [step, token, pair] = prefill.coefficients
  const [decodeStep, request, held] = decode.coefficients
  return {
    prefill: {
      source: prefill.source,
      observations: prefill.observations,
      ms_per_step: significant(step),
      ms_per_token: significant(token),
      ms_per_million_pairs: significant(pair * 1e6),
      tokens_per_step_min: prefill.kneeTokens,
    },
    decode: {
      source: decode.source,
      observations: decode.observations,
      ms_per_step: significant(decodeStep),
      ms_per_request: significant(request),
      ms_per_thousand_tokens_held: significant(held * 1e3),
    },
  }
}

/** Why what was learned of a worker is far from what it should be. */
function oddView({ figure, times, against, sinceMs }: WorkerOddMark) {
  return { figure, times: significant(times), against, since: iso(sinceMs) }
}

/** Undefined: the listener did not answer in time. */
function checkpointView(checkpoint: CheckpointStatus | undefined): object | null {
  if (checkpoint === undefined) return null
  return {
    resumed_sequence: checkpoint.resumedSequence ?? null,
    refusal: checkpoint.refusal ?? null,
    saved_sequence: checkpoint.savedSequence ?? null,
    saved_age_ms: checkpoint.savedAgeMs ?? null,
    saves: checkpoint.saves,
    failed_saves: checkpoint.failedSaves,
  }
}

/** How the predictions for a worker key have fared. `waiting`: no answer to compare yet. */
function auditView(audit: KeyAudit | undefined) {
  return {
    state: audit?.state ?? 'waiting',
    requests: audit?.requests ?? 0,
    predicted_tokens: audit?.predictedTokens ?? 0,
    delivered_tokens: audit?.deliveredTokens ?? 0,
    over_predictions: audit?.overPredictions ?? 0,
    under_predictions: audit?.underPredictions ?? 0,
    prompt_differences: audit?.promptDifferences ?? 0,
    precision: measured(audit?.precision, audit?.sampleRequests),
    sample_requests: audit?.sampleRequests ?? 0,
    guess_precision: measured(audit?.guessPrecision, audit?.guessSampleRequests),
    guess_sample_requests: audit?.guessSampleRequests ?? 0,
  }
}

/** Null where no request was measured. */
function measured(ratio: number | undefined, requests: number | undefined): number | null {
  return ratio === undefined || requests === 0 ? null : ratio
}
