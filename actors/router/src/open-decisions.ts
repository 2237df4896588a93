/**
 * Open decisions: decisions that their gateway has not settled yet, with the effects to undo when it does.
 *
 * Bounds   `openMax`. A gateway has fewer requests than that, so beyond it some decisions will never be
 *          settled: the oldest are dropped.
 */

import type { GatewayLife } from '@homing/actors/tracker'
import type { Decision, GuardReceipt, RoutingRequest } from '@homing/placement'
import type { CountedKind, GuardedDecision } from '@homing/selection'

export interface OpenDecision {
  readonly gateway: GatewayLife
  /** Undefined: the request was refused; it is kept for the decision log and what-if. */
  readonly decision: Decision | undefined
  readonly model: string
  /** By the clock of the router's thread. */
  readonly decidedMs: number
  /** Tokens of its prompt as they were counted; undefined: they cannot be compared with the engine's. */
  readonly counted?: CountedPrompt | undefined
  /** Takes back the guess that the worker holds the prompt; undefined: there is no guess. */
  readonly takeBack: (() => void) | undefined
  /** Undefined: the guard does not apply to it. */
  readonly guarded: GuardedDecision | undefined
  /** As in its receipt. */
  readonly guard?: GuardReceipt | undefined
  /** Undefined: it belongs to no session. */
  readonly session?: string | undefined
  /** That of a request whose second worker this is: bound to it if it serves the request. */
  readonly hedgedSession?: string | undefined
  /** For the decision log and what-if; undefined: there is neither. */
  readonly logged: LoggedDecision | undefined
}

export interface CountedPrompt {
  readonly kind: CountedKind
  readonly tokens: number
}

export interface LoggedDecision {
  readonly request: RoutingRequest
  /** The policy that chose, or the mode other than kv. */
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

  /** Returns the decision that was dropped to make room, if any. */
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

  /** Undefined: no open decision has this id. */
  take(id: string): OpenDecision | undefined {
    const open = this.#open.get(id)
    this.#open.delete(id)
    return open
  }

  /** Ids of the decisions of this gateway's earlier lives. */
  idsOfOtherLives(gateway: GatewayLife): readonly string[] {
    const ids: string[] = []
    for (const [id, open] of this.#open) {
      if (open.gateway.name === gateway.name && open.gateway.life !== gateway.life) ids.push(id)
    }
    return ids
  }
}
