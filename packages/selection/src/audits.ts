/**
 * Audits: compares predicted cached tokens with the reused tokens that engines report, per worker key.
 *
 *   error = predicted − delivered; beyond TOLERANCE_BLOCKS it is an over- or an under-prediction
 *
 *   contradicted   since the last verdict or epoch, more than CONTRADICTED_SHARE of the requests that
 *                  something was predicted for were over-predicted, and at least CONTRADICTIONS_MIN: blocks
 *                  count as held that are not
 *   confirmed      of AGREEMENT_REQUESTS in a row at most AGREEMENT_MISSES were off, either way, and at least
 *                  AGREEMENT_HITS had something predicted: said once until the next contradiction or epoch
 *
 * The tolerance and the share allow for innocent causes: a removal that is on its way while the router
 * decides, a block that is evicted between the decision and the request's turn in the engine. Where caches
 * are small these are more; so the directory asks what the events say, before it believes a contradiction.
 * Under-predictions are counted, and prevent a confirmation, but contradict nothing: requests sent together
 * share blocks before any event.
 *
 * Engines omit `cached_tokens` if it is 0. So a missing value counts as 0 for an engine that has ever
 * reported one. An engine that has never reported one, although cached tokens were predicted, is unaudited.
 *
 * Bounded: one row per worker key of the fleet, SAMPLE_REQUESTS requests in each.
 */

import type { Trust } from '@homing/index'

/** Requests that the precision is measured over, the last ones for which something was predicted. */
export const SAMPLE_REQUESTS = 64
export const TOLERANCE_BLOCKS = 1
export const CONTRADICTIONS_MIN = 4
export const CONTRADICTED_SHARE = 0.25
export const AGREEMENT_REQUESTS = 32
export const AGREEMENT_HITS = 8
export const AGREEMENT_MISSES = 1
/** Upper bounds of the histogram of errors, in blocks; below 0 more was there than predicted. */
export const ERROR_BOUNDS_BLOCKS = [-64, -16, -4, -1, 0, 1, 4, 16, 64] as const

/** `waiting`: nothing to compare yet. `unaudited`: the engine reports no cached tokens. */
export type AuditState = 'waiting' | 'audited' | 'unaudited'

/** The prediction when a worker key was chosen. */
export interface Prediction {
  /** Name of the worker key. */
  readonly worker: string
  readonly workerSlot: number
  /** Grows whenever all that was known of its cache was forgotten. */
  readonly epoch: number
  /** Tokens of the prompt that were predicted to be cached. */
  readonly predictedTokens: number
  /** The part without events: it counted as cached because the router sent it there. */
  readonly guessedTokens: number
  /** The part that it reaches in pooled memory, behind all others; other workers may have said so. */
  readonly pooledTokens: number
  /** Trust in the prediction: 'approximate' if it was guessed, or the prompt was known only as text. */
  readonly trust: Trust
  readonly blockSizeTokens: number
}

/** The audit of one worker key; counts since the ledger was made. */
export interface KeyAudit {
  readonly worker: string
  readonly workerSlot: number
  readonly state: AuditState
  readonly requests: number
  readonly predictedTokens: number
  readonly deliveredTokens: number
  readonly overPredictions: number
  readonly underPredictions: number
  /** Answers with usage that could not be compared, because the engine reports no cached tokens. */
  readonly unreported: number
  /** Answers that counted other tokens of their prompt than the router. */
  readonly promptDifferences: number
  /**
   * Requests with an error up to each of ERROR_BOUNDS_BLOCKS and above the one before; then those above the
   * last.
   */
  readonly errorCounts: readonly number[]
  readonly errorBlocksSum: number
  /**
   * For predictions from events: delivered ÷ predicted over the sample, 0 … 1; 1 if nothing was predicted
   * yet.
   */
  readonly precision: number
  readonly sampleRequests: number
  /** The same for guessed tokens. */
  readonly guessPrecision: number
  readonly guessSampleRequests: number
}

export interface AuditVerdict {
  readonly verdict: 'contradicted' | 'confirmed'
  /** Predicted blocks that the contradicting answers did not find, together; 0 of one that confirms. */
  readonly missingBlocks: number
  /** For people. */
  readonly reason: string
}

export interface AuditOutcome {
  /** The engine was found to report no cached tokens; true only once. */
  readonly isNewlyUnaudited: boolean
  readonly verdict: AuditVerdict | undefined
}

const NOTHING: AuditOutcome = { isNewlyUnaudited: false, verdict: undefined }

export class Audits {
  readonly #rows = new Map<number, Row>()
  /** Undefined until `keepOnly` is called: then answers of all worker keys count. */
  #workers: ReadonlyMap<number, string> | undefined

  /**
   * The worker keys that are there, by slot. Forgets the rows of others, and takes no answers of theirs: an
   * answer that ends after its worker has left would bring its row back, or take the slot of its successor.
   */
  keepOnly(workers: ReadonlyMap<number, string>): void {
    this.#workers = workers
    for (const [workerSlot, row] of this.#rows) {
      if (workers.get(workerSlot) !== row.worker) this.#rows.delete(workerSlot)
    }
  }

  /** Adds a complete answer with usage; `cachedTokens` undefined: the usage does not have it. */
  add(prediction: Prediction, cachedTokens: number | undefined): AuditOutcome {
    return this.#rowOf(prediction)?.add(prediction, cachedTokens) ?? NOTHING
  }

  /** An answer counted other tokens of its prompt than the router. */
  promptDiffered(prediction: Pick<Prediction, 'worker' | 'workerSlot'>): void {
    const row = this.#rowOf(prediction)
    if (row !== undefined) row.promptDifferences++
  }

  #rowOf({ worker, workerSlot }: Pick<Prediction, 'worker' | 'workerSlot'>): Row | undefined {
    if (this.#workers !== undefined && this.#workers.get(workerSlot) !== worker) return undefined
    let row = this.#rows.get(workerSlot)
    if (row === undefined || row.worker !== worker) {
      row = new Row(worker)
      this.#rows.set(workerSlot, row)
    }
    return row
  }

  /** Delivered ÷ predicted for a worker slot, and the number of requests. */
  precision(workerSlot: number): { readonly precision: number; readonly requests: number } {
    const row = this.#rows.get(workerSlot)
    return row === undefined ? UNMEASURED : row.events
  }

  /** The same of what was guessed. */
  guessPrecision(workerSlot: number): { readonly precision: number; readonly requests: number } {
    const row = this.#rows.get(workerSlot)
    return row === undefined ? UNMEASURED : row.guesses
  }

  report(): KeyAudit[] {
    return Array.from(this.#rows, ([workerSlot, row]) => row.report(workerSlot))
  }
}

const UNMEASURED = { precision: 1, requests: 0 }

/** The last requests for which something was predicted, in a ring. */
class Sample {
  readonly #predicted = new Float64Array(SAMPLE_REQUESTS)
  readonly #delivered = new Float64Array(SAMPLE_REQUESTS)
  #count = 0

  get requests(): number {
    return Math.min(this.#count, SAMPLE_REQUESTS)
  }

  get precision(): number {
    let predicted = 0
    let delivered = 0
    for (let i = 0; i < this.requests; i++) {
      predicted += this.#predicted[i]!
      delivered += this.#delivered[i]!
    }
    return predicted === 0 ? 1 : delivered / predicted
  }

  add(predictedTokens: number, deliveredTokens: number): void {
    if (predictedTokens === 0) return
    const place = this.#count++ % SAMPLE_REQUESTS
    this.#predicted[place] = predictedTokens
    this.#delivered[place] = Math.min(predictedTokens, deliveredTokens)
  }
}

class Row {
  readonly worker: string
  #state: AuditState = 'waiting'
  #hasReported = false
  #requests = 0
  #predictedTokens = 0
  #deliveredTokens = 0
  #overPredictions = 0
  #underPredictions = 0
  #unreported = 0
  promptDifferences = 0
  readonly #errorCounts: number[] = new Array(ERROR_BOUNDS_BLOCKS.length + 1).fill(0)
  #errorBlocksSum = 0

  readonly events = new Sample()
  readonly guesses = new Sample()

  // Since the last verdict or epoch.
  #epoch = 0
  #hits = 0
  #contradictions = 0
  #missingBlocks = 0
  #isConfirmed = false

  // The run of requests that may end in a confirmation.
  #runRequests = 0
  #runHits = 0
  #runMisses = 0

  constructor(worker: string) {
    this.worker = worker
  }

  add(prediction: Prediction, cachedTokens: number | undefined): AuditOutcome {
    const { predictedTokens, guessedTokens, pooledTokens, blockSizeTokens, epoch } = prediction
    if (cachedTokens !== undefined) {
      this.#hasReported = true
      this.#state = 'audited'
    }
    if (!this.#hasReported) {
      this.#unreported++
      const isNewlyUnaudited = predictedTokens > 0 && this.#state === 'waiting'
      if (isNewlyUnaudited) this.#state = 'unaudited'
      return { isNewlyUnaudited, verdict: undefined }
    }
    const deliveredTokens = cachedTokens ?? 0
    this.#count(predictedTokens, deliveredTokens, (predictedTokens - deliveredTokens) / blockSizeTokens)
    // Cached tokens beyond those from events count for the guess, up to its size, and then for the pool.
    const eventTokens = predictedTokens - guessedTokens - pooledTokens
    const beyondEvents = Math.max(0, deliveredTokens - eventTokens)
    const deliveredGuess = Math.min(guessedTokens, beyondEvents)
    const deliveredOthers = Math.min(guessedTokens + pooledTokens, beyondEvents)
    this.events.add(eventTokens, deliveredTokens)
    this.guesses.add(guessedTokens, deliveredGuess)
    if (epoch < this.#epoch) return NOTHING
    if (epoch > this.#epoch) this.#begin(epoch)
    // Verdicts are about events of the worker only: a wrong guess does not contradict them, nor does a pool,
    // nor a prediction that did not use them.
    if (eventTokens === 0 && prediction.trust === 'approximate') return NOTHING
    const errorBlocks = (eventTokens - (deliveredTokens - deliveredOthers)) / blockSizeTokens
    return { isNewlyUnaudited: false, verdict: this.#judge(eventTokens > 0, errorBlocks) }
  }

  report(workerSlot: number): KeyAudit {
    return {
      worker: this.worker,
      workerSlot,
      state: this.#state,
      requests: this.#requests,
      predictedTokens: this.#predictedTokens,
      deliveredTokens: this.#deliveredTokens,
      overPredictions: this.#overPredictions,
      underPredictions: this.#underPredictions,
      unreported: this.#unreported,
      promptDifferences: this.promptDifferences,
      errorCounts: [...this.#errorCounts],
      errorBlocksSum: this.#errorBlocksSum,
      precision: this.events.precision,
      sampleRequests: this.events.requests,
      guessPrecision: this.guesses.precision,
      guessSampleRequests: this.guesses.requests,
    }
  }

  #count(predictedTokens: number, deliveredTokens: number, errorBlocks: number): void {
    this.#requests++
    this.#predictedTokens += predictedTokens
    this.#deliveredTokens += deliveredTokens
    if (errorBlocks > TOLERANCE_BLOCKS) this.#overPredictions++
    if (errorBlocks < -TOLERANCE_BLOCKS) this.#underPredictions++
    const bound = ERROR_BOUNDS_BLOCKS.findIndex(bound => errorBlocks <= bound)
    this.#errorCounts[bound < 0 ? ERROR_BOUNDS_BLOCKS.length : bound]!++
    this.#errorBlocksSum += errorBlocks
  }

  #judge(isHit: boolean, errorBlocks: number): AuditVerdict | undefined {
    if (isHit) this.#hits++
    if (errorBlocks > TOLERANCE_BLOCKS) {
      this.#contradictions++
      this.#missingBlocks += errorBlocks
    }
    const [hits, contradictions] = [this.#hits, this.#contradictions]
    if (contradictions >= CONTRADICTIONS_MIN && contradictions > CONTRADICTED_SHARE * hits) {
      const missingBlocks = Math.round(this.#missingBlocks)
      this.#begin(this.#epoch)
      return {
        verdict: 'contradicted',
        missingBlocks,
        reason: `${Math.round(contradictions)} of ${Math.round(hits)} answers found less cached than the events say`,
      }
    }
    // A long good record must not hide new errors.
    if (hits >= SAMPLE_REQUESTS) {
      this.#hits /= 2
      this.#contradictions /= 2
      this.#missingBlocks /= 2
    }
    return this.#agree(isHit, errorBlocks)
  }

  #agree(isHit: boolean, errorBlocks: number): AuditVerdict | undefined {
    if (this.#isConfirmed) return undefined
    this.#runRequests++
    if (isHit) this.#runHits++
    if (Math.abs(errorBlocks) > TOLERANCE_BLOCKS && ++this.#runMisses > AGREEMENT_MISSES) this.#beginRun()
    if (this.#runRequests < AGREEMENT_REQUESTS || this.#runHits < AGREEMENT_HITS) return undefined
    this.#isConfirmed = true
    return {
      verdict: 'confirmed',
      missingBlocks: 0,
      reason: `${this.#runRequests} answers in a row reported the predicted cached tokens`,
    }
  }

  #begin(epoch: number): void {
    this.#epoch = epoch
    this.#hits = 0
    this.#contradictions = 0
    this.#missingBlocks = 0
    this.#isConfirmed = false
    this.#beginRun()
  }

  #beginRun(): void {
    this.#runRequests = 0
    this.#runHits = 0
    this.#runMisses = 0
  }
}
