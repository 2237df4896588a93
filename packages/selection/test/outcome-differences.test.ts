/** Differences of outcomes against their textbook definitions, and the rule that makes one verdict of all. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { FadingMean } from '../src/fading-mean.ts'
import {
  type Difference,
  errorDifference,
  NO_DIFFERENCES,
  timeDifference,
  worseBy,
} from '../src/outcome-differences.ts'

/** More than the values of a test: all have equal weight. */
const REACH = 1000

function meanOf(values: readonly number[]): FadingMean {
  const mean = new FadingMean(REACH)
  for (const value of values) mean.add(value)
  return mean
}

const average = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

function varianceOf(values: readonly number[]): number {
  const mean = average(values)
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1)
}

const close = (one: number, other: number): boolean => Math.abs(one - other) <= 1e-6 * (1 + Math.abs(other))

t.test("times differ by Welch's z", async t => {
  const times = fc.array(fc.double({ min: 0.1, max: 10, noNaN: true }), { minLength: 2, maxLength: 60 })
  const agree = fc.property(times, times, (one, other) => {
    const error = Math.sqrt(varianceOf(one) / one.length + varianceOf(other) / other.length)
    fc.pre(error > 1e-3)
    const { fewer, z, excess } = timeDifference(meanOf(one), meanOf(other))
    assert.equal(fewer, Math.min(one.length, other.length))
    assert.ok(close(z, (average(one) - average(other)) / error))
    assert.ok(close(excess, average(one) / average(other) - 1))
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('shares of errors differ by the z of two proportions', async t => {
  const ends = fc.array(fc.constantFrom(0, 0, 0, 1), { minLength: 2, maxLength: 60 })
  const agree = fc.property(ends, ends, (one, other) => {
    const share = average([...one, ...other])
    const error = Math.sqrt(share * (1 - share) * (1 / one.length + 1 / other.length))
    const { z, excess } = errorDifference(meanOf(one), meanOf(other))
    assert.ok(close(excess, average(one) - average(other)))
    if (error > 0) assert.ok(close(z, (average(one) - average(other)) / error))
    else assert.equal(z, 0)
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('a difference of one group is the opposite of that of the other', async t => {
  const ends = fc.array(fc.constantFrom(0, 1), { minLength: 2, maxLength: 60 })
  const agree = fc.property(ends, ends, (one, other) => {
    const [there, back] = [
      errorDifference(meanOf(one), meanOf(other)),
      errorDifference(meanOf(other), meanOf(one)),
    ]
    assert.ok(close(there.z, -back.z) && close(there.excess, -back.excess))
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('without values, and with too few, nothing differs', async t => {
  t.match(timeDifference(meanOf([]), meanOf([])), { z: 0, excess: 0 })
  t.match(errorDifference(meanOf([1, 1, 1]), meanOf([])), { fewer: 0, z: 0 })
  const few: Difference = { fewer: 9, z: 9, excess: 1 }
  t.equal(worseBy({ errors: few, ttft: few, duration: few }, 2), 0)
})

t.test('errors go before times, and times make up for each other', async t => {
  const by = (excess: number, z = 9 * Math.sign(excess)): Difference => ({ fewer: 20, z, excess })
  const none = NO_DIFFERENCES
  for (const [name, differences, expected] of [
    ['nothing', none, 0],
    ['late first tokens', { ...none, ttft: by(0.5) }, 0.5],
    ['long answers with equal first tokens', { ...none, duration: by(0.3) }, 0.3],
    ['long answers with much sooner first tokens', { ...none, ttft: by(-0.5), duration: by(0.1) }, -0.4],
    ['failures that come soon', { errors: by(0.2), ttft: by(-0.9), duration: by(-0.9) }, 2],
    ['fewer failures, later tokens', { errors: by(-0.2), ttft: by(0.9), duration: by(0.9) }, -2],
    ['a failure less by chance does not excuse', { ...none, errors: by(-0.1, -1), ttft: by(0.5) }, 0.5],
    ['what may be chance', { errors: by(0.1, 2.9), ttft: by(0.5, 1.9), duration: by(0.5, 2.9) }, 0],
  ] as const)
    t.ok(Math.abs(worseBy(differences, 2) - expected) < 1e-9, name)
  t.equal(worseBy({ ...none, errors: by(-0.1, -1) }, 0.5), 0, 'fewer failures count beyond chance only')
  t.equal(worseBy({ ...none, errors: by(0.1, 1) }, 0.5), 1)
})
