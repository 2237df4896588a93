/**
 * The fit of a simulation to a decision log: exact where the log comes from the same engines, refused where
 * it does not.
 */

import { makeTrace } from '@homing/engine'
import type { DecisionLog, LoggedRequest, LoggedWorker, TraceRequest } from '@homing/trace'
import t from 'tap'
import { type CellSpec, fitLog, fitText, logTrace, type ServedRequest, simulateCell } from '../src/index.ts'

const BLOCK = 512
const WORKERS = 3
const KV_BLOCKS = 200
const ROUTER_MS = 2

const SPEC: CellSpec = {
  workers: WORKERS,
  profile: 'h100-8b',
  blockTokens: BLOCK,
  kvCapacityTokens: KV_BLOCKS * BLOCK,
  storeAt: 'chunk-start',
  routers: 1,
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
  selection: { mode: 'kv', policy: 'product' },
  knowsOutput: false,
  speed: 1,
  copies: 1,
  stretch: 1,
  seed: 1,
  warmupShare: 0,
}

const worker = (number: number): LoggedWorker => ({
  key: `w${number}/0`,
  models: ['m'],
  blockTokens: BLOCK,
  kvBlocks: KV_BLOCKS,
  stepTokensMax: 8192,
  isUp: true,
})

/** What a fleet that is as simulated would have logged; `baseMs`: the way to its engines and back. */
async function logged(spec: CellSpec = SPEC, baseMs = 0, requests = 400): Promise<DecisionLog> {
  const trace = makeTrace({ seed: 3, requests, requestsPerSecond: 12 }).map(request => ({
    ...request,
    // As the router has called.
    timestampMs: request.timestampMs + ROUTER_MS,
  }))
  const served: ServedRequest[] = []
  await simulateCell(spec, trace, { onServed: one => void served.push(one) })
  return logOf(served.map(one => lineOf(one, baseMs)))
}

function logOf(requests: readonly LoggedRequest[]): DecisionLog {
  return {
    requests: requests.toSorted((a, b) => a.timestampMs - b.timestampMs),
    workers: Array.from({ length: WORKERS }, (_, number) => worker(number)),
    selections: [],
    fleetChanges: 0,
    droppedRequests: 0,
    cuts: [],
  }
}

function lineOf({ trace, worker: at, ...times }: ServedRequest, baseMs: number): LoggedRequest {
  const { arrivalMs, firstTokenMs, endMs, reusedTokens } = times
  return {
    timestampMs: arrivalMs - ROUTER_MS,
    inputTokens: trace.inputTokens,
    outputTokens: trace.outputTokens,
    blockTokens: BLOCK,
    hashIds: trace.hashIds,
    sessionId: undefined,
    model: 'm',
    worker: `w${at}/0`,
    policy: 'product',
    predictedTokens: reusedTokens,
    cachedTokens: reusedTokens,
    routerMs: ROUTER_MS,
    firstTokenMs: firstTokenMs - arrivalMs + ROUTER_MS + baseMs,
    totalMs: endMs - arrivalMs + ROUTER_MS + baseMs,
    outcome: 'ok',
    error: undefined,
    attempts: 1,
    wasTaken: true,
    knowledge: 'tokens',
  }
}

const near = (a: number, b: number): boolean => Math.abs(a - b) < 1e-6 * Math.max(1, Math.abs(b))

t.test('a log of the same engines fits exactly, and a constant on top of it is learned', async t => {
  for (const baseMs of [0, 7]) {
    const fit = await fitLog(await logged(SPEC, baseMs), { profile: 'h100-8b' })
    t.strictSame(fit.faults, [])
    t.ok(near(fit.baseMs, baseMs), `${fit.baseMs}`)
    t.ok(near(fit.routerMs, ROUTER_MS))
    for (const name of ['mean', 'p50', 'p90'] as const)
      t.ok(near(fit.ttftMs.simulated[name], fit.ttftMs.seen[name]), name)
    t.equal(fit.hitRate.simulated, fit.hitRate.seen)
    t.ok(fit.hitRate.seen > 0.05, 'there is something to compare')
    t.match(
      fitText(fit),
      /^the simulation fits: .*\(ratio 1\.00, of p50 1\.00, of p90 1\.00\); hit rate .*\+0\.0 points/,
    )
  }
})

t.test('engines that are slower than their model, or hold less, are found out', async t => {
  const slow = await logged({ ...SPEC, slow: { share: 1, factor: 1.5 } })
  const slower = await fitLog(slow, { profile: 'h100-8b' })
  t.match(slower.faults, [/^the mean time to the first token is 0\.\d\d times what was seen$/])
  t.match(fitText(slower), /^the simulation does not fit/)
  const small = await logged({ ...SPEC, kvCapacityTokens: 30 * 512 * 4 })
  const smaller = await fitLog(small, { profile: 'h100-8b' })
  t.match(smaller.faults.join(), /times what was seen|the hit rate is off by/)
  const told = await fitLog(small, { profile: 'h100-8b', kvCapacityTokens: 30 * 512 * 4 })
  t.strictSame(told.faults, [], 'with the right size it fits')
})

t.test('a few requests prove nothing', async t => {
  const fit = await fitLog(await logged(SPEC, 0, 60), { profile: 'h100-8b' })
  t.match(fit.faults, [
    /^only 54 streamed answers can be compared, and 100 are needed$/,
    /^only 54 answers say/,
  ])
})

t.test('what no worker worked on is left out, and a length that is not known is the mean', async t => {
  const log = await logged(SPEC, 0, 200)
  const requests = log.requests.map((request, i): LoggedRequest => {
    if (i === 150) return { ...request, outcome: 'refused', worker: undefined, wasTaken: false }
    if (i === 160) return { ...request, wasTaken: false }
    if (i === 170) return { ...request, outcome: 'aborted', outputTokens: 0 }
    return request
  })
  const trace = logTrace({ ...log, requests })
  t.equal(trace.leftOut, 2)
  t.equal(trace.requests.length, 198)
  const known = requests.filter(({ outputTokens, wasTaken }) => wasTaken && outputTokens > 0)
  const mean = known.reduce((sum, { outputTokens }) => sum + outputTokens, 0) / known.length
  const unknown = trace.requests[trace.logged.findIndex(({ outputTokens }) => outputTokens === 0)]
  t.equal(unknown?.outputTokens, Math.round(mean))
  const fit = await fitLog({ ...log, requests }, { profile: 'h100-8b' })
  t.equal(fit.leftOut, 2)
  t.equal(fit.ttftCompared, 198 - 19 - 1, 'the first tenth, and what was not answered, are not compared')
})

t.test('a log that cannot be simulated says why', async t => {
  const log = await logged(SPEC, 0, 120)
  const none = { ...log, requests: log.requests.map(request => ({ ...request, wasTaken: false })) }
  await t.rejects(fitLog(none, { profile: 'h100-8b' }), {
    message: 'cannot simulate this decision log: no request of it reached a worker',
  })
  const mixed = {
    ...log,
    requests: log.requests.map((request, i) => (i % 2 === 0 ? request : { ...request, blockTokens: 16 })),
  }
  await t.rejects(fitLog(mixed, { profile: 'h100-8b' }), { message: /in blocks of 512 and 16 tokens/ })
})

t.test('requests go where they went, and calls are in order also where arrivals were not', async t => {
  const log = await logged(SPEC, 0, 150)
  const requests = log.requests.map((request, i) => ({ ...request, routerMs: i % 7 === 0 ? 500 : 0 }))
  const { requests: trace, logged: lines } = logTrace({ ...log, requests })
  const times = trace.map(({ timestampMs }) => timestampMs)
  t.strictSame(
    times,
    times.toSorted((a, b) => a - b),
  )
  t.ok(trace.every(({ worker }: TraceRequest, i) => lines[i]!.worker === `w${worker}/0`))
})

t.test('a worker that took no request does not hide the cache size of the others', async t => {
  const log = await logged()
  const idle = { ...worker(WORKERS), kvBlocks: undefined, isUp: false }
  t.equal(logTrace({ ...log, workers: [...log.workers, idle] }).kvCapacityTokens, KV_BLOCKS * BLOCK)
  const other = [...log.workers.slice(1), { ...log.workers[0]!, kvBlocks: undefined }]
  t.equal(logTrace({ ...log, workers: other }).kvCapacityTokens, undefined, 'one that took some does')
})

t.test('engines that leave cached tokens out where there are none are compared on all answers', async t => {
  const log = await logged()
  const terse = log.requests.map(request => ({ ...request, cachedTokens: request.cachedTokens || undefined }))
  const fit = await fitLog({ ...log, requests: terse }, { profile: 'h100-8b' })
  t.strictSame(fit, await fitLog(log, { profile: 'h100-8b' }))
  const silent = log.requests.map(request => ({ ...request, cachedTokens: undefined }))
  const { faults } = await fitLog({ ...log, requests: silent }, { profile: 'h100-8b' })
  t.match(faults, [/only 0 answers say what was cached/])
})
