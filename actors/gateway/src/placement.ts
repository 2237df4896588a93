/**
 * Placement: one question to the router where a request should go, from the question until it is settled.
 *
 *   asked ──▶ decided | refused | no answer in time ──settle──▶ settled
 *
 * Invariants
 *   I1  Every question is settled exactly once, whatever the answer, even if none came: the router may have decided
 *       anyway. The message to settle follows the question in the router's mailbox, so it finds all effects of the question.
 *   I2  A message that the router has no room for is sent again until it has. It counts as an open request until then.
 */

import type { ActorRef } from '@homing/actor'
import { type ErrorRecord, toErrorRecord } from '@homing/errors'
import type { Decision, Delivery, RouterMessage, RoutingRequest } from '@homing/router'
import type { GatewayLife } from '@homing/tracker'

type Settled = Extract<RouterMessage, { readonly type: 'settled' }>
type FirstToken = Extract<RouterMessage, { readonly type: 'firstToken' }>

interface Tell {
  settled(message: Settled): void
  /** Not sent again where there is no room. */
  firstToken(message: FirstToken): void
}

/** Asks for placements, on behalf of one life of a gateway. */
export class Placements {
  readonly #router: ActorRef<RouterMessage>
  readonly #gateway: GatewayLife
  readonly #askMsMax: number
  readonly #newId: () => string
  /** Messages that the router had no room for. */
  #untold: Settled[] = []

  constructor(
    router: ActorRef<RouterMessage>,
    gateway: GatewayLife,
    { askMsMax, newId }: { readonly askMsMax: number; readonly newId: () => string },
  ) {
    this.#router = router
    this.#gateway = gateway
    this.#askMsMax = askMsMax
    this.#newId = newId
  }

  /** Requests that have ended, of which the router could not be told yet. */
  get untoldCount(): number {
    return this.#untold.length
  }

  /** `id` is that of the decision, if there will be one. */
  ask(request: RoutingRequest): Placement {
    const id = this.#newId()
    const answer = this.#router
      .ask({ type: 'decide', id, gateway: this.#gateway, request }, { timeout: this.#askMsMax })
      .then(
        result => (result.kind === 'decided' ? result.decision : result.error),
        (thrown: unknown) => toErrorRecord(thrown),
      )
    return new Placement(id, answer, {
      settled: settled => this.#tell(settled),
      firstToken: firstToken => void this.#router.tell(firstToken),
    })
  }

  /** Tells again what found no room. */
  tellUntold(): void {
    for (const settled of this.#untold.splice(0)) this.#tell(settled)
  }

  #tell(settled: Settled): void {
    if (this.#router.tell(settled) === 'full') this.#untold.push(settled)
  }
}

export class Placement {
  readonly id: string
  /** Where the request goes, or why it goes nowhere. Never rejects. */
  readonly answer: Promise<Decision | ErrorRecord>
  readonly #tell: Tell
  #isSettled = false

  constructor(id: string, answer: Promise<Decision | ErrorRecord>, tell: Tell) {
    this.id = id
    this.answer = answer
    this.#tell = tell
  }

  /** The first token of a stream came, so many milliseconds after the call. */
  firstToken(firstTokenMs: number): void {
    if (!this.#isSettled) this.#tell.firstToken({ type: 'firstToken', id: this.id, firstTokenMs })
  }

  /**
   * It is over: its booking is freed and its receipt completed. `wasTaken`: the worker may have worked on the request; where
   * it never did, it holds nothing of the prompt that it was predicted to hold. `isPlacedAgain`: another placement of the request follows.
   * Only the first call counts.
   */
  settle(delivery: Delivery, wasTaken: boolean, isPlacedAgain: boolean): void {
    if (this.#isSettled) return
    this.#isSettled = true
    this.#tell.settled({ type: 'settled', id: this.id, delivery, wasTaken, isPlacedAgain })
  }
}
