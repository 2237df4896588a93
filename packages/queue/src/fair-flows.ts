/**
 * Fair flows: the requests of one policy class at one strict priority, shared out between tenants by weight.
 *
 *   flows     one per tenant that has a request here          start-time fair queueing
 *     sides   the common lane | all other lanes               a closed common lane is passed over at once
 *       bands   by work, long prompts apart                   see orders.ts
 *         leaves  one per lane: requests in their order       a leaf of a closed lane is blocked
 *
 * Start-time fair queueing. Each flow has a start tag; the lowest goes first, and its tag grows by uncached tokens ÷ weight. The virtual
 * time is the tag of the last one that went. A flow that has just come, or could not go, starts at the virtual time: it gets no
 * credit for the time away. With nothing left all tags are forgotten.
 *
 * Invariants
 *   I1  Of two tenants that always have a request that can go, the service ÷ weight differs by at most the largest request ÷ weight
 *       of one plus that of the other.
 *   I2  A side is ready if it has a request that can go. It may be ready without one: whoever looks finds out and takes it out.
 *   I3  The virtual time never goes back, but for a request that is put back before another was taken.
 *
 * Cost   O(log n), plus O(bands) for response ratio. A closed lane costs O(log n) for each of its leaves.
 *
 * Source: Goyal, Vin, Cheng: Start-time Fair Queuing (1996).
 */

import { type ClassAccount, type Entry, type Lane, ORDER_SLOT } from './entry.ts'
import { type HeapItem, IndexedHeap } from './indexed-heap.ts'
import { goesFirst, isBefore, orderKey, workBand } from './orders.ts'
import type { Tenant, TenantTable } from './tenants.ts'

const COMMON = 0
const OTHERS = 1

/** Requests of one tenant in one band and lane. */
export class Leaf implements HeapItem {
  readonly heapPlaces = [-1]
  readonly entries = new IndexedHeap<Entry>(ORDER_SLOT, isBefore)
  readonly side: FlowSide
  readonly band: Band
  readonly lane: Lane

  constructor(side: FlowSide, band: Band, lane: Lane) {
    this.side = side
    this.band = band
    this.lane = lane
  }
}

class Band {
  readonly key: number
  readonly isLong: boolean
  readonly leaves = new Map<Lane, Leaf>()
  /** Those that are not blocked. */
  readonly ready = new IndexedHeap<Leaf>(0, (a, b) => isBefore(a.entries.first!, b.entries.first!))

  constructor(key: number, isLong: boolean) {
    this.key = key
    this.isLong = isLong
  }
}

/** What a tenant has in the common lane, or in all others. */
export class FlowSide implements HeapItem {
  readonly heapPlaces = [-1]
  readonly flow: Flow
  readonly number: number
  /** By band of work, long prompts at odd keys. */
  readonly bands = new Map<number, Band>()

  constructor(flow: Flow, number: number) {
    this.flow = flow
    this.number = number
  }
}

class Flow implements HeapItem {
  readonly heapPlaces = [-1]
  readonly fair: FairFlows
  readonly tenant: Tenant
  readonly sequence: number
  readonly sides: readonly [FlowSide, FlowSide]
  startTag: number
  waiting = 0
  asked = 0

  constructor(fair: FairFlows, tenant: Tenant, sequence: number, startTag: number) {
    this.fair = fair
    this.tenant = tenant
    this.sequence = sequence
    this.startTag = startTag
    this.sides = [new FlowSide(this, COMMON), new FlowSide(this, OTHERS)]
  }
}

/** What `take` changed, so that it can be undone. */
export interface FairUndo {
  readonly startTag: number
  readonly virtualTime: number
}

export class FairFlows {
  readonly policyClass: ClassAccount
  readonly #tenants: TenantTable
  readonly #flows = new Map<Tenant, Flow>()
  readonly #ready: readonly [IndexedHeap<FlowSide>, IndexedHeap<FlowSide>]
  /** Flows without a request whose tag is still ahead of the virtual time. */
  readonly #idle = new IndexedHeap<Flow>(0, isFlowBefore)
  #virtualTime = 0
  #flowCount = 0
  #requests = 0

  constructor(policyClass: ClassAccount, tenants: TenantTable) {
    this.policyClass = policyClass
    this.#tenants = tenants
    const heap = () => new IndexedHeap<FlowSide>(0, (a, b) => isFlowBefore(a.flow, b.flow))
    this.#ready = [heap(), heap()]
  }

  /** Nothing waits or is asked about. */
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

  /** The request that goes next if this class may send one; undefined: none can go. */
  head(nowMs: number): Entry | undefined {
    const common = this.policyClass.common.isClosed ? undefined : this.#headOf(COMMON, nowMs)
    const other = this.#headOf(OTHERS, nowMs)
    if (common === undefined) return other
    if (other === undefined) return common
    const flow = common.leaf!.side.flow
    const otherFlow = other.leaf!.side.flow
    if (flow !== otherFlow) return isFlowBefore(flow, otherFlow) ? common : other
    return goesFirst(this.policyClass.policy.order, common, other, nowMs) ? common : other
  }

  /** Takes a waiting request out and charges its tenant. It stays counted until `settle` or `putBack`. */
  take(entry: Entry): FairUndo {
    const { flow } = entry.leaf!.side
    const undo = { startTag: flow.startTag, virtualTime: this.#virtualTime }
    this.#virtualTime = Math.max(flow.startTag, this.#virtualTime)
    this.#retag(flow, this.#virtualTime + entry.costTokens / flow.tenant.weight)
    this.#extract(entry)
    flow.waiting--
    flow.asked++
    return undo
  }

  /** A request that was taken waits again. `undo` only when nothing was taken from here since. */
  putBack(entry: Entry, undo: FairUndo | undefined): void {
    this.#refund(entry, undo)
    const flow = this.#flows.get(entry.tenant)!
    flow.asked--
    flow.waiting++
    this.#insert(entry, flow)
  }

  /** A request that was taken is gone; `isServed` false: its tenant gets back what it was charged. */
  settle(entry: Entry, isServed: boolean, undo: FairUndo | undefined): void {
    if (isServed) this.#forgetIdle()
    else this.#refund(entry, undo)
    const flow = this.#flows.get(entry.tenant)!
    flow.asked--
    this.#left(flow)
  }

  /** A waiting request is gone. */
  remove(entry: Entry): void {
    const { flow } = entry.leaf!.side
    this.#extract(entry)
    flow.waiting--
    this.#left(flow)
  }

  /** The key or rank of a waiting request has changed. */
  update(entry: Entry): void {
    const leaf = entry.leaf!
    leaf.entries.update(entry)
    leaf.band.ready.update(leaf)
  }

  /** A leaf whose lane was reopened. */
  unblock(leaf: Leaf): void {
    leaf.band.ready.push(leaf)
    this.wake(leaf.side)
  }

  /** A side that may have something that can go. */
  wake(side: FlowSide): void {
    const ready = this.#ready[side.number]!
    if (!ready.has(side)) ready.push(side)
  }

  #flowOf(tenant: Tenant): Flow {
    let flow = this.#flows.get(tenant)
    if (flow === undefined) {
      flow = new Flow(this, tenant, this.#flowCount++, this.#virtualTime)
      this.#flows.set(tenant, flow)
    }
    this.#idle.remove(flow)
    return flow
  }

  #headOf(number: number, nowMs: number): Entry | undefined {
    const ready = this.#ready[number]!
    for (let side = ready.first; side !== undefined; side = ready.first) {
      const head = this.#headOfSide(side, nowMs)
      if (head !== undefined) return head
      ready.remove(side)
    }
    return undefined
  }

  #headOfSide(side: FlowSide, nowMs: number): Entry | undefined {
    const { order } = this.policyClass.policy
    const isHeld = this.#tenants.isHeld(side.flow.tenant, nowMs)
    let best: Entry | undefined
    let hasHeld = false
    for (const band of side.bands.values()) {
      const head = headOfBand(band)
      if (head === undefined) continue
      if (band.isLong && isHeld) hasHeld = true
      else if (best === undefined || goesFirst(order, head, best, nowMs)) best = head
    }
    if (best === undefined && hasHeld) this.#tenants.hold(side)
    return best
  }

  #insert(entry: Entry, flow: Flow): void {
    const { order } = this.policyClass.policy
    const side = flow.sides[entry.lane === this.policyClass.common ? COMMON : OTHERS]
    const key = 2 * workBand(order, entry.costTokens) + (entry.isLong ? 1 : 0)
    let band = side.bands.get(key)
    if (band === undefined) {
      band = new Band(key, entry.isLong)
      side.bands.set(key, band)
    }
    let leaf = band.leaves.get(entry.lane)
    const isNew = leaf === undefined
    if (leaf === undefined) {
      leaf = new Leaf(side, band, entry.lane)
      band.leaves.set(entry.lane, leaf)
    }
    if (entry.rank === 1) entry.key = orderKey(order, entry)
    entry.leaf = leaf
    leaf.entries.push(entry)
    if (isNew) band.ready.push(leaf)
    else band.ready.update(leaf)
    this.wake(side)
  }

  #extract(entry: Entry): void {
    const leaf = entry.leaf!
    const { band, side } = leaf
    entry.leaf = undefined
    // The leaf leaves its heap while it still has a first entry to be compared by.
    if (leaf.entries.size === 1) {
      band.ready.remove(leaf)
      band.leaves.delete(leaf.lane)
      leaf.lane.blocked.delete(leaf)
    }
    leaf.entries.remove(entry)
    band.ready.update(leaf)
    if (band.leaves.size > 0) return
    side.bands.delete(band.key)
    if (side.bands.size > 0) return
    this.#ready[side.number]!.remove(side)
    this.#tenants.release(side)
  }

  #refund(entry: Entry, undo: FairUndo | undefined): void {
    const flow = this.#flows.get(entry.tenant)!
    if (undo !== undefined) {
      this.#virtualTime = undo.virtualTime
      this.#retag(flow, undo.startTag)
    } else {
      this.#retag(flow, flow.startTag - entry.costTokens / flow.tenant.weight)
    }
  }

  #retag(flow: Flow, startTag: number): void {
    flow.startTag = startTag
    this.#ready[COMMON].update(flow.sides[COMMON])
    this.#ready[OTHERS].update(flow.sides[OTHERS])
  }

  #left(flow: Flow): void {
    this.#requests--
    if (flow.waiting + flow.asked > 0) return
    if (flow.startTag > this.#virtualTime) this.#idle.push(flow)
    else this.#flows.delete(flow.tenant)
  }

  #forgetIdle(): void {
    for (let flow = this.#idle.first; flow !== undefined; flow = this.#idle.first) {
      if (flow.startTag > this.#virtualTime) break
      this.#idle.remove(flow)
      this.#flows.delete(flow.tenant)
    }
  }
}

/** Blocks the leaves of closed lanes that it meets. */
function headOfBand(band: Band): Entry | undefined {
  for (let leaf = band.ready.first; leaf !== undefined; leaf = band.ready.first) {
    if (!leaf.lane.isClosed) return leaf.entries.first
    band.ready.remove(leaf)
    leaf.lane.blocked.add(leaf)
  }
  return undefined
}

function isFlowBefore(a: Flow, b: Flow): boolean {
  return a.startTag < b.startTag || (a.startTag === b.startTag && a.sequence < b.sequence)
}
