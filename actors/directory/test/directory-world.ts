/** A directory on a simulated clock, its indexers as probes, and engines on a network in memory. */

import { createTestSystem, type Probe } from '@homing/actor/testing'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import { recordingLog, SimulatedClock } from '@homing/base'
import { type Fleet, type FleetMessage, parseWorkerSpec, type WorkerRecord } from '@homing/fleet'
import { type HttpListener, MemoryNetwork, type Publisher, transportCapability } from '@homing/transport'
import type { Test } from 'tap'
import { type DirectoryArgs, directory } from '../src/index.ts'

export interface EngineAnswers {
  readonly model?: string
  readonly blockSizeTokens?: number
  /** Null: it does not say. */
  readonly startSeconds?: number | null
  readonly events?: readonly object[] | undefined
  readonly ranks?: number
  /** Share of its KV cache that requests use; default: its metrics do not say. */
  readonly kvUsage?: number
  /** Default true. */
  readonly canTokenize?: boolean
}

export const utf8 = new TextEncoder()

export class DirectoryWorld {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly log = recordingLog()
  readonly system = createTestSystem({
    clock: this.clock,
    log: this.log,
    provide: [[transportCapability, this.network.transport()]],
  })
  readonly outside = this.network.transport()
  readonly indexers: readonly Probe<IndexerMessage | RoutedMessage>[]
  readonly subscriber = this.system.probe<FleetMessage>('subscriber')
  /** Paths asked for, per engine. */
  readonly asked = new Map<string, string[]>()
  readonly answers = new Map<string, EngineAnswers>()
  #ref:
    | ReturnType<typeof this.system.spawn<import('../src/index.ts').DirectoryMessage, DirectoryArgs>>
    | undefined

  constructor(shardCount = 1) {
    this.indexers = Array.from({ length: shardCount }, (_, i) =>
      this.system.probe<IndexerMessage | RoutedMessage>(`indexer-${i}`),
    )
  }

  get ref() {
    return this.#ref!
  }

  start(workers: readonly string[], overrides: Partial<DirectoryArgs> = {}): void {
    this.#ref = this.system.spawn(directory, {
      name: 'directory',
      args: {
        specs: workers.map(parseWorkerSpec),
        indexers: this.indexers.map(({ ref }) => ref),
        kvEvents: true,
        blockSizeTokens: undefined,
        workerSlotsMax: 16,
        probeIntervalMs: 2000,
        probeTimeoutMs: 1000,
        replayTimeoutMs: 1500,
        ...overrides,
      },
    })
    this.#ref.tell({ type: 'subscribe', subscriber: this.subscriber.ref })
  }

  /**
   * An engine on a host. Its answers are kept under its host, or 'host:port' where the port is another than
   * 8000.
   */
  async engine(host: string, answers: EngineAnswers = {}, port = 8000): Promise<HttpListener> {
    const name = port === 8000 ? host : `${host}:${port}`
    this.answers.set(name, answers)
    return this.outside.http.listen({ host, port }, exchange => {
      this.asked.set(name, [...(this.asked.get(name) ?? []), exchange.path])
      const body = answerOf(exchange.path, this.answers.get(name)!)
      exchange.writeHead(body === undefined ? 404 : 200, {})
      exchange.end(
        utf8.encode(typeof body === 'string' ? body : JSON.stringify(body ?? { detail: 'Not Found' })),
      )
    })
  }

  /** The same, and lets everybody finish what can be done now. */
  async begin(workers: readonly string[], overrides: Partial<DirectoryArgs> = {}): Promise<void> {
    this.start(workers, overrides)
    await this.system.settle()
  }

  /** What the listener of a worker slot tells: all is well. */
  async exact(workerSlot: number, blockSizeTokens?: number): Promise<void> {
    const well = { trust: 'exact', epoch: 1, isSuffix: false, reason: 'all is well' } as const
    this.ref.tell({ type: 'source', workerSlot, ...well, blockSizeTokens })
    await this.system.settle()
  }

  publisher(endpoint: string): Promise<Publisher> {
    return this.outside.messages.publish({ endpoint })
  }

  /** Has nothing to replay, and says so. */
  async replaySocket(endpoint: string): Promise<void> {
    const socket = await this.outside.messages.serve({ endpoint }, identity => {
      const nothing = new Uint8Array(0)
      socket.send(identity, [nothing, nothing, new Uint8Array(8).fill(0xff), nothing])
    })
  }

  get fleet(): Fleet {
    return this.subscriber.waiting.at(-1)!.fleet
  }

  worker(position = 0): WorkerRecord {
    return this.fleet.workers[position]!
  }
}

function answerOf(path: string, answers: EngineAnswers): unknown {
  const { model = 'm', blockSizeTokens = 16, startSeconds = 1000, events, ranks = 1 } = answers
  if (path === '/v1/models') {
    return { data: [{ id: model, owned_by: 'vllm', root: '/models/m', parent: null, max_model_len: 4096 }] }
  }
  if (path === '/version') return { version: '0.32.0' }
  if (path === '/tokenize') return answers.canTokenize === false ? undefined : { tokens: [1, 2], count: 2 }
  if (path === '/kv_event_sources') return events
  if (path !== '/metrics') return undefined
  const lines = Array.from({ length: ranks }, (_, rank) => `vllm:num_requests_running{engine="${rank}"} 0.0`)
  lines.push(`vllm:cache_config_info{block_size="${blockSizeTokens}",num_gpu_blocks="100",engine="0"} 1.0`)
  if (answers.kvUsage !== undefined) lines.push(`vllm:kv_cache_usage_perc{engine="0"} ${answers.kvUsage}`)
  if (startSeconds !== null) lines.push(`process_start_time_seconds ${startSeconds}`)
  return lines.join('\n')
}

export async function world(t: Test, shardCount = 1): Promise<DirectoryWorld> {
  const made = new DirectoryWorld(shardCount)
  t.teardown(async () => {
    await made.system.shutdown()
    made.outside.close()
  })
  return made
}

export const EVENTS = [
  { data_parallel_rank: 0, endpoint: 'tcp://*:5557', replay_endpoint: 'tcp://*:5558', topic: 'kv-events' },
]
