/** What the queue keeps of a request, of a policy class and of a lane, beside the order. */

import { FadingSum } from './drain-rate.ts'
import type { Band, LaneFlows } from './fair-flows.ts'
import type { HeapItem } from './indexed-heap.ts'
import type { Ordered } from './orders.ts'
import type { PolicyClass } from './policy-classes.ts'
import type { StrictPriorityLevel } from './strict-priority.ts'
import type { Tenant } from './tenants.ts'
import type { QueueRequest, RefusalReason, WaitingElsewhere } from './types.ts'

/** Slots of the heaps that an entry can be in. */
export const ORDER_SLOT = 0
export const DEADLINE_SLOT = 1
export const AGE_SLOT = 2

export class Entry<R extends QueueRequest = QueueRequest> implements Ordered, HeapItem {
  readonly heapPlaces = [-1, -1, -1]
  readonly request: R
  readonly sequence: number
  readonly policyClass: ClassAccount
  readonly tenant: Tenant
  /** Changes only while it is asked about. */
  lane: Lane
  readonly arrivedMs: number
  readonly jumpMs: number
  readonly promptTokens: number
  readonly uncachedTokens: number
  readonly costTokens: number
  readonly deadlineMs: number
  readonly isLong: boolean
  rank = 1
  key = 0
  /** The router is being asked about it. */
  isAsked = false
  /** The openings of its lane when it was asked about. */
  openingsAsked = 0
  /** Defined once it has waited; it keeps its room and its level until it goes. */
  level: StrictPriorityLevel | undefined
  /** Where it waits; undefined while it is asked about. */
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
    this.costTokens = Math.max(1, request.uncachedTokens)
    this.deadlineMs = deadline(request.deadlineMs)
    this.isLong = request.uncachedTokens > stepTokens
  }
}

/** Requests with the same eligible workers and threshold. */
export class Lane {
  readonly name: string
  waiting = 0
  asked = 0
  /** The router answered busy, and nothing has changed since. */
  isClosed = false
  /** How often it was reopened. */
  openings = 0
  /** What it has in each policy class and strict priority. */
  readonly flows = new Set<LaneFlows>()

  constructor(name: string) {
    this.name = name
  }

  /** There may be room again. */
  open(): void {
    this.isClosed = false
    this.openings++
    for (const flows of this.flows) flows.fair.opened(flows)
  }
}

/** The lanes of policy classes with the same threshold: where one of them finds no room, none does. */
export class LaneTable {
  readonly #common = new Lane('')
  /** All others that have a request. */
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

  /** Opens the lane of a name; without one, all. */
  open(name: string | undefined): void {
    if (name === undefined || name === '') this.#common.open()
    if (name === undefined) for (const lane of this.#others.values()) lane.open()
    else this.#others.get(name)?.open()
  }

  /** A request of the lane went. */
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
  /** Shared with all classes of the same threshold. */
  readonly lanes: LaneTable
  waitingRequests = 0
  waitingPromptTokens = 0
  waitingUncachedTokens = 0
  /** At other routers of the same workers. */
  elsewhere = NOTHING_ELSEWHERE
  servedRequests = 0
  servedTokens = 0
  readonly recentTokens = new FadingSum()
  refused: Map<RefusalReason, number> | undefined

  constructor(policy: PolicyClass, index: number, lanes: LaneTable) {
    this.policy = policy
    this.index = index
    this.lanes = lanes
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

/** A hint of a client as a strict priority. */
export function strictPriorityOf(given: number): number {
  return given > 0 ? Math.min(Math.floor(given), STRICT_PRIORITY_MAX) : 0
}
