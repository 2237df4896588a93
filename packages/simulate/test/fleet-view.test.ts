import { seededRandom } from '@homing/base'
import t from 'tap'
import { EmptyView, EventView, type FleetView, GuessView } from '../src/fleet-view.ts'

const PROMPT = [1, 2, 3]

function overlaps(view: FleetView, nowMs: number, prompt = PROMPT, workers = 2): number[] {
  const into = new Int32Array(workers)
  view.overlaps(prompt, prompt.length, into, nowMs)
  return [...into]
}

t.test('events are known when their delay has passed, in their order', async t => {
  const view = new EventView(2, 20, 0, seededRandom(1))
  view.beginBatch(100)
  for (const id of PROMPT) view.stored(1, id)
  view.beginBatch(110)
  view.evicted(1, 3)
  t.strictSame(overlaps(view, 119.9), [0, 0])
  t.strictSame(overlaps(view, 120), [0, 3])
  t.strictSame(overlaps(view, 130), [0, 2])
})

t.test('many events may be on their way', async t => {
  const view = new EventView(2, 1000, 0, seededRandom(1))
  for (let id = 0; id < 5000; id++) {
    view.beginBatch(id)
    view.stored(0, id)
  }
  t.strictSame(overlaps(view, 999, [0]), [0, 0])
  t.strictSame(overlaps(view, 3500, [2500]), [1, 0])
  t.strictSame(overlaps(view, 3500, [2501]), [0, 0])
  t.strictSame(overlaps(view, 9999, [4999]), [1, 0])
})

t.test('a batch is lost as a whole, and about the given share of them', async t => {
  const view = new EventView(1, 0, 0.25, seededRandom(7))
  let lost = 0
  for (let batch = 0; batch < 4000; batch++) {
    view.beginBatch(batch)
    view.stored(0, 2 * batch)
    view.stored(0, 2 * batch + 1)
    const [first] = overlaps(view, batch, [2 * batch], 1)
    const [second] = overlaps(view, batch, [2 * batch + 1], 1)
    t.equal(first === second, true)
    if (first === 0) lost++
  }
  t.ok(Math.abs(lost / 4000 - 0.25) < 0.03, `${lost} of 4,000 with seed 7`)
})

t.test('what is known of a dead worker is forgotten, and what is on its way is not believed', async t => {
  const view = new EventView(2, 10, 0, seededRandom(1))
  view.beginBatch(0)
  view.stored(0, 1)
  view.stored(1, 1)
  t.strictSame(overlaps(view, 10, [1]), [1, 1])
  view.beginBatch(15)
  view.stored(0, 2)
  view.clear(0)
  t.strictSame(overlaps(view, 30, [1, 2]), [0, 1])
  t.strictSame(overlaps(view, 30, [2]), [0, 0])
})

t.test('a guess holds for its time from when it was sent last', async t => {
  const view = new GuessView(2, 1000, 100)
  view.sent(PROMPT, 3, 0, 0)
  t.strictSame(overlaps(view, 999), [3, 0])
  view.sent([1, 2], 2, 0, 500)
  t.strictSame(overlaps(view, 1000), [2, 0], 'the third block was not sent again')
  t.strictSame(overlaps(view, 1500), [0, 0])
})

t.test('guesses are no more than an engine holds: those sent longest ago go first, tail first', async t => {
  const view = new GuessView(1, 1e9, 4)
  view.sent(PROMPT, 3, 0, 0)
  view.sent([7, 8], 2, 0, 1)
  t.strictSame(overlaps(view, 2, PROMPT, 1), [2])
  view.sent([7, 9, 10], 3, 0, 2)
  t.strictSame(overlaps(view, 3, PROMPT, 1), [0])
  t.strictSame(overlaps(view, 3, [7, 8], 1), [2])
  view.clear(0)
  t.strictSame(overlaps(view, 3, [7], 1), [0])
})

t.test('without knowledge nothing is held', async t => {
  const view = new EmptyView()
  t.strictSame(overlaps(view, 0), [0, 0])
})
