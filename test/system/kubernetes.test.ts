/**
 * Pods that come and go behind a router with --discovery-backend kubernetes, at an API server that speaks the
 * real wire: the fleet is the truth soon after each change, and no request is lost but those on killed pods.
 */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { join } from 'node:path'
import { seededRandom } from '@homing/base'
import { freePort } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { ApiServer } from '../../packages/discovery/test/api-server.ts'
import { podObject, sliceObject, type TestPod } from '../../packages/discovery/test/objects.ts'
import { RouterClient, startProcess, startTestRouter, until } from './fleet.ts'

const MODEL = 'homing-sim'
const PODS = 100
const PODS_PER_SLICE = 30
/** The bound on a change, beside what this process with its pods, and that of the router, were held up. */
const LAG_MS_MAX = 1000
const CLIENTS = 6
const CHUNK = `data: ${JSON.stringify({ id: 'c', object: 'text_completion', created: 1, model: MODEL, choices: [{ index: 0, text: 'word ', logprobs: null, finish_reason: null }] })}\n\n`

/** An engine in this process, at an address of its own: as a pod, it has its port for itself. */
class PodEngine {
  readonly pod: TestPod
  readonly #server: Server
  open = 0
  isAsleep = false
  served = 0

  constructor(pod: TestPod) {
    this.pod = pod
    this.#server = createServer((request, response) => {
      const json = (body: object): void => {
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(JSON.stringify(body))
      }
      if (request.url === '/v1/models')
        return json({ object: 'list', data: [{ id: MODEL, object: 'model', created: 1, owned_by: 'vllm' }] })
      if (request.url === '/health') return json({})
      if (request.url === '/is_sleeping') return json({ is_sleeping: this.isAsleep })
      if (request.url !== '/v1/completions') {
        response.writeHead(404).end()
        return
      }
      this.served++
      this.open++
      response.on('close', () => this.open--)
      request.resume().on('end', () => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        let chunks = 0
        const timer = setInterval(() => {
          if (response.destroyed) return clearInterval(timer)
          if (++chunks <= 3) return void response.write(CHUNK)
          clearInterval(timer)
          response.end('data: [DONE]\n\n')
        }, 5)
      })
    })
  }

  async start(port: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(port, this.pod.address, resolve)
    })
  }

  /** As a container that is killed: its connections are cut. */
  kill(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}

/** A Service, its pods, and what the fleet should be. */
class Cluster {
  readonly api: ApiServer
  readonly port: number
  readonly #slices = new Map<number, TestPod[]>()
  readonly engines = new Map<string, PodEngine>()
  /** Addresses of pods that were killed, which lose answers: no other pod gets them. */
  readonly killedAt = new Set<string>()
  #count = 0

  constructor(api: ApiServer, port: number) {
    this.api = api
    this.port = port
  }

  get made(): number {
    return this.#count
  }

  /** Pods that may be in the fleet: those that have been ready once, by worker id. */
  get truth(): ReadonlyMap<string, 'up' | 'paused' | 'leaving'> {
    const truth = new Map<string, 'up' | 'paused' | 'leaving'>()
    for (const pods of this.#slices.values())
      for (const { address, isReady = true, isTerminating = false } of pods)
        truth.set(`${address}:${this.port}`, isTerminating ? 'leaving' : isReady ? 'up' : 'paused')
    return truth
  }

  get pods(): readonly TestPod[] {
    return [...this.#slices.values()].flat()
  }

  /** Addresses are used again, by pods with another uid. */
  async add(): Promise<PodEngine> {
    const number = this.#count++
    const used = new Set(this.pods.map(({ address }) => address))
    let host = 1
    while (used.has(`127.0.7.${host}`) || this.killedAt.has(`127.0.7.${host}`)) host++
    const pod: TestPod = { name: `vllm-${number}`, address: `127.0.7.${host}` }
    const engine = new PodEngine(pod)
    await engine.start(this.port)
    this.engines.set(pod.name, engine)
    this.api.put('pods', podObject(pod))
    const slice =
      [...this.#slices.keys()].find(at => this.#slices.get(at)!.length < PODS_PER_SLICE) ?? this.#slices.size
    this.#slices.set(slice, [...(this.#slices.get(slice) ?? []), pod])
    this.#write(slice)
    return engine
  }

  set(name: string, conditions: Partial<TestPod>): void {
    this.#change(name, pod => [{ ...pod, ...conditions }])
  }

  remove(name: string): void {
    this.#change(name, () => [])
    this.api.delete('pods', name)
    this.engines.get(name)!.kill()
    this.engines.delete(name)
  }

  #change(name: string, to: (pod: TestPod) => readonly TestPod[]): void {
    const slice = [...this.#slices.keys()].find(at => this.#slices.get(at)!.some(pod => pod.name === name))!
    this.#slices.set(
      slice,
      this.#slices.get(slice)!.flatMap(pod => (pod.name === name ? to(pod) : [pod])),
    )
    this.#write(slice)
  }

  #write(slice: number): void {
    const ports = [{ name: 'http', port: this.port }]
    this.api.put(
      'endpointslices',
      sliceObject('vllm', this.#slices.get(slice)!, { name: `vllm-${slice}`, ports }),
    )
  }
}

/** How long this process was held up at most, since it was last asked: what a timer of 5 ms came too late. */
function holdUps(t: Test): () => number {
  let worstMs = 0
  let lastMs = performance.now()
  const timer = setInterval(() => {
    worstMs += Math.max(0, performance.now() - lastMs - 20)
    lastMs = performance.now()
  }, 5)
  t.teardown(() => clearInterval(timer))
  return () => {
    const was = worstMs
    worstMs = 0
    return was
  }
}

/** How long the main thread of a process has waited for a processor; 0 where the system does not tell. */
function waitedMs(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6
  } catch {
    return 0
  }
}

async function world(t: Test, token?: string) {
  const api = await ApiServer.start(token === undefined ? {} : { token })
  t.teardown(() => api.down())
  const cluster = new Cluster(api, await freePort())
  t.teardown(() => {
    for (const engine of cluster.engines.values()) engine.kill()
  })
  const config = join(t.testdir({}), 'kubeconfig')
  writeFileSync(
    config,
    JSON.stringify({
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
      clusters: [{ name: 'test', cluster: { server: api.url } }],
      users: [{ name: 'test', user: token === undefined ? {} : { token } }],
    }),
  )
  const options = [
    '--discovery-backend',
    'kubernetes',
    '--kubernetes-config',
    config,
    '--kubernetes-service',
    'vllm',
  ]
  const begin = async (...more: readonly string[]) => {
    const router = await startTestRouter([], [...options, ...more])
    t.teardown(() => router.stop(0))
    return new RouterClient(router.url)
  }
  /** In a process of its own: what holds up the router does not hold up the clock of the test. */
  const beginApart = async () => {
    const argv = ['--host', '127.0.0.1', '--port', '0', '--log-level', 'error', '--router-guard-share', '0']
    const router = await startProcess('router', [...argv, ...options])
    t.teardown(async () => {
      router.kill('SIGKILL')
      await router.ended
    })
    return { client: new RouterClient(router.url), pid: router.pid }
  }
  return { api, cluster, begin, beginApart }
}

function differs(
  truth: Cluster['truth'],
  workers: readonly { readonly id: string; readonly state: string }[],
) {
  const there = new Map(workers.map(({ id, state }) => [id, state]))
  for (const [id, state] of there) if (!truth.has(id)) return `${id} is ${state} and should be gone`
  for (const [id, wanted] of truth) {
    const state = there.get(id)
    const isRight = wanted === 'leaving' ? state === undefined || state === 'draining' : state === wanted
    if (!isRight) return `${id} is ${state} and should be ${wanted}`
  }
  return undefined
}

t.test(
  `${PODS} pods come and go: the fleet is the truth within a second, and no request is lost`,
  async t => {
    const seed = Number(process.env['HOMING_TEST_SEED'] ?? 40)
    t.comment(`seed ${seed}`)
    const random = seededRandom(seed)
    const { api, cluster, beginApart } = await world(t)
    for (let n = 0; n < 10; n++) await cluster.add()
    const { client, pid } = await beginApart()
    const heldUpMs = holdUps(t)
    const lagsMs: number[] = []
    const rawMs: number[] = []
    const killed = new Set<string>()
    const equal = async (what: string): Promise<void> => {
      const beganMs = performance.now()
      const waitedBeforeMs = waitedMs(pid)
      heldUpMs()
      let difference: string | undefined
      await until(
        what,
        async () => {
          difference = differs(cluster.truth, await client.workers())
          return difference === undefined ? true : undefined
        },
        { seen: () => difference },
      )
      const tookMs = performance.now() - beganMs
      rawMs.push(tookMs)
      lagsMs.push(Math.max(0, tookMs - heldUpMs() - (waitedMs(pid) - waitedBeforeMs)))
    }
    await equal('the first pods are there')
    lagsMs.length = 0
    rawMs.length = 0

    let isOver = false
    let answers = 0
    const lost: string[] = []
    const clients = Array.from({ length: CLIENTS }, async (_, number) => {
      for (let n = 0; !isOver; n++) {
        const body = { model: MODEL, prompt: `client ${number} says ${n}`, max_tokens: 3, stream: true }
        const answer = await client.send('/v1/completions', { body })
        answers++
        const worker = answer.headers['x-homing-worker'] ?? ''
        const isWhole =
          answer.status === 200 &&
          answer.text.endsWith('data: [DONE]\n\n') &&
          !answer.text.includes('"error"')
        if (!isWhole && !killed.has(worker.split('/')[0]!))
          lost.push(`${answer.status} of ${worker}: ${answer.text.slice(0, 200)}`)
      }
    })

    const pick = (fits: (pod: TestPod) => boolean): TestPod | undefined => {
      const some = cluster.pods.filter(fits)
      return some.length === 0 ? undefined : some[random.below(some.length)]
    }
    const isReady = ({ isReady = true, isTerminating = false }: TestPod): boolean => isReady && !isTerminating
    for (let turn = 0; cluster.made < PODS; turn++) {
      const ready = cluster.pods.filter(isReady).length
      const draw = random.below(100)
      if (ready < 5 || draw < 40) {
        await cluster.add()
        await equal('a pod has come')
      } else if (draw < 55) {
        cluster.set(pick(isReady)!.name, { isReady: false, isServing: false })
        await equal('a pod has lost its readiness')
      } else if (draw < 70) {
        const pod = pick(({ isReady = true, isTerminating }) => !isReady && isTerminating !== true)
        if (pod === undefined) continue
        cluster.set(pod.name, { isReady: true, isServing: true })
        await equal('a pod is ready again')
      } else if (draw < 90) {
        const { name } = pick(isReady)!
        cluster.set(name, { isReady: false, isServing: true, isTerminating: true })
        await equal('a pod terminates')
        const engine = cluster.engines.get(name)!
        await until('it has ended what it had', () => (engine.open === 0 ? true : undefined))
        cluster.remove(name)
        await equal('a pod has gone')
      } else {
        const { name, address } = pick(isReady)!
        killed.add(`${address}:${cluster.port}`)
        cluster.killedAt.add(address)
        cluster.remove(name)
        await equal('a killed pod has gone')
      }
      if (turn % 10 === 9) api.cutWatches((['end', 'reset', 'mid-line'] as const)[random.below(3)]!)
      if (turn % 25 === 24) {
        api.compact()
        api.failWatches(410)
      }
    }
    isOver = true
    await Promise.all(clients)
    const sorted = { lags: lagsMs.toSorted((a, b) => a - b), raw: rawMs.toSorted((a, b) => a - b) }
    const at = (share: number, of: readonly number[] = sorted.lags): number =>
      of[Math.floor((of.length - 1) * share)]!
    const of = (share: number): string => at(share).toFixed(0)
    t.comment(
      `${lagsMs.length} changes: p50 ${of(0.5)} ms, p99 ${of(0.99)} ms, worst ${of(1)} ms; by the clock p50 ${at(0.5, sorted.raw).toFixed(0)} ms, worst ${at(1, sorted.raw).toFixed(0)} ms; ${answers} answers, ${killed.size} addresses of killed pods`,
    )
    t.strictSame(lost, [])
    t.ok(answers > 100)
    t.ok(at(1) <= LAG_MS_MAX, `the slowest change took ${of(1)} ms`)
    t.ok(at(0.5, sorted.raw) <= LAG_MS_MAX, 'by the clock alone, half of the changes took no longer')
  },
)

t.test('a pod that is not ready gets no new request, ends what it has, and keeps its place', async t => {
  const { cluster, begin } = await world(t, 'a-token-of-the-test')
  const [one, other] = [await cluster.add(), await cluster.add()]
  const client = await begin()
  const states = async () =>
    Object.fromEntries((await client.workers()).map(({ id, state }) => [id.split(':')[0], state]))
  await until(
    'both are up',
    async () =>
      ((await states())[one.pod.address] === 'up' && (await states())[other.pod.address] === 'up') ||
      undefined,
  )
  cluster.set(one.pod.name, { isReady: false })
  await until('it is paused', async () => (await states())[one.pod.address] === 'paused' || undefined)
  const before = one.served
  for (let n = 0; n < 20; n++) {
    const body = { model: MODEL, prompt: `prompt ${n}`, max_tokens: 1, stream: true }
    assert.equal((await client.send('/v1/completions', { body })).status, 200)
  }
  t.equal(one.served, before)
  cluster.set(one.pod.name, { isReady: true })
  await until('it is up again', async () => (await states())[one.pod.address] === 'up' || undefined)
  cluster.set(other.pod.name, { isReady: false })
  await until(
    'the other is paused',
    async () => (await states())[other.pod.address] === 'paused' || undefined,
  )
  const body = { model: MODEL, prompt: 'a last prompt', max_tokens: 1, stream: true }
  t.equal(
    (await client.send('/v1/completions', { body })).headers['x-homing-worker'],
    `${one.pod.address}:${cluster.port}/0`,
  )
})

t.test('a sleeping engine gets no requests, and gets some when it is awake', async t => {
  const { cluster, begin } = await world(t)
  const [one, other] = [await cluster.add(), await cluster.add()]
  const client = await begin('--probe-interval', '100ms')
  const of = async (engine: PodEngine) =>
    (await client.workers()).find(({ id }) => id.startsWith(`${engine.pod.address}:`))
  await until(
    'both are up',
    async () => ((await of(one))?.state === 'up' && (await of(other))?.state === 'up') || undefined,
  )
  one.isAsleep = true
  await until('it is seen', async () => (await of(one))?.state === 'paused' || undefined)
  t.match(
    (await of(one))!['state_reason'],
    /its engine sleeps, and its cache is gone: POST \/wake_up wakes it/,
  )
  const before = one.served
  for (let n = 0; n < 10; n++)
    t.equal(
      (
        await client.send('/v1/completions', {
          body: { model: MODEL, prompt: `${n}`, max_tokens: 1, stream: true },
        })
      ).status,
      200,
    )
  t.equal(one.served, before)
  one.isAsleep = false
  await until('it is up again', async () => (await of(one))?.state === 'up' || undefined)
})
