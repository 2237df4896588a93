/** Arguments of what-if, from the settings of the router. */

import type { ActorRef } from '@homing/actor'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { RouterSettings } from '@homing/config'
import { type LoggedSelection, loggedSelection, type SelectionInForce } from '@homing/trace'

export interface WhatIfArgs {
  readonly tracker: ActorRef<TrackerMessage>
  readonly minutesMax: number
  readonly bytesMax: number
  /** Share of one core, 0 … 1. */
  readonly cpuShare: number
  /** Time limit of one question, in milliseconds. */
  readonly timeMsMax: number
  readonly selection: LoggedSelection
}

export type WhatIfSettings = SelectionInForce &
  Pick<RouterSettings, 'whatIfMinutes' | 'whatIfBytes' | 'whatIfCpuShare' | 'whatIfTimeoutMs'>

/** Undefined: requests are not kept. `customPolicy`: name of the selection in place of the policy. */
export function whatIfArgsFromSettings(
  settings: WhatIfSettings,
  parts: { readonly tracker: ActorRef<TrackerMessage>; readonly customPolicy: string | undefined },
): WhatIfArgs | undefined {
  const { whatIfMinutes } = settings
  if (whatIfMinutes === 0) return undefined
  return {
    tracker: parts.tracker,
    minutesMax: whatIfMinutes,
    bytesMax: settings.whatIfBytes,
    cpuShare: settings.whatIfCpuShare,
    timeMsMax: settings.whatIfTimeoutMs,
    selection: loggedSelection(settings, parts.customPolicy),
  }
}
