/**
 * Exchange calls: the calls to workers of one exchange. One is current, which the exchange goes by. While its
 * first token is late, a second worker may be asked besides (hedge.ts); that call is the hedge's, until its
 * first token comes first and `take` makes it the current one.
 *
 *   none ──start──▶ current ──▶ none: it has ended, or was left (`end`)
 *                    │  ▲ └────▶ current: the same worker once more, because an idle connection broke
 *                    ▼  └──────── the second worker's, where the first one is left (`take`, `adopt`)
 *                   late: a second worker is asked
 *
 * Invariants
 *   I1  Only the current call is reported as such. Of the second one comes what decides whether it wins.
 *   I2  What a call reports after it was left is dropped, also what comes in the same piece.
 *   I3  A body that a connection may still read is lent until that is over; only then is its memory
 *       another's.
 */

import type { BodyHold } from '@homing/http'
import type { Decision } from '@homing/placement'
import { giveUpBytes, type HttpHeaders } from '@homing/transport'
import type { ExchangeFigures } from './exchange-figures.ts'
import type { CommonParts, ReadyRequest } from './exchange-parts.ts'
import { FirstTokenHedge, type HedgeLeg } from './hedge.ts'
import type { HedgeEnd } from './hedge-verdict.ts'
import { type BrokenCall, type Refusal, type UpstreamRequest, WorkerCall } from './worker-call.ts'

/** Hears what the current call brings, and what becomes of a second one. */
export interface CallsOwner {
  /** Whether another worker may have the request if this one answers with that status. */
  mayRefuse(status: number): boolean
  /** The prefill of this call is over. */
  prefilled(call: WorkerCall, isSuccess: boolean): void
  /** The worker sends bytes of an answer that is held back. */
  heard(): void
  head(call: WorkerCall, status: number, headers: HttpHeaders): void
  /** Guards itself. */
  data(call: WorkerCall, bytes: Uint8Array): void
  ended(call: WorkerCall): void
  refused(status: number, refusal: Refusal | undefined): void
  broke(broken: BrokenCall): void
  /** The second worker has sent its first token first: the first one is to be left. */
  secondWins(): void
  /** The second worker has failed: the first one goes on alone. */
  secondFailed(leg: HedgeLeg, end: HedgeEnd): void
  /** Runs a step; what it throws ends the exchange. */
  guard(run: () => void): void
  /** Handles a bug of ours. */
  fault(thrown: unknown): void
}

export class ExchangeCalls {
  readonly #parts: CommonParts
  readonly #hold: BodyHold
  readonly #figures: ExchangeFigures
  readonly #owner: CallsOwner
  readonly #hedge: FirstTokenHedge
  #current: WorkerCall | undefined
  #count = 0
  /** The call to the current worker was repeated, because a reused connection broke. */
  #isRepeated = false
  /** The client reads slowly. */
  #isPaused = false
  /** A call that is over may still read the body. */
  #isBodyLent = false
  /** What the current call has reported since `holdBack`; undefined: it is reported at once. */
  #heldBack: (() => void)[] | undefined

  constructor(parts: CommonParts, hold: BodyHold, figures: ExchangeFigures, owner: CallsOwner) {
    const { context, tracker } = parts
    this.#parts = parts
    this.#hold = hold
    this.#figures = figures
    this.#owner = owner
    this.#hedge = new FirstTokenHedge({
      ...parts,
      clock: context.clock,
      touch: decisionId => void tracker.tell({ type: 'touch', decisionId }),
    })
  }

  get current(): WorkerCall | undefined {
    return this.#current
  }

  /** Calls that were begun. */
  get count(): number {
    return this.#count
  }

  get isRepeated(): boolean {
    return this.#isRepeated
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** A second worker is being asked. */
  get isHedging(): boolean {
    return this.#hedge.isCalling
  }

  /** Calls the worker of this decision. It may fail at once. */
  start(decision: Decision, upstream: UpstreamRequest, requestId: string): WorkerCall {
    this.#figures.called()
    const call = this.#newCall(decision, upstream, requestId)
    this.#current = call
    call.start()
    if (this.#isPaused) call.pause()
    return call
  }

  /** A second worker is asked if the first token of the current call is late. */
  mayBeLate(ready: ReadyRequest, decision: Decision, failedWorkers: readonly string[]): void {
    const { requestId } = ready.routing
    this.#hedge.begin({
      ready,
      decision,
      arrivedMs: this.#figures.arrivedMs,
      excludedWorkers: [...failedWorkers, decision.workerId],
      call: (other, upstream) => this.#newCall(other, upstream, requestId),
      drop: call => this.#drop(call),
      fault: thrown => this.#owner.fault(thrown),
    })
  }

  /**
   * The second worker's part, which is the exchange's from now on; undefined: there is none. `twiceTokens`:
   * the first worker computed them in vain.
   */
  take(twiceTokens: number): HedgeLeg | undefined {
    return this.#hedge.take(twiceTokens)
  }

  /** The call of a part that was taken is the current one. */
  adopt({ call }: HedgeLeg): void {
    this.#current = call
  }

  /** No second worker is wanted any more. */
  endSecond(): void {
    this.#hedge.end()
  }

  /** A sign of life of the second worker's booking. */
  look(): void {
    this.#hedge.look()
  }

  pause(): void {
    this.#isPaused = true
    this.#current?.pause()
  }

  resume(): void {
    this.#isPaused = false
    if (this.#heldBack === undefined) this.#current?.resume()
  }

  /** Pauses the current call. What it reports all the same waits for `letGo`, or is dropped with the call. */
  holdBack(): void {
    this.#heldBack = []
    this.#current?.pause()
  }

  letGo(): void {
    const [call, held] = [this.#current, this.#heldBack ?? []]
    this.#heldBack = undefined
    for (const run of held) if (this.#current === call) this.#owner.guard(run)
    if (this.#current === call && !this.#isPaused) call?.resume()
  }

  /** Nothing more of the current call is reported. */
  abort(): void {
    this.#current?.abort()
  }

  /** Leaves the current call and its worker. */
  end(): void {
    this.#leaveCurrent()
    this.#isRepeated = false
  }

  /** Leaves the current call: the same worker is called once more. */
  repeat(): void {
    this.#leaveCurrent()
    this.#isRepeated = true
  }

  /** The exchange is settled, and its reader is done with the body: only a call may still read it. */
  release(body: Uint8Array | undefined): void {
    this.#hold.release()
    if (body !== undefined && !this.#isBodyLent) giveUpBytes(body)
  }

  #leaveCurrent(): void {
    const call = this.#current
    this.#current = undefined
    this.#heldBack = undefined
    if (call !== undefined) this.#drop(call)
  }

  #newCall(decision: Decision, upstream: UpstreamRequest, requestId: string): WorkerCall {
    const owner = this.#owner
    const { context, picked, http } = this.#parts
    this.#count++
    const startedMs = context.clock.nowMs()
    const call: WorkerCall = new WorkerCall(
      {
        ...this.#parts,
        http: picked?.way(decision) ?? http,
        clock: context.clock,
        mayRefuse: status => owner.mayRefuse(status),
      },
      upstream,
      { decision, requestId, attempt: this.#count },
      {
        connected: () => this.#figures.stage('connect', context.clock.nowMs() - startedMs),
        prefilled: isSuccess => owner.guard(() => this.#prefilled(call, isSuccess)),
        held: () => this.#current === call && owner.heard(),
        head: (status, headers) =>
          this.#of(call, () => owner.head(call, status, headers), {
            kind: 'answered',
            status,
            beganBadly: call.beganBadly,
          }),
        data: given => {
          if (this.#current !== call) return
          if (this.#heldBack === undefined) {
            owner.data(call, given)
            return
          }
          // What waits must not change.
          const bytes = Uint8Array.from(given)
          this.#heldBack.push(() => owner.data(call, bytes))
        },
        ended: () => this.#of(call, () => owner.ended(call)),
        refused: (status, refusal) =>
          this.#of(call, () => owner.refused(status, refusal), { kind: 'refused', status, refusal }),
        broke: broken => this.#of(call, () => owner.broke(broken), { kind: 'broke', broken }),
      },
    )
    return call
  }

  /**
   * Runs what belongs to the current call. `end`: what it means for a second worker that has not won. Of a
   * call that was left, more may come in the same piece: it is dropped.
   */
  #of(call: WorkerCall, run: () => void, end?: HedgeEnd): void {
    if (this.#current === call && this.#heldBack !== undefined) this.#heldBack.push(run)
    else if (this.#current === call) this.#owner.guard(run)
    else if (end !== undefined && this.#hedge.owns(call)) this.#owner.guard(() => this.#secondFailed(end))
  }

  #prefilled(call: WorkerCall, isSuccess: boolean): void {
    if (this.#hedge.owns(call) && isSuccess && call.isStream) this.#owner.secondWins()
    if (this.#current === call) this.#owner.prefilled(call, isSuccess)
  }

  #secondFailed(end: HedgeEnd): void {
    const isReused = end.kind === 'broke' && end.broken.reusedConnection
    if (isReused && this.#hedge.redo()) return
    this.#owner.secondFailed(this.#hedge.failed()!, end)
  }

  #drop(call: WorkerCall): void {
    call.abort()
    if (call.giveUpBody()) return
    this.#isBodyLent = true
    const loan = this.#hold.lend()
    if (loan !== undefined) this.#parts.lentBodies.settle(call, () => loan.giveBack())
  }
}
