import { seededRandom } from '@homing/base'
import t from 'tap'
import {
  coefficientOfVariation,
  ImbalanceOverTime,
  InfiniteCache,
  LatencyHistogram,
  maxOverMean,
  RequestMetrics,
} from '../src/cell-metrics.ts'

t.test('percentiles are those of the sorted values within 0.1 %, and means are exact', async t => {
  const random = seededRandom(3)
  const histogram = new LatencyHistogram()
  const values = Array.from({ length: 10_001 }, () => 0.01 * 10 ** (random.next() * 7))
  for (const value of values) histogram.add(value)
  values.sort((a, b) => a - b)
  for (const share of [0.001, 0.5, 0.9, 0.99, 1]) {
    const exact = values[Math.ceil(share * values.length) - 1]!
    t.ok(Math.abs(histogram.percentileMs(share) / exact - 1) < 1e-3, `${share}: ${exact}`)
  }
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  t.ok(Math.abs(histogram.meanMs / mean - 1) < 1e-9)
})

t.test(
  'values at and beyond the bounds of a histogram are counted; without any, all figures are 0',
  async t => {
    const histogram = new LatencyHistogram()
    t.strictSame(histogram.figures(), { mean: 0, p50: 0, p90: 0, p99: 0 })
    histogram.add(0, 98)
    histogram.add(1e15)
    histogram.add(5)
    t.equal(histogram.count, 100)
    t.ok(histogram.percentileMs(0.98) <= 0.001)
    t.ok(Math.abs(histogram.percentileMs(0.99) - 5) < 0.01)
  },
)

t.test(
  'a request is in a tier if it meets both limits; one token has no gap; a failed request is in none',
  async t => {
    const metrics = new RequestMetrics()
    metrics.completed(2000, 2000 + 50 * 9, 10, 100, 40)
    metrics.completed(2001, 2001, 1, 100, 0)
    metrics.completed(100, 100 + 201, 2, 100, 0)
    metrics.failed()
    const figures = metrics.figures()
    t.equal(figures.requests, 4)
    t.strictSame(figures.goodput, { interactive: 0.25, standard: 0.5, longContext: 0.5 })
    t.equal(figures.hitRate, 40 / 300)
    t.equal(figures.itlMs.mean, (50 + 201) / 2)
  },
)

t.test('imbalance over time is the weighted mean of largest ÷ mean', async t => {
  const random = seededRandom(11)
  const imbalance = new ImbalanceOverTime(5)
  const values = [0, 0, 0, 0, 0]
  let weighted = 0
  let weight = 0
  let nowMs = 0
  for (let i = 0; i < 2000; i++) {
    const elapsedMs = random.below(4)
    const total = values.reduce((sum, value) => sum + value, 0)
    if (total > 0) {
      weighted += (elapsedMs * Math.max(...values) * 5) / total
      weight += elapsedMs
    }
    nowMs += elapsedMs
    const worker = random.below(5)
    const amount = random.next() < 0.5 ? 1 + random.below(9) : -random.below(values[worker]! + 1)
    values[worker]! += amount
    imbalance.add(worker, amount, nowMs)
  }
  t.ok(Math.abs(imbalance.mean - weighted / weight) < 1e-9)
  t.equal(new ImbalanceOverTime(2).mean, 0)
})

t.test('variation and maximum are relative to the mean, and 0 where there is nothing', async t => {
  t.equal(coefficientOfVariation([1, 3]), 0.5)
  t.equal(maxOverMean([1, 3]), 1.5)
  t.strictSame([coefficientOfVariation([0, 0]), maxOverMean([0, 0])], [0, 0])
})

t.test('a cache without bound remembers prefixes, until ids are too scattered to be remembered', async t => {
  const cache = new InfiniteCache()
  cache.add([0, 1], 2, 25, 10)
  cache.add([0, 1, 2], 3, 30, 10)
  cache.add([0, 1, 2], 3, 30, 10)
  t.equal(cache.hitRate, (0 + 20 + 29) / 85, 'a whole prompt is reused but for its last token')
  for (let i = 0; i < 20_000; i++) cache.add([i * 2 ** 33], 1, 10, 10)
  t.equal(cache.hitRate, undefined)
})
