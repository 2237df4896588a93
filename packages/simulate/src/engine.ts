/**
 * Engine: one simulated worker, its scheduler and its cache of blocks, without time of its own.
 *
 *   enqueue -> waiting (FIFO) -> prefill in chunks, oldest first -> decode, one token per step -> done
 *
 * A step (`startStep`, then `finishStep` after the milliseconds it asked for):
 *   1  every decoding request takes one token of the budget; requests in prefill take the rest, in order;
 *   2  while budget and seats remain, the head of the queue is tried. It reuses the longest run of leading
 *      blocks that are cached now, at most input − 1 tokens. It is admitted if blocks for the rest of its
 *      prompt and all of its output are free or evictable; these are reserved at once. No request overtakes
 *      it;
 *   3  the profile computes the time of the step from prefill chunks and decode contexts;
 *   4  at the end, the blocks of a finished prompt (or as `storeAt` says) are cached. Each request with a
 *      finished prompt has one more token. A request with its last token gives its blocks back, tail first,
 *      so that eviction (least recently given back) takes leaves before roots.
 *
 * Blocks:  free + cached and unreferenced (evictable) + cached and referenced + private = capacity
 *   A block is private until it is cached. If another request cached the same block meanwhile, the private
 *   copy is given back and that one is shared.
 *
 * Invariants
 *   I1  A request that has not ended holds ceil((input + output) / block) blocks from its admission on; so
 *       nothing is ever pre-empted.
 *   I2  If a block is cached, all before it on its path are: they are referenced or given back later (tail
 *       first).
 *   I3  `#contextTokens` = Σ (input + generated) over decoding requests.
 *
 * Cost: O(1) per step and decoding request it ends, not per token; O(blocks) per request.
 * Source: the model of vLLM's scheduler in the benchmarking notes of this project (docs/simulator.md).
 */

import type { StepWork } from '@homing/engine'
import type { SimRequest } from './sim-request.ts'

export interface EngineOptions {
  readonly worker: number
  readonly blockTokens: number
  readonly capacityBlocks: number
  readonly stepTokensMax: number
  readonly sequencesMax: number
  readonly storeAt: 'prompt-end' | 'chunk-end' | 'chunk-start'
  /** All steps take so many times as long. */
  readonly slowness: number
  stepMs(work: StepWork): number
  readonly sink: EngineSink
}

/** What an engine tells, in the order in which it happens. */
export interface EngineSink {
  stored(worker: number, blockId: number): void
  evicted(worker: number, blockId: number): void
  admitted(request: SimRequest): void
  firstToken(request: SimRequest): void
  completed(request: SimRequest): void
  /** So many requests waited this long for their next token. */
  gap(ms: number, requests: number): void
}

export class SimEngine {
  readonly #options: EngineOptions
  readonly #sink: EngineSink
  readonly #work: { -readonly [K in keyof StepWork]: StepWork[K] } = {
    prefillTokens: 0,
    prefillAttention: 0,
    decodeRequests: 0,
    decodeContextTokens: 0,
    kvUsage: 0,
  }

  // Cached blocks: tables by place, and a ring of the unreferenced ones, the oldest after the place
  // `capacity`.
  readonly #placeOf = new Map<number, number>()
  readonly #ids: Float64Array
  readonly #references: Int32Array
  readonly #next: Int32Array
  readonly #previous: Int32Array
  readonly #freePlaces: Int32Array
  #freePlaceCount: number
  #freeBlocks: number
  #evictableBlocks = 0
  /** Grows when blocks come or go: what the head of the queue was refused for may have changed. */
  #changes = 0

  #waiting: SimRequest[] = []
  #head = 0
  /** The request at the head that did not fit, and `#changes` at that time. */
  #refusedHead: SimRequest | undefined
  #refusedAt = 0
  /** In order of admission. */
  #prefilling: SimRequest[] = []
  /** A heap by `lastStep`, then by order of arrival here. */
  readonly #decoding: SimRequest[] = []
  #contextTokens = 0
  #isStepping = false
  #stepMs = 0

  /** Milliseconds in steps so far. */
  busyMs = 0
  steps = 0
  /** Prompt tokens computed. */
  prefillTokens = 0
  evictions = 0

  constructor(options: EngineOptions) {
    const { capacityBlocks } = options
    this.#options = options
    this.#sink = options.sink
    this.#ids = new Float64Array(capacityBlocks)
    this.#references = new Int32Array(capacityBlocks)
    this.#next = new Int32Array(capacityBlocks + 1)
    this.#previous = new Int32Array(capacityBlocks + 1)
    this.#next[capacityBlocks] = capacityBlocks
    this.#previous[capacityBlocks] = capacityBlocks
    this.#freePlaces = Int32Array.from({ length: capacityBlocks }, (_, i) => capacityBlocks - 1 - i)
    this.#freePlaceCount = capacityBlocks
    this.#freeBlocks = capacityBlocks
  }

  /** Requests that were enqueued and have not ended. */
  get requests(): number {
    return this.#waiting.length - this.#head + this.#prefilling.length + this.#decoding.length
  }

  get isStepping(): boolean {
    return this.#isStepping
  }

  /** Blocks that requests hold. */
  get activeBlocks(): number {
    return this.#options.capacityBlocks - this.#freeBlocks - this.#evictableBlocks
  }

  get cachedBlocks(): number {
    return this.#placeOf.size
  }

  /** Tokens of its prompts that are still to be computed; those that wait are taken as their router did. */
  get pendingPrefillTokens(): number {
    let tokens = 0
    for (const { inputTokens, computedTokens } of this.#prefilling) tokens += inputTokens - computedTokens
    for (let i = this.#head; i < this.#waiting.length; i++) tokens += this.#waiting[i]!.bookedTokens
    return tokens
  }

  /** Blocks that a request needs in all, from its admission on. */
  blocksNeeded(request: SimRequest): number {
    return Math.ceil((request.inputTokens + request.outputTokens) / this.#options.blockTokens)
  }

  /** The request must fit into an empty engine: see `blocksNeeded`. */
  enqueue(request: SimRequest): void {
    this.#waiting.push(request)
  }

  /** Schedules one step. Milliseconds it takes, or −1 when there is nothing to do. */
  startStep(): number {
    const { stepTokensMax } = this.#options
    const work = this.#work
    work.prefillTokens = 0
    work.prefillAttention = 0
    const decoding = this.#decoding.length
    let budget = stepTokensMax - decoding
    for (const request of this.#prefilling) {
      if (budget <= 0) break
      budget -= this.#takeChunk(request, budget)
    }
    if (budget > 0 && this.#head < this.#waiting.length) this.#admit(budget)
    if (decoding === 0 && work.prefillTokens === 0) return -1

    work.decodeRequests = decoding
    work.decodeContextTokens = this.#contextTokens
    work.kvUsage = 1 - (this.#freeBlocks + this.#evictableBlocks) / this.#options.capacityBlocks
    this.#isStepping = true
    this.#stepMs = this.#options.stepMs(work) * this.#options.slowness
    return this.#stepMs
  }

  /** Ends the step; the sink gets its results. */
  finishStep(): void {
    this.#isStepping = false
    const step = ++this.steps
    this.busyMs += this.#stepMs
    const decoding = this.#decoding
    if (decoding.length > 0) {
      this.#sink.gap(this.#stepMs, decoding.length)
      this.#contextTokens += decoding.length
    }
    if (this.#work.prefillTokens > 0) this.#endChunks(step)
    while (decoding.length > 0 && decoding[0]!.lastStep === step) {
      const request = this.#popDecoding()
      this.#contextTokens -= request.inputTokens + request.outputTokens
      this.#storeAnswer(request)
      this.#release(request)
      this.#sink.completed(request)
    }
  }

  /**
   * The engine dies: its cache is empty. Returns the requests that it had, in order of admission, then of
   * arrival.
   */
  clear(): SimRequest[] {
    const requests = [
      ...this.#decoding.sort((a, b) => a.index - b.index),
      ...this.#prefilling,
      ...this.#waiting.slice(this.#head),
    ]
    const { capacityBlocks } = this.#options
    this.#placeOf.clear()
    this.#next[capacityBlocks] = capacityBlocks
    this.#previous[capacityBlocks] = capacityBlocks
    for (let i = 0; i < capacityBlocks; i++) this.#freePlaces[i] = capacityBlocks - 1 - i
    this.#freePlaceCount = capacityBlocks
    this.#freeBlocks = capacityBlocks
    this.#evictableBlocks = 0
    this.#changes++
    this.#waiting = []
    this.#head = 0
    this.#prefilling = []
    this.#decoding.length = 0
    this.#contextTokens = 0
    this.#isStepping = false
    return requests
  }

  /** Tokens of its answer that a request of `clear` had. */
  generatedOf({ outputTokens, lastStep }: SimRequest): number {
    return Math.max(1, outputTokens - Math.max(0, lastStep - this.steps))
  }

  /**
   * Ends a request that has no token yet: what it holds is given back, and a step that computes it takes as
   * long as it does.
   */
  cancel(request: SimRequest): void {
    const waiting = this.#waiting.indexOf(request, this.#head)
    if (waiting >= 0) {
      this.#waiting.splice(waiting, 1)
      this.#refusedHead = undefined
      return
    }
    const at = this.#prefilling.indexOf(request)
    if (at < 0) throw new RangeError(`cannot cancel request ${request.index}: it is not here, or has a token`)
    this.#prefilling.splice(at, 1)
    this.#release(request)
  }

  /** Leading blocks of the request that are cached. */
  cachedRun(request: SimRequest): number {
    const { blockIds, blocks } = request
    for (let i = 0; i < blocks; i++) if (!this.#placeOf.has(blockIds[i]!)) return i
    return blocks
  }

  #admit(budgetBefore: number): void {
    const { sequencesMax, blockTokens } = this.#options
    let budget = budgetBefore
    while (budget > 0 && this.#head < this.#waiting.length) {
      if (this.#prefilling.length + this.#decoding.length >= sequencesMax) break
      const request = this.#waiting[this.#head]!
      if (request === this.#refusedHead && this.#changes === this.#refusedAt) break
      const reused = this.cachedRun(request)
      let reusedEvictable = 0
      for (let i = 0; i < reused; i++) {
        if (this.#references[this.#placeOf.get(request.blockIds[i]!)!] === 0) reusedEvictable++
      }
      const blocksNew = this.blocksNeeded(request) - reused
      if (blocksNew > this.#freeBlocks + this.#evictableBlocks - reusedEvictable) {
        this.#refusedHead = request
        this.#refusedAt = this.#changes
        break
      }
      this.#head++
      this.#refusedHead = undefined
      if (this.#head > 1024 && this.#head * 2 > this.#waiting.length) {
        this.#waiting = this.#waiting.slice(this.#head)
        this.#head = 0
      }
      this.#reserve(request, reused, blocksNew)
      const reusedTokens = Math.min(reused * blockTokens, request.inputTokens - 1)
      request.reusedTokens = reusedTokens
      // Of a prompt that was handed over only the last token is computed.
      const pooledTokens = Math.min(request.recovers?.pooledTokens ?? 0, request.inputTokens - 1)
      request.skippedTokens =
        request.leg === 'decode' ? request.inputTokens - 1 : Math.max(reusedTokens, pooledTokens)
      request.computedTokens = request.skippedTokens
      this.prefillTokens += request.inputTokens - request.computedTokens
      this.#sink.admitted(request)
      this.#prefilling.push(request)
      budget -= this.#takeChunk(request, budget)
    }
  }

  /** Takes the cached blocks and evicts for the new ones. */
  #reserve(request: SimRequest, reused: number, blocksNew: number): void {
    request.places = new Int32Array(request.blocks + request.answerIds.length)
    for (let i = 0; i < reused; i++) {
      const place = this.#placeOf.get(request.blockIds[i]!)!
      if (this.#references[place]!++ === 0) this.#unlink(place)
      request.places[i] = place
    }
    request.placesHeld = reused
    while (this.#freeBlocks < blocksNew) this.#evict()
    this.#freeBlocks -= blocksNew
    request.privateBlocks = blocksNew
    this.#changes++
  }

  #takeChunk(request: SimRequest, budget: number): number {
    const computed = request.computedTokens
    const tokens = Math.min(request.inputTokens - computed, budget)
    request.chunkTokens = tokens
    this.#work.prefillTokens += tokens
    this.#work.prefillAttention += tokens * (computed + tokens / 2)
    if (this.#options.storeAt === 'chunk-start') this.#store(request, computed + tokens)
    return tokens
  }

  #endChunks(step: number): void {
    const { storeAt } = this.#options
    let done = 0
    for (const request of this.#prefilling) {
      if (request.chunkTokens === 0) break
      request.computedTokens += request.chunkTokens
      request.chunkTokens = 0
      const isDone = request.computedTokens === request.inputTokens
      if (isDone || storeAt === 'chunk-end') this.#store(request, request.computedTokens)
      // In order, and only the last one of them is cut by the budget.
      if (!isDone) break
      done++
    }
    if (done === 0) return
    const ready = this.#prefilling.splice(0, done)
    for (const request of ready) {
      this.#sink.firstToken(request)
      if (request.outputTokens === 1) {
        this.#release(request)
        this.#sink.completed(request)
        continue
      }
      request.lastStep = step + request.outputTokens - 1
      this.#contextTokens += request.inputTokens + 1
      this.#pushDecoding(request)
    }
  }

  /** Caches the full blocks among the first `tokens` tokens of the prompt. */
  #store(request: SimRequest, tokens: number): void {
    const end = Math.min(request.blocks, Math.floor(tokens / this.#options.blockTokens))
    if (end <= request.placesHeld) return
    for (let i = request.placesHeld; i < end; i++) this.#storeBlock(request, i, request.blockIds[i]!)
    request.placesHeld = end
    this.#changes++
  }

  /** Caches the answer, as far as its block ids are known: no more blocks than the request holds. */
  #storeAnswer(request: SimRequest): void {
    const { answerIds, blocks } = request
    const count = Math.min(answerIds.length, request.privateBlocks)
    for (let i = 0; i < count; i++) this.#storeBlock(request, blocks + i, answerIds[i]!)
    request.placesHeld = blocks + count
  }

  #storeBlock(request: SimRequest, at: number, id: number): void {
    let place = this.#placeOf.get(id)
    request.privateBlocks--
    if (place === undefined) {
      place = this.#freePlaces[--this.#freePlaceCount]!
      this.#placeOf.set(id, place)
      this.#ids[place] = id
      this.#references[place] = 1
      this.#sink.stored(this.#options.worker, id)
    } else {
      if (this.#references[place]!++ === 0) this.#unlink(place)
      this.#freeBlocks++
    }
    request.places[at] = place
  }

  #release(request: SimRequest): void {
    const { places } = request
    for (let i = request.placesHeld - 1; i >= 0; i--) {
      const place = places[i]!
      if (--this.#references[place]! === 0) this.#linkNewest(place)
    }
    this.#freeBlocks += request.privateBlocks
    request.privateBlocks = 0
    request.placesHeld = 0
    request.places = NO_PLACES
    this.#changes++
  }

  #evict(): void {
    const place = this.#next[this.#options.capacityBlocks]!
    this.#unlink(place)
    const id = this.#ids[place]!
    this.#placeOf.delete(id)
    this.#freePlaces[this.#freePlaceCount++] = place
    this.#freeBlocks++
    this.evictions++
    this.#sink.evicted(this.#options.worker, id)
  }

  #linkNewest(place: number): void {
    const end = this.#options.capacityBlocks
    const newest = this.#previous[end]!
    this.#next[newest] = place
    this.#previous[place] = newest
    this.#next[place] = end
    this.#previous[end] = place
    this.#evictableBlocks++
  }

  #unlink(place: number): void {
    const next = this.#next[place]!
    const previous = this.#previous[place]!
    this.#next[previous] = next
    this.#previous[next] = previous
    this.#evictableBlocks--
  }

  #pushDecoding(request: SimRequest): void {
    const heap = this.#decoding
    let at = heap.length
    heap.push(request)
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!endsBefore(request, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = request
  }

  #popDecoding(): SimRequest {
    const heap = this.#decoding
    const first = heap[0]!
    const last = heap.pop()!
    const size = heap.length
    if (size === 0) return first
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= size) break
      if (child + 1 < size && endsBefore(heap[child + 1]!, heap[child]!)) child++
      if (!endsBefore(heap[child]!, last)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
    return first
  }
}

const NO_PLACES = new Int32Array(0)

function endsBefore(a: SimRequest, b: SimRequest): boolean {
  return a.lastStep < b.lastStep || (a.lastStep === b.lastStep && a.index < b.index)
}
