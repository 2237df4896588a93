import assert from 'node:assert/strict'
import type { Trust } from '@homing/index'
import fc from 'fast-check'
import t from 'tap'
import { CREDIT_PRIORS, creditFactor } from '../src/index.ts'

t.test('before anything is measured, the trust decides', async t => {
  t.equal(creditFactor('exact', 1, 0), 1)
  t.equal(creditFactor('partial', 1, 0), 0.9)
  t.equal(creditFactor('approximate', 1, 0), 0.8)
  t.equal(creditFactor('none', 1, 1000), 0)
})

t.test('an exact 60 % beats an approximate 70 %, until the approximation has proved to be good', async t => {
  const credit = (trust: Trust, percent: number, precision: number, requests: number) =>
    percent * creditFactor(trust, precision, requests)
  t.ok(credit('exact', 60, 1, 0) > credit('approximate', 70, 1, 0))
  t.ok(credit('exact', 60, 1, 64) > credit('approximate', 70, 0.8, 64))
  t.ok(credit('exact', 60, 1, 64) < credit('approximate', 70, 1, 64))
})

t.test('a source that is contradicted loses its credit, whatever its trust', async t => {
  t.ok(creditFactor('exact', 0, 64) <= 0.2)
  t.equal(creditFactor('exact', 0.5, 16), 0.75)
})

t.test('the factor lies between the prior and the precision, and in 0 … 1', async t => {
  const trusts = fc.constantFrom<Trust>('exact', 'partial', 'approximate')
  const holds = fc.property(
    trusts,
    fc.double({ min: -1, max: 2, noNaN: true }),
    fc.nat(1000),
    (trust, precision, requests) => {
      const factor = creditFactor(trust, precision, requests)
      const bounded = Math.min(1, Math.max(0, precision))
      const prior = CREDIT_PRIORS[trust]
      assert.ok(factor >= Math.min(prior, bounded) - 1e-12)
      assert.ok(factor <= Math.max(prior, bounded) + 1e-12)
    },
  )
  t.doesNotThrow(() => fc.assert(holds))
})
