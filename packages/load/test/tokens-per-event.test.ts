/** Tokens that engines say, against the events of streams that the router saw. */

import t from 'tap'
import { EngineBook } from '../src/index.ts'
import { TokensPerEvent } from '../src/tokens-per-event.ts'

const WORKERS = 4

t.test(
  'tokens that are out of line with the events of their streams count as those of the others',
  async t => {
    const perEvent = new TokensPerEvent()
    const believed = (tokens: number): number => {
      let last = 0
      for (let i = 0; i < 20; i++) {
        // Two tokens in an event, as an engine sends that guesses one ahead.
        for (const slot of [1, 2, 3]) perEvent.believed(slot, 200, 100)
        last = perEvent.believed(0, tokens, 100)
      }
      perEvent.forget(0)
      return last
    }
    t.equal(believed(200), 200)
    t.equal(believed(110), 110, 'one in an event')
    t.equal(believed(390), 390, 'four in an event')
    t.equal(believed(2000), 200)
    t.equal(believed(5), 200)
    t.equal(perEvent.believed(0, 7000, 0), 7000, 'an answer that does not stream')
    const two = new TokensPerEvent()
    for (let i = 0; i < 20; i++) two.believed(1, 100, 100)
    for (let i = 0; i < 20; i++) t.equal(two.believed(0, 9000, 100), 9000, 'two workers')
  },
)

t.test('the book believes tokens by the events of the stream', async t => {
  const book = new EngineBook({ workerSlotsMax: WORKERS })
  const last: unknown[] = []
  for (let i = 0; i < 80; i++) {
    const slot = i % WORKERS
    book.sent(`${i}`, slot, { promptTokens: 100, newTokens: 100, nowMs: 1000 * i })
    book.firstToken(`${i}`, 1000 * i + 10)
    const outputTokens = slot === 3 ? 900 : 50
    const said = { outputTokens, cachedShare: 0, streamEvents: 51 }
    last[slot] = book.believed(`${i}`, said, 1000 * i + 900).outputTokens
    book.ended(`${i}`, 1000 * i + 900, 50, 0)
  }
  t.strictSame(last, [50, 50, 50, 50])
})
