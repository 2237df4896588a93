/**
 * Entry: the queue's records of requests, lanes, flows and policy classes. The records refer to each other,
 * so they are in one file. fair-flows.ts and strict-priority.ts contain the rules that change them.
 */

import type { ClassLimits, ClassPlace } from './class-limits.ts'
import { FadingSum } from './drain-rate.ts'
import { type HeapItem, IndexedHeap } from './indexed-heap.ts'
import { isBefore, type Ordered } from './orders.ts'
import type { PolicyClass } from './policy-classes.ts'
import type { RoomPlace } from './queue-room.ts'
import { sliceTokens } from './slices.ts'
import type { Tenant } from './tenant.ts'
import type { QueueRequest, RefusalReason, WaitingElsewhere } from './types.ts'

/** Index in `heapPlaces` for each kind of heap that can contain an entry. */
export const ORDER_SLOT = 0
export const DEADLINE_SLOT = 1
export const AGE_SLOT = 2

export class Entry<R extends QueueRequest = QueueRequest> implements Ordered, HeapItem {
  readonly heapPlaces = [-1, -1, -1]
  readonly request: R
  readonly sequence: number
  readonly policyClass: ClassAccount
  readonly tenant: Tenant
  /** Changes only while the router is being asked about the request. */
  lane: Lane
  readonly arrivedMs: number
  readonly jumpMs: number
  readonly promptTokens: number
  readonly uncachedTokens: number
  readonly costTokens: number
  readonly deadlineMs: number
  readonly isLong: boolean
  /** Long, and can be sent in slices. */
  readonly maySlice: boolean
  /** When it was asked about, the rule for long prompts held, so it is sent in slices. */
  isSliced = false
  rank = 1
  key = 0
  /** The router is being asked about it. */
  isAsked = false
  /** `openings` of its lane when the router was asked. */
  openingsAsked = 0
  /** Defined once it has waited; kept until it leaves the queue, as its room is. */
  level: LevelOfEntry | undefined
  /** Its room in the queues and in its class; defined as `level` is. */
  place: RoomPlace | undefined
  /** Undefined also for what is continued: no limit of its class counts it. */
  classPlace: ClassPlace | undefined
  /** The band in which it waits; undefined while the router is being asked. */
  band: Band | undefined

  constructor(
    request: R,
    sequence: number,
    policyClass: ClassAccount,
    tenant: Tenant,
    lane: Lane,
    nowMs: number,
    stepTokens: number,
  ) {
    this.request = request
    this.sequence = sequence
    this.policyClass = policyClass
    this.tenant = tenant
    this.lane = lane
    const { arrivedMs } = request
    this.arrivedMs = Number.isFinite(arrivedMs) && arrivedMs < nowMs ? arrivedMs : nowMs
    this.jumpMs = 1000 * jumpSeconds(request.priorityJumpSeconds)
    this.promptTokens = request.promptTokens
    this.uncachedTokens = request.uncachedTokens
    this.isLong = request.isContinued !== true && request.uncachedTokens > stepTokens
    this.maySlice = this.isLong && request.maySlice === true
    this.costTokens = Math.max(1, this.maySlice ? sliceTokens(stepTokens) : request.uncachedTokens)
    this.deadlineMs = deadline(request.deadlineMs)
  }
}

/** The strict priority level in which an entry waits. */
export interface LevelOfEntry {
  readonly strictPriority: number
  readonly isEmpty: boolean
  /** Requests of higher strict priority placed since the last one of this priority. */
  passedOver: number
  /** Requests of this priority that have waited `agingMs`. */
  agedRequests: number
  add(entry: Entry): void
  putBack(entry: Entry): void
  settle(entry: Entry, isServed: boolean): void
  remove(entry: Entry): void
  update(entry: Entry): void
  /** The flows of a class; undefined: nothing of it waits or is asked about. */
  flowsOf(policyClass: ClassAccount): object | undefined
  /**
   * A request that went turned out to have `tokens` more, or less below 0. Does nothing unless `flows`
   * still are the flows of the class.
   */
  correct(policyClass: ClassAccount, flows: object, tenant: Tenant, tokens: number): void
}

/** The flows of one policy class at one strict priority. */
export interface FlowsOfClass {
  /** One of its lanes may have room again. */
  opened(flows: LaneFlows): void
  /** A held side may send again. */
  wake(side: FlowSide): void
}

/** Requests with the same eligible workers and threshold. */
export class Lane {
  readonly name: string
  waiting = 0
  asked = 0
  /** The router answered 'busy', and the lane was not reopened since. */
  isClosed = false
  /** Number of times it was reopened. */
  openings = 0
  /** Its flows, one for each policy class and strict priority. */
  readonly flows = new Set<LaneFlows>()

  constructor(name: string) {
    this.name = name
  }

  /** Reopens the lane: there may be room again. */
  open(): void {
    this.isClosed = false
    this.openings++
    for (const flows of this.flows) flows.fair.opened(flows)
  }
}

/** Requests of one tenant and lane with similar work. */
export class Band {
  readonly side: FlowSide
  /** Band of work, and whether its prompts are long and can be sent in slices. */
  readonly key: number
  readonly isLong: boolean
  readonly maySlice: boolean
  readonly entries = new IndexedHeap<Entry>(ORDER_SLOT, isBefore)

  constructor(side: FlowSide, key: number, { isLong, maySlice }: Pick<Entry, 'isLong' | 'maySlice'>) {
    this.side = side
    this.key = key
    this.isLong = isLong
    this.maySlice = maySlice
  }
}

/** The requests of one tenant in one lane. */
export class FlowSide implements HeapItem {
  readonly heapPlaces = [-1]
  readonly flow: Flow
  readonly lane: LaneFlows
  /** Unordered. Few, so a list is faster than a map. */
  readonly bands: Band[] = []
  /** A copy of the flow's start tag, which may be late. */
  startTag: number

  constructor(flow: Flow, lane: LaneFlows) {
    this.flow = flow
    this.lane = lane
    this.startTag = flow.startTag
  }
}

/** The requests of all tenants in one lane, for one policy class and strict priority. */
export class LaneFlows {
  readonly fair: FlowsOfClass
  readonly lane: Lane
  readonly ready = new IndexedHeap<FlowSide>(0, isSideBefore)
  sides = 0

  constructor(fair: FlowsOfClass, lane: Lane) {
    this.fair = fair
    this.lane = lane
  }
}

/** The requests of one tenant in one policy class and strict priority. */
export class Flow implements HeapItem {
  readonly heapPlaces = [-1]
  readonly fair: FlowsOfClass
  /** Its account now; the same as long as the flow has a request. */
  tenant: Tenant
  readonly sequence: number
  /** Unordered; usually one. */
  readonly sides: FlowSide[] = []
  startTag: number
  waiting = 0
  asked = 0

  constructor(fair: FlowsOfClass, tenant: Tenant, sequence: number, startTag: number) {
    this.fair = fair
    this.tenant = tenant
    this.sequence = sequence
    this.startTag = startTag
  }
}

/** The lanes of all policy classes with the same threshold: if one class finds no room, none does. */
export class LaneTable {
  readonly #common = new Lane('')
  /** All other lanes that have a request. */
  readonly #others = new Map<string, Lane>()

  of(name: string): Lane {
    if (name === '') return this.#common
    let lane = this.#others.get(name)
    if (lane === undefined) {
      lane = new Lane(name)
      this.#others.set(name, lane)
    }
    return lane
  }

  /** Opens the lane `name`, or all lanes if `name` is undefined. */
  open(name: string | undefined): void {
    if (name === undefined || name === '') this.#common.open()
    if (name === undefined) for (const lane of this.#others.values()) lane.open()
    else this.#others.get(name)?.open()
  }

  /** A request left the lane. */
  left(lane: Lane): void {
    if (lane.waiting > 0) return
    lane.isClosed = false
    if (lane.asked === 0) this.#others.delete(lane.name)
  }
}

export const NOTHING_ELSEWHERE: WaitingElsewhere = Object.freeze({
  requests: 0,
  promptTokens: 0,
  uncachedTokens: 0,
})

export class ClassAccount {
  readonly policy: PolicyClass
  readonly index: number
  /** Shared by all classes with the same threshold. */
  readonly lanes: LaneTable
  readonly limits: ClassLimits
  waitingRequests = 0
  waitingPromptTokens = 0
  waitingUncachedTokens = 0
  /** Requests that wait at other routers of the same workers. */
  elsewhere = NOTHING_ELSEWHERE
  servedRequests = 0
  servedTokens = 0
  readonly recentTokens = new FadingSum()
  refused: Map<RefusalReason, number> | undefined

  constructor(policy: PolicyClass, index: number, lanes: LaneTable, limits: ClassLimits) {
    this.policy = policy
    this.index = index
    this.lanes = lanes
    this.limits = limits
  }
}

const JUMP_SECONDS_MAX = 2 ** 31
const STRICT_PRIORITY_MAX = 2 ** 32 - 1

function jumpSeconds(given: number): number {
  return given > 0 ? Math.min(given, JUMP_SECONDS_MAX) : 0
}

function deadline(given: number | undefined): number {
  return given === undefined || Number.isNaN(given) ? Number.POSITIVE_INFINITY : given
}

/** Converts a client's hint to a valid strict priority. */
export function strictPriorityOf(given: number): number {
  return given > 0 ? Math.min(Math.floor(given), STRICT_PRIORITY_MAX) : 0
}

function isSideBefore(a: FlowSide, b: FlowSide): boolean {
  return a.startTag < b.startTag || (a.startTag === b.startTag && a.flow.sequence < b.flow.sequence)
}
