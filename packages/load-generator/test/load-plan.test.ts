import { SimulatedClock, seededRandom } from '@homing/base'
import t from 'tap'
import {
  compareSides,
  conversationSource,
  faultsOfResult,
  Load,
  type LoadAbout,
  type LoadPlan,
  type LoadResult,
  renderLoadHtml,
  renderLoadJson,
  renderLoadText,
  type Send,
} from '../src/index.ts'

const SOURCE = conversationSource({
  endpoint: 'chat',
  seed: 1,
  inputTokens: 4,
  outputTokens: 2,
  prefixTokens: 6,
  prefixes: 2,
  sessions: 3,
  turns: 2,
  ignoresEos: false,
})
const ABOUT: LoadAbout = {
  command: "homing load 'http://a?<script>'",
  startedAt: '2026-01-01T00:00:00.000Z',
  versions: { homing: '0.0.0' },
  machine: 'a machine',
  seed: 1,
  model: '<img src=x onerror=alert(1)>',
  pace: 'closed loop',
  requests: 'chats',
  settings: { seed: 1, model: undefined },
}

interface Sent {
  readonly side: string
  readonly salt: string
  readonly body: string
}

/** Two sides whose answers take `aMs` and `bMs`. */
function planOf(
  aMs: number,
  bMs: number,
  sent: Sent[],
  options: Partial<LoadPlan> = {},
  cachedOf: (side: string, number: number) => number | undefined = () => 32,
): LoadPlan & { readonly clock: SimulatedClock } {
  const clock = new SimulatedClock()
  const noise = seededRandom(2)
  const sideOf = (name: string, ms: number) => ({
    name,
    url: `http://${name}`,
    blockTokens: 16,
    sendWith:
      (salt: string): Send =>
      (request, listener) => {
        const number = sent.filter(({ side }) => side === name).length
        sent.push({ side: name, salt, body: JSON.stringify(request.body('')) })
        clock.after(ms + noise.next(), () => {
          const homing = { worker: `w${sent.length % 2}`, overlapBlocks: 2, trust: 'exact' }
          const counts = { promptTokens: 64, completionTokens: 3, cachedTokens: cachedOf(name, number) }
          listener.ended({
            ...counts,
            firstMs: clock.nowMs() - ms / 2,
            lastMs: clock.nowMs(),
            chunks: 3,
            homing,
          })
        })
        return failure => listener.ended({ failure })
      },
  })
  return {
    chance: seededRandom(4),
    seed: 1,
    source: SOURCE,
    sides: [sideOf('A', aMs), sideOf('B', bMs)],
    blocks: 4,
    salt: 'block',
    pace: { kind: 'closed', concurrency: 2 },
    waitingMax: 10,
    requestsMax: 10,
    durationMs: Number.POSITIVE_INFINITY,
    warmup: 2,
    timeoutMs: 60_000,
    ...options,
    clock,
  }
}

async function finish(load: Load, clock: SimulatedClock): Promise<LoadResult> {
  let result: LoadResult | undefined
  void load.run().then(value => {
    result = value
  })
  for (;;) {
    await new Promise(resolve => setImmediate(resolve))
    if (result !== undefined) return result
    clock.advance(clock.nextDueMs! - clock.nowMs())
  }
}

t.test('blocks come in turns, with the same requests and a salt of their own', async t => {
  const sent: Sent[] = []
  const plan = planOf(20, 20, sent)
  const result = await finish(new Load(plan), plan.clock)
  const runs = sent.filter((_, i) => i % 10 === 0).map(({ side }) => side)
  t.equal(runs.join(''), 'ABBAABBA')
  for (let block = 0; block < 4; block++) {
    const [first, second] = [
      sent.slice(20 * block, 20 * block + 10),
      sent.slice(20 * block + 10, 20 * block + 20),
    ]
    t.strictSame(
      first.map(({ body }) => body),
      second.map(({ body }) => body),
    )
  }
  t.equal(new Set(sent.map(({ body }) => body)).size, 40, 'blocks have other requests')
  t.equal(new Set(sent.map(({ salt }) => salt)).size, 8)
  t.ok(sent.every(({ salt }) => salt.split(' ').length === 6))
  t.strictSame(
    result.sides.map(({ total, blocks }) => [total.requests, blocks.length]),
    [
      [32, 4],
      [32, 4],
    ],
  )
  t.equal(result.isComplete, true)
  t.match(result.sides[0]!.total.homing, {
    predictedHitRate: 0.5,
    overlapShare: 1,
    workers: 2,
    trustShares: { exact: 1 },
  })
})

t.test('answers without details have no cached tokens once their side has told of some', async t => {
  // A tells of cached tokens from its third block on, in every other answer; B never does.
  const cachedOf = (side: string, number: number) =>
    side === 'A' && number >= 20 && number % 2 === 1 ? 32 : undefined
  const plan = planOf(5, 5, [], { warmup: 0 }, cachedOf)
  const { sides } = await finish(new Load(plan), plan.clock)
  const figuresOf = ({ total, blocks }: (typeof sides)[number]) =>
    [total, ...blocks].map(({ cachedTokens, cachedShare }) => [cachedTokens, cachedShare])
  t.strictSame(figuresOf(sides[0]!), [
    [320, 0.125],
    [0, 0],
    [0, 0],
    [160, 0.25],
    [160, 0.25],
  ])
  t.strictSame(figuresOf(sides[1]!), Array(5).fill([undefined, undefined]))
})

t.test('salts per side and none', async t => {
  for (const [salt, count] of [
    ['side', 2],
    ['none', 1],
  ] as const) {
    const sent: Sent[] = []
    const plan = planOf(5, 5, sent, { salt })
    await finish(new Load(plan), plan.clock)
    t.equal(new Set(sent.map(each => each.salt)).size, count)
  }
})

t.test('a difference is found and printed; equal sides have none', async t => {
  const plan = planOf(20, 40, [])
  const result = await finish(new Load(plan), plan.clock)
  const compared = compareSides(result.sides[0]!, result.sides[1]!)
  const verdictOf = (key: string) => compared.find(({ figure }) => figure.key === key)?.verdict
  t.equal(verdictOf('ttft_mean'), 'better')
  t.equal(verdictOf('output_tokens_per_s'), 'better')
  t.equal(verdictOf('error_rate'), 'no difference')
  t.equal(verdictOf('cached_share'), 'no difference')
  const text = renderLoadText(ABOUT, result, compared, [])
  t.match(text, /^ {2}TTFT mean ms +1\d\.\d +2\d\.\d +−\S+ +−\S+ … −\d/m)
  t.match(text, /^A is better in TTFT mean/m)
  t.notMatch(text, /INVALID|Stopped/)
  const html = renderLoadHtml(ABOUT, result, compared, ['nothing <b>'])
  t.notMatch(
    html,
    /<script|<img|<link|<[^>]+\s(src|href|on\w+)=|@import|url\(/i,
    'nothing from elsewhere, nothing that runs',
  )
  t.match(html, /<svg[\s\S]*TTFT mean[\s\S]*class="better">A better/)
  t.match(html, 'nothing &lt;b&gt;')
  const json = JSON.parse(renderLoadJson(ABOUT, result, compared, []))
  t.match(json, {
    is_valid: true,
    sides: [{ name: 'A', total: { ttft_ms: { mean: Number } }, blocks: [{}, {}, {}, {}] }, {}],
  })
  t.match(json.comparison[0], { figure: 'ttft_mean', verdict: 'better', pairs: 4 })
  t.ok(json.comparison[0].high < 0)

  const equal = planOf(20, 20, [])
  const same = await finish(new Load(equal), equal.clock)
  t.match(
    renderLoadText(ABOUT, same, compareSides(same.sides[0]!, same.sides[1]!), []),
    /^No difference that is more than chance\.$/m,
  )
})

t.test('stopped, it has the blocks that were whole', async t => {
  const plan = planOf(20, 20, [])
  const load = new Load(plan)
  plan.clock.after(250, () => load.stop())
  const result = await finish(load, plan.clock)
  t.equal(result.isComplete, false)
  t.strictSame(
    result.sides.map(({ blocks }) => blocks.length),
    [1, 1],
  )
  const compared = compareSides(result.sides[0]!, result.sides[1]!)
  const text = renderLoadText(ABOUT, result, compared, [])
  t.match(text, /^Stopped before the end/m)
  t.match(text, /^Too few pairs of blocks to say anything\.$/m)
})

t.test('what makes a result invalid is said', async t => {
  const plan = planOf(20, 20, [])
  const { sides, isComplete } = await finish(new Load(plan), plan.clock)
  const limits = { errorShareMax: 0.01, issueLagMsMax: 50 }
  const withTotal = (changed: Partial<LoadResult['sides'][number]['total']>): LoadResult => ({
    sides: [{ ...sides[0]!, total: { ...sides[0]!.total, ...changed } }],
    isComplete,
  })
  t.strictSame(faultsOfResult({ sides, isComplete }, limits), [])
  const late = { mean: 60, p50: 60, p90: 60, p99: 61 }
  for (const [changed, why] of [
    [{ requests: 0 }, /no request was counted/],
    [{ answered: 0 }, /none of 32 requests was answered/],
    [{ errorRate: 0.02 }, /2 % of the requests failed/],
    [{ issueLagMs: late }, /61 ms late at p99/],
    [{ readLagMs: late }, /61 ms late at p99/],
  ] as const) {
    const faults = faultsOfResult(withTotal(changed), limits)
    t.equal(faults.length, 1)
    t.match(faults[0], why)
  }
})
