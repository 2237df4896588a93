/**
 * Queue room: what may wait in all queues of a process together, in requests, tokens and bytes.
 *
 * Tenants share it: when a bound is reached, the tenant that holds most of that kind for its weight makes
 * room for one that holds less, with its newest request (tenant-shares.ts).
 */

import { TenantNames } from './tenant-names.ts'
import { type Claim, TenantShares } from './tenant-shares.ts'
import type { QueueRefusal } from './types.ts'

export interface QueueRoomOptions {
  /** Default 100,000. */
  readonly requestsMax?: number
  /** Tokens of prompts; default 2³¹. */
  readonly tokensMax?: number
  /** Default 1 GiB. */
  readonly bytesMax?: number
  /** Default: each tenant has the same share. */
  readonly tenants?: TenantNames
}

/** A request that asks for room. */
export interface RoomRequest {
  readonly tenant: string
  readonly promptTokens: number
  readonly bytes: number
  /** Takes room past the bounds, and makes none for others: default false. */
  readonly isContinued?: boolean
}

const KINDS = ['requests', 'tokens', 'bytes'] as const
type Kind = (typeof KINDS)[number]
type Full = Extract<QueueRefusal, { readonly reason: 'queue_full' }>

/** Called when the request makes room for another: it must leave at once. */
type Displace = (refusal: Full, nowMs: number) => void

/** The room that one request holds. */
export type RoomPlace = Readonly<Record<Kind, Claim<Displace>>>

const QUEUED_REQUESTS_MAX_DEFAULT = 100_000
const TOKENS_MAX_DEFAULT = 2 ** 31
const BYTES_MAX_DEFAULT = 2 ** 30

export class QueueRoom {
  readonly requestsMax: number
  readonly tokensMax: number
  readonly bytesMax: number
  readonly #shares: Readonly<Record<Kind, TenantShares<Displace>>>
  readonly #held = { requests: 0, tokens: 0, bytes: 0 }
  readonly #max: Readonly<Record<Kind, number>>

  /** Throws RangeError for bounds that are not whole numbers ≥ 0. */
  constructor(options: QueueRoomOptions = {}) {
    this.requestsMax = bound('requestsMax', options.requestsMax ?? QUEUED_REQUESTS_MAX_DEFAULT)
    this.tokensMax = bound('tokensMax', options.tokensMax ?? TOKENS_MAX_DEFAULT)
    this.bytesMax = bound('bytesMax', options.bytesMax ?? BYTES_MAX_DEFAULT)
    this.#max = { requests: this.requestsMax, tokens: this.tokensMax, bytes: this.bytesMax }
    const tenants = options.tenants ?? new TenantNames(new Map(), 'own')
    this.#shares = {
      requests: new TenantShares(tenants),
      tokens: new TenantShares(tenants),
      bytes: new TenantShares(tenants),
    }
  }

  get requests(): number {
    return this.#held.requests
  }

  get tokens(): number {
    return this.#held.tokens
  }

  get bytes(): number {
    return this.#held.bytes
  }

  /**
   * Takes room for a request, or says which bound it would pass: these, unlike the limits of classes, are
   * never passed. `displace` is called at most once, before `leave`.
   */
  take(request: RoomRequest, nowMs: number, displace: Displace): RoomPlace | QueueRefusal {
    const { tenant, promptTokens, bytes, isContinued = false } = request
    const amounts = { requests: 1, tokens: promptTokens, bytes }
    const place = {
      requests: this.#shares.requests.open(tenant, displace),
      tokens: this.#shares.tokens.open(tenant, displace),
      bytes: this.#shares.bytes.open(tenant, displace),
    }
    // No request makes room for one that another kind of bound keeps out.
    const full = isContinued
      ? undefined
      : (KINDS.find(kind => !this.#canTake(kind, place[kind], amounts[kind])) ??
        KINDS.find(kind => !this.#makesRoom(kind, place[kind], amounts[kind], nowMs)))
    if (full !== undefined) {
      const refusal = this.#full(full)
      this.leave(place)
      return refusal
    }
    for (const kind of KINDS) {
      this.#held[kind] += amounts[kind]
      this.#shares[kind].add(place[kind], amounts[kind])
      this.#shares[kind].setMovable(place[kind], !isContinued)
    }
    return place
  }

  leave(place: RoomPlace): void {
    for (const kind of KINDS) {
      this.#held[kind] -= place[kind].amount
      this.#shares[kind].close(place[kind])
    }
  }

  #missing(kind: Kind, amount: number): number {
    return this.#held[kind] + amount - this.#max[kind]
  }

  #canTake(kind: Kind, claim: Claim<Displace>, amount: number): boolean {
    const missing = this.#missing(kind, amount)
    return missing <= 0 || this.#shares[kind].canMakeRoom(claim, missing)
  }

  #makesRoom(kind: Kind, claim: Claim<Displace>, amount: number, nowMs: number): boolean {
    const missing = this.#missing(kind, amount)
    if (missing <= 0) return true
    const displace = ({ owner }: Claim<Displace>) => owner({ ...this.#full(kind), isDisplaced: true }, nowMs)
    return this.#shares[kind].makeRoom(claim, missing, displace) && this.#missing(kind, amount) <= 0
  }

  #full(limitKind: Kind): Full {
    return {
      reason: 'queue_full',
      limitKind,
      current: this.#held[limitKind],
      limit: this.#max[limitKind],
    }
  }
}

function bound(name: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`cannot bound a queue by ${name} ${value}: use a whole number ≥ 0`)
  }
  return value
}
