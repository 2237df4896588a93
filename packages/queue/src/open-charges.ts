/**
 * Open charges: requests that were placed by an estimate of their prompt. Once their engine has counted it,
 * class and tenant are charged the difference, in either direction.
 *
 *   placed, charged the estimate ──settled──▶ charged what the engine counted, at most `tokensMax`
 *                                └─▶ stays as estimated: the engine says nothing, or the gateway is gone
 *
 * A charge that nothing settles stays as estimated once there are more than `chargesMax`.
 */

import type { ClassAccount, LevelOfEntry } from './entry.ts'
import type { Tenant } from './tenant.ts'
import type { CountedPrompt, QueueRequest } from './types.ts'

/** Requests that engines work on at one time, with room to spare. */
export const CHARGES_MAX = 65_536

/** A request that was charged an estimate. */
export interface OpenCharge {
  readonly request: QueueRequest
  readonly policyClass: ClassAccount
  readonly tenant: Tenant
  /** Where its turn was taken; undefined: it never waited, so no turn was charged. */
  readonly turn: { readonly level: LevelOfEntry; readonly flows: object } | undefined
}

export class OpenCharges {
  readonly #chargesMax: number
  /** The tenant has one open charge less. */
  readonly #ended: (tenant: Tenant, nowMs: number) => void
  /** In order of placement. */
  readonly #byId = new Map<string, OpenCharge>()

  constructor(chargesMax: number, ended: (tenant: Tenant, nowMs: number) => void) {
    this.#chargesMax = chargesMax
    this.#ended = ended
  }

  get count(): number {
    return this.#byId.size
  }

  /** Its id is that of no open charge. Returns the oldest charge if that has no place any more. */
  open(charge: OpenCharge, nowMs: number): OpenCharge | undefined {
    const { request, tenant } = charge
    this.#byId.set(request.id, charge)
    tenant.openCharges++
    if (this.#byId.size <= this.#chargesMax) return undefined
    const [oldest] = this.#byId.keys()
    return this.close(oldest!, nowMs)
  }

  /** Takes a charge out; undefined: there is none of this id. */
  close(id: string, nowMs: number): OpenCharge | undefined {
    const charge = this.#byId.get(id)
    if (charge === undefined) return undefined
    this.#byId.delete(id)
    charge.tenant.openCharges--
    this.#ended(charge.tenant, nowMs)
    return charge
  }

  /** Ids of what the owner placed in another life. */
  idsOfOtherLives(owner: string, life: string): string[] {
    const ids: string[] = []
    for (const [id, { request }] of this.#byId)
      if (request.owner === owner && request.ownerLife !== life) ids.push(id)
    return ids
  }
}

/**
 * Uncached tokens of a prompt that was estimated, by what its engine says. The cached part is the larger of
 * the predicted and the reported one: a tenant does not pay for a worker that was chosen in spite of its
 * cache. Undefined: what the engine says makes no sense.
 */
export function countedTokens(
  { promptTokens, uncachedTokens, estimate }: QueueRequest,
  counted: CountedPrompt,
): number | undefined {
  const { promptTokens: said, cachedTokens = 0 } = counted
  if (!(said >= 0 && said < Number.POSITIVE_INFINITY)) return undefined
  const tokens = Math.min(Math.round(said), estimate?.tokensMax ?? promptTokens)
  const isPredicted = estimate?.isUnpredicted !== true && promptTokens > 0
  const predicted = isPredicted ? 1 - uncachedTokens / promptTokens : 0
  const reported = cachedTokens >= 0 && cachedTokens <= said && said > 0 ? cachedTokens / said : 0
  return Math.round(tokens * (1 - Math.max(predicted, reported)))
}
