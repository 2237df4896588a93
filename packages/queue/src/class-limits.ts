/**
 * Class limits: what of one policy class may wait, by the number of workers, in all routers together. The
 * request that crosses a limit is accepted.
 *
 * Tenants share each limit: when it is reached, the tenant that holds most of it here for its weight makes
 * room, as in queue-room.ts; unless what waits at other routers alone reaches it.
 */

import type { PolicyClass } from './policy-classes.ts'
import type { TenantNames } from './tenant-names.ts'
import { type Claim, TenantShares } from './tenant-shares.ts'
import type { ClassLimitKind, QueueRefusal, WaitingElsewhere } from './types.ts'

type Reached = Extract<QueueRefusal, { readonly reason: 'class_limit' }>
/** Called when the request makes room for another: it must leave at once. */
type Displace = (refusal: Reached, nowMs: number) => void

/** What waits of the class here, and elsewhere. */
export interface ClassWaiting {
  readonly waitingRequests: number
  readonly waitingPromptTokens: number
  readonly waitingUncachedTokens: number
  readonly elsewhere: WaitingElsewhere
}

/** A request that asks for room. */
interface ClassRequest {
  readonly tenant: string
  readonly promptTokens: number
  readonly uncachedTokens: number
}

interface Limit {
  readonly kind: ClassLimitKind
  readonly perWorker: number
  readonly shares: TenantShares<Displace>
}

/** What one request holds of each limit. */
export type ClassPlace = readonly Claim<Displace>[]

export class ClassLimits {
  readonly #policyClass: string
  /** Those that are set. */
  readonly #limits: readonly Limit[]

  constructor(policy: PolicyClass, tenants: TenantNames) {
    const { name, requestsPerWorker, promptTokensPerWorker, cachedTokensPerWorker } = policy
    this.#policyClass = name
    this.#limits = (
      [
        ['requests', requestsPerWorker],
        ['raw_isl_tokens', promptTokensPerWorker],
        ['cached_tokens', cachedTokensPerWorker],
      ] as const
    ).flatMap(([kind, perWorker]) =>
      perWorker === undefined ? [] : [{ kind, perWorker, shares: new TenantShares<Displace>(tenants) }],
    )
  }

  /** Takes room for a request, or says which limit is reached. `displace` is called before `leave`. */
  take(
    request: ClassRequest,
    waiting: ClassWaiting,
    workers: number,
    nowMs: number,
    displace: Displace,
  ): ClassPlace | QueueRefusal {
    const place = this.#limits.map(({ shares }) => shares.open(request.tenant, displace))
    for (const [i, { kind, perWorker, shares }] of this.#limits.entries()) {
      const limit = perWorker * workers
      const current = () => hereOf(kind, waiting) + elsewhereOf(kind, waiting)
      const reached = (): Reached => {
        return {
          reason: 'class_limit',
          policyClass: this.#policyClass,
          limitKind: kind,
          current: current(),
          limit,
        }
      }
      // The request that crosses a limit is accepted, so less than the limit is enough.
      const missing = current() - limit + Number.EPSILON * Math.max(1, limit)
      if (current() < limit) continue
      const mayHelp = elsewhereOf(kind, waiting) < limit
      const displaceOne = ({ owner }: Claim<Displace>) => owner({ ...reached(), isDisplaced: true }, nowMs)
      if (mayHelp && shares.makeRoom(place[i]!, missing, displaceOne) && current() < limit) continue
      const refusal = reached()
      this.leave(place)
      return refusal
    }
    for (const [i, { kind, shares }] of this.#limits.entries()) {
      shares.add(place[i]!, amountOf(kind, request))
      shares.setMovable(place[i]!, true)
    }
    return place
  }

  leave(place: ClassPlace): void {
    for (const [i, { shares }] of this.#limits.entries()) shares.close(place[i]!)
  }
}

function amountOf(kind: ClassLimitKind, { promptTokens, uncachedTokens }: ClassRequest): number {
  if (kind === 'requests') return 1
  return kind === 'raw_isl_tokens' ? promptTokens : promptTokens - uncachedTokens
}

function hereOf(kind: ClassLimitKind, waiting: ClassWaiting): number {
  if (kind === 'requests') return waiting.waitingRequests
  const { waitingPromptTokens, waitingUncachedTokens } = waiting
  return kind === 'raw_isl_tokens' ? waitingPromptTokens : waitingPromptTokens - waitingUncachedTokens
}

function elsewhereOf(kind: ClassLimitKind, { elsewhere }: ClassWaiting): number {
  if (kind === 'requests') return elsewhere.requests
  const { promptTokens, uncachedTokens } = elsewhere
  return kind === 'raw_isl_tokens' ? promptTokens : promptTokens - uncachedTokens
}
