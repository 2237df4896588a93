/** Requests whose prompt is estimated: their tenant pays what the engine counts. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import type { PriorityQueue } from '../src/index.ts'
import { park, placeAll, profileOf, queueOf, request } from './requests.ts'

const ESTIMATE = { tokensMax: 100_000 }

/**
 * Tenants with requests of `estimated` tokens of which engines count `counted`, all backlogged, over 2,000
 * placements; counted tokens of each. `open`: requests that engines work on at one time.
 */
function servedTokens(
  queue: PriorityQueue,
  tenants: readonly { readonly estimated: number; readonly counted: number }[],
  open: number,
): number[] {
  const random = seededRandom(33)
  const served = tenants.map(() => 0)
  const running: { readonly id: string; readonly counted: number }[] = []
  const arrive = (i: number, n: string) =>
    park(queue, [
      request(`${i}-${n}`, { tenant: `${i}`, uncachedTokens: tenants[i]!.estimated, estimate: ESTIMATE }),
    ])
  for (const i of tenants.keys()) for (let n = 0; n < 5; n++) arrive(i, `first ${n}`)
  for (let n = 0; n < 2000; n++) {
    queue.reopen()
    const [id] = placeAll(queue, n, 1)
    const i = Number(id![0])
    const { counted } = tenants[i]!
    served[i]! += counted
    running.push({ id: id!, counted })
    if (running.length > open) {
      const [ended] = running.splice(random.below(running.length), 1)
      queue.settled(ended!.id, { promptTokens: ended!.counted, cachedTokens: undefined }, n)
    }
    arrive(i, `${n}`)
  }
  return served
}

t.test('a tenant of images gets no more than its share of what engines compute', async t => {
  for (const open of [0, 8]) {
    // Pictures that look like 100 tokens and are 4,000, beside texts of 1,000.
    const tenants = [
      { estimated: 100, counted: 4000 },
      { estimated: 1000, counted: 1000 },
    ]
    const [images, texts] = servedTokens(queueOf('fcfs', { stepTokens: 1e9 }), tenants, open)
    t.ok(Math.abs(images! / texts! - 1) < 0.15, `${open} at a time: ${images} and ${texts}`)
  }
})

t.test('an estimate that was too high does not cost its tenant more than its turn', async t => {
  const tenants = [
    { estimated: 4000, counted: 1000 },
    { estimated: 1000, counted: 1000 },
  ]
  const [high, right] = servedTokens(queueOf('fcfs', { stepTokens: 1e9 }), tenants, 0)
  t.ok(Math.abs(high! / right! - 1) < 0.05, `${high} and ${right}`)
})

t.test('classes share what engines computed, not what was estimated', async t => {
  const queue = queueOf('fcfs', {
    stepTokens: 1e9,
    profile: profileOf({ name: 'default', quantum: 1000 }, { name: 'images', quantum: 1000 }),
  })
  const served = { default: 0, images: 0 }
  for (let n = 0; n < 400; n++) {
    park(queue, [
      request(`text ${n}`, { uncachedTokens: 1000 }),
      request(`image ${n}`, { policyClass: 'images', uncachedTokens: 100, estimate: ESTIMATE }),
    ])
  }
  queue.reopen()
  for (let n = 0; n < 300; n++) {
    const [id] = placeAll(queue, n, 1)
    const isImage = id!.startsWith('image')
    served[isImage ? 'images' : 'default'] += isImage ? 4000 : 1000
    queue.settled(id!, { promptTokens: 4000, cachedTokens: undefined }, n)
  }
  t.ok(Math.abs(served.images / served.default - 1) < 0.1, JSON.stringify(served))
})

/**
 * Tenant a is charged `estimated` for a request of which its engine says `counted`; then both have texts of
 * 100.
 */
function nextAfter(estimated: number, counted: number, cachedTokens?: number, tokensMax = 1000): string {
  const queue = queueOf('fcfs')
  park(queue, [request('image', { uncachedTokens: estimated, estimate: { tokensMax } })])
  park(
    queue,
    Array.from({ length: 20 }, (_, n) => [request(`a${n}`), request(`b${n}`, { tenant: 'b' })]).flat(),
  )
  queue.reopen()
  placeAll(queue, 1, 1)
  queue.settled('image', { promptTokens: counted, cachedTokens }, 2)
  return placeAll(queue, 3, 14)
    .map(id => id[0])
    .join('')
}

t.test('the engine is believed within what the prompt can hold', async t => {
  t.equal(nextAfter(100, 100), 'bababababababa', 'as estimated')
  t.equal(nextAfter(100, 500), 'bbbbbabababababa'.slice(0, 14), 'more')
  t.equal(nextAfter(500, 100), 'bababababababa', 'less')
  t.equal(nextAfter(100, 4_294_967_296), 'bbbbbbbbbbabab', 'at most tokensMax')
  for (const nonsense of [Number.NaN, -1, Number.POSITIVE_INFINITY])
    t.equal(nextAfter(500, nonsense), 'bbbbbababababa', `${nonsense}: stays as estimated`)
  t.equal(nextAfter(100, 500, 400), 'bababababababa', 'without what was cached')
  t.equal(nextAfter(100, 500, 501), 'bbbbbabababababa'.slice(0, 14), 'more cached than there is')
})

t.test('a correction while the tenant is asked about holds, whatever the answer is', async t => {
  for (const answer of ['busy', 'placed', 'cancelled'] as const) {
    const queue = queueOf('fcfs')
    park(queue, [request('image', { estimate: ESTIMATE })])
    park(
      queue,
      Array.from({ length: 9 }, (_, n) => [request(`a${n}`), request(`b${n}`, { tenant: 'b' })]).flat(),
    )
    queue.reopen()
    placeAll(queue, 1, 2)
    const asked = queue.take(2)!
    t.equal(asked.id, 'a0')
    queue.settled('image', { promptTokens: 500, cachedTokens: undefined }, 3)
    if (answer === 'busy') queue.busy(asked.id, 4)
    else if (answer === 'placed') queue.placed(asked.id, 'w0', 4)
    else queue.cancel(asked.id, 4)
    queue.reopen()
    const next = placeAll(queue, 5, 5).map(id => id[0])
    const expected = answer === 'placed' ? 'bbbbb' : 'bbbba'
    t.equal(next.join(''), expected, answer)
  }
})

t.test('what was served counts once it is known; a charge that nothing settles is bounded', async t => {
  const queue = queueOf('fcfs', { chargesMax: 2 })
  const served = () =>
    queue.snapshot(1).tenants.map(({ tenant, served: { uncachedTokens } }) => [tenant, uncachedTokens])
  for (const id of ['x', 'y']) {
    t.equal(queue.admit(request(id, { estimate: ESTIMATE }), 0), 'ask')
    queue.placed(id, 'w0', 0)
  }
  t.strictSame(served(), [['a', 0]])
  queue.settled('x', { promptTokens: 700, cachedTokens: undefined }, 1)
  queue.settled('x', { promptTokens: 700, cachedTokens: undefined }, 1)
  t.strictSame(served(), [['a', 700]])
  queue.settled('y', undefined, 1)
  t.strictSame(served(), [['a', 800]], 'without a word of the engine, as estimated')
  for (const id of ['p', 'q', 'r']) queue.placedAtOnce(request(id, { estimate: ESTIMATE }), 'w0', 1)
  t.strictSame(served(), [['a', 900]], 'the oldest counts as estimated')
  queue.ownerStarted('gateway', 'second', 1)
  t.strictSame(served(), [['a', 1100]])
})

t.test('the account of a tenant is kept while engines count its prompts', async t => {
  const queue = queueOf('fcfs', { contentionMs: 10 })
  park(queue, [
    request('image', { estimate: ESTIMATE }),
    ...Array.from({ length: 20 }, (_, n) => request(`b${n}`, { tenant: 'b' })),
  ])
  queue.reopen()
  t.strictSame(placeAll(queue, 1, 1), ['image'])
  park(queue, [request('c', { tenant: 'c' })], 1000)
  queue.cancel('c', 1000)
  queue.settled('image', { promptTokens: 1000, cachedTokens: undefined }, 1001)
  park(queue, [request('a')], 1002)
  queue.reopen()
  const ids = placeAll(queue, 1003, 11)
  t.equal(ids.indexOf('a'), 10, ids.join(' '))
})
