/**
 * Placement: one question to the queue where a request should go, from the question until it is settled.
 *
 *   asked ──▶ decided ──settle with the router──▶ settled
 *     └─────▶ refused | no answer yet | none in time ──settle with the queue, which tells the router──▶ settled
 *
 * Invariants
 *   I1  Every question is settled exactly once, whatever the answer, even if none came: the router may have decided
 *       anyway. The message to settle follows the question in the router's mailbox, so it finds all effects of the question: a decision
 *       was there before its answer; everything else takes the way of the question.
 *   I2  A message that finds no room is sent again until it does. It counts as an open request until then.
 */

import type { ActorRef, Message } from '@homing/actor'
import type { QueueMessage, WaitingHints } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { GatewayLife } from '@homing/actors/tracker'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { Decision, Delivery, RoutingRequest } from '@homing/placement'

type Settled = Extract<RouterMessage, { readonly type: 'settled' }>
/** Tells what must arrive: again, as long as there is no room for it. */
type TellSurely = <M extends Message>(to: ActorRef<M>, message: M) => void

/** Questions of the queue to the router about a request, beside its wait, whose end the queue tells. */
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

/** Asks for placements, on behalf of one life of a gateway. */
export class Placements {
  readonly #parts: PlacementParts
  /** Messages that found no room. */
  #untold: (() => void)[] = []

  constructor(parts: PlacementParts) {
    this.#parts = parts
  }

  /** Requests that have ended, of which could not be told yet. */
  get untoldCount(): number {
    return this.#untold.length
  }

  /** `id` is that of the decision, if there will be one. `ageMs`: since the request came. */
  ask(request: RoutingRequest, hints: WaitingHints | undefined, ageMs: number): Placement {
    const { newId } = this.#parts
    return new Placement(newId(), request, hints, ageMs, this.#parts, this.#tell)
  }

  /** Tells again what found no room. */
  tellUntold(): void {
    for (const tell of this.#untold.splice(0)) tell()
  }

  readonly #tell: TellSurely = (to, message) => {
    if (to.tell(message) === 'full') this.#untold.push(() => this.#tell(to, message))
  }
}

export class Placement {
  readonly id: string
  /** Where the request goes, or why it goes nowhere. Never rejects. */
  readonly answer: Promise<Decision | ErrorRecord>
  readonly #model: string
  readonly #parts: PlacementParts
  readonly #tell: TellSurely
  #isDecided = false
  /** The queue is to hear when its prompt is computed. */
  #isLong = false
  #isSettled = false

  constructor(
    id: string,
    request: RoutingRequest,
    hints: WaitingHints | undefined,
    ageMs: number,
    parts: PlacementParts,
    tell: TellSurely,
  ) {
    this.id = id
    this.#model = request.model
    this.#parts = parts
    this.#tell = tell
    const { queue, gateway, askMsMax, queueMsMax } = parts
    const mayWait = hints !== undefined && queueMsMax > 0
    const timeout = mayWait ? queueMsMax + ASKS_MAX * askMsMax : askMsMax
    this.answer = queue.ask({ type: 'place', id, gateway, request, ageMs, hints }, { timeout }).then(
      result => {
        if (result.kind === 'refused') return result.error
        this.#isDecided = true
        this.#isLong = result.isLong === true
        return result.decision
      },
      (thrown: unknown) => toErrorRecord(thrown),
    )
  }

  /** Its prompt is computed. */
  prefilled(): void {
    if (!this.#isLong) return
    this.#isLong = false
    // Until the queue hears of it, prompts of the same tenant may be held.
    this.#tell(this.#parts.queue, { type: 'prefillComplete', id: this.id, model: this.#model })
  }

  /**
   * The first token of a stream came, so many milliseconds after the call. Not sent again where there is no
   * room.
   */
  firstToken(firstTokenMs: number): void {
    if (!this.#isSettled) this.#parts.router.tell({ type: 'firstToken', id: this.id, firstTokenMs })
  }

  /**
   * It is over: its booking is freed and its receipt completed. `wasTaken`: the worker may have worked on the
   * request; where it never did, it holds nothing of the prompt that it was predicted to hold.
   * `isPlacedAgain`: another placement of the request follows. Only the first call counts.
   */
  settle(delivery: Delivery, wasTaken: boolean, isPlacedAgain: boolean): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.prefilled()
    const { router, queue } = this.#parts
    const settled: Settled = { type: 'settled', id: this.id, delivery, wasTaken, isPlacedAgain }
    this.#tell(this.#isDecided ? router : queue, settled)
  }
}
