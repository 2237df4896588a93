/** Cells with prefill and decode apart. */

import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { seededRandom } from '@homing/base'
import type { Receipt } from '@homing/placement'
import { readTrace, type TraceRequest } from '@homing/trace'
import t from 'tap'
import { EmptyView } from '../src/fleet-view.ts'
import { prefillLegOf } from '../src/handovers.ts'
import { type CellSpec, type PoolsSpec, type ServedRequest, simulateCell } from '../src/index.ts'
import { SimFleet } from '../src/sim-fleet.ts'
import { newSimRequest, type SimRequest } from '../src/sim-request.ts'
import { SimRouter } from '../src/sim-router.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const SMALL = join(
  fileURLToPath(import.meta.resolve('@homing/engine')),
  '..',
  '..',
  'fixtures',
  'small-trace.jsonl.gz',
)
const TRACE = readTrace(SMALL)
const POOLS: PoolsSpec = { prefill: 2, transferMs: 2, transferMsPerToken: 0.002 }
const SPEC: CellSpec = {
  ...REFERENCE_SPEC,
  workers: 4,
  speed: 2,
  pools: POOLS,
  loadCounts: 'blocks',
  knowsOutput: false,
  selection: { policy: 'auto' },
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
}

async function run(changes: Partial<CellSpec> = {}, requests: readonly TraceRequest[] = TRACE) {
  const served: ServedRequest[] = []
  const { result } = await simulateCell({ ...SPEC, ...changes }, [...requests], {
    onServed: one => served.push(one),
  })
  return { result, served }
}

const isLong = ({ outputTokens }: TraceRequest): boolean => outputTokens > 1

t.test('each request is served once, in two legs, and its tokens are counted once', async t => {
  const { result, served } = await run()
  const outputTokens = TRACE.reduce((sum, request) => sum + Math.max(1, request.outputTokens), 0)
  t.equal(result.requests, TRACE.length)
  t.equal(result.refused + result.lost, 0)
  const answered = TRACE.filter(isLong).length
  t.equal(result.decisions, TRACE.length + answered)
  t.equal(Math.round((result.outputTokensPerS * result.makespanMs) / 1000), outputTokens)
  t.ok(
    served.filter(({ trace }) => isLong(trace)).every(({ worker }) => worker >= POOLS.prefill),
    'decode workers answer',
  )
  const inputTokens = TRACE.reduce((sum, request) => sum + request.inputTokens, 0)
  const computed = result.prefillTokens + result.hitRate * inputTokens
  t.equal(Math.round(computed), inputTokens + answered, 'of a prompt that is handed over, its last token')
  t.equal(JSON.stringify((await run()).result), JSON.stringify(result), 'the same in every run')
})

t.test('the router has heard of a computed prompt when it decides where it is answered', async t => {
  // Just before a power of two, adding a delay and taking it away does not give a time back.
  for (let i = 0; i < 64; i++) {
    const one = { timestampMs: 65_512 + i * 0.377, inputTokens: 600, outputTokens: 5, hashIds: [1, 2] }
    t.equal((await run({ speed: 1 }, [one])).result.requests, 1)
  }
})

t.test('a transfer delays the first token by what it takes, and nothing else', async t => {
  const one: TraceRequest = {
    timestampMs: 0,
    inputTokens: 4096,
    outputTokens: 10,
    hashIds: [1, 2, 3, 4, 5, 6, 7, 8],
  }
  const ttftMs = async (pools: PoolsSpec): Promise<number> =>
    (await run({ pools }, [one])).result.withWarmup.ttftMs.mean
  const atOnce = await ttftMs({ ...POOLS, transferMs: 0, transferMsPerToken: 0 })
  const later = await ttftMs({ ...POOLS, transferMs: 5, transferMsPerToken: 0.1 })
  t.equal(Math.round(1000 * (later - atOnce)), 1000 * (5 + 0.1 * 4096))
  const { pools: _, ...together } = SPEC
  const whole = (await simulateCell(together, [one])).result.withWarmup.ttftMs.mean
  t.ok(atOnce > whole + SPEC.view.signalDelayMs, 'the router hears of it, and one step of the decode engine')
})

t.test('a small rest of a prompt stays at its decode worker', async t => {
  const turn = (timestampMs: number, inputTokens: number): TraceRequest => ({
    timestampMs,
    inputTokens,
    outputTokens: 10,
    hashIds: Array.from({ length: Math.ceil(inputTokens / 512) }, (_, i) => i),
  })
  const turns = [turn(0, 8192), turn(60_000, 9216), turn(120_000, 20_480)]
  const stay = { tokens: 2048, share: 0.7 }
  t.equal((await run({}, turns)).result.decisions, 6)
  t.equal((await run({ pools: { ...POOLS, stay } }, turns)).result.decisions, 5, 'the second turn')
  const never = { tokens: 0, share: 1 }
  t.equal((await run({ pools: { ...POOLS, stay: never } }, turns)).result.decisions, 6)
})

t.test('by auto, a prompt goes apart when its worker would let others wait for it', async t => {
  const byAuto = { pools: { ...POOLS, stay: 'auto' } } as const
  const request = (
    timestampMs: number,
    inputTokens: number,
    outputTokens: number,
    from: number,
  ): TraceRequest => ({
    timestampMs,
    inputTokens,
    outputTokens,
    hashIds: Array.from({ length: Math.ceil(inputTokens / 512) }, (_, i) => from + i),
  })
  const one = request(0, 8192, 10, 0)
  t.equal((await run(byAuto, [one])).result.decisions, 1, 'nothing else is there')
  const small = Array.from({ length: 24 }, (_, i) => request(0, 512, 2000, 1000 + i))
  const decisions = async (requests: readonly TraceRequest[]): Promise<number> =>
    (await run(byAuto, requests)).result.decisions
  const without = await decisions(small)
  t.equal(await decisions([...small, request(2000, 16_384, 10, 0)]), without + 2, 'its legs')
})

t.test('the one token of a prefill leg says nothing of how long answers are', async t => {
  const fleet = new SimFleet(SPEC).of([0, 1, 2, 3])
  const request = (index: number): SimRequest => {
    const trace = { timestampMs: 0, inputTokens: 2048, outputTokens: 400, hashIds: [1, 2, 3, 4] }
    return newSimRequest(trace, index, trace.hashIds, trace.hashIds.length, 0)
  }
  /** Expected ms of decoding of a request after that number of answers, by another router. */
  const decodeMsAfter = (requests: readonly SimRequest[]): number => {
    const receipts: Receipt[] = []
    const random = seededRandom(1)
    const options = { view: new EmptyView(), oracle: undefined, random, guardRandom: random }
    const router = new SimRouter({ ...options, spec: SPEC, receipt: receipt => receipts.push(receipt) })
    let nowMs = 0
    for (const one of [...requests, request(requests.length)]) {
      router.decide(one, fleet, nowMs)
      one.firstTokenMs = nowMs + 100
      router.firstToken(one, nowMs + 100)
      nowMs += 60_000
      router.completed(one, nowMs)
    }
    const { candidates, cost } = receipts.at(-1)!
    return candidates[0]!.terms[cost.terms.findIndex(({ name }) => name === 'decode_ms')]!
  }
  const expectedMs = decodeMsAfter([])
  t.ok(expectedMs > 0)
  const prefilled = Array.from({ length: 20 }, (_, i) => prefillLegOf(request(i)))
  t.equal(decodeMsAfter(prefilled), expectedMs)
  const whole = Array.from({ length: 20 }, (_, i) => request(i))
  t.ok(decodeMsAfter(whole) > 1.5 * expectedMs, 'as answers of 400 tokens do')
})

t.test('pools that cannot be are refused', async t => {
  const refused: readonly [Partial<CellSpec>, RegExp][] = [
    [{ pools: { ...POOLS, prefill: 4 } }, /4 prefill workers of 4.*at least one of either kind/],
    [{ pools: { ...POOLS, transferMs: -1 } }, /a transfer of -1 ms/],
    [{ pools: { ...POOLS, stay: { tokens: 1, share: 2 } } }, /a share of 2/],
    [{ pools: { ...POOLS, stay: 'auto' }, selection: { policy: 'linear' } }, /legs compared by linear/],
    [{ deaths: [{ atMs: 1, worker: 0 }] }, /pools with deaths/],
    [{ selection: { policy: 'auto', queue: { threshold: 'auto' } } }, /pools with queue/],
  ]
  for (const [changes, message] of refused) await t.rejects(run(changes), { message })
})
