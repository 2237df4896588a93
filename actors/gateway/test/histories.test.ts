/**
 * Random histories of a fleet that falls sick and is cured, as the gateway lives through them: real
 * exchanges, health and eligibility over simulated workers and time.
 *
 *   I1  A request whose output has begun is never sent again.
 *   I2  Calls beyond the requests stay within the retry budget, but for one more of each request that a
 *       worker has reset.
 *   I3  A cured worker serves again within the longest back-off and the next request; a worker that was never
 *       sick is never out.
 *   I4  If all workers are ejected, those that failed least are tried: no request is refused for that.
 *   I5  Each request gets one answer, and each decision is settled once.
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import { seededRandom } from '@homing/base'
import type { WorkerRecord } from '@homing/fleet'
import { eligibleByAffinity, type RoutingRequest, WorkerHealth } from '@homing/placement'
import type { HttpExchange } from '@homing/transport'
import t, { type Test } from 'tap'
import { decisionFor } from './call-world.ts'
import { start } from './gateway-world.ts'
import { WORKER_HOST } from './sample-records.ts'
import { utf8 as bytes } from './utf8.ts'

const HISTORIES = Number(process.env['HOMING_LIVES_HISTORIES'] ?? 150)
const REQUESTS = 30
const PORTS = [1, 2, 3]
const RETRY_SHARE = 0.2
const RESERVE = 32
/** The longest back-off, and some time. */
const BACK_MS_MAX = 31_000
const SEED = Number(process.env['HOMING_SEED'] ?? 1)

const JSON_HEAD = { 'content-type': 'application/json' }
const SSE = { 'content-type': 'text/event-stream' }
const EVENT = 'data: {"choices":[{"text":"a"}]}\n\n'

/** What a sick worker does with a call. */
const ILLNESSES: Readonly<Record<string, (http: HttpExchange) => void>> = {
  'answers 500': http => fail(http, 500),
  'answers 503': http => fail(http, 503),
  'answers 429': http => fail(http, 429),
  resets: http => http.destroy(),
  'sends a page': http => {
    http.writeHead(200, { 'content-type': 'text/html' })
    http.end(bytes('<html></html>'))
  },
  'streams nothing': http => {
    http.writeHead(200, SSE)
    http.end(bytes(': comment\n\n'))
  },
  'breaks off': http => {
    http.writeHead(200, SSE)
    http.write(bytes(EVENT))
  },
}
const NAMES = Object.keys(ILLNESSES)

function fail(http: HttpExchange, status: number): void {
  http.writeHead(status, JSON_HEAD)
  http.end(bytes('{"error":{"message":"mine"}}'))
}

const FLEET = {
  version: 1,
  workers: PORTS.map(
    port =>
      ({
        id: `${WORKER_HOST}:${port}`,
        joinedMs: 1,
        state: 'up',
        models: [{ name: 'm' }],
        taints: [],
        keys: [{ key: `${WORKER_HOST}:${port}/0`, dpRank: 0, workerSlot: port }],
      }) as unknown as WorkerRecord,
  ),
}

async function history(test: Test, seed: number): Promise<void> {
  const random = seededRandom(seed)
  const health = new WorkerHealth()
  const decided = new Map<string, { readonly port: number; readonly atMs: number }>()
  const sick = new Map<number, string>()
  const everSick = new Set<number>()
  let nowMs = (): number => 0
  let seenFailed = 0
  let seenSettled = 0
  let calls = 0
  const begun = new Set<string>()
  const reset = new Set<string>()
  let log: Awaited<ReturnType<typeof start>>['log'] | undefined

  /** What the router's actor does with the messages that the gateway sends it. */
  const takeReports = (): void => {
    for (; seenSettled < log!.settled.length; seenSettled++) {
      const { id, delivery } = log!.settled[seenSettled]!
      const name = log!.names.get(id)!
      const made = decided.get(name)
      if (made === undefined) continue
      decided.delete(name)
      const worker = `${WORKER_HOST}:${made.port}`
      health.ended(worker, name)
      if (delivery.outcome === 'ok') health.served(worker, 'm', made.atMs, nowMs())
    }
    for (; seenFailed < log!.workerFailed.length; seenFailed++) {
      const { workerId, model, fault, ageMs } = log!.workerFailed[seenFailed]!
      health.failed(workerId, 1, model, fault, nowMs() - ageMs, nowMs())
    }
  }
  const decide = (request: RoutingRequest, id: string) => {
    takeReports()
    const found = eligibleByAffinity({
      fleet: FLEET,
      request: { ...request, override: {} } as RoutingRequest,
      questions: 0,
      affinity: undefined,
      health,
      mayTry: true,
      nowMs: nowMs(),
    })
    if ('code' in found) {
      assert.equal(request.excludedWorkers.length, PORTS.length, `seed ${seed}, I4: ${found.message}`)
      return { kind: 'refused' as const, error: found }
    }
    const { worker } = found.candidates[random.below(found.candidates.length)]!
    const port = Number(worker.id.split(':')[1])
    if (
      health.reasonAgainst(worker.id, 'm', nowMs()) !== undefined &&
      !health.isTrialDue(worker.id, 'm', nowMs())
    ) {
      const others = FLEET.workers.filter(({ id: other }) => !request.excludedWorkers.includes(other))
      const least = Math.min(...others.map(other => health.failedShare(other.id)))
      assert.equal(health.failedShare(worker.id), least, `seed ${seed}, I4: not the least bad`)
    }
    health.decided(worker.id, 'm', id, nowMs())
    decided.set(id, { port, atMs: nowMs() })
    return { kind: 'decided' as const, decision: decisionFor(port, id) }
  }

  const world = await start(
    test,
    {
      openRequestsMax: 100,
      exchangeLimits: {
        retriesMax: random.below(3),
        retryShare: RETRY_SHARE,
        stallMsMin: 1000,
        silenceMsMax: 60_000,
        requestMsMax: 0,
      },
    },
    { decide },
    { hasWorker: false },
  )
  log = world.log
  const { system } = world
  nowMs = () => system.clock.nowMs()
  for (const port of PORTS) {
    await world.serve(port, http => {
      calls++
      const id = String(http.headers['x-request-id'])
      assert.ok(!begun.has(id), `seed ${seed}, I1: ${id} is sent again after its output began`)
      const illness = sick.get(port)
      if (illness === undefined) {
        http.writeHead(200, JSON_HEAD)
        http.end(bytes('{"choices":[]}'))
        return
      }
      if (illness === 'breaks off') begun.add(id)
      if (illness === 'resets') reset.add(id)
      ILLNESSES[illness]!(http)
      if (illness === 'breaks off') system.clock.after(5, () => http.destroy())
    })
  }

  const answers = []
  for (let n = 0; n < REQUESTS; n++) {
    if (random.below(6) === 0) {
      const port = PORTS[random.below(PORTS.length)]!
      if (sick.has(port)) sick.delete(port)
      else {
        sick.set(port, NAMES[random.below(NAMES.length)]!)
        everSick.add(port)
      }
    }
    const headers = { 'x-request-id': `r${n}` }
    answers.push(world.send('POST', '/v1/completions', { headers, body: `{"n":${n}}` }))
    await system.advance(random.below(10) === 0 ? 2000 : random.below(100))
    takeReports()
    for (const port of PORTS) {
      if (everSick.has(port)) continue
      const reason = health.reasonAgainst(`${WORKER_HOST}:${port}`, 'm', nowMs())
      assert.equal(reason, undefined, `seed ${seed}, I3: ${port} was never sick`)
    }
  }
  await system.advance(100)
  takeReports()
  for (const [n, { end }] of answers.entries())
    assert.notEqual(end, 'open', `seed ${seed}, I5: request ${n} has no answer`)
  const charged = calls - reset.size
  assert.ok(charged <= REQUESTS + RESERVE + RETRY_SHARE * REQUESTS, `seed ${seed}, I2: ${calls} calls`)

  // All are cured: each serves again, once its back-off is over and a request has tried it.
  sick.clear()
  await system.advance(BACK_MS_MAX)
  for (let n = 0; n < PORTS.length; n++) {
    world.send('POST', '/v1/completions', { headers: { 'x-request-id': `last${n}` }, body: `{"last":${n}}` })
    await system.advance(10)
    takeReports()
  }
  for (const port of PORTS) {
    const reason = health.reasonAgainst(`${WORKER_HOST}:${port}`, 'm', nowMs())
    assert.equal(reason, undefined, `seed ${seed}, I3: ${port} is cured`)
  }
  const ids = log.settled.map(({ id }) => id)
  assert.equal(new Set(ids).size, ids.length, `seed ${seed}, I5: a decision was settled twice`)
  assert.equal(ids.length, log.names.size, `seed ${seed}, I5: a decision was not settled`)
  await system.shutdown()
}

t.test(`${HISTORIES} random histories of sick workers, from seed ${SEED}`, async t => {
  for (let seed = SEED; seed < SEED + HISTORIES; seed++) await history(t, seed)
  t.pass()
})
