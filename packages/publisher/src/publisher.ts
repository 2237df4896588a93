/**
 * Publisher: tells routers what an engine's KV cache holds. One per worker key, so one per dp rank of the
 * engine.
 *
 *   stored, removed, cleared  ->  check  ->  batch of this turn  ->  local indexer  ->  PUB
 *
 * Contract
 *   C1  Each call is checked as a whole before any part of it is queued; an error means that nothing was
 *       published.
 *   C2  Calls in one turn of the event loop go out as one batch when the turn ends, or earlier when the batch
 *       is full. Order is kept: events reach a subscriber in the order of the calls.
 *   C3  Batches are numbered 0, 1, 2, … from the creation of the publisher, without a gap. A new publisher is
 *       a new life: its cache counts as empty.
 *   C4  A call never waits. Batches that a subscriber does not read in time are lost to it, and can be
 *       replayed.
 *
 * Bounds   events and blocks of a batch; messages queued per subscriber; batches and bytes for replays; bytes
 *          of held blocks; answers at one time, and bytes of them over one connection. Each is an option, and
 *          its default is in PUBLISHER_DEFAULTS.
 */

import { type Clock, createLog, type Log, type Random, systemClock, systemRandom } from '@homing/base'
import {
  encodeKvBatch,
  KV_CLEARED,
  type KvBatchForm,
  type KvEvent,
  type KvLabels,
  type KvTier,
  kvRemoved,
  kvStored,
  type PoolState,
  type ReplayForm,
} from '@homing/protocol'
import { type MessageTransport, type StreamOptions, systemTransport } from '@homing/transport'
import { type CxlMetadata, labelsOfBlocks, type MoeMetadata, partOf, placeOf } from './block-metadata.ts'
import { type EngineHash, hashKey, wordsOf } from './engine-hash.ts'
import { BadBlockError, BlockSizeError, PublisherClosedError, PublisherOptionsError } from './errors.ts'
import { EventService, type EventServiceStats, PEER_BYTES_MAX } from './event-service.ts'
import {
  type EventRange,
  LOCAL_INDEXER_DEFAULTS,
  LocalIndexer,
  type LocalIndexerStats,
} from './local-indexer.ts'
import { isNamespace, NAMESPACE_EXPECTED } from './registration/registration.ts'
import type { Snapshot } from './shared-snapshots.ts'
import { snapshotOf } from './snapshot-parts.ts'

export interface PublisherOptions {
  /** Where batches are published, as in vLLM's settings: 'tcp://*:5557'; port 0 is a free one. */
  readonly eventsEndpoint: string
  /**
   * Where missed batches and snapshots are asked for: 'tcp://*:6557'. Undefined: nowhere, and late routers
   * stay unsure.
   */
  readonly replayEndpoint?: string
  /** Tokens in each block of the engine, ≥ 1. */
  readonly blockSizeTokens: number
  /** 0 when the engine has one rank; each rank needs its own publisher and ports. */
  readonly dpRank?: number
  /**
   * With endpoints at a broker ('nats://host:port/subject'): publish into the stream of this namespace,
   * too, which keeps the batches for routers with --router-durable-kv-events. Default: into none.
   */
  readonly stream?: StreamOptions | undefined
  /** First frame of each message; default ''. */
  readonly topic?: string
  /** How events are written; default 'vllm-map', which has room for everything. */
  readonly form?: KvBatchForm
  /** How replies are framed; default 'topic', as vLLM does since 0.26. */
  readonly replayForm?: ReplayForm
  /** Events in one batch; default 128. */
  readonly batchEventsMax?: number
  /** Blocks in one batch; default 8192. A longer store is split. */
  readonly batchBlocksMax?: number
  /**
   * Messages that wait for a subscriber or peer that reads too slowly; default 100,000. At least
   * `bufferBatchesMax` + 1.
   */
  readonly queuedMessagesMax?: number
  /** Batches kept for replays; default 1024. */
  readonly bufferBatchesMax?: number
  /** Bytes of their payloads; default 64 MiB. */
  readonly bufferBytesMax?: number
  /** Bytes that the local indexer's blocks may take; default 256 MiB, about a million blocks of 16 tokens. */
  readonly heldBytesMax?: number
  /** Replays and snapshots under way at one time; default 16. */
  readonly repliesMax?: number
  /**
   * Bytes of replays and snapshots over one connection; a peer that needs more connects anew. Default 1 GiB.
   */
  readonly peerBytesMax?: number
  /** Default: sockets of this process, closed with the publisher. */
  readonly messages?: MessageTransport
  readonly clock?: Clock
  readonly random?: Random
  /** Gets a warning when a connection fails; default: warnings on standard error. */
  readonly log?: Pick<Log, 'warn'>
}

export const PUBLISHER_DEFAULTS = {
  ...LOCAL_INDEXER_DEFAULTS,
  dpRank: 0,
  topic: '',
  form: 'vllm-map',
  replayForm: 'topic',
  batchEventsMax: 128,
  batchBlocksMax: 8192,
  queuedMessagesMax: 100_000,
  repliesMax: 16,
  peerBytesMax: PEER_BYTES_MAX,
} as const satisfies Partial<PublisherOptions>

/** One block that became cached. */
export interface StoredBlock {
  /** Hash of this block and all before it. */
  readonly hash: EngineHash
  /** Its own tokens, exactly `blockSizeTokens` of them. */
  readonly tokens: ArrayLike<number>
  /** The expert of an MoE model that it belongs to. */
  readonly moeMetadata?: MoeMetadata | undefined
  /** Where it is: in the worker's own memory, or a pool. */
  readonly cxlMetadata?: CxlMetadata | undefined
}

/** What a call's blocks have in common; each has a default. */
export interface StoredOptions {
  /** The LoRA adapter; default: the base model. */
  readonly loraName?: string
  /** What keeps the caches of tenants apart; give it with the first block of a sequence. */
  readonly cacheSalt?: string
  /** Default 'device'. */
  readonly tier?: Exclude<KvTier, 'unknown'>
}

/** Where the blocks of a transition are now: see `publishCxlStateTransition`. */
export type CxlTransition = Omit<CxlMetadata, 'state' | 'members'>

export interface PublisherStats extends EventServiceStats, LocalIndexerStats {
  /** Events and blocks that were called so far. */
  readonly events: number
  readonly storedBlocks: number
  readonly removedBlocks: number
  readonly movedBlocks: number
}

export interface KvPublisher {
  /** With the real port: 'tcp://0.0.0.0:5557'. */
  readonly endpoint: string
  /** Undefined: there is none. */
  readonly replayEndpoint: string | undefined
  /** The number of the next batch. */
  readonly nextSequence: number
  readonly stats: PublisherStats
  /**
   * `blocks` are cached now, in order after `parent`: the hash of the block before the first of them,
   * undefined only if the first begins a sequence. Call it after the blocks are allocated. Report a block
   * twice when the cache has two copies of it. Throws BlockSizeError, BadBlockError, PublisherClosedError.
   */
  stored(parent: EngineHash | undefined, blocks: readonly StoredBlock[], options?: StoredOptions): void
  /** One copy of each block is gone. Throws BadBlockError, PublisherClosedError. */
  removed(hashes: readonly EngineHash[], options?: Pick<StoredOptions, 'tier'>): void
  /**
   * These blocks have gone from one state to another: 'local_gpu' (in the worker's own memory alone),
   * 'in_transit' (on the way to `poolId`, which must be given, where `accessibleWorkers` will reach them),
   * 'cxl_pooled' (they are there; only after 'in_transit'), 'evicted' (not there any more). A router refuses
   * others, and counts them. Throws BadBlockError, PublisherClosedError.
   */
  publishCxlStateTransition(hashes: readonly EngineHash[], newState: PoolState, place?: CxlTransition): void
  /** Everything is gone, on every tier. Throws PublisherClosedError. */
  cleared(): void
  /** Publishes what this turn has queued, now. */
  flush(): void
  /** Batches by id, or the held blocks; see LocalIndexer. */
  getEventsInIdRange(start?: number, end?: number): EventRange
  /**
   * Publishes what is queued, answers open requests for up to `graceMs`, and closes the sockets. Idempotent.
   */
  close(graceMs?: number): Promise<void>
}

/**
 * Binds the sockets. Rejects with PublisherOptionsError, and ListenError or EndpointError for an endpoint
 * that cannot be had.
 */
export async function createPublisher(options: PublisherOptions): Promise<KvPublisher> {
  const { clock = systemClock, random = systemRandom } = options
  const resolved: ResolvedOptions = { ...PUBLISHER_DEFAULTS, ...options }
  checkOptions(resolved)
  const transport =
    options.messages === undefined
      ? systemTransport({ clock, log: options.log ?? createLog('warn') })
      : undefined
  const publisher = new Publisher(resolved, clock, () => transport?.close())
  try {
    await publisher.open(options.messages ?? transport!.messages, random)
  } catch (error) {
    transport?.close()
    throw error
  }
  return publisher
}

type ResolvedOptions = PublisherOptions & Required<Pick<PublisherOptions, keyof typeof PUBLISHER_DEFAULTS>>

class Publisher implements KvPublisher {
  readonly #options: ResolvedOptions
  readonly #clock: Clock
  readonly #closed: () => void
  readonly #local: LocalIndexer
  #service: EventService | undefined
  #queue: KvEvent[] = []
  #queuedBlocks = 0
  #events = 0
  #storedBlocks = 0
  #removedBlocks = 0
  #movedBlocks = 0
  #closing: Promise<void> | undefined

  constructor(options: ResolvedOptions, clock: Clock, closed: () => void) {
    this.#options = options
    this.#clock = clock
    this.#closed = closed
    this.#local = new LocalIndexer(options)
  }

  async open(messages: MessageTransport, random: Random): Promise<void> {
    const { eventsEndpoint, replayEndpoint, stream, topic, replayForm } = this.#options
    const { queuedMessagesMax, repliesMax, peerBytesMax } = this.#options
    this.#service = await EventService.open({
      clock: this.#clock,
      messages,
      eventsEndpoint,
      replayEndpoint,
      stream,
      topic,
      replayForm,
      publisherId: Buffer.from(random.bytes(8)).toString('hex'),
      queuedMessagesMax,
      repliesMax,
      peerBytesMax,
      batchesFrom: start => this.#local.batchesFrom(start),
      snapshot: () => this.#takeSnapshot(),
      nextSequence: () => {
        this.flush()
        return this.#local.nextEventId
      },
    })
  }

  get endpoint(): string {
    return this.#service?.endpoint ?? ''
  }

  get replayEndpoint(): string | undefined {
    return this.#service?.replayEndpoint
  }

  get nextSequence(): number {
    return this.#local.nextEventId
  }

  get stats(): PublisherStats {
    return {
      ...this.#open('tell figures').stats,
      ...this.#local.stats,
      events: this.#events,
      storedBlocks: this.#storedBlocks,
      removedBlocks: this.#removedBlocks,
      movedBlocks: this.#movedBlocks,
    }
  }

  stored(
    parent: EngineHash | undefined,
    blocks: readonly StoredBlock[],
    { loraName, cacheSalt, tier = 'device' }: StoredOptions = {},
  ): void {
    this.#open('publish stored blocks')
    if (blocks.length === 0) return
    const { batchBlocksMax, blockSizeTokens } = this.#options
    const parentKey = parent === undefined ? undefined : hashKey(parent, 'the parent')
    const keys = this.#checkedKeys(parentKey, blocks)
    const tokens = checkedTokens(blocks, blockSizeTokens)
    const labels = this.#checkedLabels(blocks)
    for (let from = 0; from < blocks.length; from += batchBlocksMax) {
      const to = Math.min(blocks.length, from + batchBlocksMax)
      const before = from === 0 ? parentKey : keys[from - 1]
      const event = kvStored({
        hashes: wordsOf(keys.slice(from, to)),
        parent: before === undefined ? undefined : wordsOf([before]),
        tokens: tokens.subarray(from * blockSizeTokens, to * blockSizeTokens),
        blockSizeTokens,
        tier,
        loraName,
        cacheSalt: from === 0 ? cacheSalt : undefined,
        labels: partOf(labels, from, to),
      })
      this.#enqueue(event, to - from)
    }
    this.#storedBlocks += blocks.length
  }

  removed(hashes: readonly EngineHash[], { tier = 'device' }: Pick<StoredOptions, 'tier'> = {}): void {
    this.#open('publish removed blocks')
    const keys = hashes.map((hash, i) => hashKey(hash, `the removal of block ${i} of ${hashes.length}`))
    const { batchBlocksMax } = this.#options
    for (let from = 0; from < keys.length; from += batchBlocksMax) {
      const part = keys.slice(from, from + batchBlocksMax)
      this.#enqueue(kvRemoved({ hashes: wordsOf(part), tier }), part.length)
    }
    this.#removedBlocks += keys.length
  }

  publishCxlStateTransition(
    hashes: readonly EngineHash[],
    newState: PoolState,
    place: CxlTransition = {},
  ): void {
    this.#open('publish a transition')
    const { length } = hashes
    const keys = hashes.map((hash, i) => hashKey(hash, `the transition of block ${i} of ${length}`))
    const told = placeOf({ state: newState, ...place }, 'the transition')
    if (newState === 'in_transit' && told.poolId === undefined)
      throw new BadBlockError('the transition', 'it goes to in_transit without a poolId; name the pool')
    const { batchBlocksMax } = this.#options
    for (let from = 0; from < length; from += batchBlocksMax) {
      const part = keys.slice(from, from + batchBlocksMax)
      this.#enqueue({ kind: 'transition', hashes: wordsOf(part), ...told }, part.length)
    }
    this.#movedBlocks += length
  }

  cleared(): void {
    this.#open('publish a clear')
    this.#enqueue(KV_CLEARED, 0)
  }

  flush(): void {
    const events = this.#queue
    if (events.length === 0 || this.#service === undefined) return
    this.#queue = []
    this.#queuedBlocks = 0
    const payload = encodeKvBatch(
      { timestampSeconds: this.#clock.wallMs() / 1000, rank: this.#options.dpRank, events },
      this.#options.form,
    )
    // Kept first: a subscriber that receives a batch may request it at once.
    const sequence = this.#local.record(events, payload)
    this.#service.publish(sequence, payload)
  }

  getEventsInIdRange(start?: number, end?: number): EventRange {
    this.flush()
    return this.#local.getEventsInIdRange(start, end)
  }

  close(graceMs = 0): Promise<void> {
    this.#closing ??= this.#close(graceMs)
    return this.#closing
  }

  async #close(graceMs: number): Promise<void> {
    const service = this.#service
    if (service === undefined) return
    this.flush()
    await service.drained(graceMs)
    this.#service = undefined
    service.close()
    this.#closed()
  }

  #open(action: string): EventService {
    if (this.#service === undefined || this.#closing !== undefined) throw new PublisherClosedError(action)
    return this.#service
  }

  #enqueue(event: KvEvent, blocks: number): void {
    const { batchEventsMax, batchBlocksMax } = this.#options
    if (this.#queuedBlocks + blocks > batchBlocksMax) this.flush()
    if (this.#queue.length === 0) queueMicrotask(() => this.flush())
    this.#queue.push(event)
    this.#queuedBlocks += blocks
    this.#events++
    if (this.#queue.length >= batchEventsMax) this.flush()
  }

  #takeSnapshot(): Snapshot {
    this.flush()
    const timestampSeconds = this.#clock.wallMs() / 1000
    return snapshotOf(this.#local, { timestampSeconds, rank: this.#options.dpRank })
  }

  #checkedLabels(blocks: readonly StoredBlock[]): KvLabels | undefined {
    const labels = labelsOfBlocks(blocks)
    const { form } = this.#options
    if (labels !== undefined && form.startsWith('vllm-array')) {
      const reason = `the form ${form} has no place for metadata; create the publisher with form 'vllm-map'`
      throw new BadBlockError(`${blocks.length} blocks`, reason)
    }
    return labels
  }

  #checkedKeys(parent: bigint | undefined, blocks: readonly StoredBlock[]): readonly bigint[] {
    const count = blocks.length
    const seen = new Set<bigint>()
    if (parent !== undefined) seen.add(parent)
    return blocks.map(({ hash, tokens }, index) => {
      if (tokens.length !== this.#options.blockSizeTokens) {
        throw new BlockSizeError({ index, count }, tokens.length, this.#options.blockSizeTokens)
      }
      const key = hashKey(hash, `block ${index} of ${count}`)
      if (seen.has(key)) {
        throw new BadBlockError(
          `block ${index} of ${count}`,
          `its hash ${key.toString(16).padStart(16, '0')} is that of the parent or of a block before it; hashes must cover all tokens from the start`,
        )
      }
      seen.add(key)
      return key
    })
  }
}

const TOKEN_MAX = 2 ** 32 - 1

function checkedTokens(blocks: readonly StoredBlock[], blockSizeTokens: number): Int32Array {
  const all = new Int32Array(blocks.length * blockSizeTokens)
  for (let block = 0; block < blocks.length; block++) {
    const { tokens } = blocks[block]!
    for (let i = 0; i < blockSizeTokens; i++) {
      const token = tokens[i]!
      if (!Number.isInteger(token) || token < 0 || token > TOKEN_MAX) {
        throw new BadBlockError(
          `block ${block} of ${blocks.length}`,
          `its token ${i} is ${token}; use whole numbers from 0 to ${TOKEN_MAX}`,
        )
      }
      all[block * blockSizeTokens + i] = token
    }
  }
  return all
}

function checkOptions(options: ResolvedOptions): void {
  const whole = (name: keyof ResolvedOptions, min: number, max: number): void => {
    const value = options[name]
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return
    throw new PublisherOptionsError(name, value, `a whole number from ${min} to ${max}`)
  }
  whole('blockSizeTokens', 1, 65_536)
  whole('dpRank', 0, 65_535)
  whole('batchEventsMax', 1, 65_536)
  whole('batchBlocksMax', 1, 1_048_576)
  whole('bufferBatchesMax', 1, 99_999)
  whole('bufferBytesMax', 1024, 2 ** 36)
  whole('heldBytesMax', 1024, 2 ** 36)
  whole('repliesMax', 1, 1024)
  whole('peerBytesMax', 1024, 2 ** 36)
  // With the end marker a replay must fit, or its last messages would be lost at the high-water mark.
  whole('queuedMessagesMax', options.bufferBatchesMax + 1, 100_000)
  const namespace = options.stream?.namespace
  // In a stream's name and subject a dot would be another place.
  if (namespace !== undefined && !isNamespace(namespace))
    throw new PublisherOptionsError('stream.namespace', namespace, NAMESPACE_EXPECTED)
}
