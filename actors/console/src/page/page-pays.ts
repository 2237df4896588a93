/** The section `pays` of the page: what the last hour has brought, as the router has summed it. */

import type { HourReport } from '@homing/actors/router'
import type { WorkerLoad } from '@homing/actors/tracker'
import { AUTO_CONSTANTS, KNEES } from '@homing/load'
import type { PaysSection } from '@homing/page'
import type { GuardStatus } from '@homing/placement'
import type { OutcomeMeans } from '@homing/selection'

/** Rows on the page; the metrics have all of them. */
const WORSE_WORKERS_MAX = 16
const FAILURE_TIMES = AUTO_CONSTANTS.guard.GUARD_OUTLIER_TIMES

export function paysSection(
  hour: HourReport,
  guard: GuardStatus | undefined,
  loads: readonly WorkerLoad[],
): PaysSection {
  const savedMs = savedEngineMs(hour, loads)
  return {
    span_ms: Math.round(hour.spanMs / 1000) * 1000,
    minutes: hour.minutes.map(minute => ({
      requests: minute.requests,
      prompt_tokens: minute.promptTokens,
      cached_tokens: minute.cachedTokens,
    })),
    requests: hour.requests,
    prompt_tokens: hour.promptTokens,
    cached_tokens: hour.cachedTokens,
    saved_seconds: savedMs === undefined ? null : savedMs / 1000,
    prediction_error: hour.predictionError ?? null,
    first_tokens: hour.firstTokens,
    first_token_ms: hour.firstTokenMs ?? null,
    guarded: hour.guarded,
    regret_ms: {
      round_robin: hour.regretMs['round-robin'],
      least_loaded: hour.regretMs['least-loaded'],
      product: hour.regretMs.product,
    },
    guard:
      guard === undefined
        ? null
        : {
            phase: guard.phase,
            share: guard.share,
            control: armOf(guard.control),
            affinity: armOf(guard.affinity),
            worse_by: guard.worseBy,
            is_quiet: guard.isQuiet,
            extra_tokens: guard.extraTokens,
            prompt_tokens: guard.promptTokens,
            worse_workers: worseWorkers(guard),
          },
  }
}

const armOf = (arm: GuardStatus['control']): NonNullable<PaysSection['guard']>['control'] => ({
  decisions: arm.decisions,
  outcomes: arm.outcomes,
  corrected_ttft: arm.outcomes === 0 ? null : arm.correctedTtft,
  finished: arm.finished,
  failed: arm.failed,
  corrected_duration: arm.correctedDuration === 0 ? null : arm.correctedDuration,
  error_share: arm.finished + arm.failed === 0 ? null : arm.errorShare,
})

/** The worst of the workers at which requests of the policy end worse. */
function worseWorkers({ workers }: GuardStatus): NonNullable<PaysSection['guard']>['worse_workers'] {
  return workers
    .filter(({ isWorseThanControl, isWorseThanFleet }) => isWorseThanControl || isWorseThanFleet)
    .sort(({ policy: one }, { policy: other }) => badness(other) - badness(one))
    .slice(0, WORSE_WORKERS_MAX)
    .map(({ worker, policy, isWorseThanControl, isWorseThanFleet }) => ({
      worker,
      than_control: isWorseThanControl,
      than_fleet: isWorseThanFleet,
      error_share: policy.errorShare,
      corrected_ttft: policy.correctedTtft === 0 ? null : policy.correctedTtft,
      corrected_duration: policy.correctedDuration === 0 ? null : policy.correctedDuration,
    }))
}

/** A failure counts more than any time. */
function badness({ errorShare, correctedTtft, correctedDuration }: OutcomeMeans): number {
  return FAILURE_TIMES * errorShare + correctedTtft + correctedDuration
}

/**
 * What the cached tokens would have taken at a worker of the fleet, by what was learned of their speed. A
 * step takes no less below the knee: of a prompt that is cached but for few tokens, less is saved.
 */
function savedEngineMs(
  { sparedTokens, cachedPairs }: HourReport,
  loads: readonly WorkerLoad[],
): number | undefined {
  const speeds = loads.map(({ learned }) => learned.prefill)
  if (speeds.length === 0) return undefined
  const mean = (at: 1 | 2): number =>
    speeds.reduce((sum, { coefficients }) => sum + coefficients[at], 0) / speeds.length
  // The knee is that of the fleet.
  const spared = sparedTokens[KNEES.indexOf(speeds[0]!.kneeTokens)]!
  return spared * mean(1) + cachedPairs * mean(2)
}
