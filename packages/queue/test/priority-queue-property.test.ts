/** The queue of any history does what the naive queue does. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type PolicyClass, PriorityQueue, QUEUE_ORDERS, type QueueRequest, QueueRoom } from '../src/index.ts'
import { NaiveQueue } from './naive-queue.ts'
import { placeAll, profileOf, queueOf, request } from './requests.ts'

const WORKERS = 3
const STEP_TOKENS = 64
const CONTENTION_MS = 300
const AGING_MS = 500
const PASSED_OVER_MAX = 3
const WEIGHTS = new Map([
  ['b', 2],
  ['c', 4],
])

type Step =
  | { readonly do: 'admit'; readonly request: Omit<QueueRequest, 'id' | 'arrivedMs'> }
  | { readonly do: 'cancel'; readonly nth: number }
  | { readonly do: 'prefillComplete'; readonly nth: number }
  | { readonly do: 'settled'; readonly nth: number; readonly tokens: number }
  | {
      readonly do: 'release'
      readonly lane: string | undefined
      readonly room: number
      readonly busy: number
    }
  | { readonly do: 'wait'; readonly ms: number }

const LANES = ['', 'w0', 'w1']
const CLASS_NAMES = ['x', 'y', 'z']
/** x and y find the same room. */
const BUSY_FRACTIONS = [undefined, undefined, 2]

const profile = fc
  .tuple(
    fc.array(fc.constantFrom(...QUEUE_ORDERS), { minLength: 3, maxLength: 3 }),
    fc.array(fc.constantFrom(1, 7, 64, 500), { minLength: 3, maxLength: 3 }),
    fc.option(fc.nat(4), { nil: undefined }),
  )
  .map(([orders, quanta, requestsPerWorker]) =>
    profileOf(
      ...CLASS_NAMES.map((name, i): PolicyClass => {
        return {
          name,
          order: orders[i]!,
          quantum: quanta[i]!,
          busyFraction: BUSY_FRACTIONS[i],
          requestsPerWorker: i === 2 ? requestsPerWorker : undefined,
        }
      }),
    ),
  )

/** Steps of a world with some of everything, or with little of one thing, so that more of them meet. */
function stepsIn(world: {
  readonly classes: number
  readonly tenants: number
  readonly lanes: number
  readonly priorities: number
}): fc.Arbitrary<Step[]> {
  const admit = fc
    .record({
      uncachedTokens: fc.constantFrom(0, 1, 3, 20, 64, 65, 200),
      cachedTokens: fc.constantFrom(0, 100),
      estimate: fc.constantFrom(undefined, { tokensMax: 1000 }),
      policyClass: fc.constantFrom(...CLASS_NAMES.slice(0, world.classes)),
      tenant: fc.constantFrom(...['a', 'b', 'c', 'd'].slice(0, world.tenants)),
      priorityJumpSeconds: fc.constantFrom(0, 0, 0, 1, 0.25, -3),
      strictPriority: fc.constantFrom(...[0, 9, 1].slice(0, world.priorities)),
      deadlineMs: fc.option(fc.nat(4000), { nil: undefined, freq: 3 }),
      doNotQueue: fc.constantFrom(false, false, false, false, true),
      lane: fc.constantFrom('', ...LANES.slice(0, world.lanes)),
    })
    .map(({ cachedTokens, ...given }) => ({
      do: 'admit' as const,
      request: request('', { ...given, promptTokens: given.uncachedTokens + cachedTokens }),
    }))
  const step: fc.Arbitrary<Step> = fc.oneof(
    { weight: 8, arbitrary: admit },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const), nth: fc.nat(200) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('prefillComplete' as const), nth: fc.nat(200) }) },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('settled' as const),
        nth: fc.nat(200),
        tokens: fc.constantFrom(0, 1, 10, 65, 200, 1000),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('release' as const),
        lane: fc.constantFrom(undefined, ...LANES),
        room: fc.nat(4),
        busy: fc.nat(63),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, 40, 250) }),
    },
  )
  return fc.array(step, { minLength: 20, maxLength: 150, size: 'max' })
}

const steps = fc
  .record({
    classes: fc.integer({ min: 1, max: 3 }),
    tenants: fc.integer({ min: 1, max: 4 }),
    lanes: fc.integer({ min: 1, max: 3 }),
    priorities: fc.constantFrom(1, 1, 3),
  })
  .chain(stepsIn)

/** Whether the router has no room, by a bit for each threshold and lane. */
function isBusy({ policyClass, lane }: QueueRequest, busy: number): boolean {
  const threshold = policyClass === 'z' ? 1 : 0
  return ((busy >> (3 * threshold + LANES.indexOf(lane))) & 1) === 1
}

t.test('gives requests in the order of the naive queue, whatever happens', async t => {
  const agree = fc.property(profile, steps, (profile, steps) => {
    const room = new QueueRoom()
    const displaced: string[] = []
    const queue = new PriorityQueue({
      profile,
      room,
      displaced: id => void displaced.push(id),
      workers: WORKERS,
      tenantWeights: WEIGHTS,
      stepTokens: STEP_TOKENS,
      contentionMs: CONTENTION_MS,
      agingMs: AGING_MS,
      passedOverMax: PASSED_OVER_MAX,
    })
    const naive = new NaiveQueue({
      profile,
      workers: WORKERS,
      weights: WEIGHTS,
      stepTokens: STEP_TOKENS,
      contentionMs: CONTENTION_MS,
      agingMs: AGING_MS,
      passedOverMax: PASSED_OVER_MAX,
    })
    let nowMs = 0
    let turn = 0
    let count = 0
    const requests: QueueRequest[] = []
    for (const step of steps) {
      const expired = queue.expire(nowMs).map(({ id }) => id)
      assert.deepEqual(expired, naive.expire(nowMs))
      if (step.do === 'wait') {
        nowMs += step.ms
      } else if (step.do === 'cancel') {
        const id = `${step.nth % (count + 1)}`
        assert.equal(queue.cancel(id, nowMs)?.id, naive.cancel(id) ? id : undefined)
      } else if (step.do === 'prefillComplete') {
        const id = `${step.nth % (count + 1)}`
        queue.prefillComplete(id, nowMs)
        naive.prefillComplete(id)
      } else if (step.do === 'settled') {
        const id = `${step.nth % (count + 1)}`
        const { promptTokens, uncachedTokens } = requests[Number(id)] ?? request('')
        const share = promptTokens === 0 ? 0 : 1 - uncachedTokens / promptTokens
        queue.settled(id, { promptTokens: step.tokens, cachedTokens: undefined }, nowMs)
        naive.settled(id, Math.round(step.tokens * (1 - share)))
      } else if (step.do === 'admit') {
        const arrived = { ...step.request, id: `${count++}`, arrivedMs: nowMs }
        requests.push(arrived)
        const admission = queue.admit(arrived, nowMs)
        assert.deepEqual(admission, naive.admit(arrived, nowMs))
        if (admission === 'ask') {
          if (turn++ % 4 === 0) {
            assert.equal(queue.placed(arrived.id, `w${turn % 3}`, nowMs), true)
            naive.placed(arrived.id, `w${turn % 3}`, nowMs)
          } else {
            assert.deepEqual(queue.busy(arrived.id, nowMs), naive.busy(arrived.id, nowMs))
          }
        }
      } else {
        queue.reopen(step.lane)
        naive.reopen(step.lane)
        for (let room = step.room; ; ) {
          const next = queue.take(nowMs)
          assert.equal(next?.id, naive.take(nowMs))
          if (next === undefined) break
          if (room === 0 || isBusy(next, step.busy)) {
            assert.equal(queue.busy(next.id, nowMs), 'waiting')
            assert.equal(naive.busy(next.id, nowMs), 'waiting')
          } else {
            room--
            turn++
            assert.equal(queue.placed(next.id, `w${turn % 3}`, nowMs), true)
            naive.placed(next.id, `w${turn % 3}`, nowMs)
          }
        }
      }
      assert.deepEqual(displaced, naive.displaced)
      assert.equal(queue.waiting, naive.ids.length)
    }
    const left = queue.drop(() => true, nowMs).map(({ id }) => id)
    assert.deepEqual(left.sort(), naive.ids.sort())
    assert.deepEqual([queue.waiting, room.requests, room.tokens, room.bytes], [0, 0, 0, 0])
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 400 }))
})

t.test('with many asked about at once each request ends once, and what can go is given', async t => {
  const step = fc.record({
    do: fc.constantFrom('admit', 'admit', 'take', 'take', 'placed', 'busy', 'cancel', 'reopen'),
    nth: fc.nat(1000),
  })
  const sound = fc.property(fc.array(step, { minLength: 50, maxLength: 300, size: 'max' }), steps => {
    const room = new QueueRoom()
    const profile = profileOf(
      { name: 'x', quantum: 50 },
      { name: 'y', order: 'response-ratio' },
      { name: 'z', order: 'wspt' },
    )
    const queue = queueOf('fcfs', { profile, room, stepTokens: 64, contentionMs: 5 })
    const waiting = new Set<string>()
    const asked = new Set<string>()
    const ended = new Set<string>()
    const end = (id: string) => {
      assert.ok(asked.delete(id) || waiting.delete(id))
      assert.ok(!ended.has(id))
      ended.add(id)
    }
    steps.forEach(({ do: action, nth }, nowMs) => {
      const nthOf = (ids: ReadonlySet<string>) => [...ids][nth % Math.max(1, ids.size)]
      if (action === 'admit') {
        const given = {
          arrivedMs: nowMs,
          policyClass: CLASS_NAMES[nth % 3]!,
          tenant: 'abcd'[nth % 4]!,
          lane: LANES[nth % 5] ?? '',
          strictPriority: nth % 7 === 0 ? 1 : 0,
          uncachedTokens: nth % 90,
        }
        const admission = queue.admit(request(`${nowMs}`, given), nowMs)
        if (admission === 'ask') asked.add(`${nowMs}`)
        else if (admission === 'waiting') waiting.add(`${nowMs}`)
        else assert.fail(admission.reason)
      } else if (action === 'take') {
        const next = queue.take(nowMs)
        if (next === undefined) return
        assert.ok(waiting.delete(next.id))
        asked.add(next.id)
      } else if (action === 'reopen') {
        queue.reopen(nth % 3 === 0 ? undefined : LANES[nth % 3])
      } else if (action === 'cancel') {
        const id = nthOf(nth % 2 === 0 ? asked : waiting)
        if (id === undefined) return
        assert.equal(queue.cancel(id, nowMs)?.id, id)
        end(id)
      } else {
        const id = nthOf(asked)
        if (id === undefined) return
        if (action === 'placed') {
          assert.equal(queue.placed(id, `w${nth % 4}`, nowMs), true)
          end(id)
          if (nth % 3 > 0) queue.prefillComplete(id, nowMs)
        } else {
          assert.equal(queue.busy(id, nowMs), 'waiting')
          asked.delete(id)
          waiting.add(id)
        }
      }
      assert.equal(queue.waiting, waiting.size)
    })
    const endMs = steps.length + 1e6
    queue.reopen()
    for (const id of asked) assert.equal(queue.placed(id, 'w0', endMs), true)
    // The rule for long prompts may hold some of a tenant until others have not been served for a while.
    assert.equal(placeAll(queue, endMs).length + placeAll(queue, endMs + 5).length, waiting.size)
    assert.deepEqual([queue.waiting, room.requests, room.tokens, room.bytes], [0, 0, 0, 0])
    const snapshot = queue.snapshot(endMs + 5)
    assert.deepEqual(snapshot.strictPriorities, [])
    for (const { waiting } of [...snapshot.classes, ...snapshot.tenants]) assert.equal(waiting.requests, 0)
  })
  t.doesNotThrow(() => fc.assert(sound, { numRuns: 300 }))
})
