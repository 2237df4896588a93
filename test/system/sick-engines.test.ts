/**
 * Engines that fail, hang, lie and change: what clients get, and whether the sick one leaves and comes back.
 * Real sockets; sick-engines.ts has the illnesses.
 */

import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t, { type Test } from 'tap'
import { hasOpenssl } from './certificates.ts'
import { RouterClient, startTestRouter, until } from './fleet.ts'
import {
  type Course,
  coursesOf,
  type Illness,
  type IllnessMeans,
  illnesses,
  meansIn,
} from './sick-engines.ts'

const MODEL = 'm'
const CLIENTS = 8
const HEALTHY_MS = 20

type Handler = (request: IncomingMessage, response: ServerResponse) => void

interface Engine {
  readonly url: string
  /** Requests of clients that it got. */
  count: number
  isSick: boolean
  close(): void
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

function serve(response: ServerResponse): void {
  setTimeout(() => {
    json(response, 200, {
      id: 'x',
      object: 'chat.completion',
      model: MODEL,
      choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 },
    })
  }, HEALTHY_MS)
}

async function startEngine(sick?: Handler, healthStatus = 200): Promise<Engine> {
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      if (request.url === '/v1/models') json(response, 200, { data: [{ id: MODEL }] })
      else if (request.url === '/health') json(response, engine.isSick ? healthStatus : 200, {})
      else if (request.method !== 'POST' || request.url === '/tokenize') json(response, 404, {})
      else {
        engine.count++
        if (engine.isSick && sick !== undefined) sick(request, response)
        else serve(response)
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const engine = {
    url: `http://127.0.0.1:${port}`,
    count: 0,
    isSick: sick !== undefined,
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
  return engine
}

async function load(router: RouterClient, requests: number): Promise<ReadonlyMap<number, number>> {
  const statuses = new Map<number, number>()
  let left = requests
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      const answer = await router.send('/v1/chat/completions', {
        body: { model: MODEL, messages: [{ role: 'user', content: `question ${left}` }] },
      })
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
  return statuses
}

/** Illnesses that are tried at the same time. */
const WARDS = 7
const SECONDS = 2.5
/** After the first second, of the requests that the sick engine's share of the fleet is. */
const FAILED_SHARE_MAX = 0.02
/** Of the process that engines, router and clients run in. An engine is silent after a second. */
const PAUSE_MS_MAX = 250
/** At an illness, while the machine stands still. */
const LOOKS_MAX = 4
const POLICIES = ['auto', 'linear', 'round-robin']

interface Watched {
  readonly illness: Illness
  readonly course: Course
  readonly hasPaused: boolean
}

async function watched(t: Test, tried: readonly Illness[], policy: string, means: IllnessMeans | undefined) {
  const pauses = monitorEventLoopDelay({ resolution: 10 })
  pauses.enable()
  const courses = await coursesOf(tried, {
    policy,
    seconds: SECONDS,
    means,
    // A probe is due while the test lasts, and a silent engine is left in a second.
    argv: ['--probe-interval', '1s', '--stall-timeout', '1s'],
  })
  pauses.disable()
  const hasPaused = pauses.max / 1e6 > PAUSE_MS_MAX
  if (hasPaused) t.comment(`this machine stood still for ${Math.round(pauses.max / 1e6)} ms`)
  return courses.map((course, i): Watched => ({ illness: tried[i]!, course, hasPaused }))
}

function isAsItShould({ illness, course, hasPaused }: Watched): boolean {
  const { sentLater, failedLater, gotSick, sent, leftMs, state } = course
  const { name, isSeenByClients, mayStay, hasSecondModel } = illness
  if (failedLater > Math.max(isSeenByClients === true ? 1 : 0, (sentLater / 3) * FAILED_SHARE_MAX))
    return false
  // One that is slow looks dead where the machine stands still.
  if (mayStay === true) return state === 'up' || hasPaused
  if (hasSecondModel === true) return gotSick > sent / 8
  return /half|flaps/.test(name) || (leftMs !== undefined && leftMs < 2500)
}

/** Every illness under the default policy, every fourth under the others. */
for (const [at, policy] of POLICIES.entries()) {
  t.test(`${policy}: one sick engine of three costs next to nothing, leaves, and comes back`, async t => {
    const means = hasOpenssl ? meansIn(t.testdir({})) : undefined
    if (means === undefined) t.comment('openssl is not installed: no certificate expires')
    const all = illnesses(means).filter((_, i) => policy === 'auto' || i % 4 === at)
    for (let i = 0; i < all.length; i += WARDS) {
      let left: readonly Illness[] = all.slice(i, i + WARDS)
      for (let look = 1; left.length > 0; look++) {
        const courses = await watched(t, left, policy, means)
        // Where the machine stands still, healthy engines look sick: that says nothing of the router.
        const disturbed = courses.filter(each => each.hasPaused && look < LOOKS_MAX && !isAsItShould(each))
        for (const each of courses)
          if (!disturbed.includes(each)) t.ok(isAsItShould(each), JSON.stringify(each.course))
        left = disturbed.map(({ illness }) => illness)
      }
    }
  })
}

t.test('a worker whose /health is 503 gets nothing, though it lists its models', async t => {
  const sick = await startEngine((_, response) => json(response, 500, {}), 503)
  const engines = [sick, await startEngine()]
  t.teardown(() => engines.forEach(engine => void engine.close()))
  const running = await startTestRouter(
    engines.map(({ url }) => url),
    ['--log-level', 'silent'],
  )
  t.teardown(() => running.stop(0))
  const router = new RouterClient(running.url)
  const reason = 'GET /health answers 503'
  t.match(await router.worker(sick.url), {
    state: 'down',
    state_reason: reason,
    health: { state: 'down', reason },
  })
  t.strictSame([...(await load(router, 20))], [[200, 20]])
  t.equal(sick.count, 0)
  sick.isSick = false
  await until('it is up', async () => ((await router.worker(sick.url)).state === 'up' ? true : undefined))
  t.match((await router.worker(sick.url)).health, { state: 'up', reason: null })
})

t.test('when all workers fail, they are tried all the same', async t => {
  const engines = [
    await startEngine((_, response) => json(response, 500, { error: { message: 'mine' } })),
    await startEngine((_, response) => json(response, 503, { error: { message: 'mine' } })),
  ]
  t.teardown(() => engines.forEach(engine => void engine.close()))
  const running = await startTestRouter(
    engines.map(({ url }) => url),
    ['--log-level', 'silent'],
  )
  t.teardown(() => running.stop(0))
  const router = new RouterClient(running.url)
  const statuses = await load(router, 100)
  t.strictSame(new Set(statuses.keys()).size > 0 && [...statuses.keys()].every(one => one >= 500), true)
  t.ok(engines[0]!.count + engines[1]!.count <= 100 + 32 + 20, 'the retry budget holds')
  for (const engine of engines) engine.isSick = false
  await until('both serve', async () => {
    const now = await load(router, 20)
    return now.get(200) === 20 ? true : undefined
  })
})

t.test('a request that breaks two workers reaches no third, and the others go on', async t => {
  const isDeadly = (body: string): boolean => body.includes('deadly')
  const engines = await Promise.all(
    Array.from({ length: 4 }, async () => {
      let count = 0
      const server = createServer((request, response) => {
        const parts: Buffer[] = []
        request.on('data', (bytes: Buffer) => parts.push(bytes))
        request.on('end', () => {
          if (request.url === '/v1/models') json(response, 200, { data: [{ id: MODEL }] })
          else if (request.method !== 'POST' || request.url === '/tokenize') json(response, 404, {})
          else if (isDeadly(Buffer.concat(parts).toString())) {
            count++
            request.socket.resetAndDestroy()
          } else serve(response)
        })
      })
      server.listen(0, '127.0.0.1')
      await once(server, 'listening')
      t.teardown(() => {
        server.closeAllConnections()
        server.close()
      })
      return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, deaths: () => count }
    }),
  )
  const running = await startTestRouter(
    engines.map(({ url }) => url),
    ['--log-level', 'silent'],
  )
  t.teardown(() => running.stop(0))
  const router = new RouterClient(running.url)
  const deadly = { model: MODEL, messages: [{ role: 'user', content: 'deadly' }] }
  for (let i = 0; i < 10; i++) {
    const answer = await router.send('/v1/chat/completions', { body: deadly })
    t.equal(answer.status, 502)
    if (i > 0) t.match(answer.text, /workers .* broke while they worked on this very request/)
  }
  // A reused connection that breaks is tried again on the same worker.
  t.ok(engines.filter(({ deaths }) => deaths() > 0).length === 2, 'two workers broke')
  t.strictSame([...(await load(router, 50))], [[200, 50]], 'nobody else notices')
})
