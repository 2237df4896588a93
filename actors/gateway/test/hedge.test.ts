/** A stream whose first token is late is asked of a second worker: who is left, and what is settled. */

import assert from 'node:assert/strict'
import process from 'node:process'
import { seededRandom } from '@homing/base'
import { FirstTokenTimes } from '@homing/load'
import t, { type Test } from 'tap'
import { decisionFor } from './call-world.ts'
import { start as startWorld } from './gateway-world.ts'
import { fleetOf, READ, WORKER } from './sample-records.ts'
import { data, die, end, finish, head, WorkerExchange } from './worker-exchange.ts'

const LIMITS = {
  ...{ retriesMax: 2, retryShare: 1, stallMsMin: 0, silenceMsMax: 60_000, requestMsMax: 0 },
  ...{ hedgeMsMin: 100, hedgeRule: 'fixed' as const },
}
const CHAT = '/v1/chat/completions'
const SSE = { 'content-type': 'text/event-stream' }
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const RUNS = Number(process.env['HOMING_FAULTS_RUNS'] ?? 100)

const text = (content: string, reason: string | null = null): string =>
  `data: ${JSON.stringify({ id: 'a', choices: [{ index: 0, delta: { content }, finish_reason: reason }] })}\n\n`
const begin = (content: string) => [head(200, SSE), data(text(content))]
const rest = (content: string) => finish(`${text(content, 'stop')}data: [DONE]\n\n`)

/** Workers at ports 1, 2, 3, in the order in which the router chooses them; the test says what they do. */
async function world(t: Test, read: Partial<typeof READ> = {}, limits: Partial<typeof LIMITS> = {}) {
  let port = 0
  const calls: WorkerExchange[] = []
  const started = await startWorld(
    t,
    { exchangeLimits: { ...LIMITS, ...limits }, audit: false },
    {
      read: () => ({ kind: 'read', request: { ...READ, isStream: true, ...read } }),
      decide: (_, id) => {
        port++
        if (port <= 3) return { kind: 'decided', decision: { ...decisionFor(port), id } }
        return { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'none', details: {} } }
      },
    },
    { hasWorker: false },
  )
  for (const at of [1, 2, 3])
    await started.serve(at, http => {
      const call = new WorkerExchange(http, started.log.asked.at(-1)!)
      calls[at - 1] = call
      http.readBody(100_000).catch(() => {})
      http.onClientGone(() => {
        call.isGone = true
      })
    })
  const post = (path = CHAT) =>
    started.ask('POST', path, { body: '{"model":"m","messages":[],"stream":true}' })
  const does = async (worker: number, ...acts: ((http: WorkerExchange['http']) => void)[]): Promise<void> => {
    for (const act of acts) act(calls[worker - 1]!.http)
    await started.system.settle()
  }
  const settled = () =>
    started.log.settled.map(({ delivery: { outcome, otherLeg }, isPlacedAgain }) => ({
      outcome,
      isPlacedAgain,
      otherLeg: otherLeg === undefined ? undefined : (started.log.names.get(otherLeg) ?? otherLeg),
    }))
  const outcomes = async (): Promise<Readonly<Record<string, number>>> => {
    const { body } = await started.ask('GET', '/metrics')
    const found = [
      ...body.matchAll(/^homing_gateway_hedge(?:s_total\{outcome="(\w+)"\}|_(tokens)_total) (\d+)$/gm),
    ]
    return Object.fromEntries(found.map(([, outcome, tokens, count]) => [outcome ?? tokens, Number(count)]))
  }
  return { ...started, calls, post, does, settled, outcomes }
}

t.test('the second worker is quicker: the client gets its stream, and the first one is left', async t => {
  const { post, does, calls, system, log, settled, outcomes } = await world(t)
  const client = await post()
  await does(1, head(200, SSE), data(': waiting\n\n'))
  await system.advance(99)
  t.equal(calls.length, 1)
  await system.advance(1)
  t.strictSame(log.asked[1]!.excludedWorkers, [decisionFor(1).workerId])
  t.match(log.asked[1]!.hedges, { decisionId: 'decision-1' })
  t.strictSame(settled(), [])
  await does(2, ...begin('two'))
  t.equal(calls[0]!.isGone, true)
  t.strictSame(settled(), [{ outcome: 'aborted', isPlacedAgain: true, otherLeg: 'decision-2' }])
  await does(2, rest(' more'))
  t.equal(client.body, `${text('two')}${text(' more', 'stop')}data: [DONE]\n\n`)
  t.equal(client.headers['x-homing-worker'], decisionFor(2).worker)
  t.strictSame(settled()[1], { outcome: 'ok', isPlacedAgain: false, otherLeg: undefined })
  t.match(await outcomes(), { won: 1, tokens: decisionFor(1).prefillTokens })
})

t.test('the first worker is quicker in the end: the second one is left', async t => {
  const { post, does, calls, system, settled, outcomes } = await world(t)
  const client = await post()
  await system.advance(100)
  t.equal(calls.length, 2)
  await does(1, ...begin('one'), rest(' more'))
  t.equal(calls[1]!.isGone, true)
  t.match(client.body, /"one".*DONE/s)
  t.strictSame(settled(), [
    { outcome: 'aborted', isPlacedAgain: true, otherLeg: 'decision-1' },
    { outcome: 'ok', isPlacedAgain: false, otherLeg: undefined },
  ])
  t.match(await outcomes(), { lost: 1, tokens: decisionFor(2).prefillTokens })
})

t.test('nothing is asked twice that begins in time, or that another worker may not have', async t => {
  const inTime = await world(t)
  await inTime.post()
  await inTime.does(1, ...begin('one'))
  await inTime.system.advance(1000)
  t.equal(inTime.log.asked.length, 1, 'its first token has come')
  for (const [why, read, limits, path] of [
    ['a whole answer', { isStream: false }, {}, CHAT],
    ['a pin', { pinnedInstanceId: 7 }, {}, CHAT],
    ['a response, which its engine keeps', {}, {}, '/v1/responses'],
    ['it is off', {}, { hedgeMsMin: 0 }, CHAT],
    ['auto, and nothing was seen', {}, { hedgeRule: 'auto' }, CHAT],
  ] as const) {
    const given = await world(t, read as never, limits as never)
    await given.post(path)
    await given.system.advance(5000)
    t.equal(given.log.asked.length, 1, why)
  }
})

t.test('the first worker fails meanwhile: the second one has the request', async t => {
  for (const fails of [[die], [head(500), end]]) {
    const { post, does, calls, system, log, settled } = await world(t)
    const client = await post()
    await system.advance(100)
    await does(1, ...fails)
    t.equal(log.asked.length, 2, 'no third one is asked')
    await does(2, ...begin('two'), rest(' more'))
    t.match(client.body, /"two".*DONE/s)
    t.match(settled(), [{ outcome: 'error', otherLeg: 'decision-2' }, { outcome: 'ok' }])
    t.equal(calls.length, 2)
  }
})

t.test('the second worker fails: the first one goes on alone', async t => {
  for (const fails of [[die], [head(500), end], [head(400), finish('{}')]]) {
    const { post, does, system, settled, outcomes, log } = await world(t)
    const client = await post()
    await system.advance(100)
    await does(2, ...fails)
    await system.advance(1000)
    t.equal(log.asked.length, 2)
    await does(1, ...begin('one'), rest(' more'))
    t.match(client.body, /"one".*DONE/s)
    t.match(settled(), [{ outcome: 'error', otherLeg: 'decision-1' }, { outcome: 'ok' }])
    t.match(await outcomes(), { failed: 1 })
  }
})

t.test('no second worker is asked past the retry budget, and none where none may', async t => {
  const { post, system, calls, settled, script, outcomes, log } = await world(t, {}, { retryShare: 0 })
  script.decide = (request, id) =>
    request.hedges === undefined
      ? { kind: 'decided', decision: { ...decisionFor(1), id } }
      : { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_HEDGE', message: 'busy', details: {} } }
  const client = await post()
  await system.advance(100)
  t.match(await outcomes(), { not_placed: 1 })
  t.strictSame(settled(), [{ outcome: 'aborted', isPlacedAgain: true, otherLeg: undefined }])
  client.call.abort()
  await system.settle()
  script.decide = (request, id) => ({
    kind: 'decided',
    decision: { ...decisionFor(request.hedges === undefined ? 1 : 2), id },
  })
  for (let at = 0; at < 17; at++) {
    const asked = await post()
    await system.advance(100)
    asked.call.abort()
    await system.settle()
  }
  t.match(await outcomes(), { budget: 1, lost: 16 })
  t.equal(log.settled.length, 1 + 1 + 16 * 2 + 1)
  t.ok(calls.every(({ isGone }) => isGone))
})

t.test('streams that are late together overdraw nothing, and leave half to those that fail', async t => {
  for (const mayPlace of [true, false]) {
    const { post, does, system, script, outcomes, log } = await world(t, {}, { retryShare: 0 })
    script.decide = (request, id) =>
      request.hedges === undefined
        ? { kind: 'decided', decision: { ...decisionFor(1), id } }
        : mayPlace
          ? { kind: 'decided', decision: { ...decisionFor(2), id } }
          : { kind: 'refused', error: { code: 'HOMING_ROUTER_NO_HEDGE', message: 'busy', details: {} } }
    // Ten at a time: the gateway has room for no more.
    for (let at = 0; at < 40; at += 10) {
      const clients = []
      for (let i = 0; i < 10; i++) clients.push(await post())
      await system.advance(100)
      for (const { call } of clients) call.abort()
      await system.settle()
    }
    if (mayPlace) t.match(await outcomes(), { lost: 16, budget: 24 })
    else t.match(await outcomes(), { not_placed: 40 }, 'what is not placed costs nothing')
    script.decide = (request, id) => ({
      kind: 'decided',
      decision: { ...decisionFor(request.excludedWorkers.length === 0 ? 1 : 3), id },
    })
    const client = await post()
    await does(1, die)
    await does(3, ...begin('three'), rest(' more'))
    t.match(client.body, /"three".*DONE/s, 'one that fails is placed again')
    t.ok(log.settled.length > 40)
  }
})

t.test('a first worker that fails beside a second one costs no second charge', async t => {
  const { post, does, system, script, outcomes } = await world(t, {}, { retryShare: 0 })
  script.decide = (request, id) => ({
    kind: 'decided',
    decision: { ...decisionFor(request.hedges === undefined ? 1 : 2), id },
  })
  for (let at = 0; at < 17; at++) {
    const client = await post()
    await system.advance(100)
    if (at < 16) {
      await does(1, ...(at % 2 === 0 ? [die] : [head(500), end]))
      await does(2, ...begin('two'), rest(' more'))
      t.match(client.body, /"two".*DONE/s)
    }
    client.call.abort()
    await system.settle()
  }
  t.match(await outcomes(), { won: 16, budget: 1 })
})

t.test('a second worker is blamed for what is its fault, and costs no try', async t => {
  const down = { message: 'no' }
  for (const [what, acts, faults] of [
    ['a bad request', [head(400), finish('{}')], []],
    ['a request that it cannot read', [head(422), finish('{}')], []],
    [
      'a model that it lacks',
      [head(404), finish(JSON.stringify({ error: { message: 'no model' } }))],
      ['lacksModel'],
    ],
    ['no room', [head(503), end], ['failed']],
    ['a connection that breaks', [die], ['failed']],
    [
      'an error for a first event',
      [head(200, SSE), data(`data: ${JSON.stringify({ error: down })}\n\n`)],
      ['failed'],
    ],
  ] as const) {
    const { post, does, system, log } = await world(t, {}, { retriesMax: 1 })
    const client = await post()
    await system.advance(100)
    await does(2, ...acts)
    // What may be the request's fault waits until the first worker has served it.
    await does(1, ...begin('one'))
    t.strictSame(
      log.workerFailed.map(({ workerId, fault }) => [workerId, fault.kind]),
      faults.map(kind => [decisionFor(2).workerId, kind]),
      what,
    )
    client.call.abort()
    await system.settle()
    const again = await world(t, {}, { retriesMax: 1 })
    const other = await again.post()
    await again.system.advance(100)
    await again.does(2, ...(what === 'a connection that breaks' ? [head(503), end] : acts))
    if (what !== 'an error for a first event') {
      await again.does(1, head(503), end)
      await again.does(3, ...begin('three'), rest(' more'))
      t.match(other.body, /"three".*DONE/s, `${what}: a try is left`)
      t.strictSame(again.log.asked.at(-1)!.excludedWorkers, [
        decisionFor(2).workerId,
        decisionFor(1).workerId,
      ])
    }
  }
})

t.test('a second worker that cannot be reached is suspected, and not blamed', async t => {
  const { post, does, system, script, log, directory, outcomes } = await world(t)
  script.decide = (request, id) => ({
    kind: 'decided',
    decision: { ...decisionFor(request.hedges === undefined ? 1 : 9), id },
  })
  await post()
  await system.advance(100)
  t.match(await outcomes(), { failed: 1 })
  t.match(directory.waiting, [{ type: 'suspect', workerId: decisionFor(9).workerId, isUnreachable: true }])
  await does(1, ...begin('one'))
  t.strictSame(log.workerFailed, [])
})

t.test(
  'a stream that is given up at once is no first token, of the second worker nor of the first',
  async t => {
    const done = 'data: [DONE]\n\n'
    for (const reason of ['abort', 'error'])
      for (const given of [text('', reason), text('', reason) + done, text('') + text('', reason) + done]) {
        const second = await world(t)
        const client = await second.post()
        await second.system.advance(100)
        await second.does(2, head(200, SSE), data(given))
        t.equal(second.calls[0]!.isGone, false, 'the first worker is not left')
        await second.does(1, ...begin('one'), rest(' more'))
        t.match(client.body, /"one".*DONE/s)
        t.notMatch(client.body, reason)
        t.match(second.settled(), [{ outcome: 'error', otherLeg: 'decision-1' }, { outcome: 'ok' }])
        t.match(await second.outcomes(), { failed: 1 })
        t.match(second.log.workerFailed, [{ workerId: decisionFor(2).workerId, fault: { kind: 'failed' } }])

        const first = await world(t)
        const other = await first.post()
        await first.system.advance(100)
        await first.does(1, head(200, SSE), data(given))
        await first.does(2, ...begin('two'), rest(' more'))
        t.match(other.body, /"two".*DONE/s)
        t.notMatch(other.body, reason)
        t.match(first.settled(), [{ outcome: 'error', otherLeg: 'decision-2' }, { outcome: 'ok' }])
        const fault = { kind: 'failed', reason: 'gave up the request before its first token' }
        t.match(first.log.workerFailed, [{ workerId: decisionFor(1).workerId, fault }])
      }
  },
)

t.test(
  'a first worker that is silent, or begins with an error, leaves the stream to the second one',
  async t => {
    const { post, does, system } = await world(t)
    const client = await post()
    await system.advance(100)
    await does(1, head(200, SSE), data('data: {"error":{"message":"out of memory"}}\n\n'))
    await does(2, ...begin('two'), rest(' more'))
    t.match(client.body, /^data: [^\n]*"two".*DONE/s)
    const silent = await world(t, {}, { silenceMsMax: 5000, hedgeMsMin: 4000 })
    const waiting = await silent.post()
    await silent.system.advance(8000)
    t.equal(silent.calls[0]!.isGone, true)
    await silent.does(2, ...begin('two'), rest(' more'))
    t.match(waiting.body, /"two".*DONE/s)
  },
)

t.test('a first worker that has drained for too long is left for the second one at once', async t => {
  const { post, does, calls, system, script, ref, log, settled } = await world(t)
  script.measure = () => ({ cachedTokens: 0, boundWorker: undefined })
  const client = await post()
  await system.advance(100)
  const other = { ...WORKER, id: decisionFor(2).workerId, instanceId: 2 }
  ref.tell({ type: 'fleet', fleet: fleetOf(other), overdue: [decisionFor(1).workerId] })
  await system.settle()
  t.equal(calls[0]!.isGone, true)
  await does(2, ...begin('two'), rest(' more'))
  t.match(client.body, /"two".*DONE/s)
  t.match(settled(), [{ outcome: 'aborted', otherLeg: 'decision-2' }, { outcome: 'ok' }])
  t.strictSame(log.workerFailed, [])
  t.equal(log.asked.length, 2)
})

t.test(`whatever two workers do, one stream comes whole, and all is settled (seed ${SEED})`, async t => {
  for (let run = 0; run < RUNS; run++) {
    const seed = SEED * 100_000 + run
    const random = seededRandom(seed)
    const { post, does, calls, system, settled, log } = await world(t)
    const client = await post()
    const acts = (at: number) =>
      [
        [...begin(`${at}a`), data(text(`${at}b`)), rest(`${at}c`)],
        [head(200, SSE), data(': wait\n\n'), ...begin(`${at}a`).slice(1), rest(`${at}c`)],
        [head(500), end],
        [die],
        [...begin(`${at}a`), die],
        [head(404), finish('{"error":{"message":"no"}}')],
        [head(200, SSE), finish(`${text('', 'abort')}data: [DONE]\n\n`)],
        [],
      ][Math.floor(random.next() * 8)]!
    const queues = [acts(1), acts(2), acts(3)]
    for (let turn = 0; turn < 60; turn++) {
      const at = Math.floor(random.next() * 4)
      const act = at < 3 && calls[at] !== undefined && !calls[at].isGone ? queues[at]!.shift() : undefined
      if (act === undefined) await system.advance(Math.floor(random.next() * 60))
      else await does(at + 1, act)
    }
    if (client.end === 'open') {
      client.call.abort()
      await system.settle()
    }
    const ids = log.settled.map(({ id }) => id)
    assert.equal(new Set(ids).size, ids.length, `seed ${seed}: each is settled once`)
    assert.equal(ids.length, log.asked.length, `seed ${seed}: all that was asked for is settled`)
    const served = settled().filter(({ outcome }) => outcome === 'ok')
    assert.ok(served.length <= 1, `seed ${seed}: one serves`)
    const writers = new Set([...client.body.matchAll(/"content":"(\d)/g)].map(([, writer]) => writer))
    assert.ok(writers.size <= 1, `seed ${seed}: of one worker: ${[...writers]}`)
    if (served.length === 1 && client.body.includes('DONE')) assert.match(client.body, /\dc/)
  }
  t.pass(`${RUNS} runs`)
})

t.test('a stream is late after what 95 of 100 took, beyond what their prompts took to compute', async t => {
  const times = new FirstTokenTimes()
  const random = seededRandom(SEED)
  t.equal(times.lateMs(100), undefined)
  for (let at = 0; at < 256; at++) {
    const tokens = Math.floor(random.next() * 10_000)
    times.came(tokens, 50 + 0.1 * tokens + random.next() * 100)
  }
  const [short, long] = [times.lateMs(0)!, times.lateMs(10_000)!]
  t.ok(short > 120 && short < 170, `${short} ms`)
  t.ok(Math.abs(long - short - 1000) < 60, `${long - short} ms for 10,000 tokens`)
  for (let at = 0; at < 256; at++) times.came(100, 5)
  t.equal(times.lateMs(100), 5, 'what was long ago does not count')
})
