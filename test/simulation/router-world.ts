/**
 * The whole router in a simulation, with faults. One seed is one history.
 *
 *   start ─▶ requests, 1 to 3 faults ─▶ calm: all faults end ─▶ one request to each engine ─▶ checks
 *
 * A lost batch shows only when another one follows it; so every engine is given a last request after the
 * faults.
 */

import { CRASH_POINTS, type SeedOutcome, type Simulation } from '@homing/actor/simulation'
import { type Random, seededRandom } from '@homing/base'
import type { MemoryNetwork } from '@homing/transport'
import {
  BLOCK_SIZE_TOKENS,
  EVENT_THREADS,
  type FleetEngine,
  MODEL,
  SimulatedFleet,
} from './simulated-fleet.ts'

/** Requests begin and faults strike within this time. */
const BUSY_MS = 800
/** Longest end of a request after the last fault, of everything after that. */
const END_MS_MAX = 20_000
const REST_MS_MAX = 20_000
const LOOK_MS = 250

export interface RouterSeedOutcome extends SeedOutcome {
  readonly faults: readonly string[]
  readonly requests: number
  readonly answered: number
}

export interface RouterSeedOptions {
  /** These faults instead of drawn ones. */
  readonly faults?: readonly string[]
  /** Tells each fault, each answer and each line of the logs. */
  readonly tell?: (line: string) => void
}

export async function runRouterSeed(
  seed: number,
  options: RouterSeedOptions = {},
): Promise<RouterSeedOutcome> {
  const world = new RouterWorld(seed, options)
  await world.start()
  await world.work()
  await world.rest()
  await world.check()
  return world.stop()
}

export interface Source extends FleetEngine {
  /** Batches that it keeps for replay. */
  readonly replayBatches: number
  /** Some batches that it published can never be repeated. */
  hasForgotten: boolean
}

class RouterWorld {
  readonly #seed: number
  readonly #random: Random
  readonly #given: readonly string[] | undefined
  readonly #tell: (line: string) => void
  readonly #violations: string[] = []
  readonly #faults: string[] = []
  readonly #sources: Source[] = []
  readonly #prefixes: readonly (readonly number[])[]
  #fleet!: SimulatedFleet
  #requests = 0
  #answered = 0
  #open = 0

  constructor(seed: number, options: RouterSeedOptions) {
    this.#seed = seed
    this.#random = seededRandom(seed)
    this.#given = options.faults
    this.#tell = options.tell ?? (() => {})
    this.#prefixes = Array.from({ length: 3 }, () =>
      this.#tokens(BLOCK_SIZE_TOKENS * (2 + this.#random.below(3))),
    )
  }

  // ── Start ────────────────────────────────────────────────────────────────────────────────────

  async start(): Promise<void> {
    const random = this.#random
    const engines = Array.from({ length: 2 + random.below(2) }, () => {
      const replayBatchesMax = random.below(4) === 0 ? 4 : 1000
      const blocks = 24 + random.below(24)
      // Engines that report only the removal of a block's last copy let a router know their exact state.
      return { replayBatchesMax, blocks, hashSeed: random.below(2 ** 31), removals: 'last' as const }
    })
    this.#fleet = await SimulatedFleet.start({ seed: this.#seed, engines, tell: this.#tell })
    for (const [number, one] of this.#fleet.engines.entries()) {
      this.#sources.push({ ...one, replayBatches: engines[number]!.replayBatchesMax, hasForgotten: false })
    }
  }

  get #simulation(): Simulation {
    return this.#fleet.simulation
  }

  // ── Work and faults ──────────────────────────────────────────────────────────────────────────

  async work(): Promise<void> {
    const { clock } = this.#simulation
    const random = this.#random
    for (let request = 10 + random.below(10); request > 0; request--) {
      clock.after(random.next() * BUSY_MS, () => this.#request())
    }
    const drawn = Array.from({ length: 1 + random.below(3) }, () => FAULTS[random.below(FAULTS.length)]!.name)
    for (const name of this.#given ?? drawn) {
      const fault = FAULTS.find(one => one.name === name)
      if (fault === undefined) throw new Error(`cannot deal the fault ${name}: there is none of that name`)
      clock.after(random.next() * BUSY_MS, () => this.#strike(fault))
    }
    await this.#simulation.run(undefined, { within: BUSY_MS + 1 })
  }

  #strike({ name, deal }: Fault): void {
    const source = this.#sources[this.#random.below(this.#sources.length)]!
    const thread = `events-${this.#random.below(EVENT_THREADS)}`
    const line = `${this.#simulation.clock.nowMs().toFixed(3)} ${name} ${source.url} ${thread}`
    this.#faults.push(name)
    this.#tell(line)
    deal({
      source,
      thread,
      random: this.#random,
      network: this.#fleet.network,
      simulation: this.#simulation,
      hasThread: this.#simulation.threadNames.includes(thread),
    })
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => 33 + this.#random.below(90))
  }

  #prompt(): readonly number[] {
    const prefix = this.#prefixes[this.#random.below(this.#prefixes.length)]!
    return [...prefix, ...this.#tokens(this.#random.below(3 * BLOCK_SIZE_TOKENS))]
  }

  #request(): void {
    const isStream = this.#random.below(2) === 0
    const body = {
      model: MODEL,
      prompt: this.#prompt(),
      max_tokens: 1 + this.#random.below(20),
      stream: isStream,
    }
    this.#requests++
    this.#open++
    const number = this.#requests
    const leaving = new AbortController()
    if (this.#random.below(6) === 0) {
      const reason = new Error('the client leaves')
      this.#simulation.clock.after(this.#random.next() * 60, () => leaving.abort(reason))
    }
    this.#fleet.send({}, body, END_MS_MAX, leaving.signal).then(
      reply => this.#ended(number, String(reply.status), reply.status === 200),
      (error: { code?: string }) => this.#ended(number, error.code ?? String(error), false),
    )
  }

  #ended(number: number, outcome: string, isAnswered: boolean): void {
    this.#open--
    if (isAnswered) this.#answered++
    for (const character of outcome) this.#simulation.mix(character.charCodeAt(0))
    this.#tell(`${this.#simulation.clock.nowMs().toFixed(3)} request ${number}: ${outcome}`)
  }

  // ── Rest and checks ──────────────────────────────────────────────────────────────────────────

  async rest(): Promise<void> {
    const simulation = this.#simulation
    const { network } = this.#fleet
    simulation.setFaults({})
    network.faults.message = undefined
    network.faults.http = undefined
    for (const { engine, url, events } of this.#sources) {
      network.reconnect(url)
      network.reconnect(events)
      engine.clearFaults()
    }
    this.#tell(`${simulation.clock.nowMs().toFixed(3)} calm`)
    const outcome = await simulation.run(() => this.#open === 0, { within: END_MS_MAX })
    if (outcome !== 'reached') this.#violations.push(`${this.#open} requests did not end: ${outcome}`)
    // Restarts of engines and threads are over by then.
    await simulation.run(undefined, { within: 3000 })
    for (const source of this.#sources) await this.#nudge(source)
    await simulation.run(undefined, { within: 1500 })
  }

  /** Makes an engine publish: a lost batch shows when another one follows. */
  async #nudge({ url }: Source): Promise<void> {
    const body = { model: MODEL, prompt: this.#tokens(2 * BLOCK_SIZE_TOKENS), max_tokens: 1 }
    const reply = await this.#fleet.ask({ origin: url }, body)
    if (reply.status !== 200) this.#violations.push(`${url} answered ${reply.status} to a last request`)
  }

  async check(): Promise<void> {
    const simulation = this.#simulation
    const endMs = simulation.clock.nowMs() + REST_MS_MAX
    let found: readonly string[] = []
    do {
      found = await this.#differences()
      if (found.length === 0) break
      await simulation.run(undefined, { within: LOOK_MS })
    } while (simulation.clock.nowMs() < endMs)
    this.#violations.push(...found)
    await this.#checkClaims()
  }

  /** What differs from the state expected at rest. */
  async #differences(): Promise<readonly string[]> {
    const workers = await this.#fleet.workers()
    const dump = await this.#fleet.dump()
    const found: string[] = []
    for (const { engine, url, hasForgotten, replayBatches } of this.#sources) {
      const worker = workers.find(one => one.url === url)
      const key = worker?.worker_keys[0]
      if (worker === undefined || key === undefined) {
        found.push(`${url} is not among the workers`)
        continue
      }
      if (worker.state !== 'up') found.push(`${url} is ${worker.state}: ${worker.state_reason}`)
      const { active_blocks: blocks, prefill_tokens: tokens, requests } = key.load
      if (blocks !== 0 || tokens !== 0 || requests !== 0) {
        found.push(`${url} is booked: ${blocks} blocks, ${tokens} tokens, ${requests} requests`)
      }
      const rank = engine.state({ hasBlocks: true }).ranks[0]!
      const cached = new Set(rank.blocks!.map(({ hash, parentHash }) => `${hash}<${parentHash}`))
      const known = new Set(
        dump[key.worker]?.blocks.map(block => `${block.block_hash}<${block.parent_block_hash}`),
      )
      const reachesBack = !hasForgotten && rank.nextSequence <= replayBatches
      if (reachesBack && key.trust !== 'exact')
        found.push(`${url} is trusted ${key.trust}: ${key.trust_reason}`)
      if (!reachesBack && key.trust !== 'exact') continue
      const missing = [...cached].filter(block => !known.has(block)).length
      const surplus = [...known].filter(block => !cached.has(block)).length
      if (missing > 0 || surplus > 0) {
        found.push(
          `the index of ${url} (${key.trust}) lacks ${missing} of ${cached.size} blocks, has ${surplus} others`,
        )
      }
    }
    return found
  }

  /** No worker is credited with more than its engine then reuses. */
  async #checkClaims(): Promise<void> {
    for (const prefix of this.#prefixes) {
      const body = { model: MODEL, prompt: [...prefix, ...this.#tokens(5)], max_tokens: 1 }
      const reply = await this.#fleet.ask({}, body)
      const text = Buffer.from(reply.body).toString()
      if (reply.status !== 200) {
        this.#violations.push(`a request at rest was answered with ${reply.status}: ${text}`)
        continue
      }
      const { usage } = JSON.parse(text) as { usage: { prompt_tokens_details?: { cached_tokens?: number } } }
      const cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0
      const claimedTokens = Number(reply.headers['x-homing-overlap-blocks']) * BLOCK_SIZE_TOKENS
      if (!(claimedTokens <= cachedTokens)) {
        this.#violations.push(`${claimedTokens} tokens were credited, ${cachedTokens} were there`)
      }
    }
  }

  async stop(): Promise<RouterSeedOutcome> {
    const simulation = this.#simulation
    const slow = await this.#fleet.stop()
    if (slow.length > 0) this.#violations.push(`slow at the end: ${slow.join(', ')}`)
    this.#violations.push(...simulation.violations)
    return {
      traceHash: simulation.traceHash,
      steps: simulation.steps,
      violations: this.#violations,
      faults: this.#faults,
      requests: this.#requests,
      answered: this.#answered,
    }
  }
}

// ── Faults ─────────────────────────────────────────────────────────────────────────────────────

export interface Scene {
  readonly source: Source
  readonly thread: string
  /** The thread lives now. */
  readonly hasThread: boolean
  readonly random: Random
  readonly network: MemoryNetwork
  readonly simulation: Simulation
}

export interface Fault {
  readonly name: string
  readonly deal: (scene: Scene) => void
}

const failing = (actor: string): Fault => ({
  name: `${actor} fails`,
  deal: ({ simulation }) => void simulation.fail(actor),
})

const crash = ({ simulation, thread, random, hasThread }: Scene): void => {
  if (hasThread) simulation.crash(thread, CRASH_POINTS[random.below(CRASH_POINTS.length)]!)
}

export const FAULTS: readonly Fault[] = [
  {
    name: 'events lost',
    deal: ({ source, random }) => source.engine.setFaults({ events: { drop: 1 + random.below(4) } }),
  },
  {
    name: 'events lost for good',
    deal: ({ source, random }) => {
      source.hasForgotten = true
      source.engine.setFaults({ events: { drop: 1 + random.below(2), forget: true } })
    },
  },
  {
    name: 'events doubled',
    deal: ({ source, random }) => source.engine.setFaults({ events: { duplicate: 1 + random.below(4) } }),
  },
  {
    name: 'events late',
    deal: ({ source, random }) =>
      source.engine.setFaults({ events: { delay: 1 + random.below(4), delayMs: 1 + random.below(60) } }),
  },
  {
    name: 'replay incomplete',
    deal: ({ source, random }) =>
      source.engine.setFaults({
        events: { drop: 1 + random.below(3), replayLoseEvery: 2 + random.below(2) },
      }),
  },
  {
    name: 'replay silent',
    deal: ({ source, random }) =>
      source.engine.setFaults({ events: { drop: 1 + random.below(3), replaySilent: true } }),
  },
  {
    name: 'network slow',
    deal: ({ network, random }) => {
      network.faults.message = () => (random.below(4) === 0 ? { delayMs: random.next() * 30 } : 'deliver')
      network.faults.http = () => (random.below(4) === 0 ? { delayMs: random.next() * 30 } : 'deliver')
    },
  },
  {
    name: 'publisher drops',
    deal: ({ source, network, random }) => {
      const { events } = source
      network.faults.message = endpoint => (endpoint === events && random.below(3) === 0 ? 'drop' : 'deliver')
    },
  },
  {
    name: 'events cut',
    deal: ({ source, network, random, simulation }) => {
      network.disconnect(source.events)
      simulation.clock.after(1 + random.below(300), () => network.reconnect(source.events))
    },
  },
  {
    name: 'engine cut off',
    deal: ({ source, network, random, simulation }) => {
      network.disconnect(source.url)
      simulation.clock.after(1 + random.below(300), () => network.reconnect(source.url))
    },
  },
  {
    name: 'engine restarts',
    deal: ({ source, random }) => void source.engine.restart(random.below(2) === 0 ? 0 : random.below(300)),
  },
  {
    name: 'engine breaks off',
    deal: ({ source, random }) =>
      source.engine.setFaults({ die: { tokens: random.below(3), requests: 1 + random.below(2) } }),
  },
  {
    name: 'engine hangs',
    deal: ({ source }) => source.engine.setFaults({ hang: 'generation' }),
  },
  { name: 'thread crashes', deal: crash },
  ...['indexer-0', 'directory', 'tracker', 'tokenizer', 'router', 'queue', 'console', 'gateway'].map(failing),
  {
    name: 'listener fails',
    deal: ({ simulation, source }) =>
      void simulation.fail(`listener ${source.url.slice('http://'.length)}/0`),
  },
  {
    name: 'thread crashes, no spare',
    deal: scene => {
      scene.simulation.setFaults({ spareNotReady: 1, slowStartMsMax: 1500 })
      crash(scene)
    },
  },
  {
    name: 'thread crashes again and again',
    deal: ({ simulation }) => simulation.setFaults({ crash: 0.01, crashesMax: 4, spareNotReady: 0.3 }),
  },
  {
    name: 'thread hangs',
    deal: ({ simulation, thread, random, hasThread }) => {
      if (hasThread) simulation.hang(thread, 1 + random.below(1200))
    },
  },
  {
    name: 'links slow',
    deal: ({ simulation }) => simulation.setFaults({ delay: 0.3, delayMsMax: 40 }),
  },
]
