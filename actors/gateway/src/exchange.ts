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
 *                                            (the worker failed or refused, and tries are left, or it has
 *                                            drained for too long); continuing (that was to go on with a
 *                                            stream, and others may)
 *   relaying   bytes from the worker, and    settled; continuing (its worker is gone, or has drained for too
 *              room at the client            long, and what the client has of a stream tells how to go on)
 *   continuing the ids of what there is      placing; settled (no worker can go on with it); relaying
 *                                            (likewise, and its worker is well)
 *   settled    nothing
 *   any        -                             settled: the client leaves, a time limit passes, the gateway
 *                                            ends, or the exchange has a bug
 *
 * Invariants
 *   I1  Each placement is settled exactly once, by `leave` (exchange-end.ts), before the exchange asks for
 *       the next one. The hedge settles that of a second worker, until the exchange takes it.
 *   I2  A client that is still connected gets exactly one answer: the worker's, or an error in OpenAI's form.
 *       A stream that several workers had a part in has one head, one end, and no token twice.
 *   I3  A settled exchange ignores everything: late results belong to a call or placement that it has left.
 *   I4  An exception in an exchange ends that exchange and touches no other.
 *   I5  The bytes of its body count against the bound of all bodies until the exchange is settled and its
 *       request reader is done. If the tokenizer is late, the reader counts the bytes until it answers.
 *   I6  In shared memory they are no other body's until exchange, reader and every call have given them back.
 *
 * Here a request walks through its states, if all goes well. What becomes of one whose worker fails is a turn
 * (worker-failures.ts says which, exchange-turns.ts takes it); how it ends is exchange-end.ts. What it is
 * made of, each with its own state, is exchange-steps.ts. When a client reads slowly, the exchange pauses the
 * call.
 */

import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/base'
import type { BodyHold } from '@homing/http'
import type { Decision } from '@homing/placement'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { NoAnswerError, UpstreamFailedError } from './errors.ts'
import { ExchangeEnd } from './exchange-end.ts'
import type { LegsEnd } from './exchange-legs.ts'
import type { CommonParts, ReadStep } from './exchange-parts.ts'
import type { ExchangeState } from './exchange-request.ts'
import { type ArrivedRequest, type ExchangeSteps, newSteps } from './exchange-steps.ts'
import { ExchangeTurns } from './exchange-turns.ts'
import type { WorkerCall } from './worker-call.ts'

export interface ExchangeParts extends CommonParts {
  /** Called when the exchange asks for its first placement: it has been read. */
  readonly waits: (exchange: Exchange) => void
  /** Called when the exchange calls its first worker. */
  readonly sent: (exchange: Exchange) => void
  /** Called when the exchange is settled and holds nothing any more. */
  readonly ended: (exchange: Exchange) => void
}

export class Exchange {
  readonly #parts: ExchangeParts
  readonly #arrived: ArrivedRequest
  readonly #steps: ExchangeSteps
  readonly #end: ExchangeEnd
  readonly #turns: ExchangeTurns

  constructor(parts: ExchangeParts, http: HttpExchange, route: string, hold: BodyHold, note?: AccessNote) {
    this.#parts = parts
    this.#arrived = { http, route, hold, note }
    this.#steps = newSteps(parts, this.#arrived, {
      waits: () => parts.waits(this),
      sent: () => parts.sent(this),
      mayRefuse: status => {
        const { calls, legs, failures } = this.#steps
        if (this.#turns.failed.isRest) return true
        return calls.isHedging || legs.isLostBy(status) || failures.mayRefuse(this.#turns.failed, status)
      },
      prefilled: (call, isSuccess) => this.#prefilled(call, isSuccess),
      heard: () => parts.progress.sent(this.#decision!.workerId, this.#steps.figures.heard()),
      head: (call, status, headers) => this.#head(call, status, headers),
      data: (call, bytes) => this.#data(call, bytes),
      ended: call => this.#ended(call),
      refused: (status, refusal) => this.#turns.refused(status, refusal),
      broke: broken => this.#turns.take(this.#steps.failures.broke(this.#turns.failed, broken)),
      secondWins: () => this.#turns.secondWins(),
      secondFailed: (leg, end) => this.#steps.failures.secondFailed(this.#turns.failed, leg, end),
      guard: run => this.#guard(run),
      fault: thrown => this.#fault(thrown),
    })
    this.#end = new ExchangeEnd(this.#steps, this.#arrived, () => parts.ended(this))
    this.#turns = new ExchangeTurns(parts, this.#steps, this.#end, {
      place: () => this.#place(),
      call: () => this.#call(),
      guard: run => this.#guard(run),
      fault: thrown => this.#fault(thrown),
    })
    http.onClientGone(() => this.#clientGone())
  }

  get route(): string {
    return this.#arrived.route
  }

  get state(): ExchangeState {
    return this.#steps.request.state
  }

  /** Id of the worker that has it, or had it last; undefined: none. */
  get workerId(): string | undefined {
    return this.#decision?.workerId
  }

  /** Reads the request, then places it. */
  async serve(read: ReadStep): Promise<void> {
    const { http, hold, note } = this.#arrived
    const { request } = this.#steps
    const outcome = await read(http, hold, note).then(
      ready => ({ ready }),
      (thrown: unknown) => ({ thrown }),
    )
    this.#end.wasRead()
    if (request.isSettled) return
    if ('thrown' in outcome) this.#end.refuse(outcome.thrown)
    else if (outcome.ready === undefined) this.#end.servedHere()
    else {
      const { routing, waiting } = outcome.ready
      request.read(outcome.ready)
      this.#parts.retryBudget.requested()
      note?.read(routing, waiting)
      this.#end.charge(routing.promptTokens)
      await this.#place()
    }
  }

  /** Refuses a request that was sent to no worker: it makes room for others. */
  refuse(error: Error): void {
    this.#guard(() => this.#end.refuse(error))
  }

  /** Ends the exchange with an error: a limit has passed, or the gateway ends. */
  end(error: ErrorRecord): void {
    this.#guard(() => {
      if (this.state === 'reading') this.#end.refuse(fromErrorRecord(error))
      else if (this.state !== 'settled') this.#end.fail(error)
    })
  }

  /**
   * Gives up if the request takes too long; otherwise sends the tracker a sign of life. A slow client does
   * not count as silence of the worker.
   */
  look(nowMs: number): void {
    this.#guard(() => {
      const { slices, legs, calls, figures, request, reply } = this.#steps
      slices.look(nowMs)
      legs.look(nowMs)
      calls.look()
      const { state } = this
      if (state === 'calling' || state === 'relaying' || state === 'continuing') this.#lookAtCall(nowMs)
      if (request.isSettled || !request.isStream) return
      if (!figures.hasFirstToken || request.state === 'continuing') reply.waits()
    })
  }

  /**
   * Its worker has drained for as long as it may. `serves`: whether others serve a model. Ends when others
   * have been asked, and never rejects; undefined: they are not asked now.
   */
  leaveOverdue(serves: (model: string) => boolean): Promise<void> | undefined {
    let offered: Promise<void> | undefined
    this.#guard(() => {
      const { state } = this
      if ((state !== 'relaying' && state !== 'calling') || this.#parts.picked !== undefined) return
      if (!serves(this.#steps.request.ready.routing.model)) return
      offered = this.#turns.move('its drain took too long')
    })
    return offered
  }

  #lookAtCall(nowMs: number): void {
    const { calls, slices, figures, failures, placing, request } = this.#steps
    const { silenceMsMax, requestMsMax } = this.#parts.limits
    const call = calls.current
    const isContinuing = request.state === 'continuing'
    const mayBeSilent = isContinuing || calls.isPaused || call?.isUnseen === true
    const failed = this.#turns.failed
    const isPouring = request.state === 'relaying' && call?.isStream === true
    // Slices have limits of their own.
    const wholeMs = nowMs - (slices.computed === undefined ? figures.decidedMs : figures.attemptMs)
    if (!mayBeSilent && nowMs - figures.heardMs >= silenceMsMax)
      this.#turns.take(failures.tooLong(failed, `no byte for ${silenceMsMax} ms`, true))
    else if (!mayBeSilent && failures.isLost(failed, figures.heardMs, nowMs, isPouring))
      this.#turns.take(failures.lost(failed, nowMs - figures.heardMs))
    else if (request.state === 'calling' && failures.isStalled(failed, request.ready.routing, nowMs))
      this.#turns.take(failures.stalled(failed, nowMs))
    else if (requestMsMax > 0 && wholeMs >= requestMsMax) {
      const reason = `not finished within ${requestMsMax} ms`
      // One whose stream another is to continue has been blamed.
      if (isContinuing) this.#end.fail(toErrorRecord(new NoAnswerError(failed.decision.worker, reason)))
      else this.#turns.take(failures.tooLong(failed, reason, false))
    }
    // Engines send an event for each token or for a few tokens, so events stand in for tokens.
    else placing.touch(call?.isStream === true ? call.usage?.eventsCount : undefined)
  }

  // ── Placing ──────────────────────────────────────────────────────────────────────────────────

  /** Never rejects. */
  async #place(): Promise<void> {
    const { placing, request, calls, failures, slices, continuation } = this.#steps
    try {
      const isFirst = calls.count === 0
      const end = await placing.run({
        // How many may go on with a stream is bounded.
        body: continuation.isRest ? undefined : request.givenBody,
        isFirst,
        excludedWorkers: failures.workers,
      })
      // It may have been settled since its placing ended, which is some microtasks ago.
      if (end.kind === 'left' || request.isSettled) return
      if (end.kind === 'call') this.#call()
      else if (end.kind === 'answered') this.#answeredByPrefill(end)
      else if (end.kind === 'sliceLost') {
        this.#end.leave({ outcome: 'error', error: end.error, wasTaken: false, isPlacedAgain: true })
        slices.forget()
        await this.#place()
      } else {
        const cutBy = end.kind === 'unplaced' ? continuation.notPlaced() : undefined
        if (cutBy !== undefined) this.#end.fail(cutBy)
        else if (isFirst || end.kind === 'refused') this.#end.refuse(fromErrorRecord(end.error))
        else this.#end.fail(this.#turns.unplaced(end.error))
      }
    } catch (thrown) {
      this.#fault(thrown)
    }
  }

  /** The first token, with which the prompt was to be handed over, is all of the answer. */
  #answeredByPrefill({ decision, answer }: LegsEnd & { readonly kind: 'answered' }): void {
    const { request, legs } = this.#steps
    const { metrics, deadlyPrompts } = this.#parts
    const { routing, upstream } = request.ready
    const { figures, body, ...head } = answer
    legs.served()
    metrics.requests.answered(routing.model, figures, decision.worker)
    if (upstream.body !== undefined) deadlyPrompts.served(upstream.body)
    this.#end.servedWhole({ ...head, body: [body], decision })
  }

  // ── Calling ──────────────────────────────────────────────────────────────────────────────────

  #call(): void {
    const { calls, legs, slices, continuation, failures, request } = this.#steps
    request.goesTo('calling')
    if (calls.count === 0) this.#parts.sent(this)
    const { ready } = request
    const decision = this.#decision!
    const call = calls.start(decision, legs.upstream(ready.upstream), ready.routing.requestId)
    legs.called(reason => this.#guard(() => this.#turns.prefillBroke(reason)))
    const isWhole = !legs.isHanded && slices.computed === undefined && !continuation.isRest
    if (calls.current === call && isWhole) calls.mayBeLate(ready, decision, failures.workers)
  }

  // ── Relaying ─────────────────────────────────────────────────────────────────────────────────

  /**
   * The prefill is over. For a stream that is no error, this is also the time of the first token. The router
   * misses that time if its mailbox is full. What is no success, or not of the kind that was asked for, does
   * not show how fast a worker is; nor does what waited for a prefill elsewhere.
   */
  #prefilled({ isStream }: WorkerCall, isSuccess: boolean): void {
    const { request, calls, legs, placing, figures } = this.#steps
    const { model, isStream: isAsked = false } = request.ready.routing
    if (isSuccess) calls.endSecond()
    const teaches = isSuccess && isStream === isAsked && !legs.waitsForPrefill
    placing.prefilled(teaches)
    if (isStream && isSuccess) placing.firstToken(figures.firstToken(this.#decision!, model, teaches))
  }

  #head(call: WorkerCall, status: number, headers: HttpHeaders): void {
    const { request, calls, legs, continuation, figures, failures, reply } = this.#steps
    const decision = this.#decision!
    const isStream = call.isStream && status < 300
    if (continuation.isRest && !isStream) {
      this.#end.fail(toErrorRecord(new UpstreamFailedError(decision.worker, `answered ${status}`)))
      return
    }
    if (calls.isHedging && isStream && call.beganBadly) {
      this.#turns.take(failures.beganBadly(this.#turns.failed, call.sawError))
      return
    }
    calls.endSecond()
    request.goesTo('relaying')
    figures.head()
    failures.answered(this.#turns.failed, status, call.isStream)
    if (status < 400) legs.served(decision.workerId)
    if (!continuation.begins(request.ready, isStream)) reply.head(status, headers, decision)
  }

  /** Guarded without a closure: it is called for each chunk of a stream. */
  #data(call: WorkerCall, bytes: Uint8Array): void {
    try {
      this.#parts.progress.sent(this.#decision!.workerId, this.#steps.figures.heard())
      this.#relay(call, bytes)
    } catch (thrown) {
      this.#fault(thrown)
    }
  }

  #relay(call: WorkerCall, bytes: Uint8Array): void {
    const { calls, continuation, figures, failures, reply } = this.#steps
    const mayFail = call.sawError || call.sawChoiceEnd
    const found = mayFail ? continuation.failureIn(bytes, call.sawError) : undefined
    if (found !== undefined) {
      reply.pass(found.before)
      this.#turns.take(failures.failedInStream(this.#turns.failed, found.reason))
      return
    }
    if (reply.relay(bytes, call, this.#decision!) || calls.isPaused) return
    calls.pause()
    this.#arrived.http.onDrain(() => {
      figures.heard()
      calls.resume()
    })
  }

  #ended({ status = 0, usage }: WorkerCall): void {
    const { request, continuation, slices, figures, failures } = this.#steps
    if (usage?.isDone === false && !usage.sawError && continuation.isUnfinished) {
      this.#turns.take(failures.brokeOff(this.#turns.failed, 'its stream ended without its last event'))
      return
    }
    const isSuccess = status < 400 && usage?.sawError !== true
    if (isSuccess) {
      const decision = this.#decision!
      const whole = continuation.wholeUsage(usage)
      if (request.givenBody !== undefined) this.#parts.deadlyPrompts.served(request.givenBody)
      slices.answered(whole?.cachedTokens, decision)
      const sliceTokens = slices.tokensAt(decision.workerId)
      figures.answered(request.ready.routing.model, decision.worker, whole, sliceTokens)
    }
    this.#end.served(isSuccess)
  }

  // ── The end ──────────────────────────────────────────────────────────────────────────────────

  #clientGone(): void {
    if (this.state === 'settled') return
    this.#parts.metrics.clientGone(this.route)
    this.#end.gone()
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
    const { http } = this.#arrived
    const error = toErrorRecord(thrown)
    this.#parts.context.log.error({ path: http.path, state: this.state, error }, 'exchange failed')
    try {
      if (this.state !== 'settled') this.#end.fail(error)
      // The exchange was settled already, and its answer failed.
      else if (!http.isClosed) http.destroy()
    } catch {
      this.#end.cut(error)
    }
  }

  get #decision(): Decision | undefined {
    return this.#steps.placing.decision
  }
}
