/**
 * Exchange: one client request, from its first byte to the last byte of its answer. It owns everything that
 * the request holds: its body, its placement, its call to a worker, its answer. Only the exchange places,
 * retries or settles its request.
 *
 *   state      waits for                     goes on to
 *   reading    the body and its parsing      placing; settled (refused, or answered without a worker)
 *   placing    room in the queue, and the    calling; slicing; prefilling; settled (refused)
 *              router's decision
 *   prefilling a prefill worker, if prefill   placing; settled (refused, or answered by the first token)
 *              and decode are apart
 *   slicing    all of a long prompt but the  placing; settled (refused)
 *              rest to be computed
 *   calling    the first byte to relay       relaying; calling again (a reused connection broke, or a second
 *                                            worker's first token came first, hedge.ts); settled; placing
 *                                            (the worker failed or refused, and tries are left)
 *   relaying   bytes from the worker, and    settled; continuing (its worker is gone, and what the client
 *              room at the client            has of a stream tells how to go on)
 *   continuing the ids of what there is      placing; settled (no worker can go on with it)
 *   settled    nothing
 *   any        -                             settled: the client leaves, a time limit passes, the gateway
 *                                            ends, or the exchange has a bug
 *
 * Invariants
 *   I1  Each placement is settled exactly once, by `#leave`, before the exchange asks for the next one. The
 *       hedge settles that of a second worker, until the exchange takes it.
 *   I2  A client that is still connected gets exactly one answer: the worker's, or an error in OpenAI's form.
 *       A stream that several workers had a part in has one head, one end, and no token twice.
 *   I3  A settled exchange ignores everything: late results belong to a call or placement that it has left.
 *   I4  An exception in an exchange ends that exchange and touches no other.
 *   I5  The bytes of its body count against the bound of all bodies until the exchange is settled and its
 *       request reader is done. If the tokenizer is late, the reader counts the bytes until it answers.
 *   I6  In shared memory they are no other body's until exchange, reader and every call have given them back.
 *
 * A worker that answers with a failing status before any output, or breaks, has failed the request. The
 * exchange tries others, as tried-workers.ts allows, and keeps that answer for the client, in case none
 * serves the request. A worker whose connection has as many calls as it takes is left for another, and not
 * blamed. If this machine has no socket for the call, no worker is blamed and no other is tried.
 * When a client reads slowly, the exchange pauses the call.
 */

import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/base'
import type { BodyHold } from '@homing/http'
import { type Decision, type Delivery, reusedTokens, type WorkerFault } from '@homing/placement'
import { giveUpBytes, type HttpExchange, type HttpHeaders } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { ClientAnswer } from './client-answer.ts'
import { DeadlyPromptError, NoAnswerError, NoSocketError, UpstreamFailedError } from './errors.ts'
import { ExchangeLegs } from './exchange-legs.ts'
import type { CommonParts, ReadStep, ReadyRequest } from './exchange-parts.ts'
import { ExchangeSlices } from './exchange-slices.ts'
import { FirstTokenHedge, type HedgeLeg } from './hedge.ts'
import { type HedgeEnd, hedgeVerdict } from './hedge-verdict.ts'
import { hiddenModelError, leaseOf } from './keyed-exchange.ts'
import type { Placement } from './placement.ts'
import type { Stage } from './request-metrics.ts'
import { StreamContinuation } from './stream-continuation.ts'
import { TriedWorkers, type WorkerFailure } from './tried-workers.ts'
import { type BrokenCall, type Refusal, WorkerCall } from './worker-call.ts'
import { FAILING_STATUSES, isTaking, lacksModel, SHEDDING_STATUSES } from './worker-statuses.ts'

export interface ExchangeParts extends CommonParts {
  /** Called when the exchange asks for its first placement: it has been read. */
  readonly waits: (exchange: Exchange) => void
  /** Called when the exchange calls its first worker. */
  readonly sent: (exchange: Exchange) => void
  /** Called when the exchange is settled and holds nothing any more. */
  readonly ended: (exchange: Exchange) => void
}

export type ExchangeState =
  | 'reading'
  | 'placing'
  | 'prefilling'
  | 'slicing'
  | 'calling'
  | 'relaying'
  | 'continuing'
  | 'settled'

/**
 * Errors that the client gets in place of a worker's earlier refusal, because another worker may have run the
 * request since.
 */
const OWN_WORDS: ReadonlySet<string> = new Set(['HOMING_DISPATCH_NO_ANSWER', 'HOMING_GATEWAY_RESTARTED'])

const DEADLINE = 'HOMING_QUEUE_DEADLINE'
const MODEL_NOT_FOUND = 'HOMING_ROUTER_MODEL_NOT_FOUND'
/** How a placement ended. */
interface Outcome {
  readonly outcome: Delivery['outcome']
  readonly error?: ErrorRecord
  /** False: the worker has not worked on the request. */
  readonly wasTaken: boolean
  /** Default: false. */
  readonly isPlacedAgain?: boolean
  /** Id of the decision for a second worker that was quicker; default: there is none. */
  readonly otherLeg?: string | undefined
}

export class Exchange {
  readonly route: string
  readonly #parts: ExchangeParts
  readonly #http: HttpExchange
  readonly #hold: BodyHold
  readonly #answer: ClientAnswer
  /** For the access log; undefined: this request gets no line. */
  readonly #note: AccessNote | undefined
  #state: ExchangeState = 'reading'
  /** The reader (or the tokenizer) may still be reading the body. */
  #isBeingRead = true
  /** A call that is over may still read the body. */
  #isBodyLent = false
  #ready: ReadyRequest | undefined
  #placement: Placement | undefined
  #decision: Decision | undefined
  #call: WorkerCall | undefined
  readonly #slices: ExchangeSlices
  readonly #legs: ExchangeLegs
  readonly #continuation: StreamContinuation
  readonly #hedge: FirstTokenHedge
  /** The answer is a second worker's, which was called later than the first. */
  #isHedged = false
  #attempts = 0
  readonly #tried: TriedWorkers
  /** Start of the current call. */
  #attemptMs = 0
  /** The call to the current worker was repeated, because a reused connection broke. */
  #hasRetried = false
  #refusal: Refusal | undefined
  readonly #arrivedMs: number
  /** Time of the first call. */
  #calledMs: number | undefined
  #firstByteMs: number | undefined
  /** First token of a stream from the current worker. */
  #firstTokenMs: number | undefined
  #lastByteMs = 0
  #isPaused = false
  /** Nothing is left to note: the answer's response id was noted, or the route has none. */
  #isResponseNoted: boolean

  constructor(parts: ExchangeParts, http: HttpExchange, route: string, hold: BodyHold, note?: AccessNote) {
    const { context, metrics } = parts
    this.route = route
    this.#isResponseNoted = route !== 'responses'
    this.#parts = parts
    this.#slices = new ExchangeSlices(parts)
    this.#legs = new ExchangeLegs(parts, hold)
    this.#continuation = new StreamContinuation(parts.continuations, http, hold)
    this.#hedge = new FirstTokenHedge({
      ...parts,
      clock: context.clock,
      touch: decisionId => void parts.tracker.tell({ type: 'touch', decisionId }),
    })
    this.#tried = new TriedWorkers(parts, failure => this.#report(failure))
    this.#http = http
    this.#hold = hold
    this.#note = note
    this.#arrivedMs = context.clock.nowMs()
    this.#answer = new ClientAnswer(http, route, context.clock, metrics, parts.limits.streamKeepAliveMs)
    http.onClientGone(() => this.#clientGone())
  }

  get state(): ExchangeState {
    return this.#state
  }

  /** Reads the request, then places it. */
  async serve(read: ReadStep): Promise<void> {
    const outcome = await read(this.#http, this.#hold, this.#note).then(
      ready => ({ ready }),
      (thrown: unknown) => ({ thrown }),
    )
    this.#isBeingRead = false
    if (this.#state !== 'reading') this.#release()
    else if ('thrown' in outcome) this.#refuse(outcome.thrown)
    else if (outcome.ready === undefined) this.#settled()
    else {
      this.#ready = this.#traced(outcome.ready)
      this.#parts.retryBudget.requested()
      this.#note?.read(outcome.ready.routing, outcome.ready.waiting)
      this.#charge(outcome.ready.routing.promptTokens)
      await this.#place()
    }
  }

  /** With the spans of this request, which its calls go on. */
  #traced(ready: ReadyRequest): ReadyRequest {
    const spans = this.#note?.spans
    return spans === undefined ? ready : { ...ready, upstream: { ...ready.upstream, spans } }
  }

  /** Refuses a request that was sent to no worker: it makes room for others. */
  refuse(error: Error): void {
    this.#guard(() => this.#refuse(error))
  }

  /** Ends the exchange with an error: a limit has passed, or the gateway ends. */
  end(error: ErrorRecord): void {
    this.#guard(() => {
      if (this.#state === 'reading') this.#refuse(fromErrorRecord(error))
      else if (this.#state !== 'settled') this.#fail(error)
    })
  }

  /**
   * Gives up if the request takes too long; otherwise sends the tracker a sign of life. A slow client does
   * not count as silence of the worker.
   */
  look(nowMs: number): void {
    this.#guard(() => {
      this.#look(nowMs)
      const isSilent = this.#firstTokenMs === undefined || this.#state === 'continuing'
      const isWaiting = this.#state !== 'settled' && isSilent
      if (isWaiting && this.#ready?.routing.isStream === true) this.#answer.waits()
    })
  }

  #look(nowMs: number): void {
    this.#slices.look(nowMs)
    this.#legs.look(nowMs)
    this.#hedge.look()
    const isContinuing = this.#state === 'continuing'
    if (!isContinuing && this.#state !== 'calling' && this.#state !== 'relaying') return
    const { silenceMsMax, requestMsMax } = this.#parts.limits
    const mayBeSilent = isContinuing || this.#isPaused || this.#call?.isUnseen === true
    if (!mayBeSilent && nowMs - this.#lastByteMs >= silenceMsMax)
      this.#giveUp(`no byte for ${silenceMsMax} ms`, true)
    else if (this.#isStalled(nowMs)) {
      const { worker } = this.#decision!
      const reason = `nothing came from worker ${worker} for ${Math.round(nowMs - this.#attemptMs)} ms, while others answered`
      this.#tried.taken()
      this.#failed(reason, true)
      this.#placeAgain('broke', reason, true)
    } else if (requestMsMax > 0 && nowMs - this.#wholeMs >= requestMsMax)
      this.#giveUp(`not finished within ${requestMsMax} ms`, false)
    else {
      // Engines send an event for each token or for a few tokens, so events stand in for tokens.
      const outputTokens = this.#call?.isStream === true ? this.#call.usage?.eventsCount : undefined
      this.#parts.tracker.tell({ type: 'touch', decisionId: this.#placement!.id, outputTokens })
    }
  }

  /**
   * When the whole request was first with a worker: after its slices, each of which has limits of its own.
   */
  get #wholeMs(): number {
    return this.#slices.computed === undefined ? this.#calledMs! : this.#attemptMs
  }

  /** Whether the call gets nothing while other workers answer, and may still be placed elsewhere. */
  #isStalled(nowMs: number): boolean {
    if (this.#state !== 'calling' || !this.#tried.mayTryOther(true)) return false
    const { isStream = false, promptTokens } = this.#ready!.routing
    const { workerId } = this.#decision!
    const open = { workerId, isStream, promptTokens, calledMs: this.#attemptMs }
    return this.#parts.progress.isStalled(open, nowMs)
  }

  // ── Placing ──────────────────────────────────────────────────────────────────────────────────

  /** Never rejects. */
  async #place(): Promise<void> {
    this.#state = 'placing'
    try {
      // How many may go on with a stream is bounded.
      const body = this.#continuation.isRest ? undefined : this.#givenBody
      const brokenBy = body && this.#parts.deadlyPrompts.brokenBy(body, this.#nowMs)
      if (brokenBy !== undefined) {
        const error = new DeadlyPromptError(brokenBy)
        if (this.#attempts > 0) this.#fail(toErrorRecord(error))
        else this.#refuse(error)
        return
      }
      if (this.#attempts === 0 && !this.#slices.wereTried) this.#parts.waits(this)
      if (this.#legs.mayBegin(this.#ready!)) {
        await this.#prefill()
        return
      }
      const slice = this.#slices.computed
      const whole = { ...this.#ready!.routing, excludedWorkers: this.#tried.failed, slice }
      const routing = this.#legs.routing(whole)
      const { isHanded } = this.#legs
      const askedMs = this.#nowMs
      const placement = this.#parts.placements.ask(
        routing,
        // What was computed for it waits elsewhere, and not for long.
        isHanded ? undefined : this.#ready!.waiting,
        this.#nowMs - this.#arrivedMs - this.#slices.computingMs - this.#legs.tookMs,
        this.#attempts === 0 && !isHanded && this.#slices.mayBegin(this.#ready!),
      )
      this.#placement = placement
      const answer = await placement.answer
      if (this.#placement !== placement) return
      if ('code' in answer) {
        if (slice !== undefined && answer.code !== DEADLINE) {
          // The worker of its slices is gone.
          this.#leave({ outcome: 'error', error: answer, wasTaken: false, isPlacedAgain: true })
          this.#slices.forget()
          await this.#place()
          return
        }
        const cutBy = this.#continuation.notPlaced()
        if (cutBy !== undefined) this.#fail(cutBy)
        else if (this.#attempts > 0) this.#fail(answer)
        else this.#refuse(fromErrorRecord(answer))
        return
      }
      this.#decision = this.#legs.decision(answer)
      const { metrics } = this.#parts
      metrics.requests.decided(routing, answer, this.#calledMs === undefined)
      this.#note?.decided(answer)
      this.#stage('place', this.#nowMs - askedMs)
      this.#calledMs ??= this.#nowMs
      // The worker of a prompt in slices was chosen, and counted, before them.
      if (slice === undefined) metrics.decided(routing, answer)
      if (placement.isSliced && answer.slice !== undefined) await this.#slice(placement, answer)
      else this.#startCall()
    } catch (thrown) {
      this.#fault(thrown)
    }
  }

  /** Has a prefill worker compute the prompt, then places the request for what is left of it. */
  async #prefill(): Promise<void> {
    this.#state = 'prefilling'
    const end = await this.#legs.run(this.#ready!, this.#nowMs - this.#arrivedMs)
    if (end.kind === 'place') await this.#place()
    else if (end.kind === 'refused') this.#refuse(fromErrorRecord(end.error))
    else {
      const { status, headers, body, figures } = end.answer
      this.#legs.served()
      this.#parts.metrics.requests.answered(this.#ready!.routing.model, figures, end.decision.worker)
      if (this.#ready!.upstream.body !== undefined)
        this.#parts.deadlyPrompts.served(this.#ready!.upstream.body)
      this.#leave({ outcome: 'ok', wasTaken: true })
      this.#settled()
      this.#answer.head(status, headers, end.decision)
      this.#answer.data(body)
      this.#answer.end()
    }
  }

  /** The prefill leg has failed while the decode leg waits for it. */
  #prefillBroke(reason: string): void {
    if (this.#state !== 'calling') return
    const error = toErrorRecord(new UpstreamFailedError(this.#decision!.worker, `no hand-over: ${reason}`))
    this.#handoverLost(error)
  }

  /** The request goes on without its hand-over, and its decode worker is not to blame. */
  #handoverLost(error: ErrorRecord): void {
    const { routing } = this.#ready!
    this.#parts.metrics.requests.placedAgain(routing.model, 'broke')
    this.#firstTokenMs = undefined
    this.#hasRetried = false
    this.#slices.forget()
    this.#leave({ outcome: 'error', error, wasTaken: true, isPlacedAgain: true })
    const refused = this.#legs.forget(routing, true)
    if (refused === undefined) void this.#place()
    else this.#refuse(fromErrorRecord(refused))
  }

  /** Has the worker compute the prompt in slices, then places the request again, for the rest. */
  async #slice(placement: Placement, decision: Decision): Promise<void> {
    this.#state = 'slicing'
    this.#parts.sent(this)
    this.#placement = undefined
    const ready = this.#ready!
    const waitedMs = this.#nowMs - this.#arrivedMs
    const end = await this.#slices.run({ ready, prompt: ready.prompt!, placement, decision, waitedMs })
    if (end.kind === 'refused') this.#refuse(fromErrorRecord(end.error))
    else await this.#place()
  }

  // ── Calling ──────────────────────────────────────────────────────────────────────────────────

  #startCall(): void {
    this.#state = 'calling'
    if (this.#attempts++ === 0) this.#parts.sent(this)
    this.#lastByteMs = this.#nowMs
    this.#attemptMs = this.#nowMs
    const call = this.#newCall(this.#decision!, this.#legs.upstream(this.#ready!.upstream))
    this.#call = call
    call.start()
    this.#legs.called(reason => this.#guard(() => this.#prefillBroke(reason)))
    if (this.#isPaused) call.pause()
    if (this.#call === call) this.#mayBeLate()
  }

  /** A second worker is asked if the first token of this call is late. */
  #mayBeLate(): void {
    const ready = this.#ready!
    const isWhole = !this.#legs.isHanded && this.#slices.computed === undefined
    if (!isWhole || this.#continuation.isRest) return
    this.#hedge.begin({
      ready,
      decision: this.#decision!,
      arrivedMs: this.#arrivedMs,
      excludedWorkers: [...this.#tried.failed, this.#decision!.workerId],
      call: (decision, upstream) => {
        this.#attempts++
        return this.#newCall(decision, upstream)
      },
      drop: call => this.#dropCall(call),
      fault: thrown => this.#fault(thrown),
    })
  }

  #newCall(decision: Decision, upstream: ReadyRequest['upstream']): WorkerCall {
    const { context } = this.#parts
    const { requestId } = this.#ready!.routing
    const target = { decision, requestId, attempt: this.#attempts }
    const startedMs = this.#nowMs
    const call: WorkerCall = new WorkerCall(
      {
        ...this.#parts,
        http: this.#parts.picked?.way(this.#decision!) ?? this.#parts.http,
        clock: context.clock,
        mayRefuse: status =>
          this.#hedge.isCalling || this.#legs.isLostBy(status) || this.#tried.mayTryOther(isTaking(status)),
      },
      upstream,
      target,
      {
        connected: () => this.#stage('connect', this.#nowMs - startedMs),
        prefilled: isSuccess => this.#guard(() => this.#outputCame(call, isSuccess)),
        held: () => this.#heard(call),
        // Of a call that was left, more may come in the same piece: it is dropped.
        head: (status, headers) =>
          this.#ofCall(call, () => this.#head(call, status, headers), {
            kind: 'answered',
            status,
            sawError: call.sawError,
          }),
        data: bytes =>
          this.#ofCall(call, () => {
            this.#heard(call)
            this.#relay(bytes)
          }),
        ended: () => this.#ofCall(call, () => this.#ended()),
        refused: (status, refusal) =>
          this.#ofCall(call, () => this.#refused(status, refusal), { kind: 'refused', status, refusal }),
        broke: broken => this.#ofCall(call, () => this.#broke(broken), { kind: 'broke', broken }),
      },
    )
    return call
  }

  /**
   * Runs what belongs to this call, unless the exchange has left it. `end`: what it means for a second
   * worker that has not won.
   */
  #ofCall(call: WorkerCall, run: () => void, end?: HedgeEnd): void {
    if (this.#call === call) this.#guard(run)
    else if (end !== undefined && this.#hedge.owns(call)) this.#guard(() => this.#hedgeFailed(end))
  }

  // ── A second worker ──────────────────────────────────────────────────────────────────────────

  /** The prefill of this call is over. */
  #outputCame(call: WorkerCall, isSuccess: boolean): void {
    if (this.#hedge.owns(call) && isSuccess && call.isStream) this.#hedgeWins()
    if (this.#call === call) this.#prefilled(call, isSuccess)
  }

  /** The second worker has sent its first token first: the first one is left. */
  #hedgeWins(): void {
    const { prefillTokens } = this.#decision!
    const leg = this.#hedge.take(prefillTokens)!
    this.#parts.firstTokens.came(prefillTokens, this.#nowMs - this.#attemptMs)
    // Its booking is freed: without this a worker that stands still would look idle.
    const fault = {
      kind: 'failed' as const,
      reason: `worker ${leg.decision.worker}, asked later, was quicker`,
    }
    this.#report({ decision: this.#decision!, fault, calledMs: this.#attemptMs })
    this.#leave({
      outcome: 'aborted',
      wasTaken: true,
      isPlacedAgain: true,
      otherLeg: leg.placement.id,
    })
    this.#adopt(leg)
  }

  /** From now on the second worker's call is that of the exchange. */
  #adopt({ placement, decision, call, upstream, calledMs }: HedgeLeg): void {
    this.#state = 'calling'
    this.#ready = { ...this.#ready!, upstream }
    this.#placement = placement
    this.#decision = decision
    this.#call = call
    this.#isHedged = true
    this.#hasRetried = false
    this.#attemptMs = calledMs
    this.#lastByteMs = this.#nowMs
    this.#note?.decided(decision)
  }

  /** The first worker goes on alone. */
  #hedgeFailed(end: HedgeEnd): void {
    const isReused = end.kind === 'broke' && end.broken.reusedConnection
    if (isReused && this.#hedge.redo()) return
    const { decision, calledMs } = this.#hedge.failed()!
    const { workerId, usesKey } = decision
    const { directory, deadlyPrompts } = this.#parts
    const { reason, fault, suspect, lacksModel: isWithout, wasTaken } = hedgeVerdict(end, usesKey)
    if (fault !== undefined)
      this.#tried.failedBy({ decision, fault: { kind: fault.kind, reason }, calledMs }, fault.isSure)
    if (suspect !== undefined) directory.tell({ type: 'suspect', workerId, ...suspect })
    if (isWithout === true) directory.tell({ type: 'lookAgain', workerId })
    const body = this.#givenBody
    if (end.kind === 'broke' && end.broken.failure === 'reset' && body !== undefined)
      deadlyPrompts.broke(body, workerId, this.#nowMs)
    if (wasTaken) this.#tried.taken()
    this.#tried.leftBeside(workerId)
  }

  /** The worker sends bytes of its answer. */
  #heard(call: WorkerCall): void {
    if (this.#call !== call) return
    this.#lastByteMs = this.#nowMs
    this.#parts.progress.sent(this.#decision!.workerId, this.#lastByteMs)
  }

  #head(call: WorkerCall, status: number, headers: HttpHeaders): void {
    const isStream = call.isStream && status < 300
    if (this.#continuation.isRest && !isStream) {
      this.#fail(toErrorRecord(new UpstreamFailedError(this.#decision!.worker, `answered ${status}`)))
      return
    }
    if (this.#hedge.isCalling && isStream && call.sawError) {
      const reason = 'sent an error before its first token'
      this.#failed(reason, false)
      this.#tried.taken()
      this.#placeAgain('broke', reason, true)
      return
    }
    this.#hedge.end()
    this.#state = 'relaying'
    this.#lastByteMs = this.#nowMs
    this.#firstByteMs = this.#lastByteMs - this.#callMs
    this.#stage('call', this.#firstByteMs)
    this.#headCame(status)
    if (this.#continuation.begins(this.#ready!, isStream)) return
    this.#answer.head(status, headers, this.#decision!)
  }

  /**
   * The prefill is over. For a stream that is no error, this is also the time of the first token. The router
   * misses that time if its mailbox is full. What is no success, or not of the kind that was asked for, does
   * not show how fast a worker is; nor does what waited for a prefill elsewhere.
   */
  #prefilled({ isStream }: WorkerCall, isSuccess: boolean): void {
    const { tracker } = this.#parts
    if (isSuccess) this.#hedge.end()
    const isAsAsked = isStream === (this.#ready!.routing.isStream === true)
    const teaches = isSuccess && isAsAsked && !this.#legs.waitsForPrefill
    tracker.tell({ type: 'prefillComplete', decisionId: this.#placement!.id, teaches })
    this.#placement!.prefilled()
    this.#slices.prefilled()
    if (!isStream || !isSuccess) return
    this.#firstTokenMs = this.#nowMs
    if (teaches) this.#parts.firstTokens.came(this.#decision!.prefillTokens, this.#nowMs - this.#attemptMs)
    this.#placement!.firstToken(this.#nowMs - this.#callMs)
    if (this.#continuation.isRest) return
    const elapsedMs = this.#nowMs - this.#arrivedMs
    this.#note?.firstToken(elapsedMs)
    this.#parts.metrics.requests.firstToken(this.#ready!.routing.model, elapsedMs, this.#decision!.worker)
  }

  /** An answer begins, so it is known who failed before: the earlier workers, or the request. */
  #headCame(status: number): void {
    if (status < 400) {
      this.#parts.progress.answered({ isStream: this.#call!.isStream }, this.#nowMs - this.#attemptMs)
      this.#tried.served()
      this.#legs.served(this.#decision!.workerId)
    } else if (FAILING_STATUSES.has(status)) this.#failed(`answered ${status}`, SHEDDING_STATUSES.has(status))
  }

  /** The current worker failed the request. `isSure`: the request is not to blame. */
  #failed(reason: string, isSure: boolean, kind: WorkerFault['kind'] = 'failed'): void {
    const failure = { decision: this.#decision!, fault: { kind, reason }, calledMs: this.#attemptMs }
    this.#tried.failedBy(failure, isSure)
  }

  #report({ decision: { workerId, workerJoinedMs }, fault, calledMs }: WorkerFailure): void {
    const { model } = this.#ready!.routing
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

  #refused(status: number, refusal: Refusal | undefined): void {
    const { worker, workerId, usesKey } = this.#decision!
    if (this.#legs.isLostBy(status)) {
      this.#parts.retryBudget.placedAgain()
      this.#legs.lostBy(workerId)
      this.#handoverLost(toErrorRecord(new UpstreamFailedError(worker, `answered ${status} to a hand-over`)))
      return
    }
    if (status === 404) {
      if (!lacksModel(refusal)) {
        this.#passOn(refusal!)
        return
      }
      this.#failed(`answered 404: it does not serve ${this.#ready!.routing.model}`, true, 'lacksModel')
      this.#parts.directory.tell({ type: 'lookAgain', workerId })
    }
    if (refusal !== undefined) this.#refusal = refusal
    const wasTaken = isTaking(status)
    const mayTryOther = this.#tried.mayTryOther(wasTaken)
    if (FAILING_STATUSES.has(status)) this.#failed(`answered ${status}`, SHEDDING_STATUSES.has(status))
    if (wasTaken) this.#tried.taken()
    if (usesKey && (status === 401 || status === 403)) {
      const reason = `it answered ${status}: it does not accept the key that the router has for it`
      this.#parts.directory.tell({ type: 'suspect', workerId, reason, isUnreachable: false })
    }
    const reason = `worker ${worker} answered ${status}`
    // A second worker may have failed since its head came.
    if (this.#hedge.isCalling || mayTryOther) this.#placeAgain('refused', reason, wasTaken)
    else this.#fail(toErrorRecord(new UpstreamFailedError(worker, `answered ${status}`)), wasTaken)
  }

  #broke({ reason, failure, reusedConnection, servedBy }: BrokenCall): void {
    const { worker, workerId } = this.#decision!
    const { directory } = this.#parts
    if (servedBy !== undefined) {
      this.#moved(servedBy, reason)
      return
    }
    const body = this.#givenBody
    // The worker may have closed an idle connection; only a second break shows whether the worker failed.
    const isIdleClose = reusedConnection && !this.#hasRetried && this.#state !== 'relaying'
    if (failure === 'reset' && !isIdleClose && body !== undefined)
      this.#parts.deadlyPrompts.broke(body, workerId, this.#nowMs)
    if (this.#state === 'relaying') {
      this.#failed(`broke off its answer: ${reason}`, true, 'cut')
      this.#continueOr(toErrorRecord(new UpstreamFailedError(worker, reason)))
      return
    }
    if (isIdleClose) {
      this.#hasRetried = true
      this.#endCall()
      this.#startCall()
      return
    }
    const wasAsked = failure !== 'connect' && failure !== 'full'
    const wasTaken = wasAsked && failure !== 'local' && failure !== 'request'
    if (failure === 'local' && !this.#hedge.isCalling) {
      this.#fail(toErrorRecord(new NoSocketError(reason)), wasTaken)
      return
    }
    // A request that we cannot write is not the worker's fault, and one with many calls is well.
    if (failure !== 'request' && failure !== 'full' && failure !== 'local')
      directory.tell({ type: 'suspect', workerId, reason, isUnreachable: failure === 'connect' })
    const mayPlaceAgain = wasAsked ? this.#tried.mayTryOther(wasTaken) : this.#tried.isFew
    if (wasTaken) this.#tried.taken()
    if (wasTaken) this.#failed(reason, false)
    if (!mayPlaceAgain && !this.#hedge.isCalling)
      this.#fail(toErrorRecord(new UpstreamFailedError(worker, reason)), wasTaken)
    // Calls without a connection load no worker.
    else this.#placeAgain('broke', reason, wasTaken, wasAsked)
  }

  /** Envoy could not reach the worker, and another one answers: the request is placed there. */
  #moved(servedBy: string, reason: string): void {
    const { directory, picked } = this.#parts
    directory.tell({ type: 'suspect', workerId: this.#decision!.workerId, reason, isUnreachable: true })
    const instanceId = picked?.instanceAt(servedBy)
    if (instanceId === undefined) {
      this.#fail(toErrorRecord(new UpstreamFailedError(this.#decision!.worker, reason)), false)
      return
    }
    const ready = this.#ready!
    const routing = { ...ready.routing, pinnedInstanceId: instanceId, pinnedRank: undefined }
    // It is there already: it cannot wait for room.
    this.#ready = { ...ready, routing, waiting: undefined }
    this.#placeAgain('broke', reason, false, false)
  }

  /** `isCharged`: against the retry budget, which has paid for a second worker that is being asked. */
  #placeAgain(kind: 'refused' | 'broke', reason: string, wasTaken: boolean, isCharged = true): void {
    if (isCharged && !this.#hedge.isCalling) this.#parts.retryBudget.placedAgain()
    const { worker, workerId } = this.#decision!
    const { requestId, model } = this.#ready!.routing
    this.#parts.metrics.requests.placedAgain(model, kind)
    this.#firstTokenMs = undefined
    this.#tried.left(workerId)
    this.#hasRetried = false
    const error = toErrorRecord(new UpstreamFailedError(worker, reason))
    const second = this.#hedge.take(0)
    this.#leave({ outcome: 'error', error, wasTaken, isPlacedAgain: true, otherLeg: second?.placement.id })
    if (second !== undefined) {
      this.#adopt(second)
      return
    }
    this.#parts.context.log.warn({ worker, requestId, reason }, 'request is placed again')
    this.#slices.forget()
    const refusedNow = this.#legs.forget(this.#ready!.routing, wasTaken)
    if (refusedNow === undefined) void this.#place()
    else this.#fail(refusedNow)
  }

  // ── Continuing ───────────────────────────────────────────────────────────────────────────────

  /** Has another worker go on with the stream; else ends it with this error. */
  #continueOr(error: ErrorRecord): void {
    // Whole events that were held back are the last that the client gets of this worker.
    this.#passWhole()
    if (!this.#continuation.mayGoOn()) {
      this.#fail(error)
      return
    }
    this.#state = 'continuing'
    this.#call?.abort()
    void this.#continue(error)
  }

  /** `error`: what the client gets if no worker can go on with it. */
  async #continue(error: ErrorRecord): Promise<void> {
    const { id: decisionId, worker, workerId } = this.#decision!
    const { requestId } = this.#ready!.routing
    const { log } = this.#parts.context
    const step = await this.#continuation.next()
    if (this.#state !== 'continuing') return
    if (step.kind === 'end')
      this.#guard(() => {
        this.#leave({ outcome: 'ok', wasTaken: true })
        this.#settled()
        this.#answer.data(step.bytes)
        this.#answer.end()
      })
    else if (step.kind === 'place') {
      log.warn({ worker, requestId, reason: error.message }, 'stream is continued elsewhere')
      this.#leave({ outcome: 'error', error, wasTaken: true, isPlacedAgain: true })
      this.#continuation.goesOn(error)
      this.#tried.leftCut(workerId)
      this.#firstTokenMs = undefined
      this.#firstByteMs = undefined
      this.#hasRetried = false
      this.#slices.forget()
      const refused = this.#legs.forget(this.#ready!.routing, true)
      const { ready, deliveredTokens } = step
      this.#ready = {
        ...this.#traced(ready),
        routing: { ...ready.routing, continues: { decisionId, deliveredTokens } },
      }
      if (refused === undefined) await this.#place()
      else this.#fail(refused)
    } else {
      if (step.kind === 'unread')
        log.warn({ worker, requestId, error: step.error }, 'what is left of a stream cannot be read')
      this.#fail(error)
    }
  }

  /** Whether these bytes have an error of the engine, after which another worker goes on. */
  #endsByError(bytes: Uint8Array): boolean {
    const found = this.#continuation.errorIn(bytes)
    if (found === undefined) return false
    this.#answer.data(this.#continuation.passed(found.before))
    const { worker } = this.#decision!
    const reason = `sent an error: ${found.message}`
    // The request may be to blame: another worker shows.
    this.#failed(reason, false)
    this.#continueOr(toErrorRecord(new UpstreamFailedError(worker, reason)))
    return true
  }

  #passWhole(): void {
    const whole = this.#call?.takeWhole()
    if (whole !== undefined && whole.length > 0) this.#answer.data(this.#continuation.passed(whole))
  }

  /** The body as the client sent it, whatever the current worker got. */
  get #givenBody(): Uint8Array | undefined {
    return (this.#continuation.given ?? this.#ready!).upstream.body
  }

  /** When the part of the answer was asked for that comes now. */
  get #callMs(): number {
    return this.#continuation.isRest || this.#isHedged ? this.#attemptMs : this.#calledMs!
  }

  // ── Relaying ─────────────────────────────────────────────────────────────────────────────────

  #relay(bytes: Uint8Array): void {
    if (this.#call?.sawError === true && this.#endsByError(bytes)) return
    // Noted before the client sees the id, because it may ask for that response at once.
    if (!this.#isResponseNoted) this.#noteResponse()
    if (this.#answer.data(this.#continuation.passed(bytes)) || this.#isPaused) return
    this.#isPaused = true
    this.#call?.pause()
    this.#http.onDrain(() => {
      this.#isPaused = false
      this.#lastByteMs = this.#nowMs
      this.#call?.resume()
    })
  }

  #noteResponse(): void {
    const id = this.#call?.usage?.responseId
    if (id === undefined) return
    this.#isResponseNoted = true
    this.#parts.responses.note(id, this.#decision!, leaseOf(this.#http)?.key.name)
  }

  #ended(): void {
    const { status = 0, usage } = this.#call!
    if (usage?.isDone === false && !usage.sawError && this.#continuation.isUnfinished) {
      const reason = 'its stream ended without its last event'
      this.#failed(`broke off its answer: ${reason}`, true, 'cut')
      this.#continueOr(toErrorRecord(new UpstreamFailedError(this.#decision!.worker, reason)))
      return
    }
    const failedInside = status >= 400 || usage?.sawError === true
    if (!failedInside) this.#answered()
    this.#leave({ outcome: failedInside ? 'error' : 'ok', wasTaken: true })
    this.#settled()
    this.#answer.end()
  }

  #answered(): void {
    const body = this.#givenBody
    if (body !== undefined) this.#parts.deadlyPrompts.served(body)
    const { promptTokens, completionTokens, cachedTokens } =
      this.#continuation.wholeUsage(this.#call!.usage) ?? {}
    this.#slices.answered(cachedTokens, this.#decision!)
    const tokensMs = this.#firstTokenMs === undefined ? undefined : this.#nowMs - this.#firstTokenMs
    const { worker, workerId } = this.#decision!
    const sliceTokens = this.#slices.tokensAt(workerId)
    const reused = reusedTokens({ cachedTokens, sliceTokens })
    const figures = { promptTokens, completionTokens, cachedTokens: reused, tokensMs }
    this.#parts.metrics.requests.answered(this.#ready!.routing.model, figures, worker)
  }

  // ── The end ──────────────────────────────────────────────────────────────────────────────────

  /** Refuses a request that was sent to no worker. */
  #refuse(given: unknown): void {
    const thrown = this.#told(given)
    this.#leave({ outcome: 'error', error: toErrorRecord(thrown), wasTaken: false })
    this.#settled()
    this.#answer.refuse(thrown, this.#parts.context.log)
  }

  /** What the client may know of an error: other models are none of its names. */
  #told(thrown: unknown): unknown {
    if (leaseOf(this.#http)?.key.models === undefined) return thrown
    const { code, details } = toErrorRecord(thrown)
    return code === MODEL_NOT_FOUND ? hiddenModelError(this.#http, String(details['model'])) : thrown
  }

  /**
   * Ends a request that no worker served. If a worker refused it, the client gets that worker's answer, which
   * says more than our error. The client gets our error if an answer has begun, or if another worker may have
   * run the request.
   */
  #fail(error: ErrorRecord, wasTaken = this.#state !== 'placing'): void {
    const isUntouched =
      this.#state !== 'relaying' &&
      this.#state !== 'continuing' &&
      !this.#continuation.isRest &&
      !OWN_WORDS.has(error.code)
    this.#passWhole()
    const decision = this.#decision
    this.#leave({ outcome: 'error', error, wasTaken })
    this.#settled()
    if (this.#http.isClosed) return
    const { lastWords } = this.#continuation
    if (lastWords !== undefined) this.#answer.data(lastWords)
    if (this.#refusal === undefined || !isUntouched) {
      this.#answer.fail(error, decision)
      return
    }
    const { status, headers, body, decision: refusedBy } = this.#refusal
    this.#answer.head(status, headers, refusedBy)
    for (const bytes of body) this.#answer.data(bytes)
    this.#answer.end()
  }

  /** A refusal that another worker would answer in the same way is the client's answer. */
  #passOn({ status, headers, body, decision }: Refusal): void {
    if (this.#continuation.isRest) {
      this.#fail(toErrorRecord(new UpstreamFailedError(decision.worker, `answered ${status}`)))
      return
    }
    this.#leave({ outcome: 'error', wasTaken: false })
    this.#settled()
    if (this.#http.isClosed) return
    this.#answer.head(status, headers, decision)
    for (const bytes of body) this.#answer.data(bytes)
    this.#answer.end()
  }

  /** `mayGoOn`: it is the worker that is slow, and another one may be quicker. */
  #giveUp(reason: string, mayGoOn: boolean): void {
    // One whose stream another is to continue has been blamed.
    if (this.#state !== 'continuing') this.#failed(reason, true)
    if (mayGoOn && this.#hedge.isCalling) {
      this.#tried.taken()
      this.#placeAgain('broke', reason, true)
      return
    }
    const error = toErrorRecord(new NoAnswerError(this.#decision!.worker, reason))
    if (mayGoOn && this.#state === 'relaying') this.#continueOr(error)
    else this.#fail(error)
  }

  #clientGone(): void {
    if (this.#state === 'settled') return
    this.#parts.metrics.clientGone(this.route)
    this.#leave({ outcome: 'aborted', wasTaken: this.#state !== 'placing' })
    this.#settled()
  }

  /** The only place where a placement ends: ends its call, frees its booking, completes its receipt. */
  #leave({ outcome, error, wasTaken, isPlacedAgain = false, otherLeg }: Outcome): void {
    const [placement, call] = [this.#placement, this.#call]
    this.#hedge.end()
    const usage = call?.usage
    this.#placement = undefined
    this.#slices.abort()
    this.#legs.left(outcome === 'ok')
    const whole = this.#continuation.wholeUsage(usage)
    this.#note?.left({ outcome, error, usage: whole, isStream: call?.isStream })
    this.#charge(usage?.completionTokens ?? (call?.isStream === true ? (usage?.eventsCount ?? 0) : 0))
    this.#endCall()
    const nowMs = this.#nowMs
    const calledMs = this.#calledMs === undefined ? nowMs : this.#callMs
    placement?.settle(
      {
        outcome,
        status: call?.status,
        promptTokens: usage?.promptTokens,
        completionTokens: usage?.completionTokens,
        cachedTokens: usage?.cachedTokens,
        sliceTokens: this.#slices.tokensAt(this.#decision?.workerId),
        waitedMs: this.#continuation.isRest
          ? 0
          : (this.#calledMs ?? nowMs) - this.#arrivedMs - this.#legs.tookMs,
        timeToFirstByteMs: this.#firstByteMs,
        durationMs: nowMs - calledMs,
        streamEvents: call?.isStream === true ? usage?.eventsCount : undefined,
        otherLeg,
        error,
      },
      wasTaken,
      isPlacedAgain,
    )
  }

  /** Tokens that the request has taken count against its client. */
  #charge(tokens: number): void {
    if (tokens > 0) leaseOf(this.#http)?.charge(tokens, this.#nowMs)
  }

  #stage(stage: Stage, elapsedMs: number): void {
    this.#parts.metrics.requests.stage(stage, elapsedMs)
    this.#note?.stage(stage, elapsedMs)
  }

  #endCall(): void {
    const call = this.#call
    this.#call = undefined
    if (call !== undefined) this.#dropCall(call)
  }

  #dropCall(call: WorkerCall): void {
    call.abort()
    if (call.giveUpBody()) return
    this.#isBodyLent = true
    const loan = this.#hold.lend()
    if (loan !== undefined) this.#parts.lentBodies.settle(call, () => loan.giveBack())
  }

  #settled(): void {
    this.#state = 'settled'
    this.#slices.prefilled()
    this.#continuation.close()
    this.#tried.over(this.#decision?.workerId)
    if (!this.#isBeingRead) this.#release()
  }

  #release(): void {
    this.#hold.release()
    const body = this.#ready?.upstream.body
    // The reader is done with the body, so only a call may still read it.
    if (body !== undefined && !this.#isBodyLent) giveUpBytes(body)
    this.#ready?.prompt?.giveUp()
    this.#ready = undefined
    this.#parts.ended(this)
  }

  /** Anything thrown in `run` ends this exchange only. */
  #guard(run: () => void): void {
    try {
      run()
    } catch (thrown) {
      this.#fault(thrown)
    }
  }

  /** Handles a bug of ours: it ends this exchange. */
  #fault(thrown: unknown): void {
    const error = toErrorRecord(thrown)
    this.#parts.context.log.error({ path: this.#http.path, state: this.#state, error }, 'exchange failed')
    try {
      if (this.#state !== 'settled') this.#fail(error)
      // The exchange was settled already, and its answer failed.
      else if (!this.#http.isClosed) this.#http.destroy()
    } catch {
      // Writing the answer fails, so the answer is cut: it must not look complete.
      this.#leave({ outcome: 'error', error, wasTaken: true })
      this.#settled()
      this.#http.destroy()
    }
  }

  get #nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}
