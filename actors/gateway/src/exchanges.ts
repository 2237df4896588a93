/**
 * Exchanges: the open exchanges, at most `openMax`, and the bytes of their bodies. Checks each of them
 * periodically, and ends all of them when the gateway ends.
 *
 * Shares. When the places or the bytes are taken, the tenant that holds most for its weight makes room
 * (TenantShares): its newest request that was not sent to a worker yet is refused with the reason. So a flood
 * of one tenant cannot keep the others out. Of several gateways, each has such requests of its own displaced.
 *
 *   state of the exchange   may be refused for a place   may be refused for bytes
 *   reading                 yes                          no: its reader still has them
 *   placing, not sent yet   yes                          yes
 *   sent, and all later     no                           no
 *
 * An exchange that is refused while it is being read gives up its place at once, and what is left of its body
 * is still read or times out. At most `openMax` do so; while there are as many, no further one is refused for
 * a place.
 *
 * A request that has ended counts as open until the router has accepted the message about its end
 * (placement.ts), so the number of those messages is bounded too.
 */

import type { ErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { ALONE, type Bodies, type BodyShare, type CommonCount } from '@homing/http'
import { type Claim, type TenantNames, TenantShares } from '@homing/queue'
import type { HttpExchange } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { MadeRoomError, TooManyExchangesError } from './errors.ts'
import { Exchange, type ExchangeParts } from './exchange.ts'
import type { CommonParts } from './exchange-parts.ts'
import { tenantOf } from './waiting-hints.ts'

/** Of eight gateways, each may be quicker once. */
const MAKE_ROOM_ATTEMPTS = 8
/** A little longer than from one look to the next. */
const SENT_WITHIN_MS = 1500
/** Longest time that a decision for a worker which has left is still on its way. */
const DECISION_MS_MAX = 10_000
/** Requests of workers that have drained for too long which are being offered to others. */
const OFFERS_MAX = 64

export interface ExchangesParts extends Omit<ExchangeParts, 'waits' | 'sent' | 'ended'> {
  readonly bodies: Bodies
  readonly openMax: number
  /** Of the open exchanges of all gateways; default: there is no other. */
  readonly common?: CommonCount
  readonly tenants: TenantNames
  /** HTTP status of refused requests that waited; default: that of the error. */
  readonly overloadStatus?: number | undefined
}

/** What an open exchange holds of what all share. */
class Place {
  readonly slot: Claim<Place>
  readonly body: Claim<Place>
  exchange: Exchange | undefined

  constructor(tenant: string, slots: TenantShares<Place>, bodyBytes: TenantShares<Place>) {
    this.slot = slots.open(tenant, this)
    this.body = bodyBytes.open(tenant, this)
  }
}

export class Exchanges {
  readonly #open = new Map<Exchange, Place>()
  /** Refused while they were being read, which is not over yet; also in `#open`. */
  readonly #leaving = new Set<Exchange>()
  readonly #openMax: number
  readonly #common: CommonCount
  readonly #overloadStatus: number | undefined
  readonly #bodies: Bodies
  readonly #slots: TenantShares<Place>
  readonly #bodyBytes: TenantShares<Place>
  readonly #parts: ExchangeParts
  #fleet: Fleet = { version: 0, workers: [] }
  /** Workers that have drained for as long as they may, by id, and when they left. */
  readonly #overdue = new Map<string, number>()
  /** Position, among the exchanges of such workers, of the one that is offered next. */
  #nextOffer = 0
  /** Those that are being offered. */
  #offers = 0

  constructor({ bodies, openMax, common = ALONE, tenants, overloadStatus, ...parts }: ExchangesParts) {
    this.#common = common
    this.#openMax = openMax
    this.#overloadStatus = overloadStatus
    this.#bodies = bodies
    this.#slots = new TenantShares(tenants)
    this.#bodyBytes = new TenantShares(tenants)
    this.#parts = {
      ...parts,
      waits: exchange => this.#bodyBytes.setMovable(this.#open.get(exchange)!.body, true),
      sent: exchange => this.#stays(this.#open.get(exchange)!),
      ended: exchange => this.#ended(exchange),
    }
  }

  get size(): number {
    return this.#open.size - this.#leaving.size + this.#parts.placements.untoldCount
  }

  /**
   * Throws TooManyExchangesError. `isOperators`: it is never refused to make room, because what it changes is
   * under way while it is being read. `own`: what it has other than all exchanges; default: nothing.
   */
  open(
    http: HttpExchange,
    route: string,
    note?: AccessNote,
    isOperators = false,
    own?: Partial<CommonParts>,
  ): Exchange {
    const place = new Place(tenantOf(http.headers), this.#slots, this.#bodyBytes)
    const { slot, body } = place
    if (!this.#hasRoom() && !this.#makeRoom(slot)) {
      this.#slots.close(slot)
      this.#bodyBytes.close(body)
      throw new TooManyExchangesError(this.#openMax)
    }
    this.#slots.add(slot, 1)
    const hold = this.#bodies.hold(this.#bodyShare(body))
    const parts = own === undefined ? this.#parts : { ...this.#parts, ...own }
    const exchange = new Exchange(parts, http, route, hold, note)
    place.exchange = exchange
    this.#open.set(exchange, place)
    this.#common.set(this.size)
    if (!isOperators) this.#slots.setMovable(slot, true)
    return exchange
  }

  /**
   * Gives up exchanges that take too long, sends signs of life (to the tracker those of the others, to the
   * directory those of workers), and repeats messages that found a mailbox full.
   */
  look(): void {
    this.#parts.placements.tellUntold()
    this.#common.set(this.size)
    this.#parts.lentBodies.look()
    const nowMs = this.#parts.context.clock.nowMs()
    for (const exchange of [...this.#open.keys()]) exchange.look(nowMs)
    this.#leaveOverdue(nowMs)
    const { progress, directory } = this.#parts
    const workerIds = progress.alive(nowMs - SENT_WITHIN_MS)
    if (workerIds.length > 0) directory.tell({ type: 'alive', workerIds })
  }

  /** `overdue`: workers that have left it and still have requests. Those that can go on elsewhere do. */
  takeFleet(fleet: Fleet, overdue: readonly string[]): void {
    const nowMs = this.#parts.context.clock.nowMs()
    this.#fleet = fleet
    for (const id of overdue) this.#overdue.set(id, nowMs)
    for (const { id } of fleet.workers) this.#overdue.delete(id)
    this.#leaveOverdue(nowMs)
  }

  /** Also later: other workers come up, and answers begin. Each exchange is offered in its turn. */
  #leaveOverdue(nowMs: number): void {
    if (this.#overdue.size === 0) return
    const served = new Set<string>()
    for (const { state, models } of this.#fleet.workers)
      if (state === 'up') for (const { name } of models) served.add(name)
    const overdue = [...this.#open.keys()].filter(({ workerId = '' }) => this.#overdue.has(workerId))
    const busy = new Set(overdue.map(({ workerId }) => workerId))
    for (let i = 0; i < overdue.length && this.#offers < OFFERS_MAX; i++) {
      const at = this.#nextOffer % overdue.length
      this.#nextOffer = at + 1
      const offered = overdue[at]!.leaveOverdue(model => served.has(model))
      if (offered === undefined) continue
      this.#offers++
      void offered.finally(() => this.#offers--)
    }
    for (const [id, sinceMs] of this.#overdue)
      if (!busy.has(id) && nowMs - sinceMs >= DECISION_MS_MAX) this.#overdue.delete(id)
  }

  endAll(error: ErrorRecord): void {
    for (const exchange of [...this.#open.keys()]) exchange.end(error)
  }

  #hasRoom(): boolean {
    return this.size + this.#common.others < this.#openMax
  }

  #makeRoom(slot: Claim<Place>): boolean {
    // Where messages find full mailboxes, the end of a request would free no place.
    if (this.#leaving.size >= this.#openMax || this.#parts.placements.untoldCount > 0) return false
    // Another gateway may take the place as soon as it is free.
    for (let attempt = 0; attempt < MAKE_ROOM_ATTEMPTS; attempt++) {
      const missing = this.size + this.#common.others + 1 - this.#openMax
      const isMade = this.#slots.makeRoom(slot, missing, displaced =>
        this.#refuse(displaced, '--max-open-requests'),
      )
      if (!isMade) return false
      if (this.#hasRoom()) return true
      if (this.#common.others === 0 || this.#parts.placements.untoldCount > 0) return false
    }
    return false
  }

  #bodyShare(body: Claim<Place>): BodyShare {
    const bytes = this.#bodyBytes
    return {
      holds: byteCount => bytes.add(body, byteCount),
      canMakeRoom: byteCount => bytes.canMakeRoom(body, byteCount),
      makeRoom: byteCount =>
        bytes.makeRoom(body, byteCount, displaced => this.#refuse(displaced, '--max-bodies-bytes')),
    }
  }

  /** Refuses a request that waits. */
  #refuse({ owner, account }: Claim<Place>, setting: string): void {
    const exchange = owner.exchange!
    this.#stays(owner)
    this.#slots.close(owner.slot)
    if (exchange.state === 'reading') this.#leaving.add(exchange)
    this.#common.set(this.size)
    this.#parts.metrics.madeRoom(setting)
    exchange.refuse(new MadeRoomError(account, setting, this.#overloadStatus))
  }

  #stays({ slot, body }: Place): void {
    this.#slots.setMovable(slot, false)
    this.#bodyBytes.setMovable(body, false)
  }

  #ended(exchange: Exchange): void {
    const place = this.#open.get(exchange)
    if (place === undefined) return
    this.#open.delete(exchange)
    this.#leaving.delete(exchange)
    this.#slots.close(place.slot)
    this.#bodyBytes.close(place.body)
    this.#common.set(this.size)
  }
}
