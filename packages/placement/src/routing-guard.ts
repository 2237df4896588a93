/**
 * Routing guard: the shadow costs and the guard beside the decisions of one router. They apply if mode kv
 * decides by the costs of `auto`.
 *
 * A decision is an experiment only if it is unconstrained: the request names and prefers no worker, brings no
 * weights, and is placed for the first time.
 */

import type { Random } from '@homing/base'
import {
  type Candidates,
  type Choice,
  Guard,
  type GuardArm,
  type GuardedDecision,
  type GuardSettings,
  predictedFirstTokenMs,
  type SelectionSettings,
  type Selector,
  SHADOW_NAMES,
  ShadowCosts,
} from '@homing/selection'
import type { Delivery, GuardReceipt, GuardStatus } from './receipt.ts'
import type { RoutingRequest } from './routing-request.ts'

export class RoutingGuard {
  readonly #guard: Guard
  readonly #shadows = new ShadowCosts()
  readonly #random: Random

  /** Whether the guard applies. Checks `custom` too: a custom selection may have the name of a policy. */
  static isFor({ mode, policy, custom }: SelectionSettings): boolean {
    return mode === 'kv' && policy === 'auto' && custom === undefined
  }

  constructor(settings: GuardSettings, random: Random) {
    this.#guard = new Guard(settings)
    this.#random = random
  }

  /**
   * May divert the last choice of `selector`, made with `settings`. Undefined: another rule chose. `isReal`:
   * the decision will be carried out. Counts nothing yet.
   */
  consider(
    request: RoutingRequest,
    settings: SelectionSettings,
    input: Candidates,
    choice: Choice,
    selector: Selector,
    isReal: boolean,
  ): GuardReceipt | undefined {
    if (!RoutingGuard.isFor(settings)) return undefined
    const guard = this.#guard
    const shadows = this.#shadows
    const { terms } = choice
    shadows.find(input, terms, choice.winner)
    const { leastLoaded } = shadows
    let arm: GuardArm | undefined
    if (isReal && leastLoaded !== choice.winner && isFree(request, input)) {
      const extraMs = terms.cost[leastLoaded]! - terms.cost[choice.winner]!
      arm = guard.draw(this.#random, extraMs)
      selector.divert(leastLoaded, guard.controlChance(extraMs), arm === 'control')
    }
    shadows.score(terms, choice.winner)
    const { regrets } = shadows
    const regretMs = Object.fromEntries(SHADOW_NAMES.map((name, s) => [name, regrets[s]!]))
    return {
      arm,
      phase: guard.phase,
      controlShare: guard.controlShare,
      predictedFirstTokenMs: predictedFirstTokenMs(choice, choice.winner),
      regretMs: regretMs as GuardReceipt['regretMs'],
    }
  }

  /** Counts a decision that was made and booked. */
  decided(
    { arm, predictedFirstTokenMs, regretMs }: GuardReceipt,
    promptTokens: number,
    nowMs: number,
  ): GuardedDecision {
    this.#shadows.count(SHADOW_NAMES.map(name => regretMs[name]))
    return this.#guard.decided(arm, promptTokens, predictedFirstTokenMs, nowMs)
  }

  firstToken(guarded: GuardedDecision | undefined, firstTokenMs: number, nowMs: number): void {
    if (guarded !== undefined) this.#guard.firstToken(guarded, firstTokenMs, nowMs)
  }

  /** A decision has ended or was forgotten: its first token can no longer be reported. */
  ended(guarded: GuardedDecision | undefined, delivery: Delivery | undefined, nowMs: number): void {
    if (guarded === undefined) return
    if (delivery !== undefined && isWorkersFault(delivery)) {
      this.#guard.failed(guarded, nowMs)
      return
    }
    const isSilent = delivery?.outcome === 'ok' && delivery.streamEvents === undefined
    this.#guard.gone(guarded, !isSilent)
  }

  audited(
    guarded: GuardedDecision | undefined,
    predictedTokens: number,
    cachedTokens: number | undefined,
  ): void {
    if (guarded !== undefined && cachedTokens !== undefined)
      this.#guard.audited(predictedTokens, cachedTokens)
  }

  get status(): GuardStatus {
    const { decisions, meanRegrets } = this.#shadows
    const meanRegretMs = Object.fromEntries(SHADOW_NAMES.map((name, s) => [name, meanRegrets[s]!]))
    return {
      ...this.#guard.report(),
      share: this.#guard.share,
      decisions,
      meanRegretMs: meanRegretMs as GuardStatus['meanRegretMs'],
    }
  }
}

/** Errors that say that the worker did not answer. */
const WORKERS_FAULTS: ReadonlySet<string> = new Set([
  'HOMING_DISPATCH_UPSTREAM_FAILED',
  'HOMING_DISPATCH_NO_ANSWER',
])

/** The worker failed the request, or refused it for want of room. A 4xx about a mistake is the client's. */
function isWorkersFault({ outcome, status, error }: Delivery): boolean {
  if (outcome !== 'error') return false
  return WORKERS_FAULTS.has(error?.code ?? '') || status === 429 || (status !== undefined && status >= 500)
}

function isFree(request: RoutingRequest, { preferences }: Candidates): boolean {
  const { pinnedInstanceId, pinnedRank, excludedWorkers, unknownPromptReason, override } = request
  return (
    pinnedInstanceId === undefined &&
    pinnedRank === undefined &&
    excludedWorkers.length === 0 &&
    unknownPromptReason === undefined &&
    preferences === undefined &&
    override.overlapWeight === undefined &&
    override.overlapCredit === undefined &&
    override.temperature === undefined
  )
}
