import type { TraceRequest } from '@homing/trace'
import t from 'tap'
import { placeKnowingAll } from '../src/index.ts'

const SPEC = {
  workers: 2,
  profile: 'h100-8b',
  blockTokens: 512,
  speed: 1,
  seed: 1,
  copies: 1,
  stretch: 1,
  warmupShare: 0,
} as const
/** Three requests with one prompt of eight blocks: the second comes while the first one decodes. */
const REQUESTS: readonly TraceRequest[] = [0, 1000, 60_000].map(timestampMs => ({
  timestampMs,
  inputTokens: 4200,
  outputTokens: 2000,
  hashIds: [1, 2, 3, 4, 5, 6, 7, 8],
}))

t.test('a copy is made where it ends all sooner, and not where it costs more than that', async t => {
  const free = await placeKnowingAll(SPEC, REQUESTS, 0)
  const dear = await placeKnowingAll(SPEC, REQUESTS, 1e9)
  t.equal(free.requests, 3)
  t.equal(dear.requests, 3)
  t.equal(free.copied, 1)
  t.equal(dear.copied, 0)
  t.ok(free.e2eMs.mean < dear.e2eMs.mean, `${free.e2eMs.mean} < ${dear.e2eMs.mean}`)
  t.ok(free.ttftMs.mean > dear.ttftMs.mean, `${free.ttftMs.mean} > ${dear.ttftMs.mean}`)
})

t.test(
  'what it looks ahead is what the engine does: alone, a request ends when it was expected to',
  async t => {
    const alone = await placeKnowingAll({ ...SPEC, workers: 1 }, REQUESTS.slice(0, 1), 0)
    const again = await placeKnowingAll(
      { ...SPEC, workers: 5 },
      REQUESTS.slice(0, 1),
      Number.POSITIVE_INFINITY,
    )
    t.equal(alone.e2eMs.mean, again.e2eMs.mean)
  },
)

t.test('where the use of the cache makes steps slow, a copy is made to be away from it', async t => {
  const ids = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i)
  const long = ids(1, 1200)
  const requests: readonly TraceRequest[] = [
    { timestampMs: 0, inputTokens: 1200 * 512, outputTokens: 5000, hashIds: long },
    // Its blocks are held where every step waits for the long context.
    { timestampMs: 30_000, inputTokens: 16 * 512 + 100, outputTokens: 2000, hashIds: long.slice(0, 16) },
  ]
  const { copied } = await placeKnowingAll({ ...SPEC, profile: 'mock-poly' }, requests, 0)
  t.equal(copied, 1)
})
