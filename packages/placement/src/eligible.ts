/**
 * Eligible: the worker keys that may take a request, and why the others may not. A worker must:
 *
 *   serve the model  ─▶  be up  ─▶  not have failed the request  ─▶  be the one that the request names
 *                    ─▶  take this part of it (request-leg.ts)
 *                    ─▶  meet its constraints  ─▶  have room for its prompt  ─▶  not be ejected
 *                    ─▶  not be on trial
 *
 * A worker on trial is left out only if others are left, and if the request does not name it. The same holds
 * for ejected workers (worker-health.ts): if only these are left, those that failed least are candidates. A
 * request that may go anywhere is the trial of an ejected worker whose back-off is over, and goes there. A
 * request that is too long for all goes to those that take most, whose engine says so. A prompt that is known
 * only as text is taken to have a token in every two bytes, for the same reason: an engine that could have
 * taken it does no harm idle, one that cannot refuses the client.
 *
 * If none is left, the error names what was asked for and does not exist, or why each worker was left out. A
 * model that no worker lists may be one that a worker is still loading, or an adapter that engines load when
 * they are asked for it (`UnlistedModels`).
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import { type Fleet, loadingWorkers } from '@homing/fleet'
import { WorkerFilter } from '@homing/selection'
import type { Candidate } from './candidate.ts'
import {
  ModelNotFoundError,
  ModelNotListedYetError,
  NoWorkerError,
  PinNotAllowedError,
  PinnedWorkerError,
} from './errors.ts'
import { legReasonAgainst } from './request-leg.ts'
import type { RoutingRequest } from './routing-request.ts'
import type { WorkerHealth } from './worker-health.ts'

const ON_TRIAL = 'joined a moment ago: what it holds is not known yet'
const NO_SLOT = 'has no worker slot: there are more worker keys than slots; raise --worker-slots-max'
const TOO_LONG = 'prompt and answer may have more tokens than it takes (max_model_len)'
/** Of the tokens that a text is counted as (four bytes each): code and digits have more. */
const TEXT_TOKENS_FACTOR = 2

export interface Excluded {
  readonly worker: string
  readonly reason: string
}

export interface Eligible {
  readonly candidates: readonly Candidate[]
  readonly excluded: readonly Excluded[]
  /** Factors for the cost of each candidate; undefined: the request has no preferences. */
  readonly preferences: Float64Array | undefined
  /** The session is bound to this worker key, so it is the only candidate. */
  readonly boundWorker?: string
  /** The request is the trial of this worker: the others were left out only for that. */
  readonly trialOf?: string | undefined
}

/** What is known of failures. `mayTry`: the request may be the trial of an ejected worker. */
export interface KnownHealth {
  readonly health: WorkerHealth
  readonly nowMs: number
  readonly mayTry: boolean
}

/** What a name may be that no worker lists. */
export interface UnlistedModels {
  /** The base model whose adapter it is; undefined: it is none. */
  readonly adapterBase: string | undefined
  /** How long a worker that does not answer may still bring it, in milliseconds. */
  readonly loadingMsMax: number
  /** Unix milliseconds. */
  readonly wallMs: number
}

interface Unwell {
  readonly candidate: Candidate
  readonly reason: string
}

interface TooSmall {
  readonly candidate: Candidate
  readonly maxTokens: number
}

/** `isTrial`: for this request, workers on trial are candidates like all others. */
export function eligible(
  fleet: Fleet,
  request: RoutingRequest,
  isTrial = true,
  known?: KnownHealth,
  unlisted?: UnlistedModels,
): Eligible | ErrorRecord {
  const { model, pinnedInstanceId, pinnedRank, excludedWorkers, constraints, slice } = request
  const neededTokens = neededTokensOf(request)
  const filter = new WorkerFilter(constraints)
  if (pinnedInstanceId !== undefined && !filter.allows(pinnedInstanceId)) {
    return toErrorRecord(new PinNotAllowedError(pinnedInstanceId, constraints?.allowedInstanceIds ?? []))
  }
  const candidates: Candidate[] = []
  const unwell: Unwell[] = []
  const tooSmall: TooSmall[] = []
  const excluded: Excluded[] = []
  let isModelKnown = model === ''
  let isPinKnown = pinnedInstanceId === undefined && pinnedRank === undefined
  const listedName = listedNameOf(fleet, model, unlisted)
  for (const worker of fleet.workers) {
    const card = worker.models.find(({ name }) => name === listedName)
    if (model !== '' && card === undefined) continue
    const maxTokens = card?.maxModelTokens ?? Number.POSITIVE_INFINITY
    isModelKnown = true
    const isPinned =
      (pinnedInstanceId === undefined || worker.instanceId === pinnedInstanceId) &&
      (pinnedRank === undefined || worker.keys.some(key => key.dpRank === pinnedRank))
    if (isPinned) isPinKnown = true
    const reasonAgainst = filter.reasonAgainst(worker) ?? legReasonAgainst(request.leg, worker, fleet)
    const sickness = known?.health.reasonAgainst(worker.id, model, known.nowMs)
    if (worker.keys.length === 0 && worker.state === 'up') {
      excluded.push({ worker: worker.id, reason: NO_SLOT })
    }
    for (const key of worker.keys) {
      if (worker.state !== 'up')
        excluded.push({ worker: key.key, reason: `${worker.state}: ${worker.stateReason}` })
      else if (excludedWorkers.includes(worker.id))
        excluded.push({ worker: key.key, reason: 'failed this request' })
      else if (slice !== undefined && key.key !== slice.worker)
        excluded.push({ worker: key.key, reason: 'another worker has computed a part of the prompt' })
      else if (!isPinned || (pinnedRank !== undefined && key.dpRank !== pinnedRank)) {
        excluded.push({ worker: key.key, reason: 'the request names another worker' })
      } else if (reasonAgainst !== undefined) {
        excluded.push({ worker: key.key, reason: reasonAgainst })
      } else if (neededTokens > maxTokens) {
        tooSmall.push({ candidate: { worker, key }, maxTokens })
      } else if (sickness !== undefined) {
        unwell.push({ candidate: { worker, key }, reason: sickness })
      } else candidates.push({ worker, key })
    }
  }
  const largest = Math.max(...tooSmall.map(({ maxTokens }) => maxTokens))
  const areAllTooSmall = candidates.length === 0 && unwell.length === 0
  for (const { candidate, maxTokens } of tooSmall) {
    if (areAllTooSmall && maxTokens === largest) candidates.push(candidate)
    else excluded.push({ worker: candidate.key.key, reason: TOO_LONG })
  }
  const trialOf =
    known !== undefined && unwell.length > 0 ? judge(candidates, unwell, excluded, request, known) : undefined
  if (candidates.length > 0) {
    if (!isTrial && pinnedInstanceId === undefined) leaveOutTrials(candidates, excluded)
    const preferences = filter.prefers
      ? Float64Array.from(candidates, ({ worker }) => filter.preference(worker))
      : undefined
    return { candidates, excluded, preferences, ...(trialOf === undefined ? {} : { trialOf }) }
  }
  if (!isModelKnown && fleet.workers.some(worker => worker.models.length > 0)) {
    const loading = unlisted && loadingWorkers(fleet, unlisted.wallMs, unlisted.loadingMsMax)
    return toErrorRecord(
      loading !== undefined && loading.length > 0
        ? new ModelNotListedYetError(model, loading)
        : new ModelNotFoundError(model, modelNames(fleet)),
    )
  }
  if (!isPinKnown) return toErrorRecord(new PinnedWorkerError(pinnedInstanceId, pinnedRank))
  return toErrorRecord(new NoWorkerError(model, excluded))
}

/** Tokens of prompt and answer that a worker must have room for, at least one of the answer; 0: not known. */
function neededTokensOf(request: RoutingRequest): number {
  const { promptTokens, unknownPromptReason, textBlocksReason, estimate, outputTokensMax = 1 } = request
  if (unknownPromptReason !== undefined) return 0
  const outputTokens = Math.max(1, outputTokensMax)
  if (textBlocksReason !== undefined) return promptTokens * TEXT_TOKENS_FACTOR + outputTokens
  return (estimate === undefined ? promptTokens : fullTokens(request)) + outputTokens
}

/** Of the tokens that are known: of several prompts, the first has its place for itself. */
function fullTokens({ localHashes, blockSizeTokens }: RoutingRequest): number {
  return (localHashes.length / 2) * blockSizeTokens
}

/** The name under which workers that may take the request list its model. */
function listedNameOf({ workers }: Fleet, model: string, unlisted: UnlistedModels | undefined): string {
  const base = unlisted?.adapterBase
  if (base === undefined || model === '') return model
  return workers.some(({ models }) => models.some(({ name }) => name === model)) ? model : base
}

/**
 * Leaves out ejected workers if others are left, unless the request is the trial of one of them; which one,
 * if healthy workers were left out for it.
 */
function judge(
  candidates: Candidate[],
  unwell: readonly Unwell[],
  excluded: Excluded[],
  { model, pinnedInstanceId, pinnedRank, excludedWorkers }: RoutingRequest,
  { health, nowMs, mayTry }: KnownHealth,
): string | undefined {
  const isFree = pinnedInstanceId === undefined && pinnedRank === undefined && excludedWorkers.length === 0
  const tried =
    mayTry && isFree
      ? unwell.find(({ candidate: { worker } }) => health.isTrialDue(worker.id, model, nowMs))?.candidate
          .worker
      : undefined
  const hasOthers = candidates.length > 0
  if (tried !== undefined) {
    const reason = `the request is the trial of ${tried.id}`
    for (const { key } of candidates.splice(0)) excluded.push({ worker: key.key, reason })
  }
  const shares = unwell.map(({ candidate: { worker } }) => health.failedShare(worker.id))
  const least = Math.min(...shares)
  const areAllUnwell = tried === undefined && candidates.length === 0
  unwell.forEach(({ candidate, reason }, i) => {
    const isTaken = tried === undefined ? areAllUnwell && shares[i] === least : candidate.worker === tried
    if (isTaken) candidates.push(candidate)
    else excluded.push({ worker: candidate.key.key, reason })
  })
  return hasOthers ? tried?.id : undefined
}

/** Leaves out workers on trial, if others are left. */
function leaveOutTrials(candidates: Candidate[], excluded: Excluded[]): void {
  const others = candidates.filter(({ worker }) => worker.isOnTrial !== true)
  if (others.length === 0 || others.length === candidates.length) return
  for (const { worker, key } of candidates) {
    if (worker.isOnTrial === true) excluded.push({ worker: key.key, reason: ON_TRIAL })
  }
  candidates.splice(0, candidates.length, ...others)
}

function modelNames(fleet: Fleet): string[] {
  const names = new Set<string>()
  for (const worker of fleet.workers) for (const { name } of worker.models) names.add(name)
  return [...names].sort()
}
