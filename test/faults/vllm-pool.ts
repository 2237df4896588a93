/**
 * vLLM's own block pool and event publisher as an engine: vllm-pool.py behind an HTTP front, and a relay of
 * its events that injects faults.
 *
 *   requests ──▶ front ──▶ vllm-pool.py ──▶ PUB ──▶ relay ──▶ router      batches keep their numbers
 *                                      ──▶ ROUTER ──────────▶ router      replays are vLLM's, losses too
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { systemClock } from '@homing/base'
import { hexOfHash } from '@homing/engine'
import { decodeKvBatch, parseEventFrames } from '@homing/protocol'
import {
  type Closable,
  type Frames,
  type Publisher,
  systemTransport,
  type Transport,
} from '@homing/transport'
import { freePorts } from '@homing/transport/testing'

export const BLOCK_SIZE_TOKENS = 16
const SCRIPT = fileURLToPath(new URL('vllm-pool.py', import.meta.url))
const FIND_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
const MODEL = 'vllm-pool'
const HOST = '127.0.0.1'

/** Whether the python3 of this machine has vLLM. */
export function hasVllm(): boolean {
  return spawnSync('python3', ['-c', FIND_VLLM]).status === 0
}

type Answer = Readonly<Record<string, unknown>>

/** The process; it has at most one engine at a time. */
export class PoolProcess {
  readonly #child: ChildProcess
  readonly #waiting = new Map<number, PromiseWithResolvers<Answer>>()
  readonly #ready = Promise.withResolvers<void>()
  #ended = Promise.withResolvers<void>()
  #id = 0
  #pid: number | undefined

  private constructor() {
    this.#child = spawn('python3', [SCRIPT], { stdio: ['pipe', 'pipe', 'ignore'] })
    process.once('exit', () => this.close())
    createInterface({ input: this.#child.stdout! }).on('line', line =>
      this.#onLine(JSON.parse(line) as Answer),
    )
    this.#child.once('exit', () => this.#ready.reject(new Error('vllm-pool.py has ended')))
  }

  /** Takes some seconds: vLLM is loaded. */
  static async open(): Promise<PoolProcess> {
    const self = new PoolProcess()
    await self.#ready.promise
    return self
  }

  async start(settings: Answer): Promise<void> {
    const { pid } = await this.ask('start', settings)
    this.#pid = pid as number
  }

  /** Rejects when the engine is killed meanwhile, or refuses. */
  ask(op: string, fields: Answer = {}): Promise<Answer> {
    const id = ++this.#id
    const answer = Promise.withResolvers<Answer>()
    this.#waiting.set(id, answer)
    this.#child.stdin!.write(`${JSON.stringify({ ...fields, op, id })}\n`)
    return answer.promise
  }

  /** As the kernel does when memory is short. */
  async kill(): Promise<void> {
    if (this.#pid === undefined) return
    process.kill(this.#pid, 'SIGKILL')
    this.#pid = undefined
    await this.#ended.promise
  }

  close(): void {
    if (this.#pid !== undefined) process.kill(this.#pid, 'SIGKILL')
    this.#pid = undefined
    this.#child.kill('SIGKILL')
  }

  #onLine(answer: Answer): void {
    if (answer['ready'] === true) this.#ready.resolve()
    else if (answer['ended'] !== undefined) {
      for (const { reject } of this.#waiting.values()) reject(new Error('the engine was killed'))
      this.#waiting.clear()
      this.#ended.resolve()
      this.#ended = Promise.withResolvers()
    } else {
      const id = answer['id'] as number
      const waiting = this.#waiting.get(id)
      this.#waiting.delete(id)
      if (answer['error'] === undefined) waiting?.resolve(answer)
      else waiting?.reject(new Error(answer['error'] as string))
    }
  }
}

export interface PoolSettings {
  readonly hasReplay: boolean
  /** Blocks of the cache; vLLM never uses one of them. */
  readonly blocks: number
  /** Batches kept for replay. */
  readonly bufferBatches: number
  /**
   * What the router is configured to take from another publisher as if from this engine; default: nothing.
   */
  readonly neighbour?: 'replay' | 'events'
}

/** Published before the router comes. */
const NEIGHBOUR_BATCHES = 300
/** For a subscription to arrive. */
const SUBSCRIBED_MS = 300

/** Faults of the next batches on their way to the router. */
export interface RelayFaults {
  readonly drop?: number
  readonly duplicate?: number
  readonly delay?: number
  readonly delayMs?: number
}

export class PoolEngine {
  readonly wire = new Wire()
  readonly #process: PoolProcess
  readonly #settings: PoolSettings
  readonly #transport: Transport
  #front: Server | undefined
  #port = 0
  #eventsPort = 0
  #replayPort = 0
  #startSeconds = 0
  #subscriber: Closable | undefined
  #publisher: Publisher | undefined
  #relayPort = 0
  #neighbourEventsPort = 0
  #neighbourReplayPort = 0
  #neighbourSubscriber: Closable | undefined
  #isInPlace = false
  #isEngineUp = false
  #isCut = false
  #faults: Required<RelayFaults> = { drop: 0, duplicate: 0, delay: 0, delayMs: 0 }

  private constructor(pool: PoolProcess, settings: PoolSettings) {
    this.#process = pool
    this.#settings = settings
    this.#transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  }

  static async start(pool: PoolProcess, settings: PoolSettings): Promise<PoolEngine> {
    const self = new PoolEngine(pool, settings)
    const [port, events, replay, relay, neighbourEvents, neighbourReplay] = (await freePorts(6)) as [
      ...(readonly [number, number, number, number, number, number]),
    ]
    self.#port = port
    self.#eventsPort = events
    self.#replayPort = replay
    self.#relayPort = relay
    self.#neighbourEventsPort = neighbourEvents
    self.#neighbourReplayPort = neighbourReplay
    await self.#begin()
    self.#subscriber = self.#subscribe()
    await self.#relayIsUp.promise
    await self.#beginNeighbour()
    return self
  }

  get url(): string {
    return `http://${HOST}:${this.#port}`
  }

  /** As `--worker` takes it. */
  get workerUrl(): string {
    const { hasReplay, neighbour } = this.#settings
    const port = neighbour === 'replay' ? this.#neighbourReplayPort : this.#replayPort
    const replay = hasReplay ? `&replay=${port}` : ''
    return `${this.url}?events=${this.#relayPort}${replay}`
  }

  deal(faults: RelayFaults): void {
    this.#faults = { ...this.#faults, ...faults }
  }

  /** Breaks the connection of its events to the router for so long. */
  async cut(forMs: number): Promise<void> {
    this.#isCut = true
    this.#closeRelay()
    await pause(forMs)
    this.#isCut = false
    await this.#openRelay()
  }

  async restart(downMs: number): Promise<void> {
    await this.#end()
    await pause(downMs)
    await this.#begin()
  }

  /** As behind a proxy: connections to the router stay, and the process start that the engine tells. */
  async restartInPlace(): Promise<void> {
    this.#isInPlace = true
    this.#isEngineUp = false
    this.#resubscribed = Promise.withResolvers()
    await this.#process.kill()
    await this.#startProcess()
    await this.#resubscribed.promise
    await pause(SUBSCRIBED_MS)
    this.#isEngineUp = true
    this.#isInPlace = false
  }

  /** Publishes so many batches as fast as it can; how many there are then. */
  async burst(batches: number): Promise<number> {
    return (await this.#process.ask('burst', { batches }))['sequence'] as number
  }

  async clear(): Promise<boolean> {
    return (await this.#process.ask('clear'))['success'] === true
  }

  /** Hashes of the cached blocks; empty while there is no engine. */
  async held(): Promise<ReadonlySet<string>> {
    if (!this.#isEngineUp) return new Set()
    const { blocks } = await this.#process.ask('held').catch(() => ({ blocks: [] }))
    return new Set(blocks as readonly string[])
  }

  async stop(): Promise<void> {
    await this.#end()
    this.#subscriber?.close()
    this.#neighbourSubscriber?.close()
    this.#closeRelay()
    this.#transport.close()
  }

  // The engine and its front.

  async #startProcess(): Promise<void> {
    const { hasReplay, blocks, bufferBatches } = this.#settings
    await this.#process.start({
      events: this.#eventsPort,
      replay: hasReplay ? this.#replayPort : null,
      block: BLOCK_SIZE_TOKENS,
      blocks,
      buffer: bufferBatches,
    })
  }

  async #beginNeighbour(): Promise<void> {
    const { neighbour } = this.#settings
    if (neighbour === undefined) return
    await this.#process.ask('neighbour', {
      events: this.#neighbourEventsPort,
      replay: this.#neighbourReplayPort,
      rank: neighbour === 'events' ? 1 : 0,
      batches: NEIGHBOUR_BATCHES,
    })
    if (neighbour !== 'events') return
    const connected = Promise.withResolvers<void>()
    this.#neighbourSubscriber = this.#transport.messages.subscribe(
      { endpoint: `tcp://${HOST}:${this.#neighbourEventsPort}`, topic: '' },
      {
        message: frames => this.#publisher?.send(frames),
        connected: () => connected.resolve(),
        disconnected() {},
      },
    )
    await connected.promise
    await pause(SUBSCRIBED_MS)
  }

  async #begin(): Promise<void> {
    await this.#startProcess()
    this.#startSeconds = Date.now() / 1000
    this.#isEngineUp = true
    const front = createServer((request, response) => void this.#serve(request, response))
    await new Promise<void>(resolve => front.listen(this.#port, HOST, resolve))
    this.#front = front
  }

  async #end(): Promise<void> {
    this.#isEngineUp = false
    this.#front?.closeAllConnections()
    this.#front?.close()
    await this.#process.kill()
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const send = (status: number, body: object | string): void => {
      response.writeHead(status, {
        'content-type': typeof body === 'string' ? 'text/plain' : 'application/json',
      })
      response.end(typeof body === 'string' ? body : JSON.stringify(body))
    }
    switch (request.url) {
      case '/v1/models':
        send(200, {
          object: 'list',
          data: [{ id: MODEL, object: 'model', owned_by: 'vllm', max_model_len: 100_000 }],
        })
        return
      case '/version':
        send(200, { version: '0.32.0' })
        return
      case '/metrics':
        send(200, this.#metrics())
        return
      case '/v1/completions':
        try {
          send(200, await this.#complete(request))
        } catch {
          // It was killed: so is the connection.
          response.destroy()
        }
        return
      default:
        send(404, { detail: 'Not Found' })
    }
  }

  async #complete(request: IncomingMessage): Promise<object> {
    const chunks: Uint8Array[] = []
    for await (const chunk of request) chunks.push(chunk as Uint8Array)
    const body = JSON.parse(Buffer.concat(chunks).toString()) as { prompt: number[]; max_tokens: number }
    const { hit } = await this.#process.ask('run', { tokens: body.prompt, out: body.max_tokens })
    const usage = {
      prompt_tokens: body.prompt.length,
      completion_tokens: body.max_tokens,
      total_tokens: body.prompt.length + body.max_tokens,
      prompt_tokens_details: { cached_tokens: hit },
    }
    const choices = [{ index: 0, text: '', finish_reason: 'length' }]
    return { id: 'cmpl-0', object: 'text_completion', created: 0, model: MODEL, choices, usage }
  }

  #metrics(): string {
    return [
      `process_start_time_seconds ${this.#startSeconds}`,
      `vllm:cache_config_info{block_size="${BLOCK_SIZE_TOKENS}",num_gpu_blocks="${this.#settings.blocks}",engine="0"} 1.0`,
      '',
    ].join('\n')
  }

  // The relay.

  readonly #relayIsUp = Promise.withResolvers<void>()
  /** After a restart in place. */
  #resubscribed = Promise.withResolvers<void>()

  #subscribe(): Closable {
    return this.#transport.messages.subscribe(
      { endpoint: `tcp://${HOST}:${this.#eventsPort}`, topic: '' },
      {
        message: frames => this.#relay(frames),
        connected: () => {
          this.#resubscribed.resolve()
          void this.#openRelay().then(this.#relayIsUp.resolve)
        },
        disconnected: () => {
          this.wire.ended()
          if (this.#isInPlace) return
          this.wire.said(0, performance.now())
          this.#closeRelay()
        },
      },
    )
  }

  async #openRelay(): Promise<void> {
    if (this.#isCut || this.#publisher !== undefined) return
    this.#publisher = await this.#transport.messages.publish({ endpoint: `tcp://${HOST}:${this.#relayPort}` })
  }

  #closeRelay(): void {
    this.#publisher?.close()
    this.#publisher = undefined
  }

  #relay(frames: Frames): void {
    const { sequence, payload } = parseEventFrames(frames)
    this.wire.published(sequence, payload)
    const { drop, duplicate, delay, delayMs } = this.#faults
    if (drop > 0) {
      this.deal({ drop: drop - 1 })
    } else if (delay > 0) {
      this.deal({ delay: delay - 1 })
      setTimeout(() => this.#send(sequence, frames), delayMs)
    } else {
      this.#send(sequence, frames)
      if (duplicate === 0) return
      this.deal({ duplicate: duplicate - 1 })
      this.#send(sequence, frames)
    }
  }

  #send(sequence: number, frames: Frames): void {
    if (this.#publisher === undefined) return
    this.#publisher.send(frames)
    this.wire.said(sequence, performance.now())
  }
}

/**
 * Since when it could be known of each block that it is gone: since a batch of then, or of later, went to the
 * router.
 */
export class Wire {
  readonly #stored = new Set<string>()
  readonly #removed = new Map<string, { readonly sequence: number; knownMs: number | undefined }>()

  published(sequence: number, payload: Uint8Array): void {
    for (const event of decodeKvBatch(payload).events) {
      if (event.kind === 'cleared') {
        for (const hash of this.#stored) this.#remove(hash, sequence)
        continue
      }
      for (let i = 0; i < event.hashes.length; i += 2) {
        const hash = hexOfHash(event.hashes[i]!, event.hashes[i + 1]!)
        if (event.kind === 'removed') this.#remove(hash, sequence)
        else {
          this.#stored.add(hash)
          this.#removed.delete(hash)
        }
      }
    }
  }

  said(sequence: number, nowMs: number): void {
    for (const removed of this.#removed.values()) {
      if (removed.sequence <= sequence) removed.knownMs ??= nowMs
    }
  }

  /** The engine and its whole cache have ended. The next message shows it. */
  ended(): void {
    for (const hash of this.#stored) this.#remove(hash, 0)
  }

  /** Whether the engine ever held it. */
  knows(hash: string): boolean {
    return this.#stored.has(hash) || this.#removed.has(hash)
  }

  knownMs(hash: string): number | undefined {
    return this.#removed.get(hash)?.knownMs
  }

  #remove(hash: string, sequence: number): void {
    this.#stored.delete(hash)
    this.#removed.set(hash, { sequence, knownMs: undefined })
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}
