/** Targets for the index, on the corpora that have them; and the figures that --check compares. */

import type { Target } from '../harness.ts'
import { corpusName } from './parameters.ts'

const dynamo = (floor: number, goal: number): Target => ({ floor, goal, timesPeer: 'dynamo' })

const TARGETS: Readonly<Record<string, Readonly<Record<string, Target>>>> = {
  'idx-small': {
    mixed: dynamo(1, 1.3),
    poolDrained: dynamo(1, 1.3),
    lookupP50: dynamo(0.6, 0.35),
    lookupP99: dynamo(1.3, 0.8),
  },
  'idx-main': {
    mixed: dynamo(1.5, 2.5),
    poolDrained: dynamo(1.3, 2),
    lookupP50: dynamo(0.6, 0.35),
    lookupP99: dynamo(1, 0.6),
    bytesPerMembership: { floor: 30, goal: 27 },
    rssLive: dynamo(0.5, 0.38),
    rssAfterScheduleShare: { floor: 1.1, goal: 1.05 },
    rssEmptiedShare: { floor: 0.05, goal: 0.05 },
  },
}

export const targets: Readonly<Record<string, Target>> = {
  ...TARGETS[corpusName],
  shards4Times: { floor: 2, goal: 2 },
}

export const pins: readonly string[] = ['scoreSum', 'memberships']

/** CPU time hardly depends on who else is on the machine, the clock does. */
export const checks: Readonly<Record<string, number>> = {
  lookupCpu: 1.3,
  eventCpu: 1.3,
  mixed: 1.6,
  lookups: 1.6,
  poolDrained: 1.6,
  bytesPerMembership: 1.05,
}
