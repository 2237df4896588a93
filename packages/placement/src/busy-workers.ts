/**
 * Busy workers: the candidates that take no more requests, by the busy thresholds of the model.
 *
 * A worker is busy only if all its ranks are. Ranks that the request may not use count too, so their loads
 * are needed as well.
 */

import type { Fleet, WorkerRecord } from '@homing/fleet'
import { type BusyThresholds, hasThreshold, type RankLoad, whyBusy } from '@homing/load'
import type { Candidate } from './candidate.ts'
import type { CandidateLoads } from './candidate-loads.ts'
import type { RoutingRequest } from './routing-request.ts'

type Loads = Pick<CandidateLoads, 'activeBlocks' | 'activePrefillTokens' | 'reportedShares'>

interface SlotLoad extends Pick<RankLoad, 'activeBlocks' | 'activePrefillTokens'> {
  /** NaN: the engine does not report it. */
  readonly reportedShare: number
}

/** The thresholds for a request; undefined: there are none. */
export function thresholdsFor(
  { busyThresholds }: Fleet,
  { model }: RoutingRequest,
): BusyThresholds | undefined {
  if (busyThresholds === undefined) return undefined
  const thresholds = busyThresholds.byModel.get(model) ?? busyThresholds.others
  return hasThreshold(thresholds) ? thresholds : undefined
}

/** Slots of the other ranks of the candidates' workers: those that are no candidates themselves. */
export function otherRanks(candidates: readonly Candidate[]): Int32Array {
  const slots = new Set<number>()
  for (const { worker } of candidates) {
    if (worker.keys.length > 1) for (const { workerSlot } of worker.keys) slots.add(workerSlot)
  }
  for (const { key } of candidates) slots.delete(key.workerSlot)
  return Int32Array.from(slots)
}

/** Why each candidate takes no more requests; undefined if it does. */
export class BusyCheck {
  readonly #loads = new Map<number, SlotLoad>()
  readonly #reasons = new Map<WorkerRecord, string | undefined>()
  readonly #thresholds: BusyThresholds

  constructor(thresholds: BusyThresholds) {
    this.#thresholds = thresholds
  }

  add(workerSlots: Int32Array, { activeBlocks, activePrefillTokens, reportedShares }: Loads): void {
    for (const [i, slot] of workerSlots.entries())
      this.#loads.set(slot, {
        activeBlocks: activeBlocks[i]!,
        activePrefillTokens: activePrefillTokens[i]!,
        reportedShare: reportedShares?.[i] ?? Number.NaN,
      })
  }

  reason({ worker }: Candidate): string | undefined {
    if (!this.#reasons.has(worker)) this.#reasons.set(worker, this.#whyBusy(worker))
    return this.#reasons.get(worker)
  }

  #whyBusy({ keys, kvBlocks, maxBatchedTokens }: WorkerRecord): string | undefined {
    const ranks = keys.flatMap(({ workerSlot }) => {
      const load = this.#loads.get(workerSlot)
      if (load === undefined) return []
      const { activeBlocks, activePrefillTokens, reportedShare } = load
      const blocksMax = kvBlocks?.value
      const isReported = blocksMax !== undefined && !Number.isNaN(reportedShare)
      const reportedBlocks = isReported ? Math.round(reportedShare * blocksMax) : undefined
      const stepTokens = maxBatchedTokens.value
      return [{ activeBlocks, activePrefillTokens, reportedBlocks, blocksMax, stepTokens }]
    })
    return whyBusy(this.#thresholds, ranks)
  }
}
