/** Metrics of the sockets of this thread. */

import type { Metrics } from '@homing/metrics'
import { callbackFaults } from '@homing/transport'

export function collectTransport(metrics: Metrics): void {
  const faults = metrics.counter({
    name: 'homing_transport_callback_faults_total',
    help: 'Messages of peers, clients and engines on the main thread that made their handler fail; each was taken out.',
  })
  metrics.collect(() => faults.setTotal(callbackFaults()))
}
