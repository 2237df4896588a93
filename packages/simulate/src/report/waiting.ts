/**
 * Waiting: what requests waited in the queues of the routers, and what each tenant got, over the seeds of a
 * row.
 */

import { seedMean } from '../paired.ts'
import type { SweptCell } from '../sweep.ts'

/** Means over the seeds. */
export interface SummaryQueue {
  /** Of the requests that were placed. */
  readonly waitedShare: number
  readonly waitMeanMs: number
  readonly waitP99Ms: number
  /** The longest of all seeds. */
  readonly waitMaxMs: number
  /** The most of all seeds. */
  readonly refused: number
}

/** Means over the seeds. */
export interface SummaryTenant {
  readonly tenant: string
  readonly requests: number
  /** Prompt tokens computed for it ÷ those for all. */
  readonly prefillShare: number
  readonly ttftMeanMs: number
  readonly ttftP99Ms: number
  readonly waitMeanMs: number
  /** The longest of all seeds. */
  readonly waitMaxMs: number
}

/** Undefined where no router has a queue. */
export function queueOf(cells: readonly SweptCell[]): SummaryQueue | undefined {
  const queues = cells.flatMap(({ run }) => run.result.queue ?? [])
  if (queues.length === 0) return undefined
  const mean = (of: (queue: (typeof queues)[number]) => number): number => seedMean(queues.map(of)).mean
  return {
    waitedShare: mean(({ waitedShare }) => waitedShare),
    waitMeanMs: mean(({ waitMs }) => waitMs.mean),
    waitP99Ms: mean(({ waitMs }) => waitMs.p99),
    waitMaxMs: Math.max(...queues.map(({ waitMs }) => waitMs.max)),
    refused: Math.max(...queues.map(({ refused }) => refused)),
  }
}

/** Undefined where the traffic names no tenant. */
export function tenantsOf(cells: readonly SweptCell[]): readonly SummaryTenant[] | undefined {
  const all = cells.flatMap(({ run }) => run.result.tenants ?? [])
  if (all.length === 0) return undefined
  return [...Map.groupBy(all, ({ tenant }) => tenant)].map(([tenant, figures]) => {
    const mean = (of: (one: (typeof figures)[number]) => number): number => seedMean(figures.map(of)).mean
    return {
      tenant,
      requests: mean(({ requests }) => requests),
      prefillShare: mean(({ prefillShare }) => prefillShare),
      ttftMeanMs: mean(({ ttftMs }) => ttftMs.mean),
      ttftP99Ms: mean(({ ttftMs }) => ttftMs.p99),
      waitMeanMs: mean(({ waitMs }) => waitMs.mean),
      waitMaxMs: Math.max(...figures.map(({ waitMs }) => waitMs.max)),
    }
  })
}
