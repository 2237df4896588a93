/** A listener and its indexer on a simulated clock, and an engine's sockets on a network in memory. */

import type { ActorRef } from '@homing/actor'
import { createTestSystem, type Probe, type TestSystem } from '@homing/actor/testing'
import { type IndexerMessage, indexer } from '@homing/actors/indexer'
import { type Log, SimulatedClock, seededRandom } from '@homing/base'
import { dumpKey, type IndexedBlock } from '@homing/fleet'
import { BlockIndex, type IndexMemory, IndexReader, layeredOptions } from '@homing/index'
import {
  encodeEventFrames,
  encodeReplayEnd,
  encodeReplayReply,
  parseReplayRequest,
  parseSnapshotRequest,
  type ReplayForm,
  type SnapshotForm,
} from '@homing/protocol'
import {
  type Frames,
  MemoryNetwork,
  type Publisher,
  type RouterSocket,
  transportCapability,
} from '@homing/transport'
import type { Test } from 'tap'
import {
  type CheckpointStore,
  checkpointFiles,
  LISTENER_LIMITS,
  type ListenerArgs,
  type ListenerMessage,
  listener,
  type SaveOutcome,
  type SourceMessage,
  type SourceStatus,
} from '../src/index.ts'
import { type PublishedBatch, SimulatedSource } from './simulated-source.ts'

export const EVENTS = 'tcp://10.0.0.1:5557'
export const REPLAY = 'tcp://10.0.0.1:5558'

export interface WorldOptions {
  readonly limits?: Partial<typeof LISTENER_LIMITS>
  readonly hasReplay?: boolean
  readonly keptMax?: number
  readonly replayForm?: ReplayForm
  readonly topic?: string
  /** What the engine calls its events; default: the topic asked for. */
  readonly engineTopic?: string
  readonly mailboxCapacity?: number
  readonly seed?: number
  /** Where checkpoints are kept; undefined: nowhere. */
  readonly store?: MemoryStore
  /** Default: writes nothing. */
  readonly log?: Log
}

/** Checkpoints in memory, with the faults of a disk. */
export class MemoryStore implements CheckpointStore {
  readonly files = new Map<string, Uint8Array>()
  fault: string | undefined
  /** What a write waits for. */
  writing: Promise<void> | undefined
  touches = 0

  async read(_directory: string, source: string): Promise<Uint8Array | undefined> {
    if (this.fault !== undefined) throw new Error(this.fault)
    return this.files.get(source)
  }

  async write(
    _directory: string,
    source: string,
    pieces: readonly Uint8Array[],
    isWanted: () => boolean,
  ): Promise<void> {
    if (this.fault !== undefined) throw new Error(this.fault)
    await this.writing
    if (isWanted()) this.files.set(source, Buffer.concat(pieces))
  }

  async touch(): Promise<void> {
    if (this.fault !== undefined) throw new Error(this.fault)
    this.touches++
  }

  async remove(_directory: string, source: string): Promise<void> {
    this.files.delete(source)
  }
}

export const CHECKPOINT_INTERVAL_MS = 10_000

export class ListenerWorld {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock })
  readonly system: TestSystem
  readonly source: SimulatedSource
  /** Whose batches are repeated on the replay port; another one's, where the port is wrong. */
  replaySource: SimulatedSource
  readonly memory: IndexMemory
  readonly reader: IndexReader
  readonly indexer: ActorRef<IndexerMessage>
  readonly directory: Probe<SourceMessage>
  listener: ActorRef<ListenerMessage> | undefined
  /** First sequences that replays were asked for. */
  readonly replayRequests: number[] = []
  /** Which batches of a replay are lost on the way; may be changed at any time. */
  losesReply: (sequence: number, request: number) => boolean = () => false
  /** Undefined: requests for snapshots get no answer, as from an engine. */
  answerSnapshot: ((send: (frames: Frames) => void, form: SnapshotForm) => void) | undefined
  replayEnds = true
  replayAnswers = true
  readonly #options: WorldOptions
  readonly #transport = this.network.transport()
  #publisher: Publisher | undefined
  #router: RouterSocket | undefined

  constructor(options: WorldOptions = {}) {
    this.#options = options
    this.source = new SimulatedSource(seededRandom(options.seed ?? 1), options.keptMax ?? 10_000)
    this.replaySource = this.source
    this.system = createTestSystem({
      clock: this.clock,
      ...(options.log === undefined ? {} : { log: options.log }),
      provide: [
        [transportCapability, this.network.transport()],
        [checkpointFiles, options.store ?? new MemoryStore()],
      ],
    })
    const shard = { capacityBytes: 1 << 20, workerSlotsMax: 4 }
    this.memory = BlockIndex.create(layeredOptions(shard.capacityBytes, shard.workerSlotsMax)).memory
    this.reader = new IndexReader([this.memory])
    this.directory = this.system.probe<SourceMessage>('directory')
    this.indexer = this.system.spawn(indexer, {
      name: 'indexer',
      args: { shard: 0, memory: this.memory, ...shard },
    })
  }

  async startEngine(): Promise<void> {
    this.#publisher = await this.#transport.messages.publish({ endpoint: EVENTS })
    if (this.#options.hasReplay === false) return
    this.#router = await this.#transport.messages.serve({ endpoint: REPLAY }, (identity, frames) => {
      this.#serveReplay(identity, frames)
    })
  }

  /** The process is gone; its sockets close. */
  stopEngine(): void {
    this.#publisher?.close()
    this.#router?.close()
  }

  startListener(overrides: Partial<ListenerArgs> = {}): void {
    const { limits, hasReplay, topic, mailboxCapacity, store } = this.#options
    this.listener = this.system.spawn(listener, {
      name: 'listener',
      args: {
        workerSlot: 0,
        key: 'engine:8000/0',
        dpRank: 0,
        eventsEndpoint: EVENTS,
        replayEndpoint: hasReplay === false ? undefined : REPLAY,
        topic: topic ?? '',
        blockSizeTokens: undefined,
        indexer: this.indexer,
        directory: this.directory.ref,
        checkpoints: store && { directory: '/checkpoints', intervalMs: CHECKPOINT_INTERVAL_MS },
        limits: { ...LISTENER_LIMITS, ...limits },
        ...overrides,
      },
      mailbox: { capacity: mailboxCapacity ?? 32_768 },
    })
  }

  /** The router begins anew: another listener, and an index that knows nothing. */
  async restartRouter(overrides: Partial<ListenerArgs> = {}): Promise<void> {
    await this.system.stop(this.listener!)
    this.indexer.tell({ type: 'clear', workerSlot: 0 })
    this.startListener(overrides)
    await this.system.settle()
  }

  /** Writes a checkpoint now. */
  async save(): Promise<SaveOutcome> {
    const answer = this.listener!.ask({ type: 'save' }, { timeout: 1000 })
    await this.system.settle()
    return answer
  }

  /** Sends batches on the event socket. */
  send(...batches: readonly PublishedBatch[]): void {
    const topic = this.#options.engineTopic ?? this.#options.topic ?? 'kv-events'
    for (const { sequence, payload } of batches) this.sendFrames(encodeEventFrames(topic, sequence, payload))
  }

  sendFrames(frames: Frames): void {
    this.#publisher!.send(frames)
  }

  /** Publishes `count` batches, all of which arrive. */
  publish(count = 1): void {
    for (let i = 0; i < count; i++) this.send(this.source.publish())
  }

  /** Publishes `count` batches that the event socket loses. */
  lose(count = 1): void {
    for (let i = 0; i < count; i++) this.source.publish()
  }

  async status(): Promise<SourceStatus> {
    const answer = this.listener!.ask({ type: 'status' }, { timeout: 1000 })
    await this.system.settle()
    return answer
  }

  /** Engine hashes that the index holds for the worker key, sorted. */
  async held(): Promise<readonly string[]> {
    const answer = dumpAll(this.indexer, 0)
    await this.system.settle()
    return (await answer).map(block => block.engineHash).sort()
  }

  cached(): readonly string[] {
    return [...this.source.cached].sort()
  }

  /** The last word on trust: 'exact: every batch …'. */
  trust(): string {
    const last = this.directory.waiting.at(-1)
    return last === undefined ? 'nothing said' : `${last.trust}: ${last.reason}`
  }

  /** The trusts in turn, each once. */
  trusts(): readonly string[] {
    const trusts = this.directory.waiting.map(message => message.trust)
    return trusts.filter((trust, i) => trust !== trusts[i - 1])
  }

  async stop(): Promise<void> {
    await this.system.shutdown()
    this.stopEngine()
  }

  #serveReplay(identity: Uint8Array, frames: Frames): void {
    const asked = parseSnapshotRequest(frames)
    if (asked !== undefined) this.answerSnapshot?.(reply => this.#router!.send(identity, reply), asked)
    const from = parseReplayRequest(frames)
    if (from === undefined) return
    this.replayRequests.push(from)
    if (!this.replayAnswers) return
    const form = this.#options.replayForm ?? 'topic'
    const topic = this.#options.engineTopic ?? this.#options.topic ?? 'kv-events'
    for (const { sequence, payload } of this.replaySource.replay(from)) {
      if (this.losesReply(sequence, this.replayRequests.length)) continue
      this.#router!.send(identity, encodeReplayReply(form, topic, sequence, payload))
    }
    if (this.replayEnds) this.#router!.send(identity, encodeReplayEnd(form))
  }
}

/** A started world, stopped when the test ends. */
export async function listenerWorld(t: Test, options: WorldOptions = {}): Promise<ListenerWorld> {
  const world = new ListenerWorld(options)
  t.teardown(() => world.stop())
  await world.startEngine()
  return world
}

/** The same indexer, but its mailbox is full for some messages. */
export function fullFor(
  indexer: ActorRef<IndexerMessage>,
  isFull: (message: IndexerMessage) => boolean,
): ActorRef<IndexerMessage> {
  const { key, name } = indexer
  return {
    key,
    name,
    tell: (message, options) => (isFull(message) ? 'full' : indexer.tell(message, options)),
    ask: (message, options) => indexer.ask(message, options),
  }
}

/** All slices of a dump. */
async function dumpAll(ref: ActorRef<IndexerMessage>, workerSlot: number): Promise<IndexedBlock[]> {
  const all: IndexedBlock[] = []
  for await (const blocks of dumpKey(ref, workerSlot, 1000)) all.push(...blocks)
  return all
}
