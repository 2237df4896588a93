/**
 * Request leg: which part of a request is placed, where prefill and decode are apart
 * (docs/disaggregation.md).
 *
 *   prefill   the prompt alone, on a worker of that role; it tracks no active blocks, for it decodes nothing
 *   decode    the answer, behind a hand-over: by load alone, for its prompt is not computed there
 *   neither   the whole request, on a worker that takes one
 *
 * A leg is placed, booked and settled as any request is; the exchange owns both.
 */

import {
  canHandOver,
  type Fleet,
  type Handover,
  handoverOf,
  roleOf,
  takesOver,
  takesWhole,
  topologyOf,
  type WorkerRecord,
} from '@homing/fleet'
import type { RequestLeg, RoutingRequest } from './routing-request.ts'

/** Why a worker takes no such part of a request; undefined: it does. */
export function legReasonAgainst(
  leg: RequestLeg | undefined,
  worker: WorkerRecord,
  fleet: Fleet,
): string | undefined {
  const role = roleOf(worker)
  if (leg === undefined) {
    if (takesWhole(worker)) return undefined
    return role === 'prefill'
      ? 'computes prompts only (role=prefill)'
      : 'takes no prompt that no prefill worker has computed (role=decode)'
  }
  if (leg.kind === 'prefill') {
    if (role !== 'prefill') return `is no prefill worker (role=${role})`
    const hasTaker = fleet.workers.some(other => other.state === 'up' && canHandOver(worker, other))
    return hasTaker ? undefined : noTaker(worker)
  }
  if (!takesOver(worker, leg.handover)) return `takes over no prompt by ${leg.handover} (role=${role})`
  const lacking = leg.topology.filter(taint => !worker.taints.includes(taint))
  return lacking.length === 0
    ? undefined
    : `is elsewhere than the prefill worker: it lacks ${lacking.join(', ')}`
}

function noTaker(worker: WorkerRecord): string {
  const topology = topologyOf(worker)
  const where = topology.length === 0 ? '' : ` in ${topology.join(', ')}`
  return `no decode worker that is up takes over from it by ${handoverOf(worker)}${where}`
}

/** The prefill leg of a request: at most one token, which no client sees. */
export function prefillLeg(request: RoutingRequest, pin: PrefillPin | undefined): RoutingRequest {
  return {
    ...request,
    leg: { kind: 'prefill' },
    isStream: false,
    expectedOutputTokens: 1,
    outputTokensMax: 1,
    choicesCount: 1,
    sessionId: undefined,
    tracking: { prefillTokens: undefined, assumesReuse: undefined, ...request.tracking, activeBlocks: false },
    pinnedInstanceId: pin?.instanceId,
    pinnedRank: pin?.rank,
  }
}

/** Where the client wants its prompt computed. */
export interface PrefillPin {
  readonly instanceId: number | undefined
  readonly rank: number | undefined
}

/** What the decode leg has to know of its prefill leg. */
export interface HandedOver {
  readonly handover: Handover
  readonly prefillId: string
  readonly topology: readonly string[]
}

/**
 * The decode leg of a request. What of its prompt is held there does not count: it comes from the prefill
 * worker, and neither loads the worker as prefill nor tells how fast it computes.
 */
export function decodeLeg(request: RoutingRequest, handed: HandedOver): RoutingRequest {
  return {
    ...request,
    leg: { kind: 'decode', ...handed },
    override: { ...request.override, overlapWeight: 0 },
    tracking: { ...request.tracking, assumesReuse: false, prefillTokens: false },
    cacheUse: request.cacheUse ?? 'unreported',
  }
}
