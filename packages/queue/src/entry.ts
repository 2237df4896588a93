/** What the queue keeps of a request, of a policy class and of a lane, beside the order. */

import { FadingSum } from './drain-rate.ts'
import type { Leaf } from './fair-flows.ts'
import type { HeapItem } from './indexed-heap.ts'
import type { Ordered } from './orders.ts'
import type { PolicyClass } from './policy-classes.ts'
import type { StrictPriorityLevel } from './strict-priority.ts'
import type { Tenant } from './tenants.ts'
import type { QueueRequest, RefusalReason } from './types.ts'

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
  readonly lane: Lane
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
  leaf: Leaf | undefined

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

/** Requests of a class with the same eligible workers. */
export class Lane {
  readonly name: string
  waiting = 0
  asked = 0
  /** The router answered busy, and nothing has changed since. */
  isClosed = false
  /** How often it was reopened. */
  openings = 0
  /** Taken out of the order while the lane is closed. */
  readonly blocked = new Set<Leaf>()

  constructor(name: string) {
    this.name = name
  }
}

export class ClassAccount {
  readonly policy: PolicyClass
  readonly index: number
  readonly common = new Lane('')
  /** All others that have a request. */
  readonly lanes = new Map<string, Lane>()
  waitingRequests = 0
  waitingPromptTokens = 0
  waitingUncachedTokens = 0
  servedRequests = 0
  servedTokens = 0
  readonly recentTokens = new FadingSum()
  refused: Map<RefusalReason, number> | undefined

  constructor(policy: PolicyClass, index: number) {
    this.policy = policy
    this.index = index
  }

  lane(name: string): Lane {
    if (name === '') return this.common
    let lane = this.lanes.get(name)
    if (lane === undefined) {
      lane = new Lane(name)
      this.lanes.set(name, lane)
    }
    return lane
  }

  /** A request of the lane went. */
  left(lane: Lane): void {
    if (lane.waiting > 0) return
    lane.isClosed = false
    if (lane.asked === 0 && lane !== this.common) this.lanes.delete(lane.name)
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
