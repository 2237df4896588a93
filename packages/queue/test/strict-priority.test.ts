import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { PriorityQueue } from '../src/index.ts'
import { park, placeAll, profileOf, queueOf, request } from './requests.ts'

/** `count` requests of a class, each of `uncachedTokens`. */
function parkMany(queue: PriorityQueue, policyClass: string, count: number, uncachedTokens: number): void {
  park(
    queue,
    Array.from({ length: count }, (_, i) => request(`${policyClass}${i}`, { policyClass, uncachedTokens })),
  )
}

function sequence(queue: PriorityQueue, count: number): string {
  queue.reopen()
  return placeAll(queue, 1, count)
    .map(id => id[0])
    .join('')
}

t.test('a class sends what its quantum pays for in each round', async t => {
  const profile = profileOf({ name: 'a', quantum: 100 }, { name: 'b', quantum: 400 })
  const queue = queueOf('fcfs', { profile })
  parkMany(queue, 'a', 20, 100)
  parkMany(queue, 'b', 20, 100)
  t.equal(sequence(queue, 15), 'abbbbabbbbabbbb')
})

t.test('requests far larger than a quantum go in as many rounds at once as are needed', async t => {
  const profile = profileOf({ name: 'a', quantum: 1 }, { name: 'b', quantum: 3 })
  const queue = queueOf('fcfs', { profile })
  parkMany(queue, 'a', 8, 1000)
  parkMany(queue, 'b', 8, 1000)
  // In round 334 b has 1,002 and keeps 2, in round 667 it has 1,001 and keeps 1. In round 1,000 both have
  // 1,000.
  t.equal(sequence(queue, 8), 'bbabbbab')
})

t.test('credit that is left is spent before the next visit, and lost when nothing waits', async t => {
  const profile = profileOf({ name: 'a', quantum: 250 }, { name: 'b', quantum: 100 })
  const queue = queueOf('fcfs', { profile })
  parkMany(queue, 'a', 2, 100)
  parkMany(queue, 'b', 9, 100)
  t.equal(sequence(queue, 3), 'aab', 'the 50 that a had left are gone with its last request')
  park(
    queue,
    [request('a8', { policyClass: 'a', uncachedTokens: 300 }), request('a9', { policyClass: 'a' })],
    2,
  )
  // 250 are not 300, and b goes; then 500 pay for a8, and with the 200 left for a9.
  t.equal(sequence(queue, 4), 'baab')
})

t.test('a class whose requests cannot go gets no credit; the others have all of the time', async t => {
  const profile = profileOf({ name: 'a', quantum: 100 }, { name: 'b', quantum: 100 })
  const queue = queueOf('fcfs', { profile })
  parkMany(queue, 'b', 8, 100)
  park(
    queue,
    Array.from({ length: 4 }, (_, i) => request(`a${i}`, { policyClass: 'a', lane: 'w1' })),
  )
  queue.reopen('')
  t.strictSame(placeAll(queue, 1, 4), ['b0', 'b1', 'b2', 'b3'])
  queue.reopen('w1')
  t.equal(sequence(queue, 6).replaceAll('ab', 'ba'), 'bababa', 'a has nothing to make up for')
})

t.test('a busy answer changes no turn', async t => {
  const profile = profileOf({ name: 'a', quantum: 70 }, { name: 'b', quantum: 130 })
  const sequenceWith = (busyAnswers: number) => {
    const queue = queueOf('fcfs', { profile })
    parkMany(queue, 'a', 10, 100)
    parkMany(queue, 'b', 10, 100)
    const placed: string[] = []
    while (queue.waiting > 0) {
      for (let i = 0; i < busyAnswers; i++) {
        queue.reopen()
        for (let next = queue.take(1); next !== undefined; next = queue.take(1)) queue.busy(next.id, 1)
      }
      queue.reopen()
      placed.push(...placeAll(queue, 1, 1))
    }
    return placed
  }
  t.strictSame(sequenceWith(3), sequenceWith(0))
})

t.test('two backlogged classes differ by a round and a request of each at most, by quantum', async t => {
  const classOf = fc.record({
    quantum: fc.integer({ min: 1, max: 2000 }),
    costs: fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 40, maxLength: 40 }),
  })
  const bounded = fc.property(fc.array(classOf, { minLength: 2, maxLength: 4 }), classes => {
    const profile = profileOf(...classes.map(({ quantum }, i) => ({ name: `${i}`, quantum })))
    const queue = queueOf('fcfs', { profile, stepTokens: 1e9 })
    classes.forEach(({ costs }, i) => {
      park(
        queue,
        costs.map((uncachedTokens, n) => request(`${i}-${n}`, { policyClass: `${i}`, uncachedTokens })),
      )
    })
    queue.reopen()
    const sent = classes.map(() => 0)
    const left = classes.map(({ costs }) => costs.length)
    const largest = classes.map(({ costs }) => Math.max(...costs))
    for (;;) {
      const [id] = placeAll(queue, 1, 1)
      const [i, n] = id!.split('-').map(Number)
      sent[i!]! += classes[i!]!.costs[n!]!
      if (--left[i!]! === 0) break
      classes.forEach(({ quantum }, j) => {
        classes.forEach(({ quantum: other }, k) => {
          const difference = sent[j]! / quantum - sent[k]! / other
          assert.ok(difference <= 1 + largest[j]! / quantum + largest[k]! / other)
        })
      })
    }
  })
  t.doesNotThrow(() => fc.assert(bounded, { numRuns: 200 }))
})

t.test(
  'a lower strict priority starves for the aging time at most, then has one placement of some',
  async t => {
    const queue = queueOf('fcfs', { agingMs: 1000, passedOverMax: 4 })
    let strict = 0
    const flood = (nowMs: number) =>
      park(queue, [request(`s${strict++}`, { strictPriority: 9, tenant: 'flood', arrivedMs: nowMs })], nowMs)
    for (let i = 0; i < 8; i++) flood(0)
    park(
      queue,
      Array.from({ length: 3 }, (_, i) => request(`chat${i}`, { tenant: 'chat' })),
    )
    const placed: string[] = []
    for (let nowMs = 100; nowMs <= 2500; nowMs += 100) {
      queue.reopen()
      placed.push(...placeAll(queue, nowMs, 1))
      flood(nowMs)
    }
    const at = placed.flatMap((id, i) => (id.startsWith('chat') ? [i] : []))
    // Placement 9 is the first at 1,000 ms.
    t.strictSame(at, [9, 14, 19])
  },
)
