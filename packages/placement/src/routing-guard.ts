/**
 * Routing guard: the shadow costs and the guard beside the decisions of one router. They apply if mode kv
 * decides by the costs of `auto`.
 *
 * A decision is an experiment only if it is unconstrained: the request names and prefers no worker, brings no
 * weights, and is placed for the first time.
 */

import type { Random } from '@homing/base'
import {
  byShadow,
  type Candidates,
  type Choice,
  Guard,
  type GuardArm,
  type GuardedDecision,
  type GuardPhase,
  type GuardSettings,
  type GuardState,
  predictedFirstTokenMs,
  type SelectionSettings,
  type Selector,
  ShadowCosts,
} from '@homing/selection'
import type { Delivery, GuardReceipt, GuardStatus } from './receipt.ts'
import type { RoutingRequest } from './routing-request.ts'

/** The part of a delivery that the guard looks at. */
export type GuardedDelivery = Pick<
  Delivery,
  'outcome' | 'status' | 'completionTokens' | 'durationMs' | 'streamEvents' | 'error'
>

export interface RoutingGuardState {
  readonly guard: GuardState
  /** Worker keys by slot. */
  readonly names: readonly (readonly [workerSlot: number, worker: string])[]
}

export class RoutingGuard {
  /** By worker slot: the name of its worker key. */
  #names: ReadonlyMap<number, string> = new Map()
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
    const { controlShare } = guard
    const { terms } = choice
    shadows.find(input, terms, choice.winner)
    const { leastLoaded } = shadows
    let arm: GuardArm | undefined
    let extraTokens = 0
    if (isReal && leastLoaded !== choice.winner && isFree(request, input)) {
      const { cost, newTokens } = terms
      const extraMs = cost[leastLoaded]! - cost[choice.winner]!
      extraTokens = Math.max(0, newTokens[leastLoaded]! - newTokens[choice.winner]!)
      const chance = guard.experimentChance(extraMs)
      arm = guard.draw(this.#random, chance)
      selector.divert(leastLoaded, chance * controlShare, arm === 'control')
    }
    shadows.score(terms, choice.winner)
    return {
      arm,
      phase: guard.phase,
      controlShare,
      predictedFirstTokenMs: predictedFirstTokenMs(choice, choice.winner),
      extraTokens: arm === undefined ? 0 : extraTokens,
      regretMs: byShadow(shadows.regrets),
    }
  }

  /** Counts a decision that was made and booked at the worker key of this slot. */
  decided(
    { arm, predictedFirstTokenMs: predictedMs, extraTokens, regretMs }: GuardReceipt,
    promptTokens: number,
    nowMs: number,
    workerSlot?: number,
  ): GuardedDecision {
    this.#shadows.count(regretMs)
    return this.#guard.decided({ arm, promptTokens, predictedMs, extraTokens, workerSlot }, nowMs)
  }

  firstToken(guarded: GuardedDecision | undefined, firstTokenMs: number, nowMs: number): void {
    if (guarded !== undefined) this.#guard.firstToken(guarded, firstTokenMs, nowMs)
  }

  /** A decision has ended. Undefined: it was forgotten, so its end will not be known. */
  ended(guarded: GuardedDecision | undefined, delivery: GuardedDelivery | undefined, nowMs: number): void {
    if (guarded === undefined) return
    if (delivery?.outcome === 'ok') {
      const { durationMs, streamEvents, completionTokens: outputTokens = streamEvents ?? 0 } = delivery
      const isStream = streamEvents !== undefined
      this.#guard.finished(guarded, { durationMs, outputTokens, isStream }, nowMs)
    } else if (delivery !== undefined && isWorkersFault(delivery)) this.#guard.failed(guarded, nowMs)
    else this.#guard.gone(guarded)
  }

  audited(
    guarded: GuardedDecision | undefined,
    predictedTokens: number,
    cachedTokens: number | undefined,
  ): void {
    if (guarded !== undefined && cachedTokens !== undefined)
      this.#guard.audited(predictedTokens, cachedTokens)
  }

  /** The worker keys that exist, by slot. Forgets the outcomes of all others. */
  keepOnly(names: ReadonlyMap<number, string>): void {
    const kept = [...names].filter(([slot, name]) => this.#names.get(slot) === name)
    this.#names = names
    this.#guard.keepOnly(new Set(kept.map(([slot]) => slot)))
  }

  get phase(): GuardPhase {
    return this.#guard.phase
  }

  get status(): GuardStatus {
    const { decisions, meanRegrets } = this.#shadows
    const { workers, ...report } = this.#guard.report()
    return {
      ...report,
      share: this.#guard.share,
      decisions,
      meanRegretMs: byShadow(meanRegrets),
      workers: workers.flatMap(({ workerSlot, ...outcomes }) => {
        const worker = this.#names.get(workerSlot)
        return worker === undefined ? [] : [{ worker, ...outcomes }]
      }),
    }
  }

  /** What `restore` of another guard takes: everything that outlives a restart of the owner. */
  get state(): RoutingGuardState {
    return { guard: this.#guard.state, names: [...this.#names] }
  }

  /** Only before any decision. */
  restore({ guard, names }: RoutingGuardState): void {
    this.#guard.restore(guard)
    this.#names = new Map(names)
  }
}

/** Errors that say that the worker did not answer. */
const WORKERS_FAULTS: ReadonlySet<string> = new Set([
  'HOMING_DISPATCH_UPSTREAM_FAILED',
  'HOMING_DISPATCH_NO_ANSWER',
])

/**
 * The worker failed the request, also inside a stream, or refused it for want of room. A 4xx about a mistake
 * is the client's.
 */
function isWorkersFault({ outcome, status = 0, error }: GuardedDelivery): boolean {
  if (outcome !== 'error') return false
  if (error !== undefined && WORKERS_FAULTS.has(error.code)) return true
  return status === 429 || status >= 500 || (error === undefined && status >= 200 && status < 300)
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
