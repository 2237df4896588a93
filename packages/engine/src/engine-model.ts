/**
 * Engine model: the scheduler and step loop of one dp rank, without time of its own.
 *
 *   submit -> waiting (FIFO) -> prefill in chunks -> decode, one token per step -> finished
 *                 ^------------------ pre-empted ---------'
 *
 * One step (`startStep`, then `finishStep` after the milliseconds it asked for):
 *   1  every decoding request gets one token; the rest of the token budget goes to requests in prefill, in
 *      order;
 *   2  while budget and seats remain, only the head of the queue is considered: its leading cached blocks are
 *      reused, and it is admitted when the rest of its prompt fits. No request overtakes it;
 *   3  blocks that will be full after the step are cached at once, so that an identical prompt in the same
 *      step hits;
 *   4  at the end the events of the step come out as one list; requests whose prompt is complete, and
 *      decoding ones, emit one token; the finished ones give their blocks back, tail first.
 * When blocks run out for a running request, the most recently admitted one is pre-empted: its blocks are
 * released, it goes to the head of the queue and is computed again later, without emitting a token twice.
 *
 * Invariants
 *   I1  waiting + running ≤ requests submitted and not ended; an ended request holds no block.
 *   I2  A request emits exactly `outputTokens` tokens unless it is aborted.
 *   I3  tokens in a step ≤ `stepTokensMax`; running ≤ `sequencesMax`.
 *
 * Pure: no clock, no I/O; chance only through the seed. Source: vLLM v1 scheduler, simplified.
 */

import type { BlockManager, BlockSequence, CacheEvent, CacheNamespace } from './block-manager.ts'
import { OutputSource } from './output.ts'
import type { StepWork, TimingProfile } from './timing-profile.ts'

export interface EngineModelOptions {
  readonly blocks: BlockManager
  readonly profile: TimingProfile
  /** Tokens in one step at most, ≥ 1. */
  readonly stepTokensMax: number
  /** Requests running at once at most, ≥ 1. */
  readonly sequencesMax: number
  /** Ids that may be emitted. */
  readonly vocabulary: Int32Array
}

export interface ModelRequest {
  /** Unique among the requests that have not ended. */
  readonly id: string
  readonly promptIds: ArrayLike<number>
  /** Tokens to generate, ≥ 1. */
  readonly outputTokens: number
  readonly namespace: CacheNamespace
  /** Seed of the output. */
  readonly seed: number
  readonly sessionId?: string | undefined
  /** Ids to emit instead of the seeded ones: plays a recording back. */
  readonly outputIds?: readonly number[]
  /** Re-reports the reused prefix as a stored event (vLLM's `kv_cache_report_mode: full`). */
  readonly reportFull?: boolean
  /** Leading tokens of its prompt that came from another engine; the last one is computed in any case. */
  readonly handedTokens?: number
  /** The part of its prompt that was read out of the pool; undefined: there is none. */
  readonly pooled?: PooledPart | undefined
}

/** Tokens of a prompt, from `from` to before `to`. They are of use only if what is before them is cached. */
export interface PooledPart {
  readonly from: number
  readonly to: number
}

/** One token that a step brought. */
export interface EmittedToken {
  readonly id: string
  readonly tokenId: number
  /** Position in the output, from 0. */
  readonly index: number
  /** True for the last one: the request has ended. */
  readonly isLast: boolean
  /** Prompt tokens that were not computed here when the request was first admitted. */
  readonly cachedTokens: number
}

export interface StepOutcome {
  readonly tokens: readonly EmittedToken[]
  readonly events: readonly CacheEvent[]
}

export interface ModelCounts {
  readonly running: number
  readonly waiting: number
  /** Share of the blocks in use, 0 … 1. */
  readonly kvUsage: number
  /** Tokens asked of the prefix cache, and found there; since the start. */
  readonly queriedTokens: number
  readonly hitTokens: number
  /** Tokens asked of the pool, beyond those in the prefix cache, and found there. */
  readonly poolQueriedTokens: number
  readonly poolHitTokens: number
  readonly preemptions: number
  readonly promptTokens: number
  readonly generatedTokens: number
  readonly steps: number
}

interface ActiveRequest {
  readonly request: ModelRequest
  readonly sequence: BlockSequence
  readonly source: OutputSource
  computedTokens: number
  /** Tokens of the running step; 0 outside a step. */
  scheduledTokens: number
  generated: number
  /** −1 until first admitted. */
  cachedTokens: number
  isRunning: boolean
}

const NOTHING_CAME: Pick<ModelRequest, 'handedTokens' | 'pooled'> = {}

/** One dp rank without its clock: `EngineRank` drives it. */
export class EngineModel {
  readonly #blocks: BlockManager
  readonly #profile: TimingProfile
  readonly #stepTokensMax: number
  readonly #sequencesMax: number
  readonly #vocabulary: Int32Array
  readonly #active = new Map<string, ActiveRequest>()
  /** Head first. */
  #waiting: ActiveRequest[] = []
  /** In order of admission. */
  #running: ActiveRequest[] = []
  #isStepping = false
  #queriedTokens = 0
  #hitTokens = 0
  #poolQueriedTokens = 0
  #poolHitTokens = 0
  #preemptions = 0
  #promptTokens = 0
  #generatedTokens = 0
  #steps = 0

  constructor(options: EngineModelOptions) {
    this.#blocks = options.blocks
    this.#profile = options.profile
    this.#stepTokensMax = options.stepTokensMax
    this.#sequencesMax = options.sequencesMax
    this.#vocabulary = options.vocabulary
  }

  /** Tokens of the longest request (prompt and output) that can ever be served. */
  get requestTokensMax(): number {
    return this.#blocks.usableBlocks * this.#blocks.blockSizeTokens
  }

  /** True when a step would have something to do. */
  get hasWork(): boolean {
    return this.#running.length > 0 || this.#waiting.length > 0
  }

  get counts(): ModelCounts {
    return {
      running: this.#running.length,
      waiting: this.#waiting.length,
      kvUsage: this.#blocks.usage,
      queriedTokens: this.#queriedTokens,
      hitTokens: this.#hitTokens,
      poolQueriedTokens: this.#poolQueriedTokens,
      poolHitTokens: this.#poolHitTokens,
      preemptions: this.#preemptions,
      promptTokens: this.#promptTokens,
      generatedTokens: this.#generatedTokens,
      steps: this.#steps,
    }
  }

  /** Queues a request. Throws RangeError for an id in use, an empty prompt, or one that can never fit. */
  submit(request: ModelRequest): void {
    const { id, promptIds, outputTokens } = request
    if (this.#active.has(id)) throw new RangeError(`cannot submit request ${id}: the id is in use`)
    if (promptIds.length === 0) throw new RangeError(`cannot submit request ${id}: the prompt is empty`)
    if (!Number.isInteger(outputTokens) || outputTokens < 1) {
      throw new RangeError(`cannot submit request ${id}: outputTokens is ${outputTokens}, use 1 or more`)
    }
    if (promptIds.length + outputTokens > this.requestTokensMax) {
      throw new RangeError(
        `cannot submit request ${id}: ${promptIds.length} + ${outputTokens} tokens exceed ${this.requestTokensMax}`,
      )
    }
    const source = new OutputSource(request.seed, this.#vocabulary)
    for (let i = 0; i < promptIds.length; i++) source.push(promptIds[i]!)
    const active: ActiveRequest = {
      request,
      sequence: this.#blocks.openSequence(promptIds, request.namespace, request.sessionId),
      source,
      computedTokens: 0,
      scheduledTokens: 0,
      generated: 0,
      cachedTokens: -1,
      isRunning: false,
    }
    this.#active.set(id, active)
    this.#waiting.push(active)
  }

  /**
   * Ends a request at once, also in the middle of a step; its blocks are released. False when it is not
   * there.
   */
  abort(id: string): boolean {
    const active = this.#active.get(id)
    if (active === undefined) return false
    this.#active.delete(id)
    this.#waiting = this.#waiting.filter(other => other !== active)
    this.#running = this.#running.filter(other => other !== active)
    active.scheduledTokens = 0
    this.#blocks.release(active.sequence)
    return true
  }

  /** Schedules one step. Milliseconds it takes at speed 1, or undefined when there is nothing to do. */
  startStep(): number | undefined {
    if (this.#isStepping) throw new Error('cannot start a step: the one before has not finished')
    if (!this.hasWork) return undefined

    const preemptionsBefore = this.#preemptions
    let budget = this.#scheduleRunning()
    for (const active of this.#running) this.#storeScheduled(active)
    if (this.#preemptions === preemptionsBefore) budget = this.#admit(budget)

    this.#isStepping = true
    this.#steps++
    return this.#profile.stepMs(this.#work())
  }

  /** Ends the step; returns what it emitted and its events, which are published as one batch. */
  finishStep(): StepOutcome {
    if (!this.#isStepping) throw new Error('cannot finish a step: none was started')
    this.#isStepping = false
    const tokens: EmittedToken[] = []
    const ended: ActiveRequest[] = []
    for (const active of this.#running) {
      if (active.scheduledTokens === 0) continue
      active.computedTokens += active.scheduledTokens
      active.scheduledTokens = 0
      if (active.computedTokens < active.sequence.length) continue
      const tokenId = active.request.outputIds?.[active.generated] ?? active.source.next()
      active.source.push(tokenId)
      this.#blocks.append(active.sequence, tokenId)
      const index = active.generated++
      const isLast = active.generated === active.request.outputTokens
      tokens.push({ id: active.request.id, tokenId, index, isLast, cachedTokens: active.cachedTokens })
      if (isLast) ended.push(active)
    }
    this.#generatedTokens += tokens.length
    if (ended.length > 0) {
      const gone = new Set(ended)
      this.#running = this.#running.filter(active => !gone.has(active))
      for (const active of ended) {
        this.#active.delete(active.request.id)
        this.#blocks.release(active.sequence)
      }
    }
    return { tokens, events: this.#blocks.takeEvents() }
  }

  /**
   * Schedules one token for every decoding request, then prefill chunks in order. Returns the remaining
   * budget.
   */
  #scheduleRunning(): number {
    let budget = this.#stepTokensMax
    for (const active of [...this.#running]) {
      if (budget > 0 && isDecoding(active) && this.#take(active, 1)) budget--
    }
    for (const active of [...this.#running]) {
      if (budget === 0) break
      if (isDecoding(active)) continue
      const chunk = Math.min(active.sequence.length - active.computedTokens, budget)
      if (this.#take(active, chunk)) budget -= chunk
    }
    return budget
  }

  /**
   * Room for `tokens` more tokens of a running request, pre-empting later ones if it must. False: it was
   * pre-empted itself.
   */
  #take(active: ActiveRequest, tokens: number): boolean {
    // Pre-empted by one before it in this very step.
    if (!active.isRunning) return false
    while (!this.#blocks.allocate(active.sequence, active.computedTokens + tokens)) {
      const victim = this.#running.pop()!
      this.#preemptions++
      this.#blocks.release(victim.sequence)
      victim.computedTokens = 0
      victim.scheduledTokens = 0
      victim.isRunning = false
      this.#waiting.unshift(victim)
      if (victim === active) return false
    }
    active.scheduledTokens = tokens
    return true
  }

  #admit(budgetBefore: number): number {
    let budget = budgetBefore
    // Prompts in prefill still need these; they were promised at admission.
    let promisedBlocks = 0
    for (const active of this.#running) promisedBlocks += this.#blocksMissing(active)
    while (budget > 0 && this.#running.length < this.#sequencesMax) {
      const active = this.#waiting[0]
      if (active === undefined) break
      const { sequence } = active
      const hitBlocks = this.#blocks.match(sequence)
      if (!this.#blocks.fits(sequence, hitBlocks, sequence.length, promisedBlocks)) break
      this.#waiting.shift()
      this.#blocks.reuse(sequence, hitBlocks)
      const cachedTokens = hitBlocks * this.#blocks.blockSizeTokens
      // What came is used once: after a pre-emption it is not there any more.
      const { handedTokens = 0, pooled } = active.cachedTokens < 0 ? active.request : NOTHING_CAME
      const ownTokens = Math.min(Math.max(cachedTokens, handedTokens), sequence.length - 1)
      const isOfUse = pooled !== undefined && pooled.from <= ownTokens && pooled.to > ownTokens
      const hitTokens = isOfUse ? Math.min(pooled.to, sequence.length - 1) : ownTokens
      active.computedTokens = hitTokens
      this.#queriedTokens += sequence.length
      this.#hitTokens += ownTokens
      if (pooled !== undefined) {
        this.#poolQueriedTokens += sequence.length - ownTokens
        this.#poolHitTokens += hitTokens - ownTokens
      }
      if (active.cachedTokens < 0) {
        active.cachedTokens = hitTokens
        this.#promptTokens += active.request.promptIds.length
        if (active.request.reportFull === true) this.#blocks.reportAgain(sequence, hitBlocks)
      }
      const chunk = Math.min(sequence.length - hitTokens, budget)
      this.#blocks.allocate(sequence, hitTokens + chunk)
      active.scheduledTokens = chunk
      this.#running.push(active)
      active.isRunning = true
      this.#storeScheduled(active)
      budget -= chunk
      promisedBlocks += this.#blocksMissing(active)
    }
    return budget
  }

  #blocksMissing(active: ActiveRequest): number {
    const needed = Math.ceil(active.sequence.length / this.#blocks.blockSizeTokens)
    return Math.max(0, needed - active.sequence.blockIds.length)
  }

  #storeScheduled(active: ActiveRequest): void {
    if (active.scheduledTokens > 0) {
      this.#blocks.store(active.sequence, active.computedTokens + active.scheduledTokens)
    }
  }

  #work(): StepWork {
    let prefillTokens = 0
    let prefillAttention = 0
    let decodeRequests = 0
    let decodeContextTokens = 0
    for (const active of this.#running) {
      const tokens = active.scheduledTokens
      if (tokens === 0) continue
      if (isDecoding(active)) {
        decodeRequests++
        decodeContextTokens += active.sequence.length
      } else {
        prefillTokens += tokens
        prefillAttention += tokens * (active.computedTokens + tokens / 2)
      }
    }
    return {
      prefillTokens,
      prefillAttention,
      decodeRequests,
      decodeContextTokens,
      kvUsage: this.#blocks.usage,
    }
  }
}

/** True when all but the newest token are computed and something was generated. */
function isDecoding(active: ActiveRequest): boolean {
  return active.generated > 0 && active.computedTokens === active.sequence.length - 1
}
