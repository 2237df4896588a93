/**
 * Metrics of the process: memory, processor time, event loop, garbage collection. They belong to the thread,
 * so that a console that restarts neither loses totals nor observes twice. A simulation, which has no process
 * of its own, provides an empty set.
 */

import { defineCapability } from '@homing/actor'
import { Metrics } from '@homing/metrics'

export const processMetrics = defineCapability<Metrics>({
  name: 'homing.processMetrics',
  create() {
    const metrics = new Metrics()
    metrics.observeProcess()
    return metrics
  },
})
