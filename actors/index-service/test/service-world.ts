/**
 * An index service on a simulated clock, and engines that publish what the test says, on a network in memory.
 */

import { createTestSystem, type TestSystem } from '@homing/actor/testing'
import { type ErrorRecord, SimulatedClock } from '@homing/base'
import {
  encodeEventFrames,
  encodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  type KvEvent,
  kvStored,
  parseReplayRequest,
} from '@homing/protocol'
import { type HttpHeaders, MemoryNetwork, type Publisher, transportCapability } from '@homing/transport'
import type { Test } from 'tap'
import { type IndexServiceArgs, indexService, type ServiceReady } from '../src/index.ts'

export const BLOCK = 4

/** Engine hashes of a test are small numbers. */
export const hashes = (...numbers: readonly number[]): Int32Array =>
  Int32Array.from(numbers.flatMap(number => [number, 0]))

/** Blocks of four tokens; `parent`: an engine hash. */
export function stored(numbers: readonly number[], tokens: readonly number[], parent?: number): KvEvent {
  return kvStored({
    hashes: hashes(...numbers),
    parent: parent === undefined ? undefined : hashes(parent),
    tokens: Int32Array.from(tokens),
    blockSizeTokens: BLOCK,
  })
}

export const tokensUpTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1)

/** What a client got. */
export interface Answer {
  readonly status: number
  readonly headers: HttpHeaders
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of many forms
  readonly json: any
}

export class FakeEngine {
  readonly endpoint: string
  readonly replayEndpoint: string | undefined
  readonly #network: MemoryNetwork
  readonly #payloads: Uint8Array[] = []
  #publisher: Publisher | undefined

  constructor(network: MemoryNetwork, host: string, hasReplay: boolean) {
    this.#network = network
    this.endpoint = `tcp://${host}:5557`
    this.replayEndpoint = hasReplay ? `tcp://${host}:5558` : undefined
  }

  async start(): Promise<void> {
    const { messages } = this.#network.transport()
    this.#publisher = await messages.publish({ endpoint: this.endpoint })
    if (this.replayEndpoint === undefined) return
    const router = await messages.serve({ endpoint: this.replayEndpoint }, (identity, frames) => {
      const from = parseReplayRequest(frames)
      if (from === undefined) return
      for (const [sequence, payload] of this.#payloads.entries()) {
        if (sequence >= from) router.send(identity, encodeReplayReply('topic', '', sequence, payload))
      }
      router.send(identity, encodeReplayEnd('topic'))
    })
  }

  publish(...events: readonly KvEvent[]): void {
    const sequence = this.#payloads.length
    const batch = { timestampSeconds: 1000 + sequence, rank: undefined, events }
    const payload = encodeKvBatch(batch, 'vllm-map')
    this.#payloads.push(payload)
    this.#publisher!.send(encodeEventFrames('', sequence, payload))
  }

  stop(): void {
    this.#publisher!.close()
  }
}

export class ServiceWorld {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly #systems: TestSystem[] = []

  async engine(host: string, { hasReplay = true } = {}): Promise<FakeEngine> {
    const engine = new FakeEngine(this.network, host, hasReplay)
    await engine.start()
    return engine
  }

  /** Starts a service; not ready yet. `system`: one that had a service before. */
  spawn(host: string, overrides: Partial<IndexServiceArgs> = {}, system = this.#newSystem()) {
    const ref = system.spawn(indexService, {
      name: 'index-service',
      args: {
        host,
        port: 8090,
        bodyBytesMax: 8 * 1024 * 1024,
        bodiesBytesMax: 16 * 1024 * 1024,
        bodyTimeoutMs: 1000,
        clientStallTimeoutMs: 1000,
        openRequestsMax: 8,
        threads: 2,
        indexBytes: 8 * 1024 * 1024,
        labelBytes: 1 << 17,
        workerSlotsMax: 8,
        replayTimeoutMs: 500,
        registrations: [],
        peers: [],
        peersMax: 2,
        peerWaitMs: 1000,
        peerTimeoutMs: 10_000,
        peerDumpBytesMax: 1024 * 1024,
        accessLog: undefined,
        traceIdHeader: 'x-trace-id',
        ...overrides,
      },
    })
    const url = `http://${host}:8090`
    const whenReady = ref.ask({ type: 'whenReady' }, { timeout: 60_000 })
    return { system, ref, url, whenReady }
  }

  async start(host: string, overrides: Partial<IndexServiceArgs> = {}, before?: TestSystem) {
    const { system, ref, url, whenReady } = this.spawn(host, overrides, before)
    await system.settle()
    const ready: ServiceReady | ErrorRecord = await whenReady
    return { system, ref, url, ready }
  }

  /** `body`: text goes out as it is, anything else as JSON. */
  async ask(url: string, method: string, path: string, body?: unknown, headers = {}): Promise<Answer> {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const reply = this.network.transport().http.fetch(
      {
        origin: url,
        method,
        path,
        headers,
        ...(body === undefined ? {} : { body: new TextEncoder().encode(text) }),
      },
      { timeoutMs: 10_000 },
    )
    await this.settle()
    const { status, headers: answered, body: bytes } = await reply
    const answer = new TextDecoder().decode(bytes)
    return {
      status,
      headers: answered,
      text: answer,
      get json() {
        return JSON.parse(answer) as unknown
      },
    }
  }

  async settle(): Promise<void> {
    for (const system of this.#systems) await system.settle()
  }

  async advance(duration: string | number): Promise<void> {
    // They share the clock: whoever moves it, the others' timers fire too.
    await this.#systems[0]!.advance(duration as number)
    await this.settle()
  }

  #newSystem(): TestSystem {
    const provide = [[transportCapability, this.network.transport()]] as const
    const system = createTestSystem({ clock: this.clock, provide })
    this.#systems.push(system)
    return system
  }

  async stop(): Promise<void> {
    const ended = this.#systems.map(system => system.shutdown())
    for (const system of this.#systems) await system.advance('1s')
    await Promise.all(ended)
  }
}

export function serviceWorld(t: Test): ServiceWorld {
  const world = new ServiceWorld()
  t.teardown(() => world.stop())
  return world
}

export function registration(engine: FakeEngine, fields: object = {}): object {
  return {
    instance_id: 7,
    endpoint: engine.endpoint,
    ...(engine.replayEndpoint === undefined ? {} : { replay_endpoint: engine.replayEndpoint }),
    model_name: 'm',
    block_size: BLOCK,
    ...fields,
  }
}
