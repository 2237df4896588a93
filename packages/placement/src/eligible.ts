/**
 * Eligible: the worker keys that may take a request, and why the others may not. A worker must:
 *
 *   serve the model  ─▶  be up  ─▶  not have failed the request  ─▶  be the one that the request names
 *                    ─▶  meet its constraints  ─▶  not be on trial
 *
 * A worker on trial is left out only if others are left, and if the request does not name it.
 *
 * If none is left, the error names what was asked for and does not exist, or why each worker was left out.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { WorkerFilter } from '@homing/selection'
import type { Candidate } from './candidate.ts'
import { ModelNotFoundError, NoWorkerError, PinNotAllowedError, PinnedWorkerError } from './errors.ts'
import type { RoutingRequest } from './routing-request.ts'

const ON_TRIAL = 'joined a moment ago: what it holds is not known yet'

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
}

/** `isTrial`: for this request, workers on trial are candidates like all others. */
export function eligible(fleet: Fleet, request: RoutingRequest, isTrial = true): Eligible | ErrorRecord {
  const { model, pinnedInstanceId, pinnedRank, excludedWorkers, constraints } = request
  const filter = new WorkerFilter(constraints)
  if (pinnedInstanceId !== undefined && !filter.allows(pinnedInstanceId)) {
    return toErrorRecord(new PinNotAllowedError(pinnedInstanceId, constraints?.allowedInstanceIds ?? []))
  }
  const candidates: Candidate[] = []
  const excluded: Excluded[] = []
  let isModelKnown = model === ''
  let isPinKnown = pinnedInstanceId === undefined && pinnedRank === undefined
  for (const worker of fleet.workers) {
    if (model !== '' && !worker.models.some(card => card.name === model)) continue
    isModelKnown = true
    const isPinned =
      (pinnedInstanceId === undefined || worker.instanceId === pinnedInstanceId) &&
      (pinnedRank === undefined || worker.keys.some(key => key.dpRank === pinnedRank))
    if (isPinned) isPinKnown = true
    const reasonAgainst = filter.reasonAgainst(worker)
    for (const key of worker.keys) {
      if (worker.state !== 'up')
        excluded.push({ worker: key.key, reason: `${worker.state}: ${worker.stateReason}` })
      else if (excludedWorkers.includes(worker.id))
        excluded.push({ worker: key.key, reason: 'failed this request' })
      else if (!isPinned || (pinnedRank !== undefined && key.dpRank !== pinnedRank)) {
        excluded.push({ worker: key.key, reason: 'the request names another worker' })
      } else if (reasonAgainst !== undefined) {
        excluded.push({ worker: key.key, reason: reasonAgainst })
      } else candidates.push({ worker, key })
    }
  }
  if (candidates.length > 0) {
    if (!isTrial && pinnedInstanceId === undefined) leaveOutTrials(candidates, excluded)
    const preferences = filter.prefers
      ? Float64Array.from(candidates, ({ worker }) => filter.preference(worker))
      : undefined
    return { candidates, excluded, preferences }
  }
  if (!isModelKnown && fleet.workers.some(worker => worker.models.length > 0)) {
    return toErrorRecord(new ModelNotFoundError(model, modelNames(fleet)))
  }
  if (!isPinKnown) return toErrorRecord(new PinnedWorkerError(pinnedInstanceId, pinnedRank))
  return toErrorRecord(new NoWorkerError(model, excluded))
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
