import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { QueueOrder, QueueRequest } from '../src/index.ts'
import { park, placeAll, queueOf, request } from './requests.ts'

const REQUESTS: readonly QueueRequest[] = [
  request('long', { arrivedMs: 0, uncachedTokens: 1000 }),
  request('cached', { arrivedMs: 100, promptTokens: 4000, uncachedTokens: 50 }),
  request('short', { arrivedMs: 200, uncachedTokens: 100 }),
  request('jumps', { arrivedMs: 300, uncachedTokens: 400, priorityJumpSeconds: 0.25 }),
]

function sequenceIn(order: QueueOrder, nowMs = 1000): string[] {
  const queue = queueOf(order)
  park(queue, REQUESTS, 300)
  queue.reopen()
  return placeAll(queue, nowMs)
}

t.test('fcfs goes by arrival less the head start', async t => {
  t.strictSame(sequenceIn('fcfs'), ['long', 'jumps', 'cached', 'short'])
})

t.test('lcfs goes by arrival and head start, newest first', async t => {
  t.strictSame(sequenceIn('lcfs'), ['jumps', 'short', 'cached', 'long'])
})

t.test('wspt goes by weight over uncached tokens, or over all tokens', async t => {
  t.strictSame(sequenceIn('wspt'), ['cached', 'short', 'jumps', 'long'])
  t.strictSame(sequenceIn('wspt-total'), ['short', 'jumps', 'long', 'cached'])
})

t.test('response-ratio goes by wait and head start over uncached tokens', async t => {
  // At 1,000 ms: 18, 8, (700 + 250) / 400 and 1.
  t.strictSame(sequenceIn('response-ratio'), ['cached', 'short', 'jumps', 'long'])
  const queue = queueOf('response-ratio')
  park(queue, [request('old', { uncachedTokens: 1000 })])
  park(queue, [request('new', { arrivedMs: 9950, uncachedTokens: 10 })], 9950)
  queue.reopen()
  t.strictSame(placeAll(queue, 10_000), ['old', 'new'], '10 a token against 5')
})

t.test('of equal requests the first to come goes first', async t => {
  for (const order of ['fcfs', 'lcfs', 'wspt', 'response-ratio'] as const) {
    const queue = queueOf(order)
    park(
      queue,
      ['1', '2', '3'].map(id => request(id)),
    )
    queue.reopen()
    t.strictSame(placeAll(queue, 5), ['1', '2', '3'], order)
  }
})

t.test('response-ratio takes one of at least 1/√2 of the largest ratio', async t => {
  const requests = fc.array(
    fc.record({ arrivedMs: fc.nat(20_000), uncachedTokens: fc.integer({ min: 1, max: 100_000 }) }),
    { minLength: 2, maxLength: 40 },
  )
  const close = fc.property(requests, given => {
    const queue = queueOf('response-ratio', { stepTokens: 1e9 })
    const waiting = given.map((figures, i) => request(`${i}`, figures))
    park(queue, waiting, 20_000)
    queue.reopen()
    const left = new Map(waiting.map(request => [request.id, request]))
    for (let nowMs = 20_000; left.size > 0; nowMs += 37) {
      const ratio = ({ arrivedMs, uncachedTokens }: QueueRequest) => (nowMs - arrivedMs) / uncachedTokens
      const largest = Math.max(...Array.from(left.values(), ratio))
      const [id] = placeAll(queue, nowMs, 1)
      assert.ok(ratio(left.get(id!)!) >= largest / Math.SQRT2 - 1e-9)
      left.delete(id!)
    }
  })
  t.doesNotThrow(() => fc.assert(close, { numRuns: 300 }))
})

t.test('nobody starves: once it has aged, only requests that came before go before it', async t => {
  const order = fc.constantFrom<QueueOrder>('fcfs', 'wspt', 'wspt-total', 'response-ratio')
  const arrivals = fc.array(
    fc.record({
      uncachedTokens: fc.constantFrom(1, 10, 5000, 60_000),
      priorityJumpSeconds: fc.constantFrom(0, 0, 1, 1e6),
      lane: fc.constantFrom('', '', 'w1'),
    }),
    { minLength: 60, maxLength: 150, size: 'max' },
  )
  const never = fc.property(order, arrivals, (order, arrivals) => {
    const agingMs = 500
    const queue = queueOf(order, { agingMs, stepTokens: 1e9 })
    const waiting = new Map<string, number>()
    arrivals.forEach((given, i) => {
      // Two come for each that goes: without the bound the largest would never go.
      const nowMs = 20 * i
      park(queue, [request(`${i}`, { ...given, arrivedMs: nowMs })], nowMs)
      waiting.set(`${i}`, nowMs)
      if (i % 2 === 0) return
      queue.reopen()
      const [id] = placeAll(queue, nowMs, 1)
      const arrivedMs = waiting.get(id!)!
      waiting.delete(id!)
      for (const otherMs of waiting.values()) {
        assert.ok(nowMs - otherMs < agingMs || otherMs >= arrivedMs, `${otherMs} is passed by ${arrivedMs}`)
      }
    })
  })
  t.doesNotThrow(() => fc.assert(never, { numRuns: 200 }))
})

t.test('lcfs has no such bound: under overload the oldest does not go', async t => {
  const queue = queueOf('lcfs', { agingMs: 100 })
  park(queue, [request('oldest')])
  for (let i = 0; i < 100; i++) {
    park(queue, [request(`${i}`, { arrivedMs: 10 * i + 1 })], 10 * i + 1)
    queue.reopen()
    t.strictSame(placeAll(queue, 10 * i + 1, 1), [`${i}`])
  }
  t.equal(queue.cancel('oldest', 1000)?.id, 'oldest')
})
