/**
 * The end of a request at every step of its life: its client leaves, or the gateway fails, after 1, 2, 3, …
 * steps of the simulation, until the answer is complete. (Placing takes less than a step; actors/gateway and
 * actors/router test it.) Afterwards router, tracker and indexer must be as if the request had never come, or
 * had been answered: nothing booked, every receipt complete, and nothing predicted that no engine was sent.
 */

import t, { type Test } from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

/** So long that the gateway, which may fail ten times a minute, is back and may fail again. */
const REST_MS = 7000
/** More steps than a request has. */
const STEPS_MAX = 1000

interface DecisionView {
  readonly id: string
  readonly delivered: { readonly outcome: string } | null
}

interface Ended {
  /** Steps until the request was cut. */
  readonly steps: number
  readonly outcome: string
  readonly decisions: readonly DecisionView[]
  /** The router called the engine. */
  readonly wasSent: boolean
}

/** One request, cut after so many steps; `undefined` when it was answered before. */
async function cutAfter(
  fleet: SimulatedFleet,
  steps: number,
  cut: (leave: AbortController) => void,
): Promise<Ended | undefined> {
  const { simulation, engines, network } = fleet
  const before = new Set((await decisions(fleet)).map(({ id }) => id))
  const engine = engines[0]!.url
  let wasSent = false
  network.faults.http = ({ origin, path }) => {
    if (origin === engine && path === '/v1/completions') wasSent = true
    return 'deliver'
  }
  const leave = new AbortController()
  const prompt = Array.from({ length: 3 * BLOCK_SIZE_TOKENS }, (_, at) => 40 + ((steps * 31 + at * 7) % 80))
  let outcome = 'open'
  fleet.send({}, { model: MODEL, prompt, max_tokens: 3, stream: true }, 20_000, leave.signal).then(
    ({ status }) => {
      outcome = String(status)
    },
    () => {
      outcome = 'cut'
    },
  )
  for (let step = 0; step < steps && outcome === 'open'; step++) await simulation.step()
  if (outcome !== 'open') return undefined
  cut(leave)
  await simulation.run(() => outcome !== 'open', { within: 20_000 })
  await simulation.run(undefined, { within: REST_MS })
  return {
    steps,
    outcome,
    decisions: (await decisions(fleet)).filter(({ id }) => !before.has(id)),
    wasSent,
  }
}

async function decisions(fleet: SimulatedFleet): Promise<readonly DecisionView[]> {
  return ((await fleet.view('/decisions?limit=1000')) as { decisions: readonly DecisionView[] }).decisions
}

async function isAtRest(t: Test, fleet: SimulatedFleet, ended: Ended, predicted: number): Promise<void> {
  const what = `cut after ${ended.steps} steps (${ended.outcome})`
  for (const { worker_keys } of await fleet.workers())
    for (const { load } of worker_keys)
      t.match(load, { active_blocks: 0, prefill_tokens: 0, requests: 0 }, `nothing is booked: ${what}`)
  for (const { delivered } of ended.decisions) t.ok(delivered, `its receipt is complete: ${what}`)
  t.ok(ended.decisions.length <= 1, what)
  if (!ended.wasSent) t.equal(await predictedBlocks(fleet), predicted, `nothing is predicted: ${what}`)
}

async function predictedBlocks(fleet: SimulatedFleet): Promise<number> {
  const reply = await fleet.ask({ method: 'GET', path: '/metrics' })
  const text = Buffer.from(reply.body).toString()
  let sum = 0
  for (const [, value] of text.matchAll(/^homing_index_guessed_blocks(?:\{[^}]*\})? (\d+)$/gm))
    sum += Number(value)
  return sum
}

async function everyStep(
  t: Test,
  cut: (fleet: SimulatedFleet) => (leave: AbortController) => void,
): Promise<void> {
  // An engine without events: its blocks are predicted from the requests sent.
  const fleet = await SimulatedFleet.start({
    seed: 1,
    engines: [{ blocks: 100_000, publishesEvents: false }],
  })
  const outcomes = new Map<string, number>()
  for (let steps = 0; steps < STEPS_MAX; steps++) {
    const predicted = await predictedBlocks(fleet)
    const ended = await cutAfter(fleet, steps, cut(fleet))
    if (ended === undefined) break
    await isAtRest(t, fleet, ended, predicted)
    const kind = `${ended.decisions.length} decisions, ${ended.wasSent ? 'sent' : 'not sent'}`
    outcomes.set(kind, (outcomes.get(kind) ?? 0) + 1)
  }
  t.comment([...outcomes].map(([kind, count]) => `${kind}: ${count}`).join('; '))
  for (const kind of ['0 decisions, not sent', '1 decisions, sent'])
    t.ok((outcomes.get(kind) ?? 0) > 0, `${kind} was tried`)
  t.strictSame(await fleet.stop(), [])
}

t.test('a client that leaves after any step leaves nothing behind', t =>
  everyStep(t, () => leave => leave.abort(new Error('the client leaves'))),
)

t.test('a gateway that fails after any step leaves nothing behind', t =>
  everyStep(t, fleet => () => void fleet.simulation.fail('gateway')),
)
