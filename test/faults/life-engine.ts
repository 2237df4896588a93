/**
 * An engine of a history of lives. It knows the truth: which blocks its cache has, when each lost block was
 * removed, and the engine and life of each batch that it ever published. It wraps the block pool and the
 * publisher of the simulated engine, and adds the ways to deceive.
 *
 * A *life* is a cache from empty to its end; a *process* may have several. *Moments* number the changes of
 * caches and the batches of the whole history. A batch reports everything that happened at earlier moments.
 */

import type { Clock } from '@homing/base'
import {
  BlockManager,
  type BlocksStored,
  type CacheEvent,
  type EventForm,
  type EventManners,
  EventPublisher,
  type HashWords,
  hexOfHash,
  NO_EVENT_FAULTS,
} from '@homing/engine'
import type { HttpExchange, Transport } from '@homing/transport'
import { BLOCK_TOKENS, BLOCKS, engineHashes, PROMPTS } from './life-prompts.ts'

export interface EngineKind {
  /** It publishes nothing: clients poll its events over HTTP, each event once, as with TensorRT-LLM. */
  readonly isPolled: boolean
  readonly form: EventForm
  /**
   * How it reports physical copies of a block: a store and a removal of each (vLLM); a store of each and only
   * the last removal (vLLM #55092); the first store and the last removal (SGLang).
   */
  readonly copies: 'each' | 'last removal' | 'once'
  readonly manners: EventManners
  /** Reports reused blocks, again and again. */
  readonly reportsAgain: boolean
  readonly offersReplay: boolean
  readonly keptBatches: number
  /** When its process started, at /metrics. */
  readonly tellsStart: boolean
  readonly isClearLate: boolean
  /** Other engine hashes in each life. */
  readonly hasNewHashes: boolean
  /** Its clock stands still: a batch of another life may be equal byte by byte. */
  readonly hasStillClock: boolean
  readonly blocks: number
}

/** Counts up. */
export interface Moments {
  now: number
}

/** The engine and the life of a batch. */
export interface BatchOrigin {
  readonly engine: LifeEngine
  readonly life: number
  readonly sequence: number
  readonly moment: number
  /** For people: what happened to the blocks that are looked at. */
  readonly told: string
  /**
   * Another engine, whose clock shows the same time, has published the same batch under the same sequence: no
   * observer can distinguish the two.
   */
  readonly isShared: boolean
  /**
   * Equal batches of later lives of this engine: no observer can distinguish them from repetitions of the
   * first.
   */
  readonly again: BatchOrigin[]
}

/** By `batchKey`. */
export type Origins = Map<string, BatchOrigin>

/** A block that was held. */
export interface Gone {
  readonly life: number
  readonly moment: number
  /** No batch reports it, now or later. */
  readonly isHidden: boolean
  /** With its life, which another one followed behind the same sockets. */
  readonly isWithLife: boolean
}

export interface LifeEngineOptions {
  readonly name: string
  readonly kind: EngineKind
  readonly clock: Clock
  readonly moments: Moments
  readonly origins: Origins
  readonly transport: Transport
  readonly eventsPort: number
  readonly replayPort: number
  readonly httpPorts: readonly number[]
  readonly host: string
  /** The rank that its batches name. */
  readonly rank: number
}

/** An event as it is polled; fields that TensorRT-LLM lacks are for the checks. */
export interface PolledEvent {
  readonly event_id: number
  readonly window_size: number
  readonly data: Readonly<Record<string, unknown>>
  readonly life: number
  readonly moment: number
}

const POLL_MS_MAX = 2000

/** Where in a sequence another life begins. */
export type FirstSequence = 'zero' | 'same' | number

/** By its clock, how long an engine takes to start. */
const STARTING_SECONDS = 10
/** Times of batches differ, where the clock goes at all, although a step takes no time here. */
const TICK_MS = 1 / 64
/** By which the times of two engines differ: what a time stamp of today, in seconds, can still tell. */
const INSTANT_MS = TICK_MS / 64

export class LifeEngine {
  readonly name: string
  readonly kind: EngineKind
  readonly eventsEndpoint: string
  readonly replayEndpoint: string
  /** From 1. */
  life = 1
  process = 1
  /** What each life has held at some time. */
  readonly heldIn: Set<number>[] = [new Set(), new Set()]
  /** Blocks had another size at some time. */
  hasResized = false
  /** The first life of each process. */
  readonly firstLives: number[] = [0, 1]
  /** When each process began, by its clock. */
  readonly #startsSeconds: number[] = [0]
  isUp = false
  /** Since the cache was last cleared, some change of this life was not reported, or not understandably. */
  hasHidden = false
  /** Groups of this life were not always the same. */
  hasRegrouped = false
  /** Some removal of some life was not reported in a way that every observer understands. */
  hasMisled = false
  /** The removals of the next request are not reported. */
  hidesRemovals = false
  /** The first sequence of this life. */
  firstSequence = 0
  #blockTokens = BLOCK_TOKENS
  #pool: BlockManager
  #hashes: readonly string[]
  #publisher: EventPublisher | undefined
  #ticks = 0
  /** Events not polled yet, and the poll that waits for the next one. */
  #queue: PolledEvent[] = []
  #nextEventId = 0
  #poll: (() => void) | undefined
  readonly #options: LifeEngineOptions
  readonly #held: boolean[] = BLOCKS.map(() => false)
  readonly #heldSinceMs: number[] = BLOCKS.map(() => 0)
  readonly #gone: (Gone | undefined)[] = BLOCKS.map(() => undefined)
  /** Blocks with one more store reported than removals, since the cache was last empty. */
  readonly #tainted = new Set<number>()
  /** Copies of each block, and blocks that lost some copies but not all. */
  #copies: ReadonlyMap<string, number> = new Map()
  readonly #lostCopies = new Set<number>()

  constructor(options: LifeEngineOptions) {
    const { name, kind, eventsPort, replayPort, host } = options
    this.#options = options
    this.name = name
    this.kind = kind
    this.eventsEndpoint = `tcp://${host}:${eventsPort}`
    this.replayEndpoint = `tcp://${host}:${replayPort}`
    this.#pool = this.#newPool()
    this.#hashes = engineHashes(this.#hashSeed, this.#blockTokens)
    this.#processBegan()
    this.hasMisled = kind.manners.removalGroup !== 'same'
  }

  async open(): Promise<void> {
    const { transport, httpPorts, host } = this.#options
    await this.#bind()
    for (const port of httpPorts) {
      await transport.http.listen({ host, port }, exchange => {
        if (exchange.path === '/kv_cache_events' && this.kind.isPolled && this.isUp) {
          this.#answerPoll(exchange)
          return
        }
        const body = this.isUp ? this.#answer(exchange.path) : undefined
        exchange.writeHead(body === undefined ? 404 : 200, {})
        exchange.end(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body ?? {})))
      })
    }
  }

  close(): void {
    this.#publisher?.close()
    this.#poll?.()
    this.isUp = false
  }

  get origin(): string {
    const { host, httpPorts } = this.#options
    return `http://${host}:${httpPorts[0]}`
  }

  get rank(): number {
    return this.#options.rank
  }

  get blockTokens(): number {
    return this.#blockTokens
  }

  get startSeconds(): number | undefined {
    return this.kind.tellsStart ? this.#startsSeconds[this.process] : undefined
  }

  /** Undefined: none began then. */
  processOf(startSeconds: number): number | undefined {
    const process = this.#startsSeconds.indexOf(startSeconds)
    return process < 0 ? undefined : process
  }

  /** A step takes no time here, and so a start neither; but by its own clock it does. */
  get wallMs(): number {
    return this.#options.clock.wallMs() + 1000 * STARTING_SECONDS * this.process
  }

  #processBegan(): void {
    this.#startsSeconds[this.process] = Math.floor(this.wallMs / 1000) - STARTING_SECONDS / 2
  }

  get nextSequence(): number {
    return this.#publisher?.nextSequence ?? 0
  }

  /** Every batch of this life can be repeated. */
  get keepsAll(): boolean {
    const oldest = this.#publisher?.oldestKept
    return (
      this.kind.offersReplay && (oldest === undefined ? this.nextSequence : oldest) === this.firstSequence
    )
  }

  holds(block: number): boolean {
    return this.#held[block]!
  }

  /** Since when it is held, in milliseconds; undefined: it is not. */
  heldSinceMs(block: number): number | undefined {
    return this.#held[block] ? this.#heldSinceMs[block] : undefined
  }

  /** Undefined: it is held, or never was. */
  gone(block: number): Gone | undefined {
    return this.#gone[block]
  }

  /**
   * Some copies of it, or of one that it follows, went and others stayed: how many there are, an index cannot
   * be sure of.
   */
  hasLostCopies(block: number): boolean {
    const { prompt, depth } = BLOCKS[block]!
    return [...this.#lostCopies].some(
      lost => PROMPTS[prompt]!.blocks.indexOf(lost) >= 0 && BLOCKS[lost]!.depth <= depth,
    )
  }

  get publisher(): EventPublisher {
    return this.#publisher!
  }

  // Work.

  /** One request: computes a prompt of these tokens, and publishes the changes of the cache. */
  work(tokens: readonly number[], salt?: string): void {
    if (!this.isUp) return
    const pool = this.#pool
    const sequence = pool.openSequence(tokens, salt === undefined ? {} : { cacheSalt: salt })
    const hits = pool.match(sequence)
    pool.reuse(sequence, hits)
    if (pool.allocate(sequence, sequence.length)) {
      if (this.kind.reportsAgain) pool.reportAgain(sequence, hits)
      pool.store(sequence, sequence.length)
    }
    pool.release(sequence)
    const events = pool.takeEvents()
    if (this.hidesRemovals) for (const event of events) this.#taint(event)
    this.#changed()
    this.#publish(this.hidesRemovals ? events.filter(({ type }) => type !== 'removed') : events)
    if (this.hidesRemovals && events.some(({ type }) => type === 'removed')) {
      this.hasHidden = true
      this.hasMisled = true
    }
    this.hidesRemovals = false
  }

  /** Publishes a block of no other prompt: a batch that shows only that it exists. */
  speak(): void {
    const token = 1_000_000 + ++this.#ticks
    this.work(Array.from({ length: this.#blockTokens + 1 }, () => token))
  }

  clear(): void {
    if (!this.isUp || !this.#pool.clear()) return
    this.hasHidden = false
    this.#tainted.clear()
    this.#changed()
    if (!this.kind.isClearLate) this.#publish(this.#pool.takeEvents())
  }

  /** Another life behind the same sockets. */
  restartInPlace(first: FirstSequence, isOtherProcess: boolean, blockTokens = BLOCK_TOKENS): void {
    if (!this.isUp) return
    const next = this.nextSequence
    this.firstSequence = first === 'zero' ? 0 : first === 'same' ? next : Math.max(0, next + first)
    this.#beginLife(isOtherProcess, blockTokens)
    this.publisher.beginAnew(this.firstSequence, blockTokens)
  }

  /** Its sockets close; `rise` ends that. */
  fall(): void {
    if (!this.isUp) return
    this.close()
    this.#beginLife(true, BLOCK_TOKENS)
    this.firstSequence = 0
  }

  async rise(): Promise<void> {
    if (!this.isUp) await this.#bind()
  }

  #beginLife(isOtherProcess: boolean, blockTokens: number): void {
    if (blockTokens !== this.#blockTokens) this.hasResized = true
    this.#blockTokens = blockTokens
    this.life++
    this.heldIn.push(new Set())
    if (isOtherProcess) {
      this.process++
      this.#processBegan()
      this.firstLives.push(this.life)
    }
    this.#pool = this.#newPool()
    this.#hashes = engineHashes(this.#hashSeed, blockTokens)
    this.hasHidden = false
    this.hasRegrouped = false
    this.#queue = []
    this.#nextEventId = 0
    this.#toldHashes.clear()
    this.#tainted.clear()
    this.#changed(this.life - 1)
  }

  get #hashSeed(): number {
    return this.kind.hasNewHashes ? this.#options.eventsPort + 1000 * this.life : 7
  }

  #newPool(): BlockManager {
    return new BlockManager({
      blockSizeTokens: this.#blockTokens,
      blockCount: this.kind.blocks + 1,
      hashSeed: this.#hashSeed,
      removals: this.kind.copies === 'each' ? 'each' : 'last',
    })
  }

  #taint(event: CacheEvent): void {
    if (event.type !== 'removed') return
    const block = this.#hashes.indexOf(hexOfHash(...event.hash))
    if (block >= 0) this.#tainted.add(block)
  }

  /** The cache is another one than before. */
  #changed(life = this.life): void {
    const moment = ++this.#options.moments.now
    const cached = new Map(this.#pool.cacheSnapshot().map(({ hash, copies }) => [hash, copies]))
    const before = this.#copies
    this.#copies = cached
    for (let block = 0; block < BLOCKS.length; block++) {
      const isHeld = this.#blockTokens === BLOCK_TOKENS && cached.has(this.#hashes[block]!)
      const hash = this.#hashes[block]!
      if (!isHeld) this.#lostCopies.delete(block)
      else if (cached.get(hash)! < (before.get(hash) ?? 0)) this.#lostCopies.add(block)
      if (isHeld) {
        this.heldIn[this.life]!.add(block)
        if (!this.#held[block]) this.#heldSinceMs[block] = this.#options.clock.nowMs()
        this.#gone[block] = undefined
      } else if (this.#held[block]) {
        const isWithLife = life < this.life && this.isUp
        this.#gone[block] = { life, moment, isHidden: this.#tainted.has(block), isWithLife }
      }
      this.#held[block] = isHeld
    }
  }

  #publish(events: readonly CacheEvent[]): void {
    if (this.kind.isPolled) {
      this.#enqueue(events)
      return
    }
    const { unknownRemovals } = this.publisher.faults
    const batch = this.publisher.publish(events)
    if (this.publisher.faults.unknownRemovals < unknownRemovals) {
      this.hasHidden = true
      this.hasMisled = true
    }
    if (batch === undefined) return
    const { origins, moments } = this.#options
    const { life } = this
    moments.now++
    const key = batchKey(batch.sequence, batch.payload)
    const { sequence } = batch
    const told = this.#textOf(events)
    const origin = { engine: this, life, sequence, moment: moments.now, told, isShared: false, again: [] }
    const before = origins.get(key)
    if (before === undefined) origins.set(key, origin)
    else if (before.engine !== this) origins.set(key, { ...before, isShared: true })
    else if (before.life !== life) before.again.push(origin)
  }

  /** `+ab -kl`. */
  #textOf(events: readonly CacheEvent[]): string {
    const nameOf = (hash: HashWords): string => BLOCKS[this.#hashes.indexOf(hexOfHash(...hash))]?.name ?? '…'
    return events
      .flatMap(event => {
        if (event.type === 'cleared') return ['clear']
        if (event.type === 'removed') return [`-${nameOf(event.hash)}`]
        return Array.from({ length: event.hashes.length / 2 }, (_, i) => {
          return `+${nameOf([event.hashes[2 * i]!, event.hashes[2 * i + 1]!])}`
        })
      })
      .join(' ')
  }

  #enqueue(events: readonly CacheEvent[]): void {
    if (this.#nextEventId === 0)
      this.#tell({ type: 'created', num_blocks_per_cache_level: [this.kind.blocks, 0] })
    for (const event of events) {
      if (event.type === 'stored') this.#tell(storedData(event, this.#blockTokens))
      else if (event.type === 'removed') this.#tellRemoved([hexOfHash(...event.hash)])
      // There is no word for a clear.
      else this.#tellRemoved([...this.#toldHashes])
    }
    this.#poll?.()
  }

  readonly #toldHashes = new Set<string>()

  #tellRemoved(hashes: readonly string[]): void {
    if (hashes.length === 0) return
    const { faults } = this.publisher
    const isUnknown = faults.unknownRemovals > 0
    if (isUnknown) {
      this.publisher.faults = { ...faults, unknownRemovals: faults.unknownRemovals - 1 }
      this.hasHidden = true
      this.hasMisled = true
    }
    this.#tell({ type: isUnknown ? 'evicted' : 'removed', block_hashes: hashes.map(hash => `0x${hash}`) })
    for (const hash of hashes) this.#toldHashes.delete(hash)
  }

  #tell(data: PolledEvent['data']): void {
    for (const { block_hash: hash } of (data['blocks'] ?? []) as readonly { readonly block_hash: string }[]) {
      this.#toldHashes.add(hash.slice(2))
    }
    const moment = ++this.#options.moments.now
    this.#queue.push({ event_id: this.#nextEventId++, window_size: 8192, data, life: this.life, moment })
  }

  /** With what has happened since the last question; where that is nothing, later, or not at all. */
  #answerPoll(exchange: HttpExchange): void {
    const answer = (): void => {
      timer.cancel()
      this.#poll = undefined
      const events = this.#queue.splice(0)
      exchange.writeHead(200, {})
      // Hashes are beyond what a number can hold.
      exchange.end(
        Buffer.from(
          JSON.stringify(events).replace(/"0x([0-9a-f]{16})"/g, (_, hex) => `${BigInt(`0x${hex}`)}`),
        ),
      )
    }
    const timer = this.#options.clock.after(POLL_MS_MAX, answer)
    this.#poll = answer
    if (this.#queue.length > 0) answer()
  }

  async #bind(): Promise<void> {
    const { transport, clock, eventsPort, replayPort, host } = this.#options
    const { form, offersReplay, keptBatches, hasStillClock, manners, copies } = this.kind
    const ticking: Clock = {
      nowMs: () => clock.nowMs(),
      // No two engines publish at the same instant.
      wallMs: () =>
        hasStillClock ? 0 : this.wallMs + ++this.#ticks * TICK_MS + (eventsPort % 64) * INSTANT_MS,
      after: (delayMs, callback, options) => clock.after(delayMs, callback, options),
    }
    this.#publisher = await EventPublisher.open(transport.messages, ticking, {
      rank: this.rank,
      host,
      eventsPort,
      replayPort: offersReplay ? replayPort : undefined,
      topic: '',
      form,
      hashForm: 'int',
      replayForm: 'topic',
      replayBatchesMax: keptBatches,
      blockSizeTokens: this.#blockTokens,
    })
    this.#publisher.faults = { ...NO_EVENT_FAULTS, ...manners, repeatsStores: copies !== 'once' }
    this.isUp = true
  }

  #answer(path: string): unknown {
    switch (path) {
      case '/v1/models':
        return { data: [{ id: 'm', owned_by: 'vllm', root: 'm', parent: null, max_model_len: 4096 }] }
      case '/version':
        return { version: '0.32.0' }
      case '/metrics':
        return [
          `vllm:cache_config_info{block_size="${this.#blockTokens}",num_gpu_blocks="${this.kind.blocks}",engine="0"} 1.0`,
          ...(this.startSeconds === undefined ? [] : [`process_start_time_seconds ${this.startSeconds}`]),
          '',
        ].join('\n')
      default:
        return undefined
    }
  }
}

function storedData(
  { hashes, parentHash, tokenIds, namespace }: BlocksStored,
  blockTokens: number,
): PolledEvent['data'] {
  const blocks = Array.from({ length: hashes.length / 2 }, (_, i) => ({
    type: 'stored_block',
    block_hash: `0x${hexOfHash(hashes[2 * i]!, hashes[2 * i + 1]!)}`,
    tokens: Array.from(tokenIds.subarray(i * blockTokens, (i + 1) * blockTokens), token => ({
      type: 'unique_token',
      token_id: token,
      token_extra_id: 0,
    })),
    cache_level: 0,
    priority: 35,
    ...(namespace.cacheSalt === undefined ? {} : { cache_salt: namespace.cacheSalt }),
  }))
  return {
    type: 'stored',
    parent_hash: parentHash === undefined ? null : `0x${hexOfHash(...parentHash)}`,
    blocks,
  }
}

/** The parts of a batch that an observer can see: its sequence and its content. */
export function batchKey(sequence: number, payload: Uint8Array): string {
  return `${sequence} ${Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString('latin1')}`
}
