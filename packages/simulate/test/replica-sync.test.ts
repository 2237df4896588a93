/** Several simulated routers with replica sync: what they know, and when. */

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Random, seededRandom } from '@homing/base'
import { readTrace } from '@homing/trace'
import fc from 'fast-check'
import t from 'tap'
import { EmptyView } from '../src/fleet-view.ts'
import { type CellResult, type CellSpec, parseColumn, type QueueSpec, simulateCell } from '../src/index.ts'
import { type ReplicaGather, type ReplicaOperation, ReplicaSync } from '../src/replica-sync.ts'
import { SimFleet } from '../src/sim-fleet.ts'
import { newSimRequest, type SimRequest } from '../src/sim-request.ts'
import { SimRouter } from '../src/sim-router.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

const SPEC: CellSpec = { ...REFERENCE_SPEC, workers: 4, knowsOutput: false, loadCounts: 'blocks' }
const FLEET = new SimFleet(SPEC).of([0, 1, 2, 3])
const POLICIES = ['auto-unguarded', 'product', 'linear', 'least-loaded'] as const
/**
 * Without auto: how busy queues are it samples at its own decisions, and the routers of several see other
 * samples.
 */
const PLAIN_POLICIES = ['product', 'linear', 'least-loaded'] as const
const REQUESTS = 120

/** Routers that hear of each other `delayMs` later; all draw from the same numbers. */
class Routers {
  readonly all: readonly SimRouter[]
  readonly #sync: ReplicaSync

  constructor(count: number, policy: string, delayMs: number, random: Random) {
    const spec: CellSpec = {
      ...SPEC,
      routers: count,
      view: { ...SPEC.view, credit: 'full' },
      selection: parseColumn(policy).selection,
    }
    this.all = Array.from({ length: count }, (_, router) => {
      return new SimRouter({
        spec,
        view: new EmptyView(),
        oracle: undefined,
        random,
        guardRandom: random,
        tell: (operation, nowMs) => this.#sync.tell(router, operation, nowMs),
      })
    })
    this.#sync = new ReplicaSync(delayMs, this.all)
  }

  at(request: SimRequest, nowMs: number): SimRouter {
    this.#sync.deliver(nowMs)
    return this.all[request.index % this.all.length]!
  }

  workerDied(worker: number): void {
    this.#sync.forget(worker)
    for (const router of this.all) router.workerDied(worker)
  }

  deliverAll(): void {
    this.#sync.deliver(Number.POSITIVE_INFINITY)
  }
}

type Step = 'decide' | 'firstToken' | 'complete' | 'die'

/** Prompts that share nothing: what is counted as a number of blocks is then what is counted by hashes. */
function uniqueRequest(index: number, inputTokens: number, nowMs: number): SimRequest {
  const blocks = Math.floor(inputTokens / SPEC.blockTokens)
  const hashIds = Array.from({ length: blocks + 1 }, (_, i) => index * 1000 + i)
  const trace = { timestampMs: nowMs, inputTokens, outputTokens: 50 + (index % 7) * 30, hashIds }
  return newSimRequest(trace, index, hashIds, blocks, 0)
}

/**
 * Plays the same steps on some routers; the workers that they chose, and what each counts after each step.
 */
function play(routers: Routers, steps: readonly Step[], seed: number): readonly string[] {
  const random = seededRandom(seed)
  const open: SimRequest[] = []
  const said: string[] = []
  let nowMs = 0
  let decided = 0
  const decide = (request: SimRequest): void => {
    routers.at(request, nowMs).decide(request, FLEET, nowMs)
    said.push(`${nowMs}: request ${request.index} to ${request.worker}`)
  }
  const complete = (request: SimRequest): void => routers.at(request, nowMs).completed(request, nowMs)
  for (const step of steps) {
    nowMs += 1 + random.below(40)
    const at = open.length === 0 ? -1 : random.below(open.length)
    if (step === 'decide') {
      const request = uniqueRequest(decided++, 100 + random.below(9000), nowMs)
      decide(request)
      open.push(request)
    } else if (step === 'die') {
      const worker = random.below(SPEC.workers)
      routers.workerDied(worker)
      for (const request of open) {
        if (request.worker !== worker) continue
        request.firstTokenMs = -1
        decide(request)
      }
    } else if (at >= 0 && step === 'firstToken' && open[at]!.firstTokenMs < 0) {
      const request = open[at]!
      request.firstTokenMs = nowMs
      routers.at(request, nowMs).firstToken(request, nowMs)
    } else if (at >= 0 && step === 'complete') {
      complete(open.splice(at, 1)[0]!)
    }
  }
  for (const request of open) {
    nowMs++
    complete(request)
  }
  routers.deliverAll()
  return said
}

const STEPS = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.constant<Step>('decide') },
    { weight: 3, arbitrary: fc.constant<Step>('firstToken') },
    { weight: 3, arbitrary: fc.constant<Step>('complete') },
    { weight: 1, arbitrary: fc.constant<Step>('die') },
  ),
  { maxLength: REQUESTS, size: 'max' },
)

function assertIdle({ all }: Routers): void {
  for (const router of all) {
    for (let worker = 0; worker < SPEC.workers; worker++) {
      const none = { activeBlocks: 0, activePrefillTokens: 0, activeRequests: 0, activePromptTokens: 0 }
      assert.deepEqual(router.totals(worker), none)
    }
  }
}

t.test('routers that tell each other at once decide as one does', async () => {
  const property = fc.property(
    fc.constantFrom(...PLAIN_POLICIES),
    fc.constantFrom(2, 3, 8),
    STEPS,
    fc.integer({ min: 1, max: 1e6 }),
    (policy, count, steps, seed) => {
      const one = new Routers(1, policy, 0, seededRandom(seed + 1))
      const several = new Routers(count, policy, 0, seededRandom(seed + 1))
      assert.deepEqual(play(several, steps, seed), play(one, steps, seed))
    },
  )
  fc.assert(property, { numRuns: 150 })
})

t.test('whatever the delay, nothing is left of what has ended', async () => {
  const property = fc.property(
    fc.constantFrom(...POLICIES),
    fc.constantFrom(1, 7, 100, 10_000),
    STEPS,
    fc.integer({ min: 1, max: 1e6 }),
    (policy, delayMs, steps, seed) => {
      const routers = new Routers(3, policy, delayMs, seededRandom(seed))
      play(routers, steps, seed)
      assertIdle(routers)
    },
  )
  fc.assert(property, { numRuns: 150 })
})

t.test('a booking counts at others when it arrives there, as tokens and as a number of blocks', async t => {
  const routers = new Routers(2, 'least-loaded', 5, seededRandom(1))
  const [, second] = routers.all as [SimRouter, SimRouter]
  const request = uniqueRequest(0, 2000, 100)
  routers.at(request, 100).decide(request, FLEET, 100)
  const { worker } = request
  routers.at(request, 104.9)
  t.equal(second.totals(worker).activeRequests, 0)
  routers.at(request, 105)
  const booked = { activeBlocks: 3, activePrefillTokens: 2000, activeRequests: 1, activePromptTokens: 2000 }
  t.strictSame(second.totals(worker), booked)
  routers.at(request, 200).firstToken(request, 200)
  routers.at(request, 205)
  t.strictSame(second.totals(worker), { ...booked, activePrefillTokens: 0 })
})

/** When other routers receive the operations sent at these times. */
function heardAt(gather: ReplicaGather | undefined, toldMs: readonly number[]): number[] {
  const heard: number[] = []
  const hears = (_: number, __: ReplicaOperation, nowMs: number): boolean => {
    heard.push(nowMs)
    return false
  }
  const silent = { heard: () => false }
  const sync = new ReplicaSync(1, [silent, { heard: hears }], gather)
  for (const atMs of toldMs) sync.tell(0, { kind: 'firstToken', id: `${atMs}`, worker: 0 }, atMs)
  sync.deliver(Number.POSITIVE_INFINITY)
  return heard
}

t.test('what is gathered goes with the first that waits, or behind the one that went at once', async t => {
  const toldMs = [100, 101, 101.5, 102.5, 110, 110]
  t.strictSame(heardAt(undefined, toldMs), [101, 102, 102.5, 103.5, 111, 111])
  t.strictSame(heardAt({ ms: 2, waits: 'always' }, toldMs), [103, 103, 103, 105.5, 113, 113])
  t.strictSame(heardAt({ ms: 2, waits: 'behind-first' }, toldMs), [101, 103, 103, 105, 111, 111])
})

/** 1,000 requests of a made trace, one after the other at 3.4 a second. */
const TRACE = readTrace(
  join(fileURLToPath(import.meta.resolve('@homing/engine')), '..', '..', 'fixtures', 'small-trace.jsonl.gz'),
)

async function run(changes: Partial<CellSpec>, policy: string, queue?: QueueSpec): Promise<CellResult> {
  const selection = { ...parseColumn(policy).selection, ...(queue !== undefined && { queue }) }
  return (await simulateCell({ ...SPEC, speed: 3, kvCapacityTokens: 120_000, ...changes, selection }, TRACE))
    .result
}

t.test('what routers know of each other late, or never, makes load uneven', async t => {
  const ttft = async (changes: Partial<CellSpec>): Promise<number> =>
    (await run({ routers: 8, ...changes }, 'least-loaded')).ttftMs.mean
  const one = await ttft({ routers: 1 })
  const atOnce = await ttft({ replicaSyncMs: 0 })
  const late = await ttft({ replicaSyncMs: 2000 })
  const never = await ttft({})
  const said = JSON.stringify({ one, atOnce, late, never })
  t.ok(Math.abs(atOnce / one - 1) < 0.1, said)
  t.ok(late > 1.2 * one && never > 1.2 * one, said)
})

t.test('eight routers with auto that tell each other are nearly as good as one', async t => {
  const mean = async (changes: Partial<CellSpec>) => {
    const results: CellResult[] = []
    for (const seed of [1, 2, 3, 4]) results.push(await run({ ...changes, seed }, 'auto'))
    const of = (figure: (result: CellResult) => number): number =>
      results.reduce((sum, result) => sum + figure(result), 0) / results.length
    return { hitRate: of(({ hitRate }) => hitRate), ttftMs: of(({ ttftMs }) => ttftMs.mean) }
  }
  const one = await mean({})
  const synced = await mean({ routers: 8, replicaSyncMs: 5 })
  const alone = await mean({ routers: 8 })
  const said = JSON.stringify({ one, synced, alone })
  t.ok(synced.hitRate > 0.97 * one.hitRate, said)
  t.ok(synced.ttftMs < 1.1 * one.ttftMs, said)
  t.ok(alone.ttftMs > 1.2 * one.ttftMs, said)
})

t.test('a single router has nobody to tell: its figures are the same byte for byte', async t => {
  const { spec: _, ...synced } = await run({ replicaSyncMs: 5 }, 'auto', { threshold: 'auto' })
  const { spec: __, ...alone } = await run({}, 'auto', { threshold: 'auto' })
  t.equal(JSON.stringify(synced), JSON.stringify(alone))
})

t.test('equal specs with sync, queues and deaths give equal results, and serve every request', async t => {
  const changes: Partial<CellSpec> = {
    routers: 4,
    replicaSyncMs: 20,
    companyMs: 50,
    speed: 4,
    deaths: [{ worker: 1, atMs: 20_000 }],
  }
  const first = await run(changes, 'auto', { threshold: 0.5 })
  const second = await run(changes, 'auto', { threshold: 0.5 })
  t.equal(JSON.stringify(second), JSON.stringify(first))
  t.ok(first.queue!.waitedShare > 0, 'some waited')
  t.equal(first.requests, TRACE.length)
  t.equal(first.decisions >= TRACE.length - first.refused, true)
  t.ok(first.company!.requests > 0 && first.company!.sameWorkerShare < 1)
})

t.test('of two that are drawn among near ties the one with fewer requests wins, repeatably', async t => {
  const withTies = async (nearTieMs?: number): Promise<string> => {
    const { selection } = parseColumn('auto-unguarded')
    const spec = { ...SPEC, speed: 3, kvCapacityTokens: 120_000, routers: 4, replicaSyncMs: 5 }
    const ties = nearTieMs === undefined ? {} : { nearTieMs }
    const { result } = await simulateCell({ ...spec, selection: { ...selection, ...ties } }, TRACE)
    const { spec: _, ...figures } = result
    return JSON.stringify(figures)
  }
  const plain = await withTies()
  t.not(await withTies(5), plain)
  t.equal(await withTies(5), await withTies(5))
})

t.test('a delay that cannot be is refused', async t => {
  await t.rejects(run({ replicaSyncMs: -1 }, 'auto'), { message: /delay of -1 ms/ })
  await t.rejects(run({ replicaGather: { ms: -2, waits: 'always' } }, 'auto'), { message: /delay of -2 ms/ })
  await t.rejects(run({ companyMs: Number.NaN }, 'auto'), { message: /delay of NaN ms/ })
})
