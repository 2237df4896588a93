/** What the settings of the queue mean under each policy. */

import t from 'tap'
import { queueOrderOf } from '../src/index.ts'
import { queueRulesOf } from '../src/queue-rules.ts'

t.test('auto is the response ratio under policy auto, and fcfs else; what is named stays', async t => {
  const auto = { routerMode: 'kv', routerPolicy: 'auto', queueOrder: 'auto' } as const
  t.equal(queueOrderOf(auto), 'response-ratio')
  t.equal(queueOrderOf({ ...auto, routerPolicy: 'linear' }), 'fcfs')
  t.equal(queueOrderOf({ ...auto, routerMode: 'random' }), 'fcfs')
  t.equal(queueOrderOf({ ...auto, queueOrder: 'wspt' }), 'wspt')
})

t.test(
  'without a threshold that is given, requests wait under policy auto, and where tenants have weights',
  async t => {
    const thresholdUnder = (policy: object, queueThreshold?: string) =>
      queueRulesOf({
        ...{ routerMode: 'kv', routerPolicy: 'auto', queueOrder: 'auto', queueThreshold },
        ...{ queueTimeoutMs: 1, queueAgingMs: 1, queueRequestsMax: 1, queueTokensMax: 1, queueBytesMax: 1 },
        ...policy,
      }).threshold
    t.equal(thresholdUnder({}), 'step')
    const custom = { customSelection: { name: 'mine', score: () => 0 } }
    for (const other of [{ routerPolicy: 'linear' }, { routerMode: 'random' }, custom]) {
      t.equal(thresholdUnder(other), undefined, JSON.stringify(other))
      t.equal(thresholdUnder(other, 'auto'), 2)
      const tenantWeights = new Map([['chat', 2]])
      t.equal(thresholdUnder({ ...other, tenantWeights }), 2, 'weights would mean nothing')
      t.equal(thresholdUnder({ ...other, tenantWeights: new Map() }), undefined)
      t.equal(thresholdUnder({ ...other, tenantWeights }, 'none'), undefined)
    }
    t.equal(thresholdUnder({}, 'none'), undefined)
    t.equal(thresholdUnder({}, '0.5'), 0.5)
  },
)
