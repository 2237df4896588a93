/**
 * Prefill and decode on workers of their own, over real sockets: both hand-overs, either order of start,
 * pins, prefill workers that fail or are gone, clients that leave; and that no booking and no prompt is left.
 */

import t, { type Test } from 'tap'
import {
  type Answer,
  chunksOf,
  type Fleet,
  open,
  startEngines,
  startFleet,
  type ThreadEngine,
  until,
} from './fleet.ts'

const MODEL = 'homing-sim'
const SHARED = { blockSizeTokens: 16, seed: 7 } as const
/** A leg that is cut leaves its room open for so long: waited for in the end. */
const HANDOVER_MS_MAX = 8000
const SGLANG = { ...SHARED, eventForm: 'sglang-map', handover: 'bootstrap' } as const

const CHAT = {
  path: '/v1/chat/completions',
  body: (text: string) => ({ model: MODEL, messages: [{ role: 'user', content: text }], max_tokens: 6 }),
}
const ROUTES = [
  CHAT,
  {
    path: '/v1/completions',
    body: (text: string) => ({ model: MODEL, prompt: text, max_tokens: 6 }),
  },
  {
    path: '/v1/messages',
    body: (text: string) => ({ model: MODEL, messages: [{ role: 'user', content: text }], max_tokens: 6 }),
  },
  {
    path: '/v1/responses',
    body: (text: string) => ({ model: MODEL, input: text, max_output_tokens: 6 }),
  },
]

function text(marker: string, words = 60): string {
  return Array.from({ length: words }, (_, at) => `${marker}-${at}`).join(' ')
}

/** An answer without ids, times, and what was cached where. */
function shapeOf({ text: answer }: Answer): string {
  return answer
    .replace(/"(id|item_id|created|created_at|system_fingerprint)":("[^"]*"|\d+)/g, '"$1":0')
    .replace(/"(cached_tokens|input_tokens|cache_read_input_tokens)":\d+/g, '"$1":0')
}

async function metric(fleet: Fleet, name: string): Promise<number> {
  const { text: metrics } = await fleet.send('/metrics')
  const line = metrics.split('\n').find(each => each.startsWith(name))
  return Number(line?.split(' ').at(-1) ?? 0)
}

const legs = (fleet: Fleet, outcome: string): Promise<number> =>
  metric(fleet, `homing_gateway_prefill_legs_total{outcome="${outcome}"}`)
const alone = (fleet: Fleet, reason: string): Promise<number> =>
  metric(fleet, `homing_gateway_decode_alone_total{reason="${reason}"}`)

/** Nothing is booked, and no engine holds a prompt for another. */
async function isEmpty(t: Test, fleet: Fleet): Promise<void> {
  await fleet.drained()
  for (const engine of fleet.engines)
    t.equal((await engine.state()).handovers, 0, `${engine.url} holds no prompt`)
}

async function stateOf(fleet: Fleet, state: string): Promise<void> {
  await until(`prefill is ${state}`, async () => {
    const { json } = await fleet.send('/workers')
    const { workers } = json as { workers: readonly { readonly prefill_state: Record<string, string> }[] }
    return workers.some(worker => worker.prefill_state[MODEL] === state) ? true : undefined
  })
}

async function served(
  engine: ThreadEngine,
): Promise<readonly { promptTokens: number; outputTokens: number }[]> {
  return (await engine.state()).requests
}

t.test('vLLM: prompts are computed by prefill workers, and clients see no difference', async t => {
  const fleet = await startFleet({
    engines: [{ ...SHARED, role: 'prefill' }, { ...SHARED, role: 'decode' }, SHARED],
    workerQuery: (_, position) => ['?role=prefill&id=10', '?role=decode&id=20', '?id=30'][position]!,
  })
  t.teardown(() => fleet.stop())
  await stateOf(fleet, 'active')
  const [prefill, decode, both] = fleet.engines as [ThreadEngine, ThreadEngine, ThreadEngine]
  const { json: view } = await fleet.send('/workers')
  t.match(view.workers, [
    { role: { value: 'prefill', source: 'given' }, handover: { value: 'kv_transfer' } },
    { role: { value: 'decode', source: 'given' } },
    { role: { value: 'both', source: 'default' } },
  ])

  for (const { path, body } of ROUTES)
    for (const stream of [false, true]) {
      const what = `${path}${stream ? ', a stream' : ''}`
      const given = { ...body(text(what)), ...(stream ? { stream } : {}) }
      const computed = (await served(prefill)).length
      const answer = await fleet.send(path, { body: given, headers: { 'x-dynamo-worker-instance-id': '20' } })
      t.equal(answer.status, 200, `${what}: ${answer.text}`)
      t.equal(fleet.engineOf(answer.headers['x-homing-worker']).url, decode.url, what)
      t.equal(fleet.engineOf(answer.headers['x-homing-prefill-worker']).url, prefill.url, what)
      const requests = await served(prefill)
      t.equal(requests.length, computed + 1, `${what}: one prefill`)
      t.match(requests.at(-1), { outputTokens: 1, outcome: 'finished' })
      t.match((await served(decode)).at(-1), { outcome: 'finished' })
      const { promptTokens, cachedTokens } = (await decode.state()).requests.at(-1)!
      t.equal(cachedTokens, promptTokens - 1, `${what}: nothing but the last token is computed again`)
      const whole = await fleet.send(path, { body: { ...given, nvext: { backend_instance_id: 30 } } })
      t.equal(whole.headers['x-homing-prefill-worker'], undefined)
      t.equal(fleet.engineOf(whole.headers['x-homing-worker']).url, both.url)
      t.equal(shapeOf(answer), shapeOf(whole), what)
    }
  t.equal(await legs(fleet, 'handed_over'), 2 * ROUTES.length)

  // A conversation grows: its prefill follows the prefix, its decode goes by load.
  let last = ''
  for (const turn of [1, 2, 3]) {
    last += text(`turn ${turn}`)
    const grown = await fleet.send(CHAT.path, { body: CHAT.body(last) })
    t.equal(grown.status, 200)
    await fleet.caughtUp(fleet.engines)
    const { json: receipt } = await fleet.send(`/decisions/${grown.headers['x-homing-decision']}`)
    t.match(receipt, { leg: 'decode', worker: grown.headers['x-homing-worker'], prefill: { leg: 'prefill' } })
    t.equal(receipt.prefill.worker, grown.headers['x-homing-prefill-worker'])
    t.match(receipt.prefill.delivered, { outcome: 'ok' })
    if (turn > 1) t.ok(receipt.prefill.overlap_blocks > 0, `turn ${turn} finds its prefix`)
    t.notOk(receipt.candidates.some((one: { worker: string }) => one.worker === receipt.prefill.worker))
  }

  // Pins of either leg.
  const pinned = (nvext: object, headers = {}) =>
    fleet.send(CHAT.path, { body: { ...CHAT.body('a pinned chat'), nvext }, headers })
  t.match(await pinned({ prefill_worker_id: 10, decode_worker_id: 30 }), { status: 200 })
  const byHeader = await pinned({}, { 'x-prefill-instance-id': '10', 'x-worker-instance-id': '20' })
  t.equal(fleet.engineOf(byHeader.headers['x-homing-prefill-worker']).url, prefill.url)
  const wrong = await pinned({ prefill_worker_id: 20 })
  t.equal(wrong.status, 503, wrong.text)
  t.match(wrong.json.error.message, /is no prefill worker \(role=decode\)/)
  t.equal((await pinned({ prefill_worker_id: 4711 })).status, 400)
  const ordinary = await pinned({ backend_instance_id: 10 })
  t.equal(ordinary.status, 503)
  t.match(ordinary.json.error.message, /computes prompts only \(role=prefill\)/)
  t.match(await pinned({}, { 'x-prefill-instance-id': '30' }), { status: 503 })

  // What does not go in two legs goes to one worker.
  const several = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt: ['one', 'two'], max_tokens: 2 },
  })
  t.equal(several.status, 200)
  t.equal(await alone(fleet, 'unfit'), 1)
  const twice = await fleet.send('/v1/chat/completions', { body: { ...CHAT.body('two of it'), n: 2 } })
  t.equal(twice.json.choices.length, 2)

  // A prefill worker that fails, and a decode worker that fails the hand-over.
  const ask = (marker: string) => fleet.send(CHAT.path, { body: CHAT.body(text(marker)) })
  for (const [i, fault] of (['error', 'die'] as const).entries()) {
    await prefill.faults({ [fault]: { tokens: 0, requests: 1 } })
    const answer = await ask(fault)
    t.equal(answer.status, 200, answer.text)
    t.equal(answer.headers['x-homing-prefill-worker'], undefined)
    t.equal(await legs(fleet, 'failed'), i + 1)
    t.equal(await alone(fleet, 'failed'), i + 1)
  }
  for (const engine of [decode, both]) await engine.faults({ error: { tokens: 0, requests: 1 } })
  t.equal((await ask('lost')).status, 200)
  t.equal(await alone(fleet, 'lost'), 1)
  for (const engine of [decode, both]) await engine.faults({ error: { tokens: 0, requests: 0 } })

  // A client that leaves while its prompt is computed.
  await prefill.faults({ slowMs: 60_000 })
  const leaving = new AbortController()
  const left = fleet.send(CHAT.path, { body: CHAT.body(text('leaves')), signal: leaving.signal })
  const isOutcome = async (outcome: string) =>
    (await prefill.state()).requests.at(-1)?.outcome === outcome ? true : undefined
  await until('the prompt is being computed', () => isOutcome('running'))
  leaving.abort()
  await t.rejects(left)
  await until('the engine has let go of it', () => isOutcome('aborted'))
  await prefill.faults({ slowMs: 0 })
  await isEmpty(t, fleet)

  // It is gone.
  await fetch(`${prefill.url}/admin/kill`, { method: 'POST' })
  t.equal((await ask('gone')).status, 200)
  await stateOf(fleet, 'unavailable')
  t.equal((await ask('still gone')).status, 200)
  t.ok((await alone(fleet, 'inactive')) >= 1)
  await fleet.drained()
})

t.test('SGLang: both legs are sent at once and meet, in either order of start', async t => {
  const { engines, stop } = await startEngines([
    { ...SGLANG, role: 'prefill', ranks: 2, handoverMsMax: HANDOVER_MS_MAX },
    { ...SGLANG, role: 'prefill', handoverMsMax: HANDOVER_MS_MAX },
  ])
  t.teardown(stop)
  const [prefill, other] = engines as [ThreadEngine, ThreadEngine]
  // The decode worker is there first.
  const fleet = await startFleet({
    engines: [{ ...SGLANG, role: 'decode' }, SHARED],
    workerQuery: (_, position) => (position === 0 ? '' : '?model=plain'),
  })
  t.teardown(() => fleet.stop())
  const decode = fleet.engines[0]!
  const ask = (marker: string, stream = false, more = {}) =>
    fleet.send(CHAT.path, { body: { ...CHAT.body(text(marker)), ...(stream ? { stream } : {}), ...more } })
  await stateOf(fleet, 'pending')
  const early = await ask('early')
  t.equal(early.status, 503, early.text)
  t.match(early.json.error.message, /takes no prompt that no prefill worker has computed \(role=decode\)/)

  const added = await fleet.send('/workers', { body: { url: prefill.url } })
  t.ok(added.status < 300, added.text)
  await stateOf(fleet, 'active')
  const view = await fleet.worker(prefill.url)
  t.match(view, {
    role: { value: 'prefill', source: 'probed' },
    handover: { value: 'bootstrap', source: 'probed' },
    bootstrap: { host: '127.0.0.1', port: { value: prefill.description.port, source: 'probed' } },
  })
  const expected = await fetch(`${fleet.engines[1]!.url}${CHAT.path}`, {
    method: 'POST',
    body: JSON.stringify(CHAT.body(text('whole'))),
  }).then(answer => answer.json() as Promise<{ choices: unknown }>)
  for (const stream of [false, true])
    for (const marker of ['whole', 'one', 'two', 'three']) {
      const answer = await ask(marker, stream)
      t.equal(answer.status, 200, answer.text)
      t.equal(fleet.engineOf(answer.headers['x-homing-worker']).url, decode.url)
      t.ok(answer.headers['x-homing-prefill-worker']?.startsWith(view.id))
      if (stream) t.ok(chunksOf(answer.text).length > 0)
      else if (marker === 'whole') t.strictSame(answer.json.choices, expected.choices)
    }
  await until('the answers of all prefill legs came', async () =>
    (await legs(fleet, 'handed_over')) === 8 ? true : undefined,
  )
  const { requests } = await prefill.state()
  t.equal(requests.length, 8)
  t.ok(requests.every(({ outputTokens }) => outputTokens === 1))
  t.strictSame([...new Set(requests.map(({ rank }) => rank))].sort(), [0, 1], 'both ranks')

  // One that dies while the decode worker waits: another takes its place.
  await fleet.send('/workers', { body: { url: other.url } })
  await until('both are up', async () => ((await fleet.worker(other.url)).state === 'up' ? true : undefined))
  await prefill.faults({ die: { tokens: 0, requests: 100 } })
  await other.faults({ slowMs: 1 })
  for (const marker of ['four', 'five', 'six', 'seven']) {
    const answer = await ask(marker)
    t.equal(answer.status, 200, answer.text)
  }
  // A client that leaves while both legs are under way.
  await prefill.faults({ die: { tokens: 0, requests: 0 }, slowMs: 60_000 })
  await other.faults({ slowMs: 60_000 })
  const leaving = new AbortController()
  const left = fleet.send(CHAT.path, { body: CHAT.body(text('leaves')), signal: leaving.signal })
  const outcomes = async (): Promise<readonly string[]> =>
    (await Promise.all([prefill.state(), other.state()])).map(
      ({ requests: all }) => all.at(-1)?.outcome ?? '',
    )
  await until('a prefill leg runs', async () => ((await outcomes()).includes('running') ? true : undefined))
  leaving.abort()
  await t.rejects(left)
  await until('it is let go', async () => ((await outcomes()).includes('running') ? undefined : true))
  for (const engine of [prefill, other]) await engine.faults({ slowMs: 0 })
  await isEmpty(t, fleet)
  for (const engine of [prefill, other])
    await until('no room is open', async () => ((await engine.state()).handovers === 0 ? true : undefined))
})

t.test('enforced, a prompt goes to a prefill worker of its domain or nowhere', async t => {
  const { engines, stop } = await startEngines([{ ...SHARED, role: 'prefill' }])
  t.teardown(stop)
  const prefill = engines[0]!
  const fleet = await startFleet({
    engines: [{ ...SHARED, role: 'decode' }, SHARED],
    workerQuery: (_, position) =>
      position === 0 ? '?role=decode&taints=topology/zone=a' : '?taints=topology/zone=b',
    router: [
      '--enforce-disagg',
      '--router-conditional-disagg',
      '--router-conditional-disagg-tokens=200',
      '--active-prefill-tokens-threshold=1000000',
    ],
  })
  t.teardown(() => fleet.stop())
  const ask = (marker: string, nvext = {}) =>
    fleet.send(CHAT.path, { body: { ...CHAT.body(text(marker)), nvext } })
  const add = async (zone: string, id: number) => {
    const url = `${prefill.url}?role=prefill&id=${id}&taints=topology/zone=${zone}`
    const added = await fleet.send('/workers', { body: { url } })
    t.ok(added.status < 300, added.text)
    await until('it is up', async () => ((await fleet.worker(prefill.url)).state === 'up' ? true : undefined))
  }
  const remove = async () => {
    await fleet.send(`/workers/${(await fleet.worker(prefill.url)).id}`, { method: 'DELETE' })
  }
  const before = await ask('before')
  t.equal(before.status, 503, before.text)
  t.match(before.json.error, { message: /prefill of this model is pending/, code: 'no_worker' })

  await add('c', 10)
  const elsewhere = await ask('elsewhere', { prefill_worker_id: 10 })
  t.equal(elsewhere.status, 503, elsewhere.text)
  t.match(elsewhere.json.error.message, /no decode worker that is up takes over .* in topology\/zone=c/)
  await remove()
  await add('b', 11)
  const there = await ask('there', { prefill_worker_id: 11 })
  t.equal(there.status, 200, there.text)
  t.equal(fleet.engineOf(there.headers['x-homing-worker']).url, fleet.engines[1]!.url, 'in its zone')

  // What a decode worker holds is not computed elsewhere.
  await fleet.caughtUp(fleet.engines)
  const cached = await ask('there')
  t.equal(cached.status, 200, cached.text)
  t.equal(cached.headers['x-homing-prefill-worker'], undefined)
  t.equal(await alone(fleet, 'cached'), 1)

  // Busy thresholds hold for prefill workers, too.
  await fleet.send('/busy_threshold', { body: { model: MODEL, active_prefill_tokens_threshold: 100 } })
  // None ends before one is refused, however slow the machine.
  await prefill.faults({ hang: 'generation' })
  const asked = Array.from({ length: 6 }, (_, i) => ask(`many ${i}`))
  await Promise.any(
    asked.map(async one => {
      if ((await one).status !== 503) throw new Error('not refused')
    }),
  )
  await prefill.faults({ hang: 'off' })
  const many = await Promise.all(asked)
  t.ok(many.every(({ status }) => status === 503 || status === 200))
  await isEmpty(t, fleet)
  await remove()
  await stateOf(fleet, 'pending')
  t.equal((await ask('after')).status, 503)
})

t.test('by --disagg-rule auto a prompt goes apart when it would hold up answers', async t => {
  const fleet = await startFleet({
    engines: [
      { ...SHARED, role: 'prefill' },
      { ...SHARED, role: 'decode', speed: 1 },
    ],
    workerQuery: (_, position) => ['?role=prefill', '?role=decode'][position]!,
    router: ['--disagg-rule=auto'],
  })
  t.teardown(() => fleet.stop())
  await stateOf(fleet, 'active')
  const ask = (marker: string, words: number) =>
    fleet.send(CHAT.path, { body: CHAT.body(text(marker, words)) })
  const whole = await ask('idle', 1000)
  t.equal(whole.status, 200, whole.text)
  t.equal(whole.headers['x-homing-prefill-worker'], undefined, 'nothing waits for the worker that answers')
  t.equal(await alone(fleet, 'cheaper'), 1)
  const { json: idle } = await fleet.send(`/decisions/${whole.headers['x-homing-decision']}`)
  const { whole_ms: wholeMs, prefill_ms, transfer_ms, decode_ms } = idle.leg_costs
  t.ok(wholeMs > 0 && prefill_ms > 0 && transfer_ms > 0 && decode_ms > 0)
  t.ok(prefill_ms + transfer_ms + decode_ms >= wholeMs)

  const leaving = new AbortController()
  await Promise.all(
    Array.from({ length: 8 }, async (_, i) => {
      const body = { ...CHAT.body(text(`stream ${i}`, 5)), max_tokens: 4000, stream: true }
      const { body: events } = await open(fleet.url, CHAT.path, { body, signal: leaving.signal })
      // Its end is that of the test.
      events.on('error', () => {})
      await new Promise(resolve => events.once('data', resolve))
    }),
  )
  const apart = await ask('busy', 1500)
  t.equal(apart.status, 200, apart.text)
  t.ok(apart.headers['x-homing-prefill-worker'], 'eight answers would wait')
  const { json: busy } = await fleet.send(`/decisions/${apart.headers['x-homing-decision']}`)
  t.match(busy, { leg: 'decode', leg_costs: { whole_ms: Number } })
  t.ok(
    busy.leg_costs.prefill_ms + busy.leg_costs.transfer_ms + busy.leg_costs.decode_ms <
      busy.leg_costs.whole_ms,
  )
  leaving.abort()
  await isEmpty(t, fleet)
})

t.test('what a hand-over takes is learned from streams', async t => {
  const fleet = await startFleet({
    engines: [
      { ...SHARED, role: 'prefill' },
      { ...SHARED, role: 'decode', speed: 1, transferMs: 400 },
    ],
    workerQuery: (_, position) => ['?role=prefill&id=10', '?role=decode&id=20'][position]!,
    router: ['--disagg-rule=auto'],
  })
  t.teardown(() => fleet.stop())
  await stateOf(fleet, 'active')
  const transferMs = async (marker: string): Promise<number> => {
    const { headers } = await fleet.send(CHAT.path, { body: CHAT.body(text(marker)) })
    const { json } = await fleet.send(`/decisions/${headers['x-homing-decision']}`)
    return json.leg_costs.transfer_ms
  }
  const before = await transferMs('before')
  t.ok(before < 100, `${before}: nothing was seen`)
  for (let i = 0; i < 12; i++) {
    const body = { ...CHAT.body(text(`${i}`)), stream: true, nvext: { prefill_worker_id: 10 } }
    const answer = await fleet.send(CHAT.path, { body })
    t.ok(answer.headers['x-homing-prefill-worker'], answer.text)
  }
  const after = await transferMs('after')
  t.ok(after > 200, `${after}: each took 400`)
  await isEmpty(t, fleet)
})
