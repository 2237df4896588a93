import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { WorkerFilter } from '../src/index.ts'

const near = { instanceId: 1, taints: ['near', 'fast'] }
const far = { instanceId: 2, taints: ['far'] }

t.test('without constraints every worker is allowed, and none is preferred', async t => {
  const filter = new WorkerFilter(undefined)
  t.equal(filter.reasonAgainst(near), undefined)
  t.equal(filter.preference(near), 1)
  t.equal(filter.prefers, false)
})

t.test('what stands against a worker is said', async t => {
  const filter = new WorkerFilter({
    allowedInstanceIds: [1, 2],
    requiredTaints: ['near'],
    preferredTaints: {},
  })
  t.equal(filter.reasonAgainst(near), undefined)
  t.equal(filter.reasonAgainst(far), 'does not have the required taint near')
  t.equal(filter.reasonAgainst({ instanceId: 3, taints: ['near'] }), 'not in allowed_worker_ids')
})

t.test(
  'a preference is between 1/e and e, falls with the weight, and opposite weights cancel out',
  async t => {
    const weights = fc.dictionary(
      fc.constantFrom('near', 'fast', 'far'),
      fc.double({ min: -1000, max: 1000, noNaN: true }),
    )
    const holds = fc.property(weights, preferredTaints => {
      const filter = new WorkerFilter({ allowedInstanceIds: undefined, requiredTaints: [], preferredTaints })
      const preference = filter.preference(near)
      const sum = (preferredTaints['near'] ?? 0) + (preferredTaints['fast'] ?? 0)
      assert.ok(preference >= Math.exp(-1) && preference <= Math.E)
      if (sum > 0) assert.ok(preference <= 1)
      if (sum < 0) assert.ok(preference >= 1)
      if (sum === 0) assert.equal(preference, 1)
    })
    t.doesNotThrow(() => fc.assert(holds, { seed: 13 }), 'seed 13')
  },
)
