/**
 * Sim router: one router of a simulated fleet. It drives the product's own Selector, ActiveLoad and Audits, on virtual time.
 *
 * Knows    its own decisions, at once; first tokens and completions of its own requests, when their signals arrive; the caches of the
 *          engines through its view; what other routers tell, if there is replica sync. It never looks at an engine, unless the spec
 *          wants an oracle.
 * Owns     its ActiveLoad, Audits and turn. A view of events may be shared with other routers, a view of guesses is its own.
 */

import type { Random } from '@homing/base'
import { ActiveLoad, EngineBook, figureOf, type LoadTotals } from '@homing/load'
import { mustWait, type RoomRule } from '@homing/queue'
import {
  Audits,
  type Candidates,
  type Choice,
  creditFactor,
  POLICIES,
  Selector,
  selectionSettings,
  withoutTerm,
} from '@homing/selection'
import type { CellSpec, GuardFigures } from './cell-types.ts'
import { engineProfile } from './engine-profile.ts'
import type { FleetView } from './fleet-view.ts'
import type { Replica, ReplicaOperation } from './replica-sync.ts'
import { SimGuard } from './sim-guard.ts'
import type { SimRequest } from './sim-request.ts'

/** Bytes that the product takes a token of text for. */
const TEXT_BYTES_PER_TOKEN = 4
const TEXT_BYTES_PER_TOKEN_DEFAULT = 4.5
const REQUESTS_MAX = 16_777_216
const ACTIVE_BLOCKS_MAX = 268_435_456
const NO_HASHES = new Int32Array(0)

/** The true state of the engines. */
export interface Oracle {
  readonly view: FleetView
  activeBlocks(worker: number): number
  pendingPrefillTokens(worker: number): number
  requests(worker: number): number
  outstandingTokens(worker: number): number
}

export interface SimRouterOptions {
  readonly spec: CellSpec
  readonly view: FleetView
  readonly oracle: Oracle | undefined
  readonly random: Random
  /** Of the guard, so that it does not change the other draws. */
  readonly guardRandom: Random
  /** Tells the other routers. */
  readonly tell?: (operation: ReplicaOperation, nowMs: number) => void
}

export class SimRouter implements Replica {
  readonly #spec: CellSpec
  readonly #view: FleetView
  readonly #oracle: Oracle | undefined
  readonly #random: Random
  readonly #load: ActiveLoad
  readonly #book: EngineBook
  readonly #audits = new Audits()
  readonly #selector: Selector
  readonly #settings
  readonly #countsTokens: boolean
  /** Prompt tokens as this router sees them, per token. */
  readonly #promptScale: number
  readonly #measures: boolean
  readonly #guard: SimGuard | undefined
  readonly #tell: SimRouterOptions['tell']
  /** Blocks that another router has active on each worker, by router. */
  readonly #foreignBlocks = new Map<number, Int32Array>()
  #turn = 0

  // By worker.
  readonly #outstandingTokens: Float64Array
  readonly #overlaps: Int32Array
  readonly #credits: Float64Array

  // By candidate.
  readonly #overlapBlocks: Int32Array
  readonly #creditFactors: Float64Array
  readonly #activeBlocks: Float64Array
  readonly #newBlocks: Float64Array
  readonly #prefillTokens: Float64Array
  readonly #requests: Float64Array
  readonly #stepTokens: Float64Array
  readonly #kvCapacityTokens: Float64Array

  // Of the rule threshold-received: new tokens sent to each worker, and scratch.
  readonly #receivedTokens: Float64Array
  readonly #keys: Float64Array

  #sequenceHashes = new Int32Array(512)
  #completedOutputTokens = 0
  #completed = 0

  constructor({ spec, view, oracle, random, guardRandom, tell }: SimRouterOptions) {
    const { workers } = spec
    this.#tell = tell
    this.#spec = spec
    this.#view = oracle?.view ?? view
    this.#oracle = oracle
    this.#random = random
    this.#load = new ActiveLoad({
      workerSlotsMax: workers,
      requestsMax: REQUESTS_MAX,
      activeBlocksMax: ACTIVE_BLOCKS_MAX,
    })
    this.#book = new EngineBook({ workerSlotsMax: workers })
    const profile = engineProfile(spec.profile)
    this.#stepTokens = new Float64Array(workers).fill(profile.stepTokensMax)
    this.#kvCapacityTokens = new Float64Array(workers).fill(spec.kvCapacityTokens ?? profile.kvCapacityTokens)
    this.#settings = selectionSettings(spec.selection)
    this.#selector = new Selector(workers, policiesFor(spec))
    this.#countsTokens = spec.loadCounts === 'tokens'
    const bytesPerToken = spec.view.textBytesPerToken ?? TEXT_BYTES_PER_TOKEN_DEFAULT
    this.#promptScale = spec.view.kind === 'text' ? bytesPerToken / TEXT_BYTES_PER_TOKEN : 1
    this.#measures = spec.view.credit !== 'full' && oracle === undefined
    const { guardShare } = spec.selection
    this.#guard = guardShare === undefined ? undefined : new SimGuard(guardShare, guardRandom)
    this.#outstandingTokens = new Float64Array(workers)
    this.#overlaps = new Int32Array(workers)
    this.#credits = new Float64Array(workers).fill(this.#measures ? creditFactor(this.#trust, 1, 0) : 1)
    this.#overlapBlocks = new Int32Array(workers)
    this.#creditFactors = new Float64Array(workers)
    this.#activeBlocks = new Float64Array(workers)
    this.#newBlocks = new Float64Array(workers)
    this.#prefillTokens = new Float64Array(workers)
    this.#requests = new Float64Array(workers)
    this.#receivedTokens = new Float64Array(workers)
    this.#keys = new Float64Array(workers)
  }

  /**
   * Chooses one of the workers, and books the request there; or, if all are past the rules, books nothing and says how many tokens of
   * its prompt the best of them holds.
   */
  decide(
    request: SimRequest,
    workers: Int32Array,
    nowMs: number,
    rules?: readonly RoomRule[],
  ): number | undefined {
    // Placed again after the death of its worker.
    this.#guard?.ended(request)
    const { blockTokens } = this.#spec
    const promptTokens = Math.max(1, Math.round(request.inputTokens * this.#promptScale))
    const hashed = this.#countsTokens ? 0 : this.#hash(request)
    const candidates = this.#candidates(request, workers, hashed, nowMs)
    if (rules !== undefined) {
      const cachedTokens = this.#bestCachedTokens(candidates, promptTokens)
      if (this.#isBusy(rules, candidates, promptTokens - cachedTokens)) return cachedTokens
    }
    const winner = this.#choose(request, candidates, promptTokens, nowMs)
    const worker = workers[winner]!
    const overlapTokens = candidates.overlapBlocks[winner]! * blockTokens
    const credited = overlapTokens * candidates.creditFactors[winner]!
    request.worker = worker
    request.predictedTokens = Math.min(overlapTokens, promptTokens)
    request.bookedTokens = Math.max(1, Math.round(promptTokens - credited))
    const outcome = this.#load.book(String(request.index), worker, {
      sequenceHashes: this.#sequenceHashes,
      count: hashed,
      promptTokens,
      prefillTokens: request.bookedTokens,
    })
    if (outcome !== 'booked') throw new RangeError(`cannot book request ${request.index}: ${outcome}`)
    // Without a queue, one that is placed again after the death of its worker has not waited here.
    request.waitedMs = rules === undefined ? 0 : nowMs - request.arrivalMs
    const { waitedMs } = request
    const sent = { promptTokens, newTokens: request.bookedTokens, waitedMs, nowMs }
    const booked = this.#spec.trouble === 'crossed-book' ? (worker + 1) % this.#spec.workers : worker
    this.#book.sent(String(request.index), booked, sent, this.#stepTokens[worker]!)
    request.bookedOutstanding = request.inputTokens + this.#expectedOutput(request)
    this.#outstandingTokens[worker]! += request.bookedOutstanding
    this.#tell?.(
      {
        kind: 'booked',
        id: String(request.index),
        worker,
        learnedAt: booked,
        activeBlocks: this.#load.ownBlocks(worker),
        promptTokens,
        newTokens: request.bookedTokens,
        waitedMs,
        outstandingTokens: request.bookedOutstanding,
      },
      nowMs,
    )
    this.#view.sent(request.blockIds, request.blocks, worker, nowMs)
    return undefined
  }

  /** Tokens of its prompt that the best of the workers holds. */
  cachedTokens(request: SimRequest, workers: Int32Array, nowMs: number): number {
    const hashed = this.#countsTokens ? 0 : this.#hash(request)
    const promptTokens = Math.max(1, Math.round(request.inputTokens * this.#promptScale))
    return this.#bestCachedTokens(this.#candidates(request, workers, hashed, nowMs), promptTokens)
  }

  /** The signal of the first token arrived. */
  firstToken(request: SimRequest, nowMs: number): void {
    this.#guard?.firstToken(request, nowMs)
    this.#book.firstToken(String(request.index), nowMs)
    this.#load.prefillComplete(String(request.index))
    this.#tell?.({ kind: 'firstToken', id: String(request.index), worker: request.worker }, nowMs)
  }

  /** The signal of the last token arrived. */
  completed(request: SimRequest, nowMs: number): void {
    const { worker } = request
    const cachedShare = request.reusedTokens / request.inputTokens
    this.#book.ended(String(request.index), nowMs, request.outputTokens, cachedShare)
    this.#load.free(String(request.index))
    this.#outstandingTokens[worker]! -= request.bookedOutstanding
    this.#completedOutputTokens += request.outputTokens
    this.#completed++
    this.#guard?.ended(request)
    if (this.#measures) this.#audit(request)
    const { outputTokens, bookedOutstanding: outstandingTokens } = request
    const activeBlocks = this.#load.ownBlocks(worker)
    const id = String(request.index)
    this.#tell?.(
      { kind: 'freed', id, worker, activeBlocks, outputTokens, cachedShare, outstandingTokens },
      nowMs,
    )
  }

  /**
   * Books, or ends, what another router has at a worker: in the load, with its blocks as a number, and in the book of the engines, which
   * learns from it as from its own.
   */
  heard(from: number, operation: ReplicaOperation, nowMs: number): boolean {
    const { id, worker } = operation
    switch (operation.kind) {
      case 'booked': {
        const { promptTokens, newTokens, waitedMs, outstandingTokens, learnedAt } = operation
        const figures = { sequenceHashes: NO_HASHES, count: 0, promptTokens, prefillTokens: newTokens }
        const outcome = this.#load.book(id, worker, figures)
        if (outcome !== 'booked')
          throw new RangeError(`cannot book request ${id} of router ${from}: ${outcome}`)
        const sent = { promptTokens, newTokens, waitedMs, isOwn: false, nowMs }
        this.#book.sent(id, learnedAt, sent, this.#stepTokens[worker]!)
        this.#outstandingTokens[worker]! += outstandingTokens
        this.#setForeignBlocks(from, worker, operation.activeBlocks)
        return false
      }
      case 'firstToken':
        this.#book.firstToken(id, nowMs)
        return this.#load.prefillComplete(id)
      case 'freed':
        this.#book.ended(id, nowMs, operation.outputTokens, operation.cachedShare)
        this.#outstandingTokens[worker]! -= operation.outstandingTokens
        this.#setForeignBlocks(from, worker, operation.activeBlocks)
        return this.#load.free(id)
    }
  }

  /** What it counts at a worker: its own requests and those of others. */
  totals(worker: number): LoadTotals {
    return this.#load.totals(worker)
  }

  get guardFigures(): GuardFigures | undefined {
    return this.#guard?.figures
  }

  /** All that was there is gone. */
  workerDied(worker: number): void {
    this.#load.freeWorker(worker)
    this.#book.forget(worker)
    this.#outstandingTokens[worker] = 0
    for (const blocks of this.#foreignBlocks.values()) blocks[worker] = 0
    this.#load.setForeignBlocks(worker, 0)
    this.#view.clear(worker)
  }

  #setForeignBlocks(from: number, worker: number, activeBlocks: number): void {
    let own = this.#foreignBlocks.get(from)
    if (own === undefined) {
      own = new Int32Array(this.#spec.workers)
      this.#foreignBlocks.set(from, own)
    }
    own[worker] = activeBlocks
    let sum = 0
    for (const blocks of this.#foreignBlocks.values()) sum += blocks[worker]!
    this.#load.setForeignBlocks(worker, sum)
  }

  #bestCachedTokens({ count, overlapBlocks, creditFactors }: Candidates, promptTokens: number): number {
    let best = 0
    for (let i = 0; i < count; i++) {
      best = Math.max(best, Math.floor(overlapBlocks[i]! * creditFactors[i]! * this.#spec.blockTokens))
    }
    return Math.min(promptTokens, best)
  }

  #isBusy(
    rules: readonly RoomRule[],
    { count, activePrefillTokens, engines }: Candidates,
    uncachedTokens: number,
  ): boolean {
    return mustWait(rules, uncachedTokens, count, i => ({
      activePrefillTokens: activePrefillTokens[i]!,
      queuedTokens: engines && figureOf(engines, i, 'queuedTokens'),
      batchedTokensMax: this.#stepTokens[i]!,
    }))
  }

  #choose(request: SimRequest, candidates: Candidates, promptTokens: number, nowMs: number): number {
    const { rule } = this.#spec.selection
    if (rule === 'session') return sessionChoice(request, candidates)
    if (rule === 'overlap') return overlapChoice(candidates, this.#random)
    if (rule === 'logged') return loggedChoice(request, candidates)
    if (rule === 'threshold-received') {
      const winner = this.#receivedChoice(candidates, promptTokens)
      const overlapTokens = candidates.overlapBlocks[winner]! * this.#spec.blockTokens
      this.#receivedTokens[candidates.workerSlots[winner]!]! += Math.max(1, promptTokens - overlapTokens)
      return winner
    }
    const choice = this.#selector.choose(
      candidates,
      { promptTokens, blockSizeTokens: this.#spec.blockTokens },
      this.#settings,
      this.#random,
      this.#turn,
    )
    this.#turn = choice.nextTurn
    const { nearTieMs } = this.#spec.selection
    if (nearTieMs !== undefined) {
      const other = nearTie(choice, candidates, nearTieMs, this.#random)
      if (other !== choice.winner) this.#selector.divert(other, 1, true)
    }
    return this.#guard === undefined
      ? choice.winner
      : this.#guard.decide(request, candidates, choice, promptTokens, nowMs)
  }

  /** The product's threshold policy, but for its last clause, and ties that go to the fewest requests. */
  #receivedChoice(
    { count, workerSlots, overlapBlocks, activeRequests }: Candidates,
    promptTokens: number,
  ): number {
    const keys = this.#keys
    let fewest = Number.POSITIVE_INFINITY
    let most = 0
    let overlapMax = 0
    for (let i = 0; i < count; i++) {
      fewest = Math.min(fewest, activeRequests[i]!)
      most = Math.max(most, activeRequests[i]!)
      overlapMax = Math.max(overlapMax, overlapBlocks[i]!)
    }
    const isUneven = most - fewest > 64 && most > 1.5 * fewest
    const isCached = (overlapMax * this.#spec.blockTokens) / promptTokens > 0.3
    for (let i = 0; i < count; i++) {
      if (isUneven) keys[i] = activeRequests[i]!
      else if (isCached)
        keys[i] = overlapBlocks[i] === overlapMax ? activeRequests[i]! : Number.POSITIVE_INFINITY
      else keys[i] = this.#receivedTokens[workerSlots[i]!]!
    }
    return smallest(keys, count, this.#random)
  }

  #candidates(request: SimRequest, workers: Int32Array, hashed: number, nowMs: number): Candidates {
    const { blockTokens } = this.#spec
    const count = workers.length
    this.#view.overlaps(request.blockIds, request.blocks, this.#overlaps, nowMs)
    // With all workers alive, a candidate is its worker.
    const isPlain = count === this.#overlaps.length && this.#promptScale === 1
    const overlapBlocks = isPlain ? this.#overlaps : this.#overlapBlocks
    const creditFactors = isPlain ? this.#credits : this.#creditFactors
    if (!isPlain) this.#fillOverlaps(workers)
    const oracle = this.#oracle
    if (oracle !== undefined) {
      return this.#trueCandidates(request, workers, overlapBlocks, creditFactors, oracle)
    }
    const load = this.#load.project(this.#sequenceHashes, hashed, workers)
    let { activeBlocks, newBlocks }: { activeBlocks: ArrayLike<number>; newBlocks: ArrayLike<number> } = load
    if (this.#countsTokens) {
      for (let i = 0; i < count; i++) {
        this.#activeBlocks[i] = this.#outstandingTokens[workers[i]!]! / blockTokens
      }
      this.#newBlocks.fill(request.inputTokens / blockTokens, 0, count)
      activeBlocks = this.#activeBlocks
      newBlocks = this.#newBlocks
    }
    const held = this.#view.heldBlocks
    return {
      count,
      workerSlots: workers,
      overlapBlocks,
      creditFactors,
      heldBlocksOf: held === undefined ? undefined : i => held[workers[i]!]!,
      activeBlocks,
      newBlocks,
      soughtBlocks: hashed,
      activePrefillTokens: load.activePrefillTokens,
      activeRequests: load.activeRequests,
      engines: this.#settings.policy === 'auto' ? this.#book.project(workers, nowMs) : undefined,
      kvCapacityTokens: this.#kvCapacityTokens,
      stepTokens: this.#stepTokens,
    }
  }

  #fillOverlaps(workers: Int32Array): void {
    for (let i = 0; i < workers.length; i++) {
      const worker = workers[i]!
      // A text is known in pieces of its own size.
      this.#overlapBlocks[i] = Math.floor(this.#overlaps[worker]! * this.#promptScale)
      this.#creditFactors[i] = this.#credits[worker]!
    }
  }

  #trueCandidates(
    request: SimRequest,
    workers: Int32Array,
    overlapBlocks: Int32Array,
    creditFactors: Float64Array,
    oracle: Oracle,
  ): Candidates {
    const { blockTokens } = this.#spec
    for (let i = 0; i < workers.length; i++) {
      const worker = workers[i]!
      this.#prefillTokens[i] = oracle.pendingPrefillTokens(worker)
      this.#requests[i] = oracle.requests(worker)
      if (this.#countsTokens) {
        this.#activeBlocks[i] = oracle.outstandingTokens(worker) / blockTokens
        this.#newBlocks[i] = request.inputTokens / blockTokens
      } else {
        this.#activeBlocks[i] = oracle.activeBlocks(worker)
        this.#newBlocks[i] = request.blocks - overlapBlocks[i]!
      }
    }
    return {
      count: workers.length,
      workerSlots: workers,
      overlapBlocks,
      creditFactors,
      activeBlocks: this.#activeBlocks,
      newBlocks: this.#newBlocks,
      activePrefillTokens: this.#prefillTokens,
      activeRequests: this.#requests,
    }
  }

  get #trust(): 'exact' | 'approximate' | 'none' {
    const { kind } = this.#spec.view
    return kind === 'none' ? 'none' : kind === 'exact' || kind === 'late' ? 'exact' : 'approximate'
  }

  /** Compares what was predicted with what the engine reused. */
  #audit(request: SimRequest): void {
    const trust = this.#trust
    if (trust === 'none') return
    const { worker, predictedTokens } = request
    const isGuess = trust === 'approximate'
    const prediction = {
      worker: String(worker),
      workerSlot: worker,
      epoch: 0,
      predictedTokens,
      guessedTokens: isGuess ? predictedTokens : 0,
      trust,
      blockSizeTokens: this.#spec.blockTokens,
    }
    this.#audits.add(prediction, request.reusedTokens)
    this.#guard?.audited(predictedTokens, request.reusedTokens)
    const sample = isGuess ? this.#audits.guessPrecision(worker) : this.#audits.precision(worker)
    this.#credits[worker] = creditFactor(trust, sample.precision, sample.requests)
  }

  #expectedOutput(request: SimRequest): number {
    if (this.#spec.knowsOutput) return request.outputTokens
    return this.#completed === 0 ? 0 : this.#completedOutputTokens / this.#completed
  }

  /** Fills the sequence hashes: pairs of words, of which an id is both. Returns the number of blocks. */
  #hash({ blockIds, blocks }: SimRequest): number {
    if (this.#sequenceHashes.length < 2 * blocks) this.#sequenceHashes = new Int32Array(4 * blocks)
    const words = this.#sequenceHashes
    for (let i = 0; i < blocks; i++) {
      const id = blockIds[i]!
      words[2 * i] = id | 0
      words[2 * i + 1] = Math.floor(id / 4_294_967_296)
    }
    return blocks
  }
}

function policiesFor({ selection }: CellSpec): typeof POLICIES {
  const { policy, withoutTerm: term } = selection
  if (policy === undefined || term === undefined) return POLICIES
  return { ...POLICIES, [policy]: withoutTerm(POLICIES[policy], term) }
}

/** Where the trace says that it went. */
function loggedChoice({ trace, index }: SimRequest, { count, workerSlots }: Candidates): number {
  for (let i = 0; i < count; i++) if (workerSlots[i] === trace.worker) return i
  throw new RangeError(`cannot place request ${index} at worker ${trace.worker}: it is not there`)
}

/** Highest random weight: each key has a fixed order of all workers, and takes the first one that is there. */
function sessionChoice({ trace, blockIds, blocks }: SimRequest, { count, workerSlots }: Candidates): number {
  const key =
    trace.sessionId === undefined ? (blockIds[Math.min(1, blocks - 1)] ?? 0) : textHash(trace.sessionId)
  let best = 0
  let bestWeight = -1
  for (let i = 0; i < count; i++) {
    const weight = mix(key, workerSlots[i]!)
    if (weight > bestWeight) {
      best = i
      bestWeight = weight
    }
  }
  return best
}

function overlapChoice({ count, overlapBlocks, activeRequests }: Candidates, random: Random): number {
  let best = 0
  let ties = 1
  for (let i = 1; i < count; i++) {
    const order = overlapBlocks[best]! - overlapBlocks[i]! || activeRequests[i]! - activeRequests[best]!
    if (order < 0) {
      best = i
      ties = 1
    } else if (order === 0 && random.below(++ties) === 0) {
      best = i
    }
  }
  return best
}

/** Of two among those within `nearTieMs` of the best cost, the one with fewer requests, the cheaper one where these are equal. */
function nearTie(
  { winner, terms: { cost } }: Choice,
  { count, activeRequests }: Candidates,
  nearTieMs: number,
  random: Random,
): number {
  const near: number[] = []
  for (let i = 0; i < count; i++) if (cost[i]! - cost[winner]! <= nearTieMs) near.push(i)
  if (near.length < 2) return winner
  const [first] = near.splice(random.below(near.length), 1)
  const second = near[random.below(near.length)]!
  const order = activeRequests[first!]! - activeRequests[second]! || cost[first!]! - cost[second]!
  return order <= 0 ? first! : second
}

/** Ties uniformly at random. */
function smallest(keys: Float64Array, count: number, random: Random): number {
  let best = 0
  let ties = 1
  for (let i = 1; i < count; i++) {
    if (keys[i]! < keys[best]!) {
      best = i
      ties = 1
    } else if (keys[i] === keys[best] && random.below(++ties) === 0) {
      best = i
    }
  }
  return best
}

function textHash(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0
}

/** 32 bits; the finisher is murmur3's. */
function mix(a: number, b: number): number {
  let hash =
    Math.imul((a | 0) ^ 0x9e3779b1, 0x85ebca77) ^ Math.imul(Math.floor(a / 4_294_967_296) + 1, 0xc2b2ae3d)
  hash = Math.imul(hash ^ (hash >>> 16) ^ Math.imul(b + 1, 0x27d4eb2f), 0x7feb352d)
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b)
  return (hash ^ (hash >>> 16)) >>> 0
}
