import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { ActiveLoad } from '../src/index.ts'
import { NaiveLoad } from './naive-load.ts'

/** Hashes of a prompt given as letters; the same letter under another parent is another block. */
function hashes(prompt: string): Int32Array {
  const words = new Int32Array(prompt.length * 2)
  let hash = 17
  for (let i = 0; i < prompt.length; i++) {
    hash = (Math.imul(hash, 31) + prompt.charCodeAt(i)) | 0
    words[2 * i] = hash
    words[2 * i + 1] = hash ^ 0x5bd1e995
  }
  return words
}

function paths(prompt: string): string[] {
  return [...prompt].map((_, i) => prompt.slice(0, i + 1))
}

function booking(prompt: string, prefillTokens = 0) {
  return {
    sequenceHashes: hashes(prompt),
    count: prompt.length,
    promptTokens: prompt.length * 16,
    prefillTokens,
  }
}

const empty = { activeBlocks: 0, activePrefillTokens: 0, activeRequests: 0, activePromptTokens: 0 }

t.test("blocks of others count beside one's own, until they are set to 0", async t => {
  const load = new ActiveLoad({ workerSlotsMax: 4 })
  load.setForeignBlocks(1, 5)
  t.equal(load.book('one', 1, booking('abc', 48)), 'booked')
  t.equal(load.totals(1).activeBlocks, 8)
  t.equal(load.ownBlocks(1), 3)
  t.equal(load.project(hashes('abd'), 3, [1, 2]).activeBlocks[0], 8)
  load.free('one')
  t.equal(load.totals(1).activeBlocks, 5)
  load.setForeignBlocks(1, 0)
  t.strictSame(load.totals(1), empty)
  for (const blocks of [-1, 0.5, Number.NaN]) t.throws(() => load.setForeignBlocks(1, blocks), RangeError)
  t.throws(() => load.setForeignBlocks(4, 1), RangeError)
})

t.test('a block that two requests of a worker share counts once and stays until both ended', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 4 })
  t.equal(load.book('one', 1, booking('abc', 48)), 'booked')
  t.equal(load.book('two', 1, booking('abd', 16)), 'booked')
  t.strictSame(load.totals(1), {
    activeBlocks: 4,
    activePrefillTokens: 64,
    activeRequests: 2,
    activePromptTokens: 96,
  })

  t.equal(load.free('one'), true)
  t.equal(load.totals(1).activeBlocks, 3)
  t.equal(load.free('two'), true)
  t.strictSame(load.totals(1), empty)
  t.match(load.stats, { requests: 0, activeBlocks: 0, distinctBlocks: 0, bookedTotal: 2, freedTotal: 2 })
})

t.test('a duplicate id changes nothing, on whatever worker it arrives', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 4 })
  load.book('one', 1, booking('abc', 48))
  t.equal(load.book('one', 2, booking('xyz', 10)), 'duplicate')
  t.strictSame(load.totals(2), empty)
  t.strictSame(load.freeWorker(2), [])
  t.strictSame(load.freeWorker(1), ['one'])
  t.equal(load.stats.duplicatesTotal, 1)
})

t.test('prefillComplete and free are idempotent, and free implies prefillComplete', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 1 })
  load.book('one', 0, booking('ab', 32))
  t.equal(load.prefillComplete('one'), true)
  t.equal(load.prefillComplete('one'), false)
  t.match(load.totals(0), { activePrefillTokens: 0, activeBlocks: 2 })
  load.book('two', 0, booking('ab', 32))
  t.equal(load.free('two'), true)
  t.equal(load.free('two'), false)
  t.equal(load.prefillComplete('two'), false)
  t.match(load.totals(0), { activePrefillTokens: 0, activeBlocks: 2, activeRequests: 1 })
})

t.test('new blocks are those after the leading run that is active on the worker', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 8 })
  load.book('a', 0, booking('abcd'))
  load.book('b', 1, booking('ab'))
  load.book('c', 2, booking('xbcd'))
  load.book('d', 5, booking('abcdefgh'))
  const { newBlocks, activeBlocks, count } = load.project(hashes('abcdef'), 6, [0, 1, 2, 3, 5])
  t.equal(count, 5)
  t.strictSame([...newBlocks.subarray(0, 5)], [2, 4, 6, 6, 0])
  t.strictSame([...activeBlocks.subarray(0, 5)], [4, 2, 4, 0, 8])
})

t.test('finds the leading run on each of many workers that hold it to different depths', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 64 })
  const prompt = 'p'.repeat(128)
  const depths = Array.from({ length: 64 }, (_, slot) => (slot * 37 + 5) % 129)
  depths.forEach((depth, slot) => {
    load.book(`${slot}`, slot, booking(prompt.slice(0, depth)))
  })
  const slots = depths.map((_, slot) => slot)
  const expected = depths.map(depth => 128 - depth)
  t.strictSame([...load.project(hashes(prompt), 128, slots).newBlocks.subarray(0, 64)], expected)
  t.strictSame(
    [...load.project(hashes(prompt), 128, [7, 3]).newBlocks.subarray(0, 2)],
    [expected[7], expected[3]],
  )
})

t.test('prefill tokens below 0 count as 0', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 1 })
  load.book('one', 0, booking('ab', -40))
  t.equal(load.totals(0).activePrefillTokens, 0)
})

t.test('output blocks are private, may decay, and go with their request', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 1 })
  load.book('one', 0, booking('ab'))
  t.equal(load.setOutputBlocks('one', 3), true)
  t.equal(load.totals(0).activeBlocks, 5)
  load.setForeignBlocks(0, 9, 4)
  t.equal(load.project(hashes('ab'), 2, [0]).outputBlocks[0], 7, 'three of its own, four of others')
  load.setForeignBlocks(0, 0)
  t.equal(load.project(hashes('ab'), 2, [0]).outputBlocks[0], 3)
  load.setOutputBlocks('one', 4, 0.5)
  t.equal(load.totals(0).activeBlocks, 4, 'two of the prompt, and half of four')
  load.setOutputBlocks('one', 4, 0)
  t.equal(load.totals(0).activeBlocks, 2, 'a prompt is in use until its request has ended')
  t.equal(load.setOutputBlocks('other', 1), false)
  load.free('one')
  t.strictSame(load.totals(0), empty)
})

t.test('freeWorker frees the requests of that worker only', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 4 })
  load.book('one', 1, booking('abc', 48))
  load.book('two', 2, booking('abc', 48))
  load.book('three', 1, booking('xyz', 48))
  t.strictSame(load.freeWorker(1), ['one', 'three'])
  t.strictSame(load.freeWorker(1), [])
  t.strictSame(load.totals(1), empty)
  t.equal(load.totals(2).activeBlocks, 3)
})

t.test('expire frees by inactivity, not by age', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 1 })
  load.book('one', 0, { ...booking('ab'), nowMs: 0 })
  load.book('two', 0, { ...booking('ab'), nowMs: 10 })
  load.touch('one', 250)
  t.strictSame(load.expire(309, 300), [])
  t.strictSame(load.expire(310, 300), ['two'])
  t.strictSame(load.expire(549, 300), [])
  t.strictSame(load.expire(550, 300), ['one'])
  t.strictSame(load.totals(0), empty)
  t.equal(load.stats.expiredTotal, 2)
})

t.test('a booking past a bound is refused whole', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 2, requestsMax: 2, activeBlocksMax: 5 })
  t.equal(load.book('one', 0, booking('abc')), 'booked')
  t.equal(load.book('two', 1, booking('abc')), 'full', 'blocks')
  t.equal(load.book('two', 1, booking('ab')), 'booked')
  t.equal(load.book('three', 1, booking('')), 'full', 'requests')
  t.equal(load.stats.refusedTotal, 2)
  t.equal(load.stats.activeBlocks, 5)
})

t.test('impossible slots, counts and figures are assertions', async t => {
  const load = new ActiveLoad({ workerSlotsMax: 2 })
  t.throws(() => load.book('one', 2, booking('a')), RangeError)
  t.throws(() => load.book('one', -1, booking('a')), RangeError)
  t.throws(() => load.book('one', 0, { ...booking('a'), count: 2 }), RangeError)
  t.throws(() => load.book('one', 0, booking('a', Number.NaN)), RangeError)
  t.throws(() => load.project(hashes('a'), 1, [7]), RangeError)
  t.throws(() => new ActiveLoad({ workerSlotsMax: 0 }), RangeError)
  t.equal(load.stats.requests, 0)
})

const slots = 6
type Step =
  | { do: 'book'; id: number; slot: number; prompt: string; prefillTokens: number }
  | { do: 'prefillComplete' | 'free' | 'touch'; id: number }
  | { do: 'output'; id: number; count: number; eighths: number }
  | { do: 'freeWorker'; slot: number }
  | { do: 'expire' }

const id = fc.nat(11)
const slot = fc.nat(slots - 1)
const prompt = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 12 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('book' as const),
      id,
      slot,
      prompt,
      prefillTokens: fc.nat(500),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('prefillComplete', 'touch'), id }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('free' as const), id }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('output' as const), id, count: fc.nat(9), eighths: fc.nat(8) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('freeWorker' as const), slot }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('expire' as const) }) },
)

t.test('agrees with the naive load after any history, and ends at 0', async t => {
  const agree = fc.property(fc.array(step, { maxLength: 60 }), prompt, (steps, query) => {
    const load = new ActiveLoad({ workerSlotsMax: slots })
    const naive = new NaiveLoad()
    let nowMs = 0
    for (const step of steps) {
      nowMs += 10
      apply(load, naive, step, nowMs)
      compare(load, naive, query)
    }
    for (const id of [...naive.requests.keys()]) load.free(id)
    for (let s = 0; s < slots; s++) assert.deepEqual(load.totals(s), empty)
    const { requests, activeBlocks, distinctBlocks } = load.stats
    assert.deepEqual([requests, activeBlocks, distinctBlocks], [0, 0, 0])
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 600 }))
})

function apply(load: ActiveLoad, naive: NaiveLoad, step: Step, nowMs: number): void {
  if (step.do === 'book') {
    const id = String(step.id)
    const outcome = load.book(id, step.slot, { ...booking(step.prompt, step.prefillTokens), nowMs })
    assert.equal(outcome, naive.requests.has(id) ? 'duplicate' : 'booked')
    if (outcome === 'booked') {
      naive.requests.set(id, {
        slot: step.slot,
        path: paths(step.prompt),
        prefillTokens: step.prefillTokens,
        outputBlocks: 0,
        lastSeenMs: nowMs,
      })
    }
    return
  }
  if (step.do === 'freeWorker') {
    const expected = [...naive.requests].filter(([, r]) => r.slot === step.slot).map(([id]) => id)
    assert.deepEqual(load.freeWorker(step.slot), expected)
    for (const id of expected) naive.requests.delete(id)
    return
  }
  if (step.do === 'expire') {
    assert.deepEqual(load.expire(nowMs, 150).sort(), naive.expire(nowMs, 150).sort())
    return
  }
  const id = String(step.id)
  const request = naive.requests.get(id)
  if (step.do === 'free') {
    assert.equal(load.free(id), naive.requests.delete(id))
  } else if (step.do === 'output') {
    assert.equal(load.setOutputBlocks(id, step.count, step.eighths / 8), request !== undefined)
    if (request !== undefined) {
      const fraction = step.eighths / 8
      request.outputBlocks = step.count * fraction
    }
  } else if (step.do === 'touch') {
    assert.equal(load.touch(id, nowMs), request !== undefined)
    if (request !== undefined) request.lastSeenMs = nowMs
  } else {
    assert.equal(load.prefillComplete(id, nowMs), (request?.prefillTokens ?? 0) > 0)
    if (request !== undefined) {
      request.prefillTokens = 0
      request.lastSeenMs = nowMs
    }
  }
}

function compare(load: ActiveLoad, naive: NaiveLoad, query: string): void {
  const all = [0, 1, 2, 3, 4, 5]
  assert.equal(load.stats.distinctBlocks, naive.distinctBlocks)
  for (const asked of [all, [4, 1]]) {
    const projection = load.project(hashes(query), query.length, asked)
    asked.forEach((s, i) => {
      const row = [
        projection.activeBlocks[i],
        projection.newBlocks[i],
        projection.activePrefillTokens[i],
        projection.activeRequests[i],
      ]
      const activeBlocks = naive.activeBlocks(s)
      const newBlocks = naive.newBlocks(s, paths(query))
      assert.deepEqual(row, [activeBlocks, newBlocks, naive.prefillTokens(s), naive.activeRequests(s)])
      assert.ok(activeBlocks + newBlocks >= load.totals(s).activeBlocks, 'potential is at least active')
    })
  }
}
