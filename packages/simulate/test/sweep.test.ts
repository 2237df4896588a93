/** The sweep and its pool, with a task that runs no simulation. */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import type { CellRun } from '../src/index.ts'
import {
  CellRunner,
  parseColumn,
  ResultStore,
  runSweep,
  type SweepPlan,
  type Workload,
} from '../src/index.ts'

const taskUrl = new URL('./stand-in-task.ts', import.meta.url).href

interface World {
  readonly runner: CellRunner
  readonly workload: Workload
  /** Cells that were simulated, in no order. */
  ran(): string[]
}

function worldOf(t: Test, { name = 'chat', keeps = false, folder = t.testdir({}), threads = 2 } = {}): World {
  const path = join(folder, 'ran')
  writeFileSync(path, '', { flag: 'a' })
  const store = new ResultStore<CellRun>({
    folder: join(folder, 'store'),
    bytesMax: 2 ** 24,
    clock: systemClock,
    onTrouble: words => t.fail(words),
  })
  const runner = new CellRunner({ threads, store: keeps ? store : undefined, clock: systemClock, taskUrl })
  t.teardown(() => runner.stop())
  return {
    runner,
    workload: { kind: 'file', name, path, sha256: name },
    ran: () =>
      readFileSync(path, 'utf8')
        .split('\n')
        .filter(line => line !== '')
        .sort(),
  }
}

function planOf(workload: Workload, change: Partial<SweepPlan> = {}): SweepPlan {
  return {
    workloads: [
      {
        workload,
        speeds: [1, 2],
        speedGuess: 2,
        spec: {
          workers: 8,
          profile: 'h100-8b',
          blockTokens: 512,
          routers: 1,
          view: { kind: 'exact', eventDelayMs: 0, signalDelayMs: 0 },
          knowsOutput: true,
          copies: 1,
          stretch: 1,
          warmupShare: 0.1,
        },
      },
    ],
    columns: ['least-loaded', 'linear', 'product'].map(parseColumn),
    seeds: [1, 2, 3],
    loadShares: [],
    ...change,
  }
}

t.test('every policy meets every speed with every seed, and cells come in the order of the plan', async t => {
  const { runner, workload, ran } = worldOf(t)
  const { cells, capacities, isComplete } = await runSweep(planOf(workload), runner)
  t.ok(isComplete)
  t.strictSame(capacities, [])
  t.strictSame(
    cells.map(({ speed, column, seed }) => [speed, column, seed]),
    [1, 2].flatMap(speed =>
      ['least-loaded', 'linear', 'product'].flatMap(column => [1, 2, 3].map(seed => [speed, column, seed])),
    ),
  )
  t.ok(
    cells.every(({ run, speed, seed }) => run.result.spec.speed === speed && run.result.spec.seed === seed),
  )
  t.equal(ran().length, 18)
  t.strictSame(
    { ...runner.progress, leftMs: 0 },
    { cellsDone: 18, cellsKept: 0, cellsExpected: 18, share: 1, leftMs: 0 },
  )
})

t.test('a second run with one more policy runs only that policy', async t => {
  const folder = t.testdir({})
  const first = worldOf(t, { folder, keeps: true })
  const before = await runSweep(planOf(first.workload), first.runner)
  const ranBefore = first.ran().length
  const second = worldOf(t, { folder, keeps: true })
  const columns = ['least-loaded', 'linear', 'product', 'threshold'].map(parseColumn)
  const after = await runSweep(planOf(second.workload, { columns }), second.runner)
  const added = second.ran().length - ranBefore
  t.equal(added, 6)
  t.equal(second.ran().filter(line => line.startsWith('threshold')).length, 6)
  t.equal(second.runner.progress.cellsKept, 18)
  t.strictSame(
    after.cells.filter(({ column }) => column !== 'threshold'),
    before.cells,
  )
})

t.test('another trace content or another option makes other cells', async t => {
  const folder = t.testdir({})
  const { runner, workload, ran } = worldOf(t, { folder, keeps: true })
  const plan = planOf(workload, { columns: [parseColumn('linear')], seeds: [1] })
  await runSweep(plan, runner)
  t.equal(ran().length, 2)
  await runSweep(
    planOf({ ...workload, sha256: 'changed' } as Workload, { columns: plan.columns, seeds: [1] }),
    runner,
  )
  t.equal(ran().length, 4)
  const [only] = plan.workloads
  await runSweep({ ...plan, workloads: [{ ...only!, spec: { ...only!.spec, workers: 9 } }] }, runner)
  t.equal(ran().length, 6)
  await runSweep(plan, runner)
  t.equal(ran().length, 6)
})

t.test('capacities are searched for every policy and seed', async t => {
  const { runner, workload } = worldOf(t)
  const plan = planOf(workload, {
    capacityTier: 'standard',
    columns: [parseColumn('linear'), parseColumn('product')],
  })
  const { capacities, cells } = await runSweep(plan, runner)
  t.equal(cells.length, 12)
  t.equal(capacities.length, 6)
  for (const { column, speed, isAtLeast } of capacities) {
    const capacity = column === 'linear' ? 3 : 3.5
    t.ok(speed <= capacity && speed > capacity * 0.98, `${column}: ${speed}`)
    t.notOk(isAtLeast)
  }
})

t.test('loads are shares of the best capacity, the same speeds for all policies', async t => {
  const { runner, workload, ran } = worldOf(t)
  const { cells, capacities } = await runSweep(planOf(workload, { loadShares: [0.5, 1.1] }), runner)
  t.strictSame(
    capacities.map(({ seed, column }) => [seed, column]),
    [[1, 'product']],
    'one seed is enough to place the loads, and only the best needs its capacity',
  )
  const best = capacities[0]!.speed
  t.ok(best > 3.4 && best <= 3.5)
  t.ok(ran().length < 18 + 20, `${ran().length} cells`)
  t.equal(runner.progress.cellsExpected, runner.progress.cellsDone)
  t.equal(cells.length, 18)
  t.strictSame([...new Set(cells.map(({ speed }) => speed))], [best * 0.5, best * 1.1])
  t.strictSame([...new Set(cells.map(({ loadShare }) => loadShare))], [0.5, 1.1])
})

t.test('the best is found where another one leads at the guess', async t => {
  const { runner, workload } = worldOf(t)
  const [only] = planOf(workload).workloads
  // At a speed that no policy can serve, goodput shows which is less bad; session and linear share a
  // capacity.
  for (const speedGuess of [0.2, 30]) {
    const plan = planOf(workload, { loadShares: [1], workloads: [{ ...only!, speedGuess }], seeds: [1] })
    const { cells } = await runSweep(plan, runner)
    const [{ speed }] = cells as unknown as [{ speed: number }]
    t.ok(speed > 3.4 && speed <= 3.5, `${speedGuess}: ${speed}`)
  }
})

t.test('a cell that fails ends the sweep with its error, code and line', async t => {
  const { runner, workload } = worldOf(t, { name: 'broken' })
  await t.rejects(runSweep(planOf(workload), runner), {
    code: 'HOMING_TRACE_MALFORMED',
    message: /line 7/,
  })
})

t.test('a sweep that is stopped has what was done until then', async t => {
  const { runner, workload, ran } = worldOf(t, { threads: 1 })
  const endless: Workload = { ...workload, name: 'endless', sha256: 'endless' } as Workload
  const plan = planOf(workload, { seeds: [1], columns: [parseColumn('linear')] })
  const [only] = plan.workloads
  const both = { ...plan, workloads: [only!, { ...only!, workload: endless }] }
  const outcome = runSweep(both, runner)
  // The endless cells wait behind the others on the only thread.
  while (ran().length < 3) await new Promise(resolve => systemClock.after(5, () => resolve(undefined)))
  t.ok(runner.progress.share > 0.4 && runner.progress.share < 1, String(runner.progress.share))
  t.type(runner.progress.leftMs, 'number')
  await runner.stop()
  const { cells, isComplete } = await outcome
  t.equal(isComplete, false)
  t.strictSame(
    cells.map(({ workload: name, speed }) => [name, speed]),
    [
      ['chat', 1],
      ['chat', 2],
    ],
  )
})
