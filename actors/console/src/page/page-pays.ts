/** The section `pays` of the page: what the last hour has brought, as the router has summed it. */

import type { HourReport } from '@homing/actors/router'
import type { WorkerLoad } from '@homing/actors/tracker'
import { KNEES } from '@homing/load'
import type { PaysSection } from '@homing/page'
import type { GuardStatus } from '@homing/placement'

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
          },
  }
}

const armOf = ({ decisions, outcomes, correctedTtft }: GuardStatus['control']) => ({
  decisions,
  outcomes,
  corrected_ttft: outcomes === 0 ? null : correctedTtft,
})

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
