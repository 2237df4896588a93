/** Engine profile: what a step takes and what an engine holds, of a named profile or of constants. */

import { type StepWork, timingProfile } from '@homing/engine'
import type { CellSpec } from './cell-types.ts'

export interface EngineProfile {
  /** Milliseconds that a step takes. */
  stepMs(work: StepWork): number
  readonly kvCapacityTokens: number
  readonly stepTokensMax: number
  readonly sequencesMax: number
}

/** Constants in the formula of the named GPU profiles: see `timingProfile`. */
export function engineProfile(profile: CellSpec['profile']): EngineProfile {
  if (typeof profile === 'string') return timingProfile(profile)
  const { overheadMs, weightsMs, msPerToken, msPerTokenContext, msPerDecodeContext } = profile
  return {
    kvCapacityTokens: profile.kvCapacityTokens,
    stepTokensMax: profile.stepTokensMax,
    sequencesMax: profile.sequencesMax,
    stepMs: work =>
      overheadMs +
      Math.max(weightsMs, msPerToken * (work.prefillTokens + work.decodeRequests)) +
      msPerTokenContext * work.prefillAttention +
      msPerDecodeContext * work.decodeContextTokens,
  }
}
