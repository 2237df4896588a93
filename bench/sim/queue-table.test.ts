import t from 'tap'
import { sharesOf } from './queue-rows.ts'

t.test('tenants who all wait get shares by their weights, within 5 % over a minute', async t => {
  const shares = await sharesOf({ t1: 1, t2: 4, t3: 9 }, 1, { requestsPerSecond: 60, workers: 1 })
  t.ok(
    shares.every(share => Math.abs(share - 1) <= 0.05),
    shares.map(share => share.toFixed(3)).join(' '),
  )
})
