/** Metrics of the operator requests that a port serves. */

import type { Metrics } from './metrics.ts'

export interface ViewFigures {
  readonly open: number
  readonly unsentBytes: number
  /** Since the start, by the bound that was reached. */
  readonly refused: { readonly requests: number; readonly bytes: number }
}

/**
 * `prefix`: of the names, such as `homing_operator`. `what` is counted. Returns what reads the figures, for
 * each rendering.
 */
export function viewMetrics(
  metrics: Metrics,
  prefix: string,
  figures: ViewFigures,
  what = 'operator requests',
): () => void {
  const open = metrics.gauge({
    name: `${prefix}_open_requests`,
    help: `How many ${what} are open: their answer is not sent yet (--max-open-operator-requests).`,
  })
  const unsent = metrics.gauge({
    name: `${prefix}_unsent_bytes`,
    help: `Bytes of answers to ${what} that wait for slow clients.`,
  })
  const refused = metrics.counter({
    name: `${prefix}_refused_total`,
    help: `How many ${what} were refused, by the bound that was reached: open requests, or bytes that wait for clients.`,
    labels: ['bound'],
  })
  return () => {
    open.set(figures.open)
    unsent.set(figures.unsentBytes)
    refused.setTotal(figures.refused.requests, { bound: 'requests' })
    refused.setTotal(figures.refused.bytes, { bound: 'bytes' })
  }
}
