/** Requests and profiles for tests. */

import {
  type PolicyClass,
  type PolicyProfile,
  PriorityQueue,
  type PriorityQueueOptions,
  type QueueOrder,
  type QueueRequest,
  QueueRoom,
} from '../src/index.ts'

/** A request of 100 uncached tokens of tenant 'a' that came at 0, with what is given in its place. */
export function request(id: string, given: Partial<QueueRequest> = {}): QueueRequest {
  const uncachedTokens = given.uncachedTokens ?? 100
  return {
    id,
    arrivedMs: 0,
    promptTokens: uncachedTokens,
    uncachedTokens,
    bytes: 10,
    policyClass: 'default',
    tenant: 'a',
    priorityJumpSeconds: 0,
    strictPriority: 0,
    doNotQueue: false,
    lane: '',
    owner: 'gateway',
    ownerLife: 'first',
    ...given,
  }
}

/** Explicit classes of these names, orders and quanta. */
export function profileOf(...classes: readonly (Partial<PolicyClass> & { name: string })[]): PolicyProfile {
  return {
    defaultFamily: 'none',
    buckets: [{ tokensMin: 0, name: 'all' }],
    classes: classes.map(given => ({ order: 'fcfs', quantum: 1, ...given })),
  }
}

export function queueOf(order: QueueOrder, given: Partial<PriorityQueueOptions> = {}): PriorityQueue {
  return new PriorityQueue({
    profile: profileOf({ name: 'default', order }),
    room: new QueueRoom(),
    workers: 4,
    ...given,
  })
}

/** Parks requests although there would be room: the first is asked about and found busy. */
export function park(queue: PriorityQueue, requests: readonly QueueRequest[], nowMs = 0): void {
  for (const request of requests) {
    const admission = queue.admit(request, nowMs)
    if (admission === 'ask') queue.busy(request.id, nowMs)
    else if (admission !== 'waiting') throw new Error(`${request.id} is refused: ${admission.reason}`)
  }
}

/** Places up to `count` requests, all that can go by default; their ids. */
export function placeAll(queue: PriorityQueue, nowMs: number, count = Number.POSITIVE_INFINITY): string[] {
  const ids: string[] = []
  while (ids.length < count) {
    const next = queue.take(nowMs)
    if (next === undefined) break
    queue.placed(next.id, 'w0', nowMs)
    ids.push(next.id)
  }
  return ids
}
