import { seededRandom } from '@homing/base'
import t from 'tap'
import { dueTimes, isHeld, nearestRank, RateSearch, Tally, type WindowFigures } from './open-loop.ts'

t.test('requests are due in order, within the time, at about the rate, and again the same', async t => {
  const times = dueTimes(200, 60_000, seededRandom(1))
  t.ok(times.length > 11_500 && times.length < 12_500, `${times.length} of about 12,000`)
  t.ok(times.every((at, i) => at >= 0 && at < 60_000 && (i === 0 || at > times[i - 1]!)))
  t.strictSame(dueTimes(200, 60_000, seededRandom(1)), times)
  // Exponential gaps: as spread as they are long.
  const gaps = times.slice(1).map((at, i) => at - times[i]!)
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length
  const deviation = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length)
  t.ok(Math.abs(deviation / mean - 1) < 0.05, `${deviation} of ${mean}`)
  t.strictSame([...dueTimes(1, 0, seededRandom(1))], [])
})

t.test('a percentile is the value that this share of the others is not above', async t => {
  const hundred = Float64Array.from({ length: 100 }, (_, i) => i + 1)
  t.strictSame(
    [0, 1, 50, 99, 100].map(q => nearestRank(hundred, q)),
    [1, 1, 50, 99, 100],
  )
  t.equal(nearestRank(Float64Array.of(7), 99), 7)
  t.equal(nearestRank(new Float64Array(0), 50), 0)
})

t.test('latency counts from when a request was due, not from when it was sent', async t => {
  const tally = new Tally(50)
  for (let i = 0; i < 3; i++) tally.due()
  tally.answered({ dueMs: 0, sentMs: 40, endedMs: 45 })
  tally.answered({ dueMs: 10, sentMs: 40, endedMs: 60 })
  tally.answered({ dueMs: 20, sentMs: 40, endedMs: 71 })
  t.match(tally.figures(), { due: 3, answered: 3, failed: 0, dropped: 0, late: 1, p50Ms: 50, p99Ms: 51 })
  t.equal(tally.figures().lagP99Ms, 40)
})

t.test('what failed and what was not sent is counted apart, with the first reason', async t => {
  const tally = new Tally(50)
  for (let i = 0; i < 4; i++) tally.due()
  tally.failed('503 busy')
  tally.failed('500 broken')
  tally.dropped()
  tally.answered({ dueMs: 0, sentMs: 0, endedMs: 1, firstMs: 0.5, gapsMs: [20, 30] })
  const { due, answered, failed, dropped, failure, firstP50Ms, gapP99Ms } = tally.figures()
  t.strictSame([due, answered, failed, dropped, failure], [4, 1, 2, 1, '503 busy'])
  t.strictSame([firstP50Ms, gapP99Ms], [0.5, 30])
})

t.test('a rate is held where all that was due is answered in time', async t => {
  const figures: WindowFigures = {
    ...{ due: 10, answered: 10, failed: 0, dropped: 0, late: 0, failure: undefined },
    ...{ p50Ms: 1, p99Ms: 49, lagP99Ms: 0, firstP50Ms: 0, gapP99Ms: 0 },
  }
  t.ok(isHeld(figures, 50))
  t.notOk(isHeld({ ...figures, p99Ms: 50 }, 50))
  t.notOk(isHeld({ ...figures, failed: 1 }, 50))
  t.notOk(isHeld({ ...figures, dropped: 1 }, 50))
  t.notOk(isHeld({ ...figures, answered: 9 }, 50))
  t.notOk(isHeld({ ...figures, due: 0, answered: 0 }, 50))
})

t.test('the search finds the highest rate that is held, from above and from below', async t => {
  const search = (holds: number, start: number, max = 10_000) => {
    const found = new RateSearch(start, max)
    const tried: number[] = []
    for (let rate = found.next; rate !== undefined; rate = found.next) {
      tried.push(rate)
      found.tried(rate <= holds)
    }
    return { held: found.held, tried }
  }
  t.strictSame(search(250, 100), { held: 225, tried: [100, 150, 225, 337.5, 281.25, 253.125] })
  t.strictSame(search(60, 200), { held: 50, tried: [200, 100, 50, 75, 62.5] })
  t.strictSame(search(1e9, 100, 300), { held: 225, tried: [100, 150, 225] })
  const none = search(0, 100)
  t.equal(none.held, 0)
  t.ok(none.tried.length < 10, 'it ends')
})
