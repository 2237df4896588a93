/**
 * Router sight: what one simulated router sees when it looks for a place: the request as the product reads
 * it, which blocks of it the workers hold, and the load of each.
 *
 * Knows    the caches of the engines through its view; loads through its books; what a cached block counts
 *          for by its credits. It never looks at an engine, unless the spec wants an oracle.
 * Owns     scratch of one decision: the hashes of the prompt that was read last, overlaps and loads. A view
 *          of events may be shared with other routers, a view of guesses is its own.
 */

import type { Fleet } from '@homing/fleet'
import type { Trust } from '@homing/index'
import { copyProjection } from '@homing/load'
import {
  type Candidate,
  type CandidateLoads,
  decodeLeg,
  type LayerTerm,
  type Overlaps,
  otherRanks,
  prefillLeg,
  type RoutingRequest,
  type Situation,
  slotsOf,
  thresholdsFor,
  withLabels,
} from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import type { CellSpec } from './cell-types.ts'
import type { FleetView } from './fleet-view.ts'
import type { ReuseCredits } from './reuse-credits.ts'
import type { RouterBooks } from './router-books.ts'
import { trustOf } from './sim-fleet.ts'
import type { Recovers, SimRequest } from './sim-request.ts'

/** Bytes that the product takes a token of text for. */
const TEXT_BYTES_PER_TOKEN = 4
const TEXT_BYTES_PER_TOKEN_DEFAULT = 4.5
const NO_HASHES = new Int32Array(0)
const NO_SLOTS = new Int32Array(0)
const NO_WORKERS: readonly string[] = []
const HANDED_OVER = { handover: 'kv_transfer', prefillId: '', topology: [] } as const
const NO_LAYERS: readonly (readonly LayerTerm[])[] = []
const NO_TERMS: readonly LayerTerm[] = []
/** Default of --router-pooled-migration-weight. */
const MIGRATION_WEIGHT = 2

/** The true state of the engines. */
export interface Oracle {
  readonly view: FleetView
  activeBlocks(worker: number): number
  pendingPrefillTokens(worker: number): number
  requests(worker: number): number
  outstandingTokens(worker: number): number
}

export interface RouterSightOptions {
  readonly spec: CellSpec
  readonly view: FleetView
  readonly oracle: Oracle | undefined
  readonly books: RouterBooks
  readonly credits: ReuseCredits
  /** Receipts say what each layer holds. */
  readonly hasReceipts: boolean
  /** The policy goes by the work that is queued at the engines. */
  readonly wantsEngines: boolean
  /** Share of its KV blocks in use, as the engine of a worker reports it; undefined: none does. */
  readonly reportedShare: ((worker: number) => number) | undefined
}

export class RouterSight {
  readonly #spec: CellSpec
  readonly #view: FleetView
  readonly #oracle: Oracle | undefined
  readonly #books: RouterBooks
  readonly #credits: ReuseCredits
  readonly #hasReceipts: boolean
  readonly #wantsEngines: boolean
  readonly #reportedShare: RouterSightOptions['reportedShare']
  readonly #trust: Trust
  readonly #countsTokens: boolean
  /** Prompt tokens as this router sees them, per token. */
  readonly #promptScale: number

  // By worker.
  readonly #overlaps: Int32Array

  // By candidate: scratch of one decision.
  readonly #overlapBlocks: Int32Array
  readonly #creditFactors: Float64Array
  readonly #noBlocks: Int32Array
  readonly #noCredits: Float64Array
  readonly #activeBlocks: Float64Array
  readonly #newBlocks: Float64Array
  readonly #prefillTokens: Float64Array
  readonly #requests: Float64Array

  #sequenceHashes = new Int32Array(512)

  constructor(options: RouterSightOptions) {
    const { spec, view, oracle } = options
    const { workers } = spec
    this.#spec = spec
    this.#view = oracle?.view ?? view
    this.#oracle = oracle
    this.#books = options.books
    this.#credits = options.credits
    this.#hasReceipts = options.hasReceipts
    this.#wantsEngines = options.wantsEngines
    this.#reportedShare = options.reportedShare
    this.#trust = trustOf(spec.view)
    this.#countsTokens = spec.loadCounts === 'tokens'
    const bytesPerToken = spec.view.textBytesPerToken ?? TEXT_BYTES_PER_TOKEN_DEFAULT
    this.#promptScale = spec.view.kind === 'text' ? bytesPerToken / TEXT_BYTES_PER_TOKEN : 1
    this.#overlaps = new Int32Array(workers)
    this.#overlapBlocks = new Int32Array(workers)
    this.#creditFactors = new Float64Array(workers)
    this.#noBlocks = new Int32Array(workers)
    this.#noCredits = new Float64Array(workers)
    this.#activeBlocks = new Float64Array(workers)
    this.#newBlocks = new Float64Array(workers)
    this.#prefillTokens = new Float64Array(workers)
    this.#requests = new Float64Array(workers)
  }

  /** Reads the hashes of the prompt. Returns the number of blocks, which the other calls are to be given. */
  hash({ blockIds, blocks }: SimRequest): number {
    if (this.#countsTokens) return 0
    if (this.#sequenceHashes.length < 2 * blocks) this.#sequenceHashes = new Int32Array(4 * blocks)
    const words = this.#sequenceHashes
    for (let i = 0; i < blocks; i++) {
      const id = blockIds[i]!
      words[2 * i] = id | 0
      words[2 * i + 1] = Math.floor(id / 4_294_967_296)
    }
    return blocks
  }

  /**
   * Of the prompt that was hashed last: pairs of words, an id being used for both. There may be more words
   * than those of the prompt.
   */
  get sequenceHashes(): Int32Array {
    return this.#sequenceHashes
  }

  /** The request as the product reads it, after `hash`. */
  routingOf(request: SimRequest, hashed: number): RoutingRequest {
    const whole: RoutingRequest = {
      requestId: String(request.index),
      model: '',
      promptTokens: Math.max(1, Math.round(request.inputTokens * this.#promptScale)),
      blockSizeTokens: this.#spec.blockTokens,
      localHashes: NO_HASHES,
      sequenceHashes: this.#sequenceHashes.subarray(0, 2 * hashed),
      unknownPromptReason: undefined,
      textBlocksReason: this.#spec.view.kind === 'text' ? 'no engine tokenizes' : undefined,
      override: {},
      pinnedInstanceId: undefined,
      pinnedRank: undefined,
      excludedWorkers: NO_WORKERS,
      ...request.hints,
    }
    if (request.leg === 'prefill') return prefillLeg(whole, undefined)
    return request.leg === 'decode' ? decodeLeg(whole, HANDED_OVER) : whole
  }

  /** All that `place` goes by, after `hash`. The next call overwrites it. */
  situation(
    request: SimRequest,
    routing: RoutingRequest,
    fleet: Fleet,
    found: Situation['found'],
    hashed: number,
    nowMs: number,
    roomRules: readonly RoomRule[] | undefined,
  ): Situation {
    const { candidates } = found
    const workerSlots = slotsOf(candidates)
    const overlaps = this.overlaps(request, candidates, nowMs)
    const others = thresholdsFor(fleet, routing) === undefined ? NO_SLOTS : otherRanks(candidates)
    let load = this.#loadOf(request, workerSlots, overlaps, hashed, nowMs)
    let otherLoads: Situation['otherLoads']
    if (others.length > 0) {
      load = ownLoads(load)
      otherLoads = { workerSlots: others, load: this.#bookedLoad(others, 0, undefined) }
    }
    const held = this.#view.heldBlocks
    return {
      fleet,
      request: routing,
      found,
      workerSlots,
      overlaps,
      load,
      heldBlocks:
        held === undefined || this.#oracle !== undefined ? undefined : ({ key }) => held[key.workerSlot]!,
      otherLoads,
      roomRules,
      isWaiting: roomRules !== undefined && nowMs > request.arrivalMs,
      isReal: true,
    }
  }

  /** Which blocks of the prompt each candidate holds. The next call overwrites it. */
  overlaps(request: SimRequest, candidates: readonly Candidate[], nowMs: number): Overlaps {
    this.#view.overlaps(request.blockIds, request.blocks, this.#overlaps, nowMs)
    const blocks = this.#overlapBlocks
    const creditFactors = this.#creditFactors
    for (let i = 0; i < candidates.length; i++) {
      const slot = candidates[i]!.key.workerSlot
      // A text is known in pieces of its own size.
      const held = Math.floor(this.#overlaps[slot]! * this.#promptScale)
      blocks[i] = held
      creditFactors[i] = this.#credits.factor(slot, held)
    }
    const isGuess = this.#trust === 'approximate'
    const { recovers } = request
    if (recovers !== undefined && recovers.pooledTokens > 0) return this.#pooled(recovers, candidates.length)
    return {
      blocks,
      creditFactors,
      lowerTierBlocks: this.#noCredits,
      guessedBlocks: isGuess ? blocks : this.#noBlocks,
      layers: this.#hasReceipts ? this.#layersOf(candidates.length, isGuess) : NO_LAYERS,
    }
  }

  /** The prompt was sent to this worker. */
  sent({ blockIds, blocks, worker }: SimRequest, nowMs: number): void {
    this.#view.sent(blockIds, blocks, worker, nowMs)
  }

  /** Forgets the cache of a worker that died. */
  workerDied(worker: number): void {
    this.#view.clear(worker)
  }

  /** As for a stream that goes on: pooled blocks behind those that each worker holds. */
  #pooled({ pooledTokens }: Recovers, count: number): Overlaps {
    const { recovery, blockTokens } = this.#spec
    const weight = recovery?.weight ?? MIGRATION_WEIGHT
    const blocks = this.#overlapBlocks.slice(0, count)
    const open = {
      blocks,
      creditFactors: this.#creditFactors.slice(0, count),
      lowerTierBlocks: new Float64Array(count),
      guessedBlocks: new Int32Array(count),
      layers: Array.from({ length: count }, () => NO_TERMS),
      isComplete: true,
    }
    const pooled = blocks.map(held => Math.max(0, pooledTokens / blockTokens - held))
    const labels = { moe: new Int32Array(count), pooled }
    return withLabels(open, labels, { moe: 0, pooled: 1, migration: weight }, true)
  }

  #layersOf(count: number, isGuess: boolean): readonly (readonly LayerTerm[])[] {
    return Array.from({ length: count }, (_, i) => {
      const blocks = this.#overlapBlocks[i]!
      return isGuess && blocks > 0 ? [{ layer: 'guessed', blocks, factor: this.#creditFactors[i]! }] : []
    })
  }

  #loadOf(
    request: SimRequest,
    workerSlots: Int32Array,
    overlaps: Overlaps,
    hashed: number,
    nowMs: number,
  ): CandidateLoads {
    const oracle = this.#oracle
    if (oracle !== undefined) return this.#trueLoad(request, workerSlots, overlaps, oracle)
    const load = this.#bookedLoad(workerSlots, hashed, nowMs)
    if (!this.#countsTokens) return load
    const { blockTokens } = this.#spec
    const count = workerSlots.length
    for (let i = 0; i < count; i++) {
      this.#activeBlocks[i] = this.#books.outstandingTokens(workerSlots[i]!) / blockTokens
    }
    this.#newBlocks.fill(request.inputTokens / blockTokens, 0, count)
    return { ...load, activeBlocks: this.#activeBlocks, newBlocks: this.#newBlocks }
  }

  /** `nowMs`: undefined where the backlog of the engines is not needed. */
  #bookedLoad(workerSlots: Int32Array, hashed: number, nowMs: number | undefined): CandidateLoads {
    const { activeBlocks, newBlocks, activePrefillTokens, activeRequests } = this.#books.project(
      this.#sequenceHashes,
      hashed,
      workerSlots,
    )
    const wantsEngines = nowMs !== undefined && this.#wantsEngines
    return {
      activeBlocks,
      newBlocks,
      soughtBlocks: hashed,
      activePrefillTokens,
      activeRequests,
      engines: wantsEngines ? this.#books.projectEngines(workerSlots, nowMs) : undefined,
      reportedShares: this.#reportedShare && Float64Array.from(workerSlots, this.#reportedShare),
      falls: 0,
    }
  }

  #trueLoad(
    request: SimRequest,
    workerSlots: Int32Array,
    { blocks }: Overlaps,
    oracle: Oracle,
  ): CandidateLoads {
    const { blockTokens } = this.#spec
    for (let i = 0; i < workerSlots.length; i++) {
      const worker = workerSlots[i]!
      this.#prefillTokens[i] = oracle.pendingPrefillTokens(worker)
      this.#requests[i] = oracle.requests(worker)
      if (this.#countsTokens) {
        this.#activeBlocks[i] = oracle.outstandingTokens(worker) / blockTokens
        this.#newBlocks[i] = request.inputTokens / blockTokens
      } else {
        this.#activeBlocks[i] = oracle.activeBlocks(worker)
        this.#newBlocks[i] = request.blocks - blocks[i]!
      }
    }
    return {
      activeBlocks: this.#activeBlocks,
      newBlocks: this.#newBlocks,
      soughtBlocks: request.blocks,
      activePrefillTokens: this.#prefillTokens,
      activeRequests: this.#requests,
      engines: undefined,
      reportedShares: undefined,
      falls: 0,
    }
  }
}

/** A copy: the next projection overwrites the arrays of the original. */
function ownLoads(load: CandidateLoads): CandidateLoads {
  return {
    ...load,
    activeBlocks: load.activeBlocks.slice(),
    newBlocks: load.newBlocks.slice(),
    activePrefillTokens: load.activePrefillTokens.slice(),
    activeRequests: load.activeRequests.slice(),
    engines: load.engines && copyProjection(load.engines),
  }
}
