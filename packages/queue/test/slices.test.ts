/**
 * Long prompts in slices, as the queue orders them: charges, the rule for long prompts, and what goes
 * between.
 */

import t from 'tap'
import { type PriorityQueue, type QueueRequest, QueueRoom, sliceTokens } from '../src/index.ts'
import { park, placeAll, profileOf, queueOf, request } from './requests.ts'

const STEP = 8192
const LONG = 10 * STEP

/** A queue of two workers, in which tenant `chat` was served at 0. */
function contended(given: Parameters<typeof queueOf>[1] = {}): PriorityQueue {
  const queue = queueOf('fcfs', { workers: 2, stepTokens: STEP, contentionMs: 1000, ...given })
  queue.placedAtOnce(request('chat-0', { tenant: 'chat' }), 'w0', 0)
  return queue
}

const long = (id: string, given: Partial<QueueRequest> = {}) =>
  request(id, { tenant: 'flood', uncachedTokens: LONG, maySlice: true, ...given })
const further = (id: string, given: Partial<QueueRequest> = {}) =>
  request(id, { tenant: 'flood', uncachedTokens: STEP, isContinued: true, lane: 'w0', ...given })

/** The ids of what may go now, each placed at the worker of its name. */
function place(queue: PriorityQueue, worker: string, nowMs = 1): string | undefined {
  queue.reopen()
  const next = queue.take(nowMs)
  if (next !== undefined) queue.placed(next.id, worker, nowMs)
  return next?.id
}

t.test('prompts in slices may be at all workers, others at all but one', async t => {
  const sliced = contended()
  park(
    sliced,
    ['a', 'b', 'c'].map(id => long(id)),
  )
  t.strictSame([place(sliced, 'w0'), place(sliced, 'w1'), place(sliced, 'w1')], ['a', 'b', undefined])
  t.equal(sliced.outlook('c', 1)?.why, 'long_prompt')
  sliced.prefillComplete('a', 2)
  t.equal(place(sliced, 'w0', 2), 'c')

  const whole = contended()
  park(
    whole,
    ['a', 'b'].map(id => long(id, { maySlice: false })),
  )
  t.strictSame([place(whole, 'w0'), place(whole, 'w1')], ['a', undefined])

  const both = contended()
  park(both, [long('a', { maySlice: false }), long('b', { maySlice: false }), long('c')])
  t.strictSame([place(both, 'w0'), place(both, 'w1'), place(both, 'w1')], ['a', 'c', undefined])
})

t.test(
  'at most as many prompts of a tenant are under way as there are workers, wherever they are',
  async t => {
    const queue = contended()
    park(
      queue,
      ['a', 'b', 'c'].map(id => long(id)),
    )
    t.strictSame([place(queue, 'w0'), place(queue, 'w0'), place(queue, 'w0')], ['a', 'b', undefined])
  },
)

t.test('with a prompt in slices come the workers that compute others of its tenant', async t => {
  const queue = contended()
  park(
    queue,
    ['a', 'b'].map(id => long(id)),
  )
  queue.reopen()
  t.equal(queue.take(1)?.id, 'a')
  t.strictSame(queue.sliced('a'), [])
  t.equal(queue.sliced('b'), undefined, 'it is not asked about')
  queue.placed('a', 'w1', 1)
  t.equal(queue.take(1)?.id, 'b')
  t.strictSame(queue.sliced('b'), ['w1'])
})

t.test('a tenant is charged for one slice at a time, and for all of a prompt that goes whole', async t => {
  const servedOf = (queue: PriorityQueue, nowMs: number) =>
    queue.snapshot(nowMs).tenants.find(({ tenant }) => tenant === 'flood')?.served.uncachedTokens
  const queue = contended()
  park(queue, [long('a')])
  place(queue, 'w0')
  t.equal(servedOf(queue, 1), sliceTokens(STEP))
  park(queue, [further('a-2')], 2)
  place(queue, 'w0', 2)
  t.equal(servedOf(queue, 2), sliceTokens(STEP) + STEP)

  const lapsed = contended()
  park(lapsed, [long('b')])
  t.equal(place(lapsed, 'w0', 5000), 'b', 'no other tenant was served lately')
  t.equal(lapsed.sliced('b'), undefined)
  t.equal(servedOf(lapsed, 5000), LONG)
})

t.test('a tenant whose prompt goes whole after all waits for others as long as it is', async t => {
  const gapOf = (nowMs: number): number => {
    const queue = contended({ workers: 100 })
    park(
      queue,
      ['a', 'b'].map(id => long(id, { tenant: 'one' })),
    )
    park(
      queue,
      Array.from({ length: 40 }, (_, i) => request(`two-${i}`, { tenant: 'two', uncachedTokens: STEP })),
    )
    queue.reopen()
    const order = placeAll(queue, nowMs, 20)
    return order.indexOf('b') - order.indexOf('a') - 1
  }
  t.equal(gapOf(1), 1, 'in slices, each is charged for one')
  t.equal(gapOf(5000), 10)
})

t.test('a further slice takes room past every bound, and never makes room', async t => {
  const room = new QueueRoom({ requestsMax: 1 })
  const displaced: string[] = []
  const profile = profileOf({ name: 'default', requestsPerWorker: 1 })
  const queue = contended({ room, profile, workers: 1, displaced: id => void displaced.push(id) })
  park(queue, [request('a', { tenant: 'flood', lane: 'w1' })])
  t.equal(queue.admit(further('s1', { lane: 'w1' }), 1), 'waiting')
  t.equal(queue.admit(further('s2', { lane: 'w1' }), 1), 'waiting')
  t.strictSame(displaced, [])
  t.match(queue.admit(request('b', { tenant: 'chat', lane: 'w1' }), 1), { reason: 'class_limit' })
  t.strictSame(displaced, [], 'not even for one that holds less')
  for (const id of ['a', 's1', 's2']) queue.cancel(id, 2)
  t.equal(room.requests, 0)
})

t.test('what waits of another tenant goes before the next slice', async t => {
  const queue = contended()
  park(queue, [long('a')])
  t.equal(place(queue, 'w0'), 'a')
  park(queue, [request('chat-1', { tenant: 'chat' })], 2)
  t.equal(queue.admit(further('a-2'), 3), 'waiting', 'although no word of free room has come')
  t.equal(queue.take(3)?.id, 'chat-1')
  queue.placed('chat-1', 'w0', 3)
  t.equal(queue.take(3)?.id, 'a-2')
})

t.test('the rule for long prompts holds no further slice, however much of it was evicted', async t => {
  const queue = contended({ workers: 1 })
  park(queue, [long('a')])
  t.equal(place(queue, 'w0'), 'a')
  park(queue, [further('a-2', { uncachedTokens: LONG })], 2)
  t.equal(place(queue, 'w0', 2), 'a-2')
})
