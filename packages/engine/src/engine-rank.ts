/**
 * Engine rank: one dp rank in time. Runs the step loop of its `EngineModel` on a clock, publishes the events
 * of each step as one batch, then hands the tokens to the requests that asked for them.
 *
 *   idle --submit--> step: startStep | wait stepMs / speed | finishStep -> events, then tokens
 *                    --> next step or idle
 *
 * Speed 0 means no waiting: up to `STEPS_PER_TURN_MAX` steps run in one turn of the event loop, the first one
 * in the turn of the request. With a speed, a step begins when the one before was due, so that late timers do
 * not add up.
 *
 * Faults: `slowFactor` and `slowMs` stretch steps; while `isHung`, no step begins (and the one under way ends
 * when the hang does).
 */

import type { Clock, Timer } from '@homing/base'
import type { BlockManager, CachedBlock, CacheEvent, CacheNamespace } from './block-manager.ts'
import type { EmittedToken, EngineModel, ModelCounts, ModelRequest, PooledPart } from './engine-model.ts'
import type { EventPublisher } from './event-publisher.ts'
import type { PooledTier } from './pooled-tier.ts'

/** Steps in one turn of the event loop when there is no waiting; then sockets get their turn. */
const STEPS_PER_TURN_MAX = 16
/** A loop that is later than this forgets its lag instead of catching up. */
const LAG_MS_MAX = 250

export type TokenListener = (token: EmittedToken) => void

export interface EngineRankOptions {
  readonly rank: number
  readonly model: EngineModel
  readonly blocks: BlockManager
  /** Undefined: this engine publishes no events. */
  readonly publisher: EventPublisher | undefined
  /** Undefined: its blocks go to no pool. */
  readonly pool: PooledTier | undefined
  readonly clock: Clock
  /** Simulated over real time: 1 is real time, 10 is ten times faster, 0 does not wait at all. */
  readonly speed: number
  /** Publishes a clear with the next step only, as vLLM does. */
  readonly isClearLate: boolean
}

export class EngineRank {
  readonly rank: number
  /** Stretches every step. */
  slowFactor = 1
  /** Real milliseconds added to every step, also at speed 0. */
  slowMs = 0

  readonly #model: EngineModel
  readonly #blocks: BlockManager
  readonly #publisher: EventPublisher | undefined
  readonly #pool: PooledTier | undefined
  readonly #clock: Clock
  readonly #speed: number
  readonly #isClearLate: boolean
  readonly #listeners = new Map<string, TokenListener>()
  #timer: Timer | undefined
  #isTurnQueued = false
  #isStepping = false
  #isHung = false
  #isClosed = false
  /** When the running step ends. */
  #dueMs = 0

  constructor(options: EngineRankOptions) {
    this.rank = options.rank
    this.#model = options.model
    this.#blocks = options.blocks
    this.#publisher = options.publisher
    this.#pool = options.pool
    this.#clock = options.clock
    this.#speed = options.speed
    this.#isClearLate = options.isClearLate
  }

  get publisher(): EventPublisher | undefined {
    return this.#publisher
  }

  get counts(): ModelCounts {
    return this.#model.counts
  }

  get cachedBlocks(): number {
    return this.#blocks.cachedBlocks
  }

  /** Requests that wait or run. */
  get requests(): number {
    return this.#listeners.size
  }

  cacheSnapshot(): CachedBlock[] {
    return this.#blocks.cacheSnapshot()
  }

  /** Hashes of its blocks in the pool; undefined: it has none. */
  get pooledBlocks(): readonly string[] | undefined {
    return this.#pool?.pooledBlocks
  }

  /** What the pool has of a prompt behind what is cached here. Undefined: it has no pool to read from. */
  pooledPart(promptIds: ArrayLike<number>, namespace: CacheNamespace): PooledPart | undefined {
    if (this.#pool?.isReadable !== true) return undefined
    const { hitBlocks, hashes } = this.#blocks.missingOf(promptIds, namespace)
    const { blockSizeTokens } = this.#blocks
    const from = hitBlocks * blockSizeTokens
    return { from, to: from + this.#pool.readable(hashes) * blockSizeTokens }
  }

  /** Queues a request; `listener` gets its tokens in order. Throws what `EngineModel.submit` throws. */
  submit(request: ModelRequest, listener: TokenListener): void {
    this.#model.submit(request)
    this.#listeners.set(request.id, listener)
    this.#wake()
  }

  /** Ends a request at once and releases its blocks; its listener is not called again. */
  abort(id: string): void {
    if (this.#listeners.delete(id)) this.#model.abort(id)
  }

  /** Empties the prefix cache. False while requests run. */
  resetPrefixCache(): boolean {
    if (!this.#blocks.clear()) return false
    if (!this.#isClearLate) this.#publish(this.#blocks.takeEvents())
    return true
  }

  set isHung(value: boolean) {
    this.#isHung = value
    if (!value) this.#wake()
  }

  get isHung(): boolean {
    return this.#isHung
  }

  /** Stops the loop and the sockets; requests end without a word. Idempotent. */
  close(): void {
    this.end()
    this.#publisher?.close()
  }

  /** Stops the loop, and leaves the sockets to another rank; requests end without a word. Idempotent. */
  end(): void {
    this.#isClosed = true
    this.#timer?.cancel()
    this.#pool?.close()
    this.#listeners.clear()
  }

  #wake(): void {
    if (this.#isTurnQueued || this.#timer !== undefined || this.#isHung || this.#isClosed) return
    this.#isTurnQueued = true
    // Requests that arrive in the same turn of the event loop share their first step.
    queueMicrotask(() => {
      this.#isTurnQueued = false
      if (this.#timer === undefined && !this.#isHung) this.#turn()
    })
  }

  #turn(): void {
    this.#timer = undefined
    for (let steps = 0; steps < STEPS_PER_TURN_MAX; steps++) {
      if (this.#isClosed || this.#isHung) return
      if (this.#isStepping) this.#finish()
      if (!this.#start()) return
      const waitMs = this.#dueMs - this.#clock.nowMs()
      if (waitMs > 0) {
        this.#timer = this.#clock.after(waitMs, () => this.#turn())
        return
      }
    }
    this.#timer = this.#clock.after(0, () => this.#turn())
  }

  /** False: nothing to do. */
  #start(): boolean {
    const wasBusy = this.#dueMs > 0
    const stepMs = this.#model.startStep()
    if (stepMs === undefined) {
      this.#dueMs = 0
      return false
    }
    this.#isStepping = true
    const nowMs = this.#clock.nowMs()
    const startMs = wasBusy && nowMs - this.#dueMs < LAG_MS_MAX ? this.#dueMs : nowMs
    const realMs = this.#speed > 0 ? (stepMs * this.slowFactor) / this.#speed : 0
    this.#dueMs = (realMs > 0 ? startMs + realMs : nowMs) + this.slowMs
    return true
  }

  #publish(events: readonly CacheEvent[]): void {
    this.#publisher?.publish(this.#pool?.follow(events) ?? events)
  }

  #finish(): void {
    this.#isStepping = false
    const { tokens, events } = this.#model.finishStep()
    this.#publish(events)
    for (const token of tokens) {
      const listener = this.#listeners.get(token.id)
      if (token.isLast) this.#listeners.delete(token.id)
      listener?.(token)
    }
  }
}
