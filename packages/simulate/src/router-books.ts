/**
 * Router books: the load of every worker as one simulated router has it booked: its own requests, and those
 * that other routers tell it of.
 *
 * Owns   its ActiveLoad, the book of the engines, outstanding tokens by worker, and the length of answers so
 *        far. What a request was booked with is written on the request.
 */

import { ActiveLoad, EngineBook, type EngineProjection, type LoadTotals, type SaidUsage } from '@homing/load'
import type { CandidateLoads, Placed } from '@homing/placement'
import type { CellSpec } from './cell-types.ts'
import { engineProfile } from './engine-profile.ts'
import { ForeignBlocks } from './foreign-blocks.ts'
import type { ReplicaOperation } from './replica-sync.ts'
import type { SimRequest } from './sim-request.ts'

const REQUESTS_MAX = 16_777_216
const ACTIVE_BLOCKS_MAX = 268_435_456
const NO_HASHES = new Int32Array(0)

export class RouterBooks {
  readonly #spec: CellSpec
  readonly #load: ActiveLoad
  readonly #book: EngineBook
  readonly #foreignBlocks: ForeignBlocks
  readonly #stepTokens: number
  readonly #tell: ((operation: ReplicaOperation, nowMs: number) => void) | undefined
  /** By worker. */
  readonly #outstandingTokens: Float64Array
  #completedOutputTokens = 0
  #completed = 0

  /** `tell`: tells the other routers. */
  constructor(spec: CellSpec, tell: ((operation: ReplicaOperation, nowMs: number) => void) | undefined) {
    const { workers } = spec
    this.#spec = spec
    this.#tell = tell
    this.#load = new ActiveLoad({
      workerSlotsMax: workers,
      requestsMax: REQUESTS_MAX,
      activeBlocksMax: ACTIVE_BLOCKS_MAX,
    })
    this.#foreignBlocks = new ForeignBlocks(this.#load)
    this.#book = new EngineBook({ workerSlotsMax: workers })
    this.#stepTokens = engineProfile(spec.profile).stepTokensMax
    this.#outstandingTokens = new Float64Array(workers)
  }

  /**
   * Books a request where it was placed, and tells the others. The first `hashed` of `sequenceHashes` are
   * those of its prompt.
   */
  sent(
    request: SimRequest,
    { request: routing, winner, overlapBlocks, pooledBlocks, prefillTokens: placedTokens }: Placed,
    sequenceHashes: Int32Array,
    hashed: number,
    nowMs: number,
    hasQueue: boolean,
  ): void {
    const { promptTokens } = routing
    const worker = winner.key.workerSlot
    const prefillTokens = request.leg === 'decode' ? 0 : placedTokens
    request.worker = worker
    request.predictedTokens = overlapBlocks * this.#spec.blockTokens
    request.bookedTokens = prefillTokens
    const outcome = this.#load.book(String(request.index), worker, {
      sequenceHashes,
      count: request.leg === 'prefill' ? 0 : hashed,
      promptTokens,
      prefillTokens,
    })
    if (outcome !== 'booked') throw new RangeError(`cannot book request ${request.index}: ${outcome}`)
    // Without a queue, one that is placed again after the death of its worker has not waited here.
    request.waitedMs = hasQueue ? nowMs - request.arrivalMs : 0
    const { waitedMs } = request
    const isUnknown =
      routing.unknownPromptReason !== undefined || request.leg === 'decode' || pooledBlocks > 0
    const { outputTokensMax } = routing
    const tokens = { promptTokens, newTokens: prefillTokens, outputTokensMax }
    const pooledTokens = pooledBlocks > 0 ? pooledBlocks * this.#spec.blockTokens : undefined
    const handedTokens = request.leg === 'decode' ? request.inputTokens : pooledTokens
    const sent = { ...tokens, isUnknown, handedTokens, waitedMs, nowMs }
    const booked = this.#spec.trouble === 'crossed-book' ? (worker + 1) % this.#spec.workers : worker
    this.#book.sent(String(request.index), booked, sent, winner.worker.maxBatchedTokens.value)
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
        newTokens: prefillTokens,
        waitedMs,
        outstandingTokens: request.bookedOutstanding,
      },
      nowMs,
    )
  }

  /** The signal of the first token arrived. */
  firstToken(request: SimRequest, nowMs: number): void {
    this.#book.firstToken(String(request.index), nowMs)
    this.#load.prefillComplete(String(request.index))
    this.#tell?.({ kind: 'firstToken', id: String(request.index), worker: request.worker }, nowMs)
  }

  /** The whole answer arrived; `ended` follows. */
  answered({ leg, outputTokens }: SimRequest): void {
    if (leg === 'prefill') return
    this.#completedOutputTokens += outputTokens
    this.#completed++
  }

  /** There will be no answer; `ended` follows. */
  failed(request: SimRequest, nowMs: number): void {
    const id = String(request.index)
    this.#book.prefillEnded(id, nowMs)
    this.#load.prefillComplete(id)
  }

  /** Frees a request, and tells the others. `said`: usage of its answer. */
  ended(request: SimRequest, said: SaidUsage, nowMs: number): void {
    const { worker, bookedOutstanding: outstandingTokens } = request
    const id = String(request.index)
    const { outputTokens, cachedShare } = this.#book.believed(id, said, nowMs)
    this.#book.ended(id, nowMs, outputTokens, cachedShare)
    this.#load.free(id)
    this.#outstandingTokens[worker]! -= outstandingTokens
    const activeBlocks = this.#load.ownBlocks(worker)
    this.#tell?.(
      { kind: 'freed', id, worker, activeBlocks, outputTokens, cachedShare, outstandingTokens },
      nowMs,
    )
  }

  /**
   * Books, or ends, what another router has at a worker: in the load, with its blocks as a number, and in the
   * book of the engines, which learns from it as from its own. True: load fell.
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
        this.#book.sent(id, learnedAt, sent, this.#stepTokens)
        this.#outstandingTokens[worker]! += outstandingTokens
        this.#foreignBlocks.set(from, worker, operation.activeBlocks)
        return false
      }
      case 'firstToken':
        this.#book.firstToken(id, nowMs)
        return this.#load.prefillComplete(id)
      case 'freed':
        this.#book.ended(id, nowMs, operation.outputTokens, operation.cachedShare)
        this.#outstandingTokens[worker]! -= operation.outstandingTokens
        this.#foreignBlocks.set(from, worker, operation.activeBlocks)
        return this.#load.free(id)
    }
  }

  /** The load of a worker: requests of this router and those of others. */
  totals(worker: number): LoadTotals {
    return this.#load.totals(worker)
  }

  /** Tokens, output too, that a worker still has to compute or generate. */
  outstandingTokens(worker: number): number {
    return this.#outstandingTokens[worker]!
  }

  /**
   * The load of each of `workerSlots`, and how many of the `hashed` blocks would be new there. The next call
   * overwrites the answer.
   */
  project(
    sequenceHashes: Int32Array,
    hashed: number,
    workerSlots: Int32Array,
  ): Pick<CandidateLoads, 'activeBlocks' | 'newBlocks' | 'activePrefillTokens' | 'activeRequests'> {
    return this.#load.project(sequenceHashes, hashed, workerSlots)
  }

  /** What a request would find on each of `workerSlots` now. The next call overwrites the answer. */
  projectEngines(workerSlots: Int32Array, nowMs: number): EngineProjection {
    return this.#book.project(workerSlots, nowMs)
  }

  /** Forgets the requests of a worker that died. */
  workerDied(worker: number): void {
    this.#load.freeWorker(worker)
    this.#book.forget(worker)
    this.#outstandingTokens[worker] = 0
    this.#foreignBlocks.clear(worker)
  }

  #expectedOutput(request: SimRequest): number {
    if (this.#spec.knowsOutput) return request.outputTokens
    return this.#completed === 0 ? 0 : this.#completedOutputTokens / this.#completed
  }
}
