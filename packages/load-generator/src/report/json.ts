/** The result as one JSON object: names in snake case, times in milliseconds, shares from 0 to 1. */

import type { ComparedFigure } from '../comparison.ts'
import type { LoadResult } from '../load-plan.ts'
import type { LoadAbout } from './about.ts'

const VERSION = 1

export function renderLoadJson(
  about: LoadAbout,
  result: LoadResult,
  compared: readonly ComparedFigure[],
  faults: readonly string[],
): string {
  return JSON.stringify({
    homing_load: VERSION,
    command: about.command,
    started_at: about.startedAt,
    versions: about.versions,
    machine: about.machine,
    seed: about.seed,
    model: about.model,
    pace: about.pace,
    requests: about.requests,
    settings: about.settings,
    is_complete: result.isComplete,
    is_valid: faults.length === 0,
    faults,
    sides: result.sides.map(({ name, url, total, blocks }) => ({
      name,
      url,
      total: snakeCased(total),
      blocks: blocks.map(snakeCased),
    })),
    comparison: compared.map(({ figure, ours, theirs, difference, halfWidth, pairs, verdict }) => ({
      figure: figure.key,
      unit: figure.unit,
      a: ours,
      b: theirs,
      difference,
      low: halfWidth === undefined ? null : difference - halfWidth,
      high: halfWidth === undefined ? null : difference + halfWidth,
      pairs,
      verdict,
    })),
  })
}

/** Members of objects, at every depth; values that a name stands for (trust, kind) stay. */
function snakeCased(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeCased)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`),
      snakeCased(inner),
    ]),
  )
}
