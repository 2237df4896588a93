/** How many requests come to a worker, as the engine book counts them. */

import t from 'tap'
import { EngineBook } from '../src/index.ts'

t.test('the rate of some slots is what comes to one of them, and fades when nothing comes', async t => {
  const book = new EngineBook({ workerSlotsMax: 4 })
  const answerMs = 2000
  t.equal(book.project([0, 1], 0).sentPerMs, 1 / answerMs, 'as is assumed before anything was seen')
  let nowMs = 0
  for (let i = 0; i < 3000; i++) {
    nowMs += 100
    book.sent(`${i}`, i % 2, { promptTokens: 2048, newTokens: 1000, nowMs })
    book.firstToken(`${i}`, nowMs + 50)
    book.ended(`${i}`, nowMs + 50)
  }
  const near = (value: number, expected: number): void => {
    t.ok(Math.abs(value / expected - 1) < 0.05, `${value}, and ${expected}`)
  }
  near(book.project([0, 1], nowMs).sentPerMs, 1 / 200)
  near(book.project([1], nowMs).sentPerMs, 1 / 200)
  near(book.project([0, 1, 2, 3], nowMs).sentPerMs, 1 / 400)
  t.ok(book.project([0, 1], nowMs + 600_000).sentPerMs < 1 / 20_000)
})

t.test('requests that were sent before teach no rate, and a slot begins anew with its worker', async t => {
  const request = { promptTokens: 2048, newTokens: 1000 }
  const rates = (slots: readonly number[], nowMs: number, book: EngineBook) =>
    book.project(slots, nowMs).sentPerMs
  const fresh = new EngineBook({ workerSlotsMax: 2 })
  const prior = rates([0], 0, fresh)
  for (let i = 0; i < 100; i++) fresh.resumed(`${i}`, 0, { ...request, hasFirstToken: true, nowMs: 0 })
  t.equal(rates([0], 0, fresh), prior, 'a snapshot of another router')
  const book = new EngineBook({ workerSlotsMax: 2 })
  let nowMs = 0
  for (let i = 0; i < 3000; i++) {
    nowMs += 100
    book.sent(`${i}`, 0, { ...request, nowMs })
    book.firstToken(`${i}`, nowMs + 50)
    book.ended(`${i}`, nowMs + 50)
  }
  t.ok(rates([1], nowMs, book) < prior / 10, 'nothing came there for minutes')
  book.forget(0)
  book.forget(1)
  t.equal(rates([1], nowMs, book), rates([0], nowMs, book), 'two new workers')
  t.ok(rates([0], nowMs, book) > prior / 2, 'as is assumed before anything was seen')
})
