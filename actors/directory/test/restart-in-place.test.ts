/** An engine that runs as another process behind an event socket that does not break. */

import { engineUsage } from '@homing/actors/engine-usage'
import type { ReportedUsageMessage } from '@homing/actors/tracker'
import t from 'tap'
import { EVENTS, world } from './directory-world.ts'

const METRICS_MS = 5000
const PROBE_MS = 1000

t.test('what it held is forgotten within 5 s and a probe', async t => {
  const w = await world(t)
  await w.engine('10.0.0.1', { events: EVENTS, startSeconds: 1000, kvUsage: 0.5 })
  await w.publisher('tcp://10.0.0.1:5557')
  await w.replaySocket('tcp://10.0.0.1:5558')
  await w.begin(['http://10.0.0.1:8000'], { probeTimeoutMs: PROBE_MS })
  const usage = w.system.spawn(engineUsage, {
    name: 'engine-usage',
    args: {
      tracker: w.system.probe<ReportedUsageMessage>('tracker').ref,
      directory: w.ref,
      intervalMs: METRICS_MS,
      timeoutMs: PROBE_MS,
    },
  })
  w.ref.tell({ type: 'subscribe', subscriber: usage })
  // The full probes come every fifth time: the next one is far away.
  await w.system.advance(12_000)
  const key = () => w.worker().keys[0]!
  const clears = () => w.indexers[0]!.waiting.filter(({ type }) => type === 'clear').length
  const [epoch, cleared] = [key().epoch, clears()]
  t.equal(key().trust, 'exact')
  w.answers.set('10.0.0.1', { events: EVENTS, startSeconds: 2000, kvUsage: 0 })
  const endMs = w.clock.nowMs() + METRICS_MS + PROBE_MS
  while (w.clock.nowMs() < endMs && clears() === cleared) await w.system.advance(100)
  t.equal(clears(), cleared + 1, 'the blocks of its earlier life are credited no more')
  t.ok(key().epoch > epoch)
  await w.system.advance(METRICS_MS)
  t.equal(clears(), cleared + 1, 'once')
})
