/** Arguments of the decision log. */

import type { RouterSettings } from '@homing/config'
import { type LoggedSelection, loggedSelection, type SelectionInForce } from '@homing/trace'

export interface DecisionLogArgs {
  readonly path: string
  readonly fileBytesMax: number
  readonly filesMax: number
  /** For the header. */
  readonly selection: LoggedSelection
  /** Different blocks that keep their number for sure; default BLOCKS_REMEMBERED. */
  readonly blocksRemembered?: number
}

export type DecisionLogSettings = SelectionInForce &
  Pick<RouterSettings, 'decisionLogFile' | 'decisionLogBytesMax' | 'decisionLogFilesMax'>

/** Undefined: no decision log is written. `customPolicy`: name of the selection in place of the policy. */
export function decisionLogArgsFromSettings(
  settings: DecisionLogSettings,
  customPolicy: string | undefined,
): DecisionLogArgs | undefined {
  const { decisionLogFile, decisionLogBytesMax, decisionLogFilesMax } = settings
  if (decisionLogFile === undefined) return undefined
  return {
    path: decisionLogFile,
    fileBytesMax: decisionLogBytesMax,
    filesMax: decisionLogFilesMax,
    selection: loggedSelection(settings, customPolicy),
  }
}
