/** What the settings of the queue mean under each policy. */

import t from 'tap'
import { queueOrderOf } from '../src/index.ts'

t.test('auto is the response ratio under policy auto, and fcfs else; what is named stays', async t => {
  const auto = { routerMode: 'kv', routerPolicy: 'auto', queueOrder: 'auto' } as const
  t.equal(queueOrderOf(auto), 'response-ratio')
  t.equal(queueOrderOf({ ...auto, routerPolicy: 'linear' }), 'fcfs')
  t.equal(queueOrderOf({ ...auto, routerMode: 'random' }), 'fcfs')
  t.equal(queueOrderOf({ ...auto, queueOrder: 'wspt' }), 'wspt')
})
