/**
 * Sweep: every policy on every workload at every load, with the same seeds for all, and the capacity of each.
 *
 * Loads are speeds, or shares of a capacity: of the highest capacity that any column of the sweep has on that
 * workload, so that all columns see the same traffic. Cells are begun seed by seed, so a sweep that is
 * stopped has whole tables of fewer seeds.
 */

import { CAPACITY_SHARE, searchCapacity } from './capacity-search.ts'
import { type CellRunner, RunnerStopped } from './cell-runner.ts'
import type { CellRun, CellSpec, Goodput } from './cell-types.ts'
import type { Column } from './column.ts'
import type { Workload } from './workload.ts'

export type TierName = keyof Goodput

/** A speed, and the share of the capacity that it was made from. */
export interface LoadPoint {
  readonly speed: number
  readonly loadShare?: number
}

export interface SweepWorkload {
  readonly workload: Workload
  /** Points of this workload; with `loadShares` they are found. */
  readonly speeds: readonly number[]
  /** Where the search for a capacity begins. */
  readonly speedGuess: number
  /** All but the speed, the seed and the selection. */
  readonly spec: Omit<CellSpec, 'speed' | 'seed' | 'selection'>
}

export interface SweepPlan {
  readonly workloads: readonly SweepWorkload[]
  readonly columns: readonly Column[]
  readonly seeds: readonly number[]
  /** Shares of the best capacity; empty: the speeds of the workloads. */
  readonly loadShares: readonly number[]
  /** Search the capacity of every column, and at which tier; undefined: only if `loadShares` need it. */
  readonly capacityTier?: TierName | undefined
}

/** One cell that was run. */
export interface SweptCell extends LoadPoint {
  readonly workload: string
  readonly column: string
  readonly seed: number
  readonly run: CellRun
}

export interface SweptCapacity {
  readonly workload: string
  readonly column: string
  readonly tier: TierName
  readonly seed: number
  readonly speed: number
  readonly isAtLeast: boolean
}

export interface SweepOutcome {
  readonly cells: readonly SweptCell[]
  readonly capacities: readonly SweptCapacity[]
  /** False if it was stopped before its end. */
  readonly isComplete: boolean
}

/** Cells of a search, for the time left: bracket and steps. */
const SEARCH_CELLS = 11
/**
 * How much higher than the best capacity another column must be good to be searched: as fine as a search is.
 */
const CHALLENGE = 129 / 128
const LOAD_TIER: TierName = 'standard'

/**
 * Runs the plan; if the runner is stopped, resolves with the finished cells. Rejects with the first error of
 * a cell.
 */
export async function runSweep(plan: SweepPlan, runner: CellRunner): Promise<SweepOutcome> {
  const cells: SweptCell[] = []
  const capacities: SweptCapacity[] = []
  const { columns, seeds, loadShares, capacityTier } = plan
  const needsCapacity = loadShares.length > 0
  const tier = capacityTier ?? LOAD_TIER
  for (const { spec, speeds } of plan.workloads) {
    const points = needsCapacity ? loadShares.length : speeds.length
    const searched = capacityTier === undefined ? 0 : columns.length * seeds.length * SEARCH_CELLS
    const challenged = capacityTier === undefined && needsCapacity ? 2 * columns.length + SEARCH_CELLS - 1 : 0
    runner.expect(columns.length * seeds.length * points + searched + challenged, weightOf(spec))
  }

  const specOf = (each: SweepWorkload, column: Column, speed: number, seed: number): CellSpec => ({
    ...each.spec,
    selection: column.selection,
    speed,
    seed,
  })

  // One cell that fails ends the sweep: what the others would find out is not worth the wait.
  const run = async (each: SweepWorkload, spec: CellSpec): Promise<CellRun> => {
    try {
      return await runner.run(each.workload, spec, weightOf(each.spec))
    } catch (thrown) {
      await runner.stop()
      throw thrown
    }
  }

  const shareAt = async (
    each: SweepWorkload,
    column: Column,
    speed: number,
    seed: number,
  ): Promise<number> => {
    const { result } = await run(each, specOf(each, column, speed, seed))
    return result.goodput[tier]
  }

  const search = async (
    each: SweepWorkload,
    column: Column,
    seed: number,
    guess: number,
  ): Promise<number> => {
    const capacity = await searchCapacity(guess, speed => shareAt(each, column, speed, seed))
    runner.expect(capacity.tried.length - SEARCH_CELLS, weightOf(each.spec))
    const { speed, isAtLeast } = capacity
    capacities.push({ workload: each.workload.name, column: column.name, tier, seed, speed, isAtLeast })
    return speed
  }

  /**
   * The highest capacity of any column. The column that serves best at the guess is searched first; the
   * others are only asked whether they are good enough at a higher speed, and searched if they are.
   */
  const searchBest = async (each: SweepWorkload, seed: number): Promise<number> => {
    const weight = weightOf(each.spec)
    const shares = await allOf(columns.map(column => shareAt(each, column, each.speedGuess, seed)))
    const favorite = shares.indexOf(Math.max(...shares))
    const others = columns.filter((_, i) => i !== favorite)
    let best = await search(each, columns[favorite]!, seed, each.speedGuess)
    if (best === 0) return best
    const higher = best * CHALLENGE
    const isRival = await allOf(
      others.map(async column => (await shareAt(each, column, higher, seed)) >= CAPACITY_SHARE),
    )
    for (const [i, column] of others.entries()) {
      if (!isRival[i]) continue
      runner.expect(SEARCH_CELLS, weight)
      best = Math.max(best, await search(each, column, seed, best))
    }
    return best
  }

  const runPoints = async (each: SweepWorkload, points: readonly LoadPoint[]): Promise<void> => {
    const runs: Promise<void>[] = []
    for (const seed of seeds) {
      for (const point of points) {
        for (const column of columns) {
          const done = run(each, specOf(each, column, point.speed, seed))
          const place = { ...point, workload: each.workload.name, column: column.name, seed }
          runs.push(done.then(cell => void cells.push({ ...place, run: cell })))
        }
      }
    }
    await allOf(runs)
  }

  const runWorkload = async (each: SweepWorkload): Promise<void> => {
    const searchAll = (): Promise<number>[] =>
      seeds.flatMap(seed => columns.map(column => search(each, column, seed, each.speedGuess)))
    if (!needsCapacity) {
      const points = each.speeds.map(speed => ({ speed }))
      await allOf<unknown>([...(capacityTier === undefined ? [] : searchAll()), runPoints(each, points)])
      return
    }
    // The first seed alone, so that the points do not depend on how many seeds there are.
    const best =
      capacityTier === undefined
        ? await searchBest(each, seeds[0]!)
        : Math.max(...(await allOf(searchAll())).slice(0, columns.length))
    if (best === 0) return
    const points = loadShares.map(loadShare => ({ loadShare, speed: best * loadShare }))
    await runPoints(each, points)
  }

  let isComplete = true
  try {
    await allOf(plan.workloads.map(runWorkload))
  } catch (thrown) {
    if (!(thrown instanceof RunnerStopped)) throw thrown
    isComplete = false
  }
  return { cells: sortedCells(plan, cells), capacities: sortedCapacities(plan, capacities), isComplete }
}

/**
 * Waits for all, also if one fails: nothing runs on behind the caller's back. An error of a cell goes before
 * the end of the runner.
 */
async function allOf<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  const settled = await Promise.allSettled(promises)
  const failures = settled.flatMap(each => (each.status === 'rejected' ? [each.reason as unknown] : []))
  if (failures.length > 0) throw failures.find(failure => !(failure instanceof RunnerStopped)) ?? failures[0]
  return settled.map(each => (each as PromiseFulfilledResult<T>).value)
}

/** The work of a cell grows with its requests, and a little with the fleet. */
function weightOf({ copies, workers }: SweepWorkload['spec']): number {
  return copies * (1 + workers / 64)
}

/** Results in the order of the plan, not in the order in which cells ended. */
function sortedCells(plan: SweepPlan, cells: readonly SweptCell[]): SweptCell[] {
  const place = placeIn(plan)
  return cells.toSorted(
    (a, b) =>
      place.workload(a) - place.workload(b) ||
      a.speed - b.speed ||
      place.column(a) - place.column(b) ||
      a.seed - b.seed,
  )
}

function sortedCapacities(plan: SweepPlan, capacities: readonly SweptCapacity[]): SweptCapacity[] {
  const place = placeIn(plan)
  return capacities.toSorted(
    (a, b) => place.workload(a) - place.workload(b) || place.column(a) - place.column(b) || a.seed - b.seed,
  )
}

interface Placed {
  readonly workload: string
  readonly column: string
}

function placeIn(plan: SweepPlan): Record<'workload' | 'column', (of: Placed) => number> {
  const workloads = plan.workloads.map(({ workload }) => workload.name)
  const columns = plan.columns.map(({ name }) => name)
  return {
    workload: ({ workload }) => workloads.indexOf(workload),
    column: ({ column }) => columns.indexOf(column),
  }
}
