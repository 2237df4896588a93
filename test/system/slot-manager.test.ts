/**
 * The slot manager over real sockets: what of a request counts as load, and that all of it goes when the
 * request does.
 */

import t, { type Test } from 'tap'
import {
  assertIndexEqualsCaches,
  type Fleet,
  type FleetOptions,
  type KeyView,
  startFleet,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const BLOCK_SIZE_TOKENS = 16
const PROMPT_TOKENS = 10 * BLOCK_SIZE_TOKENS

let marker = 0
function prompt(tokens = PROMPT_TOKENS): number[] {
  marker++
  return Array.from({ length: tokens }, (_, at) => 40 + ((marker * 7 + at * (1 + (marker % 5))) % 80))
}

async function begin(t: Test, options: Partial<FleetOptions> = {}): Promise<Fleet> {
  const fleet = await startFleet({ engines: [{}], ...options })
  t.teardown(() => fleet.stop())
  return fleet
}

let ordinary: Promise<Fleet> | undefined
/** For all tests that give no options: each leaves it without load and faults. */
function ordinaryFleet(): Promise<Fleet> {
  ordinary ??= startFleet({ engines: [{}] })
  return ordinary
}
t.teardown(async () => (await ordinary)?.stop())

type Load = KeyView['load']

async function loadOf(fleet: Fleet): Promise<Load> {
  return (await fleet.workers())[0]!.worker_keys[0]!.load
}

/** Waits until the load is as wanted, and returns it. */
async function loadWhen(fleet: Fleet, what: string, isRight: (load: Load) => boolean): Promise<Load> {
  let seen: Load | undefined
  return until(
    what,
    async () => {
      seen = await loadOf(fleet)
      return isRight(seen) ? seen : undefined
    },
    { seen: () => seen },
  )
}

/** A stream that its engine holds back, with its load; `end` lets it go on. */
async function held(fleet: Fleet, more: object = {}, count = 1) {
  await fleet.engines[0]!.faults({ hang: 'generation' })
  const body = { model: MODEL, prompt: prompt(), max_tokens: 4, stream: true, ...more }
  const answers = Array.from({ length: count }, () => fleet.send('/v1/completions', { body }))
  const load = await loadWhen(fleet, 'it is booked', ({ requests }) => requests === count)
  return {
    load,
    async end() {
      await fleet.engines[0]!.faults({ hang: 'off' })
      for (const answer of await Promise.all(answers)) if (answer.status !== 200) throw new Error(answer.text)
      await fleet.drained()
    },
  }
}

t.test('blocks, prefill and requests count while it runs', async t => {
  const { load, end } = await held(await ordinaryFleet())
  t.match(load, { active_blocks: 10, prefill_tokens: PROMPT_TOKENS, requests: 1 })
  await end()
})

t.test('--no-track-active-blocks: no blocks count', async t => {
  const { load, end } = await held(await begin(t, { router: ['--no-track-active-blocks'] }))
  t.match(load, { active_blocks: 0, prefill_tokens: PROMPT_TOKENS, requests: 1 })
  await end()
})

t.test('--no-router-track-prefill-tokens: no prefill counts', async t => {
  const { load, end } = await held(await begin(t, { router: ['--no-router-track-prefill-tokens'] }))
  t.match(load, { active_blocks: 10, prefill_tokens: 0, requests: 1 })
  await end()
})

t.test('--no-router-assume-kv-reuse: equal prompts have blocks of their own', async t => {
  for (const [fleet, blocks] of [
    [await ordinaryFleet(), 10],
    [await begin(t, { router: ['--no-router-assume-kv-reuse'] }), 30],
  ] as const) {
    const { load, end } = await held(fleet, {}, 3)
    t.match(load, { active_blocks: blocks, requests: 3 })
    await end()
  }
})

t.test(
  'assume_kv_reuse and track_prefill_tokens of a request change what it counts for, and nothing else',
  async t => {
    const fleet = await ordinaryFleet()
    for (const [override, blocks, prefillTokens] of [
      [{ assume_kv_reuse: true, track_prefill_tokens: true }, 10, 3 * PROMPT_TOKENS],
      [{ assume_kv_reuse: false }, 30, 3 * PROMPT_TOKENS],
      [{ track_prefill_tokens: false }, 10, 0],
    ] as const) {
      for (const more of [
        { router_config_override: override },
        { nvext: { router_config_override: override } },
      ]) {
        const { load, end } = await held(fleet, more, 3)
        t.match(
          load,
          { active_blocks: blocks, prefill_tokens: prefillTokens, requests: 3 },
          JSON.stringify(more),
        )
        await end()
      }
    }
    const body = { model: MODEL, prompt: prompt(), router_config_override: { assume_kv_reuse: 'no' } }
    const refused = await fleet.send('/v1/completions', { body })
    t.match(refused.json, {
      error: { code: 'invalid_value', param: 'router_config_override.assume_kv_reuse' },
    })
  },
)

t.test('--router-track-output-blocks: what is generated counts, and not beyond its expected end', async t => {
  const tracking = await begin(t, { router: ['--router-track-output-blocks'] })
  for (const [fleet, agentHints, least, most] of [
    [await ordinaryFleet(), {}, 10, 10],
    [tracking, {}, 20, 6000],
    [tracking, { osl: 1 }, 10, 10],
  ] as const) {
    await fleet.engines[0]!.faults({ slowMs: 5 })
    const leaves = new AbortController()
    const body = {
      model: MODEL,
      prompt: prompt(),
      max_tokens: 100_000,
      ignore_eos: true,
      stream: true,
      nvext: { agent_hints: agentHints },
    }
    const stream = await fleet.open('/v1/completions', { body, signal: leaves.signal })
    let events = 0
    stream.body.on('error', () => {})
    for await (const bytes of stream.body) {
      events +=
        Buffer.from(bytes as Uint8Array)
          .toString()
          .split('\n\n').length - 1
      if (events < 400) continue
      const load = await loadWhen(
        fleet,
        'it has been looked at',
        ({ active_blocks }) => active_blocks >= least && active_blocks <= most,
      )
      t.pass(`${load.active_blocks} blocks`)
      break
    }
    leaves.abort()
    await fleet.drained()
    await fleet.engines[0]!.faults({ slowMs: 0 })
  }
})

t.test('the first token ends the prefill of a request, not its blocks', async t => {
  const fleet = await ordinaryFleet()
  await fleet.engines[0]!.faults({ slowMs: 20 })
  const leaves = new AbortController()
  const body = { model: MODEL, prompt: prompt(), max_tokens: 100_000, ignore_eos: true, stream: true }
  const stream = await fleet.open('/v1/completions', { body, signal: leaves.signal })
  stream.body.on('error', () => {})
  stream.body.on('data', () => {})
  const load = await loadWhen(fleet, 'the prompt is computed', ({ prefill_tokens }) => prefill_tokens === 0)
  t.match(load, { active_blocks: 10, prefill_tokens: 0, requests: 1 })
  leaves.abort()
  await fleet.drained()
  await fleet.engines[0]!.faults({ slowMs: 0 })
})

t.test(
  'a client that leaves frees its place, before the first token and in the middle of a stream',
  async t => {
    const fleet = await ordinaryFleet()
    const [engine] = fleet.engines
    const before = await gone(fleet)
    const body = { model: MODEL, prompt: prompt(), max_tokens: 100_000, ignore_eos: true, stream: true }
    const early = new AbortController()
    await engine!.faults({ hang: 'generation' })
    const never = fleet.open('/v1/completions', { body, signal: early.signal })
    await loadWhen(fleet, 'it is booked', ({ requests }) => requests === 1)
    early.abort()
    await t.rejects(never)
    await fleet.drained()
    await engine!.faults({ hang: 'off', slowMs: 5 })
    const late = new AbortController()
    const stream = await fleet.open('/v1/completions', { body, signal: late.signal })
    stream.body.on('error', () => {})
    for await (const _ of stream.body) break
    late.abort()
    await fleet.drained()
    t.equal(await gone(fleet), before + 2)
    await engine!.faults({ slowMs: 0 })
    const again = await fleet.send('/v1/completions', { body: { ...body, max_tokens: 1, stream: false } })
    t.equal(again.status, 200)
    await fleet.caughtUp(fleet.engines)
  },
)

async function gone(fleet: Fleet): Promise<number> {
  const { text } = await fleet.send('/metrics')
  return Number(/^homing_gateway_clients_gone_total\{route="completions"\} (\d+)$/m.exec(text)?.[1] ?? 0)
}

t.test('a worker that goes and comes back begins with an empty load and index', async t => {
  const fleet = await begin(t, { engines: [{}, {}] })
  const [first] = fleet.engines
  const pin = { nvext: { backend_instance_id: (await fleet.worker(first!.url)).instance_id } }
  const body = { model: MODEL, prompt: prompt(), max_tokens: 1, ...pin }
  t.equal((await fleet.send('/v1/completions', { body })).status, 200)
  await fleet.caughtUp(fleet.engines)
  const holds = async (): Promise<number> => (await fleet.worker(first!.url)).worker_keys[0]!.blocks_held
  t.ok((await holds()) >= 10)
  await first!.faults({ hang: 'generation' })
  const cut = fleet.send('/v1/completions', { body: { ...body, prompt: prompt() } })
  await until('it is booked', async () => {
    const [key] = (await fleet.worker(first!.url)).worker_keys
    return key!.load.requests === 1 ? true : undefined
  })
  await first!.restart(200)
  await cut
  await first!.faults({ hang: 'off' })
  await until('it is up again, and empty', async () => {
    const { state, worker_keys } = await fleet.worker(first!.url)
    const [key] = worker_keys
    return state === 'up' && key?.blocks_held === 0 && key.load.requests === 0 ? true : undefined
  })
  const { load } = (await fleet.worker(first!.url)).worker_keys[0]!
  t.match(load, { active_blocks: 0, prefill_tokens: 0, requests: 0 })
  t.equal((await fleet.send('/v1/completions', { body })).status, 200)
})

t.test(
  'a worker that is taken out and added again has no load of before, and an index of what it holds',
  async t => {
    const fleet = await begin(t, { engines: [{}, {}] })
    const [first] = fleet.engines
    const { id, instance_id } = await fleet.worker(first!.url)
    const body = (more: object) => ({
      ...{ model: MODEL, prompt: prompt(), max_tokens: 1 },
      ...{ nvext: { backend_instance_id: instance_id }, ...more },
    })
    t.equal((await fleet.send('/v1/completions', { body: body({}) })).status, 200)
    await first!.faults({ hang: 'generation' })
    const open = fleet.send('/v1/completions', { body: body({}) })
    await until('it is booked', async () => {
      const [key] = (await fleet.worker(first!.url)).worker_keys
      return key!.load.requests === 1 ? true : undefined
    })
    t.equal((await fleet.send(`/workers/${id}`, { method: 'DELETE' })).status, 200)
    t.notOk((await fleet.workers()).some(worker => worker.id === id))
    t.notOk(Object.keys((await fleet.send('/dump')).json).includes(`${id}/0`), 'its blocks are gone')
    t.equal((await fleet.send('/workers', { body: { url: first!.url } })).status, 201)
    await fleet.trusted('exact')
    const [key] = (await fleet.worker(first!.url)).worker_keys
    t.match(
      key!.load,
      { active_blocks: 0, prefill_tokens: 0, requests: 0 },
      'while the engine has its request still',
    )
    await first!.faults({ hang: 'off' })
    t.equal((await open).status, 200, 'which ends well')
    await fleet.caughtUp(fleet.engines)
    t.ok((await assertIndexEqualsCaches(fleet, fleet.engines)) >= 10)
    await fleet.drained()
  },
)
