/**
 * Programs that book requests under their own ids, in the whole router on simulated threads: callers that
 * free twice, never, too early or under ids of others, callers that die, and gateways that fail. Whatever
 * they do, loads are zero once the expiry is over. HOMING_SIM_SEEDS sets how many seeds (20), HOMING_SIM_SEED
 * the first.
 */

import type { AskInput } from '@homing/actor'
import { runSeeds, type SeedOutcome } from '@homing/actor/simulation'
import type { ChosenWorker, ProgramMessage } from '@homing/actors/console'
import { type ErrorRecord, seededRandom } from '@homing/base'
import t from 'tap'
import { BLOCK_SIZE_TOKENS, type FleetOptions, MODEL, SimulatedFleet } from './simulated-fleet.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const COUNT = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 20 : 1),
)
const EXPIRY_MS = 2000
/** The tracker looks every 5 s, the gateway every second. */
const REST_MS = EXPIRY_MS + 6000
const ASK_MS_MAX = 5000
/** More than an answer takes. */
const STEPS_MAX = 2000
const ENGINE = { publishesEvents: false, blocks: 400 } as const

const command = (seed: number): string =>
  `HOMING_SIM_SEED=${seed} npx tap test/simulation/reservations.test.ts`

async function start(seed: number, settings: FleetOptions['settings'] = {}): Promise<SimulatedFleet> {
  return SimulatedFleet.start({
    seed,
    engines: [ENGINE, ENGINE],
    settings: { activeRequestExpiryMs: EXPIRY_MS, guardShare: 0, ...settings },
  })
}

function bodyOf(tokens: readonly number[], more: object = {}): Uint8Array {
  return Buffer.from(JSON.stringify({ model: MODEL, token_ids: tokens, ...more }))
}

function promptOf(first: number, blocks: number): readonly number[] {
  return Array.from({ length: blocks * BLOCK_SIZE_TOKENS }, (_, at) => 33 + ((first * 7 + at) % 90))
}

/** Asks the gateway, and runs until it has answered. */
async function asker(fleet: SimulatedFleet) {
  const { gateway } = await fleet.parts()
  return {
    tell: (message: AskInput<Extract<ProgramMessage, { readonly type: 'bestWorker' }>>) =>
      gateway.ask(message, { timeout: ASK_MS_MAX }),
    best: (tokens: readonly number[], id?: string, more?: object): Promise<ChosenWorker | ErrorRecord> =>
      fleet.simulation.settle(
        gateway.ask({ type: 'bestWorker', body: bodyOf(tokens, more), id }, { timeout: ASK_MS_MAX }),
      ),
    prefilled: (id: string): Promise<ErrorRecord | undefined> =>
      fleet.simulation.settle(gateway.ask({ type: 'reservedPrefilled', id }, { timeout: ASK_MS_MAX })),
    free: (id: string): Promise<ErrorRecord | undefined> =>
      fleet.simulation.settle(gateway.ask({ type: 'freeReserved', id }, { timeout: ASK_MS_MAX })),
    loads: (tokens: readonly number[]) =>
      fleet.simulation.settle(
        gateway.ask({ type: 'potentialLoads', body: bodyOf(tokens) }, { timeout: ASK_MS_MAX }),
      ),
  }
}

/** Load of all worker keys, by worker key. */
async function loadsOf(fleet: SimulatedFleet, origin?: string): Promise<Readonly<Record<string, unknown>>> {
  const keys = (await fleet.workers(origin)).flatMap(({ worker_keys }) => worker_keys)
  return Object.fromEntries(
    keys.map(({ worker, load: { active_blocks, prefill_tokens, requests } }) => [
      worker,
      [active_blocks, prefill_tokens, requests],
    ]),
  )
}

t.test('a booking is the load of a request of a client, until it is freed', async t => {
  const fleet = await start(1)
  const { simulation, engines } = fleet
  const ask = await asker(fleet)
  const nothing = await loadsOf(fleet)
  const prompt = promptOf(1, 6)
  const pinned = { nvext: { backend_instance_id: 1 } }

  const seen = await ask.best(prompt, undefined, pinned)
  t.match(seen, { instanceId: 1, dpRank: 0, origin: engines[1]!.url, overlapBlocks: 0 })
  t.strictSame(await loadsOf(fleet), nothing, 'a question books nothing')

  t.strictSame(await ask.best(prompt, 'a', pinned), seen)
  const booked = await loadsOf(fleet)
  t.strictSame(booked, { ...nothing, '127.0.0.1:8002/0': [6, 96, 1] })
  t.match(await ask.loads(prompt), [
    { instanceId: 0, potentialPrefillTokens: 96, potentialDecodeBlocks: 6, activeRequests: 0 },
    // Sent there, so it counts as held there for a while: the engine publishes no events.
    { instanceId: 1, overlapBlocks: 5, potentialDecodeBlocks: 6, activeRequests: 1 },
  ])
  t.equal(await ask.prefilled('a'), undefined)
  const decoding = await loadsOf(fleet)
  t.strictSame(decoding, { ...nothing, '127.0.0.1:8002/0': [6, 0, 1] })
  t.equal(await ask.free('a'), undefined)
  t.strictSame(await loadsOf(fleet), nothing)

  // A client's request, once its first token has come.
  const body = { model: MODEL, prompt, max_tokens: 400, ignore_eos: true, stream: true, ...pinned }
  const answered = fleet.send({}, body, 60_000)
  let isOver = false
  void answered.finally(() => {
    isOver = true
  })
  let isSame = false
  while (!isOver && !isSame) {
    await simulation.run(undefined, { within: 20 })
    isSame = JSON.stringify(await loadsOf(fleet)) === JSON.stringify(decoding)
  }
  t.ok(isSame, 'a client counts the same')
  await simulation.settle(answered, { within: 60_000 })
  t.strictSame(await fleet.stop(), [])
})

t.test('what a program does wrong has a code, and changes no load', async t => {
  const fleet = await start(2)
  const ask = await asker(fleet)
  const prompt = promptOf(2, 3)
  t.match(await ask.best(prompt, 'a'), { dpRank: 0 })
  const booked = await loadsOf(fleet)
  const cases = [
    ['HOMING_GATEWAY_RESERVATION_EXISTS', await ask.best(prompt, 'a')],
    ['HOMING_GATEWAY_RESERVATION_UNKNOWN', await ask.free('b')],
    ['HOMING_GATEWAY_RESERVATION_UNKNOWN', await ask.prefilled('b')],
    ['HOMING_GATEWAY_BAD_RESERVATION_ID', await ask.best(prompt, '')],
    ['HOMING_GATEWAY_BAD_RESERVATION_ID', await ask.best(prompt, 'x'.repeat(257))],
    ['HOMING_OPENAI_EMPTY_PROMPT', await ask.best([], 'c')],
    ['HOMING_ROUTER_PINNED_WORKER', await ask.best(prompt, 'c', { nvext: { backend_instance_id: 9 } })],
    [
      'HOMING_OPENAI_INVALID_REQUEST',
      await ask.best(prompt, 'c', { nvext: { router_config_override: { overlap: 1 } } }),
    ],
    ['HOMING_ROUTER_MODEL_NOT_FOUND', await ask.best(prompt, 'c', { model: 'another' })],
  ] as const
  for (const [code, answer] of cases) t.match(answer, { code }, code)
  t.strictSame(await loadsOf(fleet), booked)
  t.equal(await ask.free('a'), undefined)
  t.match(await ask.free('a'), { code: 'HOMING_GATEWAY_RESERVATION_UNKNOWN' }, 'freed twice')
  t.match(await ask.best(prompt, 'c'), { dpRank: 0 }, 'an id that was refused can be used')
  t.equal(await ask.free('c'), undefined)
  t.strictSame(await fleet.stop(), [])
})

t.test('one that is never freed expires, and one that says that it is alive does not', async t => {
  const fleet = await start(3)
  const { simulation } = fleet
  const ask = await asker(fleet)
  const nothing = await loadsOf(fleet)
  await ask.best(promptOf(3, 2), 'forgotten')
  await ask.best(promptOf(4, 2), 'alive')
  for (let look = 0; look < 4 * REST_MS; look += EXPIRY_MS / 2) {
    await simulation.run(undefined, { within: EXPIRY_MS / 2 })
    t.equal(await ask.prefilled('alive'), undefined)
  }
  t.match(await ask.free('forgotten'), {
    code: 'HOMING_GATEWAY_RESERVATION_UNKNOWN',
    message: /no sign of life for 2000 ms \(--active-request-expiry-secs\)/,
  })
  const loads = Object.values(await loadsOf(fleet))
  t.strictSame(loads.filter(load => (load as number[])[2] === 1).length, 1, 'one request is booked')
  t.equal(await ask.free('alive'), undefined)
  t.strictSame(await loadsOf(fleet), nothing)
  const metrics = Buffer.from((await fleet.ask({ method: 'GET', path: '/metrics' })).body).toString()
  t.match(metrics, /^homing_gateway_expired_requests_total 1$/m)
  t.match(metrics, /^homing_gateway_reserved_requests 0$/m)
  t.strictSame(await fleet.stop(), [])
})

t.test('one that is freed while its worker is chosen is not booked', async t => {
  const fleet = await start(4)
  const ask = await asker(fleet)
  const nothing = await loadsOf(fleet)
  const asked = ask.tell({ type: 'bestWorker', body: bodyOf(promptOf(5, 2)), id: 'a' })
  const freed = ask.free('a')
  t.equal(await freed, undefined)
  t.match(await fleet.simulation.settle(asked), { code: 'HOMING_GATEWAY_RESERVATION_CANCELLED' })
  t.strictSame(await loadsOf(fleet), nothing)
  t.strictSame(await fleet.stop(), [])
})

t.test('a program that leaves at any step before its answer has nothing booked', async t => {
  const adminOrigin = 'http://127.0.0.1:8900'
  for (const [settings, origin] of [
    [{}, {}],
    [{ adminPort: 8900 }, { origin: adminOrigin }],
  ] as const) {
    const fleet = await start(5, settings)
    const { simulation } = fleet
    const nothing = await loadsOf(fleet, origin.origin)
    const kept: number[] = []
    let hasAnswer = false
    let steps = 0
    for (; !hasAnswer && steps < STEPS_MAX; steps++) {
      const leaving = new AbortController()
      const body = { model: MODEL, token_ids: promptOf(steps, 3), request_id: `at ${steps}` }
      const request = { path: '/v1/router/best_worker', ...origin }
      const answered = fleet.send(request, body, ASK_MS_MAX, leaving.signal).then(
        ({ status }) => {
          t.equal(status, 200)
          hasAnswer = true
        },
        () => {},
      )
      if (steps > 0) await simulation.step(steps)
      leaving.abort()
      await simulation.settle(answered)
      await simulation.run(undefined, { within: 100 })
      const free = await fleet.ask({ path: '/v1/router/free', ...origin }, { request_id: body.request_id })
      if (free.status === 200) kept.push(steps)
      t.strictSame(await loadsOf(fleet, origin.origin), nothing)
    }
    t.comment(`answered after ${steps - 1} steps; booked when it left after ${kept.join()}`)
    t.ok(steps > 5)
    // In the step before it has read the answer, all bytes of it have reached it.
    t.ok(hasAnswer && kept.every(at => at >= steps - 2))
    t.strictSame(await fleet.stop(), [])
  }
})

/** Callers that do anything in any order, and a gateway that may fail. */
async function runCallers(seed: number): Promise<SeedOutcome> {
  const fleet = await start(seed)
  const { simulation } = fleet
  const { gateway } = await fleet.parts()
  const random = seededRandom(seed)
  const violations: string[] = []
  const ids = Array.from({ length: 6 }, (_, number) => `request-${number}`)
  for (let act = 20 + random.below(40); act > 0; act--) {
    simulation.clock.after(random.next() * 2 * EXPIRY_MS, () => {
      const id = ids[random.below(ids.length)]!
      const tokens = promptOf(random.below(4), 1 + random.below(5))
      const kind = random.below(8)
      const message: AskInput<ProgramMessage> =
        kind < 4
          ? { type: 'bestWorker', body: bodyOf(tokens), id: kind === 3 ? undefined : id }
          : kind < 6
            ? { type: 'freeReserved', id }
            : { type: 'reservedPrefilled', id }
      gateway.ask(message as never, { timeout: ASK_MS_MAX }).catch(() => {})
    })
  }
  if (random.below(3) === 0)
    simulation.clock.after(random.next() * 2 * EXPIRY_MS, () => simulation.fail('gateway'))
  await simulation.run(undefined, { within: 2 * EXPIRY_MS + 1 })
  await simulation.run(undefined, { within: REST_MS })
  for (const [worker, load] of Object.entries(await loadsOf(fleet)))
    if (JSON.stringify(load) !== '[0,0,0]') violations.push(`${worker} has load ${JSON.stringify(load)}`)
  const slow = await fleet.stop()
  if (slow.length > 0) violations.push(`slow: ${slow.join()}`)
  return { violations, traceHash: simulation.traceHash, steps: simulation.steps }
}

t.test('whatever callers do, loads are zero once the expiry is over', { timeout: 600_000 }, async t => {
  const report = await runSeeds({ first: FIRST, count: COUNT, command }, runCallers)
  t.equal(report.seeds, COUNT)
})
