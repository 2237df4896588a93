import t from 'tap'
import { type PolicyClass, thresholdState } from '../src/index.ts'

const BASE: PolicyClass = { name: 'default', order: 'fcfs', quantum: 1 }
const loads = (...tokens: number[]) =>
  tokens.map(activePrefillTokens => ({ activePrefillTokens, batchedTokensMax: 1000 }))

t.test('requests wait while every eligible worker is past the threshold, strictly', async t => {
  const policyClass = { ...BASE, busyFraction: 2 }
  t.equal(thresholdState(policyClass, loads(2001, 5000)), 'past')
  t.equal(thresholdState(policyClass, loads(2000, 5000)), 'room')
  t.equal(thresholdState({ ...BASE, busyFraction: 0 }, loads(1)), 'past')
  t.equal(thresholdState({ ...BASE, busyFraction: 0 }, loads(0)), 'room')
})

t.test('tokens and fraction: either is enough', async t => {
  const policyClass = { ...BASE, busyFraction: 2, busyTokens: 500 }
  t.equal(thresholdState(policyClass, loads(501)), 'past')
  t.equal(thresholdState({ ...policyClass, busyTokens: 9000 }, loads(2500)), 'past')
  t.equal(thresholdState(policyClass, loads(500)), 'room')
})

t.test('no threshold, or no eligible worker: nothing is held back', async t => {
  t.equal(thresholdState(BASE, loads(1e9)), 'room')
  t.equal(thresholdState({ ...BASE, busyFraction: 2 }, []), 'room')
})

t.test('a fraction of a token budget that nobody knows holds nothing back, and says so', async t => {
  const unknown = { activePrefillTokens: 1e9, batchedTokensMax: undefined }
  const policyClass = { ...BASE, busyFraction: 2 }
  t.equal(thresholdState(policyClass, [unknown]), 'unknown')
  t.equal(thresholdState(policyClass, [...loads(5000), unknown, ...loads(5000)]), 'unknown')
  t.equal(thresholdState(policyClass, [unknown, ...loads(0)]), 'room')
  t.equal(thresholdState({ ...policyClass, busyTokens: 500 }, [unknown]), 'past')
})
