/**
 * PriorityQueue: the requests for one model that ask for a placement, and which of them goes next. It never
 * decides where a request goes.
 *
 *   admit ──▶ ask ◀── take ── waiting          the caller asks the router, and reports the answer
 *              │                 ▲
 *              ├── busy ─────────┘             busy: no room; its lane is closed until `reopen`
 *              └── placed ──▶ gone             placed: it has a worker
 *   cancel, expire, drop, displaced: gone from either
 *
 * Which goes next: the highest strict priority, unless a lower one starves (strict-priorities.ts); in it, the
 * policy class whose turn it is (strict-priority.ts); in that, the tenant with the least service by weight
 * (fair-flows.ts); of its requests, the first by the order of the class (orders.ts). A request that cannot go
 * now, because its lane is closed or the rule for long prompts holds it (tenants.ts), is passed over and does
 * not hold up requests in other lanes.
 *
 * Invariants
 *   I1  Every admitted request ends exactly once: placed, refused by `busy`, given back by cancel, expire or
 *       drop, or displaced because another tenant needs its room.
 *   I2  While requests wait, `take` returns one unless all of them are in closed lanes or held by the rule
 *       for long prompts.
 *   I3  A request is asked about by one `ask` or `take` at a time; several different requests may be asked
 *       about at once.
 *   I4  If a lane is reopened after a request was asked about, it stays open when the answer is busy: the
 *       room may have appeared after the router looked.
 *
 * Cost   O(log n) per call, plus what fair-flows.ts states for closed lanes and bands, and
 *        strict-priorities.ts for strict priorities.
 *        `drop` and `snapshot` look at everything.
 */

import { STEP_TOKENS_DEFAULT } from '@homing/load'
import { ClassLimits } from './class-limits.ts'
import { DrainRate } from './drain-rate.ts'
import {
  AGE_SLOT,
  ClassAccount,
  DEADLINE_SLOT,
  Entry,
  LaneTable,
  NOTHING_ELSEWHERE,
  strictPriorityOf,
} from './entry.ts'
import { expectedWaitMs } from './expected-wait.ts'
import { checkFigures, positive } from './figures.ts'
import { IndexedHeap } from './indexed-heap.ts'
import { LongPrompts } from './long-prompts.ts'
import { CHARGES_MAX, countedTokens, type OpenCharge, OpenCharges } from './open-charges.ts'
import { CONTENTION_MS_DEFAULT, PASSED_OVER_MAX_DEFAULT, type PriorityQueueOptions } from './queue-options.ts'
import type { QueueRoom } from './queue-room.ts'
import { AGING_MS_DEFAULT } from './queue-times.ts'
import { snapshotOf } from './snapshot.ts'
import { StrictPriorities } from './strict-priorities.ts'
import type { Tenant } from './tenant.ts'
import { TENANTS_MAX_DEFAULT, TenantNames } from './tenant-names.ts'
import { TenantTable } from './tenants.ts'
import type {
  Admission,
  CountedPrompt,
  Outlook,
  QueueRefusal,
  QueueRequest,
  QueueSnapshot,
  WaitingElsewhere,
  WaitReason,
} from './types.ts'

export class PriorityQueue<R extends QueueRequest = QueueRequest> {
  readonly #room: QueueRoom
  readonly #displaced: NonNullable<PriorityQueueOptions['displaced']>
  #stepTokens: number = STEP_TOKENS_DEFAULT
  readonly #agingMs: number
  readonly #classes: readonly ClassAccount[]
  readonly #laneTables: readonly LaneTable[]
  readonly #classByName: ReadonlyMap<string, ClassAccount>
  readonly #tenants: TenantTable
  readonly #longPrompts: LongPrompts
  readonly #charges: OpenCharges
  readonly #drain = new DrainRate()
  #workers = 0

  readonly #entries = new Map<string, Entry<R>>()
  readonly #levels: StrictPriorities
  readonly #byDeadline = new IndexedHeap<Entry<R>>(
    DEADLINE_SLOT,
    (a, b) => a.deadlineMs < b.deadlineMs || (a.deadlineMs === b.deadlineMs && a.sequence < b.sequence),
  )
  /** Those that may age. */
  readonly #byAge = new IndexedHeap<Entry<R>>(
    AGE_SLOT,
    (a, b) => a.arrivedMs < b.arrivedMs || (a.arrivedMs === b.arrivedMs && a.sequence < b.sequence),
  )
  #sequence = 0
  #waiting = 0
  #waitingBytes = 0

  /** Throws RangeError for options out of range. */
  constructor(options: PriorityQueueOptions) {
    const { profile, room, tenantWeights = new Map<string, number>() } = options
    this.#room = room
    this.#displaced = options.displaced ?? (() => {})
    this.setStepTokens(options.stepTokens ?? STEP_TOKENS_DEFAULT)
    this.#agingMs = positive('agingMs', options.agingMs ?? AGING_MS_DEFAULT)
    const passedOverMax = positive('passedOverMax', options.passedOverMax ?? PASSED_OVER_MAX_DEFAULT)
    for (const weight of tenantWeights.values()) positive('a tenant weight', weight)
    for (const { quantum } of profile.classes) positive('a quantum', quantum)
    const names = new TenantNames(tenantWeights, options.unnamedTenants ?? 'own')
    const lanes = new Map<string, LaneTable>()
    this.#classes = profile.classes.map((policy, index) => {
      const threshold = `${policy.busyTokens} ${policy.busyFraction}`
      const ofThreshold = lanes.get(threshold) ?? new LaneTable()
      lanes.set(threshold, ofThreshold)
      return new ClassAccount(policy, index, ofThreshold, new ClassLimits(policy, names))
    })
    this.#laneTables = [...lanes.values()]
    this.#classByName = new Map(this.#classes.map(account => [account.policy.name, account]))
    this.#tenants = new TenantTable({
      tenantsMax: positive('tenantsMax', options.tenantsMax ?? TENANTS_MAX_DEFAULT),
      names,
      contentionMs: positive('contentionMs', options.contentionMs ?? CONTENTION_MS_DEFAULT),
    })
    this.#levels = new StrictPriorities(this.#classes, this.#tenants, passedOverMax)
    this.#longPrompts = new LongPrompts(this.#tenants)
    const chargesMax = positive('chargesMax', options.chargesMax ?? CHARGES_MAX)
    this.#charges = new OpenCharges(chargesMax, (tenant, nowMs) => this.#tenants.changed(tenant, nowMs))
    this.setWorkers(options.workers)
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#waiting
  }

  /**
   * A request has come. RangeError for a class that there is not, and for figures that no caller should have.
   */
  admit(request: R, nowMs: number): Admission {
    const policyClass = this.#classOf(request)
    const tenant = this.#tenants.of(request.tenant, nowMs)
    const admission = this.#admit(request, policyClass, tenant, nowMs)
    this.#tenants.changed(tenant, nowMs)
    return admission
  }

  /**
   * The next request that may go: ask the router about it, then say `placed` or `busy`. undefined: none can
   * go now. Call `expire` before: a request past its deadline may still be taken.
   */
  take(nowMs: number): R | undefined {
    if (this.#waiting === 0) return undefined
    this.#wake(nowMs)
    const entry = this.#levels.take(nowMs) as Entry<R> | undefined
    if (entry === undefined) return undefined
    this.#stopsWaiting(entry, nowMs)
    this.#ask(entry, nowMs)
    return entry.request
  }

  /**
   * Of a request that is asked about: it is to be sent in slices, and this one is only for the first. The
   * worker keys that compute a long prompt of its tenant, of which each gets one at a time; undefined: it is
   * sent whole.
   */
  sliced(id: string): readonly string[] | undefined {
    const entry = this.#entries.get(id)
    return entry?.isSliced === true ? this.#tenants.longPromptWorkers(entry.tenant) : undefined
  }

  /** The request has a worker. False: it is not asked about; it was cancelled, so take its placement back. */
  placed(id: string, worker: string, nowMs: number): boolean {
    const entry = this.#entries.get(id)
    if (entry === undefined || !entry.isAsked) return false
    this.#asked(entry, -1)
    const { request, level, policyClass, tenant, isSliced } = entry
    let flows: object | undefined
    if (level !== undefined) {
      this.#drain.drained(entry.uncachedTokens, nowMs)
      this.#levels.placed(level)
      level.settle(entry, true)
      flows = level.flowsOf(policyClass)
    }
    const turn = level === undefined || flows === undefined ? undefined : { level, flows }
    // It was charged for a slice, and is sent whole.
    if (entry.maySlice && !isSliced && turn !== undefined)
      turn.level.correct(policyClass, turn.flows, tenant, entry.uncachedTokens - entry.costTokens)
    this.#served(
      { request, policyClass, tenant, turn },
      worker,
      nowMs,
      isSliced ? entry.costTokens : undefined,
    )
    this.#forget(entry, nowMs)
    return true
  }

  /**
   * A request was placed without `admit`, because nothing waited: it counts as served. RangeError as for
   * `admit`.
   */
  placedAtOnce(request: R, worker: string, nowMs: number): void {
    const policyClass = this.#classOf(request)
    const tenant = this.#tenants.of(request.tenant, nowMs)
    this.#served({ request, policyClass, tenant, turn: undefined }, worker, nowMs)
    this.#tenants.changed(tenant, nowMs)
  }

  /**
   * The router has no room for the request: it waits, and its lane is closed. It is refused if it may not
   * wait. undefined: it is not asked about. `laneName`: the lane in which it waits from now on, if the
   * workers that may take it have changed; its turn stays.
   */
  busy(id: string, nowMs: number, laneName?: string): 'waiting' | QueueRefusal | undefined {
    const entry = this.#entries.get(id)
    if (entry === undefined || !entry.isAsked) return undefined
    const { level } = entry
    this.#asked(entry, -1)
    const wasReopened = entry.lane.openings !== entry.openingsAsked
    if (laneName !== undefined && laneName !== entry.lane.name) this.#changeLane(entry, laneName)
    let refusal: QueueRefusal | undefined
    if (entry.deadlineMs <= nowMs) {
      refusal = refuse(entry.policyClass, entry.tenant, { reason: 'deadline' })
      level?.settle(entry, false)
    } else if (level === undefined) {
      refusal = this.#park(entry, nowMs)
    } else {
      level.putBack(entry)
      this.#startsWaiting(entry, nowMs)
    }
    if (refusal !== undefined) {
      this.#forget(entry, nowMs)
      return refusal
    }
    if (!wasReopened) entry.lane.isClosed = true
    return 'waiting'
  }

  /** Takes a request back, wherever it is; undefined: it is not here. */
  cancel(id: string, nowMs: number): R | undefined {
    const entry = this.#entries.get(id)
    if (entry === undefined) return undefined
    if (entry.isAsked) {
      this.#asked(entry, -1)
      entry.level?.settle(entry, false)
    } else {
      entry.level!.remove(entry)
      this.#stopsWaiting(entry, nowMs)
    }
    this.#forget(entry, nowMs)
    return entry.request
  }

  /**
   * Takes back every request that waits past its deadline, the earliest deadline first; each is to be refused
   * with 'deadline'.
   */
  expire(nowMs: number): R[] {
    const expired: R[] = []
    for (let entry = this.#byDeadline.first; entry !== undefined; entry = this.#byDeadline.first) {
      if (entry.deadlineMs > nowMs) break
      refuse(entry.policyClass, entry.tenant, { reason: 'deadline' })
      this.cancel(entry.request.id, nowMs)
      expired.push(entry.request)
    }
    return expired
  }

  /**
   * Takes back all requests for which `isDropped`, in order of admission: a gateway's life is over, a worker
   * with pins is gone.
   */
  drop(isDropped: (request: R) => boolean, nowMs: number): R[] {
    const dropped: R[] = []
    for (const { request } of this.#entries.values()) if (isDropped(request)) dropped.push(request)
    for (const { id } of dropped) this.cancel(id, nowMs)
    return dropped
  }

  /** There may be room in a lane again; without a name: in all. */
  reopen(laneName?: string): void {
    for (const lanes of this.#laneTables) lanes.open(laneName)
  }

  /** How many worker keys serve the model: limits of classes and the rule for long prompts go by it. */
  setWorkers(workers: number): void {
    if (!Number.isSafeInteger(workers) || workers < 0) {
      throw new RangeError(`cannot count ${workers} workers: use a whole number ≥ 0`)
    }
    this.#workers = workers
    this.#tenants.setWorkers(workers)
  }

  /**
   * What waits at other routers of the same workers, by policy class: with what waits here it counts towards
   * the limits of classes.
   */
  setElsewhere(waiting: ReadonlyMap<string, WaitingElsewhere>): void {
    for (const account of this.#classes) {
      account.elsewhere = waiting.get(account.policy.name) ?? NOTHING_ELSEWHERE
    }
  }

  /** By policy class; those of which something waits. */
  *waitingByClass(): Iterable<WaitingElsewhere & { readonly policyClass: string }> {
    for (const { policy, waitingRequests, waitingPromptTokens, waitingUncachedTokens } of this.#classes) {
      if (waitingRequests === 0) continue
      yield {
        policyClass: policy.name,
        requests: waitingRequests,
        promptTokens: waitingPromptTokens,
        uncachedTokens: waitingUncachedTokens,
      }
    }
  }

  /**
   * Tokens of an engine step: prompts with more uncached tokens are long. Of requests that come from now on.
   */
  setStepTokens(tokens: number): void {
    this.#stepTokens = positive('stepTokens', tokens)
  }

  isLong(uncachedTokens: number): boolean {
    return uncachedTokens > this.#stepTokens
  }

  /** Whether the rule for long prompts counts it. */
  isLongRequest({ uncachedTokens, isContinued }: QueueRequest): boolean {
    return isContinued !== true && this.isLong(uncachedTokens)
  }

  /**
   * Whether another tenant was served lately: only then may the rule for long prompts hold one of this
   * tenant.
   */
  isContended(tenant: string, nowMs: number): boolean {
    return this.#tenants.isContended(tenant, nowMs)
  }

  /**
   * Long prompts and estimates that the owner placed in another life count no more; what it has waiting is
   * for `drop`.
   */
  ownerStarted(owner: string, life: string, nowMs: number): void {
    this.#longPrompts.ownerStarted(owner, life, nowMs)
    for (const id of this.#charges.idsOfOtherLives(owner, life)) this.settled(id, undefined, nowMs)
  }

  /**
   * A request with an estimated prompt has ended: its class and its tenant are charged what its engine
   * counted; undefined: it did not say. Any id may be told, and more than once.
   */
  settled(id: string, counted: CountedPrompt | undefined, nowMs: number): void {
    const charge = this.#charges.close(id, nowMs)
    if (charge === undefined) return
    const { request, policyClass, tenant, turn } = charge
    const { uncachedTokens } = request
    const tokens = counted === undefined ? undefined : countedTokens(request, counted)
    if (tokens !== undefined && turn !== undefined) {
      const more = Math.max(1, tokens) - Math.max(1, uncachedTokens)
      turn.level.correct(policyClass, turn.flows, tenant, more)
    }
    this.#countServed(charge, tokens ?? uncachedTokens, nowMs)
  }

  /**
   * The prompt of a request that was placed is computed, or its request ended. Any id may be told, and more
   * than once.
   */
  prefillComplete(id: string, nowMs: number): void {
    this.#longPrompts.ended(id, nowMs)
  }

  /** When to call `expire` and `take` at the latest, if nothing else happens; infinite: no need. */
  get nextDueMs(): number {
    const deadlineMs = this.#byDeadline.first?.deadlineMs ?? Number.POSITIVE_INFINITY
    return Math.min(deadlineMs, this.#tenants.lapseMs)
  }

  /** Why a request waits and for how long it is expected to; undefined: it does not wait. */
  outlook(id: string, nowMs: number): Outlook | undefined {
    const entry = this.#entries.get(id)
    if (entry === undefined || entry.isAsked) return undefined
    return {
      why: this.#whyOf(entry, nowMs),
      waitedMs: nowMs - entry.arrivedMs,
      expectedWaitMs: this.#expectedMs(entry.policyClass, entry.tenant, nowMs),
    }
  }

  /**
   * Seconds for `Retry-After`, 1 … 3,600: until what waits of the class has drained; undefined: nothing has
   * drained yet.
   */
  retryAfterSeconds(className: string, nowMs: number): number | undefined {
    const waitMs = this.#expectedMs(this.#classByName.get(className), undefined, nowMs)
    return waitMs === undefined ? undefined : Math.min(3600, Math.max(1, Math.ceil(waitMs / 1000)))
  }

  /** Everything for `GET /queue`; looks at every request. */
  snapshot(nowMs: number): QueueSnapshot {
    const tokensPerMs = this.#drain.tokensPerMs(nowMs)
    return snapshotOf({
      nowMs,
      agingMs: this.#agingMs,
      entries: this.#entries.values(),
      classes: this.#classes,
      tenants: this.#tenants,
      levels: this.#levels.levels,
      bytes: this.#waitingBytes,
      drainTokensPerSecond: tokensPerMs === undefined ? undefined : 1000 * tokensPerMs,
      expectedMs: (policyClass, tenant) => this.#expectedMs(policyClass, tenant, nowMs),
      whyOf: entry => this.#whyOf(entry, nowMs),
    })
  }

  /** Of a request that waits. */
  #whyOf({ isLong, maySlice, tenant, lane }: Entry, nowMs: number): WaitReason {
    if (isLong && this.#tenants.isHeld(tenant, nowMs, maySlice)) return 'long_prompt'
    return lane.isClosed ? 'no_room' : 'others_first'
  }

  #classOf(request: R): ClassAccount {
    const policyClass = this.#classByName.get(request.policyClass)
    if (policyClass === undefined)
      throw new RangeError(`cannot queue: no policy class ${request.policyClass}`)
    checkFigures(request)
    return policyClass
  }

  /** `sliceTokens`: only these were placed; undefined: all of it. */
  #served(charge: OpenCharge, worker: string, nowMs: number, sliceTokens?: number): void {
    const { request, policyClass, tenant } = charge
    const { id, uncachedTokens, estimate } = request
    policyClass.servedRequests++
    this.#tenants.served(tenant, nowMs)
    // Totals only grow, so what is estimated counts once it is known.
    if (estimate === undefined) this.#countServed(charge, sliceTokens ?? uncachedTokens, nowMs)
    else {
      this.settled(id, undefined, nowMs)
      const surplus = this.#charges.open(charge, nowMs)
      if (surplus !== undefined) this.#countServed(surplus, surplus.request.uncachedTokens, nowMs)
    }
    if (this.isLongRequest(request)) this.#longPrompts.placed(id, request, tenant, worker, nowMs)
  }

  #countServed({ policyClass, tenant }: OpenCharge, tokens: number, nowMs: number): void {
    for (const account of [policyClass, tenant]) {
      account.servedTokens += tokens
      account.recentTokens.add(tokens, nowMs)
    }
  }

  #admit(request: R, policyClass: ClassAccount, tenant: Tenant, nowMs: number): Admission {
    // The slice before it has ended, so its worker may have room for others, which go first.
    if (request.isContinued === true && this.#waiting > 0) this.reopen()
    if (this.#entries.has(request.id)) return refuse(policyClass, tenant, { reason: 'duplicate' })
    const lane = policyClass.lanes.of(request.lane)
    const entry = new Entry(request, this.#sequence++, policyClass, tenant, lane, nowMs, this.#stepTokens)
    if (!this.#mustWait(entry, nowMs)) {
      this.#ask(entry, nowMs)
      this.#entries.set(request.id, entry)
      return 'ask'
    }
    const refusal = this.#park(entry, nowMs)
    if (refusal === undefined) this.#entries.set(request.id, entry)
    else policyClass.lanes.left(entry.lane)
    return refusal ?? 'waiting'
  }

  /**
   * Whether its lane has no room, something that waits can go before it, or the rule for long prompts holds
   * it.
   */
  #mustWait(entry: Entry<R>, nowMs: number): boolean {
    if (entry.lane.isClosed) return true
    if (entry.isLong && this.#tenants.isHeld(entry.tenant, nowMs, entry.maySlice)) return true
    if (this.#waiting === 0) return false
    this.#wake(nowMs)
    return this.#levels.canSend(nowMs)
  }

  #ask(entry: Entry<R>, nowMs: number): void {
    this.#asked(entry, 1)
    entry.isSliced = entry.maySlice && this.#tenants.isContended(entry.request.tenant, nowMs)
    entry.openingsAsked = entry.lane.openings
  }

  #asked(entry: Entry<R>, change: 1 | -1): void {
    entry.isAsked = change > 0
    entry.lane.asked += change
    entry.tenant.askedRequests += change
    if (entry.isLong) this.#tenants.longPromptAsked(entry.tenant, change)
  }

  /** Makes a request wait for the first time. */
  #park(entry: Entry<R>, nowMs: number): QueueRefusal | undefined {
    const { policyClass, tenant, request } = entry
    if (entry.deadlineMs <= nowMs) return refuse(policyClass, tenant, { reason: 'deadline' })
    if (request.doNotQueue) return refuse(policyClass, tenant, { reason: 'do_not_queue' })
    const refusal = this.#takeRoom(entry, nowMs)
    if (refusal !== undefined) return refuse(policyClass, tenant, refusal)
    // What was displaced may have been the last of its lane, which is forgotten then.
    entry.lane = policyClass.lanes.of(entry.lane.name)
    const { order } = policyClass.policy
    if (order !== 'lcfs') this.#byAge.push(entry)
    entry.level = this.#levels.level(strictPriorityOf(entry.request.strictPriority))
    entry.level.add(entry)
    this.#startsWaiting(entry, nowMs)
    return undefined
  }

  /** Takes room in its class and in the queues, or says why there is none. */
  #takeRoom(entry: Entry<R>, nowMs: number): QueueRefusal | undefined {
    const { policyClass, tenant, promptTokens, uncachedTokens, request } = entry
    const { bytes, isContinued = false } = request
    const asking = { tenant: tenant.name, promptTokens, uncachedTokens, bytes, isContinued }
    const displace = (refusal: QueueRefusal, atMs: number) => {
      refuse(policyClass, tenant, refusal)
      this.cancel(request.id, atMs)
      this.#displaced(request.id, refusal)
    }
    const { limits } = policyClass
    const classPlace = isContinued
      ? undefined
      : limits.take(asking, policyClass, this.#workers, nowMs, displace)
    if (classPlace !== undefined && 'reason' in classPlace) return classPlace
    const place = this.#room.take(asking, nowMs, displace)
    if ('reason' in place) {
      if (classPlace !== undefined) limits.leave(classPlace)
      return place
    }
    entry.classPlace = classPlace
    entry.place = place
    return undefined
  }

  #startsWaiting(entry: Entry<R>, nowMs: number): void {
    this.#countWaiting(entry, 1, nowMs)
    if (entry.deadlineMs < Number.POSITIVE_INFINITY) this.#byDeadline.push(entry)
  }

  #stopsWaiting(entry: Entry<R>, nowMs: number): void {
    this.#countWaiting(entry, -1, nowMs)
    this.#byDeadline.remove(entry)
  }

  #countWaiting(entry: Entry<R>, change: 1 | -1, nowMs: number): void {
    const { policyClass, tenant, lane, uncachedTokens, promptTokens } = entry
    this.#waiting += change
    this.#waitingBytes += change * entry.request.bytes
    lane.waiting += change
    policyClass.waitingRequests += change
    policyClass.waitingPromptTokens += change * promptTokens
    policyClass.waitingUncachedTokens += change * uncachedTokens
    tenant.waitingRequests += change
    tenant.waitingTokens += change * uncachedTokens
    if (tenant.waitingRequests === Math.max(0, change)) this.#tenants.waits(tenant, change)
    if (this.#waiting === 0 || (this.#waiting === 1 && change > 0)) this.#drain.waits(change > 0, nowMs)
  }

  /** Of a request that is asked about no more, and waits not yet again. */
  #changeLane(entry: Entry<R>, name: string): void {
    const { lane, policyClass } = entry
    entry.lane = policyClass.lanes.of(name)
    policyClass.lanes.left(lane)
  }

  /** The request is out of the order already; forgets the rest of it. */
  #forget(entry: Entry<R>, nowMs: number): void {
    this.#entries.delete(entry.request.id)
    this.#byAge.remove(entry)
    if (entry.level !== undefined) {
      this.#room.leave(entry.place!)
      if (entry.classPlace !== undefined) entry.policyClass.limits.leave(entry.classPlace)
      if (entry.rank === 0) entry.level.agedRequests--
      this.#levels.left(entry.level)
    }
    entry.policyClass.lanes.left(entry.lane)
    this.#tenants.changed(entry.tenant, nowMs)
  }

  /** Brings up to date what changes with time alone. */
  #wake(nowMs: number): void {
    for (const side of this.#tenants.wake(nowMs)) side.flow.fair.wake(side)
    for (let entry = this.#byAge.first; entry !== undefined; entry = this.#byAge.first) {
      if (nowMs - entry.arrivedMs < this.#agingMs) break
      this.#byAge.remove(entry)
      entry.rank = 0
      entry.key = entry.arrivedMs
      entry.level!.agedRequests++
      if (!entry.isAsked) entry.level!.update(entry)
    }
  }

  /** See `expectedWaitMs`; 0: nothing waits. */
  #expectedMs(
    policyClass: ClassAccount | undefined,
    tenant: Tenant | undefined,
    nowMs: number,
  ): number | undefined {
    if (this.#waiting === 0) return 0
    const tokensPerMs = this.#drain.tokensPerMs(nowMs)
    const waiting = { classes: this.#classes, waitingWeight: this.#tenants.waitingWeight, tokensPerMs }
    return expectedWaitMs(waiting, policyClass, tenant)
  }
}

/** Counts a refusal. */
function refuse(policyClass: ClassAccount, tenant: Tenant, refusal: QueueRefusal): QueueRefusal {
  for (const account of [policyClass, tenant]) {
    account.refused ??= new Map()
    account.refused.set(refusal.reason, (account.refused.get(refusal.reason) ?? 0) + 1)
  }
  return refusal
}
