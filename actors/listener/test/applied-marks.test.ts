/**
 * What a consumer brought is acknowledged behind the index, one fence at a time, and not while it is held
 * back.
 */

import t from 'tap'
import { AppliedMarks } from '../src/applied-marks.ts'

function world() {
  const done: number[] = []
  const fences: { passed(): void; lost(): void }[] = []
  const state = { holdsBack: false }
  const marks = new AppliedMarks({
    holdsBack: () => state.holdsBack,
    fence: (passed, lost) => fences.push({ passed, lost }),
    done: number => done.push(number),
  })
  return { done, fences, marks, state }
}

t.test('a fence stands for all that was handled before it', async t => {
  const { done, fences, marks } = world()
  for (const number of [1, 2]) marks.handled(number)
  t.equal(fences.length, 1)
  fences[0]!.passed()
  t.strictSame(done, [1])
  t.equal(fences.length, 2)
  fences[1]!.passed()
  t.strictSame(done, [1, 2])
  t.equal(fences.length, 2)
})

t.test('what is held back is acknowledged when it is not any more', async t => {
  const { done, fences, marks, state } = world()
  state.holdsBack = true
  marks.handled(1)
  marks.handled(2)
  t.equal(fences.length, 0)
  state.holdsBack = false
  marks.look()
  fences[0]!.passed()
  t.strictSame(done, [2])
})

t.test('a fence that is lost acknowledges nothing; the next one does', async t => {
  const { done, fences, marks } = world()
  marks.handled(7)
  fences[0]!.lost()
  t.strictSame(done, [])
  marks.look()
  fences[1]!.passed()
  t.strictSame(done, [7])
})

t.test('messages without a number are none of its concern', async t => {
  const { fences, marks } = world()
  marks.handled(0)
  t.equal(fences.length, 0)
})
