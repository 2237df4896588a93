/**
 * The engine book where others use the workers, too: what is overdue counts as backlog, if own bookings do
 * not explain what is seen.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { AUTO_CONSTANTS, EngineBook, figureOf } from '../src/index.ts'

const SEED = 20_261_126
const { OVERDUE_MS_MAX } = AUTO_CONSTANTS.unseen
const REQUEST = { promptTokens: 1000, newTokens: 1000 }
const PREFILL_MS = 24

/**
 * Requests one after the other; those of others hold up every third of them for `heldUpMs`. The time after
 * them.
 */
function serve(
  book: EngineBook,
  requests: number,
  startMs: number,
  heldUpMs: number,
  slot = 0,
  isOwn = true,
): number {
  let nowMs = startMs
  for (let i = 0; i < requests; i++) {
    const id = `${startMs} ${i}`
    book.sent(id, slot, { ...REQUEST, isOwn, nowMs })
    nowMs += PREFILL_MS + (i % 3 === 2 ? heldUpMs : 0)
    book.firstToken(id, nowMs)
    nowMs += 500
    book.ended(id, nowMs, 50, 0)
    nowMs += 10
  }
  return nowMs
}

/** The backlog of a worker whose request was sent at `sentMs`, so much later. */
function backlogAfter(book: EngineBook, sentMs: number, afterMs: number, slot = 0): number {
  return figureOf(book.project([slot], sentMs + afterMs), 0, 'backlogMs')
}

/** Of both workers. */
function backlogs(book: EngineBook, nowMs: number): readonly number[] {
  const projection = book.project([0, 1], nowMs)
  return [0, 1].map(i => figureOf(projection, i, 'backlogMs'))
}

t.test('where own bookings explain the times to the first token, nothing is overdue', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const nowMs = serve(book, 1000, 0, 0)
  book.sent('a', 0, { ...REQUEST, nowMs })
  t.equal(backlogAfter(book, nowMs, 5000), 0)
})

t.test('where others hold up requests, what is overdue is backlog, until its first token comes', async t => {
  const book = new EngineBook({ workerSlotsMax: 2 })
  const nowMs = serve(book, 1000, 0, 1000)
  book.sent('a', 0, { ...REQUEST, nowMs })
  const own = backlogAfter(book, nowMs, 0)
  t.ok(own > 0 && own < 500, `own ${own}`)
  const [soon, later] = [backlogAfter(book, nowMs, 1000), backlogAfter(book, nowMs, 3000)]
  t.ok(soon > 300 && soon <= 1000, `after a second ${soon}`)
  t.ok(later > soon + 1000 && later <= 3000, `after three ${later}`)
  t.equal(backlogAfter(book, nowMs, 3000, 1), 0, 'of that worker alone')
  t.ok(backlogAfter(book, nowMs, 1e9) <= OVERDUE_MS_MAX, 'a first token that never comes')
  book.firstToken('a', nowMs + 1e9)
  t.equal(backlogAfter(book, nowMs, 1e9), 0)
})

t.test(
  'the head says nothing of its worker if it was overtaken, resumed, told late or does not stream',
  async t => {
    const book = new EngineBook({ workerSlotsMax: 4 })
    const nowMs = serve(book, 1000, 0, 1000)
    book.sent('overtaken', 0, { ...REQUEST, nowMs })
    book.sent('overtaking', 0, { ...REQUEST, nowMs: nowMs + 1 })
    book.firstToken('overtaking', nowMs + 100)
    book.resumed('resumed', 1, { ...REQUEST, nowMs, hasFirstToken: false })
    book.sent('late', 2, { ...REQUEST, nowMs })
    book.late('late')
    book.sent('silent', 3, { ...REQUEST, nowMs, isStream: false })
    for (const slot of [0, 1, 2, 3]) t.equal(backlogAfter(book, nowMs, 5000, slot), 0, `worker ${slot}`)
    book.ended('silent', nowMs + 5000, 50, 0)
    // Behind one that streams, so that its prefill has only begun when that has its first token.
    book.sent('before it', 3, { ...REQUEST, nowMs: nowMs + 5000 })
    book.sent('silent and long', 3, {
      promptTokens: 20_000,
      newTokens: 20_000,
      nowMs: nowMs + 5000,
      isStream: false,
    })
    const queued = backlogAfter(book, nowMs, 5000, 3)
    book.firstToken('before it', nowMs + 10_000)
    t.ok(
      backlogAfter(book, nowMs, 10_000, 3) < queued,
      'one that does not stream, after it has become the head',
    )
  },
)

t.test('what held up the head is over for the next one when its first token has come', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const nowMs = serve(book, 1000, 0, 1000)
  book.sent('a', 0, { ...REQUEST, nowMs })
  book.sent('b', 0, { promptTokens: 20_000, newTokens: 20_000, nowMs })
  const queued = backlogAfter(book, nowMs, 0)
  t.ok(backlogAfter(book, nowMs, 5000) > queued + 1000, 'the first is late')
  book.firstToken('a', nowMs + 5000)
  const next = backlogAfter(book, nowMs, 5000)
  t.ok(next > 0 && next < queued, `${next} of ${queued} ms`)
  t.ok(backlogAfter(book, nowMs, 9000) > 2000, 'until it is overdue itself')
})

t.test('who gives up behind the head does not make it punctual', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const nowMs = serve(book, 1000, 0, 1000)
  book.sent('a', 0, { ...REQUEST, nowMs })
  book.sent('b', 0, { ...REQUEST, nowMs })
  const before = backlogAfter(book, nowMs, 5000)
  book.ended('b', nowMs + 5000)
  const after = backlogAfter(book, nowMs, 5000)
  t.ok(after > 2000 && after < before, `${after} of ${before} ms`)
})

t.test('nor does one of another router that was told later and served first', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const nowMs = serve(book, 1000, 0, 1000)
  book.sent('own', 0, { ...REQUEST, nowMs })
  book.sent('told', 0, { ...REQUEST, isOwn: false, nowMs: nowMs + 20 })
  book.firstToken('told', nowMs + 100)
  t.ok(backlogAfter(book, nowMs, 5000) > 2000)
})

t.test('requests of other routers say nothing of what this one does not explain', async t => {
  const backlogs = [true, false].map(isOwn => {
    const book = new EngineBook({ workerSlotsMax: 1 })
    const nowMs = serve(book, 1000, 0, 1000, 0, isOwn)
    book.sent('a', 0, { ...REQUEST, nowMs })
    return backlogAfter(book, nowMs, 5000)
  })
  t.ok(backlogs[0]! > 500, `own ones: ${backlogs[0]}`)
  t.equal(backlogs[1], 0)
})

t.test('nor does a burst before anything was learned', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  for (let i = 0; i < 400; i++) book.sent(`${i}`, 0, { ...REQUEST, nowMs: 0 })
  let nowMs = 0
  for (let i = 0; i < 400; i++) {
    nowMs += 400
    book.firstToken(`${i}`, nowMs)
  }
  for (let i = 0; i < 400; i++) book.ended(`${i}`, nowMs + 1000, 50, 0)
  book.sent('a', 0, { ...REQUEST, nowMs: nowMs + 2000 })
  t.equal(backlogAfter(book, nowMs + 2000, 5000), 0)
})

t.test('nor do requests that were sent before and have their first tokens after that', async t => {
  const book = new EngineBook({ workerSlotsMax: 2 })
  for (let i = 0; i < 200; i++) book.sent(`early ${i}`, 0, { ...REQUEST, nowMs: 0 })
  let nowMs = serve(book, 100, 0, 0, 1)
  for (let i = 0; i < 200; i++) {
    nowMs += 400
    book.firstToken(`early ${i}`, nowMs)
    book.ended(`early ${i}`, nowMs + 1, 50, 0)
  }
  book.sent('a', 1, { ...REQUEST, nowMs })
  t.equal(backlogAfter(book, nowMs, 5000, 1), 0)
})

t.test('where times vary by a fifth by chance, next to nothing is overdue', async t => {
  const random = seededRandom(SEED)
  const book = new EngineBook({ workerSlotsMax: 1 })
  let nowMs = 0
  for (let i = 0; i < 3000; i++) {
    book.sent(`${i}`, 0, { ...REQUEST, nowMs })
    const normal = Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next())
    nowMs += 200 * Math.exp(0.2 * normal)
    book.firstToken(`${i}`, nowMs)
    nowMs += 500
    book.ended(`${i}`, nowMs, 50, 0)
  }
  book.sent('a', 0, { ...REQUEST, nowMs })
  const overdue = backlogAfter(book, nowMs, 5000)
  t.ok(overdue < 300, `${overdue} of 4,800 ms (seed ${SEED})`)
})

t.test('one first token that is an hour late changes nothing', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  let nowMs = serve(book, 1000, 0, 0)
  book.sent('late by an hour', 0, { ...REQUEST, nowMs })
  nowMs += 3_600_000
  book.firstToken('late by an hour', nowMs)
  book.ended('late by an hour', nowMs, 50, 0)
  book.sent('a', 0, { ...REQUEST, nowMs })
  t.equal(backlogAfter(book, nowMs, 5000), 0)
})

t.test(
  'where as many first tokens are far too early as late, predictions are wrong, and nothing is overdue',
  async t => {
    const backlogs = [1000, 12_000].map(predictedTokens => {
      const book = new EngineBook({ workerSlotsMax: 1 })
      let nowMs = 0
      for (let i = 0; i < 2000; i++) {
        // Of every sixth prompt more is cached than was predicted.
        const newTokens = i % 6 === 0 ? predictedTokens : 1000
        book.sent(`${i}`, 0, { promptTokens: newTokens, newTokens, nowMs })
        nowMs += i % 6 === 3 ? 4 * PREFILL_MS : PREFILL_MS
        book.firstToken(`${i}`, nowMs)
        nowMs += 500
        book.ended(`${i}`, nowMs, 50, 1 - 1000 / newTokens)
      }
      book.sent('a', 0, { ...REQUEST, nowMs })
      return backlogAfter(book, nowMs, 5000)
    })
    t.ok(backlogs[0]! > 500, `none is early: ${backlogs[0]}`)
    t.equal(backlogs[1], 0)
  },
)

t.test('when the others have gone, it is forgotten within 2000 requests', async t => {
  const book = new EngineBook({ workerSlotsMax: 1 })
  const nowMs = serve(book, 2000, serve(book, 1000, 0, 1000), 0)
  book.sent('a', 0, { ...REQUEST, nowMs })
  t.equal(backlogAfter(book, nowMs, 5000), 0)
})

t.test('whatever was told, the backlog is finite, and waiting adds 10 s to it at most', async () => {
  const step = fc.record({
    do: fc.constantFrom('sent', 'sent', 'first', 'ended', 'late', 'forget'),
    id: fc.nat(20),
    slot: fc.nat(1),
    tokens: fc.oneof(fc.nat(100_000), fc.constantFrom(Number.NaN, -1, 1e12)),
    isStream: fc.boolean(),
    afterMs: fc.oneof(fc.nat(3000), fc.constantFrom(-5000, 1e9, Number.NaN)),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), fc.nat(100_000), (steps, waitMs) => {
      const book = new EngineBook({ workerSlotsMax: 2 })
      let nowMs = serve(book, 150, 0, 5000)
      for (const { do: what, id, slot, tokens, isStream, afterMs } of steps) {
        if (!Number.isNaN(afterMs)) nowMs += afterMs
        const sent = { promptTokens: tokens, newTokens: tokens, isStream, nowMs: afterMs + nowMs }
        if (what === 'sent') book.sent(String(id), slot, sent)
        else if (what === 'first') book.firstToken(String(id), nowMs)
        else if (what === 'ended') book.ended(String(id), nowMs, tokens, 0.5)
        else if (what === 'late') book.late(String(id))
        else book.forget(slot)
      }
      const before = backlogs(book, nowMs)
      const after = backlogs(book, nowMs + waitMs)
      for (const [i, backlog] of after.entries()) {
        assert(before[i]! >= 0 && before[i]! < Infinity, `${before[i]} at first`)
        assert(backlog >= 0 && backlog <= before[i]! + OVERDUE_MS_MAX, `${backlog} after ${before[i]}`)
      }
    }),
    { seed: SEED, numRuns: 300 },
  )
})
