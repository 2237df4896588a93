/**
 * Service observer: `homing indexer` in a history of lives, and a peer of it.
 *
 * Owns   the present life of the service, and the signs by instance that it follows.
 */

import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import { type IndexServiceArgs, indexService } from '@homing/actors/index-service'
import { checkpointFiles } from '@homing/actors/listener'
import { seededRandom } from '@homing/base'
import type { Trust } from '@homing/index'
import { Metrics, serviceProcessMetrics } from '@homing/metrics'
import { transportCapability } from '@homing/transport'
import { SlowStore } from './life-checkpoints.ts'
import { CHECKPOINT_INTERVAL_MS, type Claim, REPLAY_TIMEOUT_MS } from './life-claim.ts'
import type { LifeEngine } from './life-engine.ts'
import { BLOCK_TOKENS, PROMPTS } from './life-prompts.ts'
import { Signs } from './life-signs.ts'
import type { Places, Surroundings } from './life-surroundings.ts'
import { Wire } from './life-wire.ts'

/** What a service is configured to follow: the engine, and whose sockets it gets for it. */
export interface ServiceRank {
  readonly engine: LifeEngine
  readonly instanceId: bigint
  readonly endpoint: string
  readonly replayEndpoint: string | undefined
}

/** `homing indexer`. Every instance has its own model name, so its trust can be read separately. */
export class ServiceObserver {
  readonly wire: Wire
  readonly url: string
  readonly store: SlowStore
  readonly #around: Surroundings
  readonly #who: string
  readonly #place: Places['service']
  readonly #given: readonly ServiceRank[]
  /** Registered once the service has started. */
  readonly #late: ServiceRank | undefined
  readonly #peer: ServiceObserver | undefined
  readonly #checkpoints: boolean
  #system: TestSystem | undefined
  #signs: Signs[] = []
  #hasResumed = false

  constructor(
    around: Surroundings,
    who: string,
    place: Places['service'],
    given: readonly ServiceRank[],
    late: ServiceRank | undefined,
    peer: ServiceObserver | undefined,
    options: { readonly checkpoints: boolean; readonly writeMs: number },
  ) {
    this.#around = around
    this.#who = who
    this.#place = place
    this.#given = given
    this.#late = late
    this.#peer = peer
    this.#checkpoints = options.checkpoints
    this.url = `http://${place.host}:${place.port}`
    const [first] = given
    this.store = new SlowStore(around.clock, options.writeMs, () => ({
      moment: around.moments.now,
      process: first!.engine.process,
      signs: this.#signs[0]!,
      salted: [],
    }))
    const of = (endpoint: string) => this.#signs.filter(({ engine }) => engine.eventsEndpoint === endpoint)
    this.wire = new Wire(
      around.clock,
      around.origins,
      {
        live: (endpoint, origin) => {
          if (origin !== undefined) for (const signs of of(endpoint)) signs.live(origin)
        },
        repeated: (_endpoint, origin) => {
          for (const signs of this.#signs) signs.repeated(origin)
        },
        connected: endpoint => {
          for (const signs of of(endpoint)) signs.connected()
        },
        disconnected: endpoint => {
          for (const signs of of(endpoint)) signs.disconnected()
        },
        polled() {},
        probed() {},
      },
      line => around.tell(`${who}: ${line}`),
    )
  }

  get system(): TestSystem | undefined {
    return this.#system
  }

  get isUp(): boolean {
    return this.#system !== undefined
  }

  get #ranks(): readonly ServiceRank[] {
    return this.#late === undefined ? this.#given : [...this.#given, this.#late]
  }

  async start(): Promise<void> {
    if (this.isUp) return
    const { clock, random, moments, systems } = this.#around
    this.#signs = this.#ranks.map(({ engine }) => new Signs(engine, clock, moments))
    this.#hasResumed = false
    const system = createTestSystem({
      clock,
      random: seededRandom(random.below(2 ** 31)),
      provide: [
        [transportCapability, this.wire.over(this.#around.transport())],
        [checkpointFiles, this.store],
        [serviceProcessMetrics, new Metrics()],
      ],
    })
    systems.add(system)
    this.#system = system
    const args: IndexServiceArgs = {
      ...this.#place,
      bodyBytesMax: 1 << 20,
      bodiesBytesMax: 1 << 24,
      bodyTimeoutMs: 1000,
      clientStallTimeoutMs: 1000,
      openRequestsMax: 64,
      threads: 1,
      indexBytes: 1 << 19,
      labelBytes: 1 << 16,
      workerSlotsMax: 4,
      replayTimeoutMs: REPLAY_TIMEOUT_MS,
      ...(this.#checkpoints
        ? { checkpointDirectory: '/checkpoints', checkpointIntervalMs: CHECKPOINT_INTERVAL_MS }
        : {}),
      registrations: this.#given.map(({ instanceId, endpoint, replayEndpoint }) => ({
        instanceId,
        dpRank: 0,
        model: modelOf(instanceId),
        group: 'default',
        endpoint,
        replayEndpoint,
        blockSizeTokens: BLOCK_TOKENS,
      })),
      peers: this.#peer === undefined ? [] : [this.#peer.url],
      peersMax: 2,
      peerWaitMs: 100,
      peerTimeoutMs: 1000,
      peerDumpBytesMax: 1 << 20,
      accessLog: undefined,
      traceIdHeader: 'x-trace-id',
    }
    system.spawn(indexService, { name: 'index-service', args })
    if (this.#late === undefined) return
    await this.#around.advance(1)
    const { instanceId, endpoint, replayEndpoint } = this.#late
    const registration = {
      instance_id: Number(instanceId),
      endpoint,
      ...(replayEndpoint === undefined ? {} : { replay_endpoint: replayEndpoint }),
      model_name: modelOf(instanceId),
      block_size: BLOCK_TOKENS,
    }
    const transport = this.#around.transport()
    const body = Buffer.from(JSON.stringify(registration))
    const request = { origin: this.url, method: 'POST', path: '/register', body }
    await this.#around.soon(transport.http.fetch(request, { timeoutMs: 1000 }))
    transport.close()
  }

  async stop(): Promise<void> {
    const system = this.#system
    if (system === undefined) return
    this.#system = undefined
    await this.#around.finish(system.shutdown())
    this.#around.systems.delete(system)
  }

  /** As the router does. */
  async #lookForCheckpoint(): Promise<void> {
    if (!this.#checkpoints || this.#hasResumed) return
    const file = this.store.lastRead(`${this.#given[0]!.endpoint} 0`)
    if (file === undefined || file.takenOver.passed.length === 0) return
    const [said] = await this.trusts()
    if (said?.hasResumed !== true) return
    this.#hasResumed = true
    this.#signs[0]!.resumed(file.takenOver)
  }

  async claims(): Promise<readonly Claim[]> {
    if (!this.isUp) return []
    await this.#lookForCheckpoint()
    const transport = this.#around.transport()
    const asked = this.#ranks.map(async ({ engine, instanceId }, i) => {
      const credited = new Set<number>()
      const trusts = new Set<Trust>()
      const answers = PROMPTS.map(async ({ tokens, salt, blocks }) => {
        const query = {
          token_ids: tokens,
          model_name: modelOf(instanceId),
          ...(salt === undefined ? {} : { cache_salt: salt }),
        }
        const reply = await transport.http.fetch(
          { origin: this.url, method: 'POST', path: '/query', body: Buffer.from(JSON.stringify(query)) },
          { timeoutMs: 1000 },
        )
        if (reply.status !== 200) return
        const { scores } = JSON.parse(Buffer.from(reply.body).toString()) as {
          scores: Readonly<Record<string, Readonly<Record<string, number>>>>
        }
        const overlap = (scores[instanceId.toString()]?.['0'] ?? 0) / BLOCK_TOKENS
        if (overlap === 0) return
        trusts.add(reply.headers['x-homing-trust'] as Trust)
        for (const block of blocks.slice(0, overlap)) credited.add(block)
      })
      await Promise.all(answers).catch(() => undefined)
      const signs = this.#signs[i]!
      const [trust = 'none'] = trusts
      return {
        who: this.#nameOf(instanceId),
        engine,
        trust,
        reason: '',
        credited: [...credited],
        knownForMs: (block: number) =>
          trust === 'approximate' ? signs.knownOfWordForMs(block) : signs.knownForMs(block),
        mistakenForMs: () => signs.mistakenForMs,
        hasPassed: signs.hasPassed,
        isLive: async () => (await this.trusts())[i]?.isActive === true,
        unobservable: (block: number) => signs.unobservable(block),
        isDoubted: (block: number) => signs.isDoubted(block),
      }
    })
    const claims = await this.#around.soon(Promise.all(asked))
    transport.close()
    return claims ?? []
  }

  #nameOf(instanceId: bigint): string {
    return this.#ranks.length > 1 ? `${this.#who}, instance ${instanceId}` : this.#who
  }

  /** The trust that it reports for its ranks. */
  async trusts(): Promise<
    readonly (Pick<Claim, 'who' | 'engine' | 'trust' | 'reason'> & {
      readonly isActive: boolean
      readonly hasResumed: boolean
    })[]
  > {
    const transport = this.#around.transport()
    const asked = transport.http.fetch(
      { origin: this.url, method: 'GET', path: '/workers' },
      { timeoutMs: 1000 },
    )
    const reply = await this.#around.soon(asked)
    transport.close()
    if (reply?.status !== 200) return []
    const instances = JSON.parse(Buffer.from(reply.body).toString()) as readonly {
      readonly instance_id: number
      readonly listeners: Readonly<
        Record<
          string,
          {
            readonly trust: Trust
            readonly trust_reason: string
            readonly status: string
            readonly resumed_sequence: number | null
          }
        >
      >
    }[]
    return this.#ranks.flatMap(({ instanceId, engine }) => {
      const listener = instances.find(({ instance_id: id }) => id === Number(instanceId))?.listeners['0']
      if (listener === undefined) return []
      const { trust, trust_reason: reason, status } = listener
      const who = this.#nameOf(instanceId)
      const [isActive, hasResumed] = [status === 'active', listener.resumed_sequence !== null]
      return [{ who, engine, trust, reason: `${status}: ${reason}`, isActive, hasResumed }]
    })
  }
}

function modelOf(instanceId: bigint): string {
  return `m${instanceId}`
}
