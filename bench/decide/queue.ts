/**
 * The part `queue` of the bench: what the order of the queue costs a request, at three depths.
 *
 *   plain   one class in the order of the name, one tenant
 *   mixed   four classes, one in each order; 1,000 tenants; 5 % of requests pinned to one of 64 workers, 5 %
 *           of a higher strict priority, half with a deadline
 *
 * A round parks 2 · BATCH requests, releases BATCH and cancels BATCH at random, so the depth stays.
 * `release`: a worker has room, so the common lane and its own are reopened, and one request is taken and
 * placed. `no room`: the same lanes are reopened, and requests are taken and put back until both are closed
 * again. `pass` is a request that does not wait: admitted, asked about, placed.
 *
 * Checked: every request ends once; a plain fcfs queue gives requests in order of arrival. `queueSum` pins
 * the order of all others. CPU time of the thread: other work on the machine changes it less than the clock.
 */

import assert from 'node:assert/strict'
import { type Random, seededRandom } from '@homing/base'
import {
  type PolicyProfile,
  PriorityQueue,
  type QueueOrder,
  type QueueRequest,
  QueueRoom,
  singleClassProfile,
} from '@homing/queue'
import type { Measure, Measures, Target } from '../harness.ts'

const BATCH = 500
const ORDERS = ['fcfs', 'wspt', 'response-ratio', 'lcfs'] as const
const TENANTS = 1000
const WORKERS = 64

export interface QueueParameters {
  readonly depths: readonly number[]
  readonly rounds: number
}

export function measureQueue({ depths, rounds }: QueueParameters): Measures {
  const measures: Record<string, Measure> = { pass: measurePass(20 * BATCH * rounds) }
  let sum = 0
  for (const depth of depths) {
    for (const workload of workloads()) {
      const { costs, orderSum } = measureDepth(workload, depth, rounds)
      sum = (sum + orderSum) % 1_000_003
      for (const [action, value] of Object.entries(costs)) {
        measures[`${action} ${workload.name}, depth ${depth}`] = { value, unit: 'µs' }
      }
    }
  }
  measures['queueSum'] = { value: sum, unit: '' }
  return measures
}

/** 20 µs each at any depth, and 10 µs for a request that does not wait. */
export function queueTargets(depths: readonly number[]): Readonly<Record<string, Target>> {
  const names = depths.flatMap(depth =>
    workloads().flatMap(({ name }) =>
      ['park', 'release', 'cancel'].map(action => `${action} ${name}, depth ${depth}`),
    ),
  )
  const each = { floor: 20, goal: 10 }
  return { ...Object.fromEntries(names.map(name => [name, each])), pass: { floor: 10, goal: 5 } }
}

interface Workload {
  readonly name: string
  readonly profile: PolicyProfile
  readonly isMixed: boolean
}

function workloads(): Workload[] {
  const plain = (order: QueueOrder) => ({ name: order, profile: singleClassProfile(order), isMixed: false })
  const classes = ORDERS.map((order, i) => ({ name: order, order, quantum: 1000 * (i + 1) }))
  const mixed = { ...singleClassProfile('fcfs'), classes }
  return [plain('fcfs'), plain('response-ratio'), { name: 'mixed', profile: mixed, isMixed: true }]
}

function requestOf(number: number, nowMs: number, random: Random, { isMixed }: Workload): QueueRequest {
  const promptTokens = 1 << (4 + random.below(12))
  const uncachedTokens = 1 + random.below(promptTokens)
  const isPinned = isMixed && random.below(20) === 0
  return {
    id: `request-${number}`,
    arrivedMs: nowMs,
    promptTokens,
    uncachedTokens,
    bytes: 100,
    policyClass: isMixed ? ORDERS[random.below(ORDERS.length)]! : 'default',
    tenant: isMixed ? `tenant-${random.below(TENANTS)}` : '',
    priorityJumpSeconds: 0,
    strictPriority: isMixed && random.below(20) === 0 ? 1 : 0,
    deadlineMs: isMixed && random.below(2) === 0 ? nowMs + 1e9 : undefined,
    doNotQueue: false,
    lane: isPinned ? laneOf(random.below(WORKERS)) : '',
    owner: 'gateway',
    ownerLife: 'one',
  }
}

function laneOf(worker: number): string {
  return `worker-${worker}`
}

function queueOf(profile: PolicyProfile): PriorityQueue {
  // The rule for long prompts would leave long ones behind, and the depth would not be what it says.
  const room = new QueueRoom({ requestsMax: 1e6, tokensMax: 1e12 })
  return new PriorityQueue({ profile, room, workers: WORKERS, stepTokens: 1e9 })
}

function measurePass(count: number): Measure {
  const queue = queueOf(singleClassProfile('response-ratio'))
  const random = seededRandom(1)
  const [workload] = workloads()
  const requests = Array.from({ length: count }, (_, i) => requestOf(i, i / 10, random, workload!))
  const us = cpuUs(() => {
    for (const request of requests) {
      if (queue.admit(request, request.arrivedMs) !== 'ask') throw new Error('it waits')
      queue.placed(request.id, laneOf(0), request.arrivedMs)
    }
  })
  return { value: us / count, unit: 'µs' }
}

function measureDepth(workload: Workload, depth: number, rounds: number) {
  const queue = queueOf(workload.profile)
  const random = seededRandom(depth)
  const costs = { park: 0, release: 0, noRoom: 0, cancel: 0 }
  /** Ids of those that wait, in no order that matters. */
  const waiting: string[] = []
  const places = new Map<string, number>()
  const gone = (id: string): void => {
    const place = places.get(id)!
    places.delete(id)
    const last = waiting.pop()!
    if (last === id) return
    waiting[place] = last
    places.set(last, place)
  }
  let number = 0
  let nowMs = 0
  let orderSum = 0
  const park = (count: number): number => {
    const requests = Array.from({ length: count }, () => {
      nowMs += 0.1
      return requestOf(number++, nowMs, random, workload)
    })
    const us = cpuUs(() => {
      for (const request of requests) {
        const admission = queue.admit(request, request.arrivedMs)
        if (admission === 'ask') queue.busy(request.id, request.arrivedMs)
        else if (admission !== 'waiting') throw new Error(admission.reason)
      }
    })
    for (const { id } of requests) places.set(id, waiting.push(id) - 1)
    return us
  }
  park(depth)
  let lastMs = 0
  for (let round = 0; round < rounds; round++) {
    costs.park += park(2 * BATCH)
    const released: QueueRequest[] = []
    costs.release += cpuUs(() => {
      for (let i = 0; i < BATCH; i++) {
        queue.reopen('')
        queue.reopen(laneOf(i % WORKERS))
        const next = queue.take(nowMs)!
        queue.placed(next.id, laneOf(i % WORKERS), nowMs)
        released.push(next)
      }
    })
    costs.noRoom += cpuUs(() => {
      for (let i = 0; i < BATCH; i++) {
        queue.reopen('')
        queue.reopen(laneOf(i % WORKERS))
        for (let next = queue.take(nowMs); next !== undefined; next = queue.take(nowMs)) {
          queue.busy(next.id, nowMs)
        }
      }
    })
    for (const { id, arrivedMs } of released) {
      gone(id)
      orderSum = (orderSum * 31 + Number(id.slice('request-'.length))) % 1_000_003
      if (workload.name === 'fcfs') assert.ok(arrivedMs >= lastMs, 'in order of arrival')
      lastMs = arrivedMs
    }
    const cancelled = Array.from({ length: BATCH }, () => {
      const id = waiting[random.below(waiting.length)]!
      gone(id)
      return id
    })
    costs.cancel += cpuUs(() => {
      for (const id of cancelled) if (queue.cancel(id, nowMs) === undefined) throw new Error(`${id} is gone`)
    })
    assert.equal(queue.waiting, waiting.length)
  }
  const calls = BATCH * rounds
  const { park: parkUs, release, noRoom, cancel } = costs
  return {
    costs: {
      park: parkUs / (2 * calls),
      release: release / calls,
      'no room': noRoom / calls,
      cancel: cancel / calls,
    },
    orderSum,
  }
}

function cpuUs(run: () => void): number {
  const before = process.threadCpuUsage()
  run()
  const { user, system } = process.threadCpuUsage(before)
  return user + system
}
