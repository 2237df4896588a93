/**
 * Of messages that are passed on and passed over, the broker is told of the last one before which none is
 * open.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { Untaken } from '../src/nats/untaken.ts'

type Step = { readonly kind: 'on' | 'over' } | { readonly kind: 'done'; readonly share: number }

const steps = fc.array(
  fc.oneof(
    fc.constant({ kind: 'on' } as const),
    fc.constant({ kind: 'over' } as const),
    fc.record({ kind: fc.constant('done' as const), share: fc.double({ min: 0, max: 1, noNaN: true }) }),
  ) as fc.Arbitrary<Step>,
  { maxLength: 300 },
)

t.test('nothing is told before it is dealt with, and all that is, at once', async t => {
  const agree = fc.property(steps, history => {
    const untaken = new Untaken()
    /** Of all messages in order: whether it is open. */
    const open: boolean[] = []
    const numbers: { readonly number: number; readonly at: number }[] = []
    let told = -1
    for (const step of history) {
      const at = open.length
      const taken = (): void => {
        told = at
      }
      if (step.kind === 'on') {
        open.push(true)
        numbers.push({ number: untaken.passOn(taken), at })
      } else if (step.kind === 'over') {
        open.push(false)
        untaken.passOver(taken)
      } else if (step.kind === 'done' && numbers.length > 0) {
        const done = numbers[Math.floor(step.share * (numbers.length - 1))]!
        untaken.done(done.number)
        for (let i = 0; i <= done.at; i++) open[i] = false
      }
      const firstOpen = open.indexOf(true)
      assert.equal(told, (firstOpen < 0 ? open.length : firstOpen) - 1)
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('a number that is not open means nothing, nor does one of before', async t => {
  const untaken = new Untaken()
  let told = 0
  const number = untaken.passOn(() => told++)
  untaken.done(0)
  untaken.done(number + 1)
  t.equal(told, 0)
  untaken.forget()
  untaken.done(number)
  t.equal(told, 0)
  t.equal(untaken.size, 0)
})
