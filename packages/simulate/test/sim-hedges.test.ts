/** Cells in which what is late is asked of a second worker. */

import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readTrace } from '@homing/trace'
import t from 'tap'
import { type CellSpec, type ServedRequest, simulateCell } from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const SMALL = join(
  fileURLToPath(import.meta.resolve('@homing/engine')),
  '..',
  '..',
  'fixtures',
  'small-trace.jsonl.gz',
)
const TRACE = readTrace(SMALL)
const STALLS = Array.from({ length: 100 }, (_, i) => ({
  worker: i % 4,
  atMs: 3000 + i * 12_000,
  forMs: 8000,
}))
const SPEC: CellSpec = {
  ...REFERENCE_SPEC,
  workers: 4,
  speed: 2,
  loadCounts: 'blocks',
  knowsOutput: false,
  selection: { policy: 'auto' },
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
}
const HEDGE = { afterMs: 500, rule: 'fixed', budgetShare: 0.2 } as const

async function run(changes: Partial<CellSpec> = {}) {
  const served: ServedRequest[] = []
  const { result } = await simulateCell({ ...SPEC, ...changes }, [...TRACE], {
    onServed: one => served.push(one),
  })
  return { result, served }
}

t.test('each request is served once, whatever its workers do, and the same in every run', async t => {
  for (const stalls of [[], STALLS])
    for (const speed of [1, 8])
      for (const hedge of [
        HEDGE,
        { ...HEDGE, rule: 'auto' as const },
        { ...HEDGE, afterMs: 5, budgetShare: 1 },
      ]) {
        const { result, served } = await run({ stalls, hedge, speed })
        t.equal(result.requests, TRACE.length)
        t.equal(new Set(served.map(({ trace }) => trace)).size, TRACE.length)
        const outputTokens = TRACE.reduce((sum, one) => sum + Math.max(1, one.outputTokens), 0)
        t.equal(Math.round((result.outputTokensPerS * result.makespanMs) / 1000), outputTokens)
        const { won, lost, twiceTokens } = result.hedges!
        t.equal(result.decisions, TRACE.length + won + lost)
        t.equal(twiceTokens > 0, won + lost > 0)
        t.strictSame((await run({ stalls, hedge, speed })).result, result)
      }
})

t.test('without hedges a cell is what it was, and hedges that never come change nothing', async t => {
  const { result: plain } = await run()
  t.equal(plain.hedges, undefined)
  const { result } = await run({ hedge: { ...HEDGE, afterMs: 1e9 } })
  t.strictSame({ ...result, hedges: undefined, spec: SPEC }, { ...plain, hedges: undefined, spec: SPEC })
})

t.test('workers that stall cost fewer first tokens with hedges', async t => {
  const { result: off } = await run({ stalls: STALLS })
  const { result: on } = await run({ stalls: STALLS, hedge: HEDGE })
  const { won, overBudget } = on.hedges!
  t.ok(won > 0)
  t.ok(on.ttftMs.mean < off.ttftMs.mean, `${on.ttftMs.mean} ms of ${off.ttftMs.mean} ms`)
  const { result: poor } = await run({ stalls: STALLS, hedge: { ...HEDGE, budgetShare: 0 } })
  t.ok(poor.hedges!.won + poor.hedges!.lost <= 32, 'beyond the first 32 none is asked without a budget')
  t.ok(poor.hedges!.overBudget >= overBudget)
})

t.test('what cannot be simulated with hedges is said', async t => {
  await t.rejects(run({ hedge: HEDGE, deaths: [{ worker: 0, atMs: 1 }] }), { message: /hedges with deaths/ })
  await t.rejects(run({ hedge: { ...HEDGE, afterMs: 0 } }), { message: /a hedge after 0 ms/ })
  await t.rejects(run({ hedge: { ...HEDGE, budgetShare: 2 } }), { message: /a budget of 2/ })
  await t.rejects(run({ stalls: [{ worker: 4, atMs: 0, forMs: 1 }] }), { message: /a stall of worker 4/ })
})
