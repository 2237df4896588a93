/**
 * The waiting queue in the whole router, in a simulation with faults. One seed is one history.
 *
 *   start ─▶ requests, up to 3 faults, perhaps a drain ─▶ calm: all faults end
 *         ─▶ one more request of each tenant ─▶ checks
 *
 * The head of queue-checks.ts lists the checks. The network shows where a request was placed: each has a
 * marker in its body.
 */

import type { SeedOutcome, Simulation } from '@homing/actor/simulation'
import { type Random, seededRandom } from '@homing/base'
import type { RouterSettings } from '@homing/config'
import { type PolicyProfile, QUEUE_ORDERS, type QueueOrder } from '@homing/queue'
import { checkEnds, checkOrder, checkShares, checkWork, type Sent } from './queue-checks.ts'
import { BLOCK_SIZE_TOKENS, type FleetEngine, MODEL, SimulatedFleet } from './simulated-fleet.ts'

/** Requests begin within the first time, many more than fit, and faults strike within the second. */
const COMING_MS = 300
const BUSY_MS = 800
/** Longest end of a request after the last fault, of everything after that. */
const END_MS_MAX = 30_000
const REST_MS_MAX = 20_000
const LOOK_MS = 250
/** Restart budgets and probes have recovered by then. */
const CALM_MS = 3000
const STEP_TOKENS = 512
/** Of the engines. */
const SPEED = 0.5
const RETRIES = 2
const ADMIN_PORT = 8200
const ADMIN = `http://127.0.0.1:${ADMIN_PORT}`
const TENANTS = ['', 'a', 'b'] as const
const WEIGHTS: ReadonlyMap<string, number> = new Map([['b', 3]])
const CLASSES = ['first', 'second'] as const

export interface QueueSeedOutcome extends SeedOutcome {
  readonly faults: readonly string[]
  readonly requests: number
  /** How each request ended: '200', or the code of its error. */
  readonly ends: readonly string[]
  /**
   * Pairs of requests of which one had to go first, times in which two tenants had to share, and requests
   * that waited for running ones to end.
   */
  readonly pairs: number
  readonly shares: number
  readonly waits: number
}

export interface QueueSeedOptions {
  /** These faults instead of drawn ones. */
  readonly faults?: readonly string[]
  /** Tells each fault, each end and each line of the logs. */
  readonly tell?: (line: string) => void
}

export async function runQueueSeed(seed: number, options: QueueSeedOptions = {}): Promise<QueueSeedOutcome> {
  const world = new QueueWorld(seed, options)
  await world.start()
  await world.work()
  await world.rest()
  return world.stop()
}

class QueueWorld {
  readonly #seed: number
  readonly #random: Random
  readonly #given: readonly string[] | undefined
  readonly #tell: (line: string) => void
  readonly #violations: string[] = []
  readonly #faults: string[] = []
  readonly #sent: Sent[] = []
  readonly #order: QueueOrder
  readonly #requestsMax: number
  readonly #timeoutMs: number
  readonly #hasClasses: boolean
  /** Whether prompts can be longer than a step; else the rule for long prompts never holds any. */
  readonly #hasLong: boolean
  /** Whether requests may name their worker, or a session, which is bound to one. */
  readonly #hasPins: boolean
  /** Undefined: the router is not drained. */
  readonly #drainAtMs: number | undefined
  #drained: Promise<unknown> = Promise.resolve()
  #fleet!: SimulatedFleet
  #open = 0
  #instances: readonly number[] = []

  constructor(seed: number, options: QueueSeedOptions) {
    const random = seededRandom(seed)
    this.#seed = seed
    this.#random = random
    this.#given = options.faults
    this.#tell = options.tell ?? (() => {})
    this.#order = QUEUE_ORDERS[random.below(QUEUE_ORDERS.length)]!
    this.#requestsMax = random.below(3) === 0 ? 4 + random.below(12) : 100
    this.#timeoutMs = random.below(3) === 0 ? 150 + random.below(600) : 20_000
    this.#hasClasses = random.below(3) === 0
    this.#hasLong = random.below(3) === 0
    this.#hasPins = random.below(3) === 0
    this.#drainAtMs = random.below(5) === 0 ? random.next() * BUSY_MS : undefined
  }

  // ── Start ────────────────────────────────────────────────────────────────────────────────────

  async start(): Promise<void> {
    const random = this.#random
    const count = 1 + random.below(3)
    const engine = { blocks: 4000, publishesEvents: false, stepTokensMax: STEP_TOKENS, speed: SPEED } as const
    const settings: Partial<RouterSettings> = {
      adminPort: ADMIN_PORT,
      routerPolicy: random.below(2) === 0 ? 'auto' : 'linear',
      queueThreshold: random.below(2) === 0 ? 'auto' : '1',
      queueOrder: this.#order,
      queueRequestsMax: this.#requestsMax,
      queueTimeoutMs: this.#timeoutMs,
      tenantWeights: [...WEIGHTS].map(([tenant, weight]) => `${tenant}=${weight}`),
      // All tenants are trusted and told apart, so that every hint and share is checked.
      unnamedTenants: 'own',
      trustedHints: ['all'],
      openRequestsMax: 128,
      retries: RETRIES,
      affinityTtlMs: 60_000,
      affinityMode: 'hard',
      silenceTimeoutMs: 2000,
    }
    this.#fleet = await SimulatedFleet.start({
      seed: this.#seed,
      engines: Array.from({ length: count }, () => engine),
      query: `?max_batched_tokens=${STEP_TOKENS}`,
      settings,
      tell: this.#tell,
      ...(this.#hasClasses ? { policyClasses: { profile: classes(this.#order), models: new Map() } } : {}),
    })
    const { workers } = (await this.#fleet.view('/workers', ADMIN)) as { workers: readonly WorkerLoads[] }
    this.#instances = workers.map(({ instance_id: instance }) => instance)
    const urls = new Set(this.#fleet.engines.map(({ url }) => url))
    this.#fleet.network.faults.http = ({ origin, path, body }) => {
      if (urls.has(origin) && path === '/v1/completions') this.#called(origin, body)
      return 'deliver'
    }
  }

  get #simulation(): Simulation {
    return this.#fleet.simulation
  }

  get #nowMs(): number {
    return this.#simulation.clock.nowMs()
  }

  // ── Work and faults ──────────────────────────────────────────────────────────────────────────

  async work(): Promise<void> {
    const { clock } = this.#simulation
    const random = this.#random
    for (let request = 30 + random.below(80); request > 0; request--)
      clock.after(random.next() * COMING_MS, () => this.#request())
    const count = random.below(3) === 0 ? 0 : 1 + random.below(3)
    const drawn = Array.from({ length: count }, () => FAULTS[random.below(FAULTS.length)]!.name)
    for (const name of this.#given ?? drawn) {
      const fault = FAULTS.find(one => one.name === name)
      if (fault === undefined) throw new Error(`cannot deal the fault ${name}: there is none of that name`)
      clock.after(random.next() * BUSY_MS, () => this.#strike(fault))
    }
    if (this.#drainAtMs !== undefined) clock.after(this.#drainAtMs, () => this.#drain(random.below(600)))
    await this.#simulation.run(undefined, { within: BUSY_MS + 1 })
  }

  #strike({ name, deal }: Fault): void {
    this.#faults.push(name)
    this.#tell(`${this.#nowMs.toFixed(3)} ${name}`)
    const { engines, network } = this.#fleet
    const engine = engines[this.#random.below(engines.length)]!
    deal({ engine, engines, random: this.#random, network, simulation: this.#simulation })
  }

  #drain(graceMs: number): void {
    this.#faults.push('drain')
    this.#tell(`${this.#nowMs.toFixed(3)} drain within ${graceMs} ms`)
    this.#drained = this.#fleet.beginDrain(graceMs).then(
      cut => this.#tell(`${this.#nowMs.toFixed(3)} drained, ${cut} cut`),
      error => this.#tell(`${this.#nowMs.toFixed(3)} not drained: ${error}`),
    )
  }

  /** Sends a random request, or a request of `tenant` without options. */
  #request(tenant?: string): void {
    const random = this.#random
    const isPlain = tenant !== undefined
    const rarely = (one: number): boolean => !isPlain && random.below(one) === 0
    const promptTokens = BLOCK_SIZE_TOKENS * (2 + random.below(this.#hasLong ? 60 : 30))
    const sent: Sent = {
      number: this.#sent.length,
      sentMs: this.#nowMs,
      promptTokens,
      isLong: promptTokens > STEP_TOKENS,
      tenant: tenant ?? TENANTS[random.below(TENANTS.length)]!,
      policyClass: this.#hasClasses && !isPlain ? CLASSES[random.below(2)]! : '',
      strictPriority: rarely(5) ? 1 : 0,
      jumpSeconds: rarely(6) ? 1 + random.below(3) : 0,
      isPinned: this.#hasPins && rarely(5),
      doNotQueue: rarely(12),
      timeoutMs: rarely(6) ? random.below(400) : undefined,
      calls: [],
      engines: [],
      leftMs: undefined,
      endMs: undefined,
      end: undefined,
    }
    this.#sent.push(sent)
    this.#open++
    const leaving = new AbortController()
    if (rarely(8)) {
      this.#simulation.clock.after(random.next() * 200, () => {
        if (sent.endMs !== undefined) return
        sent.leftMs = this.#nowMs
        leaving.abort(new Error('the client leaves'))
      })
    }
    const body = {
      model: MODEL,
      prompt: Array.from({ length: promptTokens }, () => 33 + random.below(90)),
      max_tokens: 1 + random.below(8),
      stream: rarely(2),
      user: `marker-${sent.number}.`,
    }
    const isSession = sent.isPinned && random.below(2) === 0
    const instance =
      sent.isPinned && !isSession ? this.#instances[random.below(this.#instances.length)] : undefined
    const session = isSession ? { 'x-dynamo-session-id': `session ${random.below(3)}` } : {}
    const headers = { ...headersOf(sent, instance), ...session }
    this.#fleet.send({ headers }, body, END_MS_MAX, leaving.signal).then(
      ({ status, body: bytes }) => this.#ended(sent, endOf(status, Buffer.from(bytes).toString())),
      (error: { code?: string }) => this.#ended(sent, `cut: ${error.code ?? String(error)}`),
    )
  }

  #called(origin: string, body: unknown): void {
    const text = Buffer.from(body as Uint8Array).toString('latin1')
    const number = Number(/marker-(\d+)\./.exec(text)?.[1])
    const sent = this.#sent[number]
    if (sent === undefined) {
      this.#violations.push(`an engine was called for a request that nobody sent: ${text}`)
      return
    }
    sent.calls.push(this.#nowMs)
    sent.engines.push(origin)
  }

  #ended(sent: Sent, end: string): void {
    this.#open--
    if (sent.end !== undefined)
      this.#violations.push(`request ${sent.number} ended twice: ${sent.end}, ${end}`)
    sent.endMs = this.#nowMs
    sent.end = end
    for (const character of end) this.#simulation.mix(character.charCodeAt(0))
    this.#tell(`${this.#nowMs.toFixed(3)} request ${sent.number}: ${end}`)
  }

  // ── Rest and checks ──────────────────────────────────────────────────────────────────────────

  async rest(): Promise<void> {
    const simulation = this.#simulation
    const { network, engines } = this.#fleet
    for (const { engine, url } of engines) {
      network.reconnect(url)
      engine.clearFaults()
    }
    this.#tell(`${this.#nowMs.toFixed(3)} calm`)
    const outcome = await simulation.run(() => this.#open === 0, { within: END_MS_MAX })
    if (outcome !== 'reached') this.#violations.push(`${this.#open} requests did not end: ${outcome}`)
    await simulation.settle(this.#drained, { within: END_MS_MAX })
    await simulation.run(undefined, { within: CALM_MS })
    if (this.#drainAtMs === undefined) await this.#nudge()
    await this.#settled()
    const situation = {
      sent: this.#sent,
      faults: this.#faults,
      order: this.#order,
      weights: WEIGHTS,
      requestsMax: this.#requestsMax,
      timeoutMs: this.#timeoutMs,
      retriesMax: RETRIES,
    }
    this.#violations.push(...checkEnds(situation))
  }

  /**
   * Sends one more request of each tenant, which also gets forgotten waiting requests placed; each must end
   * with 200.
   */
  async #nudge(): Promise<void> {
    const from = this.#sent.length
    for (const tenant of TENANTS) this.#request(tenant)
    await this.#simulation.run(() => this.#open === 0, { within: END_MS_MAX })
    for (const { tenant, end } of this.#sent.slice(from))
      if (end !== '200') this.#violations.push(`a request of tenant "${tenant}" at rest ended with ${end}`)
  }

  async #settled(): Promise<void> {
    const endMs = this.#nowMs + REST_MS_MAX
    let found: readonly string[] = []
    do {
      found = await this.#leftovers()
      if (found.length === 0) return
      await this.#simulation.run(undefined, { within: LOOK_MS })
    } while (this.#nowMs < endMs)
    this.#violations.push(...found)
  }

  /** Bookings and counts that remain although no request is running. */
  async #leftovers(): Promise<readonly string[]> {
    const { workers } = (await this.#fleet.view('/workers', ADMIN)) as { workers: readonly WorkerLoads[] }
    const queue = (await this.#fleet.view('/queue', ADMIN)) as QueueView
    const counts: [string, number][] = [
      ['requests in the queue', queue.requests],
      ['tokens in the queue', queue.prompt_tokens],
      ['bytes in the queue', queue.bytes],
    ]
    for (const { url, worker_keys: keys } of workers) {
      for (const { load } of keys) {
        counts.push([`requests booked at ${url}`, load.requests])
        counts.push([`tokens booked at ${url}`, load.prefill_tokens])
        counts.push([`blocks booked at ${url}`, load.active_blocks])
      }
    }
    for (const { asked, waiting, classes, tenants } of queue.models) {
      counts.push(['requests asked about', asked], ['requests of the model', waiting.requests])
      for (const row of classes) counts.push([`requests of class ${row.policy_class}`, row.waiting.requests])
      for (const row of tenants) {
        counts.push([`requests of tenant "${row.tenant}"`, row.waiting.requests])
        counts.push([`workers with a long prompt of tenant "${row.tenant}"`, row.long_prompt_workers])
      }
    }
    return counts.filter(([, count]) => count !== 0).map(([what, count]) => `left behind: ${count} ${what}`)
  }

  async stop(): Promise<QueueSeedOutcome> {
    const simulation = this.#simulation
    const slow = await this.#fleet.stop()
    if (slow.length > 0) this.#violations.push(`slow at the end: ${slow.join(', ')}`)
    const order = checkOrder(this.#sent, this.#order, this.#faults)
    // Where something holds back some of a tenant but not others, shares are not comparable.
    const isFree = this.#faults.length === 0 && !this.#hasLong && !this.#hasPins
    const shares = isFree ? checkShares(this.#sent, WEIGHTS) : NOTHING
    const engines = this.#fleet.engines.map(({ url }) => url)
    const work = isFree ? checkWork(this.#sent, engines) : NOTHING
    const found = [order, shares, work].flatMap(({ violations }) => violations)
    this.#violations.push(...simulation.violations, ...found)
    return {
      traceHash: simulation.traceHash,
      steps: simulation.steps,
      violations: this.#violations,
      faults: this.#faults,
      requests: this.#sent.length,
      ends: this.#sent.map(({ end }) => end ?? 'never'),
      pairs: order.checked,
      shares: shares.checked,
      waits: work.checked,
    }
  }
}

const NOTHING = { violations: [], checked: 0 } as const

interface WorkerLoads {
  readonly url: string
  readonly instance_id: number
  readonly worker_keys: readonly {
    readonly load: {
      readonly active_blocks: number
      readonly prefill_tokens: number
      readonly requests: number
    }
  }[]
}

interface QueueView {
  readonly requests: number
  readonly prompt_tokens: number
  readonly bytes: number
  readonly models: readonly {
    readonly asked: number
    readonly waiting: { readonly requests: number }
    readonly classes: readonly {
      readonly policy_class: string
      readonly waiting: { readonly requests: number }
    }[]
    readonly tenants: readonly {
      readonly tenant: string
      readonly waiting: { readonly requests: number }
      readonly long_prompt_workers: number
    }[]
  }[]
}

/** Two classes that clients can name, and the default class. */
function classes(order: QueueOrder): PolicyProfile {
  const bucket = { cacheBucket: 'all', order }
  return {
    defaultFamily: 'others',
    buckets: [{ tokensMin: 0, name: 'all' }],
    classes: [
      { name: 'others', family: 'others', ...bucket, quantum: 400 },
      { name: 'first', family: 'first', ...bucket, quantum: 200 },
      { name: 'second', family: 'second', ...bucket, quantum: 800 },
    ],
  }
}

function headersOf(sent: Sent, instance: number | undefined): Record<string, string> {
  const { tenant, policyClass, strictPriority, jumpSeconds, doNotQueue, timeoutMs } = sent
  return {
    ...(tenant === '' ? {} : { 'x-homing-tenant': tenant }),
    ...(policyClass === '' ? {} : { 'x-homing-policy-class': policyClass }),
    ...(strictPriority === 0 ? {} : { 'x-dynamo-request-strict-priority': String(strictPriority) }),
    ...(jumpSeconds === 0 ? {} : { 'x-dynamo-request-priority': String(jumpSeconds) }),
    ...(instance === undefined ? {} : { 'x-worker-instance-id': String(instance) }),
    ...(doNotQueue ? { 'x-homing-do-not-queue': 'true' } : {}),
    ...(timeoutMs === undefined ? {} : { 'x-homing-queue-timeout-ms': String(timeoutMs) }),
  }
}

/** '200' for an answer to its end, else the code of the error, also of one within a stream. */
function endOf(status: number, text: string): string {
  const code = /"code":\s*"([a-z_]+)"/.exec(text)?.[1]
  if (status !== 200) return code ?? `${status} without a code`
  return code === undefined ? '200' : `200, then ${code}`
}

// ── Faults ─────────────────────────────────────────────────────────────────────────────────────

interface Scene {
  readonly engine: FleetEngine
  readonly engines: readonly FleetEngine[]
  readonly random: Random
  readonly network: SimulatedFleet['network']
  readonly simulation: Simulation
}

interface Fault {
  readonly name: string
  readonly deal: (scene: Scene) => void
}

const failing = (actor: string): Fault => ({
  name: `${actor} fails`,
  deal: ({ simulation }) => void simulation.fail(actor),
})

const cutOff = ({ network, simulation, random }: Scene, engines: readonly FleetEngine[]): void => {
  for (const { url } of engines) network.disconnect(url)
  simulation.clock.after(1 + random.below(700), () => {
    for (const { url } of engines) network.reconnect(url)
  })
}

export const FAULTS: readonly Fault[] = [
  ...['queue', 'gateway', 'router', 'tracker', 'directory'].map(failing),
  { name: 'worker cut off', deal: scene => cutOff(scene, [scene.engine]) },
  { name: 'all workers cut off', deal: scene => cutOff(scene, scene.engines) },
  {
    name: 'worker restarts',
    deal: ({ engine, random }) => void engine.engine.restart(random.below(2) === 0 ? 0 : random.below(500)),
  },
  {
    name: 'worker breaks off',
    deal: ({ engine, random }) =>
      engine.engine.setFaults({ die: { tokens: random.below(3), requests: 1 + random.below(3) } }),
  },
  { name: 'worker hangs', deal: ({ engine }) => engine.engine.setFaults({ hang: 'generation' }) },
]
