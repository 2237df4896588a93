/** That the verdicts of load-verdicts.ts can be measured; what they are is a matter of chance. */

import t from 'tap'
import {
  compareFleets,
  faultsOfVerdicts,
  showsDifference,
  startVerdictFleet,
  type VerdictRun,
} from './load-verdicts.ts'

t.test('two fleets are compared, each figure with an interval', async t => {
  const fleet = await startVerdictFleet(20)
  t.teardown(() => fleet.stop())
  const options = ['--blocks', '3', '--requests', '12', '--rate', '50', '--max-error-rate', '0']
  const run = await compareFleets('equal', [fleet.urls.first, fleet.urls.second], 1, options)
  t.equal(typeof showsDifference(run), 'boolean')
  t.ok(
    run.faults.every(fault => fault.includes('--max-issue-lag')),
    run.faults.join('; '),
  )
  const figures = run.comparison.map(({ figure }) => figure)
  t.ok(['ttft_mean', 'itl_mean', 'e2e_p99', 'cached_share'].every(name => figures.includes(name)))
  t.ok(run.comparison.every(({ low, high }) => low !== null && high !== null && low <= high))
  const errors = run.comparison.find(({ figure }) => figure === 'error_rate')
  t.match(errors, { a: 0, b: 0, verdict: 'no difference' })
})

t.test('runs that are invalid, and verdicts that are wrong, fail the bench', async t => {
  const run = (verdict: string, isValid = true): VerdictRun => ({
    name: 'a run',
    seed: 1,
    isValid,
    faults: isValid ? [] : ['late'],
    comparison: [{ figure: 'ttft_mean', a: 1, b: 2, low: -2, high: -1, verdict }],
  })
  const [better, same] = [run('better'), run('no difference')]
  t.strictSame(faultsOfVerdicts([better, ...Array<VerdictRun>(20).fill(same)]), [])
  t.strictSame(faultsOfVerdicts([better, ...Array<VerdictRun>(19).fill(same), run('worse')]), [])
  t.strictSame(faultsOfVerdicts([better, same, run('no difference', false)]), [
    '1 of 3 runs are invalid: lower --rate',
  ])
  t.strictSame(faultsOfVerdicts([same]), ['the better fleet was not found'])
  t.strictSame(faultsOfVerdicts([better, ...Array<VerdictRun>(18).fill(same), better, better]), [
    '2 of 20 equal comparisons showed a difference',
  ])
})
