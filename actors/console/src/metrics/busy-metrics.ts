/** Metrics of the busy thresholds. */

import { BoundedNames, type Metrics } from '@homing/metrics'
import type { ConsoleArgs } from '../console-args.ts'

export function collectBusy(metrics: Metrics, args: ConsoleArgs, nowMs: () => number): void {
  const refused = metrics.counter({
    name: 'homing_busy_refused_requests_total',
    help: 'Requests that were refused because every worker that could take them was past a busy threshold.',
    labels: ['model'],
  })
  const { modelsMax, modelIdleMs } = args.modelLabels
  const labels = new BoundedNames({
    namesMax: modelsMax,
    idleMs: modelIdleMs,
    forgotten: model => refused.remove({ model }),
  })
  let before = new Map<string, number>()
  metrics.collect(async () => {
    const counts = new Map(await args.router.ask({ type: 'busyRefused' }, { timeout: args.askMsMax }))
    for (const [model, count] of counts) {
      const known = before.get(model) ?? 0
      // The router has begun anew if it counts less than before.
      const more = count >= known ? count - known : count
      if (more > 0) refused.add(more, { model: labels.of(model, nowMs()) })
    }
    before = counts
    labels.sweep(nowMs())
  })
}
