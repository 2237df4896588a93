/** Arguments of engine usage. */

import type { ActorRef } from '@homing/actor'
import type { ReportedUsageMessage } from '@homing/actors/tracker'
import type { RouterSettings } from '@homing/config'

export interface EngineUsageArgs {
  readonly tracker: ActorRef<ReportedUsageMessage>
  /** From an answer to the next question, in milliseconds; above 0. */
  readonly intervalMs: number
  /** Longest wait for an answer, in milliseconds. */
  readonly timeoutMs: number
}

export type EngineUsageSettings = Pick<RouterSettings, 'engineMetricsIntervalMs' | 'probeTimeoutMs'>

/** Undefined: engines are not asked for their own figures. */
export function engineUsageArgsFromSettings(
  settings: EngineUsageSettings,
  parts: { readonly tracker: ActorRef<ReportedUsageMessage> },
): EngineUsageArgs | undefined {
  const { engineMetricsIntervalMs: intervalMs, probeTimeoutMs: timeoutMs } = settings
  return intervalMs === 0 ? undefined : { tracker: parts.tracker, intervalMs, timeoutMs }
}
