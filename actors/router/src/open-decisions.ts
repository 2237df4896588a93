/**
 * Open decisions: those that their gateway has not settled yet, with the effects to undo when it does.
 *
 * Bounds `openMax`; a gateway has fewer requests than that, so one more means that some will never be
 * settled: the oldest are dropped.
 */

import type { GatewayLife } from '@homing/actors/tracker'
import type { Decision, GuardReceipt, RoutingRequest } from '@homing/placement'
import type { GuardedDecision } from '@homing/selection'

export interface OpenDecision {
  readonly gateway: GatewayLife
  /** Undefined: the request was refused; it is here for the decision log and what-if. */
  readonly decision: Decision | undefined
  /** Takes back what the worker was guessed to hold; undefined: nothing was. */
  readonly takeBack: (() => void) | undefined
  /** Undefined: the guard has nothing to do with it. */
  readonly guarded: GuardedDecision | undefined
  /** As in its receipt. */
  readonly guard?: GuardReceipt | undefined
  /** Undefined: it belongs to none. */
  readonly session?: string | undefined
  /** For the decision log and what-if; undefined: there is neither. */
  readonly logged: LoggedDecision | undefined
}

export interface LoggedDecision {
  readonly request: RoutingRequest
  /** What chose. */
  readonly policy: string
  /** By the clock of the thread. */
  readonly decidedMs: number
}

export class OpenDecisions {
  readonly #openMax: number
  /** By id, in the order of the decisions. */
  readonly #open = new Map<string, OpenDecision>()

  constructor(openMax: number) {
    this.#openMax = openMax
  }

  /** Returns the one that was dropped for it. */
  add(id: string, open: OpenDecision): OpenDecision | undefined {
    this.#open.set(id, open)
    if (this.#open.size <= this.#openMax) return undefined
    for (const [oldest, dropped] of this.#open) {
      this.#open.delete(oldest)
      return dropped
    }
    return undefined
  }

  get(id: string): OpenDecision | undefined {
    return this.#open.get(id)
  }

  /** Undefined: there is none of this id, or no longer. */
  take(id: string): OpenDecision | undefined {
    const open = this.#open.get(id)
    this.#open.delete(id)
    return open
  }

  /** Ids of decisions of this gateway from its other lives. */
  idsOfOtherLives(gateway: GatewayLife): readonly string[] {
    const ids: string[] = []
    for (const [id, open] of this.#open) {
      if (open.gateway.name === gateway.name && open.gateway.life !== gateway.life) ids.push(id)
    }
    return ids
  }
}
