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
 * Each step has a file of its own: exchange-placing.ts, exchange-calls.ts, exchange-reply.ts (what the client is
 * told). What becomes of a request whose worker fails is worker-failures.ts's: the exchange takes that turn.
 * When a client reads slowly, the exchange pauses the call.
 */

import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/base'
import type { BodyHold } from '@homing/http'
import type { Decision, Delivery } from '@homing/placement'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { NoAnswerError, UpstreamFailedError } from './errors.ts'
import { ExchangeCalls } from './exchange-calls.ts'
import { ExchangeFigures } from './exchange-figures.ts'
import { ExchangeLegs, type LegsEnd } from './exchange-legs.ts'
import type { CommonParts, ReadStep, ReadyRequest } from './exchange-parts.ts'
import { ExchangePlacing } from './exchange-placing.ts'
import { ExchangeReply } from './exchange-reply.ts'
import { ExchangeSlices } from './exchange-slices.ts'
import type { HedgeLeg } from './hedge.ts'
import { leaseOf } from './keyed-exchange.ts'
import { StreamContinuation } from './stream-continuation.ts'
import type { Refusal, WorkerCall } from './worker-call.ts'
import { type FailedCall, type PlaceAgain, type Turn, WorkerFailures } from './worker-failures.ts'

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
  /** For the access log; undefined: this request gets no line. */
  readonly #note: AccessNote | undefined
  readonly #figures: ExchangeFigures
  readonly #slices: ExchangeSlices
  readonly #legs: ExchangeLegs
  readonly #placing: ExchangePlacing
  readonly #calls: ExchangeCalls
  readonly #failures: WorkerFailures
  readonly #continuation: StreamContinuation
  readonly #reply: ExchangeReply
  #state: ExchangeState = 'reading'
  /** The reader (or the tokenizer) may still be reading the body. */
  #isBeingRead = true
  #ready: ReadyRequest | undefined
  /** The call to the current worker was repeated, because a reused connection broke. */
  #hasRetried = false

  constructor(parts: ExchangeParts, http: HttpExchange, route: string, hold: BodyHold, note?: AccessNote) {
    this.route = route
    this.#parts = parts
    this.#http = http
    this.#hold = hold
    this.#note = note
    const figures = new ExchangeFigures(parts, note)
    const slices = new ExchangeSlices(parts)
    const legs = new ExchangeLegs(parts, hold)
    this.#figures = figures
    this.#slices = slices
    this.#legs = legs
    this.#placing = new ExchangePlacing(
      parts,
      { legs, slices, figures },
      {
        is: step => void (this.#state = step),
        waits: () => parts.waits(this),
        sent: () => parts.sent(this),
      },
    )
    this.#failures = new WorkerFailures(parts)
    this.#calls = new ExchangeCalls(parts, hold, figures, {
      mayRefuse: status => this.#calls.isHedging || legs.isLostBy(status) || this.#failures.mayRefuse(status),
      prefilled: (call, isSuccess) => this.#prefilled(call, isSuccess),
      heard: () => parts.progress.sent(this.#decision!.workerId, figures.heard()),
      head: (call, status, headers) => this.#head(call, status, headers),
      data: (call, bytes) => this.#relay(call, bytes),
      ended: call => this.#ended(call),
      refused: (status, refusal) => this.#refused(status, refusal),
      broke: broken => this.#take(this.#failures.broke(this.#failed, broken)),
      secondWins: () => this.#secondWins(),
      secondFailed: (leg, end) => this.#failures.secondFailed(this.#failed, leg, end),
      guard: run => this.#guard(run),
      fault: thrown => this.#fault(thrown),
    })
    this.#continuation = new StreamContinuation(parts.continuations, http, hold)
    this.#reply = new ExchangeReply(parts, http, route, this.#continuation)
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
      const isSilent = !this.#figures.hasFirstToken || this.#state === 'continuing'
      const isWaiting = this.#state !== 'settled' && isSilent
      if (isWaiting && this.#ready?.routing.isStream === true) this.#reply.waits()
    })
  }

  #look(nowMs: number): void {
    this.#slices.look(nowMs)
    this.#legs.look(nowMs)
    this.#calls.look()
    const isContinuing = this.#state === 'continuing'
    if (!isContinuing && this.#state !== 'calling' && this.#state !== 'relaying') return
    const { silenceMsMax, requestMsMax } = this.#parts.limits
    const call = this.#calls.current
    const mayBeSilent = isContinuing || this.#calls.isPaused || call?.isUnseen === true
    // Slices have limits of their own.
    const { attemptMs, decidedMs, heardMs } = this.#figures
    const wholeMs = this.#slices.computed === undefined ? decidedMs : attemptMs
    const { isStream = false, promptTokens } = this.#ready!.routing
    if (!mayBeSilent && nowMs - heardMs >= silenceMsMax)
      this.#take(this.#failures.tooLong(this.#failed, `no byte for ${silenceMsMax} ms`, true))
    else if (
      this.#state === 'calling' &&
      this.#failures.isStalled(this.#failed, { isStream, promptTokens }, nowMs)
    )
      this.#take(this.#failures.stalled(this.#failed, nowMs))
    else if (requestMsMax > 0 && nowMs - wholeMs >= requestMsMax) {
      const reason = `not finished within ${requestMsMax} ms`
      // One whose stream another is to continue has been blamed.
      if (isContinuing) this.#fail(toErrorRecord(new NoAnswerError(this.#decision!.worker, reason)))
      else this.#take(this.#failures.tooLong(this.#failed, reason, false))
    }
    // Engines send an event for each token or for a few tokens, so events stand in for tokens.
    else this.#placing.touch(call?.isStream === true ? call.usage?.eventsCount : undefined)
  }

  // ── Placing ──────────────────────────────────────────────────────────────────────────────────

  /** Never rejects. */
  async #place(): Promise<void> {
    try {
      const isFirst = this.#calls.count === 0
      const end = await this.#placing.run({
        ready: this.#ready!,
        // How many may go on with a stream is bounded.
        body: this.#continuation.isRest ? undefined : this.#givenBody,
        isFirst,
        excludedWorkers: this.#failures.workers,
      })
      if (end.kind === 'call') this.#call()
      else if (end.kind === 'answered') this.#answeredByPrefill(end)
      else if (end.kind === 'sliceLost') {
        this.#leave({ outcome: 'error', error: end.error, wasTaken: false, isPlacedAgain: true })
        this.#slices.forget()
        await this.#place()
      } else {
        const cutBy = end.kind === 'unplaced' ? this.#continuation.notPlaced() : undefined
        if (cutBy !== undefined) this.#fail(cutBy)
        else if (isFirst || end.kind === 'refused') this.#refuse(fromErrorRecord(end.error))
        else this.#fail(end.error)
      }
    } catch (thrown) {
      this.#fault(thrown)
    }
  }

  /** The first token, with which the prompt was to be handed over, is all of the answer. */
  #answeredByPrefill({ decision, answer }: LegsEnd & { readonly kind: 'answered' }): void {
    const { figures, body, ...head } = answer
    this.#legs.served()
    this.#parts.metrics.requests.answered(this.#ready!.routing.model, figures, decision.worker)
    if (this.#ready!.upstream.body !== undefined) this.#parts.deadlyPrompts.served(this.#ready!.upstream.body)
    this.#leave({ outcome: 'ok', wasTaken: true })
    this.#settled()
    this.#reply.whole({ ...head, body: [body], decision })
  }

  // ── Calling ──────────────────────────────────────────────────────────────────────────────────

  #call(): void {
    this.#state = 'calling'
    if (this.#calls.count === 0) this.#parts.sent(this)
    const ready = this.#ready!
    const decision = this.#decision!
    const call = this.#calls.start(decision, this.#legs.upstream(ready.upstream), ready.routing.requestId)
    this.#legs.called(reason => this.#guard(() => this.#prefillBroke(reason)))
    const isWhole = !this.#legs.isHanded && this.#slices.computed === undefined
    if (this.#calls.current === call && isWhole && !this.#continuation.isRest)
      this.#calls.mayBeLate(ready, decision, this.#failures.workers)
  }

  /** The prefill leg has failed while the decode leg waits for it. */
  #prefillBroke(reason: string): void {
    if (this.#state !== 'calling') return
    this.#handoverLost(`no hand-over: ${reason}`)
  }

  /** The request goes on without its hand-over, and its decode worker is not to blame. */
  #handoverLost(reason: string): void {
    const { routing } = this.#ready!
    const error = toErrorRecord(new UpstreamFailedError(this.#decision!.worker, reason))
    this.#parts.metrics.requests.placedAgain(routing.model, 'broke')
    this.#figures.placedAgain()
    this.#hasRetried = false
    this.#slices.forget()
    this.#leave({ outcome: 'error', error, wasTaken: true, isPlacedAgain: true })
    const refused = this.#legs.forget(routing, true)
    if (refused === undefined) void this.#place()
    else this.#refuse(fromErrorRecord(refused))
  }

  /** The second worker has sent its first token first: the first one is left. */
  #secondWins(): void {
    const decision = this.#decision!
    const leg = this.#calls.take(decision.prefillTokens)!
    this.#figures.overtaken(decision)
    this.#failures.overtaken(this.#failed, leg)
    this.#leave({ outcome: 'aborted', wasTaken: true, isPlacedAgain: true, otherLeg: leg.placement.id })
    this.#adopt(leg)
  }

  /** From now on the second worker's call is that of the exchange. */
  #adopt(leg: HedgeLeg): void {
    this.#state = 'calling'
    this.#ready = { ...this.#ready!, upstream: leg.upstream }
    this.#placing.adopt(leg.placement, leg.decision)
    this.#calls.adopt(leg)
    this.#figures.adopted(leg.decision, leg.calledMs)
    this.#hasRetried = false
  }

  #refused(status: number, refusal: Refusal | undefined): void {
    if (this.#legs.isLostBy(status)) {
      this.#parts.retryBudget.placedAgain()
      this.#legs.lostBy(this.#decision!.workerId)
      this.#handoverLost(`answered ${status} to a hand-over`)
      return
    }
    const turn = this.#failures.refused(this.#failed, status, refusal)
    if (refusal !== undefined) this.#reply.keep(refusal)
    this.#take(turn)
  }

  // ── What becomes of a request whose worker failed ────────────────────────────────────────────

  #take(turn: Turn): void {
    if (turn.kind === 'passOn') this.#passOn(turn.refusal)
    else if (turn.kind === 'fail') this.#fail(turn.error, turn.wasTaken)
    else if (turn.kind === 'goOn') this.#goOnOr(turn.error)
    else if (turn.kind === 'placeAgain') this.#placeAgain(turn)
    else {
      this.#hasRetried = true
      this.#calls.end()
      this.#call()
    }
  }

  #placeAgain({ why, reason, wasTaken, isCharged = true, pinnedInstanceId }: PlaceAgain): void {
    if (isCharged && !this.#calls.isHedging) this.#parts.retryBudget.placedAgain()
    const { worker, workerId } = this.#decision!
    const { requestId, model } = this.#ready!.routing
    if (pinnedInstanceId !== undefined) this.#pin(pinnedInstanceId)
    this.#parts.metrics.requests.placedAgain(model, why)
    this.#figures.placedAgain()
    this.#failures.left(workerId)
    this.#hasRetried = false
    const error = toErrorRecord(new UpstreamFailedError(worker, reason))
    const second = this.#calls.take(0)
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

  /** It is there already: it cannot wait for room. */
  #pin(pinnedInstanceId: number): void {
    const ready = this.#ready!
    const routing = { ...ready.routing, pinnedInstanceId, pinnedRank: undefined }
    this.#ready = { ...ready, routing, waiting: undefined }
  }

  /** Has another worker go on with the stream; else ends it with this error. */
  #goOnOr(error: ErrorRecord): void {
    this.#reply.passWhole(this.#calls.current)
    if (!this.#continuation.mayGoOn()) {
      this.#fail(error)
      return
    }
    this.#state = 'continuing'
    this.#calls.abort()
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
        this.#reply.end(step.bytes)
      })
    else if (step.kind === 'place') {
      log.warn({ worker, requestId, reason: error.message }, 'stream is continued elsewhere')
      this.#leave({ outcome: 'error', error, wasTaken: true, isPlacedAgain: true })
      this.#continuation.goesOn(error)
      this.#figures.goesOn()
      this.#failures.leftCut(workerId)
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

  // ── Relaying ─────────────────────────────────────────────────────────────────────────────────

  /**
   * The prefill is over. For a stream that is no error, this is also the time of the first token. The router
   * misses that time if its mailbox is full. What is no success, or not of the kind that was asked for, does
   * not show how fast a worker is; nor does what waited for a prefill elsewhere.
   */
  #prefilled({ isStream }: WorkerCall, isSuccess: boolean): void {
    const { model, isStream: isAsked = false } = this.#ready!.routing
    if (isSuccess) this.#calls.endSecond()
    const teaches = isSuccess && isStream === isAsked && !this.#legs.waitsForPrefill
    this.#placing.prefilled(teaches)
    if (isStream && isSuccess)
      this.#placing.firstToken(this.#figures.firstToken(this.#decision!, model, teaches))
  }

  #head(call: WorkerCall, status: number, headers: HttpHeaders): void {
    const decision = this.#decision!
    const isStream = call.isStream && status < 300
    if (this.#continuation.isRest && !isStream) {
      this.#fail(toErrorRecord(new UpstreamFailedError(decision.worker, `answered ${status}`)))
      return
    }
    if (this.#calls.isHedging && isStream && call.sawError) {
      this.#take(this.#failures.beganWithError(this.#failed))
      return
    }
    this.#calls.endSecond()
    this.#state = 'relaying'
    this.#figures.head()
    this.#failures.answered(this.#failed, status, call.isStream)
    if (status < 400) this.#legs.served(decision.workerId)
    if (this.#continuation.begins(this.#ready!, isStream)) return
    this.#reply.head(status, headers, decision)
  }

  #relay(call: WorkerCall, bytes: Uint8Array): void {
    const found = call.sawError ? this.#continuation.errorIn(bytes) : undefined
    if (found !== undefined) {
      this.#reply.pass(found.before)
      this.#take(this.#failures.sentError(this.#failed, found.message))
      return
    }
    if (this.#reply.relay(bytes, call, this.#decision!) || this.#calls.isPaused) return
    this.#calls.pause()
    this.#http.onDrain(() => {
      this.#figures.heard()
      this.#calls.resume()
    })
  }

  #ended({ status = 0, usage }: WorkerCall): void {
    if (usage?.isDone === false && !usage.sawError && this.#continuation.isUnfinished) {
      this.#take(this.#failures.brokeOff(this.#failed, 'its stream ended without its last event'))
      return
    }
    const failedInside = status >= 400 || usage?.sawError === true
    if (!failedInside) this.#answered()
    this.#leave({ outcome: failedInside ? 'error' : 'ok', wasTaken: true })
    this.#settled()
    this.#reply.end()
  }

  #answered(): void {
    const body = this.#givenBody
    if (body !== undefined) this.#parts.deadlyPrompts.served(body)
    const usage = this.#continuation.wholeUsage(this.#calls.current!.usage)
    const decision = this.#decision!
    this.#slices.answered(usage?.cachedTokens, decision)
    const sliceTokens = this.#slices.tokensAt(decision.workerId)
    this.#figures.answered(this.#ready!.routing.model, decision.worker, usage, sliceTokens)
  }

  // ── The end ──────────────────────────────────────────────────────────────────────────────────

  /** Refuses a request that was sent to no worker. */
  #refuse(given: unknown): void {
    const thrown = this.#reply.told(given)
    this.#leave({ outcome: 'error', error: toErrorRecord(thrown), wasTaken: false })
    this.#settled()
    this.#reply.refuse(thrown)
  }

  /** Ends a request that no worker served. */
  #fail(error: ErrorRecord, wasTaken = this.#state !== 'placing'): void {
    const hasBegun = this.#state === 'relaying' || this.#state === 'continuing' || this.#continuation.isRest
    const decision = this.#decision
    this.#reply.passWhole(this.#calls.current)
    this.#leave({ outcome: 'error', error, wasTaken })
    this.#settled()
    this.#reply.fail(error, hasBegun, decision)
  }

  /** A refusal that another worker would answer in the same way is the client's answer. */
  #passOn(refusal: Refusal): void {
    const { decision, status } = refusal
    if (this.#continuation.isRest) {
      this.#fail(toErrorRecord(new UpstreamFailedError(decision.worker, `answered ${status}`)))
      return
    }
    this.#leave({ outcome: 'error', wasTaken: false })
    this.#settled()
    this.#reply.whole(refusal)
  }

  #clientGone(): void {
    if (this.#state === 'settled') return
    this.#parts.metrics.clientGone(this.route)
    this.#leave({ outcome: 'aborted', wasTaken: this.#state !== 'placing' })
    this.#settled()
  }

  /** The only place where a placement ends: ends its call, frees its booking, completes its receipt. */
  #leave({ outcome, error, wasTaken, isPlacedAgain = false, otherLeg }: Outcome): void {
    const call = this.#calls.current
    this.#calls.endSecond()
    const usage = call?.usage
    const placement = this.#placing.leave(outcome === 'ok')
    const whole = this.#continuation.wholeUsage(usage)
    this.#note?.left({ outcome, error, usage: whole, isStream: call?.isStream })
    this.#charge(usage?.completionTokens ?? (call?.isStream === true ? (usage?.eventsCount ?? 0) : 0))
    const sliceTokens = this.#slices.tokensAt(this.#decision?.workerId)
    const elsewhereMs = this.#legs.tookMs
    const delivery = this.#figures.delivery({ outcome, error, otherLeg, call, sliceTokens, elsewhereMs })
    this.#calls.end()
    placement?.settle(delivery, wasTaken, isPlacedAgain)
  }

  /** Tokens that the request has taken count against its client. */
  #charge(tokens: number): void {
    if (tokens > 0) leaseOf(this.#http)?.charge(tokens, this.#parts.context.clock.nowMs())
  }

  #settled(): void {
    this.#state = 'settled'
    this.#slices.prefilled()
    this.#continuation.close()
    this.#failures.over(this.#decision?.workerId)
    if (!this.#isBeingRead) this.#release()
  }

  #release(): void {
    this.#calls.release(this.#ready?.upstream.body)
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

  get #decision(): Decision | undefined {
    return this.#placing.decision
  }

  /** The body as the client sent it, whatever the current worker got. */
  get #givenBody(): Uint8Array | undefined {
    return (this.#continuation.given ?? this.#ready!).upstream.body
  }

  /** The current call, as one that fails now. */
  get #failed(): FailedCall {
    return {
      decision: this.#decision!,
      model: this.#ready!.routing.model,
      calledMs: this.#figures.attemptMs,
      body: this.#givenBody,
      isRelaying: this.#state === 'relaying',
      mayCallAgain: !this.#hasRetried,
      isHedging: this.#calls.isHedging,
    }
  }
}
