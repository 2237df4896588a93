/**
 * Prefill leg: one call to a prefill worker, with the placement that was made for it.
 *
 *   placed ─▶ called ─▶ answered ─▶ settled
 *                └────▶ failed, silent, aborted ─▶ settled
 *
 * Invariants
 *   I1  Its placement is settled once, whatever happens.
 *   I2  `run` ends once, and not after `abort`.
 *   I3  It holds at most LEG_ANSWER_BYTES_MAX of the answer.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { TrackerMessage } from '@homing/actors/tracker'
import { toErrorRecord } from '@homing/base'
import type { Decision, Delivery } from '@homing/placement'
import { giveUpBytes, type HttpHeaders } from '@homing/transport'
import { UpstreamFailedError } from './errors.ts'
import type { GatewayMessage } from './messages.ts'
import type { Placement } from './placement.ts'
import type { AnswerFigures } from './request-metrics.ts'
import { type UpstreamRequest, WorkerCall, type WorkerCallParts } from './worker-call.ts'
import type { WorkerProgress } from './worker-progress.ts'
import { SHEDDING_STATUSES } from './worker-statuses.ts'

/** Of an answer of one token; the ids of the blocks of a million tokens take half a megabyte. */
const LEG_ANSWER_BYTES_MAX = 4_194_304

export interface PrefillLegParts extends Omit<WorkerCallParts, 'clock' | 'mayRefuse'> {
  readonly context: ActorContext<GatewayMessage>
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<DirectoryMessage>
  readonly progress: Pick<WorkerProgress, 'isLost'>
  readonly limits: { readonly silenceMsMax: number }
}

export interface PrefillLegStart {
  readonly placement: Placement
  readonly decision: Decision
  /** With a body that is only for this leg: its memory is given back. */
  readonly upstream: UpstreamRequest
  readonly requestId: string
  /** Before it was called. */
  readonly waitedMs: number
}

/**
 * `isSure`: the worker failed, and not the request. `isRefusal`: it is the request's own fault, or may be.
 */
export type PrefillEnd =
  | {
      readonly kind: 'answered'
      readonly headers: HttpHeaders
      readonly status: number
      readonly body: Uint8Array
      /** What its engine counted. */
      readonly figures: AnswerFigures
    }
  | {
      readonly kind: 'failed'
      readonly reason: string
      readonly why: 'refused' | 'failed' | 'silent'
      readonly isSure: boolean
      readonly wasReached: boolean
      /** Its worker died, or does not answer any more: whatever it had failed with it. */
      readonly isLoss: boolean
    }

export class PrefillLeg {
  readonly decision: Decision
  readonly #parts: PrefillLegParts
  readonly #start: PrefillLegStart
  readonly #pieces: Uint8Array[] = []
  #bytes = 0
  #headers: HttpHeaders = {}
  #call: WorkerCall | undefined
  #calledMs = 0
  #firstByteMs: number | undefined
  #finish: ((end: PrefillEnd) => void) | undefined
  #isSettled = false

  constructor(parts: PrefillLegParts, start: PrefillLegStart) {
    this.decision = start.decision
    this.#parts = parts
    this.#start = start
  }

  get calledMs(): number {
    return this.#calledMs
  }

  /** Never rejects, but does not end after `abort`. */
  run(): Promise<PrefillEnd> {
    const { context, tracker } = this.#parts
    const { decision, upstream, requestId, placement } = this.#start
    this.#calledMs = this.#nowMs
    const call: WorkerCall = new WorkerCall(
      { ...this.#parts, clock: context.clock, audit: false, mayRefuse: () => true },
      upstream,
      { decision, requestId, attempt: 1 },
      {
        connected: () => {},
        prefilled: isSuccess => {
          this.#firstByteMs = this.#nowMs - this.#calledMs
          tracker.tell({ type: 'prefillComplete', decisionId: placement.id, teaches: isSuccess })
          placement.prefilled()
        },
        head: (_, headers) => {
          this.#headers = headers
        },
        data: bytes => this.#data(bytes),
        ended: () => this.#ended(),
        refused: status =>
          this.#failed(`answered ${status}`, status >= 500 || status === 429 ? 'failed' : 'refused', {
            isSure: SHEDDING_STATUSES.has(status),
          }),
        broke: ({ reason, failure, reusedConnection }) => {
          const wasReached = failure !== 'connect' && failure !== 'full'
          const { workerId } = decision
          if (failure === 'connect' || (failure === 'reset' && !reusedConnection))
            this.#parts.directory.tell({
              type: 'suspect',
              workerId,
              reason,
              isUnreachable: failure === 'connect',
            })
          const isLoss = failure === 'reset'
          this.#failed(reason, 'failed', { isSure: failure === 'connect', wasReached, isLoss })
        },
      },
    )
    this.#call = call
    return new Promise(resolve => {
      this.#finish = resolve
      call.start()
    })
  }

  /** Gives up a worker that is silent, else sends a sign of life. */
  look(nowMs: number): void {
    if (this.#call === undefined) return
    const { limits, progress } = this.#parts
    const { silenceMsMax } = limits
    if (nowMs - this.#calledMs >= silenceMsMax)
      this.#failed(`no answer for ${silenceMsMax} ms`, 'silent', { isSure: true })
    else if (progress.isLost(this.decision.workerId, this.#calledMs, nowMs))
      this.#failed('no answer, and it is down or has left', 'silent', { isSure: true, isLoss: true })
    else this.#parts.tracker.tell({ type: 'touch', decisionId: this.#start.placement.id })
  }

  /** The request needs it no more. `isServed`: because it has its answer. */
  abort(isServed = false): void {
    this.#finish = undefined
    this.#settle(isServed ? 'ok' : 'aborted')
  }

  #data(bytes: Uint8Array): void {
    this.#bytes += bytes.length
    if (this.#bytes <= LEG_ANSWER_BYTES_MAX) this.#pieces.push(Buffer.from(bytes))
    else this.#failed(`its answer has more than ${LEG_ANSWER_BYTES_MAX} bytes`, 'failed', { isSure: true })
  }

  #ended(): void {
    const { status = 0, usage } = this.#call!
    if (status >= 400) this.#failed(`answered ${status}`, 'refused', { isSure: false })
    else if (usage?.sawError === true) this.#failed('answered with an error', 'failed', { isSure: false })
    else {
      const { promptTokens, completionTokens, cachedTokens } = usage ?? {}
      const end = {
        kind: 'answered',
        headers: this.#headers,
        status,
        body: Buffer.concat(this.#pieces),
        figures: { promptTokens, completionTokens, cachedTokens, tokensMs: undefined },
      } as const
      this.#over(end)
    }
  }

  #failed(
    reason: string,
    why: 'refused' | 'failed' | 'silent',
    {
      isSure,
      wasReached = true,
      isLoss = false,
    }: { readonly isSure: boolean; readonly wasReached?: boolean; readonly isLoss?: boolean },
  ): void {
    this.#over({ kind: 'failed', reason, why, isSure, wasReached, isLoss })
  }

  #over(end: PrefillEnd): void {
    const finish = this.#finish
    this.#finish = undefined
    const { worker } = this.decision
    if (end.kind === 'answered') this.#settle('ok')
    else this.#settle('error', toErrorRecord(new UpstreamFailedError(worker, end.reason)), end.wasReached)
    finish?.(end)
  }

  #settle(outcome: Delivery['outcome'], error?: Delivery['error'], wasTaken = true): void {
    if (this.#isSettled) return
    this.#isSettled = true
    const call = this.#call
    this.#call = undefined
    const usage = call?.usage
    call?.abort()
    call?.giveUpBody()
    const { placement, upstream, waitedMs } = this.#start
    if (upstream.body !== undefined && call?.usesBody !== true) giveUpBytes(upstream.body)
    const delivery: Delivery = {
      outcome,
      status: call?.status,
      promptTokens: usage?.promptTokens,
      // One token that no client sees says nothing of answers.
      completionTokens: undefined,
      cachedTokens: usage?.cachedTokens,
      waitedMs,
      timeToFirstByteMs: this.#firstByteMs,
      durationMs: call === undefined ? 0 : this.#nowMs - this.#calledMs,
      streamEvents: undefined,
      error,
    }
    // The request goes on with its decode leg.
    placement.settle(delivery, call !== undefined && wasTaken, true)
  }

  get #nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}
