import assert from 'node:assert/strict'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openTrace, readTrace, type TraceRequest } from '@homing/trace'
import t from 'tap'
import { type CellResult, type CellSpec, type ClosedLoop, simulateCell } from '../src/index.ts'
import { REFERENCE_SPEC } from './reference-spec.ts'

/** 1,000 requests of a made trace, one after the other at 3.4 a second. */
const SMALL = join(
  fileURLToPath(import.meta.resolve('@homing/engine')),
  '..',
  '..',
  'fixtures',
  'small-trace.jsonl.gz',
)
const TRACE = readTrace(SMALL)

const SPEC: CellSpec = { ...REFERENCE_SPEC, workers: 4, speed: 3, kvCapacityTokens: 120_000 }

async function run(changes: Partial<CellSpec> = {}, requests = TRACE): Promise<CellResult> {
  return (await simulateCell({ ...SPEC, ...changes }, requests)).result
}

function view(changes: Partial<CellSpec['view']>): Partial<CellSpec> {
  return { view: { ...SPEC.view, ...changes } }
}

function request(timestampMs: number, inputTokens: number, outputTokens: number, firstId = 0): TraceRequest {
  const hashIds = Array.from({ length: Math.ceil(inputTokens / 512) }, (_, i) => firstId + i)
  return { timestampMs, inputTokens, outputTokens, hashIds }
}

function atOnce(_delayMs: number, callback: () => void) {
  callback()
  return { cancel() {} }
}

t.test('equal specs give equal results, byte for byte; another seed gives another one', async t => {
  const changes: Partial<CellSpec> = {
    routers: 3,
    ...view({ kind: 'late', eventDelayMs: 50, signalDelayMs: 2, lossShare: 0.1, credit: 'measured' }),
    selection: { policy: 'product', temperature: 0.3 },
    loadCounts: 'blocks',
    slow: { share: 0.25, factor: 1.3 },
    spread: { binMs: 100, jitterShare: 0.2 },
    warmupShare: 0.1,
  }
  const first = JSON.stringify(await run(changes))
  t.equal(JSON.stringify(await run(changes)), first)
  t.equal(
    JSON.stringify((await simulateCell({ ...SPEC, ...changes }, openTrace(SMALL))).result),
    first,
    'streamed',
  )
  t.not(JSON.stringify(await run({ ...changes, seed: 2 })), first.replace('"seed":1', '"seed":2'))
})

t.test('every request is served once, and its tokens are counted once', async t => {
  const result = await run()
  const inputTokens = TRACE.reduce((sum, request) => sum + request.inputTokens, 0)
  const outputTokens = TRACE.reduce((sum, request) => sum + Math.max(1, request.outputTokens), 0)
  t.equal(result.requests, 1000)
  t.equal(result.decisions, 1000)
  t.equal(Math.round(result.prefillTokens + result.hitRate * inputTokens), inputTokens)
  t.equal(Math.round((result.outputTokensPerS * result.makespanMs) / 1000), outputTokens)
  t.ok(result.hitRate <= result.infiniteHitRate! && result.hitEfficiency! <= 1)
  t.ok(result.drain >= 1)
})

t.test('the first requests count only with the warm-up', async t => {
  const whole = await run()
  const cut = await run({ warmupShare: 0.1 })
  t.equal(cut.requests, 900)
  t.strictSame(cut.withWarmup, whole.withWarmup)
  t.ok(cut.hitRate > cut.withWarmup.hitRate, 'caches were cold at first')
})

t.test('the less routers know, the less is reused', async t => {
  const hitRate = async (changes: Partial<CellSpec['view']>): Promise<number> =>
    (await run({ selection: { policy: 'product' }, ...view(changes) })).hitRate
  const exact = await hitRate({})
  const late = await hitRate({ kind: 'late', eventDelayMs: 20_000 })
  const lossy = await hitRate({ lossShare: 0.2 })
  const guessed = await hitRate({ kind: 'guessed' })
  const guessedShort = await hitRate({ kind: 'guessed', guessTtlMs: 10_000 })
  const none = await hitRate({ kind: 'none' })
  const said = JSON.stringify({ exact, late, lossy, guessed, guessedShort, none })
  t.ok(exact > late && late > none, said)
  t.ok(exact > lossy && lossy > none, said)
  t.ok(guessed > guessedShort && guessedShort > none, said)
  t.equal(await hitRate({ kind: 'late', eventDelayMs: 0 }), exact, 'late by nothing is exact')
})

t.test('texts tell prefixes as guesses do, in pieces of another size', async t => {
  const guessed = await run({ ...view({ kind: 'guessed' }) })
  const same = await run({ ...view({ kind: 'text', textBytesPerToken: 4 }) })
  const { spec: _, ...figures } = same
  const { spec: __, ...expected } = guessed
  t.strictSame(figures, expected, 'a token of four bytes is what the router reckons with')
  const shorter = await run({ ...view({ kind: 'text', textBytesPerToken: 1 }) })
  t.ok(shorter.hitRate < guessed.hitRate, 'a piece is four blocks')
})

t.test('several routers know less of the load than one', async t => {
  const selection = { mode: 'least-loaded' } as const
  const one = await run({ selection })
  const eight = await run({ selection, routers: 8 })
  t.ok(eight.imbalance.outstandingMaxOverMean > one.imbalance.outstandingMaxOverMean)
  t.ok(eight.ttftMs.mean > one.ttftMs.mean)
})

t.test('signals that come late make decisions worse, and never lose one', async t => {
  const selection = { mode: 'least-loaded' } as const
  const late = await run({ selection, ...view({ signalDelayMs: 20_000 }) })
  t.equal(late.requests, 1000)
  t.ok(late.ttftMs.mean > (await run({ selection })).ttftMs.mean)
})

t.test('engine blocks may be smaller than those of the trace', async t => {
  const coarse = await run()
  const fine = await run({ blockTokens: 64 })
  t.ok(fine.hitRate >= coarse.hitRate, `${fine.hitRate} and ${coarse.hitRate}`)
  t.ok(fine.evictions > coarse.evictions)
})

t.test('a slow worker gets less from a policy that looks at load', async t => {
  const slow = { share: 0.25, factor: 3 }
  const turns = await run({ selection: { mode: 'round-robin' }, slow })
  const least = await run({ selection: { mode: 'least-loaded' }, slow })
  t.ok(least.ttftMs.p99 < turns.ttftMs.p99)
  t.ok(least.imbalance.newTokensCv > turns.imbalance.newTokensCv)
})

t.test('a slow worker can be named', async t => {
  const loads = async (worker: number) => {
    const { imbalance } = await run({
      selection: { mode: 'round-robin' },
      slow: { share: 0, factor: 3, worker },
    })
    return imbalance.busyCv
  }
  const plain = (await run({ selection: { mode: 'round-robin' } })).imbalance.busyCv
  for (const worker of [0, 3]) t.ok((await loads(worker)) > plain)
  await t.rejects(run({ slow: { share: 0, factor: 3, worker: 4 } }), /a slow worker 4/)
})

t.test('a rule by session keeps a conversation on one worker', async t => {
  const turn = (i: number): TraceRequest => ({ ...request(i * 1000, 600 + 512 * i, 5, 0), sessionId: 'one' })
  const result = await run(
    { selection: { rule: 'session' }, speed: 1 },
    Array.from({ length: 20 }, (_, i) => turn(i)),
  )
  t.equal(result.imbalance.newTokensMaxOverMean, 4)
  t.equal(result.hitEfficiency, 1)
})

t.test('a rule by overlap alone sends all that share a beginning to one worker', async t => {
  const requests = Array.from({ length: 30 }, (_, i): TraceRequest => {
    return { timestampMs: i * 5000, inputTokens: 1100, outputTokens: 3, hashIds: [0, 2 * i + 1, 2 * i + 2] }
  })
  const result = await run({ selection: { rule: 'overlap' }, speed: 1 }, requests)
  t.equal(result.imbalance.newTokensMaxOverMean, 4)
})

t.test('when a worker dies, what has not begun is placed again, and what has is lost', async t => {
  // Both on worker 0: the other one joins later.
  const requests = [request(0, 500, 200), request(10, 100_000, 5, 1000), request(9000, 500, 5, 5000)]
  const result = await run(
    {
      workers: 2,
      speed: 1,
      selection: { mode: 'round-robin' },
      kvCapacityTokens: 400_000,
      joins: [{ atMs: 100, worker: 1 }],
      deaths: [{ atMs: 500, worker: 0 }],
    },
    requests,
  )
  t.equal(result.lost, 1)
  t.equal(result.refused, 0)
  t.equal(result.requests, 3)
  t.equal(result.decisions, 4)
  t.ok(result.ttftMs.p99 > 500)
  t.equal(result.goodput.longContext, 2 / 3)
})

t.test('without any worker alive, requests are refused', async t => {
  const deaths = [{ atMs: 100, worker: 0 }]
  const result = await run({ workers: 1, speed: 1, deaths }, [request(0, 5, 1), request(500, 5, 1)])
  t.strictSame([result.refused, result.lost, result.requests, result.goodput.standard], [1, 0, 2, 0.5])
})

t.test('a died worker that joins again begins with an empty cache', async t => {
  const changes = {
    workers: 2,
    speed: 1,
    joins: [{ atMs: 3000, worker: 1 }],
    deaths: [{ atMs: 2000, worker: 1 }],
  }
  const result = await run(changes, [request(0, 2000, 1), request(5000, 2000, 1)])
  t.equal(result.requests, 2)
  t.equal(result.lost, 0)
})

t.test('in a closed loop the next turn comes after the answer', async t => {
  const arrivals: [turn: number, atMs: number][] = []
  const ends: number[] = []
  const turns = (count: number): ClosedLoop => ({
    requestsExpected: 2 * count,
    first: () => [request(0, 600, 50), request(5, 600, 50, 100)],
    onComplete({ inputTokens, hashIds }, atMs) {
      ends.push(atMs)
      const turn = (inputTokens - 600) / 100 + 1
      if (turn === count) return undefined
      arrivals.push([turn, atMs + 1000])
      return request(atMs + 1000, inputTokens + 100, 50, hashIds[0]!)
    },
  })
  const { result } = await simulateCell(
    { ...SPEC, selection: { policy: 'product' }, warmupShare: 0.5 },
    turns(6),
  )
  t.equal(result.withWarmup.requests, 12)
  t.equal(result.requests, 6)
  t.equal(arrivals.length, 10)
  t.ok(result.spanMs >= 5 * 1000, 'five pauses of a second')
  t.ok(ends.every((end, i) => i === 0 || end >= ends[i - 1]!))
  const again = await simulateCell({ ...SPEC, selection: { policy: 'product' }, warmupShare: 0.5 }, turns(6))
  t.strictSame(again.result, result)
})

t.test('a next turn before the end of the answer is refused', async t => {
  const loop: ClosedLoop = {
    requestsExpected: 2,
    first: () => [request(1000, 600, 2)],
    onComplete: (_, atMs) => request(atMs - 1, 600, 2),
  }
  await t.rejects(simulateCell(SPEC, loop), { code: 'HOMING_SIMULATE_BAD_INPUT', message: /a next turn at / })
})

t.test('times that go back are refused, with both times', async t => {
  const requests = [request(100, 5, 1), request(99, 5, 1)]
  await t.rejects(simulateCell({ ...SPEC, speed: 1 }, requests), {
    code: 'HOMING_SIMULATE_BAD_INPUT',
    message:
      /cannot simulate a request at 99 ms: requests must be in order of time, and the one before is at 100 ms/,
  })
})

t.test(
  'an empty prompt and an empty answer count as one token; what no worker can hold is refused',
  async t => {
    const empty = await run({ speed: 1 }, [request(0, 0, 0)])
    t.strictSame([empty.requests, empty.prefillTokens, empty.goodput.interactive], [1, 1, 1])
    const huge = await run({ speed: 1 }, [
      request(0, 10_000_000, 1),
      request(1, 10, 10_000_000),
      request(2, 10, 10),
    ])
    t.strictSame([huge.requests, huge.refused, huge.decisions], [3, 2, 1])
    t.equal(huge.goodput.longContext, 1 / 3)
    const held = await run({ speed: 1, kvCapacityTokens: 20_000_000 }, [request(0, 10_000_000, 1)])
    t.equal(held.prefillTokens, 10_000_000)
  },
)

t.test('no request at all is a result, too', async t => {
  const result = await run({}, [])
  t.strictSame([result.requests, result.ttftMs.mean, result.hitRate, result.drain], [0, 0, 0, 1])
  t.notOk(/null|NaN/.test(JSON.stringify(result)))
})

t.test('a trace streams: no request is read before its time has come', async t => {
  let read = 0
  let ahead = 0
  let done = 0
  const source = {
    *[Symbol.iterator]() {
      for (; read < 50_000; read++) {
        ahead = Math.max(ahead, read - done)
        yield request(read * 100, 100, 2)
      }
    },
  }
  const tick = {
    nowMs: () => (clock += 1000),
    wallMs: () => 0,
    after: atOnce,
  }
  let clock = 0
  const { result } = await simulateCell({ ...SPEC, speed: 1 }, source, {
    clock: tick,
    onProgress: ({ requestsDone }) => {
      done = requestsDone
    },
  })
  t.equal(result.requests, 50_000)
  t.ok(ahead < 10_000, `${ahead} requests were read ahead of those done, as of the last progress`)
})

t.test('progress is told, and a signal ends the run with its reason', async t => {
  const controller = new AbortController()
  let told = 0
  let clock = 0
  const options = {
    clock: {
      nowMs: () => (clock += 60),
      wallMs: () => 0,
      after: atOnce,
    },
    signal: controller.signal,
    onProgress({
      requestsDone,
      requestsExpected,
      simulatedMs,
    }: {
      requestsDone: number
      requestsExpected: number | undefined
      simulatedMs: number
    }) {
      told++
      assert.ok(requestsDone <= 1000 && simulatedMs > 0)
      assert.equal(requestsExpected, 1000)
      if (told === 1) controller.abort(new Error('enough'))
    },
  }
  await t.rejects(simulateCell({ ...SPEC, warmupShare: 0.1 }, TRACE, options), { message: 'enough' })
  t.equal(told, 1)
})

t.test('a trace that can be read once is refused where its size must be known first', async t => {
  const once = TRACE.values()
  await t.rejects(simulateCell({ ...SPEC, warmupShare: 0.1 }, once), {
    code: 'HOMING_SIMULATE_BAD_INPUT',
    message: /need to read it twice: give an array or a file/,
  })
  await t.resolves(simulateCell(SPEC, once))
})

t.test('a spec that cannot be is refused, with the value and what would be right', async t => {
  const bad: readonly [Partial<CellSpec>, RegExp][] = [
    [{ workers: 0 }, /0 workers: use a whole number/],
    [{ routers: 65 }, /65 routers/],
    [{ blockTokens: 96 }, /blocks of 96 tokens: use a divisor of 512/],
    [{ warmupShare: 1 }, /warm-up share of 1/],
    [view({ eventDelayMs: -1 }), /a delay of -1 ms/],
    [view({ lossShare: 1.5 }), /loss share of 1.5/],
    [{ slow: { share: 2, factor: 1 } }, /slow share of 2/],
    [{ slow: { share: 0.5, factor: 0 } }, /slow factor of 0/],
    [{ deaths: [{ atMs: 5, worker: 4 }] }, /worker 4: use 0 to 3/],
  ]
  for (const [changes, message] of bad) {
    await t.rejects(simulateCell({ ...SPEC, ...changes }, TRACE), {
      code: 'HOMING_SIMULATE_BAD_INPUT',
      message,
    })
  }
  const short = { timestampMs: 0, inputTokens: 1024, outputTokens: 1, hashIds: [0] }
  await t.rejects(simulateCell(SPEC, [short]), { message: /a prompt of 1024 tokens: it has 1 hash ids/ })
  await t.rejects(run({ speed: 0 }), RangeError)
  await t.rejects(run({ selection: { policy: 'best' as 'linear' } }), RangeError)
})

t.test(
  'ids that smaller blocks, copies or a stretch would make too large to tell apart are refused',
  async t => {
    const large = [{ ...request(0, 1024, 2), hashIds: [2 ** 53 - 3, 2 ** 53 - 2] }]
    await t.resolves(run({}, large), 'as they are')
    for (const changes of [{ blockTokens: 16 }, { copies: 3 }, { stretch: 8 }])
      await t.rejects(run(changes, large), { code: 'HOMING_SIMULATE_BAD_INPUT', message: /below 2\^53/ })
  },
)

t.test('users of a closed loop are known when they arrive, not before', async t => {
  let arrived = 0
  let answered = 0
  let aheadMax = 0
  const loop: ClosedLoop = {
    requestsExpected: 200,
    *first() {
      for (; arrived < 200; arrived++) {
        aheadMax = Math.max(aheadMax, arrived - answered)
        yield request(10_000 * arrived, 1024, 4, 10 * arrived)
      }
    },
    onComplete() {
      answered++
      return undefined
    },
  }
  t.equal((await simulateCell(SPEC, loop)).result.decisions, 200)
  t.equal(aheadMax, 1, 'one request of ten seconds later')
})

t.test('first requests of a closed loop that go back in time are refused', async t => {
  const first = () => [request(500, 1024, 4), request(400, 1024, 4)]
  const loop = { requestsExpected: 2, first, onComplete: () => undefined }
  await t.rejects(simulateCell(SPEC, loop), {
    code: 'HOMING_SIMULATE_BAD_INPUT',
    message: /400 ms.*the one before is at 500 ms/,
  })
})
