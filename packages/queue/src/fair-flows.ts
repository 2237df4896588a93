/**
 * Fair flows: shares the requests of one policy class and strict priority between tenants, by weight.
 *
 *   lanes     one per set of eligible workers             a closed lane is skipped, with all its requests
 *     sides   one per tenant with a request in the lane   start-time fair queueing over the tenant's flow
 *       bands   by work, long prompts apart               see orders.ts
 *
 * Start-time fair queueing. The flow of a tenant is all its requests here, in any lane. Each flow has a start
 * tag. The flow with the lowest tag goes first; its tag then grows by uncached tokens ÷ weight. The virtual
 * time is the tag of the last flow that went. A flow that is new, or could not go, starts at the virtual
 * time: it gets no credit for the time away. When no request is left, the owner of this object drops it, and
 * all tags with it.
 *
 * A request that was charged an estimate is charged again when its engine has counted its prompt
 * (`correct`): the difference ÷ weight is added to the tag of its flow, which never falls below the virtual
 * time by it.
 *
 * Each side keeps a copy of the tag of its flow. The copy may be late: lower than the tag, never higher.
 * Before the first side of a lane is used, its copy is updated; this repeats until the same side stays first.
 *
 * Invariants
 *   I1  Between two tenants that always have a request that can go, service ÷ weight differs by at most the
 *       largest request ÷ weight of one plus that of the other. Service is as it was charged, so it includes
 *       corrections: of those that lie ahead nothing is known.
 *   I2  A side that has a request which the rule for long prompts does not hold is in `ready`. An open lane
 *       with a ready side is in `#open`. Either may also contain more: the next reader removes it.
 *   I3  The virtual time goes back only when the last request that was taken is put back or not served.
 *
 * Cost   O(log n) + bands under response ratio + open lanes + lanes of the tenant whose request goes.
 *
 * Source: Goyal, Vin, Cheng: Start-time Fair Queuing (1996).
 */

import {
  Band,
  type ClassAccount,
  type Entry,
  Flow,
  FlowSide,
  type FlowsOfClass,
  type Lane,
  LaneFlows,
} from './entry.ts'
import { IndexedHeap } from './indexed-heap.ts'
import { goesFirst, orderKey, workBand } from './orders.ts'
import type { Tenant } from './tenant.ts'
import type { TenantTable } from './tenants.ts'

/** The state before `take`, for undoing it. */
export interface FairUndo {
  readonly startTag: number
  readonly virtualTime: number
}

export class FairFlows implements FlowsOfClass {
  readonly policyClass: ClassAccount
  readonly #tenants: TenantTable
  /** By the tenant's name: its account may be closed and opened again while its tag is ahead. */
  readonly #flows = new Map<string, Flow>()
  readonly #lanes = new Map<Lane, LaneFlows>()
  readonly #open = new Set<LaneFlows>()
  /** Flows without requests whose tag is still ahead of the virtual time. */
  readonly #idle = new IndexedHeap<Flow>(0, isFlowBefore)
  #virtualTime = 0
  #flowCount = 0
  #requests = 0

  constructor(policyClass: ClassAccount, tenants: TenantTable) {
    this.policyClass = policyClass
    this.#tenants = tenants
  }

  /** No request waits, and none is asked about. */
  get isEmpty(): boolean {
    return this.#requests === 0
  }

  /** Adds a request that waits for the first time. */
  add(entry: Entry): void {
    const flow = this.#flowOf(entry.tenant)
    flow.waiting++
    this.#requests++
    this.#insert(entry, flow)
  }

  /** The next request if this class may send one; undefined: none can go. */
  head(nowMs: number): Entry | undefined {
    let first: Entry | undefined
    let flow: Flow | undefined
    for (const lane of this.#open) {
      const head = lane.lane.isClosed ? undefined : this.#firstOf(lane, nowMs)
      if (head === undefined) {
        this.#open.delete(lane)
        continue
      }
      const ofHead = head.band!.side.flow
      if (flow !== undefined && !isFlowBefore(ofHead, flow)) continue
      first = head
      flow = ofHead
    }
    if (first === undefined || flow === undefined || flow.sides.length === 1) return first
    // The same tenant may have a request in another open lane that goes first by the order of the class.
    const { order } = this.policyClass.policy
    for (const side of flow.sides) {
      const head = side.lane.lane.isClosed ? undefined : this.#headOf(side, nowMs)
      if (head !== undefined && goesFirst(order, head, first, nowMs)) first = head
    }
    return first
  }

  /** Takes out a waiting request and charges its tenant. Still counted until `settle` or `putBack`. */
  take(entry: Entry): FairUndo {
    const { flow } = entry.band!.side
    const undo = { startTag: flow.startTag, virtualTime: this.#virtualTime }
    this.#virtualTime = Math.max(flow.startTag, this.#virtualTime)
    flow.startTag = this.#virtualTime + entry.costTokens / flow.tenant.weight
    this.#extract(entry)
    flow.waiting--
    flow.asked++
    return undo
  }

  /** A request that was taken waits again. `undo`: given only if no other request was taken since. */
  putBack(entry: Entry, undo: FairUndo | undefined): void {
    this.#refund(entry, undo)
    const flow = this.#flows.get(entry.tenant.name)!
    flow.asked--
    flow.waiting++
    this.#insert(entry, flow)
  }

  /** A taken request is gone. `isServed` false: the charge goes back to its tenant. */
  settle(entry: Entry, isServed: boolean, undo: FairUndo | undefined): void {
    if (isServed) this.#forgetIdle()
    else this.#refund(entry, undo)
    const flow = this.#flows.get(entry.tenant.name)!
    flow.asked--
    this.#left(flow)
  }

  /**
   * A request of the tenant that went has `tokens` more than it was charged, or less below 0. Returns the
   * change of the tenant's tag.
   */
  correct(tenant: Tenant, tokens: number): number {
    const known = this.#flows.get(tenant.name)
    if (known === undefined && tokens <= 0) return 0
    const flow = known ?? this.#flowOf(tenant)
    const before = flow.startTag
    const change = tokens / tenant.weight
    if (change > 0) flow.startTag = Math.max(before, this.#virtualTime) + change
    else flow.startTag = Math.max(before + change, Math.min(before, this.#virtualTime))
    if (flow.waiting + flow.asked === 0) this.#rest(flow)
    else if (change < 0) this.#copyTag(flow)
    return flow.startTag - before
  }

  /** A waiting request is gone. */
  remove(entry: Entry): void {
    const { flow } = entry.band!.side
    this.#extract(entry)
    flow.waiting--
    this.#left(flow)
  }

  /** The key or rank of a waiting request has changed. */
  update(entry: Entry): void {
    entry.band!.entries.update(entry)
  }

  /** The lane was reopened. */
  opened(lane: LaneFlows): void {
    this.#open.add(lane)
  }

  /** The side may have a request that can go. */
  wake(side: FlowSide): void {
    const { ready } = side.lane
    if (!ready.has(side)) ready.push(side)
    this.#open.add(side.lane)
  }

  #flowOf(tenant: Tenant): Flow {
    let flow = this.#flows.get(tenant.name)
    if (flow === undefined) {
      flow = new Flow(this, tenant, this.#flowCount++, this.#virtualTime)
      this.#flows.set(tenant.name, flow)
    }
    flow.tenant = tenant
    this.#idle.remove(flow)
    return flow
  }

  /** The request of a lane that goes next. */
  #firstOf({ ready }: LaneFlows, nowMs: number): Entry | undefined {
    for (let side = ready.first; side !== undefined; side = ready.first) {
      if (side.startTag < side.flow.startTag) {
        side.startTag = side.flow.startTag
        ready.update(side)
        continue
      }
      const head = this.#headOf(side, nowMs)
      if (head !== undefined) return head
      ready.remove(side)
    }
    return undefined
  }

  #headOf(side: FlowSide, nowMs: number): Entry | undefined {
    const { order } = this.policyClass.policy
    let best: Entry | undefined
    let hasHeld = false
    for (const band of side.bands) {
      const head = band.entries.first!
      if (band.isLong && this.#tenants.isHeld(side.flow.tenant, nowMs, band.maySlice)) hasHeld = true
      else if (best === undefined || goesFirst(order, head, best, nowMs)) best = head
    }
    if (best === undefined && hasHeld) this.#tenants.hold(side)
    return best
  }

  #insert(entry: Entry, flow: Flow): void {
    const { order } = this.policyClass.policy
    const side = this.#sideOf(flow, entry.lane)
    const key = 3 * workBand(order, entry.costTokens) + (entry.isLong ? 1 : 0) + (entry.maySlice ? 1 : 0)
    let band = side.bands.find(other => other.key === key)
    if (band === undefined) {
      band = new Band(side, key, entry)
      side.bands.push(band)
    }
    if (entry.rank === 1) entry.key = orderKey(order, entry)
    entry.band = band
    band.entries.push(entry)
    this.wake(side)
  }

  #sideOf(flow: Flow, lane: Lane): FlowSide {
    let side = flow.sides.find(other => other.lane.lane === lane)
    if (side !== undefined) return side
    let ofLane = this.#lanes.get(lane)
    if (ofLane === undefined) {
      ofLane = new LaneFlows(this, lane)
      this.#lanes.set(lane, ofLane)
      lane.flows.add(ofLane)
    }
    side = new FlowSide(flow, ofLane)
    flow.sides.push(side)
    ofLane.sides++
    return side
  }

  #extract(entry: Entry): void {
    const band = entry.band!
    const { side } = band
    entry.band = undefined
    band.entries.remove(entry)
    if (band.entries.size > 0) return
    removeFrom(side.bands, band)
    if (side.bands.length > 0) return
    const ofLane = side.lane
    removeFrom(side.flow.sides, side)
    ofLane.ready.remove(side)
    this.#tenants.release(side)
    if (--ofLane.sides > 0) return
    this.#lanes.delete(ofLane.lane)
    this.#open.delete(ofLane)
    ofLane.lane.flows.delete(ofLane)
  }

  #refund(entry: Entry, undo: FairUndo | undefined): void {
    const flow = this.#flows.get(entry.tenant.name)!
    if (undo !== undefined) this.#virtualTime = undo.virtualTime
    flow.startTag = undo?.startTag ?? flow.startTag - entry.costTokens / flow.tenant.weight
    this.#copyTag(flow)
  }

  /** The tag of the flow has become lower. */
  #copyTag(flow: Flow): void {
    for (const side of flow.sides) {
      if (side.startTag <= flow.startTag) continue
      side.startTag = flow.startTag
      side.lane.ready.update(side)
    }
  }

  #left(flow: Flow): void {
    this.#requests--
    if (flow.waiting + flow.asked === 0) this.#rest(flow)
  }

  /** The flow has no request: keeps its tag as long as it is ahead of the virtual time. */
  #rest(flow: Flow): void {
    this.#idle.remove(flow)
    if (flow.startTag > this.#virtualTime) this.#idle.push(flow)
    else this.#flows.delete(flow.tenant.name)
  }

  #forgetIdle(): void {
    for (let flow = this.#idle.first; flow !== undefined; flow = this.#idle.first) {
      if (flow.startTag > this.#virtualTime) break
      this.#idle.remove(flow)
      this.#flows.delete(flow.tenant.name)
    }
  }
}

function isFlowBefore(a: Flow, b: Flow): boolean {
  return a.startTag < b.startTag || (a.startTag === b.startTag && a.sequence < b.sequence)
}

/** Takes an item out of a list whose order does not matter. */
function removeFrom<T>(items: T[], item: T): void {
  const last = items.pop()!
  if (last !== item) items[items.indexOf(item)] = last
}
