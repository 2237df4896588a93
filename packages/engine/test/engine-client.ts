/**
 * A small client for tests of the engine: HTTP with deadlines, SSE, and a subscriber that keeps every batch.
 */

import assert from 'node:assert/strict'
import { type Clock, seededRandom, silentLog, systemClock } from '@homing/base'
import {
  decodeKvBatch,
  type KvBatch,
  parseEventFrames,
  parseReplayReply,
  replayRequestFrames,
} from '@homing/protocol'
import { type Frames, type Publisher, systemTransport, type Transport } from '@homing/transport'
import type { Test } from 'tap'
import { byteTokenizer, Engine, type EngineSettings } from '../src/index.ts'

const TIMEOUT_MS = 60_000

export interface Answer {
  readonly status: number
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of many forms
  readonly json: any
}

export interface Chunk {
  // biome-ignore lint/suspicious/noExplicitAny: tests look into chunks of many forms
  readonly [name: string]: any
}

/** Free ports, no waiting. */
export const QUICK: Partial<EngineSettings> = { port: 0, eventsPort: 0, replayPort: 0, speed: 0 }

/** What a subscriber is sent until it hears something: a PUB cannot know when a subscription has arrived. */
const GREETING = Buffer.from('greeting')
/** Those of the engines that were started here, by endpoint. */
const publishers = new Map<string, Publisher>()

export interface TestEngine {
  readonly engine: Engine
  readonly transport: Transport
  readonly url: string
  close(): Promise<void>
}

/** An engine on real sockets, with a clock of its own. */
export async function startEngine(
  settings: Partial<EngineSettings> = {},
  onKill?: () => void,
  clock: Clock = systemClock,
): Promise<TestEngine> {
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  const publish: Transport['messages']['publish'] = async options => {
    const publisher = await transport.messages.publish(options)
    publishers.set(publisher.endpoint, publisher)
    return publisher
  }
  const engine = await Engine.start({
    settings: { ...QUICK, ...settings },
    transport: { ...transport, messages: { ...transport.messages, publish } },
    tokenizer: byteTokenizer(),
    clock,
    random: seededRandom(1),
    log: silentLog,
    ...(onKill === undefined ? {} : { onKill }),
  })
  return {
    engine,
    transport,
    url: engine.describe().url,
    async close() {
      await engine.close()
      transport.close()
    },
  }
}

/** One request, whole. */
export async function send(
  transport: Transport,
  origin: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const reply = await transport.http.fetch(
    {
      origin,
      method,
      path,
      headers: { 'content-type': 'application/json', ...headers },
      ...(body === undefined ? {} : { body: new TextEncoder().encode(JSON.stringify(body)) }),
    },
    { timeoutMs: TIMEOUT_MS },
  )
  const text = new TextDecoder().decode(reply.body)
  return { status: reply.status, text, json: text.startsWith('{') ? JSON.parse(text) : undefined }
}

/** The data of an SSE answer; the last one must be [DONE]. */
export function chunksOf(text: string): Chunk[] {
  const events = text.split('\n\n')
  assert.equal(events.pop(), '')
  assert.equal(events.pop(), 'data: [DONE]')
  return events.map(event => {
    assert.ok(event.startsWith('data: '))
    return JSON.parse(event.slice(6)) as Chunk
  })
}

export interface Stream {
  /** Everything so far. */
  text: string
  status: number
  /** How it ended: 'end', 'failed', or undefined. */
  outcome: 'end' | 'failed' | undefined
  readonly ended: Promise<'end' | 'failed'>
  abort(): void
}

/** One request whose answer is followed as it comes. */
export function stream(transport: Transport, origin: string, path: string, body: unknown): Stream {
  let settle: (outcome: 'end' | 'failed') => void = () => {}
  const decoder = new TextDecoder()
  const result: Stream = {
    text: '',
    status: 0,
    outcome: undefined,
    ended: new Promise(resolve => {
      settle = resolve
    }),
    abort: () => call.abort(),
  }
  const end = (outcome: 'end' | 'failed'): void => {
    result.outcome = outcome
    settle(outcome)
  }
  const call = transport.http.call(
    { origin, method: 'POST', path, body: new TextEncoder().encode(JSON.stringify(body)) },
    {
      head: status => {
        result.status = status
      },
      data: bytes => {
        result.text += decoder.decode(bytes, { stream: true })
      },
      end: () => end('end'),
      failed: () => end('failed'),
    },
  )
  return result
}

/** Resolves once the condition holds; rejects after TIMEOUT_MS. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const startMs = performance.now()
  while (!condition()) {
    if (performance.now() - startMs > TIMEOUT_MS) throw new Error(`waited in vain until ${what}`)
    await new Promise(resolve => setImmediate(resolve))
  }
}

export interface Subscriber {
  /** In order of arrival. */
  readonly batches: (KvBatch & { readonly sequence: number })[]
  /** Times it was connected. */
  connections: number
  /** Resolves when it hears what is published over this connection, counted from 1. */
  whenItHears(connection: number): Promise<void>
  close(): void
}

/** Subscribes, and resolves when what is published next is heard. */
export async function subscribe(transport: Transport, endpoint: string): Promise<Subscriber> {
  const batches: Subscriber['batches'] = []
  let heard = 0
  const subscriber: Subscriber = {
    batches,
    connections: 0,
    async whenItHears(connection) {
      await until(() => {
        publishers.get(endpoint)!.send([GREETING])
        return heard === connection
      }, `connected to ${endpoint}`)
    },
    close: () => socket.close(),
  }
  const isGreeting = ([first, ...others]: Frames): boolean => others.length === 0 && GREETING.equals(first!)
  const socket = transport.messages.subscribe(
    { endpoint, topic: '' },
    {
      message(frames) {
        heard = subscriber.connections
        if (isGreeting(frames)) return
        const { sequence, payload } = parseEventFrames(frames)
        batches.push({ ...decodeKvBatch(payload), sequence })
      },
      connected: () => {
        subscriber.connections++
      },
      disconnected: () => {},
    },
  )
  await subscriber.whenItHears(1)
  return subscriber
}

export interface Replay {
  readonly sequences: number[]
  isEnded: boolean
  /** Frames of each reply. */
  readonly frameCounts: number[]
}

/** Asks for a replay from `first` and waits for its end marker. */
export async function replay(transport: Transport, endpoint: string, first: number): Promise<Replay> {
  const result: Replay = { sequences: [], isEnded: false, frameCounts: [] }
  const dealer = transport.messages.dial({ endpoint }, frames => {
    const reply = parseReplayReply(frames)
    result.frameCounts.push(frames.length)
    if (reply.kind === 'batch') result.sequences.push(reply.sequence)
    if (reply.kind === 'end') result.isEnded = true
  })
  dealer.send(replayRequestFrames(first))
  await until(() => result.isEnded, 'the replay has ended')
  dealer.close()
  return result
}

/** Applies batches to copies per engine hash, as an index with reference counts does. */
export class EventLedger {
  /** Engine hash to copies, parent and tokens. */
  readonly blocks = new Map<string, { copies: number; parentHash: string | null; tokenIds: number[] }>()

  apply(batch: KvBatch): void {
    for (const event of batch.events) {
      if (event.kind === 'cleared') this.blocks.clear()
      if (event.kind === 'removed') {
        const hash = hexAt(event.hashes, 0)
        const block = this.blocks.get(hash)
        assert.ok(block, 'what is removed was stored')
        if (--block.copies === 0) this.blocks.delete(hash)
      }
      if (event.kind !== 'stored') continue
      let parentHash = event.parent === undefined ? null : hexAt(event.parent, 0)
      const size = event.blockSizeTokens
      for (let i = 0; i < event.hashes.length / 2; i++) {
        const hash = hexAt(event.hashes, i)
        const tokenIds = [...event.tokens.subarray(i * size, (i + 1) * size)]
        const known = this.blocks.get(hash)
        if (known === undefined) this.blocks.set(hash, { copies: 1, parentHash, tokenIds })
        else known.copies++
        parentHash = hash
      }
    }
  }
}

function hexAt(hashes: Int32Array, index: number): string {
  const word = (at: number): string => (hashes[at]! >>> 0).toString(16).padStart(8, '0')
  return word(2 * index + 1) + word(2 * index)
}

export function ids(count: number, first = 100): number[] {
  return Array.from({ length: count }, (_, i) => first + (i % 100))
}

/** An engine that ends with its test. */
export async function started(
  t: Test,
  settings: Parameters<typeof startEngine>[0] = {},
  onKill?: () => void,
  clock?: Clock,
) {
  const started = await startEngine(settings, onKill, clock)
  t.teardown(() => started.close())
  return {
    ...started,
    post: (path: string, body: unknown, headers?: Record<string, string>) =>
      send(started.transport, started.url, 'POST', path, body, headers),
    get: (path: string) => send(started.transport, started.url, 'GET', path),
  }
}

/** Requests that it runs, and those that wait. */
export function runningOf({ engine }: TestEngine): number {
  return engine.state().ranks.reduce((sum, rank) => sum + rank.running + rank.waiting, 0)
}
