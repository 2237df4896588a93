/**
 * The guard in the simulator: what it costs where nothing is wrong, and what it saves where all that is known
 * is wrong.
 */

import { generatedRequests, parseGenerator } from '@homing/trace'
import t from 'tap'
import { type CellResult, type CellSpec, parseColumn, simulateCell, TROUBLES } from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const SPEC: CellSpec = {
  ...REFERENCE_SPEC,
  workers: 4,
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
  loadCounts: 'blocks',
  knowsOutput: false,
}

/** A hot prefix and others, for four workers. */
async function run(column: string, changes: Partial<CellSpec> = {}): Promise<CellResult> {
  const spec = { ...SPEC, selection: parseColumn(column).selection, ...changes }
  const traffic = generatedRequests(parseGenerator('hot?requests=3000&rate=5'), spec.seed)
  return (await simulateCell(spec, traffic)).result
}

t.test(
  'a book that is kept for the wrong workers ruins auto, and the guard takes the decisions from it',
  async t => {
    const meanMs = { rounds: 0, unguarded: 0, guarded: 0 }
    for (const seed of [1, 2, 3]) {
      const crossed = { trouble: 'crossed-book', seed } as const
      const guarded = await run('auto', crossed)
      meanMs.rounds += (await run('round-robin', { seed })).ttftMs.mean / 3
      meanMs.unguarded += (await run('auto-unguarded', crossed)).ttftMs.mean / 3
      meanMs.guarded += guarded.ttftMs.mean / 3
      const { shrunkAfter, controlShare, shrinks } = guarded.guard!
      t.ok(shrinks > 0 && shrunkAfter! < 600, `shrunk after ${shrunkAfter} decisions, seed ${seed}`)
      t.ok(controlShare > 0.5)
    }
    t.ok(meanMs.unguarded > 5 * meanMs.rounds, JSON.stringify(meanMs))
    t.ok(meanMs.guarded < 1.02 * meanMs.rounds, JSON.stringify(meanMs))
  },
)

t.test('where nothing is wrong little is tried and nothing is shrunk', async t => {
  const { guard, requests } = await run('auto')
  t.equal(requests, 3000)
  t.match(guard, { shrinks: 0, shrunkShare: 0 })
  t.ok(guard!.controlShare > 0 && guard!.controlShare < 0.02, `${guard!.controlShare}`)
  t.ok(
    guard!.regretMs.every(regret => regret <= 0),
    'the cheapest was taken nearly always',
  )
  t.equal((await run('auto-unguarded')).guard, undefined)
})

t.test('every trouble can be simulated, twice alike', async t => {
  for (const trouble of TROUBLES) {
    const first = await run('auto', { trouble })
    t.equal(first.requests, 3000, trouble)
    t.strictSame(await run('auto', { trouble }), first, trouble)
  }
})
