/** Metrics once more under other names. */

import t from 'tap'
import { Metrics, type RenamedFamily, renamedFamilies } from '../src/index.ts'

const FAMILIES: readonly RenamedFamily[] = [
  {
    name: 'other_wait_ms',
    from: 'homing_test_stage_seconds',
    help: 'Waits.',
    labels: ({ stage, ...others }) => (stage === 'wait' ? others : undefined),
    factor: 1000,
  },
  {
    name: 'other_blocks',
    from: 'homing_test_active_blocks',
    help: 'Blocks.',
    labels: ({ worker = '' }) => ({ worker_id: worker.slice(0, worker.lastIndexOf('/')) }),
  },
  { name: 'other_missing', from: 'homing_test_missing_total', help: 'None.' },
]

t.test('families come back with other names, labels and units, and nothing else', async t => {
  const metrics = new Metrics()
  const stages = metrics.histogram({
    name: 'homing_test_stage_seconds',
    help: 'Stages.',
    labels: ['stage', 'model'],
    buckets: [0.001, 0.5],
  })
  const blocks = metrics.gauge({ name: 'homing_test_active_blocks', help: 'Blocks.', labels: ['worker'] })
  stages.observe(0.25, { stage: 'wait', model: 'a "b"\\c,d' })
  stages.observe(0.0005, { stage: 'wait', model: 'a "b"\\c,d' })
  stages.observe(3, { stage: 'read', model: 'm' })
  blocks.set(3, { worker: 'h:1/0' })
  blocks.set(4, { worker: 'h:1/1' })
  t.strictSame(renamedFamilies(await metrics.render(), FAMILIES).split('\n'), [
    '# HELP other_wait_ms Waits.',
    '# TYPE other_wait_ms histogram',
    'other_wait_ms_bucket{model="a \\"b\\"\\\\c,d",le="1"} 1',
    'other_wait_ms_bucket{model="a \\"b\\"\\\\c,d",le="500"} 2',
    'other_wait_ms_bucket{model="a \\"b\\"\\\\c,d",le="+Inf"} 2',
    'other_wait_ms_sum{model="a \\"b\\"\\\\c,d"} 250.5',
    'other_wait_ms_count{model="a \\"b\\"\\\\c,d"} 2',
    '# HELP other_blocks Blocks.',
    '# TYPE other_blocks gauge',
    'other_blocks{worker_id="h:1"} 7',
    '',
  ])
  t.equal(renamedFamilies('', FAMILIES), '')
})
