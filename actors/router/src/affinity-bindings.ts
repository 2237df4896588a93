/**
 * Affinity bindings: to which worker each session is bound, as this router has placed its requests and as
 * others of the same workers tell it.
 *
 * Owns   the bindings, and when the worker of each key joined the fleet.
 */

import type { Clock } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import {
  type AffinityBinding,
  type AffinitySettings,
  ConversationAffinity,
  type Decision,
  type Delivery,
  type RoutingRequest,
} from '@homing/placement'

export class AffinityBindings {
  /** Undefined: sessions are not bound to workers. */
  readonly affinity: ConversationAffinity | undefined
  readonly #clock: Clock
  /** When the worker of each key joined the fleet; empty if sessions are not bound to workers. */
  #joinedMsByKey: ReadonlyMap<string, number> = new Map()

  constructor(settings: AffinitySettings | undefined, clock: Clock) {
    this.affinity = settings && new ConversationAffinity(settings)
    this.#clock = clock
  }

  /**
   * The session that a decision about the request binds. Slices belong to the session of their request, which
   * is bound by its first and its last decision.
   */
  of(request: RoutingRequest): string | undefined {
    const isPart = request.slice?.isLast === false || request.leg?.kind === 'prefill'
    return isPart || request.hedges !== undefined ? undefined : this.affinity?.keyOf(request)
  }

  /** That of a request whose second worker this is. */
  hedged(request: RoutingRequest): string | undefined {
    return request.hedges === undefined ? undefined : this.affinity?.keyOf(request)
  }

  /** A request of the session was placed. */
  placed(session: string, { worker, workerJoinedMs }: Decision): void {
    this.affinity?.placed(session, worker, workerJoinedMs, this.#clock.nowMs())
  }

  /** Another router of the same workers has placed requests of these sessions. */
  boundElsewhere(bindings: readonly AffinityBinding[]): void {
    const nowMs = this.#clock.nowMs()
    if (this.affinity === undefined) return
    for (const binding of bindings)
      this.affinity.placedElsewhere(binding, this.#joinedMsByKey.get(binding.worker), nowMs)
  }

  /** A second worker, to which the session is not bound, has served a request of it. */
  served(session: string, decision: Decision, delivery: Delivery): void {
    this.placed(session, decision)
    this.ended(session, decision, delivery)
  }

  ended(session: string, { worker, workerJoinedMs }: Decision, { outcome }: Delivery): void {
    this.affinity?.ended(session, worker, workerJoinedMs, outcome === 'error', this.#clock.nowMs())
  }

  takeFleet(fleet: Fleet): void {
    if (this.affinity === undefined) return
    const joined = fleet.workers.flatMap(({ keys, joinedMs }) =>
      keys.map(({ key }) => [key, joinedMs] as const),
    )
    this.#joinedMsByKey = new Map(joined)
  }
}
