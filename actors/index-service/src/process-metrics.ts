/**
 * What the process of an index service tells of itself: memory, processor time, event loop, garbage
 * collection. It belongs to the thread, so that a service that begins anew neither loses totals nor observes
 * twice, which nothing would end; a simulation, which has no process of its own, provides an empty one.
 */

import { defineCapability } from '@homing/actor'
import { Metrics } from '@homing/metrics'

export const serviceProcessMetrics = defineCapability<Metrics>({
  name: 'homing.serviceProcessMetrics',
  create() {
    const metrics = new Metrics()
    metrics.observeProcess()
    return metrics
  },
})
