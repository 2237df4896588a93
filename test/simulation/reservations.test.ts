/**
 * Programs that book requests under their own ids, in the whole router on simulated threads: callers that
 * free twice, never, too early or under ids of others, callers that die, and gateways that fail. Whatever
 * they do, loads are zero once the expiry is over. HOMING_SIM_SEEDS sets how many seeds (20), HOMING_SIM_SEED
 * the first.
 */

import type { AskInput } from '@homing/actor'
import { runSeeds, type SeedOutcome } from '@homing/actor/simulation'
import type { ChosenWorker, ProgramMessage, ProgramPrompt } from '@homing/actors/console'
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

/** In the body, as a program in another language gives it. */
function written(tokens: readonly number[], more: object = {}): ProgramPrompt {
  return { body: Buffer.from(JSON.stringify({ model: MODEL, token_ids: tokens, ...more })) }
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
        gateway.ask({ type: 'bestWorker', prompt: written(tokens, more), id }, { timeout: ASK_MS_MAX }),
      ),
    prefilled: (id: string): Promise<ErrorRecord | undefined> =>
      fleet.simulation.settle(gateway.ask({ type: 'reservedPrefilled', id }, { timeout: ASK_MS_MAX })),
    free: (id: string): Promise<ErrorRecord | undefined> =>
      fleet.simulation.settle(gateway.ask({ type: 'freeReserved', id }, { timeout: ASK_MS_MAX })),
    loads: (tokens: readonly number[]) =>
      fleet.simulation.settle(
        gateway.ask({ type: 'potentialLoads', prompt: written(tokens) }, { timeout: ASK_MS_MAX }),
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
  const asked = ask.tell({ type: 'bestWorker', prompt: written(promptOf(5, 2)), id: 'a' })
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
          ? { type: 'bestWorker', prompt: written(tokens), id: kind === 3 ? undefined : id }
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

interface ModelBooking {
  readonly worker: string
  /** Which prompt: those of one number begin alike. */
  readonly first: number
  readonly blocks: number
  prefillTokens: number
  lastSignMs: number
}

/** What callers have booked, as a list of bookings; of one that may have expired it does not know. */
class ModelBookings {
  readonly #byId = new Map<string, ModelBooking>()

  get ids(): readonly string[] {
    return [...this.#byId.keys()]
  }

  /** True, false, or undefined where its expiry is due: the gateway looks once a second. */
  holds(id: string, nowMs: number): boolean | undefined {
    const found = this.#byId.get(id)
    if (found === undefined || nowMs - found.lastSignMs > EXPIRY_MS + LOOK_MS) return false
    return nowMs - found.lastSignMs < EXPIRY_MS ? true : undefined
  }

  book(id: string, booking: ModelBooking): void {
    this.#byId.set(id, booking)
  }

  prefilled(id: string, nowMs: number): void {
    Object.assign(this.#byId.get(id)!, { prefillTokens: 0, lastSignMs: nowMs })
  }

  free(id: string): void {
    this.#byId.delete(id)
  }

  /** By worker key; undefined while the expiry of one is due. */
  loads(workers: readonly string[], nowMs: number): Readonly<Record<string, readonly number[]>> | undefined {
    for (const id of this.ids) {
      const isHeld = this.holds(id, nowMs)
      if (isHeld === undefined) return undefined
      if (!isHeld) this.free(id)
    }
    const rows = workers.map(worker => {
      const here = [...this.#byId.values()].filter(booking => booking.worker === worker)
      const longest = new Map<number, number>()
      for (const { first, blocks } of here) longest.set(first, Math.max(blocks, longest.get(first) ?? 0))
      const activeBlocks = [...longest.values()].reduce((sum, blocks) => sum + blocks, 0)
      const prefillTokens = here.reduce((sum, booking) => sum + booking.prefillTokens, 0)
      return [worker, [activeBlocks, prefillTokens, here.length]] as const
    })
    return Object.fromEntries(rows)
  }
}

/** The gateway ends what has expired with its next look. */
const LOOK_MS = 1000
/** Of a block that counts as held because it was sent there: these engines publish no events. */
const GUESS_CREDIT = 0.8

/** Callers that book, free twice, forget and die, one after the other; and then the same as a client. */
async function runModel(seed: number): Promise<SeedOutcome> {
  const fleet = await start(seed)
  const { simulation } = fleet
  const ask = await asker(fleet)
  const random = seededRandom(seed)
  const model = new ModelBookings()
  const violations: string[] = []
  const workers = Object.keys(await loadsOf(fleet))
  const compare = async (what: string): Promise<void> => {
    const loads = await loadsOf(fleet)
    // Time passes while it is asked.
    const expected = model.loads(workers, simulation.clock.nowMs())
    if (expected !== undefined && JSON.stringify(loads) !== JSON.stringify(expected))
      violations.push(`${what}: loads ${JSON.stringify(loads)}, not ${JSON.stringify(expected)}`)
  }
  /** Whether the answer says what the model does. */
  const check = (what: string, id: string, isKnown: boolean, isHeld: boolean | undefined): void => {
    if (isHeld !== undefined && isKnown !== isHeld) violations.push(`${what} ${id}: held ${isHeld}`)
    if (!isKnown) model.free(id)
  }
  for (let act = 10 + random.below(20); act > 0; act--) {
    if (random.below(3) === 0) await simulation.run(undefined, { within: random.next() * EXPIRY_MS })
    const id = `request-${random.below(6)}`
    const isHeld = model.holds(id, simulation.clock.nowMs())
    const kind = random.below(6)
    if (kind < 3) {
      const [first, blocks] = [random.below(4), 1 + random.below(5)]
      const best = await ask.best(promptOf(first, blocks), id)
      if ('code' in best) {
        const isTaken = best.code === 'HOMING_GATEWAY_RESERVATION_EXISTS'
        if (!isTaken || isHeld === false) violations.push(`book ${id}: ${best.code}`)
        continue
      }
      if (isHeld === true) violations.push(`book ${id}: it was booked already`)
      const tokens = blocks * BLOCK_SIZE_TOKENS
      const credited = best.overlapBlocks * BLOCK_SIZE_TOKENS * GUESS_CREDIT
      const prefillTokens = Math.max(1, Math.round(tokens - credited))
      const lastSignMs = simulation.clock.nowMs()
      model.book(id, { worker: best.worker, first, blocks, prefillTokens, lastSignMs })
    } else if (kind < 5) {
      check('free', id, (await ask.free(id)) === undefined, isHeld)
      model.free(id)
      if ((await ask.free(id)) === undefined) violations.push(`${id} was freed twice`)
    } else {
      const isKnown = (await ask.prefilled(id)) === undefined
      check('prefilled', id, isKnown, isHeld)
      if (isKnown) model.prefilled(id, simulation.clock.nowMs())
    }
    await compare(`after act ${act}`)
  }
  await simulation.run(undefined, { within: REST_MS })
  await compare('after the expiry')
  if (model.ids.length > 0) violations.push(`the model still holds ${model.ids.join()}`)
  await compareWithClient(fleet, random.below(4), 1 + random.below(5), random.below(2), violations)
  const slow = await fleet.stop()
  if (slow.length > 0) violations.push(`slow: ${slow.join()}`)
  return { violations, traceHash: simulation.traceHash, steps: simulation.steps }
}

/** A booking counts what the same request of a client counts, from its first token on and at its end. */
async function compareWithClient(
  fleet: SimulatedFleet,
  first: number,
  blocks: number,
  instanceId: number,
  violations: string[],
): Promise<void> {
  const { simulation } = fleet
  const ask = await asker(fleet)
  const nothing = JSON.stringify(await loadsOf(fleet))
  const prompt = promptOf(first, blocks)
  const pinned = { nvext: { backend_instance_id: instanceId } }
  await ask.best(prompt, 'twin', pinned)
  await ask.prefilled('twin')
  const booked = JSON.stringify(await loadsOf(fleet))
  await ask.free('twin')
  const body = { model: MODEL, prompt, max_tokens: 200, ignore_eos: true, stream: true, ...pinned }
  let isOver = false
  const answered = fleet.send({}, body, 60_000).finally(() => {
    isOver = true
  })
  let isSame = false
  while (!isOver && !isSame) {
    await simulation.run(undefined, { within: 20 })
    isSame = JSON.stringify(await loadsOf(fleet)) === booked
  }
  if (!isSame) violations.push(`a client never counted as its booking, ${booked}`)
  await simulation.settle(answered, { within: 60_000 })
  await simulation.run(undefined, { within: 100 })
  const after = JSON.stringify(await loadsOf(fleet))
  if (after !== nothing) violations.push(`after the client the loads are ${after}, not ${nothing}`)
}

t.test('loads are those of a list of bookings, and of clients', { timeout: 600_000 }, async t => {
  const report = await runSeeds({ first: FIRST, count: COUNT, command }, runModel)
  t.equal(report.seeds, COUNT)
})
