import t from 'tap'
import { Overload } from '../src/index.ts'

t.test('who is refused may come back when all who were have a place, at the rate that was seen', async t => {
  const overload = new Overload()
  t.equal(overload.refused(0), undefined, 'nothing has been placed yet')
  for (let i = 1; i < 20; i++) overload.refused(0)
  for (let second = 1; second <= 5; second++) overload.placed(1000 * second)
  // One place a second, and 21 that fade with e^(-5/30) want one.
  const seconds = overload.refused(5000)!
  t.ok(seconds >= 17 && seconds <= 21, `${seconds} s`)
  for (let i = 0; i < 10_000; i++) overload.refused(5000)
  t.equal(overload.refused(5000), 60, 'never more')
})

t.test('with places enough for all it is a second, and what is long ago is forgotten', async t => {
  const overload = new Overload()
  overload.refused(0)
  for (let ms = 10; ms <= 1000; ms += 10) overload.placed(ms)
  t.equal(overload.refused(1000), 1)
  for (let i = 0; i < 500; i++) overload.refused(1000)
  t.ok(overload.refused(1000)! > 1)
  for (let ms = 400_000; ms <= 410_000; ms += 100) overload.placed(ms)
  t.equal(overload.refused(411_000), undefined)
  overload.placed(412_000)
  t.equal(overload.refused(412_000), 2)
})
