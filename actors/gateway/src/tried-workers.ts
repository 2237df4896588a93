/**
 * Tried workers: those that failed one request, which of them is to blame, and whether another may be tried.
 *
 * Another one is tried within `retriesMax` and the retry budget, and only once more after a worker has taken
 * the request. The budget is for workers that answer badly: one that dies fails many requests at once, and
 * each of them goes to one other worker all the same.
 *
 * Blame. A worker that could not be reached, sheds load, or broke off its answer is reported to the router at
 * once. One that failed after it had taken the request may have met a bad request: it is reported when
 * another worker has served the request, or if no other was tried. What fails at two workers blames the
 * request, so neither is reported.
 */

import type { Decision, RetryBudget, WorkerFault } from '@homing/placement'

/** Tries after a worker has taken the request, the first included. */
const TAKEN_MAX = 2

export interface WorkerFailure {
  readonly decision: Decision
  readonly fault: WorkerFault
  /** When this worker was called. */
  readonly calledMs: number
  /** That was asked for. */
  readonly model: string
}

export interface TriedParts {
  readonly limits: { readonly retriesMax: number }
  readonly retryBudget: Pick<RetryBudget, 'isEmpty'>
}

export class TriedWorkers {
  readonly #parts: TriedParts
  readonly #report: (failure: WorkerFailure) => void
  #failed: readonly string[] = []
  /** Of those, the ones that are no try: they had sent a part of their answer, drained, or were second. */
  #uncounted = 0
  /** Workers that have taken the request and failed it. */
  #takenCount = 0
  #isRest = false
  /** Failures after the request was taken, not reported yet. */
  #suspects: WorkerFailure[] = []

  constructor(parts: TriedParts, report: (failure: WorkerFailure) => void) {
    this.#parts = parts
    this.#report = report
  }

  /** What is tried now counts against the retry budget: it is a request, not the rest of a stream. */
  get isCharged(): boolean {
    return !this.#isRest
  }

  /** No worker has taken the request and failed it. */
  get isUntaken(): boolean {
    return this.#takenCount === 0
  }

  /** Ids of the workers that have failed it and are not to get it again. */
  get failed(): readonly string[] {
    return this.#failed
  }

  /** Fewer than `retriesMax` failed before they had sent anything. */
  get isFew(): boolean {
    return this.#failed.length - this.#uncounted < this.#parts.limits.retriesMax
  }

  /**
   * Whether another one may be tried if the current worker fails the request now. `isCharged`: against the
   * retry budget; default: unless it is the rest of a stream, which is bounded otherwise.
   */
  mayTryOther(wasTaken: boolean, isCharged = this.isCharged): boolean {
    if (!this.isFew || (isCharged && this.#parts.retryBudget.isEmpty)) return false
    return !wasTaken || this.#takenCount + 1 < TAKEN_MAX
  }

  /** The current worker had taken the request. */
  taken(): void {
    this.#takenCount++
  }

  /** `isSure`: the request is not to blame. */
  failedBy(failure: WorkerFailure, isSure: boolean): void {
    if (isSure) this.#report(failure)
    else this.#suspects.push(failure)
  }

  left(workerId: string): void {
    this.#failed = [...this.#failed, workerId]
  }

  /**
   * It had sent a part of its answer, or was to go on with that of another one. Each try to go on is one more
   * worker; how many there are is not counted here.
   */
  leftCut(workerId: string): void {
    this.left(workerId)
    this.#uncounted++
    this.#isRest = true
    this.#takenCount = TAKEN_MAX - 1
  }

  /** It has drained, or was asked beside the current worker, which goes on: no try of `retriesMax`. */
  leftBlameless(workerId: string): void {
    this.left(workerId)
    this.#uncounted++
  }

  /** A worker answers, so that the request is not to blame. */
  served(): void {
    for (const failure of this.#suspects.splice(0)) this.#report(failure)
  }

  /** The request is over at this worker. If it failed, and no other was tried, nothing speaks for it. */
  over(workerId: string | undefined): void {
    const [failure, ...others] = this.#suspects.splice(0)
    if (failure !== undefined && others.length === 0 && failure.decision.workerId === workerId)
      this.#report(failure)
  }
}
