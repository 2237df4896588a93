/**
 * One decision: the router actor and the simulator's router decide a history equally, receipt by receipt.
 *
 * So what the simulator shows of a policy holds for the router. `HOMING_SIM_SEED=7` plays one history alone.
 */

import t from 'tap'
import { playDecisions } from './decision-world.ts'

const ALONE = process.env['HOMING_SIM_SEED']
const SEEDS = ALONE === undefined ? Array.from({ length: 1000 }, (_, before) => before + 1) : [Number(ALONE)]

/** What must have happened in some history, or the comparison says little. */
const COVERED = [
  ...['auto', 'linear', 'product', 'est-ttft', 'threshold'].map(policy => `policy ${policy}`),
  ...['kv', 'random', 'round-robin', 'least-loaded', 'power-of-two', 'direct'].map(mode => `mode ${mode}`),
  ...['exact', 'approximate', 'none'].map(trust => `trust ${trust}`),
  'overlap',
  'preference',
  'arm affinity',
  'arm control',
  'busy',
  'busy, bound',
  'waited',
  'HOMING_ROUTER_ALL_BUSY',
  'HOMING_ROUTER_NO_WORKER',
  'HOMING_ROUTER_PINNED_WORKER',
  'HOMING_ROUTER_PIN_NOT_ALLOWED',
  'HOMING_ROUTER_WORKER_NOT_NAMED',
  'excluded: down',
  'excluded: failed this request',
  'excluded: its session is bound to',
  'excluded: joined a moment ago',
  'excluded: past a busy threshold',
  'excluded: the request names another worker',
]

// Seven seconds of CPU time; a loaded machine takes longer.
t.setTimeout(280_000)

t.test('the router and the simulator decide every history equally', { timeout: 280_000 }, async t => {
  const seen = new Map<string, number>()
  for (const seed of SEEDS) {
    const { policy, trust, events } = await playDecisions(seed).catch((thrown: Error) => {
      throw new Error(`seed ${seed} (HOMING_SIM_SEED=${seed} plays it alone): ${thrown.message}`, {
        cause: thrown,
      })
    })
    for (const [what, times] of [[`policy ${policy}`, 1], [`trust ${trust}`, 1], ...events] as const)
      seen.set(what, (seen.get(what) ?? 0) + times)
  }
  const { length } = SEEDS
  t.comment(`${length} histories, ${seen.get('decided')} decisions`)
  if (ALONE === undefined)
    t.strictSame(
      COVERED.filter(what => !seen.has(what)),
      [],
      'everything that can happen has happened',
    )
})
