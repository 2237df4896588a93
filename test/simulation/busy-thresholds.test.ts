/**
 * Busy thresholds that were set at run time outlive the directory, which hands them out, and the console,
 * which takes them in.
 */

import t from 'tap'
import { MODEL, SimulatedFleet } from './simulated-fleet.ts'

const REST_MS = 2000

t.test(
  'what engines say of their KV caches is there again after every failure of the actors that pass it on',
  async t => {
    const fleet = await SimulatedFleet.start({
      seed: 4,
      engines: [{}, {}],
      settings: { engineMetricsIntervalMs: 500 },
    })
    const { simulation } = fleet
    const shares = async (): Promise<readonly (number | null)[]> => {
      const workers = (await fleet.workers()) as unknown as readonly {
        readonly worker_keys: readonly { readonly load: { readonly engine_kv_usage: number | null } }[]
      }[]
      return workers.flatMap(({ worker_keys }) => worker_keys.map(({ load }) => load.engine_kv_usage))
    }
    await simulation.run(undefined, { within: REST_MS })
    t.strictSame(await shares(), [0, 0])
    for (const victim of ['engine-usage', 'tracker', 'directory']) {
      t.ok(simulation.fail(victim))
      await simulation.run(undefined, { within: 2 * REST_MS })
      t.strictSame(await shares(), [0, 0], `after ${victim}`)
    }
    await fleet.stop()
    t.strictSame(simulation.violations, [])
  },
)

t.test('what POST /busy_threshold set holds after every failure of the actors that know of it', async t => {
  const fleet = await SimulatedFleet.start({
    seed: 3,
    engines: [{}],
    settings: { activeDecodeBlocksThreshold: 0.9 },
  })
  const { simulation } = fleet
  const list = async (): Promise<unknown> => fleet.view('/busy_threshold')
  const body = { model: MODEL, active_prefill_tokens_threshold: 700 }
  const answer = await fleet.ask({ path: '/busy_threshold' }, body)
  t.equal(answer.status, 200)
  const set = await list()
  t.match(set, {
    thresholds: [{ active_decode_blocks_threshold: 0.9, active_prefill_tokens_threshold: 700 }],
  })
  for (const victim of ['directory', 'console', 'router', 'directory']) {
    t.ok(simulation.fail(victim))
    await simulation.run(undefined, { within: REST_MS })
    t.strictSame(await list(), set, `after ${victim}`)
  }
  const more = { model: MODEL, active_prefill_tokens_threshold_frac: 2 }
  t.equal((await fleet.ask({ path: '/busy_threshold' }, more)).status, 200)
  t.ok(simulation.fail('directory'))
  await simulation.run(undefined, { within: REST_MS })
  t.match(
    await list(),
    { thresholds: [{ active_prefill_tokens_threshold: 700, active_prefill_tokens_threshold_frac: 2 }] },
    'what is set later is added',
  )
  await fleet.stop()
  t.strictSame(simulation.violations, [])
})
