import { seededRandom } from '@homing/base'
import t from 'tap'
import { median, slope, typicalRatio } from './statistics.ts'

t.test('the median is the middle one, or the mean of the two in the middle', async t => {
  const given = [10, 9, 1]
  t.equal(median(given), 9)
  t.strictSame(given, [10, 9, 1], 'in any order, which stays')
  t.equal(median([1, 100, 2, 4]), 3)
})

t.test('the slope is that of least squares, and 0 where there is no line', async t => {
  t.equal(
    slope([
      [1000, 7],
      [1002, 1],
      [1004, -5],
    ]),
    -3,
  )
  t.equal(
    slope([
      [0, 0],
      [1, 3],
      [2, 0],
      [3, 3],
    ]),
    0.6,
    'of points on no line',
  )
  t.strictSame([slope([]), slope([[1, 1]])], [0, 0])
})

t.test(
  'a typical ratio is the median of what any two of them are, and needs six for an interval',
  async t => {
    t.strictSame(typicalRatio([2]), { ratio: 2, interval: undefined })
    const { ratio } = typicalRatio([1, 4, 4, 4, 1000])
    t.ok(Math.abs(ratio - 4) < 1e-9, 'one that is far off changes nothing')
    t.equal(typicalRatio([1, 2, 4, 8, 16]).interval, undefined)
    const { interval } = typicalRatio([1, 2, 4, 8, 16, 32])
    t.strictSame(interval!.map(Math.round), [1, 32], 'of six, none may be outside')
    const [low, high] = typicalRatio([0.5, 1 / 3, 2, 3, 1, 7]).interval!
    const turned = typicalRatio([2, 3, 0.5, 1 / 3, 1, 1 / 7])
    t.ok(Math.abs(turned.interval![0] - 1 / high) < 1e-9 && Math.abs(turned.interval![1] - 1 / low) < 1e-9)
  },
)

t.test('its interval holds what the signed ranks do not refuse, by counting all signs', async t => {
  const random = seededRandom(5)
  for (const count of [6, 8, 11]) {
    const logarithms = Array.from({ length: count }, () => random.next() - 0.4)
    const [low, high] = typicalRatio(logarithms.map(Math.exp)).interval!.map(Math.log) as [number, number]
    for (const inside of [low + 1e-9, (low + high) / 2, high - 1e-9])
      t.ok(probability(logarithms, inside) > 0.05, `${count} of them do not refuse ${inside}`)
    for (const outside of [low - 1e-9, high + 1e-9])
      t.ok(probability(logarithms, outside) <= 0.05, `${count} of them refuse ${outside}`)
  }
})

t.test('the true ratio is within the interval in about 95 of 100 cases, also of many pairs', async t => {
  const random = seededRandom(7)
  const noise = () => Array.from({ length: 6 }, () => random.next() - 0.5).reduce((sum, one) => sum + one, 0)
  for (const [pairs, cases] of [
    [12, 600],
    [24, 400],
    [64, 200],
  ] as const) {
    let within = 0
    for (let i = 0; i < cases; i++) {
      const { interval } = typicalRatio(Array.from({ length: pairs }, () => 1.03 * Math.exp(0.05 * noise())))
      if (interval![0] <= 1.03 && interval![1] >= 1.03) within++
    }
    t.ok(within / cases > 0.92 && within / cases < 0.985, `${within} of ${cases} with ${pairs} pairs`)
  }
})

/** Two-sided, of Wilcoxon's test that the middle is `middle`: all signs of the ranks are as likely. */
function probability(values: readonly number[], middle: number): number {
  const ranked = values.map(value => value - middle).sort((a, b) => Math.abs(a) - Math.abs(b))
  const sumOf = (isCounted: (rank: number) => boolean): number =>
    ranked.reduce((sum, _, i) => sum + (isCounted(i) ? i + 1 : 0), 0)
  const all = sumOf(() => true)
  const found = sumOf(i => ranked[i]! > 0)
  const extreme = Math.min(found, all - found)
  let count = 0
  for (let signs = 0; signs < 2 ** values.length; signs++) {
    const sum = sumOf(i => ((signs >> i) & 1) === 1)
    if (Math.min(sum, all - sum) <= extreme) count++
  }
  return count / 2 ** values.length
}
