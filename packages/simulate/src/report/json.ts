/**
 * The JSON of a sweep: what was asked, every cell with its spec and figures, the summary. The same sweep
 * gives the same bytes: nothing in it depends on the machine or the time.
 */

import type { SweepOutcome } from '../sweep.ts'
import type { ReportAbout } from './about.ts'
import type { Summary } from './summary.ts'

export function renderJson(
  about: ReportAbout,
  { cells, capacities }: SweepOutcome,
  summary: Summary,
): string {
  const document = {
    format: 1,
    about,
    isComplete: summary.isComplete,
    baseline: summary.baseline ?? null,
    cells: cells.map(({ run, ...place }) => ({ ...place, result: run.result })),
    capacities,
    summary: summary.workloads.map(({ points, ...workload }) => ({
      ...workload,
      points: points.map(({ rows, ...point }) => ({
        ...point,
        rows: rows.map(({ cpuUsPerDecision: _, ...row }) => row),
      })),
    })),
  }
  return `${JSON.stringify(document)}\n`
}
