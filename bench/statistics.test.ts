import t from 'tap'
import { median, slope } from './statistics.ts'

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
