/**
 * Placement: one question to the queue about where a request should go, from the question until it is
 * settled.
 *
 *   asked ──▶ decided ────────────────────────▶ settled with the router
 *     └─────▶ refused, no answer (in time) ───▶ settled with the queue, which passes it on to the router
 *
 * Invariants
 *   I1  Every question is settled exactly once, even if no answer came: the router may have decided anyway.
 *       `settled` reaches the router after the question. Once the router has decided, `settled` goes to it
 *       directly. Otherwise `settled` goes through the queue, as the question did.
 *   I2  A message that finds a mailbox full is sent again until it is accepted. Until then it counts as an
 *       open request.
 */

import type { ActorRef, Message } from '@homing/actor'
import type { QueueMessage, WaitingHints } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { GatewayLife } from '@homing/actors/tracker'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Decision, Delivery, LegCosts, Measured, RoutingRequest } from '@homing/placement'

type Settled = Extract<RouterMessage, { readonly type: 'settled' }>
export type WorkerFailed = Extract<RouterMessage, { readonly type: 'workerFailed' }>
/** Sends a message that must arrive: repeats it while the mailbox is full. */
type TellSurely = <M extends Message>(to: ActorRef<M>, message: M) => void

/** Times that the queue may ask the router about one request. The timeout allows for them beside the wait. */
const ASKS_MAX = 3

export interface PlacementParts {
  readonly queue: ActorRef<QueueMessage>
  readonly router: ActorRef<RouterMessage>
  readonly gateway: GatewayLife
  /** Longest wait for an actor, in milliseconds. */
  readonly askMsMax: number
  /** Longest wait for room, in milliseconds; 0: nothing waits. */
  readonly queueMsMax: number
  readonly newId: () => string
}

/** Asks for placements, for one life of a gateway. */
export class Placements {
  readonly #parts: PlacementParts
  /** Messages that found a mailbox full. */
  #untold: (() => void)[] = []

  constructor(parts: PlacementParts) {
    this.#parts = parts
  }

  /** Number of messages that are still to be delivered. */
  get untoldCount(): number {
    return this.#untold.length
  }

  /**
   * Asks the queue where a request should go. `ageMs`: time since the request arrived. `maySlice`: its
   * prompt can be sent in slices.
   */
  ask(request: RoutingRequest, hints: WaitingHints | undefined, ageMs: number, maySlice = false): Placement {
    return new Placement({ request, hints, ageMs, maySlice }, this.#parts, this.#tell)
  }

  /** How much of a prompt the best worker holds, or why that is not known. Changes nothing. Never rejects. */
  measure(request: RoutingRequest): Promise<Measured | ErrorRecord> {
    const { router, askMsMax } = this.#parts
    return router.ask({ type: 'measure', request }, { timeout: askMsMax }).catch(toErrorRecord)
  }

  /** What a request costs whole and in two legs; undefined: that is not known. Never rejects. */
  weighLegs(request: RoutingRequest): Promise<LegCosts | undefined> {
    const { router, askMsMax } = this.#parts
    // The placement that follows meets the same error, and says so.
    return router.ask({ type: 'weighLegs', request }, { timeout: askMsMax }).catch(() => undefined)
  }

  /** A worker failed a request, and the request is not to blame. Not repeated if the mailbox is full. */
  workerFailed(message: WorkerFailed): void {
    this.#parts.router.tell(message)
  }

  /** Repeats the messages that found a mailbox full. */
  tellUntold(): void {
    for (const tell of this.#untold.splice(0)) tell()
  }

  readonly #tell: TellSurely = (to, message) => {
    if (to.tell(message) === 'full') this.#untold.push(() => this.#tell(to, message))
  }
}

interface Question {
  readonly request: RoutingRequest
  readonly hints: WaitingHints | undefined
  readonly ageMs: number
  readonly maySlice: boolean
}

export class Placement {
  /** The id of its decision, if the router decides. */
  readonly id: string
  /** Where the request goes, or why it goes nowhere. Never rejects. */
  readonly answer: Promise<Decision | ErrorRecord>
  readonly #model: string
  readonly #parts: PlacementParts
  readonly #tell: TellSurely
  #isDecided = false
  #isSliced = false
  /** The prompt is long, and the queue must still be told when its prefill is over. */
  #isLong = false
  /** The queue charged an estimate of the prompt, and must still be told what its engine counted. */
  #isEstimated = false
  #isSettled = false

  constructor({ request, hints, ageMs, maySlice }: Question, parts: PlacementParts, tell: TellSurely) {
    const id = parts.newId()
    this.id = id
    this.#model = request.model
    this.#parts = parts
    this.#tell = tell
    const { queue, gateway, askMsMax, queueMsMax } = parts
    const mayWait = hints !== undefined && queueMsMax > 0
    const timeout = mayWait ? queueMsMax + ASKS_MAX * askMsMax : askMsMax
    this.answer = queue
      .ask({ type: 'place', id, gateway, request, ageMs, hints, maySlice }, { timeout })
      .then(
        result => {
          if (result.kind === 'refused') return result.error
          this.#isDecided = true
          this.#isLong = result.isLong === true
          this.#isSliced = result.isSliced === true
          this.#isEstimated = result.isEstimated === true
          return result.decision
        },
        (thrown: unknown) => toErrorRecord(thrown),
      )
  }

  /** It is for the first slice of a long prompt, if its decision says where that ends. */
  get isSliced(): boolean {
    return this.#isSliced
  }

  /**
   * The prompt is long and sent in slices, of which this placement is the first: it counts as long until the
   * result is called, also when this placement has ended.
   */
  keepLong(): () => void {
    const isLong = this.#isLong
    this.#isLong = false
    let isTold = false
    return () => {
      if (isLong && !isTold) this.#tellPrefilled()
      isTold = true
    }
  }

  /** The prefill of the request is over. */
  prefilled(): void {
    if (!this.#isLong) return
    this.#isLong = false
    this.#tellPrefilled()
  }

  /** Until the queue knows, it may hold back other long prompts of the same tenant. */
  #tellPrefilled(): void {
    this.#tell(this.#parts.queue, { type: 'prefillComplete', id: this.id, model: this.#model })
  }

  /**
   * The first token of a stream came `firstTokenMs` after the call. Not repeated if the router's mailbox is
   * full.
   */
  firstToken(firstTokenMs: number): void {
    if (!this.#isSettled) this.#parts.router.tell({ type: 'firstToken', id: this.id, firstTokenMs })
  }

  /**
   * Ends the placement: the router frees its booking and completes its receipt. `wasTaken`: the worker may
   * have worked on the request; if false, the router takes back the guess that the worker holds the prompt.
   * `isPlacedAgain`: another placement of the request follows. Only the first call counts.
   */
  settle(delivery: Delivery, wasTaken: boolean, isPlacedAgain: boolean): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.prefilled()
    this.#tellCount(delivery)
    const { router, queue } = this.#parts
    const settled: Settled = { type: 'settled', id: this.id, delivery, wasTaken, isPlacedAgain }
    this.#tell(this.#isDecided ? router : queue, settled)
  }

  /** Tells the queue the tokens of a prompt that was estimated. Only a success says what was computed. */
  #tellCount({ outcome, promptTokens, cachedTokens }: Delivery): void {
    if (!this.#isEstimated) return
    const counted =
      outcome === 'ok' && promptTokens !== undefined ? { promptTokens, cachedTokens } : undefined
    this.#tell(this.#parts.queue, { type: 'counted', id: this.id, model: this.#model, counted })
  }
}
