/** Answers about fleets that are simulated themselves, so that it is known what really would have been. */

import { systemClock } from '@homing/base'
import { PROFILE_NAMES } from '@homing/engine'
import { type CellSpec, parseColumn, type ServedRequest, simulateCell } from '@homing/simulate'
import { generatedRequests, parseGenerator, type TraceRequest } from '@homing/trace'
import t from 'tap'
import { answerWhatIf, WhatIfError } from '../../src/what-if/answer.ts'
import { RequestMemory } from '../../src/what-if/index.ts'
import { WHAT_IF_PROFILES, type WhatIfProgress, type WhatIfTask } from '../../src/what-if/types.ts'

const BLOCK = 512
const WORKERS = 4
const ROUTER_MS = 2
const PROFILE = 'h100-8b'
const KV_TOKENS = 200 * BLOCK
const SELECTION = { mode: 'kv', policy: 'product', overlapWeight: 1, temperature: 0, followsEvents: true }

const SPEC: CellSpec = {
  workers: WORKERS,
  profile: PROFILE,
  blockTokens: BLOCK,
  kvCapacityTokens: KV_TOKENS,
  storeAt: 'chunk-start',
  routers: 1,
  view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
  selection: parseColumn('product').selection,
  knowsOutput: false,
  speed: 2,
  copies: 1,
  stretch: 1,
  seed: 1,
  warmupShare: 0,
}

const workers = Array.from({ length: WORKERS }, (_, i) => ({
  key: `w${i}:8000/0`,
  models: ['m'],
  blockTokens: BLOCK,
  kvBlocks: KV_TOKENS / BLOCK,
  stepTokensMax: 8192,
  isUp: true,
}))

/** What such a fleet would have done, as a router sees it; those that end after `fromMs`. */
async function seen(fromMs = 0, change: Partial<CellSpec> = {}): Promise<WhatIfTask> {
  const memory = new RequestMemory({ bytesMax: 2 ** 26, ageMsMax: 1e9 })
  const trace: TraceRequest[] = []
  for await (const request of generatedRequests(parseGenerator('sessions?requests=900'), 1))
    trace.push(request)
  const served: ServedRequest[] = []
  await simulateCell({ ...SPEC, ...change }, trace, { onServed: one => void served.push(one) })
  for (const { trace: request, worker, arrivalMs, firstTokenMs, endMs, reusedTokens } of served) {
    const { inputTokens, outputTokens, hashIds } = request
    memory.keep(
      {
        arrivedAtMs: 1e12 + arrivalMs - ROUTER_MS,
        inputTokens,
        outputTokens,
        blockTokens: BLOCK,
        model: 'm',
        worker: workers[worker]!.key,
        predictedTokens: reusedTokens,
        cachedTokens: reusedTokens,
        routerMs: ROUTER_MS,
        firstTokenMs: firstTokenMs - arrivalMs + ROUTER_MS,
        totalMs: endMs - arrivalMs + ROUTER_MS,
        outcome: 'ok',
        attempts: 1,
        knowledge: 'tokens',
        sequenceHashes: Int32Array.from({ length: 2 * Math.floor(inputTokens / BLOCK) }, (_, half) =>
          half % 2 === 0 ? hashIds[half >> 1]! : 7919 * hashIds[half >> 1]!,
        ),
      },
      1e12 + endMs,
    )
  }
  return {
    kept: memory.kept,
    sinceMs: 1e12 + fromMs,
    workers,
    selection: SELECTION,
    profile: PROFILE,
    learned: {},
    anyway: false,
    cpuShare: 1,
  }
}

function ask(task: WhatIfTask, onProgress: (progress: WhatIfProgress) => void = () => {}) {
  return answerWhatIf(task, { clock: systemClock, cpuMs: () => 0, onProgress })
}

t.test('what is asked about a fleet that did what the model does is what it would have done', async t => {
  const task = await seen()
  const progress: WhatIfProgress[] = []
  const { rows, fit, requests, model, notes } = await ask(task, one => void progress.push(one))
  t.match({ requests, model, notes }, { requests: 900, model: 'm', notes: [] })
  t.ok(fit.isGood, fit.text)
  t.ok(Math.abs(fit.ttftMs.simulated / fit.ttftMs.seen - 1) < 0.02, fit.text)
  t.strictSame(
    rows.map(({ name, workers, policy, kvTokens }) => [name, workers, policy, kvTokens]),
    [
      ['as it is', 4, 'product', KV_TOKENS],
      ['one more worker', 5, 'product', KV_TOKENS],
      ['one worker less', 3, 'product', KV_TOKENS],
      ['twice the cache', 4, 'product', 2 * KV_TOKENS],
      ['policy auto', 4, 'auto', KV_TOKENS],
      ['policy linear', 4, 'linear', KV_TOKENS],
      ['policy least-loaded', 4, 'least-loaded', KV_TOKENS],
      ['policy round-robin', 4, 'round-robin', KV_TOKENS],
    ],
  )
  const [asIs, more, less, cache] = rows as [
    (typeof rows)[0],
    (typeof rows)[0],
    (typeof rows)[0],
    (typeof rows)[0],
  ]
  t.ok(more.ttftMs.mean < asIs.ttftMs.mean && asIs.ttftMs.mean < less.ttftMs.mean, JSON.stringify(rows))
  t.ok(cache.hitRate > asIs.hitRate && cache.computedTokens < asIs.computedTokens)
  // The same change, made to the fleet itself.
  const really = await ask({ ...(await seen(0, { workers: WORKERS - 1 })), workers: workers.slice(1) })
  const ratio = less.ttftMs.mean / really.fit.ttftMs.seen
  t.ok(Math.abs(ratio - 1) < 0.1, `one worker less: ${ratio} times what it would have been`)
  const { step, steps } = progress.at(-1)!
  t.equal(step, steps)
  t.strictSame(
    progress.map(one => one.step),
    progress.map(one => one.step).toSorted((a, b) => a - b),
  )
})

t.test('a log that begins with warm caches is simulated with warm caches', async t => {
  const whole = await seen()
  const all = await ask(whole)
  const half = await ask({ ...whole, sinceMs: whole.sinceMs + all.spanMs / 4 })
  t.ok(half.requests < 700, `${half.requests} requests`)
  t.ok(half.fit.isGood, half.fit.text)
  t.ok(half.fit.hitRate.seen > 0.8)
  t.ok(Math.abs(half.fit.hitRate.simulated - half.fit.hitRate.seen) < 0.02, half.fit.text)
})

t.test('where the step times are others, nothing is said, unless it is asked for anyway', async t => {
  const task = { ...(await seen()), profile: 'h100-70b-tp4' }
  const refused = await ask(task)
  t.equal(refused.fit.isGood, false)
  t.strictSame(refused.rows, [])
  t.match(refused.fit.faults, [/the mean time to the first token is .* times what was seen/])
  t.equal((await ask({ ...task, anyway: true })).rows.length, 8)
})

t.test('the profile is looked for where none is given', async t => {
  const learned = Object.fromEntries(
    workers.map(({ key }) => [
      key,
      {
        prefill: { coefficients: [9, 9, 9], source: 'worker', observations: 100, kneeTokens: 0 },
        decode: { coefficients: [9, 9, 9], source: 'worker', observations: 100 },
      } as const,
    ]),
  )
  const task = { ...(await seen()), profile: undefined, learned }
  const { fit } = await ask(task)
  t.match(fit, { isGood: true, profile: PROFILE })
})

t.test('who asks about nothing is told so', async t => {
  const task = await seen()
  const future = { ...task, sinceMs: 2e12 }
  await t.rejects(ask(future), new WhatIfError('no request has reached a worker in these minutes'))
  await t.rejects(ask({ ...task, profile: 'learned' }), /has not learned the step times/)
  const few = await ask({ ...task, sinceMs: task.sinceMs + (await ask(task)).spanMs - 20_000 })
  t.match(few.fit.faults, [/only \d+ streamed answers can be compared/])
})

t.test('a policy that cannot be simulated is replaced, and that is said', async t => {
  const task = { ...(await seen()), selection: { ...SELECTION, policy: 'my-own' } }
  const { rows, notes } = await ask(task)
  t.match(notes, ['how this router places (my-own) cannot be simulated: auto stands for it'])
  t.equal(rows[0]!.policy, 'auto')
})

t.test('every profile of the simulator can be asked for', async t => {
  t.strictSame(WHAT_IF_PROFILES, ['learned', ...PROFILE_NAMES])
})
