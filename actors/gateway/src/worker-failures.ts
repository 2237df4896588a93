/**
 * Worker failures: what one exchange makes of a worker that failed its request. It says what becomes of the
 * request (a turn, which the exchange takes), and tells the others: the router which worker is to blame
 * (tried-workers.ts), the directory which one to look at, the gateway which prompt breaks workers.
 *
 *   the worker                                turn
 *   refuses, other workers may be tried       place the request again
 *   refuses, and others would say the same    pass its answer on
 *   breaks an idle connection                 call it once more
 *   breaks, sheds load, stalls, fails inside  place the request again
 *   breaks off a stream that has begun        have another worker go on
 *   is lost: frozen, or out of reach          either, as far as the answer has come
 *   could not be reached, and an Envoy has    place it where the Envoy has sent it
 *   sent it elsewhere
 *   any of these, and no try is left          fail; of the rest of a stream: have yet another one go on
 *
 * A worker whose connection has as many calls as it takes is left for another, and not blamed. If this
 * machine has no socket for the call, no worker is blamed and no other is tried.
 */

import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Decision, RoutingRequest, WorkerFault } from '@homing/placement'
import { NoAnswerError, NoSocketError, UpstreamFailedError } from './errors.ts'
import type { CommonParts } from './exchange-parts.ts'
import type { HedgeLeg } from './hedge.ts'
import { type HedgeEnd, hedgeVerdict } from './hedge-verdict.ts'
import { TriedWorkers, type WorkerFailure } from './tried-workers.ts'
import type { BrokenCall, Refusal } from './worker-call.ts'
import { FAILING_STATUSES, isTaking, lacksModel, SHEDDING_STATUSES } from './worker-statuses.ts'

/** What becomes of a request whose worker failed it. */
export type Turn =
  /** The worker's answer is the client's. */
  | { readonly kind: 'passOn'; readonly refusal: Refusal }
  | { readonly kind: 'callAgain' }
  /** Another worker goes on with the stream; else it ends with this error. `wasTaken`: default true. */
  | { readonly kind: 'goOn'; readonly error: ErrorRecord; readonly wasTaken?: boolean }
  /** `wasTaken`: the worker has worked on it. */
  | { readonly kind: 'fail'; readonly error: ErrorRecord; readonly wasTaken: boolean }
  | PlaceAgain

export interface PlaceAgain {
  readonly kind: 'placeAgain'
  /** `drained`: it is well, and has drained for as long as it may. */
  readonly why: 'refused' | 'broke' | 'drained'
  readonly reason: string
  readonly wasTaken: boolean
  /** Against the retry budget, which has paid for a second worker that is being asked; default: true. */
  readonly isCharged?: boolean
  /** It is there already; default: the router chooses. */
  readonly pinnedInstanceId?: number
}

/** The call that failed. */
export interface FailedCall {
  readonly decision: Decision
  readonly model: string
  /** When this worker was called. */
  readonly calledMs: number
  /** The body as the client sent it. */
  readonly body: Uint8Array | undefined
  /** A part of its answer has passed. */
  readonly isRelaying: boolean
  /** It was to go on with the stream of another worker. */
  readonly isRest: boolean
  /** Of such a stream: whether yet another worker may go on with it. */
  readonly mayGoOn: boolean
  /** It was not called once more yet. */
  readonly mayCallAgain: boolean
  /** A second worker is being asked. */
  readonly isHedging: boolean
}

export type FailuresParts = Pick<
  CommonParts,
  | 'context'
  | 'directory'
  | 'placements'
  | 'deadlyPrompts'
  | 'badAnswers'
  | 'progress'
  | 'picked'
  | 'limits'
  | 'retryBudget'
>

export class WorkerFailures {
  readonly #parts: FailuresParts
  readonly #tried: TriedWorkers
  /** The last call that was answered badly, and whether it is a loss (bad-answers.ts). */
  #noted: { readonly decisionId: string; readonly calledMs: number; readonly isLoss: boolean } | undefined

  constructor(parts: FailuresParts) {
    this.#parts = parts
    this.#tried = new TriedWorkers(parts, failure => this.#report(failure))
  }

  /** Ids of the workers that are not to get the request again. */
  get workers(): readonly string[] {
    return this.#tried.failed
  }

  /** Whether another worker may be tried if the current one answers with this status. */
  mayRefuse(call: FailedCall, status: number): boolean {
    return this.#tried.mayTryOther(isTaking(status), this.#isCharged(call, status))
  }

  /** An answer begins, so it is known who failed before: the earlier workers, or the request. */
  answered(call: FailedCall, status: number, isStream: boolean): void {
    if (status < 400) {
      this.#parts.progress.answered({ isStream }, this.#nowMs - call.calledMs)
      this.#tried.served()
    } else if (FAILING_STATUSES.has(status)) this.#answeredBadly(call, status)
  }

  refused(call: FailedCall, status: number, refusal: Refusal | undefined): Turn {
    const { decision, model, isHedging } = call
    const { worker, workerId, usesKey } = decision
    const { directory } = this.#parts
    if (status === 404) {
      if (!lacksModel(refusal)) return { kind: 'passOn', refusal: refusal! }
      this.#failed(call, `answered 404: it does not serve ${model}`, true, 'lacksModel')
      directory.tell({ type: 'lookAgain', workerId })
    }
    const wasTaken = isTaking(status)
    const isCharged = this.#isCharged(call, status)
    const mayTryOther = this.#tried.mayTryOther(wasTaken, isCharged)
    if (FAILING_STATUSES.has(status)) this.#answeredBadly(call, status)
    if (wasTaken) this.#tried.taken()
    if (usesKey && (status === 401 || status === 403)) {
      const reason = `it answered ${status}: it does not accept the key that the router has for it`
      directory.tell({ type: 'suspect', workerId, reason, isUnreachable: false })
    }
    // A second worker may have failed since its head came.
    if (isHedging || mayTryOther) {
      const reason = `worker ${worker} answered ${status}`
      return { kind: 'placeAgain', why: 'refused', reason, wasTaken, isCharged }
    }
    return this.#giveUp(call, upstreamFailed(decision, `answered ${status}`), wasTaken)
  }

  broke(
    call: FailedCall,
    { reason, failure, reusedConnection, servedBy, isGivenUp = false }: BrokenCall,
  ): Turn {
    const { decision, body, calledMs, isRelaying, mayCallAgain, isHedging } = call
    const { workerId } = decision
    const { directory, deadlyPrompts } = this.#parts
    if (servedBy !== undefined) return this.#moved(decision, servedBy, reason)
    // The worker may have closed an idle connection; only a second break shows whether the worker failed.
    const isIdleClose = reusedConnection && mayCallAgain && !isRelaying
    if (failure === 'reset' && !isIdleClose && body !== undefined)
      deadlyPrompts.broke(body, workerId, this.#nowMs, this.#nowMs - calledMs)
    if (isRelaying) return this.brokeOff(call, reason)
    if (isIdleClose) return { kind: 'callAgain' }
    const wasAsked = failure !== 'connect' && failure !== 'full'
    const wasTaken = wasAsked && failure !== 'local' && failure !== 'request'
    if (failure === 'local' && !isHedging)
      return { kind: 'fail', error: toErrorRecord(new NoSocketError(reason)), wasTaken }
    // A request that we cannot write is not the worker's fault, and one with many calls is well.
    if (failure !== 'request' && failure !== 'full' && failure !== 'local')
      directory.tell({ type: 'suspect', workerId, reason, isUnreachable: failure === 'connect' })
    // An engine that dies takes along whatever it has: the retry budget would save only the first of them.
    const isLoss = (failure === 'reset' || isGivenUp) && this.#tried.isUntaken
    const isCharged = wasAsked && !isLoss && this.#tried.isCharged
    const mayPlaceAgain = wasAsked ? this.#tried.mayTryOther(wasTaken, isCharged) : this.#tried.isFew
    if (wasTaken) this.#tried.taken()
    if (wasTaken) this.#failed(call, reason, false)
    if (!mayPlaceAgain && !isHedging) return this.#giveUp(call, upstreamFailed(decision, reason), wasTaken)
    // Calls without a connection load no worker.
    return { kind: 'placeAgain', why: 'broke', reason, wasTaken, isCharged }
  }

  /** A part of its answer has passed, and no more comes. */
  brokeOff(call: FailedCall, reason: string): Turn {
    this.#failed(call, `broke off its answer: ${reason}`, true, 'cut')
    return { kind: 'goOn', error: upstreamFailed(call.decision, reason) }
  }

  /** Its stream shows that the engine failed. The request may be to blame: another worker shows. */
  failedInStream(call: FailedCall, reason: string): Turn {
    this.#failed(call, reason, false)
    return { kind: 'goOn', error: upstreamFailed(call.decision, reason) }
  }

  /**
   * Its stream begins with an error, or with the end of a request that was given up, while a second worker is
   * being asked.
   */
  beganBadly(call: FailedCall, sawError: boolean): Turn {
    const reason = `${sawError ? 'sent an error' : 'gave up the request'} before its first token`
    this.#failed(call, reason, false)
    this.#tried.taken()
    return { kind: 'placeAgain', why: 'broke', reason, wasTaken: true }
  }

  /** Whether this call gets nothing while other workers answer, and may still be placed elsewhere. */
  isStalled(call: FailedCall, { isStream = false, promptTokens }: RoutingRequest, nowMs: number): boolean {
    if (!call.mayGoOn && !this.#tried.mayTryOther(true)) return false
    const { workerId } = call.decision
    const open = { workerId, isStream, promptTokens, calledMs: call.calledMs }
    return this.#parts.progress.isStalled(open, nowMs)
  }

  stalled(call: FailedCall, nowMs: number): Turn {
    const { worker } = call.decision
    const reason = `nothing came from worker ${worker} for ${Math.round(nowMs - call.calledMs)} ms, while others answered`
    this.#tried.taken()
    this.#failed(call, reason, true)
    if (call.isRest) return this.#giveUp(call, toErrorRecord(new NoAnswerError(worker, reason)), true)
    return { kind: 'placeAgain', why: 'broke', reason, wasTaken: true }
  }

  /** Its worker does not answer any more. */
  isLost({ decision }: FailedCall, heardMs: number, nowMs: number, isPouring: boolean): boolean {
    return this.#parts.progress.isLost(decision.workerId, heardMs, nowMs, isPouring)
  }

  /** How many it takes along is not the choice of their clients: they are placed again beyond the budget. */
  lost(call: FailedCall, silentMs: number): Turn {
    const { decision, isRelaying, isHedging } = call
    const reason = `it sent nothing for ${Math.round(silentMs)} ms and is down, or has left`
    this.#failed(call, reason, true)
    if (isRelaying) return { kind: 'goOn', error: toErrorRecord(new NoAnswerError(decision.worker, reason)) }
    const mayPlaceAgain = this.#tried.mayTryOther(true, false)
    this.#tried.taken()
    if (mayPlaceAgain || isHedging)
      return { kind: 'placeAgain', why: 'broke', reason, wasTaken: true, isCharged: false }
    return this.#giveUp(call, toErrorRecord(new NoAnswerError(decision.worker, reason)), true)
  }

  /** It takes too long. `isSlow`: it is the worker that is slow, and another one may be quicker. */
  tooLong(call: FailedCall, reason: string, isSlow: boolean): Turn {
    this.#failed(call, reason, true)
    if (isSlow && call.isHedging) {
      this.#tried.taken()
      return { kind: 'placeAgain', why: 'broke', reason, wasTaken: true }
    }
    const error = toErrorRecord(new NoAnswerError(call.decision.worker, reason))
    if (!isSlow) return { kind: 'fail', error, wasTaken: true }
    return call.isRelaying ? { kind: 'goOn', error } : this.#giveUp(call, error, true)
  }

  /** The second worker was quicker. The first one's booking is freed: without this it would look idle. */
  overtaken({ decision, model, calledMs }: FailedCall, { decision: second }: HedgeLeg): void {
    const reason = `worker ${second.worker}, asked later, was quicker`
    this.#report({ decision, fault: { kind: 'failed', reason }, calledMs, model })
  }

  /** The second worker has failed. */
  secondFailed({ model, body }: FailedCall, { decision, calledMs }: HedgeLeg, end: HedgeEnd): void {
    const { workerId, usesKey } = decision
    const { directory, deadlyPrompts } = this.#parts
    const { reason, fault, suspect, lacksModel: isWithout, wasTaken } = hedgeVerdict(end, usesKey)
    if (fault !== undefined)
      this.#tried.failedBy({ decision, fault: { kind: fault.kind, reason }, calledMs, model }, fault.isSure)
    if (suspect !== undefined) directory.tell({ type: 'suspect', workerId, ...suspect })
    if (isWithout === true) directory.tell({ type: 'lookAgain', workerId })
    if (end.kind === 'broke' && end.broken.failure === 'reset' && body !== undefined)
      deadlyPrompts.broke(body, workerId, this.#nowMs, this.#nowMs - calledMs)
    if (wasTaken) this.#tried.taken()
    this.#tried.leftBlameless(workerId)
  }

  /** The request is placed again, not at this worker. */
  left(workerId: string): void {
    this.#tried.left(workerId)
  }

  /** The same, without a fault of it. */
  leftBlameless(workerId: string): void {
    this.#tried.leftBlameless(workerId)
  }

  /** Another worker goes on with a stream of which this one has sent a part. */
  leftCut(workerId: string): void {
    this.#tried.leftCut(workerId)
  }

  /** The request is over, at this worker. */
  over(workerId: string | undefined): void {
    this.#tried.over(workerId)
  }

  /** Envoy could not reach the worker, and another one answers. */
  #moved(decision: Decision, servedBy: string, reason: string): Turn {
    const { directory, picked } = this.#parts
    directory.tell({ type: 'suspect', workerId: decision.workerId, reason, isUnreachable: true })
    const pinnedInstanceId = picked?.instanceAt(servedBy)
    if (pinnedInstanceId === undefined)
      return { kind: 'fail', error: upstreamFailed(decision, reason), wasTaken: false }
    return { kind: 'placeAgain', why: 'broke', reason, wasTaken: false, isCharged: false, pinnedInstanceId }
  }

  /** The worker has sent nothing, and no try is left. The tries of continuations are others. */
  #giveUp({ isRest }: FailedCall, error: ErrorRecord, wasTaken: boolean): Turn {
    return { kind: isRest ? 'goOn' : 'fail', error, wasTaken }
  }

  /** Whether a request that is answered so goes to another worker at the cost of the retry budget. */
  #isCharged(call: FailedCall, status: number): boolean {
    const isLoss = isTaking(status) && this.#isLoss(call)
    return this.#tried.isCharged && !(isLoss && this.#tried.isUntaken)
  }

  /** Asked at the head of a refusal and at its end: the call is noted once. */
  #isLoss({ decision, calledMs }: FailedCall): boolean {
    const { id, workerId } = decision
    if (this.#noted?.decisionId !== id || this.#noted.calledMs !== calledMs) {
      const isLoss = this.#parts.badAnswers.note(workerId, calledMs, this.#nowMs)
      this.#noted = { decisionId: id, calledMs, isLoss }
    }
    return this.#noted.isLoss
  }

  #answeredBadly(call: FailedCall, status: number): void {
    this.#failed(call, `answered ${status}`, SHEDDING_STATUSES.has(status))
  }

  /** `isSure`: the request is not to blame. */
  #failed(
    { decision, model, calledMs }: FailedCall,
    reason: string,
    isSure: boolean,
    kind: WorkerFault['kind'] = 'failed',
  ): void {
    this.#tried.failedBy({ decision, fault: { kind, reason }, calledMs, model }, isSure)
  }

  #report({ decision: { workerId, workerJoinedMs }, fault, calledMs, model }: WorkerFailure): void {
    const ageMs = this.#nowMs - calledMs
    this.#parts.placements.workerFailed({
      type: 'workerFailed',
      workerId,
      workerJoinedMs,
      model,
      fault,
      ageMs,
    })
  }

  get #nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}

function upstreamFailed({ worker }: Decision, reason: string): ErrorRecord {
  return toErrorRecord(new UpstreamFailedError(worker, reason))
}
