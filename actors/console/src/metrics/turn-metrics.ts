/** Metrics of operator routes that only a few requests may use at one time. */

import type { Turns } from '@homing/http'
import type { Metrics } from '@homing/metrics'

export function collectTurns(metrics: Metrics, turns: Readonly<Record<string, Turns>>): void {
  const refused = metrics.counter({
    name: 'homing_operator_turns_refused_total',
    help: 'Operator requests refused because as many of this route were being answered as may be.',
    labels: ['route'],
  })
  metrics.collect(() => {
    for (const [route, of] of Object.entries(turns)) refused.setTotal(of.refused, { route })
  })
}
