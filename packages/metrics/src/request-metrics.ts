/** The metrics that every service of short requests has: requests by route, and what bounds them. */

import type { Metrics } from './metrics.ts'
import { type ViewFigures, viewMetrics } from './view-metrics.ts'

const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export interface RequestFigures {
  readonly openRequests: () => number
  readonly bodyBytes: () => number
  /** Of requests besides those that the service is there for. */
  readonly views: ViewFigures
  readonly accessLinesDropped: () => number
}

export interface RequestMetrics {
  /** One request was answered. */
  answered(route: string, status: number, elapsedMs: number): void
}

/** `prefix`: 'homing_indexer'. */
export function requestMetrics(metrics: Metrics, prefix: string, figures: RequestFigures): RequestMetrics {
  const requests = metrics.counter({
    name: `${prefix}_requests_total`,
    help: 'Requests answered, by route and HTTP status.',
    labels: ['route', 'status'],
  })
  const duration = metrics.histogram({
    name: `${prefix}_request_seconds`,
    help: 'Time from the arrival of a request to its answer.',
    labels: ['route'],
    buckets: SECONDS,
  })
  const open = metrics.gauge({ name: `${prefix}_open_requests`, help: 'Requests being answered.' })
  const bodies = metrics.gauge({ name: `${prefix}_body_bytes`, help: 'Request bodies in memory.' })
  const dropped = metrics.counter({
    name: `${prefix}_access_lines_dropped_total`,
    help: 'Lines that the access log could not take.',
  })
  metrics.collect(() => {
    open.set(figures.openRequests())
    bodies.set(figures.bodyBytes())
    dropped.setTotal(figures.accessLinesDropped())
  })
  metrics.collect(viewMetrics(metrics, `${prefix}_operator`, figures.views))
  return {
    answered(route, status, elapsedMs) {
      requests.add(1, { route, status })
      duration.observe(elapsedMs / 1000, { route })
    },
  }
}
