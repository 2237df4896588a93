/** The fleet on the page: what wants attention first, and bounded whatever the size. */

import { KEYS_SHOWN } from '@homing/page'
import t from 'tap'
import { fleetSection } from '../../src/page/page-fleet.ts'
import type { WorkersView } from '../../src/views/workers-view.ts'

function viewOf(states: readonly { readonly state: string; readonly trust: string }[]): WorkersView {
  return {
    version: 1,
    workers: states.map(({ state, trust }, at) => ({
      id: `h${at}:8001`,
      url: `http://h${at}:8001`,
      state,
      state_reason: 'answers',
      health: { state: 'up', reason: null },
      engine: 'vllm',
      models: [{ id: 'm' }],
      block_size: { value: 16, source: 'probed' },
      kv_blocks: null,
      role: at === 0 ? { value: 'prefill', source: 'given' } : undefined,
      prefill_state: at === 0 ? { m: 'active' } : {},
      worker_keys: [
        {
          worker: `h${at}:8001/0`,
          trust,
          trust_reason: 'why',
          trust_since: '2026-01-01T00:00:00.000Z',
          audit: { state: 'waiting', requests: 0, predicted_tokens: 0, delivered_tokens: 0, precision: null },
          last_event_age_ms: 1999,
          blocks_held: at,
          load: { active_blocks: 1, prefill_tokens: 2, requests: 3 },
          learned: null,
          odd: [],
          events: { events: 5 },
        },
      ],
    })),
  } as unknown as WorkersView
}

t.test('what is down comes first, then what is known least; the order of the fleet within', async t => {
  const { keys, apart } = fleetSection(
    viewOf([
      { state: 'up', trust: 'exact' },
      { state: 'up', trust: 'approximate' },
      { state: 'down', trust: 'none' },
      { state: 'up', trust: 'exact' },
      { state: 'up', trust: 'partial' },
    ]),
  )
  t.strictSame(
    keys.map(({ worker }) => worker),
    ['h2:8001/0', 'h1:8001/0', 'h4:8001/0', 'h0:8001/0', 'h3:8001/0'],
  )
  t.match(keys[3], { blocks_held: 0, active_blocks: 1, prefill_tokens: 2, requests: 3, events: 5 })
  t.match(keys[3], { role: 'prefill', handover: 'kv_transfer' })
  t.equal(keys[0]!.role, 'both')
  t.strictSame(apart, [{ model: 'm', state: 'active' }])
  t.equal(keys[3]!.last_event_age_ms, 1000, 'an age is told by the second')
})

t.test('of 10,000 workers a bounded number is drawn, all of them are counted', async t => {
  const section = fleetSection(
    viewOf(
      Array.from({ length: 10_000 }, (_, at) => ({ state: at % 1000 === 0 ? 'down' : 'up', trust: 'exact' })),
    ),
  )
  t.match(section, {
    workers: 10_000,
    workers_up: 9990,
    keys_total: 10_000,
    keys_left_out: 10_000 - KEYS_SHOWN,
    trust: { exact: 10_000 },
  })
  t.equal(section.keys.length, KEYS_SHOWN)
  t.equal(section.keys.filter(({ state }) => state === 'down').length, 10)
  t.ok(JSON.stringify(section).length < 100_000)
})
