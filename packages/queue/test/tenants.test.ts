import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { OTHER_TENANTS, type PriorityQueue, type QueueOrder } from '../src/index.ts'
import { park, placeAll, queueOf, request } from './requests.ts'

t.test('ten backlogged tenants with weights 1 … 10 get their shares within 5 % over 60 s', async t => {
  const names = Array.from({ length: 10 }, (_, i) => `tenant-${i + 1}`)
  const tenantWeights = new Map(names.map((name, i) => [name, i + 1]))
  for (const order of ['fcfs', 'wspt', 'response-ratio'] as const) {
    const queue = queueOf(order, { tenantWeights, stepTokens: 1e9 })
    const random = seededRandom(7)
    let count = 0
    const arrive = (tenant: string, nowMs: number) => {
      const uncachedTokens = 1 + random.below(4000)
      park(queue, [request(`${count++}`, { tenant, uncachedTokens, arrivedMs: nowMs })], nowMs)
    }
    for (const name of names) for (let i = 0; i < 20; i++) arrive(name, 0)
    const served = new Map(names.map(name => [name, 0]))
    // An engine of 20,000 tokens a second; a tenant sends the next request when one of its has gone.
    for (let nowMs = 1; nowMs < 60_000; ) {
      queue.reopen()
      const next = queue.take(nowMs)!
      queue.placed(next.id, 'w0', nowMs)
      served.set(next.tenant, served.get(next.tenant)! + next.uncachedTokens)
      nowMs += next.uncachedTokens / 20
      arrive(next.tenant, nowMs)
    }
    const all = [...served.values()].reduce((sum, tokens) => sum + tokens, 0)
    for (const [i, name] of names.entries()) {
      const share = served.get(name)! / all / ((i + 1) / 55)
      t.ok(Math.abs(share - 1) < 0.05, `${order}, ${name}: ${share.toFixed(3)} of its share`)
    }
  }
})

t.test('a tenant whose account was closed meanwhile does not go before its turn', async t => {
  const queue = queueOf('fcfs', { stepTokens: 1e9, contentionMs: 1000 })
  park(queue, [
    request('big', { uncachedTokens: 5000 }),
    ...['b1', 'b2', 'b3'].map(id => request(id, { tenant: 'b' })),
  ])
  queue.reopen()
  t.strictSame(placeAll(queue, 1, 2), ['big', 'b1'])
  // An account that nothing was heard of for this long is closed when a new tenant comes.
  park(queue, [request('d', { tenant: 'd' })], 2000)
  t.notOk([...queue.snapshot(2000).tenants].some(({ tenant }) => tenant === 'a'))
  park(queue, [request('again')], 2000)
  queue.reopen()
  t.strictSame(placeAll(queue, 2001).at(-1), 'again', 'the tag of 5,000 tokens is kept')
})

t.test('service by weight of two backlogged tenants differs by a request of each at most', async t => {
  const tenant = fc.record({
    weight: fc.integer({ min: 1, max: 9 }),
    costs: fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 30, maxLength: 30 }),
  })
  const bounded = fc.property(fc.array(tenant, { minLength: 2, maxLength: 4 }), tenants => {
    const tenantWeights = new Map(tenants.map(({ weight }, i) => [`${i}`, weight]))
    const queue = queueOf('wspt', { tenantWeights, stepTokens: 1e9 })
    tenants.forEach(({ costs }, i) => {
      park(
        queue,
        costs.map((uncachedTokens, n) => request(`${i}-${n}`, { tenant: `${i}`, uncachedTokens })),
      )
    })
    queue.reopen()
    const served = tenants.map(() => 0)
    const left = tenants.map(({ costs }) => costs.length)
    for (;;) {
      const [id] = placeAll(queue, 1, 1)
      const [i, n] = id!.split('-').map(Number)
      served[i!]! += tenants[i!]!.costs[n!]! / tenants[i!]!.weight
      if (--left[i!]! === 0) break
      tenants.forEach((a, j) => {
        tenants.forEach((b, k) => {
          const bound = Math.max(...a.costs) / a.weight + Math.max(...b.costs) / b.weight
          assert.ok(served[j]! - served[k]! <= bound + 1e-6)
        })
      })
    }
  })
  t.doesNotThrow(() => fc.assert(bounded, { numRuns: 200 }))
})

t.test('a tenant that comes back has no credit for the time away, and one alone has everything', async t => {
  const queue = queueOf('fcfs')
  park(
    queue,
    Array.from({ length: 50 }, (_, i) => request(`a${i}`)),
  )
  queue.reopen()
  t.equal(placeAll(queue, 1, 40).length, 40)
  park(
    queue,
    Array.from({ length: 10 }, (_, i) => request(`b${i}`, { tenant: 'b' })),
    1,
  )
  const next = placeAll(queue, 2, 8).map(id => id[0])
  t.equal(next.filter(name => name === 'a').length, 4)
})

t.test('a busy answer gives a tenant its turn back, also after another was taken', async t => {
  const queue = queueOf('fcfs')
  const of = (tenant: string, uncachedTokens: number) =>
    ['1', '2', '3'].map(id => request(`${tenant}${id}`, { tenant, uncachedTokens }))
  park(queue, [...of('a', 100), ...of('b', 50)])
  queue.reopen()
  t.equal(queue.take(1)?.id, 'a1')
  t.equal(queue.take(1)?.id, 'b1')
  t.equal(queue.busy('a1', 1), 'waiting')
  queue.placed('b1', 'w0', 1)
  queue.reopen()
  t.strictSame(placeAll(queue, 2), ['a1', 'b2', 'a2', 'b3', 'a3'])
})

const LONG = 9000

/** Four workers; a chat of tenant 'b' was placed at `nowMs`, and tenant 'a' computes `count` long prompts. */
function contended(order: QueueOrder, count: number, nowMs: number): PriorityQueue {
  const queue = queueOf(order)
  queue.admit(request('chat', { tenant: 'b' }), nowMs)
  queue.placed('chat', 'w0', nowMs)
  for (let i = 0; i < count; i++) {
    assert.equal(queue.admit(request(`long${i}`, { uncachedTokens: LONG }), nowMs), 'ask')
    queue.placed(`long${i}`, `w${i}`, nowMs)
  }
  return queue
}

t.test('long prompts of one tenant leave a worker while another tenant was served lately', async t => {
  const queue = contended('fcfs', 3, 1000)
  t.equal(
    queue.admit(request('held', { uncachedTokens: LONG }), 1000),
    'waiting',
    'although there may be room',
  )
  t.equal(queue.admit(request('short'), 1000), 'ask', 'nor does it hold up what may go')
  t.equal(queue.placed('short', 'w3', 1000), true)
  t.equal(
    queue.admit(request('of-b', { tenant: 'b', uncachedTokens: LONG }), 1000),
    'ask',
    'of another tenant',
  )
  t.equal(queue.placed('of-b', 'w3', 1000), true)
  t.equal(queue.outlook('held', 1000)?.why, 'long_prompt')
  const { tenants, waiting, classes } = queue.snapshot(1000)
  const why = { no_room: 0, others_first: 0, long_prompt: 1 }
  t.match(
    tenants.find(({ tenant }) => tenant === 'a'),
    { longPromptWorkers: 3, isHeld: true, waiting: { requests: 1, why } },
  )
  t.match([waiting, classes[0]!.waiting], [{ why }, { why }])
  park(queue, [request('no room')], 1000)
  park(queue, [request('behind it')], 1000)
  t.strictSame(queue.snapshot(1000).waiting.why, { ...why, no_room: 2 })
  queue.reopen()
  t.strictSame(queue.snapshot(1000).waiting.why, { ...why, others_first: 2 })
  for (const id of ['no room', 'behind it']) queue.cancel(id, 1000)
  t.equal(queue.take(1000), undefined)
  queue.prefillComplete('long1', 1500)
  t.equal(queue.take(1500)?.id, 'held')
})

t.test('the rule ends when no other tenant was served for 30 s', async t => {
  const queue = contended('fcfs', 3, 1000)
  park(queue, [request('held', { uncachedTokens: LONG })], 1000)
  t.equal(queue.take(30_999), undefined)
  t.equal(queue.nextDueMs, 31_000)
  t.equal(queue.take(31_000)?.id, 'held')
})

t.test('the rule counts a long prompt that is asked about until it finds no room', async t => {
  const queue = contended('fcfs', 2, 1000)
  park(
    queue,
    [request('1', { uncachedTokens: LONG, lane: 'w8' }), request('2', { uncachedTokens: LONG })],
    1000,
  )
  queue.reopen()
  t.equal(queue.take(1001)?.id, '1')
  t.equal(queue.take(1001), undefined)
  t.equal(queue.busy('1', 1002), 'waiting')
  t.equal(queue.take(1002)?.id, '2')
})

t.test('more workers, or one alone: at least one may have a long prompt', async t => {
  const queue = contended('fcfs', 3, 1000)
  park(queue, [request('held', { uncachedTokens: LONG })], 1000)
  queue.setWorkers(5)
  t.equal(queue.take(1001)?.id, 'held')
  queue.placed('held', 'w4', 1001)
  queue.setWorkers(1)
  park(queue, [request('last', { uncachedTokens: LONG })], 1001)
  for (const id of ['long0', 'long1', 'long2', 'long2', 'nobody']) queue.prefillComplete(id, 1002)
  t.equal(queue.take(1002), undefined)
  queue.prefillComplete('held', 1003)
  t.equal(queue.take(1003)?.id, 'last')
})

t.test('a long prompt that nobody ended is forgotten with time', async t => {
  const queue = contended('fcfs', 3, 0)
  const laterMs = 16 * 60_000
  queue.admit(request('chat-2', { tenant: 'b', uncachedTokens: LONG }), laterMs)
  queue.placed('chat-2', 'w0', laterMs)
  t.equal(queue.admit(request('free', { uncachedTokens: LONG }), laterMs), 'ask')
})

t.test('10⁶ tenants keep 1,024 accounts; those that come while all are in use share one', async t => {
  const queue = queueOf('fcfs', { tenantWeights: new Map([['gold', 2]]) })
  for (let i = 0; i < 1_000_000; i++) {
    if (queue.admit(request(`${i}`, { tenant: `tenant-${i}` }), i / 100) !== 'ask')
      throw new Error('it waits')
    queue.placed(`${i}`, 'w0', i / 100)
  }
  t.ok(queue.snapshot(10_000).tenants.length <= 1024)
  park(
    queue,
    Array.from({ length: 3000 }, (_, i) => request(`w${i}`, { tenant: `waits-${i}` })),
    10_000,
  )
  park(queue, [request('gold', { tenant: 'gold' }), request('name', { tenant: OTHER_TENANTS })], 10_000)
  park(queue, [request('endless', { tenant: 'x'.repeat(10_000) })], 10_000)
  const { tenants } = queue.snapshot(10_000)
  t.equal(tenants.length, 1026)
  t.match(
    tenants.find(({ tenant }) => tenant === OTHER_TENANTS),
    { waiting: { requests: 3000 - 1024 + 2 } },
  )
  t.match(
    tenants.find(({ tenant }) => tenant === 'gold'),
    { weight: 2, waiting: { requests: 1 } },
  )
  queue.reopen()
  t.equal(placeAll(queue, 10_001).length, 3003)
  queue.admit(request('later', { tenant: 'later' }), 50_000)
  t.strictSame(
    queue.snapshot(50_000).tenants.map(({ tenant }) => tenant),
    [OTHER_TENANTS, 'gold', 'later'],
    'idle accounts are forgotten',
  )
})

t.test(
  'made-up names have one share together where tenants have weights, unless each is to have its own',
  async t => {
    const served = (unnamedTenants: 'shared' | 'own') => {
      const tenantWeights = new Map([['chat', 1]])
      const queue = queueOf('fcfs', { tenantWeights, unnamedTenants, stepTokens: 1e9 })
      park(
        queue,
        Array.from({ length: 100 }, (_, i) => request(`made up ${i}`, { tenant: i === 0 ? '' : `${i}` })),
      )
      park(
        queue,
        Array.from({ length: 20 }, (_, i) => request(`chat ${i}`, { tenant: 'chat' })),
      )
      queue.reopen()
      return placeAll(queue, 1, 40).filter(id => id.startsWith('chat')).length
    }
    t.equal(served('shared'), 20)
    t.equal(served('own'), 0, 'its turn comes after those of a hundred names')
    const queue = queueOf('fcfs', { tenantWeights: new Map([['chat', 1]]), unnamedTenants: 'shared' })
    park(queue, [request('a', { tenant: 'made up' })])
    queue.reopen()
    placeAll(queue, 1)
    t.equal(queue.isContended('another one', 2), false, 'it is the same account')
    t.equal(queue.isContended('chat', 2), true)
    t.strictSame(
      queue.snapshot(2).tenants.map(({ tenant }) => tenant),
      [OTHER_TENANTS],
    )
  },
)
