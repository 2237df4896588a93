/** Arguments of engine usage. */

import type { ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { ReportedUsageMessage } from '@homing/actors/tracker'
import type { RouterSettings } from '@homing/config'

export interface EngineUsageArgs {
  readonly tracker: ActorRef<ReportedUsageMessage>
  readonly directory: ActorRef<DirectoryMessage>
  /** From an answer to the next question, in milliseconds; above 0. */
  readonly intervalMs: number
  /** Longest wait for an answer, in milliseconds. */
  readonly timeoutMs: number
}

export type EngineUsageSettings = Pick<RouterSettings, 'engineMetricsIntervalMs' | 'probeTimeoutMs'>

/** Undefined: engines are not asked for their own figures. */
export function engineUsageArgsFromSettings(
  settings: EngineUsageSettings,
  parts: Pick<EngineUsageArgs, 'tracker' | 'directory'>,
): EngineUsageArgs | undefined {
  const { engineMetricsIntervalMs: intervalMs, probeTimeoutMs: timeoutMs } = settings
  return intervalMs === 0 ? undefined : { ...parts, intervalMs, timeoutMs }
}
