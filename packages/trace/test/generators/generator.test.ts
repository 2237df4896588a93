/** The generators have the distributions that their descriptions promise. Seeds are in the titles. */

import t from 'tap'
import {
  BadGeneratorError,
  GENERATOR_NAMES,
  generatedLoop,
  generatedRequests,
  parseGenerator,
  TRACE_BLOCK_TOKENS,
  type TraceRequest,
} from '../../src/index.ts'

const SEED = 7

function requestsOf(text: string, seed = SEED): TraceRequest[] {
  return [...generatedRequests(parseGenerator(text), seed)]
}

function sorted(values: readonly number[]): number[] {
  return values.toSorted((a, b) => a - b)
}

function quantile(values: readonly number[], q: number): number {
  return sorted(values)[Math.floor(q * (values.length - 1))]!
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

function fullBlocks({ hashIds, inputTokens }: TraceRequest): number[] {
  return Array.from(hashIds).slice(0, Math.floor(inputTokens / TRACE_BLOCK_TOKENS))
}

/** Prompt tokens that a cache without bound holds ÷ prompt tokens, per cache key. */
function reuse(requests: readonly TraceRequest[], keyOf: (request: TraceRequest) => string): number {
  const held = new Map<string, Set<number>>()
  let reused = 0
  let tokens = 0
  for (const request of requests) {
    const key = keyOf(request)
    const cache = held.get(key) ?? new Set()
    held.set(key, cache)
    const blocks = fullBlocks(request)
    const miss = blocks.findIndex(id => !cache.has(id))
    reused += (miss < 0 ? blocks.length : miss) * TRACE_BLOCK_TOKENS
    tokens += request.inputTokens
    for (const id of blocks) cache.add(id)
  }
  return reused / tokens
}

t.test('every generator yields a tree in order of time, the same for the same seed', async t => {
  for (const name of GENERATOR_NAMES) {
    const requests = requestsOf(`${name}?requests=1500`)
    t.equal(requests.length, 1500, name)
    const parents = new Map<number, number>()
    let lastMs = 0
    for (const { timestampMs, inputTokens, outputTokens, hashIds } of requests) {
      if (timestampMs < lastMs) t.fail(`${name}: time goes back to ${timestampMs}`)
      lastMs = timestampMs
      if (!(inputTokens >= 1 && outputTokens >= 1)) t.fail(`${name}: ${inputTokens} in, ${outputTokens} out`)
      if (hashIds.length !== Math.ceil(inputTokens / TRACE_BLOCK_TOKENS))
        t.fail(`${name}: ${hashIds.length} ids`)
      for (let i = 0; i < hashIds.length; i++) {
        const parent = i === 0 ? -1 : hashIds[i - 1]!
        const known = parents.get(hashIds[i]!)
        if (known !== undefined && known !== parent) t.fail(`${name}: id ${hashIds[i]} has two parents`)
        parents.set(hashIds[i]!, parent)
      }
    }
    const again = requestsOf(`${name}?requests=1500`)
    t.equal(JSON.stringify(again), JSON.stringify(requests), `${name}: the same again`)
    t.not(
      JSON.stringify(requestsOf(`${name}?requests=1500`, SEED + 1)),
      JSON.stringify(requests),
      `${name}: another seed`,
    )
  }
})

t.test('the rate is that of the parameter, where times are fixed', async t => {
  for (const name of ['unique', 'rag', 'hot', 'adversarial', 'sessions?loop=open', 'coding?loop=open']) {
    const separator = name.includes('?') ? '&' : '?'
    const requests = requestsOf(`${name}${separator}requests=8000&rate=20`)
    // Of multi-turn traffic the first and last minutes are thinner: users come in, and finish.
    const times = requests.map(({ timestampMs }) => timestampMs)
    const [from, to] = [quantile(times, 0.3), quantile(times, 0.7)]
    const perSecond = (requests.length * 0.4 * 1000) / (to - from)
    t.ok(perSecond > 16 && perSecond < 24, `${name}: ${perSecond.toFixed(1)} per second`)
  }
})

t.test('coding prompts have mean 34 k, median 20 k, 90th percentile 88 k, and reuse above 90 %', async t => {
  for (const seed of [1, 2, 3]) {
    const requests = requestsOf('coding?requests=30000&loop=open', seed)
    const inputs = requests.map(({ inputTokens }) => inputTokens)
    const outputs = requests.map(({ outputTokens }) => outputTokens)
    const near = (value: number, target: number, share: number, what: string): void => {
      t.ok(
        Math.abs(value / target - 1) < share,
        `seed ${seed}: ${what} ${Math.round(value)}, wanted ${target}`,
      )
    }
    near(mean(inputs), 34_000, 0.08, 'prompt mean')
    near(quantile(inputs, 0.5), 20_000, 0.06, 'prompt median')
    near(quantile(inputs, 0.9), 88_000, 0.12, 'prompt p90')
    near(quantile(outputs, 0.5), 80, 0.06, 'output median')
    near(mean(outputs), 445, 0.15, 'output mean')
    const share = reuse(requests, ({ sessionId }) => sessionId!)
    t.ok(share > 0.9, `seed ${seed}: reuse inside a session ${share.toFixed(3)}`)

    const calls = [...Map.groupBy(requests, ({ sessionId }) => sessionId!).values()]
    const whole = calls.slice(0, -1)
    t.ok(
      whole.every(({ length }) => length >= 10 && length <= 80),
      'a task has 10 to 80 calls',
    )
    t.ok(inputs.every(tokens => tokens >= 15_300 && tokens <= 200_000))
    for (const own of whole.slice(0, 50)) {
      for (let i = 1; i < own.length; i++) {
        const grown = own[i]!.inputTokens - own[i - 1]!.inputTokens
        if (!(grown >= 300 && grown <= 4000)) t.fail(`a context grew by ${grown}`)
      }
    }
  }
})

t.test('a tool prompt of 15 k tokens is shared by all coding tasks', async t => {
  const requests = requestsOf('coding?requests=2000&loop=open')
  const [first] = requests
  const shared = Array.from(first!.hashIds).slice(0, Math.floor(15_000 / 512))
  t.ok(requests.every(({ hashIds }) => shared.every((id, i) => hashIds[i] === id)))
})

t.test(
  'chats have system prompts of 1 to 8 k tokens by Zipf, six turns in the mean, and turns that hold the answers',
  async t => {
    const requests = requestsOf('sessions?requests=30000&loop=open')
    const users = [...Map.groupBy(requests, ({ sessionId }) => sessionId!).values()]
    t.ok(Math.abs(mean(users.map(({ length }) => length)) - 6) < 0.3, 'turns')
    t.ok(
      Math.abs(
        quantile(
          requests.map(({ outputTokens }) => outputTokens),
          0.5,
        ) /
          250 -
          1,
      ) < 0.05,
      'output median',
    )
    const grown = users.flatMap(own =>
      own.slice(1).map((turn, i) => turn.inputTokens - own[i]!.inputTokens - own[i]!.outputTokens),
    )
    t.ok(Math.min(...grown) >= 1, 'a prompt holds the prompt and the answer before')
    t.ok(Math.abs(quantile(grown, 0.5) / 80 - 1) < 0.06, `later turns add ${quantile(grown, 0.5)}`)
    const waits = users.flatMap(own => own.slice(1).map((turn, i) => turn.timestampMs - own[i]!.timestampMs))
    t.ok(quantile(waits, 0.5) > 20_000 && quantile(waits, 0.5) < 32_000, 'think time and answer')

    const openings = users.map(own => own[0]!.hashIds[0]!)
    const counts = sorted([...Map.groupBy(openings, id => id).values()].map(({ length }) => length)).reverse()
    t.equal(counts.length, 50, 'system prompts')
    t.ok(
      counts[0]! / users.length > 0.18 && counts[0]! / users.length < 0.27,
      `the first has ${counts[0]} of ${users.length}`,
    )
    const share = reuse(requests, () => 'one cache')
    t.ok(share > 0.8, `one cache without bound has ${share.toFixed(3)} of the tokens`)
  },
)

t.test(
  'of a closed loop the next turn begins a think time after the answer has ended, and users come as they come',
  async t => {
    const fast = play(10)
    const slow = play(60_000)
    t.equal(fast.length, 2000)
    t.equal(slow.length, 2000)
    const contentOf = (requests: readonly TraceRequest[]): string[] =>
      requests
        .map(({ sessionId, inputTokens, outputTokens }) => `${sessionId} ${inputTokens} ${outputTokens}`)
        .sort()
    t.strictSame(contentOf(slow), contentOf(fast), 'the same is asked, however fast the answers are')
    const firstOf = (requests: readonly TraceRequest[]): Map<string, number> => {
      const first = new Map<string, number>()
      for (const { sessionId, timestampMs } of requests) {
        if (!first.has(sessionId!)) first.set(sessionId!, timestampMs)
      }
      return first
    }
    t.strictSame(firstOf(slow), firstOf(fast), 'arrivals')
    const endOf = (requests: readonly TraceRequest[]): number => Math.max(...requests.map(r => r.timestampMs))
    t.ok(endOf(slow) > endOf(fast) + 60_000, 'slow answers make it longer')

    /** All requests of the loop with answers that take `answerMs`. */
    function play(answerMs: number): TraceRequest[] {
      const loop = generatedLoop(parseGenerator('sessions?requests=2000'), SEED)
      t.equal(loop.requestsExpected, 2000)
      const asked: TraceRequest[] = []
      for (let open = [...loop.first()]; open.length > 0; ) {
        asked.push(...open)
        open = open.flatMap(request => {
          const endMs = request.timestampMs + answerMs
          const next = loop.onComplete(request, endMs)
          if (next !== undefined && next.timestampMs <= endMs) t.fail('a turn comes before the answer')
          return next === undefined ? [] : [next]
        })
      }
      return asked
    }
  },
)

t.test(
  'more users of a closed loop come as much more often for the same time, and think as long',
  async t => {
    const spec = parseGenerator('sessions?requests=3000')
    const [one, four] = [generatedLoop(spec, SEED), generatedLoop(spec, SEED, 4)]
    t.strictSame([one.requestsExpected, four.requestsExpected], [3000, 12_000])
    const [firstOfOne, firstOfFour] = [[...one.first()], [...four.first()]]
    const spanOf = (requests: readonly TraceRequest[]): number => requests.at(-1)!.timestampMs
    t.ok(Math.abs(spanOf(firstOfFour) / spanOf(firstOfOne) - 1) < 0.15, 'the same span')
    t.ok(Math.abs(firstOfFour.length / firstOfOne.length - 4) < 0.3)
    const thinkOf = (loop: typeof one, requests: readonly TraceRequest[]): number =>
      quantile(
        requests.flatMap(request => {
          const next = loop.onComplete(request, 1e9)
          return next === undefined ? [] : [next.timestampMs - 1e9]
        }),
        0.5,
      )
    for (const think of [thinkOf(one, firstOfOne), thinkOf(four, firstOfFour)]) {
      t.ok(think > 17_000 && think < 23_000, `${Math.round(think)} ms in the median`)
    }
  },
)

t.test('150 groups of five questions share system prompts of 6,000 tokens, at rates that grow', async t => {
  const requests = requestsOf('groups')
  t.equal(requests.length, 5 * 150 * 5)
  t.ok(requests.every(({ inputTokens, outputTokens }) => inputTokens === 7200 && outputTokens === 1000))
  const groups = Map.groupBy(requests, ({ hashIds }) => hashIds[10]!)
  t.equal(groups.size, 150)
  t.ok(
    [...groups.values()].every(({ length }) => length === 25),
    'five of each group in each of five stages',
  )
  const spanOf = (stage: number): number =>
    requests[750 * stage + 749]!.timestampMs - requests[750 * stage]!.timestampMs
  t.ok(spanOf(0) / spanOf(4) > 2.5 && spanOf(0) / spanOf(4) < 3.5, 'the last stage is three times as fast')
  t.equal(requestsOf('groups?groups=83&questions=3&system=8000').length, 5 * 83 * 3)
})

t.test('documents of rag are shared where they are in the order of their numbers', async t => {
  const requests = requestsOf('rag?requests=10000')
  t.ok(requests.every(({ inputTokens }) => inputTokens >= 2008 && inputTokens <= 31_000))
  const share = reuse(requests, () => 'one cache')
  t.ok(share > 0.2 && share < 0.6, `one cache without bound has ${share.toFixed(3)}`)
})

t.test('unique prompts share nothing', async t => {
  const requests = requestsOf('unique?requests=3000')
  t.equal(
    reuse(requests, () => 'one cache'),
    0,
  )
  const inputs = requests.map(({ inputTokens }) => inputTokens)
  t.ok(Math.abs(quantile(inputs, 0.5) / 6900 - 1) < 0.1 && Math.abs(mean(inputs) / 12_000 - 1) < 0.1)
})

t.test('one prefix of 32 k takes 60 % of the requests for two minutes, then another', async t => {
  const requests = requestsOf('hot?requests=8000&rate=10')
  for (const [minutes, own] of Map.groupBy(requests, ({ timestampMs }) =>
    Math.floor(timestampMs / 120_000),
  )) {
    if (own.length < 1000) continue
    const counts = [...Map.groupBy(own, ({ hashIds }) => hashIds[0]!).values()].map(({ length }) => length)
    const share = Math.max(...counts) / own.length
    t.ok(share > 0.55 && share < 0.65, `window ${minutes}: ${share.toFixed(2)}`)
  }
  const openings = Map.groupBy(requests, ({ hashIds }) => hashIds[0]!)
  t.equal(
    [...openings.values()].filter(({ length }) => length > 100).length,
    Math.ceil(requests.at(-1)!.timestampMs / 120_000),
  )
})

t.test('adversarial traffic has chains of 20,000 blocks of 16, bursts, and prompts of one token', async t => {
  const requests = requestsOf('adversarial?requests=5000')
  const inputs = requests.map(({ inputTokens }) => inputTokens)
  t.equal(Math.max(...inputs), 20_000 * 16)
  t.equal(Math.min(...inputs), 1)
  const atOnce = Map.groupBy(requests, ({ timestampMs }) => timestampMs)
  t.ok([...atOnce.values()].some(({ length }) => length >= 16))
  const behindRoot = new Set(requests.map(({ hashIds }) => hashIds[1]))
  t.ok(behindRoot.size > 1000, 'thousands part behind the first block')
})

t.test('the chats of a seed are the same whatever the flood does, and its prompts are long', async t => {
  const chatsOf = (requests: readonly TraceRequest[]) => requests.filter(({ tenant }) => tenant === 'chat')
  const calm = requestsOf('flood?requests=400&flood=0')
  const flooded = requestsOf('flood?requests=600&rate=8&flood=4')
  t.equal(chatsOf(calm).length, 400)
  const shape = ({ timestampMs, inputTokens, outputTokens }: TraceRequest) => [
    timestampMs,
    inputTokens,
    outputTokens,
  ]
  const chats = chatsOf(flooded)
  t.ok(chats.length > 350, `${chats.length} chats`)
  t.same(chats.slice(0, 350).map(shape), calm.slice(0, 350).map(shape))
  const floods = flooded.filter(({ tenant }) => tenant === 'flood')
  t.ok(floods.length > 150 && floods.length < 250, `${floods.length} of 600`)
  t.ok(floods.every(({ inputTokens }) => inputTokens === 60_000))
})

t.test('tenants ask for the same amount', async t => {
  const tokens = new Map<string, number>()
  for (const { tenant, inputTokens } of requestsOf('tenants?requests=8000&tenants=4'))
    tokens.set(tenant!, (tokens.get(tenant!) ?? 0) + inputTokens)
  t.same([...tokens.keys()].sort(), ['t1', 't2', 't3', 't4'])
  const mean = [...tokens.values()].reduce((sum, value) => sum + value, 0) / 4
  for (const value of tokens.values()) t.ok(Math.abs(value / mean - 1) < 0.1, String(value / mean))
})

t.test('a generator that does not exist, and parameters that cannot be, are told with what can', async t => {
  for (const [text, message] of [
    ['chats', /cannot generate "chats": there is no "chats"; use sessions, coding, groups/],
    ['sessions?request=3', /has no parameter "request"; use requests, rate, loop/],
    ['unique?loop=open', /has no parameter "loop"; use requests, rate$/],
    ['sessions?loop=round', /loop=round is neither closed nor open/],
    ['rag?requests=0', /requests=0 is not a number within 1 … 100000000, without a fraction/],
    ['rag?requests=1.5', /without a fraction/],
    ['rag?rate=-1', /rate=-1 is not a number within 0\.001/],
    ['rag?rate=', /rate= is not a number/],
    ['', /there is no ""/],
  ] as const) {
    t.throws(() => parseGenerator(text), BadGeneratorError, text)
    t.throws(() => parseGenerator(text), { message, code: 'HOMING_TRACE_BAD_GENERATOR' }, text)
  }
})
