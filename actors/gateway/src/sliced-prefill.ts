/**
 * Sliced prefill: has the worker of a long prompt compute it a step at a time, each as a request of its own,
 * so that requests of other tenants get between (docs/queue.md). The exchange owns it, and goes on when it
 * ends.
 *
 *   placed for the first slice ─▶ call ─▶ settled ─▶ placed for the next, at the same worker ─▶ call ─▶ …
 *        ├─▶ computed   all but the rest, which the request itself computes
 *        ├─▶ given up   a slice failed, was refused, or found the others evicted: the request goes whole
 *        └─▶ refused    it waited too long, all waits together
 *
 * Invariants
 *   I1  One placement and at most one call at a time; each placement is settled once. After `abort` none is
 *       open, and `run` does not end.
 *   I2  No slice fails the request: only the queue may refuse it, by the deadline.
 *   I3  A slice of n tokens is charged, booked and waits like a request of as many new tokens. Its answer
 *       teaches how fast the worker computes, and nothing of outputs.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { WaitingHints } from '@homing/actors/queue'
import type { TrackerMessage } from '@homing/actors/tracker'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import {
  cutPrompt,
  type Decision,
  type Delivery,
  type PromptSlice,
  type RoutingRequest,
  sliceEnd,
} from '@homing/placement'
import type { DeadlyPrompts } from './deadly-prompts.ts'
import { UpstreamFailedError } from './errors.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { GatewayMessage } from './messages.ts'
import type { Placement, Placements } from './placement.ts'
import { DEADLINE } from './placing-codes.ts'
import type { SliceTrust } from './slice-trust.ts'
import type { GivenUp, SlicedPrompt } from './sliced-prompt.ts'
import { type UpstreamRequest, WorkerCall, type WorkerCallParts } from './worker-call.ts'
import type { WorkerProgress } from './worker-progress.ts'

export type SlicesEnd =
  | { readonly kind: 'computed'; readonly slice: PromptSlice }
  | { readonly kind: 'givenUp'; readonly why: GivenUp }
  | { readonly kind: 'refused'; readonly error: ErrorRecord }

export interface SlicesStart {
  readonly ready: SlicedRequest
  readonly prompt: SlicedPrompt
  /** For the first slice, with its decision. */
  readonly placement: Placement
  readonly decision: Decision
  /** Since its arrival it has waited so long. */
  readonly waitedMs: number
}

/** What it shares with its exchange. */
export interface SlicedPrefillParts extends Omit<WorkerCallParts, 'clock' | 'mayRefuse'> {
  readonly context: ActorContext<GatewayMessage>
  readonly metrics: GatewayMetrics
  readonly placements: Placements
  readonly deadlyPrompts: DeadlyPrompts
  readonly slices: SliceTrust
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<DirectoryMessage>
  readonly progress: Pick<WorkerProgress, 'isLost'>
  readonly limits: { readonly silenceMsMax: number }
}

/** The request whose prompt it is. */
export interface SlicedRequest {
  readonly routing: RoutingRequest
  readonly waiting?: WaitingHints | undefined
  readonly upstream: UpstreamRequest
}

/** How one slice ended; `cachedTokens` undefined: its engine does not say. */
type Sent = { readonly cachedTokens: number | undefined } | { readonly why: GivenUp }

const OUTCOMES = { computed: 'computed', refused: 'deadline' } as const
/** The engine has no completions of token ids. */
const UNKNOWN_ROUTE: ReadonlySet<number> = new Set([404, 405, 501])
/** Blocks that an engine may compute again with the next slice, as vLLM does with speculative decoding. */
const BLOCKS_ANEW_MAX = 1
/** Slices that may find less in the cache than their predecessors computed. */
const SLICE_MISSES_MAX = 1

export class SlicedPrefill {
  readonly #parts: SlicedPrefillParts
  readonly #start: SlicesStart
  #placement: Placement | undefined
  #decision: Decision
  #call: WorkerCall | undefined
  #calledMs = 0
  #firstTokenMs: number | undefined
  #finish: ((sent: Sent) => void) | undefined
  #waitedMs: number
  #sent = 0
  #newTokens = 0

  constructor(parts: SlicedPrefillParts, start: SlicesStart) {
    this.#parts = parts
    this.#start = start
    this.#placement = start.placement
    this.#decision = start.decision
    this.#waitedMs = start.waitedMs
  }

  /** Time that the request waited for its turns, in milliseconds. */
  get waitedMs(): number {
    return this.#waitedMs
  }

  /** Tokens that the worker computed for its slices. */
  get newTokens(): number {
    return this.#newTokens
  }

  /** Never rejects, but does not end after `abort`. */
  async run(): Promise<SlicesEnd> {
    const { ready, decision } = this.#start
    const { routing } = ready
    const { endTokens, stepTokens } = decision.slice!
    let computedTokens = decision.predictedTokens
    let misses = 0
    for (let end: number | undefined = endTokens; end !== undefined; ) {
      const sent = await this.#send(end)
      if ('why' in sent) return this.#end({ kind: 'givenUp', why: sent.why })
      this.#sent++
      this.#parts.metrics.sliceSent()
      const cachedTokensMin = computedTokens - BLOCKS_ANEW_MAX * routing.blockSizeTokens
      const isMiss = sent.cachedTokens !== undefined && sent.cachedTokens < cachedTokensMin
      if (isMiss && this.#sent > 1 && ++misses > SLICE_MISSES_MAX)
        return this.#end({ kind: 'givenUp', why: 'evicted' })
      this.#newTokens += Math.max(0, end - (sent.cachedTokens ?? computedTokens))
      computedTokens = end
      end = sliceEnd(routing, computedTokens, stepTokens)
      const slice = {
        worker: decision.worker,
        computedTokens,
        sent: this.#sent,
        isLast: end === undefined,
        decisionId: decision.id,
      }
      if (end === undefined) return this.#end({ kind: 'computed', slice })
      const refused = await this.#place({ ...cutPrompt(routing, end), slice })
      if (refused === undefined) continue
      return this.#end(
        refused.code === DEADLINE
          ? { kind: 'refused', error: refused }
          : { kind: 'givenUp', why: 'not_placed' },
      )
    }
    return this.#end({ kind: 'givenUp', why: 'failed' })
  }

  /** Gives up a slice whose worker is silent, else sends a sign of life. */
  look(nowMs: number): void {
    if (this.#call === undefined) return
    const { limits, progress } = this.#parts
    const isSilent = nowMs - this.#calledMs >= limits.silenceMsMax
    if (isSilent || progress.isLost(this.#decision.workerId, this.#calledMs, nowMs))
      this.#over({ why: 'silent' })
    else this.#parts.tracker.tell({ type: 'touch', decisionId: this.#placement!.id })
  }

  /** The request is over: ends the slice that is under way. */
  abort(): void {
    this.#finish = undefined
    this.#settle('aborted', undefined, false)
  }

  #end(end: SlicesEnd): SlicesEnd {
    this.#parts.metrics.slicesEnded(end.kind === 'givenUp' ? end.why : OUTCOMES[end.kind])
    return end
  }

  /** Undefined: it is placed. */
  async #place(routing: RoutingRequest): Promise<ErrorRecord | undefined> {
    const askedMs = this.#nowMs
    const placement = this.#parts.placements.ask(routing, this.#start.ready.waiting, this.#waitedMs)
    this.#placement = placement
    const answer = await placement.answer
    // Aborted meanwhile.
    if (this.#placement !== placement) return new Promise(() => {})
    this.#waitedMs += this.#nowMs - askedMs
    if ('code' in answer) {
      this.#settle('error', answer, answer.code !== DEADLINE)
      return answer
    }
    this.#decision = answer
    return undefined
  }

  /** Calls the worker with the slice that ends at `endTokens`. Settles its placement. */
  #send(endTokens: number): Promise<Sent> {
    const { ready, prompt } = this.#start
    const { context, tracker, deadlyPrompts, directory, slices } = this.#parts
    const decision = this.#decision
    const { workerId, worker } = decision
    const placement = this.#placement!
    this.#calledMs = this.#nowMs
    this.#firstTokenMs = undefined
    const failed = (why: GivenUp, reason: string): void => {
      const { requestId } = ready.routing
      context.log.warn({ worker, requestId, reason, slices: this.#sent }, 'slice of a long prompt failed')
      this.#over({ why }, toErrorRecord(new UpstreamFailedError(worker, reason)))
    }
    const refused = (status: number): void => {
      // Any other refusal may be of what the client sent: its key, its salt, too many requests.
      if (UNKNOWN_ROUTE.has(status)) slices.distrust(workerId, this.#nowMs)
      failed('refused', `answered ${status}`)
    }
    const call: WorkerCall = new WorkerCall(
      { ...this.#parts, clock: context.clock, mayRefuse: () => true },
      {
        method: 'POST',
        path: '/v1/completions',
        headers: sliceHeaders(ready),
        body: prompt.body(endTokens, decision.takesUsageOption),
        usageEdit: undefined,
        spans: ready.upstream.spans,
      },
      { decision, requestId: `${ready.routing.requestId}-slice-${this.#sent + 1}`, attempt: 1 },
      {
        connected: () => {},
        prefilled: isSuccess => {
          const teaches = isSuccess && call.isStream
          this.#firstTokenMs = this.#nowMs - this.#calledMs
          tracker.tell({ type: 'prefillComplete', decisionId: placement.id, teaches })
        },
        head: () => {},
        data: () => {},
        ended: () => {
          const { status = 0, usage } = call
          if (status >= 400) refused(status)
          else if (usage?.sawError === true) failed('failed', 'answered with an error')
          else this.#over({ cachedTokens: usage?.cachedTokens })
        },
        refused: status => refused(status),
        broke: ({ reason, failure, reusedConnection }) => {
          const { body } = ready.upstream
          if (failure === 'reset' && !reusedConnection && body !== undefined)
            deadlyPrompts.broke(body, workerId, this.#nowMs, this.#nowMs - this.#calledMs)
          if (failure === 'connect' || (failure === 'reset' && !reusedConnection))
            directory.tell({ type: 'suspect', workerId, reason, isUnreachable: failure === 'connect' })
          failed('failed', reason)
        },
      },
    )
    this.#call = call
    return new Promise(resolve => {
      this.#finish = resolve
      call.start()
    })
  }

  /** The slice that is under way is over. */
  #over(sent: Sent, error?: ErrorRecord): void {
    const finish = this.#finish
    this.#finish = undefined
    this.#settle('why' in sent ? 'error' : 'ok', error)
    finish?.(sent)
  }

  /** `isPlacedAgain`: the request goes on. */
  #settle(outcome: Delivery['outcome'], error?: ErrorRecord, isPlacedAgain = true): void {
    const [placement, call] = [this.#placement, this.#call]
    this.#placement = undefined
    this.#call = undefined
    const usage = call?.usage
    call?.abort()
    call?.giveUpBody()
    const delivery: Delivery = {
      outcome,
      status: call?.status,
      promptTokens: usage?.promptTokens,
      // One token that was not asked for says nothing of answers.
      completionTokens: undefined,
      cachedTokens: usage?.cachedTokens,
      waitedMs: this.#waitedMs,
      timeToFirstByteMs: this.#firstTokenMs,
      durationMs: call === undefined ? 0 : this.#nowMs - this.#calledMs,
      streamEvents: undefined,
      error,
    }
    placement?.settle(delivery, call !== undefined, isPlacedAgain)
  }

  get #nowMs(): number {
    return this.#parts.context.clock.nowMs()
  }
}

/** The client's headers, which may have its key; the body is ours. */
function sliceHeaders({ upstream }: SlicedRequest): UpstreamRequest['headers'] {
  const { accept: _, ...headers } = upstream.headers
  return { ...headers, 'content-type': 'application/json' }
}
