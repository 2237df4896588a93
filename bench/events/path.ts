/**
 * Path: the real way of events. Engines on main publish over ZeroMQ (loopback); their listeners and the
 * indexer are actors on one event thread; main looks into the shared index with a reader. A batch is done
 * when a lookup of the run that it stores finds all of it.
 */

import { type ActorRef, type ActorSystem, createActorSystem, defineActor, type Message } from '@homing/actor'
import { type IndexerMessage, indexer } from '@homing/actors/indexer'
import { LISTENER_LIMITS, type ListenerMessage, listener } from '@homing/actors/listener'
import { silentLog, systemClock } from '@homing/base'
import { createIndexMemory, IndexReader, layeredOptions, OverlapCounts } from '@homing/index'
import { type Publisher, type StreamOptions, systemTransport } from '@homing/transport'
import type { NatsServer } from '@homing/transport/testing'
import { cpuMs, nextTurn, pause } from '../actors/loads.ts'
import { type Measures, percentile } from '../harness.ts'
import { type Batch, BLOCK_TOKENS, batchOf, TOPIC } from './workload.ts'

const CAPACITY_BYTES = 64 << 20
const MAILBOX = 65_536
const STATUS_TIMEOUT_MS = 5000
const JOIN_MS_MAX = 10_000
const JOIN_MS = 20
/** Batches that are sent and not yet visible, of all engines. */
const IN_FLIGHT_MAX = 512
/** Batches after which a run is removed: more than are ever in flight. */
const KEPT = 1024
const BATCHES_PER_TURN = 32
/** Of the batches, before those that count. */
const WARM_UP_SHARE = 4

export interface PathOptions {
  readonly engines: number
  readonly runBlocks: number
  /** Runs that a batch stores, and runs that it removes: an event each; default 1. */
  readonly batchRuns?: number
  /** Of each engine, at full speed. */
  readonly batches: number
  /** Of each engine, at half of that speed. */
  readonly pacedBatches: number
  /** Of the table for labels; 0: there is none. */
  readonly labelBytes: number
  /** Indexes that hear all of it, on a thread each; default 1. */
  readonly replicas?: number
  /** Through this broker; undefined: over ZeroMQ. */
  readonly broker?: NatsServer | undefined
  /** Through a stream there. */
  readonly stream?: StreamOptions | undefined
}

/** An index, and what feeds it. */
interface Replica {
  readonly listeners: readonly ActorRef<ListenerMessage>[]
  readonly indexer: ActorRef<IndexerMessage>
  readonly reader: IndexReader
}

function openReplica(
  system: ActorSystem,
  publishers: readonly Publisher[],
  number: number,
  { stream, labelBytes }: Pick<PathOptions, 'stream' | 'labelBytes'>,
): Replica {
  const engines = publishers.length
  const thread = `events-${number}`
  const memory = createIndexMemory(layeredOptions(CAPACITY_BYTES, engines))
  const index = system.spawn(indexer, {
    name: `indexer ${number}`,
    thread,
    args: { shard: 0, memory, capacityBytes: CAPACITY_BYTES, workerSlotsMax: engines, labelBytes },
    mailbox: { capacity: MAILBOX },
  })
  const directory = system.spawn(trustSink, { name: `trust ${number}`, args: undefined })
  const listeners = publishers.map(({ endpoint }, workerSlot) =>
    system.spawn(listener, {
      name: `listener ${number} ${workerSlot}`,
      thread,
      mailbox: { capacity: MAILBOX },
      args: {
        workerSlot,
        key: `${workerSlot}/0`,
        dpRank: 0,
        eventsEndpoint: endpoint,
        replayEndpoint: undefined,
        topic: TOPIC,
        blockSizeTokens: BLOCK_TOKENS,
        indexer: index,
        directory,
        stream,
        limits: LISTENER_LIMITS,
      },
    }),
  )
  return { listeners, indexer: index, reader: new IndexReader([memory]) }
}

/** Takes what listeners say of their trust. */
export const trustSink = defineActor(
  import.meta.url,
  'trustSink',
)<Message>({
  setup: () => ({ source() {} }),
})

export async function eventPath(options: PathOptions): Promise<Measures> {
  const system = await createActorSystem({
    pools: { events: { count: options.replicas ?? 1 } },
    log: silentLog,
    logLevel: 'silent',
  })
  const transport = systemTransport({ clock: systemClock, log: silentLog })
  try {
    const path = await Path.open(system, transport.messages, options)
    return await path.measure()
  } finally {
    transport.close()
    await system.shutdown()
  }
}

class Path {
  readonly #options: PathOptions
  readonly #publishers: readonly Publisher[]
  readonly #replicas: readonly Replica[]
  readonly #scores: OverlapCounts
  /** By engine: the next batch to be made. */
  readonly #made: number[]

  static async open(
    system: ActorSystem,
    messages: ReturnType<typeof systemTransport>['messages'],
    options: PathOptions,
  ): Promise<Path> {
    const { engines, broker, stream } = options
    const publishers = await Promise.all(
      Array.from({ length: engines }, (_, i) =>
        messages.publish({ endpoint: broker?.endpoint(`bench.${i}`) ?? 'tcp://127.0.0.1:0', stream }),
      ),
    )
    const replicas = Array.from({ length: options.replicas ?? 1 }, (_, i) =>
      openReplica(system, publishers, i, options),
    )
    const path = new Path(options, publishers, replicas)
    await path.#join()
    return path
  }

  private constructor(options: PathOptions, publishers: readonly Publisher[], replicas: readonly Replica[]) {
    this.#options = options
    this.#publishers = publishers
    this.#replicas = replicas
    this.#scores = new OverlapCounts(options.engines)
    this.#made = publishers.map(() => 0)
  }

  async measure(): Promise<Measures> {
    const { batches, pacedBatches } = this.#options
    await this.#flood(this.#make(Math.ceil(batches / WARM_UP_SHARE)))
    const flood = this.#make(batches)
    const { broker } = this.#options
    const brokerBefore = broker?.cpuMs ?? 0
    const cpuBefore = process.cpuUsage()
    const mainBefore = process.threadCpuUsage()
    const ms = await this.#flood(flood)
    const main = process.threadCpuUsage(mainBefore)
    const brokerMs = (broker?.cpuMs ?? 0) - brokerBefore
    const otherMs = cpuMs(cpuBefore) - (main.user + main.system) / 1000
    const events = flood.reduce((sum, batch) => sum + batch.events, 0)
    const blocks = flood.reduce((sum, batch) => sum + batch.blocks, 0)

    const halfPerS = flood.length / (ms / 1000) / 2
    const timesUs = await this.#pace(this.#make(pacedBatches), halfPerS)
    await this.#requireNothingLost()
    return {
      eventBlocks: { value: (blocks / ms) * 1000, unit: 'block/s' },
      events: { value: (events / ms) * 1000, unit: 'event/s' },
      eventThreadCpu: { value: (otherMs * 1000) / events, unit: 'µs CPU' },
      visibleP50: { value: percentile(timesUs, 50), unit: 'µs' },
      visibleP99: { value: percentile(timesUs, 99), unit: 'µs' },
      halfLoad: { value: halfPerS, unit: 'batch/s' },
      mainCpu: { value: (main.user + main.system) / events, unit: 'µs CPU' },
      ...(broker === undefined ? {} : { brokerCpu: { value: (brokerMs * 1000) / events, unit: 'µs CPU' } }),
    }
  }

  /** Batches of all engines, in turn. */
  #make(perEngine: number): readonly Batch[] {
    const { engines, runBlocks, batchRuns } = this.#options
    const kept = Math.ceil(KEPT / engines)
    return Array.from({ length: perEngine * engines }, (_, i) => {
      const engine = i % engines
      return batchOf(engine, this.#made[engine]!++, runBlocks, kept, batchRuns)
    })
  }

  /** As fast as they become visible. Milliseconds. */
  async #flood(batches: readonly Batch[]): Promise<number> {
    let sent = 0
    let visible = 0
    const from = performance.now()
    while (visible < batches.length) {
      for (let i = 0; i < BATCHES_PER_TURN && sent < batches.length && sent - visible < IN_FLIGHT_MAX; i++) {
        this.#send(batches, sent++)
      }
      await nextTurn()
      while (visible < sent && this.#isVisible(batches, visible)) visible++
      requireProgress(from)
    }
    return performance.now() - from
  }

  /** At a fixed rate. Microseconds from sent to visible, of each. */
  async #pace(batches: readonly Batch[], perS: number): Promise<Float64Array> {
    const sentAt = new Float64Array(batches.length)
    const timesUs = new Float64Array(batches.length)
    let sent = 0
    let visible = 0
    const from = performance.now()
    while (visible < batches.length) {
      const due = Math.min(batches.length, Math.floor(((performance.now() - from) / 1000) * perS) + 1)
      for (; sent < due && sent - visible < IN_FLIGHT_MAX; sent++) {
        sentAt[sent] = performance.now()
        this.#send(batches, sent)
      }
      await nextTurn()
      for (; visible < sent && this.#isVisible(batches, visible); visible++) {
        timesUs[visible] = (performance.now() - sentAt[visible]!) * 1000
      }
      requireProgress(from)
    }
    return timesUs
  }

  #send(batches: readonly Batch[], i: number): void {
    this.#publishers[i % this.#options.engines]!.send(batches[i]!.frames)
  }

  #isVisible(batches: readonly Batch[], i: number): boolean {
    const { engines, runBlocks } = this.#options
    return this.#replicas.every(({ reader }) => {
      reader.overlap(batches[i]!.locals, runBlocks, this.#scores)
      return this.#scores.blocksOf(i % engines) === runBlocks
    })
  }

  /**
   * A subscription takes a moment, and what is published before is lost: repeats the first batch until it is
   * seen.
   */
  async #join(): Promise<void> {
    const from = performance.now()
    if (this.#options.stream !== undefined) await this.#followStreams(from)
    const first = this.#make(1)
    for (const i of first.keys()) {
      while (!this.#isVisible(first, i)) {
        if (performance.now() - from > JOIN_MS_MAX) throw new Error('a listener does not hear its engine')
        this.#send(first, i)
        await pause(JOIN_MS)
      }
    }
  }

  /** A publisher says in its beats that the stream has all; then its followers go over to that. */
  async #followStreams(from: number): Promise<void> {
    for (const each of this.#replicas.flatMap(({ listeners }) => listeners)) {
      for (;;) {
        const { path } = await each.ask({ type: 'status' }, { timeout: STATUS_TIMEOUT_MS })
        if (path === 'stream') break
        if (performance.now() - from > JOIN_MS_MAX) throw new Error('a listener does not follow the stream')
        await pause(JOIN_MS)
      }
    }
  }

  async #requireNothingLost(): Promise<void> {
    for (const each of this.#replicas.flatMap(({ listeners }) => listeners)) {
      const { gaps, malformedFrames, skippedEvents, restarts } = await each.ask(
        { type: 'status' },
        { timeout: STATUS_TIMEOUT_MS },
      )
      if (gaps + malformedFrames + skippedEvents + restarts > 0) {
        throw new Error(
          `lost on the way: ${gaps} gaps, ${malformedFrames} malformed, ${skippedEvents} skipped, ${restarts} restarts`,
        )
      }
    }
    for (const { indexer } of this.#replicas) {
      const status = await indexer.ask({ type: 'status' }, { timeout: STATUS_TIMEOUT_MS })
      this.#requireAllHeld(status.blocksHeld)
    }
  }

  #requireAllHeld(blocksHeld: Readonly<Record<number, number>>): void {
    const { engines, runBlocks, batchRuns = 1 } = this.#options
    const batchBlocks = runBlocks * batchRuns
    const kept = Math.ceil(KEPT / engines) * batchBlocks
    for (const [slot, held] of Object.entries(blocksHeld)) {
      const made = this.#made[Number(slot)]! * batchBlocks
      if (held !== Math.min(kept, made))
        throw new Error(`engine ${slot} holds ${held} blocks in the index, not ${kept}`)
    }
  }
}

const PATH_MS_MAX = 300_000

function requireProgress(fromMs: number): void {
  if (performance.now() - fromMs > PATH_MS_MAX) throw new Error('batches do not become visible')
}
