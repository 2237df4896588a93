/**
 * Faults on the way of a request, and what must hold nevertheless: it gets one answer, and no booking is left
 * behind.
 */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import {
  chunksOf,
  RouterClient,
  startEngines,
  startFleet,
  startProcess,
  startTestRouter,
  until,
} from './fleet.ts'
import { complete, MODEL, pin, promptOf } from './pinned-prompts.ts'

t.test(
  'before the first byte a request is placed again; after it no stream is, where none may go on',
  async t => {
    const fleet = await startFleet({
      engines: [{}, {}],
      router: ['--log-level', 'silent', '--migration-limit', '0'],
    })
    t.teardown(() => fleet.stop())
    const [first, second] = fleet.engines
    // Overlap draws the request to this engine; a pin would forbid to go elsewhere.
    const shape = (engine: number, more: object) => ({
      model: MODEL,
      prompt: promptOf(engine),
      max_tokens: 30,
      ...more,
    })
    await complete(fleet, promptOf(0), await pin(fleet, 0))
    await fleet.caughtUp(fleet.engines)

    await first!.faults({ refuse: 100 })
    const refused = await fleet.send('/v1/completions', { body: shape(0, {}) })
    t.equal(refused.status, 200, 'another worker takes what one refuses')
    t.equal(fleet.engineOf(refused.headers['x-homing-worker']).url, second!.url)
    await second!.faults({ refuse: 100 })
    const none = await fleet.send('/v1/completions', { body: shape(0, {}) })
    t.equal(none.status, 503, 'the refusal of the last worker is passed on')
    for (const engine of fleet.engines) await engine.faults({ refuse: 0 })

    await backUp(fleet)
    await first!.faults({ die: { tokens: 0, requests: 1 } })
    const once = await fleet.send('/v1/completions', { body: shape(0, {}) })
    t.equal(once.status, 200, 'a connection that broke is tried again')

    await first!.faults({ die: { tokens: 0, requests: 2 } })
    await second!.faults({ die: { tokens: 0, requests: 0 } })
    const twice = await fleet.send('/v1/completions', { body: shape(0, { stream: true }) })
    t.equal(twice.status, 200)
    t.equal(chunksOf(twice.text).length, 30, 'and then elsewhere')

    await backUp(fleet)
    await first!.faults({ die: { tokens: 3, requests: 1 } })
    await second!.faults({ die: { tokens: 3, requests: 1 } })
    const whole = await fleet.send('/v1/completions', { body: shape(0, {}) })
    t.equal(whole.status, 200, 'of a whole answer nothing has come before all of it has')
    for (const engine of fleet.engines) await engine.faults({ die: { tokens: 0, requests: 0 } })

    await backUp(fleet)
    for (const engine of fleet.engines) await engine.faults({ die: { tokens: 3, requests: 1 } })
    const stream = await fleet.send('/v1/completions', { body: shape(0, { stream: true }) })
    for (const engine of fleet.engines) await engine.faults({ die: { tokens: 0, requests: 0 } })
    const events = stream.text.split('\n\n').filter(Boolean)
    t.equal(stream.status, 200)
    t.equal(events.length, 4, 'three tokens')
    t.match(JSON.parse(events[3]!.slice('data: '.length)), {
      error: { code: 'upstream_failed', message: /cannot/ },
    })

    await backUp(fleet)
    for (const engine of fleet.engines) await engine.faults({ error: { tokens: 3, requests: 1 } })
    const own = await fleet.send('/v1/completions', { body: shape(0, { stream: true }) })
    for (const engine of fleet.engines) await engine.faults({ error: { tokens: 0, requests: 0 } })
    t.match(own.text, /"The engine failed on demand"/, "an engine's own error event comes through")
    await fleet.drained()
    const receipt = await fleet.send(`/decisions/${own.headers['x-homing-decision']}`)
    t.equal(receipt.json.delivered.outcome, 'error')
  },
)

t.test('an answer of which only the head has come is placed again', async t => {
  const broken = await headOnlyWorker()
  t.teardown(() => broken.close())
  const fleet = await startFleet({
    engines: [{}],
    otherWorkers: [`${broken.url}?block_size=16`],
    router: ['--router-mode', 'round-robin', '--log-level', 'silent'],
    trust: undefined,
  })
  t.teardown(() => fleet.stop())
  for (const stream of [true, false, true, false]) {
    await backUp(fleet)
    const answer = await fleet.send('/v1/completions', {
      body: { model: MODEL, prompt: promptOf(1), max_tokens: 5, stream },
    })
    t.equal(answer.status, 200, answer.text)
    t.equal(answer.headers['x-homing-worker'], `${new URL(fleet.engines[0]!.url).host}/0`)
    if (stream) t.equal(chunksOf(answer.text).length, 5)
    else t.equal(answer.json.usage.completion_tokens, 5)
  }
  t.ok(broken.heads() >= 2, `${broken.heads()} heads were sent by the worker that then broke the connection`)
  await fleet.drained()
})

t.test('a client that leaves a hung engine frees its booking, and silence has an end', async t => {
  const fleet = await startFleet({
    engines: [{}],
    router: ['--silence-timeout', '10m', '--log-level', 'silent', '--retries', '0'],
  })
  t.teardown(() => fleet.stop())
  await fleet.engines[0]!.faults({ hang: 'generation' })
  const controller = new AbortController()
  const call = { body: { model: MODEL, prompt: promptOf(1), max_tokens: 5 }, signal: controller.signal }
  const asked = fleet.send('/v1/completions', call).catch((error: Error) => error)
  await until('it is booked', async () =>
    (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!.load.requests === 1 ? true : undefined,
  )
  controller.abort()
  t.ok((await asked) instanceof Error)
  await fleet.drained()
  t.pass('the booking is freed before the silence would have ended it')

  const impatient = await startTestRouter(
    fleet.engines.map(({ url }) => url),
    ['--silence-timeout', '500ms', '--log-level', 'silent', '--retries', '0'],
  )
  t.teardown(() => impatient.stop(0))
  const asker = new RouterClient(impatient.url)
  await asker.trusted()
  const silent = await asker.send('/v1/completions', { body: call.body })
  t.equal(silent.status, 504)
  t.equal(silent.json.error.code, 'timeout')
  t.equal(silent.headers['x-should-retry'], 'false')
  await asker.drained()
  await fleet.engines[0]!.faults({ hang: 'off' })
  await backUp(asker)
  await backUp(fleet)
  await complete(fleet, promptOf(1))
})

t.test('SIGTERM lets open streams end, takes nothing new, and exits with 0', async t => {
  const { engines, stop } = await startEngines([{ speed: 1 }])
  t.teardown(stop)
  const child = await startProcess('router', [
    ...[
      '--port',
      '0',
      '--host',
      '127.0.0.1',
      '--worker',
      engines[0]!.url,
      '--shutdown-timeout',
      '10m',
      // A slow machine is no warning.
      '--probe-timeout',
      '10s',
      '--detach',
    ],
  ])
  t.teardown(() => child.kill('SIGKILL'))
  const router = new RouterClient(child.url)
  // The stream does not end before a request has been refused, however slow the machine.
  await engines[0]!.faults({ slowMs: 500 })
  const stream = await router.open('/v1/completions', {
    body: { model: MODEL, prompt: promptOf(1), max_tokens: 150, stream: true },
  })
  const parts: Buffer[] = []
  stream.body.on('data', (bytes: Buffer) => parts.push(bytes))
  const ended = once(stream.body, 'end')
  await once(stream.body, 'data')
  child.kill('SIGTERM')
  const refusal = await until('new requests are refused', async () => {
    try {
      const answer = await router.send('/v1/completions', {
        body: { model: MODEL, prompt: promptOf(2), max_tokens: 1 },
      })
      if (answer.status === 200) return undefined
      assert.equal(answer.status, 503)
      assert.equal(answer.json.error.code, 'shutting_down')
      return 'with 503'
    } catch (thrown) {
      if (thrown instanceof assert.AssertionError) throw thrown
      return `at the door: ${(thrown as Error).message}`
    }
  })
  t.comment(`refused ${refusal}`)
  t.notOk(Buffer.concat(parts).toString().includes('[DONE]'), 'while the stream is still open')
  await engines[0]!.faults({ slowMs: 0 })
  await ended
  t.equal(chunksOf(Buffer.concat(parts).toString()).length, 150, 'the stream has ended as it should')
  t.equal(await child.ended, 0)
  const lines = child.errorLines.map(line => JSON.parse(line) as LogLine)
  // Requests that came too late and were refused for that.
  const others = lines.filter(({ error }) => error?.code !== 'HOMING_GATEWAY_SHUTTING_DOWN')
  t.strictSame(
    others.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
  t.equal(lines.at(-1)!.cutRequests, 0)
})

interface LogLine {
  readonly level: string
  readonly cutRequests?: number
  readonly error?: { readonly code: string }
}

/** A worker that sends heads and nothing behind them. */
async function headOnlyWorker(): Promise<{ readonly url: string; heads(): number; close(): void }> {
  let heads = 0
  const server = createServer((request, response) => {
    if (request.url === '/v1/models') return void response.end(JSON.stringify({ data: [{ id: MODEL }] }))
    if (request.method !== 'POST' || request.url === '/tokenize') return void response.writeHead(404).end()
    request.resume().on('end', () => {
      heads++
      const type = heads % 2 === 0 ? 'application/json' : 'text/event-stream'
      response.writeHead(200, { 'content-type': type }).flushHeaders()
      // The head leaves first.
      setImmediate(() => setImmediate(() => response.destroy()))
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    heads: () => heads,
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}

/** Resolves when every worker is up again: a failure has made the router suspect it. */
async function backUp(fleet: RouterClient): Promise<void> {
  let seen: unknown
  await until(
    'every worker is up',
    async () => {
      const workers = await fleet.workers()
      seen = workers.map(({ id, state, state_reason }) => ({ id, state, state_reason }))
      return workers.every(({ state }) => state === 'up') ? true : undefined
    },
    { seen: () => seen },
  )
}
