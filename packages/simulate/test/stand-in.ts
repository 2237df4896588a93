/**
 * Results without a simulation, for tests of what is around it: figures follow from the spec by simple rules.
 */

import type { CellResult, CellRun, CellSpec, RequestFigures } from '../src/cell-types.ts'

/** The speed at which a policy begins to fail tier standard. */
export const STAND_IN_CAPACITY: Readonly<Record<string, number>> = {
  linear: 3,
  product: 3.5,
  'est-ttft': 3.25,
  threshold: 2.5,
}

/**
 * Better policies have a higher capacity; past it everything is late. Seeds differ by a little, in the same
 * way for all.
 */
export function standInRun(spec: CellSpec): CellRun {
  const { speed, seed, selection } = spec
  const capacity = selection.mode === 'kv' ? (STAND_IN_CAPACITY[selection.policy ?? ''] ?? 1) : 2
  const load = speed / capacity
  const ttft = (100 * load * (1 + 0.05 * (seed % 7))) / Math.max(0.02, 1.05 - Math.min(1.03, load))
  const latency = (mean: number) => ({ mean, p50: mean / 2, p90: mean * 2, p99: mean * 5 })
  const standard = load <= 1 ? 1 - 0.05 * load : 0.9 / load
  const figures: RequestFigures = {
    requests: 900,
    ttftMs: latency(ttft),
    itlMs: latency(10 + 20 * load),
    e2eMs: latency(ttft + 5000),
    goodput: { interactive: standard * 0.9, standard, longContext: Math.min(1, standard * 1.05) },
    hitRate: 0.1 * capacity,
  }
  const result: CellResult = {
    ...figures,
    spec,
    withWarmup: { ...figures, requests: 1000 },
    gapMs: { p99: 80 },
    outputTokensPerS: 1000 * speed,
    infiniteHitRate: 0.5,
    hitEfficiency: 0.2 * capacity,
    prefillTokens: 1_000_000,
    imbalance: {
      newTokensCv: 0.1,
      newTokensMaxOverMean: 1.2,
      busyCv: 0.05,
      outstandingMaxOverMean: 1 + load,
    },
    evictions: 100,
    missedReuseBlocks: 10,
    decisions: 1000,
    refused: 0,
    lost: 0,
    spanMs: 300_000 / speed,
    makespanMs: 310_000 / speed,
    drain: 1.03,
  }
  return { result, cost: { elapsedMs: 5, cpuUsPerDecision: 2, engineSteps: 5000 } }
}
