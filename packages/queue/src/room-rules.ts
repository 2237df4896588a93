/**
 * Room rules: turns settings into the policy classes of a model and the conditions under which its requests
 * wait. Router and simulator use the same rules.
 */

import type { QueueOrder } from './orders.ts'
import type { PolicyFile } from './policy-class-file.ts'
import { type PolicyClass, type PolicyProfile, policyClassOf, singleClassProfile } from './policy-classes.ts'

export type Thresholds = Pick<PolicyClass, 'busyTokens' | 'busyFraction'>

/** What is known of an eligible worker. */
export interface PrefillLoad {
  readonly activePrefillTokens: number
  /** Its token budget for one step; undefined: not known. */
  readonly batchedTokensMax: number | undefined
}

/**
 * 'room': some worker is not past the threshold, or there is no threshold, or no worker. 'past': all workers
 * are past it. 'unknown': all would be but for workers whose token budget is not known, so the threshold
 * holds nothing back.
 */
export type ThresholdState = 'room' | 'past' | 'unknown'

/**
 * A request must wait when every eligible worker is past this rule. Without any of the three limits no worker
 * is ever past it.
 */
export interface RoomRule extends Thresholds {
  /** Applies to requests with at least so many uncached tokens. */
  readonly uncachedTokensMin: number
  /**
   * A worker is past it, too, if an engine step or more of prefill is queued there, by what the load model
   * says.
   */
  readonly byStep: boolean
}

/** What is known of an eligible worker. */
export interface WorkerRoom extends PrefillLoad {
  readonly batchedTokensMax: number
  /** Tokens that are queued there, by what the load model says; undefined: there is no load model. */
  readonly queuedTokens: number | undefined
}

/** What was set. */
export interface QueueRules {
  /**
   * A worker is past it with more prefill tokens than this part of its step; 'step': with a step or more
   * queued before the request, by what the load model says; undefined: nothing waits, except where `classes`
   * say otherwise.
   */
  readonly threshold: number | 'step' | undefined
  readonly order: QueueOrder
  /** Policy classes; undefined: one class for all. */
  readonly classes: PolicyFile | undefined
}

/** Steps of an engine: what `auto` means for policies that do not learn. */
const THRESHOLD_OF_OTHERS = 2

/**
 * What a threshold means as it was set, or was not; `isAuto`: under the policy auto, which has a load model;
 * `hasWeights`: tenants have weights, which would mean nothing if nothing waited.
 */
export function thresholdOf(
  given: 'none' | 'auto' | number | undefined,
  isAuto: boolean,
  hasWeights: boolean,
): QueueRules['threshold'] {
  if (given === 'none') return undefined
  if (typeof given === 'number') return given
  if (isAuto) return 'step'
  return given === 'auto' || hasWeights ? THRESHOLD_OF_OTHERS : undefined
}

/** What an order means as it was set. */
export function orderOf(given: QueueOrder | 'auto', isAuto: boolean): QueueOrder {
  if (given !== 'auto') return given
  return isAuto ? 'response-ratio' : 'fcfs'
}

/** Whether requests of a class have to wait, by the load of all eligible workers. */
export function thresholdState(policyClass: Thresholds, workers: Iterable<PrefillLoad>): ThresholdState {
  const { busyTokens, busyFraction } = policyClass
  if (busyTokens === undefined && busyFraction === undefined) return 'room'
  let state: ThresholdState | undefined
  for (const { activePrefillTokens, batchedTokensMax } of workers) {
    if (busyTokens !== undefined && activePrefillTokens > busyTokens) {
      state ??= 'past'
    } else if (busyFraction !== undefined && batchedTokensMax === undefined) {
      state = 'unknown'
    } else if (busyFraction !== undefined && activePrefillTokens > busyFraction * batchedTokensMax!) {
      state ??= 'past'
    } else {
      return 'room'
    }
  }
  return state ?? 'room'
}

/**
 * Whether all of `count` workers are past the rule for a request with so many uncached tokens; the first with
 * room is the last looked at. Nothing of the request but its size class counts: where one finds no room, none
 * of its class does, so its lane may be closed.
 */
export function mustWait(
  rules: readonly RoomRule[],
  uncachedTokens: number,
  count: number,
  workerAt: (index: number) => WorkerRoom,
): boolean {
  const rule = rules.findLast(({ uncachedTokensMin }) => uncachedTokens >= uncachedTokensMin)
  if (rule === undefined || count === 0) return false
  for (let i = 0; i < count; i++) if (!isPast(rule, workerAt(i))) return false
  return true
}

function isPast(rule: RoomRule, worker: WorkerRoom): boolean {
  const { queuedTokens, batchedTokensMax } = worker
  if (rule.byStep && queuedTokens !== undefined) return queuedTokens >= batchedTokensMax
  return thresholdState(rule, [worker]) === 'past'
}

/** The classes of one model, and when requests of each wait. */
export class ModelRules {
  readonly profile: PolicyProfile
  /** False: nothing of this model ever waits. */
  readonly mayWait: boolean
  /** A threshold is a part of what an engine computes in a step, as it says or as is assumed. */
  readonly isInSteps: boolean
  readonly #threshold: QueueRules['threshold']
  readonly #byFamily = new Map<string, readonly RoomRule[]>()
  readonly #byClass: ReadonlyMap<string, readonly RoomRule[]>

  constructor(model: string, { threshold, order, classes }: QueueRules) {
    this.#threshold = threshold
    this.profile = classes?.models.get(model) ?? classes?.profile ?? singleClassProfile(order)
    this.#byClass = new Map(this.profile.classes.map(one => [one.name, [this.#rule(one, 0)]]))
    const rules = [...this.#byClass.values()].flat()
    this.isInSteps = rules.some(({ busyFraction }) => busyFraction !== undefined)
    this.mayWait =
      this.isInSteps || rules.some(({ byStep, busyTokens }) => byStep || busyTokens !== undefined)
  }

  classOf(family: string | undefined, uncachedTokens: number): string {
    return policyClassOf(this.profile, family, uncachedTokens)
  }

  /** Of a request whose uncached tokens are not known yet. */
  ofFamily(given: string | undefined): readonly RoomRule[] {
    const { classes, defaultFamily, buckets } = this.profile
    // Clients cannot make up further ones.
    const isKnown = classes.some(({ name, family }) => given === (family ?? name))
    const family = isKnown ? given! : defaultFamily
    let rules = this.#byFamily.get(family)
    if (rules === undefined) {
      rules = buckets.map(({ tokensMin }) => {
        const name = this.classOf(family, tokensMin)
        return this.#rule(classes.find(one => one.name === name)!, tokensMin)
      })
      this.#byFamily.set(family, rules)
    }
    return rules
  }

  ofClass(policyClass: string): readonly RoomRule[] {
    return this.#byClass.get(policyClass)!
  }

  #rule({ busyTokens, busyFraction }: PolicyClass, uncachedTokensMin: number): RoomRule {
    const threshold = this.#threshold
    const hasOwn = busyTokens !== undefined || busyFraction !== undefined
    if (hasOwn) return { uncachedTokensMin, byStep: false, busyTokens, busyFraction }
    if (threshold === 'step') return { uncachedTokensMin, byStep: true }
    return { uncachedTokensMin, byStep: false, busyFraction: threshold }
  }
}
