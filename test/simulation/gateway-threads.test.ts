/**
 * Two gateways on threads that die, at any moment and in any number: requests of the other go on, each
 * request ends once, and nothing is left of those that were cut. `HOMING_GATEWAY_SEEDS` sets the number of
 * seeds, `HOMING_GATEWAY_SEED` the first.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { MODEL, SimulatedFleet } from './simulated-fleet.ts'

const SEEDS = Number(process.env['HOMING_GATEWAY_SEEDS'] ?? 10)
const FIRST = Number(process.env['HOMING_GATEWAY_SEED'] ?? 1)
const REQUESTS = 24
const KILLS_MAX = 3
const SPAN_MS = 2000
const END_MS_MAX = 120_000
const GATEWAYS = ['gateways-0', 'gateways-1'] as const

async function runSeed(seed: number): Promise<{ readonly served: number; readonly cut: number }> {
  const random = seededRandom(seed)
  const fleet = await SimulatedFleet.start({
    seed,
    engines: [{ speed: 1 }, { speed: 1 }],
    settings: { gatewayThreads: 2, retries: 1 },
  })
  const { simulation } = fleet
  let served = 0
  let cut = 0
  const kills = 1 + random.below(KILLS_MAX)
  const killMs = Array.from({ length: kills }, () => random.below(SPAN_MS)).sort((a, b) => a - b)
  const sendMs = Array.from({ length: REQUESTS }, () => random.below(SPAN_MS)).sort((a, b) => a - b)
  const open: Promise<void>[] = []
  const startMs = simulation.clock.nowMs()
  const send = (number: number): Promise<void> =>
    fleet
      .send(
        {},
        {
          model: MODEL,
          prompt: Array.from({ length: 64 + random.below(200) }, (_, at) => (at * 7 + number) % 90),
          max_tokens: 1 + random.below(200),
          stream: random.below(2) === 0,
        },
        END_MS_MAX,
      )
      .then(
        ({ status }) => {
          if (status === 200) served++
          else cut++
        },
        () => void cut++,
      )
  while (sendMs.length + killMs.length > 0) {
    const isKill = (killMs[0] ?? Number.POSITIVE_INFINITY) <= (sendMs[0] ?? Number.POSITIVE_INFINITY)
    const atMs = startMs + (isKill ? killMs.shift()! : sendMs.shift()!)
    const waitMs = atMs - simulation.clock.nowMs()
    if (waitMs > 0) await simulation.run(undefined, { within: waitMs })
    if (isKill) await simulation.settle(simulation.killThread(GATEWAYS[random.below(2)]!), { within: 5000 })
    else open.push(send(open.length))
  }
  await simulation.settle(Promise.all(open), { within: END_MS_MAX })
  if (served + cut !== REQUESTS) throw new Error(`${served} served and ${cut} cut, of ${REQUESTS}`)
  // What a dead life had booked, the next settles.
  for (let turn = 0; ; turn++) {
    const loads = (await fleet.workers()).flatMap(({ worker_keys }) => worker_keys.map(({ load }) => load))
    if (loads.every(({ requests, prefill_tokens: tokens }) => requests === 0 && tokens === 0)) break
    if (turn === 20) throw new Error(`bookings are left: ${JSON.stringify(loads)}`)
    await simulation.run(undefined, { within: 500 })
  }
  const ids = new Set<string>()
  for (let turn = 0; turn < 4; turn++) {
    const { status, headers } = await fleet.ask({}, { model: MODEL, prompt: [1, 2, 3], max_tokens: 1 })
    if (status !== 200) throw new Error(`after all, ${status}`)
    ids.add(String(headers['x-homing-decision']))
  }
  if (ids.size !== 4) throw new Error('two decisions have one id')
  await fleet.stop()
  return { served, cut }
}

t.test(`gateways on threads that die, ${SEEDS} seeds`, async t => {
  let served = 0
  let cut = 0
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
    try {
      const ended = await runSeed(seed)
      served += ended.served
      cut += ended.cut
    } catch (thrown) {
      t.fail(`seed ${seed}: ${(thrown as Error).stack}`)
    }
  }
  t.comment(`${served} served, ${cut} cut`)
  t.ok(served > cut, 'those of the other gateway go on')
  t.ok(cut > 0, 'those of the one that died do not')
})
