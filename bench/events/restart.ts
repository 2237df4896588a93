/**
 * Restart: how long a router takes from its start until it knows a full fleet exactly, beyond what it takes
 * where all caches are empty. Real servers: `homing router` as a process of its own, a NATS server, and
 * workers of which only the publishers and the probed routes are real.
 *
 *   restart   from the snapshots beside the stream and the rest of the stream: engines that answer no
 *             snapshots and have forgotten nearly all
 *   local     from the local indexers of @homing/publisher, through the same broker, without a stream
 */

import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { systemClock } from '@homing/base'
import { BatchRing, createPublisher, EventService } from '@homing/publisher'
import { type MessageTransport, systemTransport } from '@homing/transport'
import { NatsServer } from '@homing/transport/testing'
import { pause } from '../actors/loads.ts'
import { type Measures, say } from '../harness.ts'
import { cpuMsOf, knowsCpuTime, type Process, startProcess } from '../http/processes.ts'
import { median } from '../statistics.ts'
import { BLOCK_TOKENS, onePayload, runOf, TOPIC } from './workload.ts'

const ROUTER = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const STREAM = 'homing-kv-default'
const MODEL = 'bench'
/** An engine that has forgotten nearly all: batches that it can repeat. */
const KEPT_BATCHES = 64
const LOOK_MS = 10
/** More messages than a stream ever has. */
const NEVER = 2 ** 40
/** Runs of one engine. */
const RUNS_MAX = 2 ** 16
/** Published and not yet stored: less than a publisher keeps for its stream. */
const AHEAD_MAX = 512
const WAIT_MS_MAX = 120_000

export interface RestartOptions {
  readonly keys: number
  /** Of all keys together. */
  readonly blocks: number
  readonly batchBlocks: number
  /** Of the blocks, the part that comes behind the snapshots. */
  readonly restShare: number
  /** Starts of each kind. */
  readonly starts: number
}

interface Engine {
  readonly url: string
  /** Stores the run of this number. */
  publish(number: number): void
  close(): Promise<void>
}

/** From snapshots beside the stream. */
export async function restartFromStream(options: RestartOptions): Promise<Measures> {
  const { keys, blocks, batchBlocks, restShare } = options
  const batches = Math.floor(blocks / batchBlocks / keys)
  const rest = Math.ceil(batches * restShare)
  return await withBroker(async (broker, messages, stored) => {
    const stream = { namespace: 'default', retentionMs: 3_600_000, bytesMax: 2 ** 30 }
    const engines = await openAll(keys, i => streamEngine(messages, broker, i, { batchBlocks, stream }))
    const manager = await broker.manage()
    try {
      const messagesLeft = async () => (await manager.streams.streams.info(STREAM)).state.messages
      const startedAt = (threshold: number) =>
        startRouter(broker, engines, [
          '--router-durable-kv-events',
          ...['--router-snapshot-threshold', String(threshold)],
        ])
      const empty = await startOf(options, broker, () => startedAt(NEVER), 0)
      await publishAll(engines, 0, batches - rest, stored)
      // How many messages that is, only the stream knows: publishers pack what they say fast.
      const first = await startedAt((await messagesLeft()) - 1)
      try {
        await isExact(first, (batches - rest) * keys * batchBlocks)
        await until('the snapshots are taken', async () => (await taken(first)) >= keys)
        await publishAll(engines, batches - rest, batches, stored)
        await isExact(first, batches * keys * batchBlocks)
      } finally {
        await first.stop()
      }
      const left = await messagesLeft()
      const full = await startOf(options, broker, () => startedAt(NEVER), batches * keys * batchBlocks)
      return measuresOf('snapshot', empty, full, {
        'snapshot messagesLeft': { value: left, unit: 'messages' },
      })
    } finally {
      await manager.close()
      for (const engine of engines) await engine.close()
    }
  })
}

/** From local indexers. */
export async function restartFromPublishers(options: RestartOptions): Promise<Measures> {
  const { keys, blocks, batchBlocks } = options
  const batches = Math.floor(blocks / batchBlocks / keys)
  return await withBroker(async (broker, messages) => {
    const engines = await openAll(keys, i => indexedEngine(messages, broker, i, batchBlocks))
    try {
      const start = () => startRouter(broker, engines, [])
      const empty = await startOf(options, broker, start, 0)
      for (let i = 0; i < batches; i++) for (const engine of engines) engine.publish(i)
      const full = await startOf(options, broker, start, batches * keys * batchBlocks)
      return measuresOf('local', empty, full)
    } finally {
      for (const engine of engines) await engine.close()
    }
  })
}

/** Medians of one kind of start: until all is exact, and the CPU time until then. */
interface Start {
  readonly ms: number
  readonly routerMs: number
  readonly brokerMs: number
  /** This process: publishers, and who waits. */
  readonly publishersMs: number
}

function measuresOf(name: string, empty: Start, full: Start, more: Measures = {}): Measures {
  const beyond = (part: keyof Start) => full[part] - empty[part]
  return {
    [`${name} emptyStart`]: { value: empty.ms, unit: 'ms' },
    [`${name} start`]: { value: full.ms, unit: 'ms' },
    [`${name} beyond`]: { value: beyond('ms'), unit: 'ms' },
    ...(knowsCpuTime
      ? {
          [`${name} routerCpuBeyond`]: { value: beyond('routerMs'), unit: 'ms CPU' },
          [`${name} brokerCpuBeyond`]: { value: beyond('brokerMs'), unit: 'ms CPU' },
          [`${name} publishersCpuBeyond`]: { value: beyond('publishersMs'), unit: 'ms CPU' },
        }
      : {}),
    ...more,
  }
}

async function withBroker<T>(
  run: (broker: NatsServer, messages: MessageTransport, stored: () => number) => Promise<T>,
): Promise<T> {
  const broker = await NatsServer.start({ streams: [] })
  const log = { warn: (fields: object, text: string) => say(`  ${text} ${JSON.stringify(fields)}`) }
  const transport = systemTransport({ clock: systemClock, log })
  try {
    const stored = () => transport.brokers().reduce((sum, [, counts]) => sum + counts.streamStoredMessages, 0)
    return await run(broker, transport.messages, stored)
  } finally {
    transport.close()
    await broker.stop()
  }
}

async function openAll(keys: number, open: (number: number) => Promise<Engine>): Promise<readonly Engine[]> {
  return await Promise.all(Array.from({ length: keys }, (_, i) => open(i)))
}

/** Answers no snapshots, has a short buffer, and publishes into the stream. */
async function streamEngine(
  messages: MessageTransport,
  broker: NatsServer,
  number: number,
  {
    batchBlocks,
    stream,
  }: { batchBlocks: number; stream: { namespace: string; retentionMs: number; bytesMax: number } },
): Promise<Engine> {
  const ring = new BatchRing({ batchesMax: KEPT_BATCHES, bytesMax: 2 ** 26 })
  const endpoint = broker.endpoint(`bench.${number}.0`)
  const service = await EventService.open({
    clock: systemClock,
    messages,
    eventsEndpoint: endpoint,
    replayEndpoint: endpoint,
    stream,
    topic: TOPIC,
    replayForm: 'topic',
    publisherId: '0000000000000000',
    queuedMessagesMax: 100_000,
    repliesMax: 16,
    batchesFrom: from => ring.range(from),
    snapshot: undefined,
  })
  const server = await serve()
  return {
    url: `${urlOf(server)}?nats=bench.${number}&topic=${TOPIC}&block_size=${BLOCK_TOKENS}`,
    publish(run) {
      const payload = onePayload('stored', number * RUNS_MAX + run, batchBlocks)
      service.publish(ring.add(payload), payload)
    },
    async close() {
      service.close()
      await closed(server)
    },
  }
}

/** Has a local indexer. */
async function indexedEngine(
  messages: MessageTransport,
  broker: NatsServer,
  number: number,
  batchBlocks: number,
): Promise<Engine> {
  const endpoint = broker.endpoint(`bench.${number}.0`)
  const publisher = await createPublisher({
    eventsEndpoint: endpoint,
    replayEndpoint: endpoint,
    blockSizeTokens: BLOCK_TOKENS,
    topic: TOPIC,
    heldBytesMax: 2 ** 30,
    messages,
  })
  const server = await serve()
  return {
    url: `${urlOf(server)}?nats=bench.${number}&topic=${TOPIC}&block_size=${BLOCK_TOKENS}`,
    publish: run => publisher.stored(undefined, runOf(number * RUNS_MAX + run, batchBlocks)),
    async close() {
      await publisher.close()
      await closed(server)
    },
  }
}

/** What a router probes. */
async function serve(): Promise<Server> {
  const server = createServer((request, answer) => {
    const isModels = request.url === '/v1/models'
    answer.writeHead(isModels || request.url === '/health' ? 200 : 404, {
      'content-type': 'application/json',
    })
    answer.end(isModels ? JSON.stringify({ object: 'list', data: [{ id: MODEL, object: 'model' }] }) : '{}')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

async function closed(server: Server): Promise<void> {
  server.closeAllConnections()
  await new Promise(resolve => server.close(resolve))
}

function urlOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function startRouter(
  broker: NatsServer,
  engines: readonly Engine[],
  words: readonly string[],
): Promise<Process> {
  return await startProcess(ROUTER, [
    'router',
    ...['--port', '0', '--event-plane', 'nats', '--nats', broker.address],
    ...engines.flatMap(({ url }) => ['--worker', url]),
    ...words,
  ])
}

async function startOf(
  { starts }: RestartOptions,
  broker: NatsServer,
  start: () => Promise<Process>,
  blocks: number,
): Promise<Start> {
  const seen: Start[] = []
  for (let i = 0; i < starts; i++) {
    const from = performance.now()
    const brokerFrom = broker.cpuMs
    const ownFrom = process.cpuUsage()
    const router = await start()
    try {
      await isExact(router, blocks)
      const { user, system } = process.cpuUsage(ownFrom)
      seen.push({
        ms: performance.now() - from,
        routerMs: knowsCpuTime ? cpuMsOf(router.pid) : 0,
        brokerMs: broker.cpuMs - brokerFrom,
        publishersMs: (user + system) / 1000,
      })
    } finally {
      await router.stop()
    }
  }
  const medianOf = (part: keyof Start) => median(seen.map(one => one[part]))
  const texts = seen.map(one => `${one.ms.toFixed()} (CPU of router ${one.routerMs.toFixed()})`)
  say(`  ${blocks} blocks: exact after ${texts.join(', ')} ms`)
  return {
    ms: medianOf('ms'),
    routerMs: medianOf('routerMs'),
    brokerMs: medianOf('brokerMs'),
    publishersMs: medianOf('publishersMs'),
  }
}

interface KeyView {
  readonly trust: string
  readonly trust_reason: string
  readonly blocks_held: number
}

/** Resolves when all keys are exact and hold this number of blocks in all. */
async function isExact(router: Process, blocks: number): Promise<void> {
  await until(`${blocks} blocks are known exactly`, async seen => {
    const answer = await fetch(`${router.urls[0]}/workers`)
    const { workers } = (await answer.json()) as { workers: { worker_keys: KeyView[] }[] }
    const keys = workers.flatMap(({ worker_keys }) => worker_keys)
    const held = keys.reduce((sum, key) => sum + key.blocks_held, 0)
    seen(`${held} held, ${JSON.stringify(keys.slice(0, 2))}`)
    return keys.length > 0 && held === blocks && keys.every(({ trust }) => trust === 'exact')
  })
}

async function taken(router: Process): Promise<number> {
  const text = await (await fetch(`${router.urls[0]}/metrics`)).text()
  const line = text.split('\n').find(one => one.startsWith('homing_stream_snapshots_total{outcome="taken"}'))
  return Number(line?.split(' ').at(-1) ?? 0)
}

/** Runs `from` to `to` of every engine, not faster than the stream stores them. */
async function publishAll(
  engines: readonly Engine[],
  from: number,
  to: number,
  stored: () => number,
): Promise<void> {
  const before = stored()
  let sent = 0
  for (let i = from; i < to; i++) {
    for (const engine of engines) engine.publish(i)
    sent += engines.length
    if (sent % AHEAD_MAX < engines.length)
      await until('the stream has all', async () => before + sent - stored() < AHEAD_MAX)
  }
  await until('the stream has all', async () => before + sent - stored() <= 0)
}

async function until(
  what: string,
  isTrue: (seen: (text: string) => void) => Promise<boolean>,
): Promise<void> {
  let last = ''
  const from = performance.now()
  while (
    !(await isTrue(text => {
      last = text
    }))
  ) {
    if (performance.now() - from > WAIT_MS_MAX) throw new Error(`waited in vain until ${what}: ${last}`)
    await pause(LOOK_MS)
  }
}
