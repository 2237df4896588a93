/** What the settings of the queue mean under each policy. */

import type { CustomSelection } from '@homing/selection'
import t from 'tap'
import { queueOrderOf } from '../src/index.ts'
import { type QueueRuleSettings, queueRulesOf } from '../src/queue-rules.ts'

t.test('auto is the response ratio under policy auto, and fcfs else; what is named stays', async t => {
  const auto = { routerMode: 'kv', routerPolicy: 'auto', queueOrder: 'auto' } as const
  t.equal(queueOrderOf(auto, undefined), 'response-ratio')
  t.equal(queueOrderOf({ ...auto, routerPolicy: 'linear' }, undefined), 'fcfs')
  t.equal(queueOrderOf({ ...auto, routerMode: 'random' }, undefined), 'fcfs')
  t.equal(queueOrderOf({ ...auto, queueOrder: 'wspt' }, undefined), 'wspt')
})

t.test(
  'without a threshold that is given, requests wait under policy auto, and where tenants have weights',
  async t => {
    interface Given extends Partial<QueueRuleSettings> {
      readonly custom?: CustomSelection
    }
    const thresholdUnder = ({ custom, ...given }: Given, queueThreshold?: string) => {
      const auto = { routerMode: 'kv', routerPolicy: 'auto', queueOrder: 'auto', tenantWeights: [] } as const
      return queueRulesOf({ ...auto, queueThreshold, ...given }, custom, undefined).threshold
    }
    t.equal(thresholdUnder({}), 'step')
    const custom: Given = { custom: { name: 'mine', unit: 'ms', score: () => 0 } }
    const others: readonly Given[] = [{ routerPolicy: 'linear' }, { routerMode: 'random' }, custom]
    for (const other of others) {
      t.equal(thresholdUnder(other), undefined, JSON.stringify(other))
      t.equal(thresholdUnder(other, 'auto'), 2)
      const tenantWeights = ['chat=2']
      t.equal(thresholdUnder({ ...other, tenantWeights }), 2, 'weights would mean nothing')
      t.equal(thresholdUnder({ ...other, tenantWeights: [] }), undefined)
      t.equal(thresholdUnder({ ...other, tenantWeights }, 'none'), undefined)
    }
    t.equal(thresholdUnder({}, 'none'), undefined)
    t.equal(thresholdUnder({}, '0.5'), 0.5)
  },
)
