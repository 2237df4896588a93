/** The queue, rule by rule. */

import t from 'tap'
import { type QueueRefusal, type QueueRequest, QueueRoom } from '../src/index.ts'
import { park, placeAll, profileOf, queueOf, request } from './requests.ts'

t.test('with nobody before it a request is asked about at once; without room it waits', async t => {
  const queue = queueOf('fcfs')
  t.equal(queue.admit(request('1'), 0), 'ask')
  t.equal(queue.placed('1', 'w0', 0), true)
  t.equal(queue.admit(request('2'), 0), 'ask')
  t.equal(queue.busy('2', 0), 'waiting')
  t.equal(queue.admit(request('3'), 1), 'waiting', 'without a question: the lane has no room')
  t.equal(queue.take(1), undefined)
  queue.reopen()
  t.equal(queue.take(2)?.id, '2')
  t.equal(queue.take(2)?.id, '3', 'several can be asked about at one time')
  t.equal(queue.busy('2', 2), 'waiting')
  t.equal(queue.placed('3', 'w0', 2), true)
  t.equal(queue.waiting, 1)
})

t.test('a busy answer from before the lane was reopened does not close it', async t => {
  const queue = queueOf('fcfs')
  park(queue, [request('1')])
  queue.reopen('')
  t.equal(queue.take(1)?.id, '1')
  queue.reopen('')
  t.equal(queue.busy('1', 2), 'waiting')
  t.equal(queue.take(2)?.id, '1', 'asked again, about the room there is now')
  t.equal(queue.busy('1', 3), 'waiting')
  t.equal(queue.take(3), undefined)
})

t.test('a pinned request without room holds up nobody, and nobody holds up it', async t => {
  const queue = queueOf('fcfs')
  park(queue, [request('p', { lane: 'w1' })])
  t.equal(queue.admit(request('1'), 1), 'ask')
  t.equal(queue.busy('1', 1), 'waiting')
  queue.reopen('w1')
  t.strictSame(placeAll(queue, 2), ['p'])
  t.equal(queue.waiting, 1)
})

t.test('a request whose workers have changed waits in another lane, and keeps its turn there', async t => {
  const room = new QueueRoom()
  const queue = queueOf('fcfs', { room })
  park(queue, [request('1'), request('2'), request('3'), request('p', { lane: 'w1' })])
  queue.reopen()
  t.equal(queue.take(1)?.id, '1')
  t.equal(queue.busy('1', 1, 'w1'), 'waiting')
  t.equal(queue.take(1)?.id, '2', 'it has closed no lane but its own')
  queue.placed('2', 'w0', 1)
  queue.reopen('w1')
  t.equal(queue.take(1)?.id, '1', 'it came before p and 3')
  queue.reopen()
  t.equal(queue.busy('1', 1, ''), 'waiting', 'and back')
  t.strictSame(placeAll(queue, 2), ['1', '3', 'p'], 'a lane that was reopened meanwhile stays open')
  t.equal(queue.admit(request('new'), 3), 'ask')
  t.equal(queue.busy('new', 3, 'w2'), 'waiting')
  t.equal(queue.admit(request('other'), 3), 'ask', 'the lane that it has left is open')
  t.ok(queue.placed('other', 'w0', 3))
  t.ok(queue.cancel('new', 3))
  t.strictSame([queue.waiting, room.requests], [0, 0])
})

t.test('a request ends once, also when it is cancelled while it is asked about', async t => {
  const room = new QueueRoom()
  const queue = queueOf('fcfs', { room })
  park(queue, [request('1'), request('2')])
  queue.reopen()
  t.equal(queue.take(1)?.id, '1')
  t.equal(queue.cancel('1', 1)?.id, '1')
  t.equal(queue.placed('1', 'w0', 2), false, 'its placement is to be taken back')
  t.equal(queue.busy('1', 2), undefined)
  t.equal(queue.cancel('1', 2), undefined)
  t.equal(queue.placed('2', 'w0', 2), false, 'nobody was asked about it')
  t.strictSame(placeAll(queue, 2), ['2'])
  t.equal(room.requests, 0)
})

t.test('what may not wait is refused with the reason', async t => {
  const queue = queueOf('fcfs', { room: new QueueRoom({ requestsMax: 2, tokensMax: 500, bytesMax: 30 }) })
  t.equal(queue.admit(request('late', { deadlineMs: 5 }), 5), 'ask', 'one that is late goes if there is room')
  t.strictSame(queue.busy('late', 5), { reason: 'deadline' })
  t.equal(queue.admit(request('1', { doNotQueue: true }), 0), 'ask')
  t.strictSame(queue.admit(request('1'), 0), { reason: 'duplicate' })
  t.strictSame(queue.busy('1', 0), { reason: 'do_not_queue' })
  park(queue, [request('2')])
  t.strictSame(queue.admit(request('3', { doNotQueue: true }), 0), { reason: 'do_not_queue' })
  const full = { reason: 'queue_full' }
  t.match(queue.admit(request('3', { uncachedTokens: 401 }), 0), {
    ...full,
    limitKind: 'tokens',
    current: 100,
    limit: 500,
  })
  t.match(queue.admit(request('3', { bytes: 21 }), 0), {
    ...full,
    limitKind: 'bytes',
    current: 10,
    limit: 30,
  })
  t.equal(queue.admit(request('3', { deadlineMs: 50 }), 0), 'waiting')
  t.match(queue.admit(request('4'), 0), { ...full, limitKind: 'requests', current: 2, limit: 2 })
  t.strictSame(queue.expire(49), [])
  t.equal(queue.nextDueMs, 50)
  t.strictSame(
    queue.expire(50).map(({ id }) => id),
    ['3'],
  )
  t.equal(queue.nextDueMs, Number.POSITIVE_INFINITY)
  const [row] = queue.snapshot(50).classes
  t.strictSame(row?.refused, { deadline: 2, duplicate: 1, do_not_queue: 2, queue_full: 3 })
})

t.test('a deadline that passes while the router is asked counts only if it is busy', async t => {
  const queue = queueOf('fcfs')
  park(queue, [request('1', { deadlineMs: 10 }), request('2', { deadlineMs: 10 })])
  queue.reopen()
  t.equal(queue.take(9)?.id, '1')
  t.equal(queue.take(9)?.id, '2')
  t.strictSame(queue.busy('1', 10), { reason: 'deadline' })
  t.equal(queue.placed('2', 'w0', 11), true)
})

t.test('the request that crosses a limit of its class is accepted, the next is refused', async t => {
  const limits = { requestsPerWorker: 2, promptTokensPerWorker: 500, cachedTokensPerWorker: 300 }
  const queueWith = (workers: number) =>
    queueOf('fcfs', { profile: profileOf({ name: 'default', ...limits }), workers })
  const fits = queueWith(2)
  park(
    fits,
    ['1', '2', '3', '4'].map(id => request(id)),
  )
  const refusal = { reason: 'class_limit', policyClass: 'default' }
  t.strictSame(fits.admit(request('5'), 0), { ...refusal, limitKind: 'requests', current: 4, limit: 4 })
  fits.setWorkers(3)
  t.equal(fits.admit(request('5'), 0), 'waiting')

  const tokens = queueWith(1)
  park(tokens, [request('1', { promptTokens: 900, uncachedTokens: 700 })])
  t.match(tokens.admit(request('2'), 0), { limitKind: 'raw_isl_tokens', current: 900, limit: 500 })
  const cached = queueWith(1)
  park(cached, [request('1', { promptTokens: 400, uncachedTokens: 50 })])
  t.match(cached.admit(request('2'), 0), { limitKind: 'cached_tokens', current: 350, limit: 300 })
  const alone = queueWith(0)
  t.equal(alone.admit(request('1'), 0), 'ask')
  t.match(alone.busy('1', 0), { limitKind: 'requests', current: 0, limit: 0 })
})

t.test('what waits at other routers counts towards the limits of its class', async t => {
  const limits = { requestsPerWorker: 4, promptTokensPerWorker: 1000, cachedTokensPerWorker: 300 }
  const queue = queueOf('fcfs', { profile: profileOf({ name: 'default', ...limits }), workers: 1 })
  park(queue, [request('1')])
  const elsewhere = (requests: number, promptTokens: number, uncachedTokens: number) =>
    queue.setElsewhere(
      new Map([
        ['default', { requests, promptTokens, uncachedTokens }],
        ['unknown', { requests: 1000, promptTokens: 1000, uncachedTokens: 0 }],
      ]),
    )
  elsewhere(3, 0, 0)
  t.match(queue.admit(request('2'), 0), { limitKind: 'requests', current: 4, limit: 4 })
  elsewhere(0, 1000, 1000)
  t.match(queue.admit(request('2'), 0), { limitKind: 'raw_isl_tokens', limit: 1000 })
  elsewhere(1, 800, 100)
  t.match(queue.admit(request('2'), 0), { limitKind: 'cached_tokens', limit: 300 })
  t.match(queue.snapshot(0).classes, [{ elsewhere: { requests: 1, promptTokens: 800, uncachedTokens: 100 } }])
  queue.setElsewhere(new Map())
  t.equal(queue.admit(request('2'), 0), 'waiting')
  t.match([...queue.waitingByClass()], [{ policyClass: 'default', requests: 2 }])
})

t.test('all of an earlier life of a gateway are given back at once, in any state', async t => {
  const queue = queueOf('fcfs')
  t.equal(queue.admit(request('asked'), 0), 'ask')
  park(queue, [
    request('old'),
    request('new', { ownerLife: 'second' }),
    request('other', { owner: 'gateway-1' }),
  ])
  const dropped = queue.drop(({ owner, ownerLife }) => owner === 'gateway' && ownerLife === 'first', 1)
  t.strictSame(
    dropped.map(({ id }) => id),
    ['asked', 'old'],
  )
  queue.reopen()
  t.strictSame(placeAll(queue, 2), ['new', 'other'])
})

t.test('hints that make no sense count as none, figures that make no sense are assertions', async t => {
  const queue = queueOf('fcfs')
  const senseless = [Number.NaN, -5, Number.NEGATIVE_INFINITY]
  park(queue, [
    request('first'),
    ...senseless.map((hint, i) =>
      request(`${i}`, { priorityJumpSeconds: hint, strictPriority: hint, deadlineMs: Number.NaN }),
    ),
    request('future', { arrivedMs: 1e9 }),
    request('never', { arrivedMs: Number.NaN }),
  ])
  park(queue, [request('last', { priorityJumpSeconds: Number.POSITIVE_INFINITY })])
  queue.reopen()
  t.strictSame(placeAll(queue, 0), ['last', 'first', '0', '1', '2', 'future', 'never'])
  t.equal(queue.snapshot(0).strictPriorities.length, 0)

  const admit = (given: Partial<QueueRequest>) => () => queue.admit(request('x', given), 0)
  t.throws(admit({ uncachedTokens: Number.NaN }), RangeError)
  t.throws(admit({ promptTokens: 1.5, uncachedTokens: 1 }), RangeError)
  t.throws(admit({ bytes: -1 }), RangeError)
  t.throws(admit({ promptTokens: 1, uncachedTokens: 2 }), RangeError)
  t.throws(admit({ policyClass: 'gold' }), RangeError)
  t.throws(() => queue.setWorkers(-1), RangeError)
  t.throws(() => queueOf('fcfs', { agingMs: 0 }), RangeError)
  t.throws(() => queueOf('fcfs', { tenantWeights: new Map([['a', 0]]) }), RangeError)
  t.throws(() => new QueueRoom({ bytesMax: Number.NaN }), RangeError)
  t.equal(queue.waiting, 0)
})

t.test('a strict priority goes before all lower ones, and a lower one that starves is seen', async t => {
  const queue = queueOf('fcfs', { agingMs: 1000 })
  park(queue, [
    request('low'),
    request('high', { strictPriority: 7 }),
    request('higher', { strictPriority: 2 ** 32 }),
  ])
  queue.reopen()
  t.strictSame(placeAll(queue, 10, 2), ['higher', 'high'])
  t.equal(queue.admit(request('high-2', { arrivedMs: 900, strictPriority: 7 }), 900), 'waiting')
  t.match(queue.snapshot(900).strictPriorities, [
    { strictPriority: 7, passedOver: 0, isStarving: false },
    { strictPriority: 0, passedOver: 2, isStarving: false, waiting: { requests: 1, oldestMs: 900 } },
  ])
  t.match(queue.snapshot(1001).strictPriorities[1], { strictPriority: 0, isStarving: true })
  t.strictSame(placeAll(queue, 1001), ['high-2', 'low'])
})

t.test('there are 64 strict priorities at one time; a further one counts as the nearest below', async t => {
  const queue = queueOf('fcfs')
  park(
    queue,
    Array.from({ length: 64 }, (_, i) => request(`${i}`, { strictPriority: 10 * (i + 1) })),
  )
  park(queue, [request('between', { strictPriority: 15 }), request('below', { strictPriority: 5 })])
  t.equal(queue.snapshot(0).strictPriorities.length, 65)
  queue.reopen()
  t.strictSame(placeAll(queue, 1).slice(-3), ['0', 'between', 'below'])
})

t.test('expected waits come from what has drained while requests waited', async t => {
  const queue = queueOf('fcfs', { profile: profileOf({ name: 'default', quantum: 3 }, { name: 'batch' }) })
  t.equal(queue.snapshot(0).expectedWaitMs, 0)
  park(
    queue,
    Array.from({ length: 40 }, (_, i) => request(`${i}`, { tenant: i < 30 ? 'a' : 'b' })),
  )
  t.equal(queue.retryAfterSeconds('default', 0), undefined, 'nothing has drained yet')
  queue.reopen()
  let nowMs = 0
  for (let i = 0; i < 10; i++) {
    nowMs += 200
    placeAll(queue, nowMs, 1)
  }
  const close = (found: number | undefined, wanted: number, what: string) =>
    t.ok(Math.abs(found! - wanted) < 0.05 * wanted, `${what}: ${found} is near ${wanted}`)
  const { drainTokensPerSecond, expectedWaitMs, classes, tenants } = queue.snapshot(nowMs)
  close(drainTokensPerSecond, 500, 'tokens in a second')
  close(expectedWaitMs, 6000, 'until everything has drained')
  t.match(classes, [{ policyClass: 'default' }, { policyClass: 'batch', expectedWaitMs: 0 }])
  close(queue.outlook('39', nowMs)?.expectedWaitMs, 2000, 'five requests of b at half of the rate')
  close(tenants.find(({ tenant }) => tenant === 'b')!.expectedWaitMs, 2000, 'the same of b')
  t.match(queue.outlook('39', nowMs), { why: 'others_first', waitedMs: 2000 })
  t.equal(queue.outlook('0', nowMs), undefined)
  t.equal(queue.retryAfterSeconds('default', nowMs), 6)
  t.equal(queue.retryAfterSeconds('batch', nowMs), 1)
})

t.test(
  'when the room is taken, the tenant with most of it makes room, in whichever queue it waits',
  async t => {
    const room = new QueueRoom({ requestsMax: 4 })
    const gone: string[] = []
    const displaced = (id: string, refusal: QueueRefusal) => {
      t.match(refusal, { reason: 'queue_full', limitKind: 'requests', limit: 4, isDisplaced: true })
      gone.push(id)
    }
    const flooded = queueOf('fcfs', { room, displaced })
    const other = queueOf('fcfs', { room, displaced })
    park(flooded, [
      request('flood 0', { tenant: 'flood' }),
      request('flood 1', { tenant: 'flood' }),
      request('flood 2', { tenant: 'flood', lane: 'w1' }),
    ])
    park(other, [request('flood 3', { tenant: 'flood', lane: 'w2' })])
    t.match(flooded.admit(request('flood 4', { tenant: 'flood' }), 1), { reason: 'queue_full' })
    t.strictSame(gone, [])
    // In the lane that it empties.
    t.equal(other.admit(request('chat 0', { tenant: 'chat', lane: 'w2' }), 1), 'waiting')
    t.strictSame(gone, ['flood 3'])
    flooded.reopen()
    t.equal(flooded.take(1)?.id, 'flood 0')
    park(flooded, [request('chat 1', { tenant: 'chat' })], 1)
    t.strictSame(gone, ['flood 3', 'flood 2'])
    t.match(flooded.admit(request('chat 2', { tenant: 'chat' }), 1), { reason: 'queue_full' })
    t.equal(room.requests, 4)
    flooded.placed('flood 0', 'w0', 2)
    other.reopen('w2')
    t.strictSame([placeAll(other, 2), placeAll(flooded, 2)], [['chat 0'], ['flood 1', 'chat 1'].sort()])
    t.strictSame([room.requests, room.tokens, room.bytes], [0, 0, 0])
    t.match(
      flooded.snapshot(2).tenants.find(({ tenant }) => tenant === 'flood')?.refused,
      { queue_full: 2 },
      'one that was refused at once, one that was displaced',
    )
  },
)

t.test('tenants share each limit of a class, unless what waits elsewhere reaches it alone', async t => {
  const gone: string[] = []
  const queue = queueOf('fcfs', {
    profile: profileOf({ name: 'default', requestsPerWorker: 2 }, { name: 'other' }),
    workers: 2,
    displaced(id, refusal) {
      t.match(refusal, { reason: 'class_limit', limitKind: 'requests', limit: 4, isDisplaced: true })
      gone.push(id)
    },
  })
  park(
    queue,
    Array.from({ length: 4 }, (_, i) => request(`flood ${i}`, { tenant: 'flood' })),
  )
  const chat = (id: string) => queue.admit(request(id, { tenant: 'chat' }), 1)
  t.strictSame([chat('chat 0'), chat('chat 1'), gone], ['waiting', 'waiting', ['flood 3', 'flood 2']])
  t.match(chat('chat 2'), { reason: 'class_limit', current: 4 })
  queue.cancel('chat 1', 2)
  queue.setElsewhere(new Map([['default', { requests: 4, promptTokens: 0, uncachedTokens: 0 }]]))
  t.match(queue.admit(request('third', { tenant: 'third' }), 3), { reason: 'class_limit', current: 7 })
  t.equal(gone.length, 2, 'none is displaced in vain')
})
