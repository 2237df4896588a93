/** Service metrics: those that every service of short requests has, of its process and of its requests. */

import { Metrics } from './metrics.ts'
import { type RequestFigures, type RequestMetrics, requestMetrics } from './request-metrics.ts'

export class ServiceMetrics {
  protected readonly metrics = new Metrics()
  readonly #requests: RequestMetrics

  /** `prefix`: 'homing_indexer'. `process`: what its process tells of itself. */
  constructor(prefix: string, process: Pick<Metrics, 'render'>, figures: RequestFigures) {
    this.metrics.include(() => process.render())
    this.#requests = requestMetrics(this.metrics, prefix, figures)
  }

  /** One request was answered. */
  answered(route: string, status: number, elapsedMs: number): void {
    this.#requests.answered(route, status, elapsedMs)
  }

  render(): Promise<string> {
    return this.metrics.render()
  }

  get contentType(): string {
    return this.metrics.contentType
  }
}
