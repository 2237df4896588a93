/** What is kept of a projection. */

import t from 'tap'
import { copyProjection, EngineBook, figuresOf, filterProjection } from '../src/index.ts'

/** Three workers that have nothing in common, the last of a quarter of the speed. */
function served(): { readonly book: EngineBook; readonly nowMs: number } {
  const book = new EngineBook({ workerSlotsMax: 3 })
  let nowMs = 0
  for (let i = 0; i < 120; i++) {
    const slot = i % 3
    const times = slot === 2 ? 4 : 1
    const promptTokens = 500 + 100 * (i % 7)
    book.sent(`${i}`, slot, { promptTokens, newTokens: promptTokens, nowMs })
    nowMs += times * (5 + promptTokens / 20)
    book.firstToken(`${i}`, nowMs)
    nowMs += times * 10 * 49
    book.ended(`${i}`, nowMs, 50, 0)
  }
  for (let i = 0; i < 6; i++)
    book.sent(`open ${i}`, i % 3, { promptTokens: 100 * (i + 1), newTokens: 90 * (i + 1), nowMs })
  for (const i of [0, 2]) book.firstToken(`open ${i}`, nowMs + 5)
  return { book, nowMs: nowMs + 10 }
}

t.test('the slots that are kept have their own figures, and their own spread of speeds', async t => {
  const { book, nowMs } = served()
  const all = copyProjection(book.project([2, 0, 1], nowMs))
  t.equal(all.count, 3)
  t.ok(all.speedSpread > 0.6 && all.speedSpread < 0.8, `spread ${all.speedSpread}`)
  const of = [0, 1, 2].map(i => figuresOf(all, i))
  t.notSame(of[1], of[2])
  const kept = filterProjection(all, [false, true, true])
  t.equal(kept.count, 2)
  t.strictSame([figuresOf(kept, 0), figuresOf(kept, 1)], [of[1], of[2]])
  t.equal(kept.speedSpread, 0, 'those two are alike')
  const others = filterProjection(all, [true, false, true])
  t.strictSame([figuresOf(others, 0), figuresOf(others, 1)], [of[0], of[2]])
  t.ok(Math.abs(others.speedSpread - 0.6) < 0.1, `one of two: ${others.speedSpread}`)
})

t.test('a copy keeps what it says when the book is asked again, with more slots or fewer', async t => {
  const { book, nowMs } = served()
  const copy = copyProjection(book.project([1], nowMs))
  const before = figuresOf(copy, 0)
  book.project(
    Int32Array.from({ length: 40 }, (_, i) => i % 3),
    nowMs + 1000,
  )
  const one = book.project([0], nowMs + 1000)
  t.equal(one.count, 1)
  t.strictSame(figuresOf(copy, 0), before)
  t.same(figuresOf(copyProjection(book.project([1], nowMs + 1000)), 0), {
    ...before,
    ...moved(book, nowMs + 1000),
  })
})

/** What time alone changes. */
function moved(book: EngineBook, nowMs: number): { readonly backlogMs: number } {
  return { backlogMs: figuresOf(book.project([1], nowMs), 0).backlogMs }
}
