/**
 * What the process of a service tells of itself: memory, processor time, event loop, garbage collection. It
 * belongs to the thread, so that a service that begins anew neither loses totals nor observes twice.
 */

import { defineCapability } from '@homing/actor'
import { Metrics } from './metrics.ts'

export const serviceProcessMetrics = defineCapability<Metrics>({
  name: 'homing.serviceProcessMetrics',
  create() {
    const metrics = new Metrics()
    metrics.observeProcess()
    return metrics
  },
})
