/**
 * The decision log of a whole router: one line for every request that it has placed, whatever became of it,
 * and the drain.
 */

import { type LoggedRequest, readLogLine } from '@homing/trace'
import t, { type Test } from 'tap'
import { MemoryFiles } from '../../actors/decision-log/test/memory-files.ts'
import {
  BLOCK_SIZE_TOKENS,
  DECISION_LOG,
  type FleetOptions,
  MODEL,
  SimulatedFleet,
} from './simulated-fleet.ts'

async function start(t: Test, options: Partial<FleetOptions> = {}) {
  const files = new MemoryFiles()
  const fleet = await SimulatedFleet.start({
    seed: 7,
    engines: [{ speed: 1 }, { speed: 1 }],
    decisionFiles: files,
    ...options,
  })
  t.teardown(() => fleet.stop())
  const lines = () =>
    files
      .text(DECISION_LOG)
      .split('\n')
      .slice(0, -1)
      .map(text => {
        const line = readLogLine(text)
        if (typeof line === 'string') throw new Error(`${line}: ${text}`)
        return line
      })
  const requests = (): readonly LoggedRequest[] =>
    lines().flatMap(line => (line.kind === 'request' ? [line.request] : []))
  return { fleet, files, lines, requests }
}

const body = (letter: string, blocks: number, more: object = {}) => ({
  model: MODEL,
  prompt: letter.repeat(blocks * BLOCK_SIZE_TOKENS) + letter,
  max_tokens: 4,
  stream: true,
  stream_options: { include_usage: true },
  ...more,
})

t.test('what was placed is logged with what was predicted and delivered', async t => {
  const { fleet, lines, requests } = await start(t)
  await fleet.ask({}, body('a', 20))
  await fleet.ask({}, body('a', 30))
  await fleet.ask({}, body('b', 5, { stream: false, stream_options: undefined }))
  await fleet.drainRouter(1000)
  const [header] = lines()
  t.match(header, {
    kind: 'header',
    header: {
      selection: { mode: 'kv', policy: 'auto', followsEvents: true },
      workers: [
        { key: '127.0.0.1:8001/0', models: [MODEL], blockTokens: BLOCK_SIZE_TOKENS, stepTokensMax: 8192 },
        { key: '127.0.0.1:8002/0', isUp: true },
      ],
    },
  })
  const [first, second, third] = requests()
  t.match(first, { outcome: 'ok', outputTokens: 4, predictedTokens: 0, cachedTokens: 0, attempts: 1 })
  t.match(second, {
    worker: first!.worker,
    predictedTokens: 20 * BLOCK_SIZE_TOKENS,
    cachedTokens: 20 * BLOCK_SIZE_TOKENS,
  })
  const numbersOf = ({ hashIds }: LoggedRequest) => Array.from(hashIds).slice(0, 20)
  t.strictSame(numbersOf(second!), numbersOf(first!), 'the same prompt, the same numbers')
  t.ok(second!.timestampMs >= first!.timestampMs + Math.floor(first!.totalMs))
  const { firstTokenMs, totalMs, routerMs } = first!
  t.ok(
    routerMs > 0 && routerMs < firstTokenMs! && firstTokenMs! < totalMs,
    `${routerMs} ${firstTokenMs} ${totalMs}`,
  )
  t.match(third, { firstTokenMs: undefined, outcome: 'ok', outputTokens: 4 })
  t.equal(requests().length, 3)
})

t.test('every request that was placed has one line, whatever became of it', async t => {
  const { fleet, requests } = await start(t)
  const { simulation, network } = fleet
  const leaving = new AbortController()
  const left = fleet.send({}, body('a', 4, { max_tokens: 500 }), 60_000, leaving.signal).catch(() => 'left')
  await simulation.run(undefined, { within: 400 })
  leaving.abort(new Error('the client leaves'))
  await simulation.settle(left)
  network.faults.http = ({ path, origin }) =>
    path === '/v1/completions' && !origin.endsWith(':8000') ? 'refuse' : 'deliver'
  const failed = await fleet.ask({}, body('b', 4))
  network.faults.http = undefined
  const unknown = await fleet.ask({}, { ...body('c', 4), model: 'nobody' })
  const malformed = await fleet.ask({}, { model: MODEL })
  t.strictSame(
    [failed, unknown, malformed].map(({ status }) => status),
    [503, 503, 400],
  )
  await fleet.drainRouter(1000)
  const logged = requests()
  t.match(logged, [
    { outcome: 'aborted', wasTaken: true },
    { outcome: 'refused', worker: undefined, wasTaken: false, attempts: 2 },
    // The workers that could not be reached are down, and may come back with that model.
    { outcome: 'refused', worker: undefined, wasTaken: false, error: 'HOMING_ROUTER_MODEL_NOT_LISTED_YET' },
  ])
  t.ok(logged[0]!.outputTokens > 10, 'what came of a stream that was cut counts')
  t.equal(logged.length, 3, 'one that could not be read was never placed')
})

t.test('a thread of the log that dies takes nothing but its lines with it', async t => {
  const { fleet, lines, requests } = await start(t)
  const { simulation } = fleet
  await fleet.ask({}, body('a', 20))
  await simulation.run(() => requests().length === 1, { within: 1000 })
  const thread = simulation.threadNames.find(name => name.startsWith('dedicated'))!
  await simulation.settle(simulation.killThread(thread), { within: 5000 })
  const reply = await fleet.ask({}, body('a', 30))
  t.equal(reply.status, 200)
  await simulation.run(() => requests().length === 2, { within: 5000 })
  t.strictSame(
    lines().map(({ kind }) => kind),
    ['header', 'request', 'header', 'request'],
  )
})

t.test('a full disk does not concern requests, and is a metric', async t => {
  const { fleet, files, requests } = await start(t)
  files.room = 0
  for (const letter of 'abc') t.equal((await fleet.ask({}, body(letter, 2))).status, 200)
  const metrics = async () =>
    Buffer.from((await fleet.ask({ method: 'GET', path: '/metrics' })).body)
      .toString()
      .split('\n')
      .filter(line => line.startsWith('homing_decision_log'))
  t.strictSame(await metrics(), [
    'homing_decision_log_requests_total{outcome="written"} 0',
    'homing_decision_log_requests_total{outcome="dropped"} 0',
    'homing_decision_log_bytes_total 0',
    'homing_decision_log_broken_state 1',
  ])
  files.room = 1e6
  await fleet.simulation.run(() => requests().length === 3, { within: 10_000 })
  t.match(await metrics(), [/written"\} 3/, /dropped"\} 0/, /bytes_total \d{3}/, /broken_state 0/])
})

t.test('the drain writes what was settled last', async t => {
  const { fleet, files, requests } = await start(t)
  const { promise, resolve } = Promise.withResolvers<void>()
  files.hanging = promise
  await fleet.ask({}, body('a', 2))
  fleet.simulation.clock.after(200, resolve)
  await fleet.drainRouter(1000)
  t.equal(requests().length, 1)
})
