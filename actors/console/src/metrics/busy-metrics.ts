/** Metrics of the busy thresholds. */

import type { Metrics } from '@homing/metrics'
import type { ConsoleArgs } from '../console-args.ts'

export function collectBusy(metrics: Metrics, args: ConsoleArgs): void {
  const refused = metrics.counter({
    name: 'homing_busy_refused_requests_total',
    help: 'Requests that were refused because every worker that could take them was past a busy threshold.',
    labels: ['model'],
  })
  metrics.collect(async () => {
    const counts = await args.router.ask({ type: 'busyRefused' }, { timeout: args.askMsMax })
    for (const [model, count] of counts) refused.setTotal(count, { model })
  })
}
