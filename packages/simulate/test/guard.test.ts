/** The guard in the simulator: what it costs where nothing is wrong, and what it saves where all that is known is wrong. */

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
  const traffic = generatedRequests(parseGenerator('hot?requests=3000&rate=5'), 1)
  const { selection } = parseColumn(column)
  return (await simulateCell({ ...SPEC, selection, ...changes }, traffic)).result
}

t.test(
  'a book that is kept for the wrong workers ruins auto, and the guard takes the decisions from it',
  async t => {
    const trouble = { trouble: 'crossed-book' } as const
    const rounds = await run('round-robin')
    const unguarded = await run('auto-unguarded', trouble)
    const guarded = await run('auto', trouble)
    t.ok(unguarded.ttftMs.mean > 10 * rounds.ttftMs.mean, `${unguarded.ttftMs.mean} ms without the guard`)
    t.ok(guarded.ttftMs.mean < 1.02 * rounds.ttftMs.mean, `${guarded.ttftMs.mean} ms with it`)
    const { shrunkAfter, controlShare, shrinks } = guarded.guard!
    t.ok(shrinks > 0 && shrunkAfter! < 600, `shrunk after ${shrunkAfter} decisions`)
    t.ok(controlShare > 0.5)
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
