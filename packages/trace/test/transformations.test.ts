import { seededRandom } from '@homing/base'
import t from 'tap'
import { scanTrace, type TraceRequest, type TraceSource, transformTrace } from '../src/index.ts'

function at(timestampMs: number, hashIds: readonly number[] = [0]): TraceRequest {
  return { timestampMs, inputTokens: hashIds.length * 512 - 12, outputTokens: 1, hashIds }
}

async function all(source: TraceSource): Promise<TraceRequest[]> {
  const requests: TraceRequest[] = []
  for await (const request of source) requests.push(request)
  return requests
}

async function times(source: TraceSource): Promise<number[]> {
  return (await all(source)).map(request => request.timestampMs)
}

t.test('requests of one instant are spread over their bin in order', async t => {
  const trace = [at(0), at(0), at(0), at(3000), at(6000), at(6000)]
  t.strictSame(
    await times(transformTrace(trace, { spread: { binMs: 3000 } })),
    [0, 1000, 2000, 3000, 6000, 7500],
  )
})

t.test('jitter keeps the order and stays within a share of a step', async t => {
  let draws = 0
  const spread = { binMs: 3000, jitterShare: 0.2, next: () => (draws++ % 2 === 0 ? 0 : 1 - 2 ** -53) }
  const trace = [at(0), at(0), at(0)]
  t.strictSame((await times(transformTrace(trace, { spread }))).map(Math.round), [0, 1200, 1800])
})

t.test('spread and jitter never pass the next timestamp, whatever the trace', async t => {
  const random = seededRandom(5)
  const trace: TraceRequest[] = []
  for (let atMs = 0; trace.length < 500; atMs += random.below(40)) trace.push(at(atMs))
  const spread = { binMs: 3000, jitterShare: 0.2, next: () => random.next() }
  const spreadTimes = await times(transformTrace(trace, { spread }))
  t.ok(
    spreadTimes.every((time, i) => i === 0 || time >= spreadTimes[i - 1]!),
    'in order of time with seed 5',
  )
  t.ok(
    spreadTimes.some((time, i) => time !== trace[i]!.timestampMs),
    'single requests move, too',
  )
})

t.test('copies come later, in order of time, with ids of their own', async t => {
  const trace = [at(0, [0, 1]), at(500, [0]), at(2000, [2])]
  const copied = await all(transformTrace(trace, { copies: 3, idStride: 3 }))
  t.strictSame(
    copied.map(({ timestampMs, hashIds }) => [timestampMs, ...Array.from(hashIds)]),
    [
      [0, 0, 1],
      [370, 3, 4],
      [500, 0],
      [740, 6, 7],
      [870, 3],
      [1240, 6],
      [2000, 2],
      [2370, 5],
      [2740, 8],
    ],
  )
})

t.test('speed divides times; stretch lengthens prompts along the same tree', async t => {
  const [request] = await all(transformTrace([at(900, [0, 5])], { speed: 3, stretch: 2 }))
  t.equal(request!.timestampMs, 300)
  t.equal(request!.inputTokens, 2024)
  t.strictSame(Array.from(request!.hashIds), [0, 1, 10, 11])
})

t.test('a scan finds what copies and warm-up need', async t => {
  t.strictSame(await scanTrace([at(5, [0, 9]), at(7, [3])]), {
    requests: 2,
    idMax: 9,
    firstMs: 5,
    lastMs: 7,
  })
  t.strictSame(await scanTrace([]), { requests: 0, idMax: -1, firstMs: 0, lastMs: 0 })
})

t.test('parameters out of range are refused', async t => {
  for (const bad of [{ speed: 0 }, { speed: NaN }, { copies: 0 }, { copies: 2 }, { stretch: 1.5 }]) {
    t.throws(() => transformTrace([], bad), RangeError, JSON.stringify(bad))
  }
})
