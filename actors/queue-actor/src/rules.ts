/** Rules: from what was set to the policy classes of a model, and to when its requests wait. */

import {
  type PolicyClass,
  type PolicyFile,
  type PolicyProfile,
  policyClassOf,
  type QueueOrder,
  singleClassProfile,
} from '@homing/queue'
import type { RoomRule, RoutingRequest } from '@homing/router'

/** What was set. */
export interface QueueRules {
  /**
   * A worker is past it with more prefill tokens than this part of its step; 'step': with a step or more queued before the request, by
   * what the load model says; undefined: nothing waits, except where `classes` say otherwise.
   */
  readonly threshold: number | 'step' | undefined
  readonly order: QueueOrder
  /** Policy classes; undefined: one class for all. */
  readonly classes: PolicyFile | undefined
}

/** The classes of one model, and when requests of each wait. */
export class ModelRules {
  readonly profile: PolicyProfile
  /** False: nothing of this model ever waits. */
  readonly mayWait: boolean
  readonly #threshold: QueueRules['threshold']
  readonly #byFamily = new Map<string, readonly RoomRule[]>()
  readonly #byClass: ReadonlyMap<string, readonly RoomRule[]>

  constructor(model: string, { threshold, order, classes }: QueueRules) {
    this.#threshold = threshold
    this.profile = classes?.models.get(model) ?? classes?.profile ?? singleClassProfile(order)
    this.#byClass = new Map(this.profile.classes.map(one => [one.name, [this.#rule(one, 0)]]))
    this.mayWait = [...this.#byClass.values()].some(
      ([rule]) => rule!.byStep || rule!.busyFraction !== undefined || rule!.busyTokens !== undefined,
    )
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

/** Requests that the same workers may take share a lane. */
export function laneOf({
  pinnedInstanceId,
  pinnedRank,
  constraints,
  excludedWorkers,
}: RoutingRequest): string {
  const allowed = constraints?.allowedInstanceIds
  const required = constraints?.requiredTaints ?? []
  const isAny =
    pinnedInstanceId === undefined &&
    pinnedRank === undefined &&
    allowed === undefined &&
    required.length === 0 &&
    excludedWorkers.length === 0
  if (isAny) return ''
  return JSON.stringify([pinnedInstanceId, pinnedRank, allowed, required, excludedWorkers])
}
