/** What becomes of requests whose worker dies after their first token. */

import type { TraceRequest } from '@homing/trace'
import t from 'tap'
import { type CellSpec, type RecoverySpec, simulateCell } from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const PROMPT_BLOCKS = 16
const ONE: TraceRequest = {
  timestampMs: 0,
  inputTokens: 512 * PROMPT_BLOCKS,
  outputTokens: 1000,
  hashIds: Array.from({ length: PROMPT_BLOCKS }, (_, i) => i),
}
const DIED_MS = 2000

function specOf(recovery: RecoverySpec | undefined, more: Partial<CellSpec> = {}): CellSpec {
  return {
    ...REFERENCE_SPEC,
    workers: 3,
    selection: { policy: 'auto' },
    loadCounts: 'blocks',
    knowsOutput: false,
    deaths: [{ atMs: DIED_MS, worker: 0 }],
    ...(recovery === undefined ? {} : { recovery }),
    ...more,
  }
}

/** A request whose worker dies: placed by chance, so the seed is one that sends it to worker 0. */
async function run(recovery: RecoverySpec | undefined, more: Partial<CellSpec> = {}) {
  for (let seed = 1; seed < 50; seed++) {
    const workers: number[] = []
    const { result } = await simulateCell(specOf(recovery, { ...more, seed }), [ONE], {
      onServed: ({ worker }) => workers.push(worker),
    })
    if (result.lost > 0 || (result.recovery?.requests ?? 0) > 0) return { result, workers }
  }
  throw new Error('no seed sends it to worker 0')
}

t.test('without a recovery the request is lost', async t => {
  const { result } = await run(undefined)
  t.equal(result.lost, 1)
  t.equal(result.recovery, undefined)
})

t.test('a pool spares the prompt, a migration the answer, and a restart nothing', async t => {
  const read = { readMs: 1, readMsPerToken: 0.002 }
  const restart = await run({ kind: 'restart' })
  const migration = await run({ kind: 'migration' })
  const pool = await run({ kind: 'pool', ...read })
  for (const { result } of [restart, migration, pool]) {
    t.equal(result.lost, 0)
    t.equal(result.requests, 1)
    t.equal(Math.round((result.outputTokensPerS * result.makespanMs) / 1000), ONE.outputTokens)
  }
  const waits = [restart, migration, pool].map(({ result }) => result.recovery!.waitMs.mean)
  t.ok(waits[0]! > waits[1]! && waits[1]! > waits[2]!, waits.join(' > '))
  const computed = [restart, migration, pool].map(({ result }) => result.recovery!.computedTokens)
  t.ok(computed[0]! > ONE.inputTokens && computed[1]! > ONE.inputTokens)
  t.ok(computed[2]! <= 512, `${computed[2]} tokens, which fill no block, are computed`)
  const readMs = 1 + 0.002 * ONE.inputTokens
  t.ok(waits[2]! > readMs && waits[2]! < readMs + 100, `a read of ${readMs} ms, and a step: ${waits[2]} ms`)
})

t.test('a read that takes longer is waited for, and all is the same in every run', async t => {
  const slow = await run({ kind: 'pool', readMs: 500, readMsPerToken: 0 })
  const fast = await run({ kind: 'pool', readMs: 1, readMsPerToken: 0 })
  const [slowMs, fastMs] = [slow, fast].map(({ result }) => result.recovery!.waitMs.mean)
  t.equal(Math.round(slowMs! - fastMs!), 499)
  const again = await run({ kind: 'pool', readMs: 500, readMsPerToken: 0 })
  t.equal(JSON.stringify(again.result), JSON.stringify(slow.result))
})

t.test('the worker that takes over may die, too, also while it reads', async t => {
  for (const kind of ['restart', 'migration', 'pool'] as const)
    for (const laterMs of [100, 700]) {
      const deaths = [0, 1].map(worker => ({ atMs: DIED_MS + worker * laterMs, worker }))
      const { result } = await run({ kind, readMs: 400, readMsPerToken: 0 }, { deaths })
      t.equal(result.lost + result.refused, 0)
      t.equal(Math.round((result.outputTokensPerS * result.makespanMs) / 1000), ONE.outputTokens)
    }
})

t.test('figures out of range are refused', async t => {
  for (const recovery of [{ kind: 'pool', readMs: -1 } as const, { kind: 'pool', weight: NaN } as const])
    await t.rejects(simulateCell(specOf(recovery), [ONE]), /use a number ≥ 0/)
})
