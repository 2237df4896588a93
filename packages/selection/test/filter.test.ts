import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type Constraints, filterEligible } from '../src/index.ts'

function filter(slots: readonly number[], constraints: Constraints) {
  const target = new Int32Array(slots.length)
  const { eligibility, count } = filterEligible(slots, slots.length, constraints, target)
  return [eligibility, ...target.subarray(0, count)]
}

const busy = (...slots: number[]) => ({ isOverloaded: (slot: number) => slots.includes(slot) })

t.test('without constraints every slot is eligible, in order', async t => {
  t.strictSame(filter([4, 2, 9], {}), ['eligible', 4, 2, 9])
})

t.test('no slot at all is no_worker', async t => {
  t.strictSame(filter([], {}), ['no_worker'])
  t.strictSame(filter([1, 2], { isExcluded: () => true }), ['no_worker'])
  t.strictSame(filter([1, 2], { allowed: new Set([3]) }), ['no_worker'])
})

t.test('overloaded slots are left out, and all of them overloaded is its own answer', async t => {
  t.strictSame(filter([1, 2, 3], busy(1, 3)), ['eligible', 2])
  t.strictSame(filter([1, 2], busy(1, 2)), ['all_overloaded'])
})

t.test('a pin keeps to its slots, even when they are busy', async t => {
  t.strictSame(filter([1, 2, 3], { pinned: new Set([2, 3]) }), ['eligible', 2, 3])
  t.strictSame(filter([1, 2, 3], { pinned: new Set([2]), ...busy(2) }), ['pin_overloaded'])
  t.strictSame(filter([1, 2, 3], { pinned: new Set([7]) }), ['no_worker'])
})

t.test('a pin outside the allowed set is refused', async t => {
  t.strictSame(filter([1, 2], { pinned: new Set([1]), allowed: new Set([2]) }), ['pin_not_allowed'])
  t.strictSame(filter([1, 2], { pinned: new Set([1, 2]), allowed: new Set([2]) }), ['eligible', 2])
})

t.test('what is eligible satisfies every constraint, and nothing else is missing', async t => {
  const set = fc.option(
    fc.uniqueArray(fc.nat(9)).map(a => new Set(a)),
    { nil: undefined },
  )
  const holds = fc.property(
    fc.uniqueArray(fc.nat(9)),
    set,
    set,
    fc.array(fc.nat(9)),
    fc.array(fc.nat(9)),
    (slots, pinned, allowed, excluded, over) => {
      const passes = (s: number) =>
        (pinned?.has(s) ?? true) && (allowed?.has(s) ?? true) && !excluded.includes(s) && !over.includes(s)
      const constraints = {
        pinned,
        allowed,
        isExcluded: (s: number) => excluded.includes(s),
        ...busy(...over),
      }
      const [eligibility, ...eligible] = filter(slots, constraints)
      assert.deepEqual(eligible, slots.filter(passes))
      assert.equal(eligibility === 'eligible', eligible.length > 0)
    },
  )
  t.doesNotThrow(() => fc.assert(holds))
})
