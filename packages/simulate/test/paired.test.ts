import t from 'tap'
import { isSure, pairedDifference, seedMean, tQuantile } from '../src/index.ts'

t.test('a mean has half of its 95 % interval by Student’s t', async t => {
  // Five values with mean 3 and variance 2.5: 2.776 · √(2.5 / 5).
  const { mean, halfWidth, seeds } = seedMean([1, 2, 3, 4, 5])
  t.equal(mean, 3)
  t.equal(seeds, 5)
  t.ok(Math.abs(halfWidth! - 1.963) < 0.001, String(halfWidth))
})

t.test('one value has no interval, and no value has no mean', async t => {
  t.strictSame(seedMean([4]), { mean: 4, halfWidth: undefined, seeds: 1 })
  t.match(seedMean([]), { mean: Number.NaN, halfWidth: undefined, seeds: 0 })
  t.equal(seedMean([1, Number.NaN, 3]).mean, 2)
})

t.test('quantiles past the table follow the distribution', async t => {
  for (const [degrees, quantile] of [
    [1, 12.706],
    [4, 2.776],
    [30, 2.042],
    [40, 2.021],
    [60, 2.0],
    [120, 1.98],
    [1000, 1.962],
  ] as const) {
    t.ok(Math.abs(tQuantile(degrees) - quantile) < 0.002, `${degrees}: ${tQuantile(degrees)}`)
  }
})

t.test('a difference is taken seed by seed, so what a seed does to both cancels out', async t => {
  const seeds = [1, 2, 3, 4, 5]
  const theirs = new Map(seeds.map(seed => [seed, seed * 100]))
  const ours = new Map(seeds.map(seed => [seed, seed * 100 - 3 - seed / 10]))
  const difference = pairedDifference(ours, theirs)
  t.ok(Math.abs(difference.mean + 3.3) < 1e-9)
  t.ok(isSure(difference), 'although the means lie within each other’s intervals')
  t.ok(seedMean([...ours.values()]).halfWidth! > 100)
  ours.set(9, 1)
  t.equal(pairedDifference(ours, theirs).seeds, 5, 'a seed that only one has does not count')
  t.notOk(isSure(seedMean([-1, 1])))
  t.notOk(isSure(seedMean([5])), 'one seed says nothing about chance')
})

t.test('quantiles of other confidences are those of the published tables', async t => {
  for (const [degrees, confidence, quantile] of [
    [1, 0.99, 63.657],
    [2, 0.99, 9.925],
    [9, 0.99, 3.25],
    [9, 0.999, 4.781],
    [10, 0.9, 1.812],
    [30, 0.998, 3.385],
    [120, 0.99, 2.617],
  ] as const) {
    const found = tQuantile(degrees, confidence)
    t.ok(Math.abs(found - quantile) < 0.001, `${degrees}, ${confidence}: ${found}`)
  }
})
