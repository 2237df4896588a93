/** That the verdicts of load-verdicts.ts can be measured; what they are is a matter of chance. */

import t from 'tap'
import { compareFleets, showsDifference, startVerdictFleet } from './load-verdicts.ts'

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
