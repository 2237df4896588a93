/** The queue of simulated routers: what waits, when it goes, and what it changes where nothing waits. */

import assert from 'node:assert/strict'
import { generatedRequests, parseGenerator, type TraceRequest } from '@homing/trace'
import fc from 'fast-check'
import t from 'tap'
import {
  type CellResult,
  type CellSpec,
  parseColumn,
  type QueueSpec,
  type ServedRequest,
  simulateCell,
} from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const SIGNAL_MS = 2
const SPEC: CellSpec = {
  ...REFERENCE_SPEC,
  workers: 3,
  knowsOutput: false,
  loadCounts: 'blocks',
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: SIGNAL_MS },
}
const POLICIES = ['auto', 'product', 'linear', 'least-loaded', 'round-robin'] as const

function specOf(policy: string, queue: QueueSpec | undefined, changes: Partial<CellSpec> = {}): CellSpec {
  const { selection } = parseColumn(policy)
  return { ...SPEC, ...changes, selection: { ...selection, ...(queue !== undefined && { queue }) } }
}

function generated(text: string, seed: number): readonly TraceRequest[] {
  return [...generatedRequests(parseGenerator(text), seed)]
}

async function run(
  spec: CellSpec,
  requests: readonly TraceRequest[],
): Promise<{ readonly result: CellResult; readonly served: readonly ServedRequest[] }> {
  const served: ServedRequest[] = []
  const { result } = await simulateCell(spec, requests, { onServed: each => void served.push(each) })
  return { result, served }
}

t.test('where nothing waits, every figure is the same byte for byte as without a queue', async t => {
  for (const policy of POLICIES) {
    for (const seed of [1, 2]) {
      const requests = generated('sessions?requests=250&rate=5&loop=open', seed)
      const without = await run(specOf(policy, undefined, { seed }), requests)
      // No queue reaches so many steps.
      const idle = await run(specOf(policy, { threshold: 1e6 }, { seed }), requests)
      t.equal(idle.result.queue!.waitedShare, 0, `${policy}, seed ${seed}: nothing waits`)
      const { spec: _spec, queue: _queue, ...figures } = idle.result
      const { spec: _other, ...expected } = without.result
      t.equal(JSON.stringify(figures), JSON.stringify(expected), `${policy}, seed ${seed}`)
    }
  }
})

t.test('equal specs with a queue give equal results, byte for byte', async t => {
  const requests = generated('flood?requests=200&rate=6&flood=4', 7)
  const spec = specOf('auto', { threshold: 'auto' }, { routers: 2 })
  const first = JSON.stringify((await run(spec, requests)).result)
  t.equal(JSON.stringify((await run(spec, requests)).result), first)
})

t.test('a request waits only while every worker has something to do, and is served once', async () => {
  const property = fc.asyncProperty(
    fc.constantFrom(...POLICIES),
    fc.constantFrom('auto' as const, 0.5, 2),
    fc.constantFrom('auto' as const, 'fcfs' as const, 'lcfs' as const, 'wspt' as const),
    fc.integer({ min: 1, max: 1000 }),
    async (policy, threshold, order, seed) => {
      const requests = generated('unique?requests=80&rate=8', seed)
      const { result, served } = await run(specOf(policy, { threshold, order }, { seed }), requests)
      assert.equal(served.length + result.refused, requests.length)
      assert.equal(new Set(served.map(({ trace }) => trace)).size, served.length)
      for (const { arrivalMs, placedMs } of served) {
        assert.ok(placedMs >= arrivalMs)
        if (placedMs > arrivalMs) checkBusy(served, arrivalMs, placedMs)
      }
    },
  )
  await fc.assert(property, { numRuns: 30 })
})

/**
 * Every worker has a request at every moment between; it is known to be gone when its last signal has come.
 */
function checkBusy(served: readonly ServedRequest[], fromMs: number, toMs: number): void {
  for (let worker = 0; worker < SPEC.workers; worker++) {
    const own = served.filter(each => each.worker === worker).toSorted((a, b) => a.placedMs - b.placedMs)
    let busyUntilMs = fromMs
    for (const { placedMs, endMs } of own) {
      if (placedMs > busyUntilMs) break
      busyUntilMs = Math.max(busyUntilMs, endMs + SIGNAL_MS)
    }
    assert.ok(busyUntilMs >= toMs - 1e-6, `worker ${worker} is idle at ${busyUntilMs}, before ${toMs}`)
  }
}

t.test('under fcfs what waits goes in order of arrival', async t => {
  const requests = generated('unique?requests=150&rate=12', 3)
  const { served, result } = await run(specOf('least-loaded', { threshold: 1, order: 'fcfs' }), requests)
  t.ok(result.queue!.waitedShare > 0.3, 'most wait')
  const order = served.toSorted((a, b) => a.arrivalMs - b.arrivalMs).map(({ placedMs }) => placedMs)
  t.same(
    order,
    order.toSorted((a, b) => a - b),
  )
})

t.test('what waits too long is refused, and so is all of it when no worker is left', async t => {
  const requests = generated('unique?requests=150&rate=12', 3)
  const late = await run(specOf('auto', { threshold: 'auto', waitMsMax: 500 }), requests)
  t.ok(late.result.queue!.refused > 0)
  t.equal(late.result.queue!.refused, late.result.refused)
  t.ok(late.result.queue!.waitMs.max <= 500)
  t.equal(late.served.length + late.result.refused, requests.length)

  const deaths = [0, 1, 2].map(worker => ({ worker, atMs: 6000 + worker }))
  const dead = await run(specOf('auto', { threshold: 'auto' }, { deaths }), requests)
  t.ok(dead.result.queue!.refused > 0, 'some waited when the last one died')
  t.equal(dead.served.length + dead.result.refused + dead.result.lost, requests.length)
})

t.test('a flood of long prompts of one tenant does not hold up the chat of another', async t => {
  const requests = generated('flood?requests=300&rate=6&flood=3', 5)
  const chatP99 = async (queue: QueueSpec | undefined): Promise<number> => {
    const { result } = await run(specOf('product', queue), requests)
    t.same(
      result.tenants!.map(({ tenant }) => tenant),
      ['chat', 'flood'],
    )
    return result.tenants![0]!.ttftMs.p99
  }
  const [without, own] = [await chatP99(undefined), await chatP99({ threshold: 'auto' })]
  t.ok(own < without / 10, `${own} ms with a queue, ${without} ms without`)
})

t.test('under auto, too, the chat is served beside a flood, in the mean of six seeds', async t => {
  const meanP99 = async (queue: QueueSpec | undefined): Promise<number> => {
    let sum = 0
    for (const seed of FLOOD_SEEDS) {
      const requests = generated('flood?requests=300&rate=6&flood=3', seed)
      const { result } = await run(specOf('auto', queue, { seed }), requests)
      sum += result.tenants!.find(({ tenant }) => tenant === 'chat')!.ttftMs.p99
    }
    return sum / FLOOD_SEEDS.length
  }
  const [without, own] = [await meanP99(undefined), await meanP99({ threshold: 'auto' })]
  t.comment(`${own.toFixed(0)} ms with a queue, ${without.toFixed(0)} ms without`)
  t.ok(own < without / 4, `${own} ms with a queue, ${without} ms without`)
})

/** One alone says little: what auto does is chaotic. */
const FLOOD_SEEDS = [1, 2, 3, 4, 5, 6]

t.test('a prompt that no engine has free KV blocks for keeps no other from going', async t => {
  const kvCapacityTokens = 200_000
  const blocks = kvCapacityTokens / SPEC.blockTokens
  const request = (timestampMs: number, share: number, firstId: number): TraceRequest => {
    const count = Math.floor(share * blocks)
    const hashIds = Array.from({ length: count }, (_, i) => firstId + i)
    return { timestampMs, inputTokens: count * SPEC.blockTokens, outputTokens: 20_000, hashIds }
  }
  // On each worker one, prefilled long before the other two come.
  const long = request(0, 0.7, 1)
  const another = request(0, 0.7, 500_000)
  const lacksRoom = request(40_000, 0.5, 1_000_000)
  const hasRoom = request(70_000, 0.1, 2_000_000)
  const requests = [long, another, lacksRoom, hasRoom]
  const { served } = await run(
    specOf('auto', { threshold: 'auto' }, { workers: 2, warmupShare: 0, kvCapacityTokens }),
    requests,
  )
  const of = (trace: TraceRequest): ServedRequest =>
    served.find(each => each.trace.hashIds === trace.hashIds)!
  for (const each of [of(long), of(another)]) {
    t.ok(each.firstTokenMs < 40_000, 'it decodes')
    t.ok(each.endMs > 70_000, 'still')
  }
  t.not(of(long).worker, of(another).worker)
  t.equal(of(hasRoom).placedMs, 70_000)
})

t.test('tenants without a weight share one beside those that have one, as at the router', async t => {
  const requests = generated('tenants?requests=400&tenants=8', 3)
  const queue = { threshold: 'auto', tenantWeights: { t1: 1 } } as const
  const meanMsOf = async (unnamedTenants: 'shared' | 'own') => {
    const { result } = await run(specOf('product', { ...queue, unnamedTenants }), requests)
    return result.tenants!.find(({ tenant }) => tenant === 't1')!.ttftMs.mean
  }
  const [shared, own] = [await meanMsOf('shared'), await meanMsOf('own')]
  t.ok(shared < own, `t1 has half of it, not an eighth: ${shared} ms, ${own} ms`)
})
